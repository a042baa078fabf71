//! The machine of one run: its ops, what is known of them, and the inputs that change them.
//!
//! It reads no clock and does no I/O. `plan.rs` turns what is known into effects, which the session and the host carry
//! out.

use super::code::CodeState;
use super::config::MachineConfig;
use super::divergence::Patience;
use super::draft::{Draft, Most};
use super::effect::Effect;
use super::host::HostState;
use super::op::{Op, Place};
use super::phase::{Phase, Standing};
use super::replay::Script;
use super::run::RunState;
use super::segment::SegmentState;
use super::transition;
use crate::clock::Timestamp;
use crate::id::{EntryId, OpId};
use crate::model::{NewCheckpoint, RecordedOp, Segment, Wait};
use std::collections::{HashSet, VecDeque};

/// An op of the current segment as the host names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpRef(pub u32);

impl OpRef {
    /// Stands for the pending checkpoint, which is no op.
    pub const CHECKPOINT: OpRef = OpRef(u32::MAX);
}

/// The machine of one run.
#[derive(Debug)]
pub struct Machine {
    pub(super) config: MachineConfig,
    pub(super) run: RunState,
    pub(super) segment: SegmentState,
    pub(super) phase: Phase,
    pub(super) standing: Standing,
    pub(super) host: HostState,
    pub(super) patience: Patience,
    pub(super) draft: Draft,
    pub(super) most: Most,
    pub(super) in_flight: Option<Box<InFlight>>,
    /// The process is about to end: nothing is started or handed over any more.
    pub(super) draining: bool,
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
    /// It pauses the run because the store refused the commit before it. If this one is refused too, the copy is
    /// dropped.
    pub pauses: bool,
    /// It holds something that no replay could come to by itself, so no task may start before it is durable.
    pub decides: bool,
    /// It hands the run off.
    pub hands_off: bool,
}

impl Machine {
    /// Starts from a loaded segment.
    pub fn new(segment: Segment, config: MachineConfig) -> Self {
        let execution = &segment.execution;
        // The loaded checkpoint can be older than the run's segment. Then the newer checkpoints are damaged, and the
        // segments after the loaded one are replayed too.
        let number = segment.checkpoint.as_ref().map_or(execution.segment, |checkpoint| checkpoint.sequence);
        let begun_at = segment.checkpoint.as_ref().map_or(execution.created_at, |checkpoint| checkpoint.created_at);
        let mut run = RunState::new(execution, segment.high, begun_at, segment.once);
        let (code, is_allowed) = CodeState::of(execution.code.as_deref(), config.code.as_deref());
        run.divergence_allowed = is_allowed;
        let leaves = segment.checkpoint.map(|checkpoint| checkpoint.saved.leaves);
        let leaves =
            leaves.unwrap_or_else(|| execution.first_leaf().map(|leaf| (String::new(), leaf)).into_iter().collect());
        let mut state = SegmentState::new(number, leaves, code);
        state.ops.reserve(segment.tail.len() + 8);
        let mut machine = Self {
            config,
            run,
            segment: state,
            phase: Phase::Running,
            standing: Standing::Advancing,
            host: HostState::new(),
            patience: Patience::default(),
            draft: Draft::default(),
            most: Most::default(),
            in_flight: None,
            draining: false,
            effects: VecDeque::new(),
        };
        let (ahead, tail): (Vec<_>, Vec<_>) = segment.tail.into_iter().partition(|op| op.segment > number);
        for ahead_of in number + 1..=execution.segment {
            machine.run.ahead.insert(ahead_of, ahead.iter().filter(|op| op.segment == ahead_of).cloned().collect());
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
        // Some recorded ops are never called again, so the script leaves them out: the ops inside a `once` that has
        // finished (only its result is asked for), awaits that are no longer given up, and what a fork's parent read of
        // its own stop.
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

    /// The last op of this segment that a forked run has from its parent.
    pub(super) fn last_inherited(&self) -> Option<u32> {
        self.run.forked_from.filter(|point| point.segment == self.segment.number)?.sequence
    }

    /// Lowers the limits, so that small runs reach them.
    #[cfg(test)]
    pub(super) fn limit(&mut self, most: Most, open: usize) {
        (self.most, self.run.open) = (most, super::open::Open::at_most(open));
    }

    /// The name of an op.
    pub fn op_id(&self, op: OpRef) -> Option<OpId> {
        self.index(op).map(|index| self.id_of(index))
    }

    pub(super) fn id_of(&self, index: usize) -> OpId {
        let op = &self.segment.ops[index];
        OpId { execution: self.run.execution, slot: op.slot(), once: op.once.clone() }
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

    /// Gives a thread a leaf of its own: where the main thread stands now, whatever the main one appends later.
    pub fn open_thread(&mut self, thread: &str) {
        if let Some(leaf) = self.leaf(thread) {
            self.segment.leaves.entry(thread.to_owned()).or_insert(leaf);
        }
    }

    /// Whether the run was asked to stop, as far as this process knows.
    pub fn is_cancel_requested(&self) -> bool {
        self.run.stop.is_requested()
    }

    /// The store's time of the last outcome handed over. Before the first one, the time of the segment's start.
    pub fn time(&self) -> Timestamp {
        self.run.time
    }

    /// Frees memory that only an advancing run needs. Thousands of parked runs may be in memory (rule 19).
    pub fn shrink(&mut self) {
        self.segment.shrink();
        self.run.shrink();
        self.effects.shrink_to_fit();
    }

    /// How many ops of the current segment it holds.
    pub fn ops(&self) -> usize {
        self.segment.ops.len()
    }

    /// The current segment.
    pub fn segment(&self) -> u32 {
        self.segment.number
    }

    /// The highest fact number known.
    pub fn known(&self) -> u64 {
        self.run.known
    }

    /// The number of the last commit.
    pub fn base(&self) -> u64 {
        self.run.base
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

    /// Whether the run waits in the store and its code has nothing left to run.
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
