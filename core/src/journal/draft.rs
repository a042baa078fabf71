//! The batch that is being built, and how it is cut where it is larger than one commit may be.

use super::transition::{gives_up, size, takes_signals};
use crate::id::Slot;
use crate::model::{AttemptReport, AttemptResult, Batch, BatchEnd, Consumed, NewEvent, NewOp, Spent};
use std::collections::HashSet;

/// The most that one commit may hold. The rest goes with the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    /// Ops, and ends of attempts.
    pub count: usize,
    /// Bytes of values. The last value may go beyond, or a large one would never leave.
    pub bytes: u64,
}

impl Default for Most {
    fn default() -> Self {
        Self { count: Batch::MOST, bytes: 32 << 20 }
    }
}

/// What has happened since the last commit left.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub ops: Vec<NewOp>,
    pub attempts: Vec<AttemptReport>,
    /// Sequences of tasks whose attempt was lost, with the number of the next attempt.
    pub restarted: Vec<(u32, u32)>,
    /// Sequences of durable reads that gave the same answer again, with how often they have given it.
    pub read_counts: Vec<(u32, u32)>,
    pub consumed: Vec<Consumed>,
    /// Sequences of waits whose timer no longer matters.
    pub disarmed: Vec<u32>,
    /// Sequences of ops whose end nobody will be told.
    pub orphaned: Vec<u32>,
    pub events: Vec<NewEvent>,
    /// What the run asks the budgets of its family for.
    pub draw: Option<Spent>,
    /// Something waits for this draft to be durable: do not hold it back.
    pub urgent: bool,
    /// It holds something that no replay could come to by itself, such as an answer of the outside. So no task may
    /// start beside its commit: if the commit were lost, the task would have run after an answer that nobody gets
    /// again.
    pub decides: bool,
    /// The hold that was armed for it is over.
    pub held_enough: bool,
    /// A hold is armed.
    pub hold_armed: bool,
    /// Bytes of its values.
    bytes: u64,
}

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        !self.is_due() && self.consumed.is_empty()
    }

    /// Whether it holds anything to commit. Consumed signals alone are nothing: they leave with the next op, which has
    /// seen them.
    pub(super) fn is_due(&self) -> bool {
        !(self.ops.is_empty()
            && self.attempts.is_empty()
            && self.restarted.is_empty()
            && self.read_counts.is_empty()
            && self.disarmed.is_empty()
            && self.orphaned.is_empty()
            && self.events.is_empty())
    }

    /// Takes a new op.
    pub(super) fn op(&mut self, op: NewOp) {
        self.bytes += size(&op.body);
        self.ops.push(op);
    }

    /// Takes the end of an attempt.
    pub(super) fn attempt(&mut self, report: AttemptReport) {
        self.bytes += bytes_of_end(&report);
        self.attempts.push(report);
    }

    /// Takes the first part of a draft that is larger than one commit may be; the rest stays. None if it fits.
    ///
    /// The run may be lost between the two commits. So everything that an op of the first part has caused goes with it,
    /// since a replay finds the op recorded and does not cause it again: the op that it gives up, the signals that a
    /// read took, and the signals that it has seen taken.
    pub(super) fn part(&mut self, most: Most, segment: u32) -> Option<Self> {
        if self.ops.len() <= most.count && self.attempts.len() <= most.count && self.bytes <= most.bytes {
            return None;
        }
        let mut bytes = 0;
        let mut fits = |more: u64| {
            let room = bytes < most.bytes;
            bytes += if room { more } else { 0 };
            room
        };
        let ops = self.ops.iter().take(most.count).take_while(|op| fits(size(&op.body))).count();
        let whole = if ops == self.ops.len() { most.count } else { 0 };
        let attempts = self.attempts.iter().take(whole).take_while(|end| fits(bytes_of_end(end))).count();
        if ops == self.ops.len() && attempts == self.attempts.len() {
            return None;
        }
        let later = self.ops.split_off(ops);
        let ended = self.attempts.split_off(attempts);
        let consumed = self.take_consumed(segment);
        let given_up: HashSet<u32> = self.ops.iter().filter_map(|op| gives_up(&op.body)).collect();
        let orphaned = std::mem::take(&mut self.orphaned).into_iter();
        let (orphaned, others) = orphaned.partition(|sequence| given_up.contains(sequence));
        self.orphaned = others;
        self.bytes -= bytes;
        Some(Self {
            ops: std::mem::replace(&mut self.ops, later),
            attempts: std::mem::replace(&mut self.attempts, ended),
            restarted: std::mem::take(&mut self.restarted),
            read_counts: std::mem::take(&mut self.read_counts),
            consumed,
            orphaned,
            ..Self::default()
        })
    }

    /// Takes the consumed signals that the ops of this draft vouch for: an op lists in `seen` that the signal was
    /// handed over, or is the read that took it. The others stay. If the run is lost before an op has seen them, they
    /// are back in the mailbox, and replay hands them over in their order (rule 12).
    fn take_consumed(&mut self, segment: u32) -> Vec<Consumed> {
        if self.consumed.is_empty() {
            return Vec::new();
        }
        let seen = self.ops.iter().flat_map(|op| op.seen.iter().map(|seen| seen.0));
        let read = self.ops.iter().filter(|op| takes_signals(&op.body)).map(|op| op.sequence);
        let by: HashSet<Slot> = seen.chain(read).map(|sequence| Slot { segment, sequence }).collect();
        let (vouched, others) =
            std::mem::take(&mut self.consumed).into_iter().partition(|taken| by.contains(&taken.by));
        self.consumed = others;
        vouched
    }

    /// Turns the draft into a batch and leaves an empty one. If the run goes on, consumed signals that no op has seen
    /// stay.
    pub(super) fn take(&mut self, segment: u32, code: Option<String>, orphaned: Vec<u32>, end: BatchEnd) -> Batch {
        let vouched = matches!(end, BatchEnd::Continue).then(|| self.take_consumed(segment));
        let mut draft = std::mem::take(self);
        if let Some(vouched) = vouched {
            self.consumed = std::mem::replace(&mut draft.consumed, vouched);
        }
        draft.orphaned.extend(orphaned);
        Batch {
            segment,
            ops: draft.ops,
            attempts: draft.attempts,
            restarted: draft.restarted,
            read_counts: draft.read_counts,
            consumed: draft.consumed,
            disarmed: draft.disarmed,
            orphaned: draft.orphaned,
            events: draft.events,
            code,
            draw: draft.draw,
            end,
        }
    }

    /// Adds a warning event, which readers of the run see.
    pub(super) fn warn(&mut self, sequence: Option<u32>, warning: &str, mut data: serde_json::Value) {
        if let Some(object) = data.as_object_mut() {
            object.insert("warning".into(), warning.into());
        }
        self.events.push(NewEvent { kind: crate::model::EventKind::Warning, sequence, data });
    }
}

fn bytes_of_end(report: &AttemptReport) -> u64 {
    match &report.result {
        AttemptResult::Completed(output) => output.size(),
        _ => 0,
    }
}
