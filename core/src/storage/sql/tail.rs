//! Puts a tail together from its rows, and computes what a fork inherits from its parent. It does no I/O: the dialect
//! has read the rows.

use super::task::TaskRow;
use crate::clock::Timestamp;
use crate::id::{Slot, TaskId};
use crate::model::{
    Fact, FactKind, OnceResult, RecordedBody, RecordedOp, Signal, child_of_events, child_signal, kept_signal,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An op of the journal, with the columns that a load needs beside it.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Recorded {
    pub op: RecordedOp,
    /// Of a task or a timer: the number of the fact that ended it.
    pub fact: Option<u64>,
    /// Of a timer: when it fired.
    pub fired_at: Option<i64>,
    /// Of the end of a `once`: its digest and its result.
    pub once: Option<OnceResult>,
}

impl Recorded {
    /// Where it is in its run.
    pub(crate) fn slot(&self) -> Slot {
        self.op.slot()
    }

    /// Whether it scheduled a task.
    pub(crate) fn is_task(&self) -> bool {
        matches!(self.op.body, RecordedBody::Task { .. })
    }

    /// The fact that its timer has fired.
    fn timer(&self) -> Option<Fact> {
        if !matches!(self.op.body, RecordedBody::Timer | RecordedBody::Signal) {
            return None;
        }
        let kind = FactKind::Timer { slot: self.slot() };
        Some(Fact { number: self.fact?, at: Timestamp(self.fired_at?), kind })
    }

    fn is_in_unfinished(&self, finished: &BTreeMap<Arc<str>, OnceResult>) -> bool {
        self.op.once.as_ref().is_some_and(|once| !finished.contains_key(&once.name))
    }
}

/// A tail with its facts, or what a fork inherits from its parent.
#[derive(Debug, Default)]
pub(in crate::storage) struct Tail {
    pub ops: Vec<Recorded>,
    pub facts: Vec<Fact>,
    pub once: BTreeMap<Arc<str>, OnceResult>,
}

/// The rows of a run that facts are made of, beside those of its ops.
pub(in crate::storage) struct SegmentFacts<P> {
    /// Ended tasks of the tail's ops.
    pub tasks: Vec<TaskRow<P>>,
    /// Ended detached tasks of earlier segments.
    pub detached: Vec<TaskRow<P>>,
    /// Pending signals, and consumed ones.
    pub signals: Vec<Signal>,
    /// The request to stop.
    pub stop: Option<Fact>,
}

impl Tail {
    /// Chooses the ops that a replay from a segment needs: those of the segment and later ones, and those inside an
    /// unfinished `once` of an earlier segment. Returns the chosen ones of the run's own ops, and drops the others of
    /// the inherited ones.
    pub(crate) fn choose(&mut self, mut own: Vec<Recorded>, onces: Vec<Recorded>, from: u32) -> Vec<Recorded> {
        self.once.extend(results(&onces));
        if from > 0 {
            own.splice(0..0, onces.into_iter().filter(|op| op.op.segment < from));
        }
        let once = &self.once;
        let counts = |op: &Recorded| op.op.segment >= from || op.is_in_unfinished(once);
        own.retain(counts);
        self.ops.retain(counts);
        own
    }

    /// Adds a run's own ops from a segment on, with their facts.
    pub(crate) fn add<P>(&mut self, own: Vec<Recorded>, rows: SegmentFacts<P>, from: u32) {
        let slots: BTreeSet<Slot> = own.iter().map(Recorded::slot).collect();
        let mut facts: Vec<Fact> = own.iter().filter_map(Recorded::timer).collect();
        facts.extend(rows.tasks.iter().filter_map(TaskRow::fact));
        let apart = rows.detached.iter().filter(|row| !slots.contains(&row.task.slot));
        facts.extend(apart.filter_map(TaskRow::fact));
        let mailbox = |signal: &Signal| signal.consumed_by.is_none_or(|by| by.segment >= from || slots.contains(&by));
        facts.extend(rows.signals.into_iter().filter(mailbox).map(fact_of_signal));
        facts.extend(rows.stop);
        facts.sort_by_key(|fact| fact.number);
        self.facts.extend(facts);
        self.ops.extend(own);
        self.ops.sort_by_key(Recorded::slot);
    }
}

/// Where a fork starts, and how far its parent had come when it was made.
#[derive(Debug)]
pub(in crate::storage) struct Point {
    pub segment: u32,
    /// The sequence of the last op that the fork inherits. None for a fork at a checkpoint.
    pub sequence: Option<u32>,
    /// The number of the parent's last event.
    pub high: u64,
    /// The number of the parent's last commit.
    pub base: u64,
}

impl Point {
    /// Whether an op is at or before it.
    pub(crate) fn reaches(&self, op: &Recorded) -> bool {
        match self.sequence {
            Some(sequence) => op.slot() <= Slot { segment: self.segment, sequence },
            None => op.op.segment < self.segment,
        }
    }

    fn has_passed(&self, number: Option<u64>) -> bool {
        number.is_some_and(|number| number <= self.high)
    }

    /// What a fork at this point inherits: settled ops with their outcomes, and finished `once`s. `above` is what the
    /// parent itself has inherited, `own` are the parent's own ops up to the point, `consumed` and `tasks` its consumed
    /// signals and its tasks.
    pub(crate) fn inherit<P>(
        &self,
        above: Tail,
        own: Vec<Recorded>,
        consumed: Vec<Signal>,
        tasks: &BTreeMap<Slot, TaskRow<P>>,
    ) -> Tail {
        let before: Vec<Recorded> = above.ops.into_iter().filter(|op| self.reaches(op)).collect();
        let mut once = results(&own);
        for op in before.iter().filter(|op| matches!(op.op.body, RecordedBody::Once { .. })) {
            let name = op.op.once.as_ref().map_or(&op.op.label.name, |once| &once.name);
            once.extend(above.once.get(name).map(|result| (name.clone(), result.clone())));
        }
        if self.sequence.is_none() {
            once.extend(above.once);
        }
        let from_above: BTreeSet<Slot> = before.iter().map(Recorded::slot).collect();
        let mut ops = before;
        ops.extend(own);
        ops.sort_by_key(Recorded::slot);
        let later = match self.sequence {
            Some(_) => RecordedOp::cancelled_later(ops.iter().map(|op| &op.op)),
            None => BTreeSet::new(),
        };
        let open = |op: &Recorded| op.op.task().is_some_and(|task| later.contains(&task));
        let settled = |op: &Recorded| from_above.contains(&op.slot()) || self.settles(op, &consumed, tasks);
        let counts = |op: &Recorded| self.sequence.is_some() || op.is_in_unfinished(&once);
        let kept = |op: &&Recorded| counts(op) && settled(op) && !open(op);
        let mut there: BTreeSet<Slot> = ops.iter().filter(kept).map(Recorded::slot).collect();
        let of_above = above.facts.iter().filter_map(|fact| match &fact.kind {
            FactKind::Signal(signal) => Some(signal),
            _ => None,
        });
        let heard = of_above.chain(&consumed).filter(|signal| signal.was_taken_after(self.segment, self.sequence));
        let counted = ops.iter().filter(|op| counts(op)).map(|op| &op.op);
        RecordedOp::forget_unanswered(counted, heard, &mut there);
        for op in &ops {
            if let RecordedBody::Abandon { target } = op.op.body
                && !there.contains(&Slot { sequence: target, ..op.slot() })
            {
                there.remove(&op.slot());
            }
        }
        // A fork at a checkpoint replays no ops of the parent, so the order of their outcomes does not matter.
        if self.sequence.is_some() {
            RecordedOp::keep_seen(ops.iter_mut().map(|op| &mut op.op), &there);
        }
        ops.retain(|op| there.contains(&op.slot()));

        let awaited = self.awaited(&ops, tasks);
        let ended = tasks.values().filter(|row| self.has_passed(row.ended_number));
        let mut facts: Vec<Fact> =
            ended.filter(|row| awaited.contains(&row.task.new.id)).filter_map(TaskRow::fact).collect();
        if self.sequence.is_some() {
            let fired = ops.iter().filter_map(Recorded::timer);
            facts.extend(fired.filter(|fact| fact.number > 0 && fact.number <= self.high));
        }
        let children = ops.iter().rev().filter_map(|op| Some((op.op.child()?, op.slot()))).collect();
        let kept = |signal: Signal| kept_signal(signal, |by| there.contains(by), &children);
        facts.extend(consumed.into_iter().filter_map(kept).map(fact_of_signal));
        facts.sort_by_key(|fact| fact.number);
        let of_above = above.facts.into_iter().filter_map(|fact| match fact.kind {
            FactKind::Task { task, .. } => awaited.contains(&task).then_some(fact),
            FactKind::Timer { slot } => there.contains(&slot).then_some(fact),
            FactKind::Signal(signal) => Some(Fact { kind: FactKind::Signal(kept(signal)?), ..fact }),
            FactKind::Cancel(_) => None,
        });
        let facts = of_above.chain(facts).map(|fact| Fact { number: 0, ..fact }).collect();
        // The fork numbers its facts by its own events. Inherited facts have the number 0: they come before all of
        // these.
        ops.iter_mut().for_each(|op| op.fact = op.fact.map(|_| 0));
        Tail { ops, facts, once }
    }

    /// The tasks whose ends a fork may ask for: those of its ops, and at a checkpoint detached ones of earlier
    /// segments.
    fn awaited<P>(&self, ops: &[Recorded], tasks: &BTreeMap<Slot, TaskRow<P>>) -> BTreeSet<TaskId> {
        let mut awaited: BTreeSet<TaskId> = ops.iter().filter_map(|op| op.op.task()).collect();
        if self.sequence.is_none() {
            let old = tasks.values().filter(|row| row.task.slot.segment < self.segment);
            awaited.extend(old.filter(|row| row.task.new.options.detached).map(|row| row.task.new.id));
        }
        awaited
    }

    /// Whether an op of the parent had its outcome when the fork was made, or needs none.
    fn settles<P>(&self, op: &Recorded, consumed: &[Signal], tasks: &BTreeMap<Slot, TaskRow<P>>) -> bool {
        let fired = self.has_passed(op.fact);
        match &op.op.body {
            RecordedBody::Task { .. } | RecordedBody::Timer => fired,
            RecordedBody::Child { id } => {
                let name = child_signal(*id);
                consumed.iter().any(|signal| signal.consumed_by == Some(op.slot()) || signal.name == name)
            }
            RecordedBody::Signal => {
                let end = child_of_events(&op.op.label.name).map(child_signal);
                let ends =
                    |signal: &Signal| signal.consumed_by == Some(op.slot()) || Some(&signal.name) == end.as_ref();
                fired || consumed.iter().any(ends)
            }
            RecordedBody::Attach { task } => {
                tasks.values().find(|row| row.task.new.id == *task).is_none_or(|row| self.has_passed(row.ended_number))
            }
            _ => true,
        }
    }
}

fn fact_of_signal(signal: Signal) -> Fact {
    Fact { number: signal.number, at: signal.created_at, kind: FactKind::Signal(signal) }
}

fn results(ops: &[Recorded]) -> BTreeMap<Arc<str>, OnceResult> {
    ops.iter().filter_map(|op| op.once.clone()).map(|once| (once.name.clone(), once)).collect()
}
