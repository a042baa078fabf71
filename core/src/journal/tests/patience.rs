//! The patience with a blocked replay starts anew with every outcome handed over.

use super::world::now;
use crate::clock::{ManualClock, Timestamp};
use crate::id::{ExecutionId, OrgId, RequestId, WorkerId};
use crate::journal::{Call, Effect, Machine, MachineConfig, OpRef};
use crate::model::{CommitRequest, NewExecution, Placement, Segment, TaskOptions};
use crate::payload::{Digest, Payload};
use crate::storage::memory::MemoryStorage;
use crate::storage::{AgentStorage, ClaimRequest, WorkSource};
use std::sync::Arc;
use std::time::Duration;

fn step(name: &str) -> Call {
    Call::Task {
        kind: name.into(),
        input: Payload::null(),
        options: TaskOptions::default(),
        placement: Placement::Inline,
        queue: "default".into(),
        key: None,
    }
}

fn call(machine: &mut Machine, name: &str) -> OpRef {
    let op = machine.call(step(name), None).unwrap().op;
    machine.await_op(op).unwrap();
    op
}

/// The effects since the last look: numbers of patience timers, and how many outcomes were handed over.
fn effects(machine: &mut Machine) -> (Vec<u64>, usize) {
    let (mut armed, mut handed) = (Vec::new(), 0);
    while let Some(effect) = machine.next_effect() {
        match effect {
            Effect::ArmDivergence(timer) => armed.push(timer),
            Effect::Deliver(outcomes) => handed += outcomes.len(),
            _ => {}
        }
    }
    (armed, handed)
}

struct Store {
    storage: MemoryStorage,
    id: ExecutionId,
}

impl Store {
    fn new() -> Self {
        let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
        let (storage, id) = (MemoryStorage::new(Arc::new(clock)), ExecutionId(uuid::Uuid::from_u128(1)));
        now(storage.create_execution(NewExecution::new(id, "agent", Payload::null()).unwrap())).unwrap();
        Self { storage, id }
    }

    fn claim(&self) -> (crate::model::Lease, Segment) {
        let claim = ClaimRequest {
            org: OrgId::DEFAULT,
            worker: WorkerId(uuid::Uuid::from_u128(2)),
            queue: "default".into(),
            kinds: Arc::new(["agent".to_owned()]),
            limit: 1,
            ttl: Duration::from_secs(30),
            only: None,
        };
        let lease = now(self.storage.claim_agents(claim)).unwrap()[0].lease;
        (lease, now(self.storage.load_segment(OrgId::DEFAULT, self.id, lease)).unwrap())
    }

    /// Runs until nothing is left to do: starts end at once, commits are answered.
    fn work(&self, machine: &mut Machine, lease: crate::model::Lease) {
        while let Some(effect) = machine.next_effect() {
            match effect {
                Effect::Start(start) => {
                    let result = crate::model::AttemptResult::Completed(Payload::null());
                    machine.task_ended(start.op, start.attempt, result, Duration::ZERO);
                }
                Effect::Commit(draft) => {
                    let request = CommitRequest {
                        org: OrgId::DEFAULT,
                        execution: self.id,
                        lease,
                        request_id: RequestId::fresh(),
                        digest: Digest::default(),
                        base: draft.base,
                        known: draft.known,
                        batch: draft.batch,
                    };
                    machine.answered(now(self.storage.commit(request)));
                }
                _ => {}
            }
            machine.settle(false, true);
        }
    }
}

#[test]
fn an_outcome_handed_over_restarts_the_patience() {
    let store = Store::new();
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, MachineConfig::default());
    for names in [&["a", "b"][..], &["c"][..]] {
        for name in names {
            call(&mut machine, name);
        }
        machine.settle(true, true);
        store.work(&mut machine, lease);
    }
    machine.seal();
    now(store.storage.release(OrgId::DEFAULT, store.id, lease)).unwrap();

    let (_, segment) = store.claim();
    assert_eq!(segment.tail.len(), 3);
    let mut machine = Machine::new(segment, MachineConfig::default());
    // The other branch waits for something of its own before it calls `b`.
    call(&mut machine, "a");
    machine.settle(true, true);
    assert_eq!(effects(&mut machine), (vec![1], 0));
    call(&mut machine, "b");
    machine.settle(true, true);
    assert_eq!(effects(&mut machine), (vec![], 1));
    machine.settle(true, true);
    machine.settle(true, true);
    call(&mut machine, "x");
    machine.settle(true, true);
    let (armed, _) = effects(&mut machine);
    assert_eq!(armed, [2], "a new wait has a patience of its own");
    // The old timer runs out: it speaks for a wait that is over.
    machine.divergence_elapsed(1);
    assert!(!machine.diverged);
    machine.divergence_elapsed(2);
    assert!(machine.diverged);
}
