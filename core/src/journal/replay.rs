//! The recorded tail as a script: which ops were called and which outcomes were handed over, in order.
//!
//! Owns the position in the script, and chooses the recorded twin of a call: the op that the call repeats (rules 5 and
//! 7). It knows nothing of the values of outcomes, and nothing of commits.

use crate::model::{Label, RecordedBody, RecordedOp, Seen};
use std::collections::{HashMap, HashSet};

/// One line of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// The op of this index was called.
    Call(usize),
    /// The outcome of the op of this index was handed over.
    Deliver(usize),
    /// The request to stop was handed over.
    Cancel,
}

/// The script with its position.
#[derive(Debug, Default)]
pub(super) struct Script {
    lines: Vec<Line>,
    /// The index of the line that has to happen next.
    at: usize,
    /// The line on which each op's outcome is handed over.
    delivered_at: HashMap<usize, usize>,
    /// How many recorded ops have not been called again.
    unclaimed: usize,
    /// Ops that were called while another one had not ended.
    beside: HashSet<usize>,
}

impl Script {
    /// Writes the script of a tail. `index` maps a sequence to the op's index. Ops that `skip` names are left out. Ops
    /// up to the sequence `inherited` come from the parent of a fork. A gap among these is an op that was under way at
    /// the fork.
    pub(super) fn of_tail<'a>(
        tail: impl Iterator<Item = &'a RecordedOp> + Clone,
        inherited: Option<u32>,
        index: impl Fn(u32) -> Option<usize>,
        skip: impl Fn(usize) -> bool,
    ) -> Self {
        let mut lines = Vec::new();
        let mut unclaimed = 0;
        let (mut open, mut beside) = (HashSet::new(), HashSet::new());
        let (mut expected, mut has_gap) = (0, false);
        // After an edit of the code an outcome can be recorded as handed over twice. Its last place counts.
        let mut last = HashMap::new();
        for op in tail.clone() {
            for seen in &op.seen {
                last.insert(*seen, op.sequence);
            }
        }
        for op in tail {
            let is_inherited = inherited.is_some_and(|last| op.sequence <= last);
            has_gap = is_inherited && (has_gap || op.sequence != expected);
            expected = op.sequence.saturating_add(1);
            for seen in &op.seen {
                if *seen == Seen::CANCEL {
                    open.clear();
                    lines.push(Line::Cancel);
                } else if last.get(seen) == Some(&op.sequence)
                    && let Some(target) = index(seen.0)
                    && !skip(target)
                {
                    open.remove(&target);
                    lines.push(Line::Deliver(target));
                }
            }
            if let Some(me) = index(op.sequence)
                && !skip(me)
            {
                lines.push(Line::Call(me));
                unclaimed += 1;
                match op.body {
                    RecordedBody::Abandon { target } => drop(index(target).map(|target| open.remove(&target))),
                    _ if has_gap || !open.is_empty() => drop(beside.insert(me)),
                    _ => {}
                }
                if op.body.has_outcome() {
                    open.insert(me);
                }
            }
        }
        let delivered_at = lines
            .iter()
            .enumerate()
            .filter_map(|(at, line)| match line {
                Line::Deliver(op) => Some((*op, at)),
                _ => None,
            })
            .collect();
        Self { lines, at: 0, delivered_at, unclaimed, beside }
    }

    /// The line that is next, if any.
    pub(super) fn next(&self) -> Option<Line> {
        self.lines.get(self.at).copied()
    }

    /// Moves past the next line, because it has happened again or never will.
    pub(super) fn step(&mut self) {
        self.at += 1;
    }

    /// The ops whose outcomes the rest of the script hands over, in order.
    pub(super) fn deliveries(&self) -> impl Iterator<Item = usize> + '_ {
        self.lines[self.at.min(self.lines.len())..].iter().filter_map(|line| match line {
            Line::Deliver(op) => Some(*op),
            _ => None,
        })
    }

    /// Whether the rest of the script hands over the request to stop.
    pub(super) fn tells_stop(&self) -> bool {
        self.lines[self.at.min(self.lines.len())..].contains(&Line::Cancel)
    }

    /// Whether the line that hands over an op's outcome lies behind. Then the outcome may be handed over at any time.
    pub(super) fn was_passed(&self, op: usize) -> bool {
        self.delivered_at.get(&op).is_some_and(|at| *at < self.at)
    }

    /// Whether no other op was under way when an op was called.
    pub(super) fn was_alone(&self, op: usize) -> bool {
        !self.beside.contains(&op)
    }

    /// Whether no op was called while another was under way.
    pub(super) fn is_sequential(&self) -> bool {
        self.beside.is_empty()
    }

    /// Replaces an op's index by another.
    pub(super) fn rename(&mut self, from: usize, to: usize) {
        for line in &mut self.lines {
            match line {
                Line::Call(op) | Line::Deliver(op) if *op == from => *op = to,
                _ => {}
            }
        }
        if let Some(at) = self.delivered_at.remove(&from) {
            self.delivered_at.insert(to, at);
        }
    }

    /// Whether every recorded op has been called again.
    pub(super) fn all_claimed(&self) -> bool {
        self.unclaimed == 0
    }

    /// Whether replay is over: every recorded op was called again, or was passed over for good.
    pub(super) fn is_used_up(&self) -> bool {
        self.all_claimed() || self.next().is_none()
    }

    /// Notes that a recorded op was called again.
    pub(super) fn note_claim(&mut self) {
        self.unclaimed = self.unclaimed.saturating_sub(1);
    }

    /// Finds the twin of a call: first in the window up to the next hand-over, then in the rest of the tail, then among
    /// the ops that were passed over. `free` gives the label of an op that may be taken.
    pub(super) fn find<'a>(&self, label: &Label, free: impl Fn(usize) -> Option<&'a Label>) -> Option<usize> {
        #[cfg(test)]
        if super::wrong::is(super::wrong::Rule::LastTwin) {
            return self.window().chain(self.rest()).filter(|op| free(*op) == Some(label)).last();
        }
        #[cfg(test)]
        if super::wrong::is(super::wrong::Rule::ByKind) {
            return self.window().chain(self.rest()).find(|op| free(*op).is_some_and(|free| free.same_step(label)));
        }
        self.window().chain(self.rest()).find(|op| free(*op) == Some(label)).or_else(|| {
            // Ops that were passed over stay claimable until the segment ends, so that a finished step is never
            // repeated.
            self.lines[..self.at].iter().find_map(|line| match line {
                Line::Call(op) if free(*op) == Some(label) => Some(*op),
                _ => None,
            })
        })
    }

    /// The first op of the window that nobody claimed: the only one a reworded call may take.
    pub(super) fn first_in_window<'a>(&self, free: impl Fn(usize) -> Option<&'a Label>) -> Option<(usize, &'a Label)> {
        self.window().find_map(|op| free(op).map(|label| (op, label)))
    }

    /// The first op of the script.
    pub(super) fn first_call(&self) -> Option<usize> {
        self.lines.iter().find_map(|line| match line {
            Line::Call(op) => Some(*op),
            _ => None,
        })
    }

    /// The calls that may come in any order now: those before the next hand-over.
    fn window(&self) -> impl Iterator<Item = usize> + '_ {
        self.lines[self.at.min(self.lines.len())..].iter().map_while(|line| match line {
            Line::Call(op) => Some(*op),
            _ => None,
        })
    }

    fn rest(&self) -> impl Iterator<Item = usize> + '_ {
        let start = self.at.min(self.lines.len());
        self.lines[start..].iter().skip_while(|line| matches!(line, Line::Call(_))).filter_map(|line| match line {
            Line::Call(op) => Some(*op),
            _ => None,
        })
    }
}
