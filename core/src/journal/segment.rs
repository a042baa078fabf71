//! What the machine knows of the current segment. A checkpoint replaces all of it at once, so that no state of one
//! segment can be left over in the next.

use super::call::Completion;
use super::code::CodeState;
use super::op::Op;
use super::replay::Script;
use super::transition::{Reads, Tie};
use crate::id::{EntryId, ExecutionId, OnceSlot, Slot, TaskId};
use crate::model::{Label, Seen, Signal};
use std::collections::{BTreeMap, HashMap};

/// The ops of a segment and what the code has been told of them.
#[derive(Debug)]
pub(super) struct SegmentState {
    pub number: u32,
    pub ops: Vec<Op>,
    /// The reference of `ops[0]`. It grows from segment to segment, so that a reference of an earlier segment names no
    /// op of this one.
    pub first_ref: u32,
    pub by_sequence: HashMap<u32, usize>,
    pub by_task: HashMap<TaskId, Vec<usize>>,
    pub by_child: HashMap<ExecutionId, Tie>,
    pub next_sequence: u32,
    /// The sequence of the op called last, recorded or new; 0 before the first.
    pub last_called: u32,
    pub script: Script,
    /// Ops inside a `once` that an earlier segment left unfinished. They can still be claimed.
    pub unfinished_once: Vec<usize>,
    /// Of each recorded `abandon` op, the op whose await it gave up.
    pub abandons: HashMap<usize, usize>,
    /// New ops that are held back until divergence is judged, in the order of their calls.
    pub held: Vec<usize>,
    /// Inline tasks that have to be started.
    pub starting: Vec<usize>,
    /// Inline tasks with an attempt that runs here, or whose end is not durable yet.
    pub active: Vec<usize>,
    /// The number of tasks that count as open. It is recounted only at the limit, so some of them may have ended.
    pub open: usize,
    /// Ops that some branch awaits.
    pub awaited: Vec<usize>,
    /// The outcomes handed over since the latest op was placed. The next op records them.
    pub seen: Vec<Seen>,
    /// The latest place among the facts of an outcome that was handed over; 0 before the first.
    pub handed: u64,
    /// The signals that recorded ops consumed, by the slot of the op.
    pub consumed: HashMap<Slot, Vec<(u64, Signal)>>,
    pub reads: Reads,
    /// Where each thread of the conversation stands.
    pub leaves: BTreeMap<String, EntryId>,
    /// The op of the run that gets the work of this one.
    pub hand_off: Option<(usize, Completion)>,
    pub code: CodeState,
    /// A divergence was judged, and the code goes on.
    pub diverged: bool,
    /// If the first call of the segment was taken for a reworded step: the label of the recorded step, and of the call.
    pub reworded_first: Option<(Label, Label)>,
}

impl SegmentState {
    /// An empty segment.
    pub(super) fn new(number: u32, leaves: BTreeMap<String, EntryId>, code: CodeState) -> Self {
        Self {
            number,
            ops: Vec::new(),
            first_ref: 0,
            by_sequence: HashMap::new(),
            by_task: HashMap::new(),
            by_child: HashMap::new(),
            next_sequence: 0,
            last_called: 0,
            script: Script::default(),
            unfinished_once: Vec::new(),
            abandons: HashMap::new(),
            held: Vec::new(),
            starting: Vec::new(),
            active: Vec::new(),
            open: 0,
            awaited: Vec::new(),
            seen: Vec::new(),
            handed: 0,
            consumed: HashMap::new(),
            reads: Reads::default(),
            leaves,
            hand_off: None,
            code,
            diverged: false,
            reworded_first: None,
        }
    }

    /// Goes on to the next segment, which a checkpoint of this code begins. Facts up to the place `handed` came before
    /// it.
    pub(super) fn next(&mut self, leaves: BTreeMap<String, EntryId>, handed: u64) {
        let old = std::mem::replace(self, Self::new(self.number + 1, leaves, CodeState::own()));
        self.first_ref = old.first_ref + old.ops.len() as u32;
        self.handed = handed;
        // The allocations are used again, since an agent may save a checkpoint at every turn.
        (self.ops, self.awaited, self.active) = (emptied(old.ops), emptied(old.awaited), emptied(old.active));
        (self.by_sequence, self.by_task) = (old.by_sequence, old.by_task);
        self.by_sequence.clear();
        self.by_task.clear();
    }

    /// Frees memory that only an advancing run needs.
    pub(super) fn shrink(&mut self) {
        self.ops.shrink_to_fit();
        self.by_sequence.shrink_to_fit();
        self.seen.shrink_to_fit();
        self.awaited.shrink_to_fit();
    }

    /// Adds a new op in the next slot. It is not in a batch yet.
    pub(super) fn push(&mut self, label: Label, once: Option<OnceSlot>) -> usize {
        let index = self.ops.len();
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.by_sequence.insert(sequence, index);
        self.ops.push(Op::new(self.number, sequence, once, label));
        index
    }
}

fn emptied<T>(mut list: Vec<T>) -> Vec<T> {
    list.clear();
    list
}
