//! What the machine knows of the segment that it is in. A checkpoint replaces it as a whole, so that nothing of one segment
//! is left in the next.

use super::code::CodeState;
use super::op::Op;
use super::replay::Script;
use super::transition::Reads;
use crate::id::{EntryId, OnceSlot, Slot, TaskId};
use crate::model::{Label, Seen, Signal};
use std::collections::{BTreeMap, HashMap};

/// The ops of a segment and what the code has been told of them.
#[derive(Debug)]
pub(super) struct SegmentState {
    pub number: u32,
    pub ops: Vec<Op>,
    /// The reference of `ops[0]`: references of earlier segments are told apart.
    pub first_ref: u32,
    pub by_sequence: HashMap<u32, usize>,
    pub by_task: HashMap<TaskId, Vec<usize>>,
    pub next_sequence: u32,
    /// The sequence of the op called last, recorded or new; 0 before the first.
    pub last_called: u32,
    pub script: Script,
    /// Ops of `once`s that an earlier segment left unfinished.
    pub unfinished_once: Vec<usize>,
    /// The awaits that recorded ops give up, by op.
    pub abandons: HashMap<usize, usize>,
    /// New ops that wait for divergence to be judged.
    pub held: Vec<usize>,
    /// Inline tasks that are to be started.
    pub starting: Vec<usize>,
    /// Inline tasks with an attempt that runs here, or whose end is not durable yet.
    pub active: Vec<usize>,
    /// Tasks that count as open; of these some may have ended.
    pub open: usize,
    pub awaited: Vec<usize>,
    /// The outcomes handed over since the latest op.
    pub seen: Vec<Seen>,
    /// The place among the facts of the latest outcome handed over; 0 before the first.
    pub handed: u64,
    /// Signals the tail consumed, by op.
    pub consumed: HashMap<Slot, Vec<(u64, Signal)>>,
    pub reads: Reads,
    /// Where each thread of the conversation stands.
    pub leaves: BTreeMap<String, EntryId>,
    pub code: CodeState,
    /// A divergence was judged, and the code goes on.
    pub diverged: bool,
    /// The recorded label and the call that was taken for it, where the first call was a reworded step.
    pub reworded_first: Option<(Label, Label)>,
}

impl SegmentState {
    /// A segment of which nothing is known yet.
    pub fn new(number: u32, leaves: BTreeMap<String, EntryId>, code: CodeState) -> Self {
        Self {
            number,
            ops: Vec::new(),
            first_ref: 0,
            by_sequence: HashMap::new(),
            by_task: HashMap::new(),
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
            code,
            diverged: false,
            reworded_first: None,
        }
    }

    /// Goes on to the next one, which a checkpoint of this code begins; facts up to `handed` came before it.
    pub fn next(&mut self, leaves: BTreeMap<String, EntryId>, handed: u64) {
        let old = std::mem::replace(self, Self::new(self.number + 1, leaves, CodeState::own()));
        self.first_ref = old.first_ref + old.ops.len() as u32;
        self.handed = handed;
        // An agent that saves at every turn does not pay for new room each time.
        (self.ops, self.awaited, self.active) = (emptied(old.ops), emptied(old.awaited), emptied(old.active));
        (self.by_sequence, self.by_task) = (old.by_sequence, old.by_task);
        self.by_sequence.clear();
        self.by_task.clear();
    }

    /// Gives back the room that only a run that advances needs.
    pub fn shrink(&mut self) {
        self.ops.shrink_to_fit();
        self.by_sequence.shrink_to_fit();
        self.seen.shrink_to_fit();
        self.awaited.shrink_to_fit();
    }

    /// The op of this segment that a call takes, before it is placed.
    pub fn push(&mut self, label: Label, once: Option<OnceSlot>) -> usize {
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
