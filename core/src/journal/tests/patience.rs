//! When a blocked replay is judged: at once where it is certain, never by time where the code is the recorded one, once
//! and after seconds where the code was edited (rule 8).

use super::world::now;
use crate::clock::{ManualClock, Timestamp};
use crate::error::Code;
use crate::id::{ExecutionId, OrgId, RequestId, SignalId, WorkerId};
use crate::journal::{Call, CommitDraft, Effect, Machine, MachineConfig, OpRef, Outside};
use crate::model::{
    BatchEnd, CommitRequest, Delivery, ForkFrom, ForkRequest, NewExecution, NewSignal, Placement, Segment, TaskOptions,
    WaitReason,
};
use crate::payload::{Digest, Payload};
use crate::storage::memory::MemoryStorage;
use crate::storage::{AgentStorage, ClaimRequest, WorkSource};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn step(name: &str) -> Call {
    step_of(name, 0)
}

fn step_of(name: &str, input: u32) -> Call {
    Call::Task {
        kind: name.into(),
        input: Payload::json(input.to_string()),
        options: TaskOptions::default(),
        placement: Placement::Inline,
        queue: "default".into(),
        key: None,
        aliases: Arc::default(),
    }
}

pub(super) fn call(machine: &mut Machine, name: &str) -> OpRef {
    let op = machine.call(step(name), None).unwrap().op;
    machine.await_op(op).unwrap();
    op
}

/// What the machine has asked since the last look.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    /// Timers, with their seconds.
    armed: Vec<(u64, u64)>,
    handed: usize,
    ask: usize,
    /// The words of the failure it pauses with.
    paused: Option<String>,
}

fn asked(machine: &mut Machine) -> Asked {
    let mut asked = Asked::default();
    while let Some(effect) = machine.next_effect() {
        match effect {
            Effect::ArmDivergence(timer, after) => asked.armed.push((timer, after.as_secs())),
            Effect::Deliver(outcomes) => asked.handed += outcomes.len(),
            Effect::Ask => asked.ask += 1,
            Effect::Commit(draft) => {
                if let BatchEnd::Pause { reason: WaitReason::Divergence, failure: Some(failure) } = draft.batch.end {
                    asked.paused = Some(failure.message);
                }
            }
            _ => {}
        }
    }
    asked
}

pub(super) fn config(code: &str) -> MachineConfig {
    MachineConfig { code: Some(code.to_owned()), ..MachineConfig::default() }
}

pub(super) struct Store {
    storage: MemoryStorage,
    id: ExecutionId,
}

impl Store {
    pub(super) fn new() -> Self {
        let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
        let (storage, id) = (MemoryStorage::new(Arc::new(clock)), ExecutionId(uuid::Uuid::from_u128(1)));
        now(storage.create_execution(NewExecution::new(id, "agent", Payload::null()).unwrap())).unwrap();
        Self { storage, id }
    }

    pub(super) fn claim(&self) -> (crate::model::Lease, Segment) {
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

    pub(super) fn send(&self, name: &str) {
        let signal = NewSignal {
            org: OrgId::DEFAULT,
            execution: self.id,
            id: SignalId::fresh(),
            name: name.into(),
            payload: Payload::null(),
            delivery: Delivery::default(),
            idempotency_key: None,
        };
        now(self.storage.store_signal(signal)).unwrap();
    }

    pub(super) fn corrupt_checkpoint(&self, sequence: u32) -> bool {
        self.storage.corrupt_checkpoint(OrgId::DEFAULT, self.id, sequence)
    }

    pub(super) fn give_back(&self, lease: crate::model::Lease) {
        now(self.storage.release(OrgId::DEFAULT, self.id, lease)).unwrap();
    }

    /// Runs until nothing is left to do: starts end at once, commits are answered.
    pub(super) fn work(&self, machine: &mut Machine, lease: crate::model::Lease) {
        self.work_but(machine, lease, None);
    }

    /// Commits.
    pub(super) fn answer(&self, machine: &mut Machine, lease: crate::model::Lease, draft: CommitDraft) {
        let request = CommitRequest {
            org: OrgId::DEFAULT,
            execution: self.id,
            lease,
            request_id: RequestId::fresh(),
            digest: Digest::default(),
            base: draft.base,
            known: draft.known,
            batch: draft.batch,
            refused: Vec::new(),
            local: None,
        };
        machine.answered(now(self.storage.commit(request)));
    }

    /// The same, but for one that does not end.
    fn work_but(&self, machine: &mut Machine, lease: crate::model::Lease, endless: Option<OpRef>) {
        while let Some(effect) = machine.next_effect() {
            match effect {
                Effect::Start(start) if Some(start.op) == endless => {}
                Effect::Start(start) => {
                    let result = crate::model::AttemptResult::Completed(Payload::null());
                    machine.task_ended(start.op, start.attempt, result, Duration::ZERO);
                }
                Effect::Commit(draft) => self.answer(machine, lease, *draft),
                _ => {}
            }
            machine.settle(false, Some(Outside::Nothing), true);
        }
    }
}

impl Store {
    /// Records a life of the code "1" that calls these steps, each group once the one before has ended.
    fn record(&self, groups: &[&[&str]]) {
        let (lease, segment) = self.claim();
        let mut machine = Machine::new(segment, config("1"));
        for names in groups {
            for name in *names {
                call(&mut machine, name);
            }
            machine.settle(true, Some(Outside::Nothing), true);
            self.work(&mut machine, lease);
        }
        machine.seal();
        self.give_back(lease);
    }

    fn enter(&self, code: &str) -> Machine {
        let (_, segment) = self.claim();
        Machine::new(segment, config(code))
    }
}

fn settle(machine: &mut Machine, outside: Outside) -> Asked {
    machine.settle(true, Some(outside), true);
    asked(machine)
}

#[test]
fn unchanged_code_is_waited_for_and_then_the_run_pauses() {
    let store = Store::new();
    store.record(&[&["a", "b"], &["c"]]);
    let mut machine = store.enter("1");
    // The other branch waits for something of its own before it calls `b`.
    call(&mut machine, "a");
    assert_eq!(settle(&mut machine, Outside::Something).armed, [(1, 60)], "the end of `a` is held up");
    call(&mut machine, "b");
    assert_eq!(settle(&mut machine, Outside::Something).handed, 1);
    machine.divergence_elapsed(1);
    settle(&mut machine, Outside::Something);
    call(&mut machine, "x");
    assert_eq!(settle(&mut machine, Outside::Something).armed, [(2, 60)], "a new wait has a patience of its own");
    machine.divergence_elapsed(1);
    assert_eq!(asked(&mut machine), Asked::default(), "the old timer speaks for a wait that is over");
    machine.divergence_elapsed(2);
    let paused = asked(&mut machine).paused.unwrap();
    for word in ["task \"c\"", "task \"x\"", "not certain", "60 s", "replay_timeout"] {
        assert!(paused.contains(word), "{word:?} in {paused}");
    }
    assert!(!machine.segment.diverged, "it never goes on by itself");
}

#[test]
fn a_call_restarts_the_wait_of_unchanged_code() {
    let store = Store::new();
    store.record(&[&["a", "b", "c"]]);
    let mut machine = store.enter("1");
    call(&mut machine, "a");
    assert_eq!(settle(&mut machine, Outside::Something).armed, [(1, 60)]);
    call(&mut machine, "b");
    assert_eq!(settle(&mut machine, Outside::Something).armed, [(2, 60)]);
}

#[test]
fn what_was_given_up_is_waited_for_for_seconds_and_never_pauses() {
    let store = Store::new();
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, config("1"));
    let loser = call(&mut machine, "b");
    machine.abandon(loser);
    call(&mut machine, "a");
    machine.settle(true, Some(Outside::Nothing), true);
    store.work(&mut machine, lease);
    machine.seal();
    store.give_back(lease);
    // This time the race was won before its loser was called: nobody was told anything of it.
    let mut machine = store.enter("1");
    call(&mut machine, "a");
    assert_eq!(settle(&mut machine, Outside::Something).armed, [(1, 5)]);
    machine.divergence_elapsed(1);
    let told = asked(&mut machine);
    assert_eq!((told.handed, told.paused), (1, None));
}

#[test]
fn an_await_that_was_given_up_is_not_begun_again() {
    let store = Store::new();
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, config("1"));
    let loses = |machine: &mut Machine| {
        let loser = call(machine, "b");
        machine.abandon(loser);
        machine.await_op(loser).unwrap_err()
    };
    let first = loses(&mut machine);
    assert_eq!(first.code(), Code::InvalidTransition);
    assert!(first.message().contains("task \"b\"") && first.message().contains("given up"), "{first}");
    machine.settle(true, Some(Outside::Nothing), true);
    store.work(&mut machine, lease);
    machine.seal();
    store.give_back(lease);
    let mut machine = store.enter("1");
    assert_eq!(loses(&mut machine).message(), first.message(), "replay is told the same");
}

#[test]
fn what_holds_nothing_up_is_waited_for_without_end() {
    let store = Store::new();
    store.record(&[&["a"], &["b"]]);
    let mut machine = store.enter("1");
    call(&mut machine, "a");
    assert_eq!(settle(&mut machine, Outside::Something).handed, 1);
    // Nothing is awaited that has an end: `b` may come in an hour.
    machine.call(Call::Signal { name: "s".into(), timeout: None }, None).unwrap();
    assert_eq!(settle(&mut machine, Outside::Something), Asked::default());
}

#[test]
fn what_no_branch_can_call_any_more_is_judged_at_once() {
    for code in ["1", "2"] {
        let store = Store::new();
        store.record(&[&["a", "b"]]);
        let mut machine = store.enter(code);
        call(&mut machine, "a");
        let told = settle(&mut machine, Outside::Nothing);
        assert_eq!((told.armed.len(), told.handed), (0, 1), "code {code}");
        assert!(machine.segment.diverged);
    }
}

#[test]
fn edited_code_is_waited_for_once() {
    let store = Store::new();
    store.record(&[&["a", "b", "c", "d"]]);
    let mut machine = store.enter("2");
    call(&mut machine, "a");
    assert_eq!(settle(&mut machine, Outside::Something).armed, [(1, 5)]);
    call(&mut machine, "c");
    assert_eq!(settle(&mut machine, Outside::Something).armed, [], "a call is no reason to wait longer");
    machine.divergence_elapsed(1);
    // `b` and then `d` are passed over, and the outcomes come.
    assert_eq!(asked(&mut machine).handed, 1);
    assert_eq!(settle(&mut machine, Outside::Something), Asked { handed: 1, ..Asked::default() });
}

#[test]
fn what_is_held_up_is_not_waited_for_in_the_store() {
    let store = Store::new();
    store.record(&[&["a", "b"]]);
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, config("2"));
    let never = machine.call(Call::Signal { name: "never".into(), timeout: None }, None).unwrap().op;
    machine.await_op(never).unwrap();
    // `b` has ended long ago, and `a` may still be called before it.
    call(&mut machine, "b");
    machine.settle(true, Some(Outside::Nothing), true);
    assert!(machine.segment.diverged);
    store.work(&mut machine, lease);
    assert!(!machine.is_parked(), "nothing in the store would wake it");
    (1..4).for_each(|timer| machine.divergence_elapsed(timer));
    assert_eq!(asked(&mut machine).handed, 1);
}

#[test]
fn a_host_that_has_to_look_is_asked_first() {
    let store = Store::new();
    store.record(&[&["a", "b"]]);
    let mut machine = store.enter("1");
    call(&mut machine, "a");
    machine.settle(true, None, true);
    assert_eq!(asked(&mut machine), Asked { ask: 1, ..Asked::default() });
    assert_eq!(settle(&mut machine, Outside::Something).armed, [(1, 60)]);
    // What was outside may end without a call.
    machine.ask_again();
    assert_eq!(asked(&mut machine), Asked { ask: 1, ..Asked::default() });
    assert_eq!(settle(&mut machine, Outside::Nothing).handed, 1);
    assert!(machine.segment.diverged);
}

/// Enters the last step of a record again with another input; whether it was handed what was recorded.
fn again(record: &[&[&str]], config: MachineConfig, name: &str, beside: bool) -> bool {
    let store = Store::new();
    store.record(record);
    let (_, segment) = store.claim();
    let mut machine = Machine::new(segment, config);
    for name in &record.concat()[..record.concat().len() - 1] {
        call(&mut machine, name);
        machine.settle(false, Some(Outside::Nothing), true);
    }
    asked(&mut machine);
    if beside {
        machine.note_concurrent();
    }
    let called = machine.call(step_of(name, 1), None).unwrap();
    machine.await_op(called.op).unwrap();
    machine.settle(beside, Some(Outside::Nothing), true);
    let handed = asked(&mut machine).handed == 1;
    assert_eq!(handed, !machine.segment.diverged, "what is not the same step diverges");
    handed
}

#[test]
fn only_a_step_that_was_alone_may_be_reworded() {
    assert!(again(&[&["a"]], config("1"), "a", false), "alone: the same step with another input");
    assert!(again(&[&["a"], &["b"]], config("1"), "b", false), "what came before had ended");
    assert!(!again(&[&["a"]], config("2"), "a", false), "edited code");
    assert!(!again(&[&["a"]], config("1"), "b", false), "another step");
    assert!(!again(&[&["a", "b"]], config("1"), "b", false), "beside another in the record");
}

#[test]
fn a_step_is_not_reworded_while_another_branch_is_alive() {
    assert!(!again(&[&["a"]], config("1"), "a", true));
    // One that may call it is outside.
    let store = Store::new();
    store.record(&[&["a"]]);
    let mut machine = store.enter("1");
    let called = machine.call(step_of("a", 1), None).unwrap();
    machine.await_op(called.op).unwrap();
    assert_eq!(settle(&mut machine, Outside::Something), Asked { armed: vec![(1, 60)], ..Asked::default() });
}

#[test]
fn a_host_that_never_knows_what_is_outside_decides_at_the_call() {
    let blind = |record: &[&[&str]]| {
        let store = Store::new();
        store.record(record);
        let (_, segment) = store.claim();
        let mut machine = Machine::new(segment, MachineConfig { blind: true, ..config("1") });
        machine.call(step_of("a", 1), None).unwrap().recorded
    };
    assert!(blind(&[&["a"], &["b"]]));
    assert!(!blind(&[&["a"], &["b", "c"]]), "there have been branches");
}

#[test]
fn a_step_beside_one_that_a_fork_left_out_is_not_reworded() {
    let mut store = Store::new();
    let (lease, segment) = store.claim();
    let mut machine = Machine::new(segment, config("1"));
    let ops = [0, 1].map(|input| machine.call(step_of("a", input), None).unwrap().op);
    ops.iter().for_each(|op| machine.await_op(*op).unwrap());
    machine.settle(true, Some(Outside::Nothing), true);
    // The first is under way while the second ends.
    store.work_but(&mut machine, lease, Some(ops[0]));
    let request = ForkRequest {
        org: OrgId::DEFAULT,
        execution: store.id,
        id: ExecutionId(uuid::Uuid::from_u128(9)),
        key: None,
        from: ForkFrom::Latest,
        state: None,
        input: None,
    };
    store.id = now(store.storage.fork(request)).unwrap().new.id;
    for blind in [true, false] {
        let (lease, segment) = store.claim();
        assert_eq!(segment.tail.len(), 1);
        let mut machine = Machine::new(segment, MachineConfig { blind, ..config("1") });
        let again = [0, 1].map(|input| machine.call(step_of("a", input), None).unwrap());
        assert_eq!(again.map(|called| called.recorded), [false, true], "blind: {blind}");
        store.give_back(lease);
    }
}
