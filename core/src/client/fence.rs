//! What a reader of a run's events must not be shown, and what it has to be told of previews that are void or missing (rule 17).

use crate::model::Chunk;
use crate::streaming::OpKey;
use std::collections::{HashMap, HashSet};

/// What a reader knows of a run's previews.
#[derive(Default)]
pub(super) struct Fence {
    epoch: u64,
    /// Whether a preview has come.
    began: bool,
    /// Ops whose previews were shown, with the last one of each.
    shown: HashMap<OpKey, Last>,
    /// Ops that have their result.
    ended: HashSet<OpKey>,
    /// The lowest attempt of an op whose previews still count.
    attempts: HashMap<OpKey, u32>,
    /// Ops of which the caller has no previews that this reader does not know of.
    known: HashSet<OpKey>,
    /// Ops of which a free preview was told.
    met: HashSet<OpKey>,
    unknown: Unknown,
}

/// The caller may have previews that this process has never seen: it read them elsewhere, or here before a restart.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Unknown {
    #[default]
    Nothing,
    /// Of tasks alone, for the run has waited since.
    OfTasks,
    OfAll,
}

/// The last preview that was shown of an op.
#[derive(Clone, Copy)]
struct Last {
    epoch: u64,
    attempt: u32,
    seq: u64,
    /// This reader told it; else the caller had it before, with what a board may lack behind it.
    told: bool,
}

impl Fence {
    /// Goes on for a caller who has previews that nobody here knows.
    pub fn resumes(&mut self, unknown: Unknown) {
        self.unknown = unknown;
    }

    pub fn admits(&self, chunk: &Chunk) -> bool {
        let op = op_of(chunk);
        let stale = (chunk.epoch != Chunk::OF_A_QUEUE && chunk.epoch < self.epoch)
            || (chunk.attempt > Chunk::OF_AN_AGENT
                && (self.ended.contains(&op) || self.attempts.get(&op).is_some_and(|lowest| chunk.attempt < *lowest)));
        !stale
    }

    /// Whether previews are missing before this one. An attempt's are counted from 1; of the agent's own some may have been
    /// taken away with the entries that replaced them, so that only the very first tells something.
    pub fn misses(&self, chunk: &Chunk) -> bool {
        match self.shown.get(&op_of(chunk)) {
            _ if chunk.attempt == Chunk::OF_AN_AGENT => chunk.seq > 1 && !self.began,
            Some(last) if (last.epoch, last.attempt) == (chunk.epoch, chunk.attempt) => {
                last.told && chunk.seq > last.seq + 1
            }
            _ => chunk.seq > 1,
        }
    }

    /// The caller has a preview. `told`: by this reader.
    pub fn show(&mut self, chunk: &Chunk, told: bool) {
        self.began = true;
        let Chunk { epoch, attempt, seq, .. } = *chunk;
        self.shown.insert(op_of(chunk), Last { epoch, attempt, seq, told });
    }

    /// Whether the caller may have previews of an op that has just made its first free one.
    pub fn meets(&mut self, op: OpKey) -> bool {
        self.met.insert(op) && !self.shown.contains_key(&op) && !self.known.contains(&op)
    }

    /// Everything that was shown of ops in the making is void.
    pub fn forget(&mut self) {
        self.shown.clear();
        self.unknown = Unknown::Nothing;
    }

    /// A claim voids the previews of lower epochs of every op without a result, but for attempts that live elsewhere. The
    /// agent's own have no result.
    pub fn raise(&mut self, epoch: u64) -> Vec<OpKey> {
        self.epoch = self.epoch.max(epoch);
        let open = |op, attempt| attempt == Chunk::OF_AN_AGENT || !self.ended.contains(op);
        let mut void: Vec<_> = self
            .shown
            .iter()
            .filter(|(op, last)| last.epoch != Chunk::OF_A_QUEUE && last.epoch < epoch && open(op, last.attempt))
            .map(|(op, _)| *op)
            .collect();
        void.sort_unstable();
        for op in &void {
            self.shown.remove(op);
        }
        void
    }

    /// Whether a claim voids what the caller has and nobody here knows.
    pub fn is_blind(&self) -> bool {
        self.unknown == Unknown::OfAll
    }

    /// The run gave up its claim by itself, with nothing open but its queues' tasks.
    pub fn rests(&mut self) {
        if self.unknown == Unknown::OfAll {
            self.unknown = Unknown::OfTasks;
        }
    }

    /// An attempt that starts voids what an earlier one has shown, which was lost. `is_new`: the caller does not know of it.
    pub fn start(&mut self, op: OpKey, attempt: u32, is_new: bool) -> bool {
        let lowest = self.attempts.entry(op).or_default();
        *lowest = attempt.max(*lowest);
        let earlier = |last: &Last| (Chunk::OF_AN_AGENT + 1..attempt).contains(&last.attempt);
        let shown = self.shown.get(&op).is_some_and(earlier) && self.shown.remove(&op).is_some();
        let known = is_new && !self.known.insert(op);
        shown || is_new && !known && attempt > 1 && self.unknown != Unknown::Nothing
    }

    /// An attempt is over, and what it has shown is void.
    pub fn retract(&mut self, op: OpKey, attempt: u32, is_new: bool) -> bool {
        self.attempts.insert(op, attempt + 1);
        let known = is_new && !self.known.insert(op);
        self.shown.remove(&op).is_some() || is_new && !known && self.unknown != Unknown::Nothing
    }

    pub fn end(&mut self, op: OpKey) {
        self.ended.insert(op);
    }
}

fn op_of(chunk: &Chunk) -> OpKey {
    (chunk.segment, chunk.sequence)
}
