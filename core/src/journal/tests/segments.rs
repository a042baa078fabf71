//! What one segment leaves to the next: nothing but what the checkpoint says.

use super::patience::{Store, call};
use crate::journal::{Call, Effect, Machine, MachineConfig, OpRef, Outside, Question};
use crate::model::Lease;
use crate::payload::Payload;

fn stateful() -> MachineConfig {
    MachineConfig { stateful: true, ..super::patience::config("1") }
}

fn go_on(store: &Store, machine: &mut Machine, lease: Lease) {
    machine.settle(true, Some(Outside::Nothing), true);
    store.work(machine, lease);
}

fn save(store: &Store, machine: &mut Machine, lease: Lease) {
    machine.checkpoint(Payload::null(), "{}".into()).unwrap();
    go_on(store, machine, lease);
}

fn listen(machine: &mut Machine) -> OpRef {
    let op = machine.call(Call::Signal { name: "news".into(), timeout: None }, None).unwrap().op;
    machine.await_op(op).unwrap();
    op
}

/// The segment in which the third op gives up the first.
fn give_up(machine: &mut Machine) {
    let op = call(machine, "slow");
    machine.read(Question::HasSignal("x".into()), None).unwrap();
    machine.abandon(op);
}

#[test]
fn what_a_segment_gave_up_is_not_taken_for_an_op_of_the_next() {
    let store = Store::new();
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, stateful());
    save(&store, &mut machine, lease);
    give_up(&mut machine);
    save(&store, &mut machine, lease);
    call(&mut machine, "a");
    go_on(&store, &mut machine, lease);
    listen(&mut machine);
    call(&mut machine, "b");
    go_on(&store, &mut machine, lease);
    assert_eq!((machine.segment(), machine.tail_length()), (2, 3));
    machine.seal();

    // Its second checkpoint is damaged, so the segment before is repeated, and then this one.
    assert!(store.corrupt_checkpoint(2));
    store.send("news");
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, stateful());
    assert_eq!(machine.segment(), 1);
    give_up(&mut machine);
    save(&store, &mut machine, lease);
    assert_eq!(machine.segment(), 2);
    call(&mut machine, "a");
    go_on(&store, &mut machine, lease);
    listen(&mut machine);
    // The branch that calls `b` waits for a timer of the host, and the signal is held up by it.
    machine.settle(true, Some(Outside::Something), true);
    let mut armed = Vec::new();
    while let Some(effect) = machine.next_effect() {
        if let Effect::ArmDivergence(_, patience) = effect {
            armed.push(patience.as_secs());
        }
    }
    assert_eq!(armed, [60], "`b` was not given up, so it is waited for as long as any call");
    let called = machine.call(super::patience::step("b"), None).unwrap();
    assert!(called.recorded, "a finished step is not repeated");
}

#[test]
fn the_place_of_a_draw_is_the_same_after_a_checkpoint_and_a_crash() {
    let store = Store::new();
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, stateful());
    for name in ["a", "b"] {
        call(&mut machine, name);
        go_on(&store, &mut machine, lease);
    }
    save(&store, &mut machine, lease);
    let live = (machine.segment(), machine.last_called());
    machine.seal();
    store.give_back(lease);
    let entered = Machine::new(store.claim().1, stateful());
    assert_eq!(live, (entered.segment(), entered.last_called()));
}
