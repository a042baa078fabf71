//! The machine of one run: its ops, what is known of them, and the inputs that change them.
//!
//! It decides nothing about time and does nothing itself: `plan.rs` turns what is known into effects.

use super::account::Account;
use super::code::CodeState;
use super::config::MachineConfig;
use super::divergence::Patience;
use super::draft::{Draft, Most};
use super::effect::{Effect, Outcome};
use super::host::HostState;
use super::op::{Op, Place};
use super::open::Open;
use super::phase::{Phase, Standing};
use super::replay::Script;
use super::segment::SegmentState;
use super::transition;
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OpId, TaskId};
use crate::model::{
    Cancellation, Fact, Failure, ForkPoint, NewCheckpoint, OnceResult, RecordedOp, Segment, Signal, Wait,
};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// An op of the current segment as the host names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpRef(pub u32);

impl OpRef {
    /// The pending checkpoint, which is no op of either segment.
    pub const CHECKPOINT: OpRef = OpRef(u32::MAX);
}

/// The machine of one run.
#[derive(Debug)]
pub struct Machine {
    pub(super) execution: ExecutionId,
    pub(super) config: MachineConfig,
    pub(super) forked_from: Option<ForkPoint>,
    /// The number of the last commit.
    pub(super) base: u64,
    /// The highest number of a fact that the store has told.
    pub(super) known: u64,
    /// Facts applied so far: the order of outcomes.
    pub(super) order: u64,
    /// When each fact was stored, by its order (from 1).
    pub(super) times: Vec<Timestamp>,
    /// The store's time of the last outcome handed over.
    pub(super) time: Timestamp,
    pub(super) mailbox: VecDeque<(u64, Signal)>,
    pub(super) task_results: HashMap<TaskId, (u64, Outcome)>,
    pub(super) cancel: Option<(u64, Cancellation)>,
    pub(super) cancel_handed: bool,
    pub(super) once_next: HashMap<Arc<str>, u32>,
    pub(super) once_done: HashMap<Arc<str>, OnceResult>,
    pub(super) account: Account,
    pub(super) open: Open,
    pub(super) segment: SegmentState,
    /// Recorded ops of segments whose own checkpoint is damaged: they follow the present one.
    pub(super) ahead: BTreeMap<u32, Vec<RecordedOp>>,
    /// What is known, for those.
    pub(super) ahead_facts: Vec<Fact>,
    pub(super) host: HostState,
    pub(super) draft: Draft,
    pub(super) most: Most,
    pub(super) in_flight: Option<Box<InFlight>>,
    pub(super) phase: Phase,
    pub(super) standing: Standing,
    /// The claim before this one was lost without a commit, and this one has made none yet.
    pub(super) was_lost: bool,
    /// A person has said that this code may go on with what another has recorded.
    pub(super) divergence_allowed: bool,
    pub(super) patience: Patience,
    /// Its process is about to end: nothing is started or handed over any more.
    pub(super) draining: bool,
    pub(super) called_anything: bool,
    /// What the run ends with if its first call turns out to be work before the agent's loop, and whether that call has a
    /// twin further on.
    pub(super) suspect: Option<(bool, Box<Failure>)>,
    pub(super) effects: VecDeque<Effect>,
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
    /// What the run waits for from then on.
    pub wait: Option<Box<Wait>>,
    /// It pauses the run since the store has refused another.
    pub pauses: bool,
    /// No task may start before it is durable.
    pub decides: bool,
}

impl Machine {
    /// Starts from a loaded segment.
    pub fn new(segment: Segment, config: MachineConfig) -> Self {
        let execution = &segment.execution;
        // An older checkpoint than the run's segment: the newer ones are damaged, and their segments are replayed too.
        let number = segment.checkpoint.as_ref().map_or(execution.segment, |checkpoint| checkpoint.sequence);
        let segment_time = segment.checkpoint.as_ref().map_or(execution.created_at, |checkpoint| checkpoint.created_at);
        let (code, divergence_allowed) = CodeState::of(execution.code.as_deref(), config.code.as_deref());
        let leaves = segment.checkpoint.map(|checkpoint| checkpoint.saved.leaves).unwrap_or_default();
        let mut state = SegmentState::new(number, leaves, code);
        state.ops.reserve(segment.tail.len() + 8);
        let mut machine = Self {
            execution: execution.new.id,
            config,
            forked_from: execution.forked_from,
            base: execution.base,
            known: segment.high,
            order: 0,
            times: Vec::new(),
            time: segment_time,
            mailbox: VecDeque::new(),
            task_results: HashMap::new(),
            cancel: None,
            cancel_handed: false,
            once_next: HashMap::new(),
            once_done: segment.once.into_iter().map(|once| (once.name.clone(), once)).collect(),
            account: Account::of(execution),
            open: Open::default(),
            segment: state,
            ahead: BTreeMap::new(),
            ahead_facts: Vec::new(),
            host: HostState::new(),
            draft: Draft::default(),
            most: Most::default(),
            in_flight: None,
            phase: Phase::Running,
            standing: Standing::Advancing,
            was_lost: execution.losses > 0,
            divergence_allowed,
            patience: Patience::default(),
            draining: false,
            called_anything: false,
            suspect: None,
            effects: VecDeque::new(),
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
            let index = self.segment.ops.len();
            let mut op = Op::new(recorded.segment, recorded.sequence, recorded.once.clone(), recorded.label.clone());
            op.place = Place::Recorded;
            self.recover(index, &mut op, recorded);
            if let Some(once) = &recorded.once {
                self.recover_place(once);
            }
            if recorded.segment == self.segment.number {
                self.segment.by_sequence.insert(recorded.sequence, index);
                self.segment.next_sequence = self.segment.next_sequence.max(recorded.sequence + 1);
            } else {
                self.segment.unfinished_once.push(index);
            }
            self.segment.ops.push(op);
        }
        // What a finished `once` did inside is never called again; its result is. Nor is what counts no more.
        let finished = transition::finished_onces(tail);
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
            self.segment.ops[*index].claim();
            self.segment.ops[*index].settle();
        }
        let here = tail.iter().filter(|op| op.segment == self.segment.number);
        let index = |sequence| self.segment.by_sequence.get(&sequence).copied();
        self.segment.script = Script::of_tail(here, self.last_inherited(), index, |index| skip.contains(&index));
        self.recover_abandons(tail);
        self.recover_external_entries(tail);
    }

    /// The last op of this segment that a fork has of its parent.
    pub(super) fn last_inherited(&self) -> Option<u32> {
        self.forked_from.filter(|point| point.segment == self.segment.number)?.sequence
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
        let op = &self.segment.ops[index];
        OpId { execution: self.execution, slot: op.slot(), once: op.once.clone() }
    }

    pub(super) fn index(&self, op: OpRef) -> Option<usize> {
        let index = op.0.checked_sub(self.segment.first_ref)? as usize;
        (op != OpRef::CHECKPOINT && index < self.segment.ops.len()).then_some(index)
    }

    pub(super) fn reference(&self, index: usize) -> OpRef {
        OpRef(self.segment.first_ref + index as u32)
    }

    /// Where a thread of the conversation stands; a new thread starts where the main one is.
    pub fn leaf(&self, thread: &str) -> Option<EntryId> {
        #[cfg(test)]
        if super::wrong::is(super::wrong::Rule::OneLeaf) {
            return self.segment.leaves.values().max_by_key(|entry| entry.0).copied();
        }
        self.segment.leaves.get(thread).or_else(|| self.segment.leaves.get("")).copied()
    }

    /// Gives a thread a leaf of its own.
    pub fn open_thread(&mut self, thread: &str) {
        if let Some(leaf) = self.leaf(thread) {
            self.segment.leaves.entry(thread.to_owned()).or_insert(leaf);
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

    /// Gives back the room that only a run that advances needs: thousands may wait (rule 19).
    pub fn shrink(&mut self) {
        self.segment.shrink();
        self.times.shrink_to_fit();
        self.mailbox.shrink_to_fit();
        self.effects.shrink_to_fit();
    }

    /// The current segment.
    pub fn segment(&self) -> u32 {
        self.segment.number
    }

    /// The highest fact number known.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// The number of the last commit.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The sequence of the op called last in this segment, recorded or new; 0 before the first. The agent's own stream chunks
    /// and random draws belong to it.
    pub fn last_called(&self) -> u32 {
        self.segment.last_called
    }

    /// Whether a commit is on its way.
    pub fn is_committing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether the run waits in the store and its coroutine may be dropped.
    pub fn is_parked(&self) -> bool {
        self.standing.is_waiting() && self.in_flight.is_none()
    }

    /// Whether an attempt runs here, or its end is not durable yet.
    pub fn is_working(&self) -> bool {
        !self.phase.is_over()
            && (self.in_flight.is_some() || !self.segment.active.is_empty() || !self.draft.attempts.is_empty())
    }

    /// Whether it waits in the store, and its code has nothing left to run.
    pub fn is_idle(&self) -> bool {
        self.is_parked() && self.host.quiet
    }

    /// Whether it is idle and has nothing new to say to the store.
    pub fn is_at_rest(&self) -> bool {
        self.is_idle() && self.draft.is_empty() && self.segment.held.is_empty() && self.effects.is_empty()
    }

    /// Ops that the recovery of this run would replay.
    pub fn tail_length(&self) -> usize {
        self.segment.ops.len()
    }
}
