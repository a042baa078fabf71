//! What may start beside its commit: nothing whose being called no replay could repeat (rules 1, 5 and 6).

use super::patience::{Store, call, config};
use crate::journal::{Effect, Machine, OnceBegin, Outside, Question};
use crate::model::AttemptResult;
use crate::payload::{Digest, Payload};
use std::sync::Arc;
use std::time::Duration;

/// Whether a task was started and a commit asked for.
fn asked(machine: &mut Machine) -> (bool, bool) {
    machine.settle(true, Some(Outside::Nothing), true);
    let (mut started, mut committed) = (false, false);
    while let Some(effect) = machine.next_effect() {
        started |= matches!(effect, Effect::Start(_));
        committed |= matches!(effect, Effect::Commit(_));
    }
    (started, committed)
}

fn read(machine: &mut Machine) {
    machine.read(Question::HasSignal("news".into()), None).unwrap();
}

#[test]
fn what_is_called_beside_a_wait_outside_is_durable_before_it_starts() {
    for (outside, beside) in [(Outside::Nothing, true), (Outside::Something, false)] {
        let store = Store::new();
        let (_, segment) = store.claim();
        let mut machine = Machine::new(segment, config("1"));
        call(&mut machine, "a");
        machine.settle(true, Some(outside), true);
        let mut started = false;
        let mut committed = false;
        while let Some(effect) = machine.next_effect() {
            started |= matches!(effect, Effect::Start(_));
            committed |= matches!(effect, Effect::Commit(_));
        }
        assert_eq!((started, committed), (beside, !beside), "{outside:?}");
    }
}

#[test]
fn nothing_starts_beside_a_read() {
    let store = Store::new();
    let (_, segment) = store.claim();
    let mut machine = Machine::new(segment, config("1"));
    read(&mut machine);
    call(&mut machine, "a");
    assert_eq!(asked(&mut machine), (false, true));
    // Nor while the read of another branch is on its way.
    call(&mut machine, "b");
    assert_eq!(asked(&mut machine), (false, false));
}

#[test]
fn nothing_starts_beside_the_count_of_a_read() {
    let store = Store::new();
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, config("1"));
    read(&mut machine);
    machine.settle(false, Some(Outside::Nothing), true);
    machine.hold_elapsed();
    store.work(&mut machine, lease);
    read(&mut machine);
    call(&mut machine, "a");
    assert_eq!(asked(&mut machine), (false, true));
}

/// The store numbers what ended. When the end of a `once`, a flush or a mark of a step was seen, only the next op tells.
#[test]
fn nothing_starts_by_an_order_that_no_op_tells() {
    for (step_first, both, beside) in [(true, true, false), (true, false, false), (false, true, true)] {
        let store = Store::new();
        let (lease, segment) = store.claim();
        let mut machine = Machine::new(segment, config("1"));
        let step = call(&mut machine, "a");
        if step_first {
            // Both go with one commit.
            machine.settle(true, Some(Outside::Nothing), true);
            machine.task_ended(step, 1, AttemptResult::Completed(Payload::null()), Duration::ZERO);
        }
        let (name, digest) = (Arc::from("plan"), Digest::default());
        assert!(matches!(machine.once_begin(&name, digest), Ok(OnceBegin::Run)));
        let once = machine.once_end(&name, digest, Payload::null()).unwrap();
        machine.await_op(once).unwrap();
        let mut handed = Vec::new();
        while handed.len() < if both { 2 } else { 1 } {
            machine.settle(true, Some(Outside::Nothing), true);
            while let Some(effect) = machine.next_effect() {
                match effect {
                    Effect::Commit(draft) => store.answer(&mut machine, lease, *draft),
                    Effect::Deliver(outcomes) => handed.extend(outcomes.iter().map(|outcome| outcome.op)),
                    _ => {}
                }
            }
            if handed == [once] {
                machine.task_ended(step, 1, AttemptResult::Completed(Payload::null()), Duration::ZERO);
            }
        }
        let order = if step_first { [step, once] } else { [once, step] };
        assert_eq!(handed, order[..handed.len()]);
        call(&mut machine, "b");
        assert_eq!(asked(&mut machine), (beside, !beside), "step first: {step_first}, both: {both}");
    }
}
