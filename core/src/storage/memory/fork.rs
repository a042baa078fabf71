//! Forks: the point that a fork starts from, and what it inherits from its parent there.
//!
//! Unlike the SQL backends, this one copies the inherited tail into the fork when the fork is made.

use super::executions::fresh;
use super::rows::{FactOf, Inherited, Run};
use super::state::{State, not_found};
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, OrgId, Slot, TaskId};
use crate::model::{
    Checkpoint, EventKind, Execution, Fact, FactKind, ForkFrom, ForkPoint, ForkRequest, RecordedBody, RecordedOp, Seen,
    child_of_events, child_signal, kept_signal,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

impl State {
    pub(super) fn fork(&mut self, mut request: ForkRequest, now: Timestamp) -> Result<Execution> {
        let org = request.org;
        let parent = self.run(org, request.execution)?;
        let told = |(slot, op): (Slot, RecordedOp)| op.seen.contains(&Seen::CANCEL).then_some(slot.sequence);
        let told = parent.exec.cancel.and_then(|_| parent.tail(0).into_iter().find_map(told));
        let point = request.before_stop(self.fork_point(parent, &request)?, told)?;
        if let Some(there) = self.runs.get(&(org, request.id)) {
            if there.exec.forked_from == Some(point) {
                return Ok(there.exec.clone());
            }
            return Err(there.exec.is_in_the_way());
        }
        let (inherited, parent_high) = (parent.inheritance(point), parent.high);
        let mut checkpoint = parent.checkpoints.get(&point.segment).cloned();
        if request.state.is_some() && checkpoint.is_none() {
            return Err(invalid(format!("the run {} has no state to replace; fork it without one", request.execution)));
        }
        if request.input.is_some() && checkpoint.is_none() && !inherited.ops.is_empty() {
            return Err(invalid(format!(
                "the input of a fork can only be replaced before the first op; this one keeps {} ops",
                inherited.ops.len()
            )));
        }
        let mut new = parent.exec.new.clone();
        let code = parent.exec.code.clone().filter(|_| checkpoint.is_none());
        new.id = request.id;
        new.key = request.key.take();
        new.delay = None;
        new.traceparent = None;
        if let Some(mut input) = request.input.take() {
            new.input_digest = input.digest()?;
            self.payloads.store(org, &mut input)?;
            new.input = input;
        }
        if let Some(copy) = &mut checkpoint {
            copy.execution = request.id;
            if let Some(mut state) = request.state.take() {
                self.payloads.store(org, &mut state)?;
                let hash = self.payloads.content_hash(org, &state)?;
                copy.saved.state = state;
                copy.hash = Checkpoint::content_hash(copy.sequence, &hash, &copy.saved.leaves, &copy.usage);
            }
        }

        let mut run = Run::new(fresh(new, now));
        run.exec.forked_from = Some(point);
        run.forked_high = parent_high;
        run.exec.segment = point.segment;
        run.exec.code = code;
        run.exec.leaf = match &checkpoint {
            Some(checkpoint) => checkpoint.saved.leaves.get("").copied(),
            None => inherited.ops.values().rev().find_map(main_entry),
        };
        run.inherited = inherited;
        run.checkpoints.extend(checkpoint.map(|checkpoint| (checkpoint.sequence, checkpoint)));
        let data = json!({
            "execution": point.execution.to_string(), "segment": point.segment, "sequence": point.sequence
        });
        run.emit(now, EventKind::Forked, None, data);
        let execution = run.exec.clone();
        self.add(run, now);
        Ok(execution)
    }

    fn fork_point(&self, run: &Run, request: &ForkRequest) -> Result<ForkPoint> {
        let execution = request.execution;
        let at_op = |slot: Slot| ForkPoint { execution, segment: slot.segment, sequence: Some(slot.sequence) };
        let at_checkpoint = |segment| ForkPoint { execution, segment, sequence: None };
        let with_state = !run.checkpoints.is_empty();
        match request.from {
            ForkFrom::Checkpoint(sequence) if run.checkpoints.contains_key(&sequence) => Ok(at_checkpoint(sequence)),
            ForkFrom::Checkpoint(sequence) => Err(invalid(format!("the run {execution} has no checkpoint {sequence}"))),
            ForkFrom::Op(_) if with_state => {
                Err(invalid(format!("the run {execution} has state: fork it at a checkpoint or an entry")))
            }
            ForkFrom::Op(slot) if run.tail(0).contains_key(&slot) => Ok(at_op(slot)),
            ForkFrom::Op(slot) => Err(invalid(format!("the run {execution} has no op {slot}"))),
            ForkFrom::Entry(entry) if with_state => self
                .checkpoint_above(request.org, run, entry)?
                .map(at_checkpoint)
                .ok_or_else(|| invalid(format!("no checkpoint of the run {execution} is at or above {entry}"))),
            ForkFrom::Entry(entry) => {
                self.entry(request.org, entry).ok_or_else(|| not_found("entry", entry))?;
                let appended = |op: &RecordedOp| matches!(op.body, RecordedBody::Entry { id, .. } if id == entry);
                let slot = run.tail(0).into_iter().find(|(_, op)| appended(op)).map(|(slot, _)| slot);
                let missing = || invalid(format!("the entry {entry} is not on the run {execution}"));
                slot.map(at_op).ok_or_else(missing)
            }
            ForkFrom::Latest => Ok(match (run.checkpoints.keys().next_back(), run.tail(0).keys().next_back()) {
                (Some(sequence), _) => at_checkpoint(*sequence),
                (None, Some(slot)) => at_op(*slot),
                (None, None) => at_checkpoint(0),
            }),
        }
    }

    /// The last checkpoint whose leaf of the main thread is the entry or one above it.
    fn checkpoint_above(&self, org: OrgId, run: &Run, entry: EntryId) -> Result<Option<u32>> {
        let above: BTreeSet<EntryId> = self.branch(org, entry, None)?.iter().map(|entry| entry.new.id).collect();
        let counts =
            |checkpoint: &&Checkpoint| checkpoint.saved.leaves.get("").is_some_and(|leaf| above.contains(leaf));
        Ok(run.checkpoints.values().rev().find(counts).map(|checkpoint| checkpoint.sequence))
    }
}

impl Run {
    /// What a fork at a point inherits from this run.
    fn inheritance(&self, point: ForkPoint) -> Inherited {
        let reached = |slot: &Slot| match point.sequence {
            Some(sequence) => *slot <= Slot { segment: point.segment, sequence },
            None => slot.segment < point.segment,
        };
        let mut ops: BTreeMap<Slot, RecordedOp> =
            self.all_ops().into_iter().filter(|(slot, _)| reached(slot)).collect();

        let mut once = BTreeMap::new();
        for op in ops.values().filter(|op| matches!(op.body, RecordedBody::Once { .. })) {
            let name = op.once.as_ref().map_or(&op.label.name, |once| &once.name);
            let result = self.once.get(name).or_else(|| self.inherited.once.get(name));
            once.extend(result.map(|result| (name.clone(), result.clone())));
        }
        // A fork at a checkpoint also has the `once`s that the parent itself has inherited.
        if point.sequence.is_none() {
            once.extend(self.inherited.once.clone());
        }

        let settled = self.settled();
        let later = match point.sequence {
            Some(_) => RecordedOp::cancelled_later(ops.values()),
            None => BTreeSet::new(),
        };
        let open = |op: &RecordedOp| op.task().is_some_and(|task| later.contains(&task));
        let unfinished = |op: &RecordedOp| op.once.as_ref().is_some_and(|place| !once.contains_key(&place.name));
        let kept = |slot: &Slot, op: &RecordedOp| {
            (point.sequence.is_some() || unfinished(op)) && settled(slot, op) && !open(op)
        };
        let mut there: BTreeSet<Slot> = ops.iter().filter(|(slot, op)| kept(slot, op)).map(|(slot, _)| *slot).collect();
        let counted = ops.values().filter(|op| point.sequence.is_some() || unfinished(op));
        let of_above = self.inherited.facts.iter().filter_map(|fact| match &fact.kind {
            FactKind::Signal(signal) => Some(signal),
            _ => None,
        });
        let heard = of_above
            .chain(self.signals.values())
            .filter(|signal| signal.was_taken_after(point.segment, point.sequence));
        RecordedOp::forget_unanswered(counted, heard, &mut there);
        for (slot, op) in &ops {
            if let RecordedBody::Abandon { target } = op.body
                && !there.contains(&Slot { sequence: target, ..*slot })
            {
                there.remove(slot);
            }
        }
        // A fork at a checkpoint replays no ops of the parent, so the order of their outcomes does not matter.
        if point.sequence.is_some() {
            RecordedOp::keep_seen(ops.values_mut(), &there);
        }
        ops.retain(|slot, _| there.contains(slot));

        let facts = self.inherited_facts(point, &ops);
        Inherited { ops, facts, once }
    }

    fn all_ops(&self) -> BTreeMap<Slot, RecordedOp> {
        let inherited = self.inherited.ops.iter().map(|(slot, op)| (*slot, op.clone()));
        inherited.chain(self.ops.iter().map(|(slot, op)| (*slot, self.recorded(*slot, op)))).collect()
    }

    /// Tells whether an op has its outcome, or needs none.
    fn settled(&self) -> impl Fn(&Slot, &RecordedOp) -> bool {
        let of_timer = |fact: &super::rows::FactRow| match fact.what {
            FactOf::Timer(slot) => Some(slot),
            _ => None,
        };
        let mut fired: BTreeSet<Slot> = self.facts.values().filter_map(of_timer).collect();
        fired.extend(self.inherited.ops.keys());
        let taken = || self.signals.values().filter(|signal| signal.consumed_by.is_some());
        let took: BTreeSet<Slot> = taken().filter_map(|signal| signal.consumed_by).collect();
        let names: BTreeSet<&str> = taken().map(|signal| signal.name.as_str()).collect();
        let open: BTreeSet<TaskId> =
            self.open.iter().filter_map(|slot| self.tasks.get(slot)).map(|row| row.task.new.id).collect();
        move |slot, op| match &op.body {
            RecordedBody::Task { id: task, .. } | RecordedBody::Attach { task } => !open.contains(task),
            RecordedBody::Timer => fired.contains(slot),
            RecordedBody::Child { id } => took.contains(slot) || names.contains(child_signal(*id).as_str()),
            RecordedBody::Signal => {
                let end = child_of_events(&op.label.name).map(child_signal);
                took.contains(slot) || fired.contains(slot) || end.is_some_and(|end| names.contains(end.as_str()))
            }
            _ => true,
        }
    }

    /// The outcomes of the ops that a fork inherits, and of detached tasks that were scheduled before its checkpoint.
    fn inherited_facts(&self, point: ForkPoint, ops: &BTreeMap<Slot, RecordedOp>) -> Vec<Fact> {
        let mut tasks: BTreeSet<TaskId> = ops.values().filter_map(RecordedOp::task).collect();
        if point.sequence.is_none() {
            let detached = self.tasks.iter().filter(|(slot, row)| {
                slot.segment < point.segment && row.task.new.options.detached && row.task.status.is_terminal()
            });
            tasks.extend(detached.map(|(_, row)| row.task.new.id));
        }
        let timed =
            |slot: &Slot| ops.get(slot).is_some_and(|op| matches!(op.body, RecordedBody::Timer | RecordedBody::Signal));
        let children = ops.iter().rev().filter_map(|(slot, op)| Some((op.child()?, *slot))).collect();
        let kept = |kind: FactKind| match kind {
            FactKind::Task { task, .. } => tasks.contains(&task).then_some(kind),
            FactKind::Timer { slot } => timed(&slot).then_some(kind),
            FactKind::Signal(signal) => kept_signal(signal, |by| ops.contains_key(by), &children).map(FactKind::Signal),
            FactKind::Cancel(_) => None,
        };
        let all = self.inherited.facts.iter().cloned().chain(self.facts_after(0, None));
        all.filter_map(|fact| Some(Fact { number: 0, at: fact.at, kind: kept(fact.kind)? })).collect()
    }
}

fn main_entry(op: &RecordedOp) -> Option<EntryId> {
    match &op.body {
        RecordedBody::Entry { id, thread, .. } if thread.is_empty() => Some(*id),
        _ => None,
    }
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}
