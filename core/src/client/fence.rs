//! What a reader of a run's events must not be shown, and what it has to be told of previews that are void or missing (rule 17).

use crate::model::Chunk;
use crate::streaming::{OpKey, Position, Progress, Source};
use std::collections::{HashMap, HashSet};

/// What a reader knows of a run's previews.
#[derive(Default)]
pub(super) struct Fence {
    epoch: u64,
    /// Whether a preview has come.
    began: bool,
    /// What was shown of each source in the making, and the op it was shown under.
    shown: HashMap<(Source, OpKey), Progress>,
    /// Ops that have their result.
    ended: HashSet<OpKey>,
    /// The lowest attempt of an op whose previews still count.
    attempts: HashMap<OpKey, u32>,
    /// The last entry: what the agent itself made before it is superseded.
    entry: u64,
    /// Previews that the caller may have and this reader has not shown.
    unknown: Unknown,
    /// Ops of which the caller has none of those, for they began later or were retracted.
    known: HashSet<OpKey>,
}

/// Previews that a caller may have who goes on behind an event: which they are, its position does not say.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Unknown {
    #[default]
    None,
    /// Of tasks alone, for the run has waited since.
    OfTasks,
    OfAll,
}

impl Fence {
    /// Goes on for a caller who may have previews.
    pub(super) fn resumes(&mut self, unknown: Unknown) {
        self.unknown = unknown;
    }

    /// Whether a preview still counts.
    pub(super) fn admits(&self, chunk: &Chunk, position: Position) -> bool {
        let op = op_of(chunk);
        let of_former_claim = chunk.epoch != Chunk::OF_A_QUEUE && chunk.epoch < self.epoch;
        let superseded = match Source::of(chunk) {
            Source::Agent => position.behind < self.entry,
            Source::Task(_) => {
                self.ended.contains(&op) || self.attempts.get(&op).is_some_and(|lowest| chunk.attempt < *lowest)
            }
        };
        !of_former_claim && !superseded
    }

    /// A preview that no longer counts is passed over.
    pub(super) fn pass_over(&mut self) {
        self.began = true;
    }

    /// Whether previews are missing before this one. An attempt's are counted from 1; of the agent's own some may have been
    /// taken away with the entries that replaced them, so that only the very first tells something.
    pub(super) fn misses(&self, chunk: &Chunk) -> bool {
        if Source::of(chunk) == Source::Agent {
            return chunk.seq > 1 && !self.began;
        }
        match self.shown.get(&key_of(chunk)) {
            Some(last) if (last.epoch, last.attempt) == (chunk.epoch, chunk.attempt) => chunk.seq > last.seq + 1,
            _ => chunk.seq > 1,
        }
    }

    /// Shows a preview. True where the caller may have other ones of its op, which it has to drop first.
    pub(super) fn show(&mut self, chunk: &Chunk) -> bool {
        self.began = true;
        self.shown.insert(key_of(chunk), Progress::of(chunk));
        self.unknown != Unknown::None && self.known.insert(op_of(chunk))
    }

    /// The caller has dropped everything that it had.
    pub(super) fn forget(&mut self) {
        self.shown.clear();
        self.unknown = Unknown::None;
    }

    /// A claim voids the previews of lower epochs of every op without a result, but for attempts that live elsewhere. The
    /// agent's own have no result.
    pub(super) fn raise(&mut self, epoch: u64) -> Vec<OpKey> {
        self.epoch = self.epoch.max(epoch);
        let is_open = |source, op| source == Source::Agent || !self.ended.contains(op);
        let void = self.shown.iter().filter(|((source, op), last)| {
            last.epoch != Chunk::OF_A_QUEUE && last.epoch < epoch && is_open(*source, op)
        });
        let mut void: Vec<_> = void.map(|((_, op), _)| *op).collect();
        void.sort_unstable();
        void.dedup();
        for op in &void {
            self.take_back(*op);
        }
        void
    }

    /// Whether a claim voids what the caller may have, of ops that nobody here knows.
    pub(super) fn is_blind(&self) -> bool {
        self.unknown == Unknown::OfAll
    }

    /// The run gave up its claim by itself, with nothing open but its queues' tasks.
    pub(super) fn rests(&mut self) {
        if self.unknown == Unknown::OfAll {
            self.unknown = Unknown::OfTasks;
        }
    }

    /// An entry supersedes what the agent itself made before it.
    pub(super) fn append_entry(&mut self, number: u64) {
        self.entry = number;
    }

    /// An attempt that starts voids what an earlier one has shown, which was lost. True where something has to be retracted.
    /// `is_new`: the caller does not know of it.
    pub(super) fn start(&mut self, op: OpKey, attempt: u32, is_new: bool) -> bool {
        let lowest = self.attempts.entry(op).or_default();
        *lowest = attempt.max(*lowest);
        let earlier = |last: &Progress| (Chunk::OF_AN_AGENT + 1..attempt).contains(&last.attempt);
        let shown = self.shown.get(&(Source::Task(op), op)).is_some_and(earlier) && self.take_back(op);
        let unknown = is_new && self.known.insert(op) && attempt > 1 && self.unknown != Unknown::None;
        shown || unknown
    }

    /// An attempt is over, and what it has shown is void. True where something has to be retracted.
    pub(super) fn retract(&mut self, op: OpKey, attempt: u32, is_new: bool) -> bool {
        self.attempts.insert(op, attempt + 1);
        let unknown = is_new && self.known.insert(op) && self.unknown != Unknown::None;
        self.take_back(op) || unknown
    }

    pub(super) fn end(&mut self, op: OpKey) {
        self.ended.insert(op);
    }

    /// What was shown under an op is void, whoever made it; whether there was anything.
    fn take_back(&mut self, op: OpKey) -> bool {
        let task = self.shown.remove(&(Source::Task(op), op)).is_some();
        self.shown.remove(&(Source::Agent, op)).is_some() || task
    }
}

fn op_of(chunk: &Chunk) -> OpKey {
    (chunk.segment, chunk.sequence)
}

fn key_of(chunk: &Chunk) -> (Source, OpKey) {
    (Source::of(chunk), op_of(chunk))
}
