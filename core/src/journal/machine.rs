//! The machine of one run: its ops, what is known of them, and the inputs that change them.
//!
//! It decides nothing about time and does nothing itself: `plan.rs` turns what is known into effects.

use super::account::Account;
use super::call::Question;
use super::config::{MachineConfig, Outside};
use super::draft::{Draft, Most};
use super::effect::{Effect, Ending, Outcome};
use super::op::{Alarm, Attempt, Detail, Op, Place, TaskState};
use super::open::Open;
use super::reading::is_yes;
use super::replay::Script;
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OnceSlot, OpId, Slot, TaskId};
use crate::model::{
    Cancellation, Fact, Failure, ForkPoint, Label, LabelKey, NewCheckpoint, OnceResult, RecordedBody, RecordedOp, Seen,
    Segment, SideEffects, Signal, TaskOptions, TaskStatus, Wait,
};
use crate::payload::Payload;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// An op of the current segment as the host names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpRef(pub u32);

impl OpRef {
    /// The pending checkpoint, which is no op of either segment.
    pub const CHECKPOINT: OpRef = OpRef(u32::MAX);
}

/// A checkpoint that was asked for.
#[derive(Debug)]
pub(super) struct PendingCheckpoint {
    pub saved: Option<NewCheckpoint>,
}

/// The machine of one run.
#[derive(Debug)]
pub struct Machine {
    pub(super) execution: ExecutionId,
    pub(super) config: MachineConfig,
    pub(super) forked_from: Option<ForkPoint>,
    pub(super) segment: u32,
    pub(super) base: u64,
    pub(super) known: u64,
    /// Facts applied so far: the order of outcomes.
    pub(super) order: u64,
    pub(super) ops: Vec<Op>,
    /// The reference of `ops[0]`: references of earlier segments are told apart.
    pub(super) first_ref: u32,
    pub(super) script: Script,
    /// Ops of `once`s that an earlier segment left unfinished.
    pub(super) unfinished_once: Vec<usize>,
    /// New ops that wait for divergence to be judged.
    pub(super) held: Vec<usize>,
    /// Inline tasks that are to be started.
    pub(super) starting: Vec<usize>,
    /// Inline tasks with an attempt that runs here, or whose end is not durable yet.
    pub(super) active: Vec<usize>,
    /// The place among the facts of the latest outcome handed over; 0 before the first.
    pub(super) handed: u64,
    /// When each fact was stored, by its order (from 1).
    pub(super) times: Vec<Timestamp>,
    /// The store's time of the last outcome handed over.
    pub(super) time: Timestamp,
    pub(super) by_sequence: HashMap<u32, usize>,
    pub(super) by_task: HashMap<TaskId, Vec<usize>>,
    pub(super) next_sequence: u32,
    pub(super) once_next: HashMap<Arc<str>, u32>,
    pub(super) once_done: HashMap<Arc<str>, OnceResult>,
    pub(super) leaves: BTreeMap<String, EntryId>,
    pub(super) mailbox: VecDeque<(u64, Signal)>,
    /// Signals the tail consumed, by op.
    pub(super) consumed: HashMap<Slot, Vec<(u64, Signal)>>,
    pub(super) task_results: HashMap<TaskId, (u64, Outcome)>,
    pub(super) awaited: Vec<usize>,
    pub(super) seen: Vec<Seen>,
    pub(super) draft: Draft,
    pub(super) most: Most,
    pub(super) open: Open,
    pub(super) account: Account,
    pub(super) in_flight: Option<Box<InFlight>>,
    pub(super) last_read: Option<(usize, Label, Payload, u32)>,
    /// How often a recorded read still answers, and how often it did in all.
    pub(super) read_left: HashMap<usize, u32>,
    pub(super) read_total: HashMap<usize, u32>,
    /// The host gave up an await by a timer of its own.
    pub(super) abandoned_by_host: bool,
    /// Whether anything outside may make the code go on; none until the host has said so, for this time of quiet.
    pub(super) outside: Option<Outside>,
    /// What the host said last: something of this process alone may end the wait.
    pub(super) host_timer: bool,
    /// Some branch has waited outside while another awaited an outcome.
    pub(super) races_outside: bool,
    pub(super) asked: bool,
    pub(super) asking_later: bool,
    /// The awaits that recorded ops give up, by op.
    pub(super) abandons: HashMap<usize, usize>,
    pub(super) cancel: Option<(u64, Cancellation)>,
    pub(super) cancel_handed: bool,
    pub(super) checkpoint: Option<Box<PendingCheckpoint>>,
    pub(super) ending: Option<Box<Ending>>,
    pub(super) quiet: bool,
    pub(super) concurrent: bool,
    pub(super) lease_fresh: bool,
    /// The claim before this one was lost without a commit, and this one has made none yet.
    pub(super) was_lost: bool,
    pub(super) code_unchanged: bool,
    pub(super) code_to_store: Option<String>,
    pub(super) diverged: bool,
    /// The timer of the patience that runs, by its number: progress starts another.
    pub(super) patience: Option<u64>,
    pub(super) patience_started: u64,
    pub(super) divergence_due: bool,
    /// Edited code has been waited for once.
    pub(super) was_patient: bool,
    pub(super) divergence_allowed: bool,
    pub(super) parked: bool,
    /// What the run waits for by the last commit that put it to rest.
    pub(super) waits: Option<Box<Wait>>,
    /// It was claimed, and what it was woken by is on its way.
    pub(super) lacks_news: bool,
    pub(super) over: bool,
    /// Its process is about to end: nothing is started or handed over any more.
    pub(super) draining: bool,
    pub(super) called_anything: bool,
    /// The recorded label and the call that was taken for it, where the first call was a reworded step.
    pub(super) reworded_first: Option<(Label, Label)>,
    /// What the run ends with if its first call turns out to be work before the agent's loop, and whether that call has a
    /// twin further on.
    pub(super) suspect: Option<(bool, Box<Failure>)>,
    pub(super) last_called: u32,
    pub(super) effects: VecDeque<Effect>,
    /// Recorded ops of segments whose own checkpoint is damaged: they follow the present one.
    pub(super) ahead: BTreeMap<u32, Vec<RecordedOp>>,
    /// What is known, for those.
    pub(super) ahead_facts: Vec<Fact>,
}

/// The commit on its way.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Ops that become durable.
    pub ops: Vec<usize>,
    /// Ops whose outcome is that very durability.
    pub marks: Vec<usize>,
    /// Ops with an attempt that ended.
    pub attempts: Vec<usize>,
    /// The checkpoint that ends the segment.
    pub checkpoint: Option<NewCheckpoint>,
    /// No task may start before it is durable.
    pub decides: bool,
}

/// Whether a person has said that this code may go on, and how the run's code is to be named from now on.
///
/// `resolve_divergence` leaves the mark `mixed`. It counts for the code that takes the run up next and for no later edit.
fn admitted(stored: Option<&str>, mine: Option<&str>) -> (bool, Option<String>) {
    let mixed = mine.map(|code| format!("mixed:{code}"));
    let edited = mine.map(|code| format!("edited:{code}"));
    match stored {
        None => (false, mine.map(str::to_owned)),
        Some("mixed") => (true, mixed),
        Some(stored) if Some(stored) == mixed.as_deref() => (true, None),
        Some(stored) if Some(stored) == mine || Some(stored) == edited.as_deref() => (false, None),
        Some(_) => (false, Some(edited.unwrap_or_else(|| "edited".to_owned()))),
    }
}

impl Machine {
    /// Starts from a loaded segment.
    pub fn new(segment: Segment, config: MachineConfig) -> Self {
        let execution = &segment.execution;
        // An older checkpoint than the run's segment: the newer ones are damaged, and their segments are replayed too.
        let number = segment.checkpoint.as_ref().map_or(execution.segment, |checkpoint| checkpoint.sequence);
        let segment_time = segment.checkpoint.as_ref().map_or(execution.created_at, |checkpoint| checkpoint.created_at);
        let code_unchanged = execution.code.is_none() || execution.code == config.code;
        let (divergence_allowed, code_to_store) = admitted(execution.code.as_deref(), config.code.as_deref());
        let mut machine = Self {
            execution: execution.new.id,
            config,
            forked_from: execution.forked_from,
            segment: number,
            base: execution.base,
            known: segment.high,
            order: 0,
            handed: 0,
            ops: Vec::with_capacity(segment.tail.len() + 8),
            first_ref: 0,
            script: Script::default(),
            unfinished_once: Vec::new(),
            held: Vec::new(),
            starting: Vec::new(),
            active: Vec::new(),
            times: Vec::new(),
            time: segment_time,
            by_sequence: HashMap::new(),
            by_task: HashMap::new(),
            next_sequence: 0,
            once_next: HashMap::new(),
            once_done: segment.once.into_iter().map(|once| (once.name.clone(), once)).collect(),
            leaves: segment.checkpoint.map(|checkpoint| checkpoint.saved.leaves).unwrap_or_default(),
            mailbox: VecDeque::new(),
            consumed: HashMap::new(),
            task_results: HashMap::new(),
            awaited: Vec::new(),
            seen: Vec::new(),
            draft: Draft::default(),
            most: Most::default(),
            open: Open::default(),
            account: Account::of(execution),
            in_flight: None,
            last_read: None,
            read_left: HashMap::new(),
            read_total: HashMap::new(),
            abandoned_by_host: false,
            outside: None,
            host_timer: false,
            races_outside: false,
            asked: false,
            asking_later: false,
            abandons: HashMap::new(),
            cancel: None,
            cancel_handed: false,
            checkpoint: None,
            ending: None,
            quiet: false,
            concurrent: false,
            lease_fresh: true,
            was_lost: execution.losses > 0,
            code_unchanged,
            code_to_store,
            diverged: false,
            patience: None,
            patience_started: 0,
            divergence_due: false,
            was_patient: false,
            divergence_allowed,
            parked: false,
            waits: None,
            lacks_news: false,
            over: false,
            draining: false,
            called_anything: false,
            reworded_first: None,
            suspect: None,
            last_called: 0,
            effects: VecDeque::new(),
            ahead: BTreeMap::new(),
            ahead_facts: Vec::new(),
        };
        let (ahead, tail): (Vec<_>, Vec<_>) = segment.tail.into_iter().partition(|op| op.segment > number);
        for ahead_of in number + 1..=execution.segment {
            machine.ahead.insert(ahead_of, ahead.iter().filter(|op| op.segment == ahead_of).cloned().collect());
        }
        machine.load(&tail);
        machine.apply_all(segment.facts, true);
        machine
    }

    pub(super) fn load(&mut self, tail: &[RecordedOp]) {
        for recorded in tail {
            let index = self.ops.len();
            let mut op = Op::new(recorded.segment, recorded.sequence, recorded.once.clone(), recorded.label.clone());
            op.place = Place::Recorded;
            match &recorded.body {
                RecordedBody::Task { id, status, attempt, inline, at_most_once, max_losses, .. } => {
                    self.by_task.entry(*id).or_default().push(index);
                    let effects = if *at_most_once { SideEffects::AtMostOnce } else { SideEffects::Idempotent };
                    let lost = *inline && *status == TaskStatus::Running;
                    op.detail = Detail::Task(Box::new(TaskState {
                        id: *id,
                        kind: recorded.label.name.clone(),
                        options: TaskOptions { side_effects: effects, ..TaskOptions::default() },
                        status: *status,
                        attempt: *attempt,
                        here: if lost { Attempt::Lost } else { Attempt::Elsewhere },
                        max_losses: *max_losses,
                        is_open: false,
                    }));
                }
                RecordedBody::Attach { task } => self.by_task.entry(*task).or_default().push(index),
                RecordedBody::Read { answer, count } => {
                    op.outcome = Some((0, Outcome::Value(answer.clone())));
                    self.read_left.insert(index, *count);
                    self.read_total.insert(index, *count);
                }
                RecordedBody::Once { value } => op.outcome = Some((0, Outcome::Value(value.clone()))),
                RecordedBody::Flush | RecordedBody::Step => op.outcome = Some((0, Outcome::Done)),
                RecordedBody::Entry { id, .. } => {
                    op.detail = Detail::Entry { id: *id, external: None };
                    op.settle();
                }
                RecordedBody::Abandon { .. } | RecordedBody::Usage => op.settle(),
                RecordedBody::Signal | RecordedBody::Timer => op.detail = Detail::Wait(Alarm::Set),
            }
            if let Some(once) = &recorded.once {
                let next = self.once_next.entry(once.name.clone()).or_insert(1);
                *next = (*next).max(once.n + 1);
            }
            if recorded.segment == self.segment {
                self.by_sequence.insert(recorded.sequence, index);
                self.next_sequence = self.next_sequence.max(recorded.sequence + 1);
            } else {
                self.unfinished_once.push(index);
            }
            self.ops.push(op);
        }
        // What a finished `once` did inside is never called again; its result is. Nor is what counts no more.
        let finished: HashSet<Arc<str>> = tail
            .iter()
            .filter(|op| matches!(op.body, RecordedBody::Once { .. }))
            .filter_map(|op| op.once.as_ref().map(|once| once.name.clone()))
            .collect();
        let skip: HashSet<usize> = tail
            .iter()
            .enumerate()
            .filter(|(_, op)| {
                let inside = op.once.as_ref().is_some_and(|once| once.n > 0 && finished.contains(&once.name));
                inside || op.is_undone() || self.is_of_a_parents_stop(op)
            })
            .map(|(index, _)| index)
            .collect();
        for index in &skip {
            self.ops[*index].claim();
            self.ops[*index].settle();
        }
        let here = tail.iter().filter(|op| op.segment == self.segment);
        let index = |sequence| self.by_sequence.get(&sequence).copied();
        self.script = Script::of_tail(here, self.last_inherited(), index, |index| skip.contains(&index));
        self.take_recorded_abandons(tail);
        self.take_external_entries(tail);
    }

    /// The last op of this segment that a fork has of its parent.
    fn last_inherited(&self) -> Option<u32> {
        self.forked_from.filter(|point| point.segment == self.segment)?.sequence
    }

    /// Whether an op is the answer to a fork's parent that it shall stop: nobody asks the fork to.
    fn is_of_a_parents_stop(&self, op: &RecordedOp) -> bool {
        let inherited = op.segment == self.segment && self.last_inherited().is_some_and(|last| op.sequence <= last);
        let RecordedBody::Read { answer, .. } = &op.body else { return false };
        inherited && Question::Cancellation.is_asked_by(&op.label) && is_yes(answer)
    }

    /// An await that was given up before the crash is never handed over.
    fn take_recorded_abandons(&mut self, tail: &[RecordedOp]) {
        for recorded in tail {
            if let RecordedBody::Abandon { target } = recorded.body
                && !recorded.is_undone()
                && let Some(target) = self.by_sequence.get(&target)
                && let Some(abandon) = self.by_sequence.get(&recorded.sequence)
            {
                self.ops[*target].give_up();
                self.abandons.insert(*abandon, *target);
            }
        }
    }

    /// Entries that `resume(message=)` put into the tail are taken without a call, at their place in the script.
    fn take_external_entries(&mut self, tail: &[RecordedOp]) {
        for (index, recorded) in tail.iter().enumerate() {
            // The code's own entries have the digest of their content instead.
            if matches!(recorded.label.key, LabelKey::Key(_))
                && let RecordedBody::Entry { id, thread, .. } = &recorded.body
            {
                self.ops[index].claim();
                self.ops[index].detail = Detail::Entry { id: *id, external: Some(thread.clone()) };
                self.script.note_claim();
            }
        }
    }

    /// Makes its limits such that small runs reach them.
    #[cfg(test)]
    pub(super) fn limit(&mut self, most: Most, open: usize) {
        (self.most, self.open) = (most, Open::at_most(open));
    }

    /// The name of an op.
    pub fn op_id(&self, op: OpRef) -> Option<OpId> {
        self.index(op).map(|index| self.id_of(index))
    }

    pub(super) fn id_of(&self, index: usize) -> OpId {
        let op = &self.ops[index];
        OpId { execution: self.execution, slot: op.slot(), once: op.once.clone() }
    }

    pub(super) fn index(&self, op: OpRef) -> Option<usize> {
        let index = op.0.checked_sub(self.first_ref)? as usize;
        (op != OpRef::CHECKPOINT && index < self.ops.len()).then_some(index)
    }

    pub(super) fn reference(&self, index: usize) -> OpRef {
        OpRef(self.first_ref + index as u32)
    }

    pub(super) fn push_op(&mut self, label: Label, once: Option<OnceSlot>) -> usize {
        let index = self.ops.len();
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.by_sequence.insert(sequence, index);
        self.ops.push(Op::new(self.segment, sequence, once, label));
        index
    }

    /// Where a thread of the conversation stands; a new thread starts where the main one is.
    pub fn leaf(&self, thread: &str) -> Option<EntryId> {
        #[cfg(test)]
        if super::wrong::is(super::wrong::Rule::OneLeaf) {
            return self.leaves.values().max_by_key(|entry| entry.0).copied();
        }
        self.leaves.get(thread).or_else(|| self.leaves.get("")).copied()
    }

    /// Gives a thread a leaf of its own.
    pub fn open_thread(&mut self, thread: &str) {
        if let Some(leaf) = self.leaf(thread) {
            self.leaves.entry(thread.to_owned()).or_insert(leaf);
        }
    }

    /// Whether the run was asked to stop, as far as this process knows.
    pub fn is_cancel_requested(&self) -> bool {
        self.cancel.is_some()
    }

    /// The store's time of the last outcome handed over; at first of the segment's start.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Gives back the room that only a run that advances needs.
    pub fn shrink(&mut self) {
        self.ops.shrink_to_fit();
        self.times.shrink_to_fit();
        self.by_sequence.shrink_to_fit();
        self.seen.shrink_to_fit();
        self.awaited.shrink_to_fit();
    }

    /// The current segment.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// The highest fact number known.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// The number of the last commit.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The sequence of the op called last, recorded or new: the agent's own stream chunks and random draws belong to it.
    pub fn last_called(&self) -> u32 {
        self.last_called
    }

    /// Whether a commit is on its way.
    pub fn is_committing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether the run waits in the store and its coroutine may be dropped.
    pub fn is_parked(&self) -> bool {
        self.parked && self.in_flight.is_none()
    }

    /// Whether an attempt runs here, or its end is not durable yet.
    pub fn is_working(&self) -> bool {
        !self.over && (self.in_flight.is_some() || !self.active.is_empty() || !self.draft.attempts.is_empty())
    }

    /// Whether it waits in the store, and its code has nothing left to run.
    pub fn is_idle(&self) -> bool {
        self.is_parked() && self.quiet
    }

    /// Whether it is idle and has nothing new to say to the store.
    pub fn is_at_rest(&self) -> bool {
        self.is_idle() && self.draft.is_empty() && self.held.is_empty() && self.effects.is_empty()
    }

    /// Ops that the recovery of this run would replay.
    pub fn tail_length(&self) -> usize {
        self.ops.len()
    }
}
