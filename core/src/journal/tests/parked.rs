//! A copy that waits in memory while its run waits in the store (rules 3 and 13): what it goes on by, and what it waits for
//! then.

use super::patience::{Store, call, config};
use crate::journal::{Call, Effect, Machine, Outside};
use crate::model::{BatchEnd, Wait};

fn await_signal(machine: &mut Machine, name: &str) {
    let op = machine.call(Call::Signal { name: name.into(), timeout: None }, None).unwrap().op;
    machine.await_op(op).unwrap();
}

/// What the machine asks, with its commits carried out: what the run was put to rest with, and how many outcomes came.
fn settled(
    store: &Store,
    machine: &mut Machine,
    lease: crate::model::Lease,
    outside: Outside,
) -> (Option<Wait>, usize) {
    let (mut rest, mut handed) = (None, 0);
    machine.settle(true, Some(outside), true);
    while let Some(effect) = machine.next_effect() {
        match effect {
            Effect::ArmDivergence(timer, _) => machine.divergence_elapsed(timer),
            Effect::Deliver(outcomes) => handed += outcomes.len(),
            Effect::Commit(draft) => {
                if let BatchEnd::Suspend(wait) = &draft.batch.end {
                    rest = Some(wait.clone());
                }
                store.answer(machine, lease, *draft);
            }
            _ => {}
        }
    }
    (rest, handed)
}

#[test]
fn edited_code_that_goes_on_by_the_record_alone_is_not_at_rest_and_is_woken_by_what_it_waits_for() {
    let store = Store::new();
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, config("1"));
    let go_on = |machine: &mut Machine| {
        machine.settle(true, Some(Outside::Nothing), true);
        store.work(machine, lease);
    };
    call(&mut machine, "gone");
    go_on(&mut machine);
    await_signal(&mut machine, "never");
    // A timer of the host has fired.
    call(&mut machine, "a");
    go_on(&mut machine);
    await_signal(&mut machine, "news");
    await_signal(&mut machine, "wake");
    go_on(&mut machine);
    store.send("wake");

    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, config("2"));
    await_signal(&mut machine, "never");
    let (rest, _) = settled(&store, &mut machine, lease, Outside::Something);
    let rest = rest.unwrap();
    assert_eq!((rest.signals, rest.host_timer), (vec!["never".to_owned()], true));
    assert!(machine.is_at_rest());
    // The timer fires again: nothing of what follows is new to the store.
    call(&mut machine, "a");
    assert!(!machine.is_at_rest());
    assert_eq!(settled(&store, &mut machine, lease, Outside::Nothing), (None, 1));
    assert!(!machine.is_at_rest());
    await_signal(&mut machine, "news");
    let (rest, _) = settled(&store, &mut machine, lease, Outside::Nothing);
    assert_eq!(rest.unwrap().signals, ["never", "news"]);
    assert!(machine.is_at_rest());
}
