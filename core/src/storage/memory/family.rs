//! What ties a run to the run that started it: its birth, the news of its end, and that an end takes children along.

use super::executions::fresh;
use super::rows::{Cause, FactOf, Run};
use super::state::{RunKey, State, not_found};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, SignalId, Slot};
use crate::model::{
    Batch, Cancellation, ChildEnd, CommitRequest, Created, Ended, EventKind, NewExecution, NewSignal, OnParentEnd,
    OpBody, RecordedOp,
};
use crate::storage::limits::check_family;
use serde_json::json;

/// Who ended a run that its parent has taken along.
pub(super) const BY_PARENT: &str = "parent";

impl State {
    /// Gives tasks for the workers of the run's parent its queue. A fork of a child has no parent: its own workers have to do.
    pub(super) fn name_parent_queue(&self, (org, id): RunKey, batch: &mut Batch) -> Result<()> {
        let tasks = batch.ops.iter_mut().filter_map(|op| match &mut op.body {
            OpBody::Task(task) if task.is_for_parent() => Some(task),
            _ => None,
        });
        for task in tasks {
            let run = self.run(org, id)?;
            let parent = run.exec.parent.map_or(Ok(run), |parent| self.run(org, parent))?;
            task.queue.clone_from(&parent.exec.new.queue);
        }
        Ok(())
    }

    /// Starts the children of a batch. The parent is told at once of children that it may not start, and of those that it
    /// has started before and that have ended.
    pub(super) fn bear_children(
        &mut self,
        (org, parent): RunKey,
        request: &CommitRequest,
        now: Timestamp,
    ) -> Result<()> {
        let batch = &request.batch;
        for op in &batch.ops {
            let OpBody::Child(child) = &op.body else { continue };
            let above = self.run(org, parent)?;
            let mut room = request.lets_in(op.sequence, &child.queue);
            room = room.and_then(|()| check_family(parent, above.exec.depth, above.children.len()));
            let new = NewExecution { org, ..(**child).clone() };
            let mut purse = None;
            if room.is_ok() && !self.runs.contains_key(&(org, child.id)) {
                room = self.bear((org, parent), &new).map(|given| purse = given);
            }
            let above = self.run(org, parent)?;
            let there = self.runs.get(&(org, child.id)).map(|run| &run.exec);
            let refused = |error| {
                let slot = Slot { segment: batch.segment, sequence: op.sequence };
                ChildEnd::refusal(org, parent, child.id, slot, &error)
            };
            let end = match (there, room) {
                (None, Ok(())) => {
                    self.create_below(new, Some(parent), now)?;
                    let born = self.run_mut(org, child.id)?;
                    born.exec.purse = purse.or(born.exec.purse.take());
                    self.run_mut(org, parent)?.children.push(child.id);
                    continue;
                }
                (None, Err(error)) => refused(error),
                (Some(there), _) if !there.is_child_of(parent, child) => refused(there.is_in_the_way()),
                (Some(there), _) if !there.status.is_terminal() => continue,
                (Some(there), _) => match above.untold(child.id, batch.segment) {
                    Some(id) => NewSignal { id, ..ChildEnd::of(there, parent) },
                    None => continue,
                },
            };
            self.run_mut(org, parent)?.take_signal(end, now);
        }
        Ok(())
    }

    /// Starts a run as the child of another one, where a parent is given.
    pub(super) fn create_below(
        &mut self,
        mut new: NewExecution,
        parent: Option<ExecutionId>,
        now: Timestamp,
    ) -> Result<Created> {
        if let Some(run) = self.runs.get(&(new.org, new.id)) {
            if run.exec.is_of(&new) {
                return Ok(Created { execution: run.exec.clone(), existing: true });
            }
            return Err(run.exec.is_in_the_way());
        }
        let org = new.org;
        let above = parent.map(|parent| self.runs.get(&(org, parent)).ok_or_else(|| not_found("run", parent)));
        let above = above.transpose()?.map(|above| (above.exec.new.id, above.exec.root, above.exec.depth));
        self.payloads.store(org, &mut new.input)?;
        let mut run = Run::new(fresh(new, now));
        if let Some((parent, root, depth)) = above {
            (run.exec.parent, run.exec.root, run.exec.depth) = (Some(parent), root, depth + 1);
        }
        let data = json!({ "kind": run.exec.new.kind, "queue": run.exec.new.queue });
        run.emit(now, EventKind::Created, None, data);
        let execution = run.exec.clone();
        self.add(run, now);
        Ok(Created { execution, existing: false })
    }

    /// Cancels the children of ops that a batch has orphaned. They tell their parent nothing.
    pub(super) fn cancel_orphans(&mut self, (org, parent): RunKey, orphaned: &(u32, Vec<u32>), now: Timestamp) {
        let orphans = self.run(org, parent).map_or_else(|_| Vec::new(), |run| run.orphaned_children(orphaned));
        for child in orphans {
            let ended = self
                .request_cancel(org, child, Cancellation::USUAL, true, now)
                .is_ok_and(|run| run.status.is_terminal());
            if ended && let Ok(run) = self.run_mut(org, parent) {
                run.children.retain(|open| *open != child);
            }
        }
    }

    /// After a write to a run that has ended: tells its parent, once, and takes its children along.
    pub(super) fn settle_family(&mut self, (org, id): RunKey, now: Timestamp) {
        let Some(run) = self.runs.get_mut(&(org, id)) else { return };
        if !run.exec.status.is_terminal() {
            return;
        }
        let children = std::mem::take(&mut run.children);
        let how = run.exec.cancel.map_or(Cancellation::USUAL, |(cancellation, _)| cancellation);
        let status = run.exec.status;
        for child in children {
            if self.is_detached(org, child) {
                self.leave_alone((org, child), (id, status), now);
            } else {
                // It has not ended, and nothing else can be wrong with the request.
                let _ = self.request_cancel(org, child, how, true, now);
            }
        }
        self.settle_budget((org, id));
        self.tell_parent(org, id, now);
    }

    /// Whether a child goes on when its parent ends.
    pub(super) fn is_detached(&self, org: OrgId, child: ExecutionId) -> bool {
        self.run(org, child).is_ok_and(|run| run.exec.new.on_parent_end == OnParentEnd::Detach)
    }

    /// After a run was opened again: it takes the ends of those of its children that ended while it had ended itself,
    /// and were told nobody. A child that is gone was cancelled by the end of this run.
    pub(super) fn meet_children(&mut self, (org, parent): RunKey, now: Timestamp) -> Result<()> {
        let of = |run: &Run| run.exec.new.org == org && run.exec.parent == Some(parent);
        let open = self.runs.values().filter(|run| of(run) && !run.exec.status.is_terminal());
        let open: Vec<_> = open.map(|run| run.exec.new.id).collect();
        let awaited = self.run(org, parent)?.own_tail().filter_map(|(_, op)| op.child()).collect::<Vec<_>>();
        for child in awaited {
            let end = match self.runs.get(&(org, child)).map(|child| &child.exec) {
                Some(child) if !child.status.is_terminal() => continue,
                Some(child) => ChildEnd::of(child, parent),
                None => ChildEnd::signal(org, parent, Ended::cancelled(child)),
            };
            let run = self.run_mut(org, parent)?;
            if !run.signal_ids.contains_key(&end.id) {
                run.take_signal(end, now);
            }
        }
        self.run_mut(org, parent)?.children = open;
        Ok(())
    }

    fn tell_parent(&mut self, org: OrgId, child: ExecutionId, now: Timestamp) {
        let Some(run) = self.runs.get_mut(&(org, child)) else { return };
        if std::mem::replace(&mut run.told_parent, true) {
            return;
        }
        let Some(parent) = run.exec.parent else { return };
        let signal = ChildEnd::of(&run.exec, parent);
        let Ok(above) = self.run_mut(org, parent) else { return };
        // A parent that has ended takes nothing.
        if above.exec.status.is_terminal() {
            return;
        }
        above.children.retain(|open| *open != child);
        match above.exec.handed_to == Some(child) {
            true => self.end_as((org, parent), child, now),
            false => {
                above.take_signal(signal, now);
                self.refresh((org, parent), now);
            }
        }
    }
}

impl Run {
    /// The children of the ops that a batch orphans.
    fn orphaned_children(&self, (segment, orphaned): &(u32, Vec<u32>)) -> Vec<ExecutionId> {
        let ops = orphaned.iter().filter_map(|sequence| self.ops.get(&Slot { segment: *segment, sequence: *sequence }));
        ops.filter_map(RecordedOp::child).filter(|child| self.children.contains(child)).collect()
    }

    /// The id under which it is told of the end of a child that it waits for in a segment. None where the end is in its
    /// mailbox, or an op of the segment has had it.
    fn untold(&self, child: ExecutionId, segment: u32) -> Option<SignalId> {
        let (first, again) = (ChildEnd::id(child), ChildEnd::id_again(child, segment));
        let Some(number) = self.signal_ids.get(&first) else { return Some(first) };
        let by = self.signals.get(number)?.consumed_by?;
        (by.segment != segment && !self.signal_ids.contains_key(&again)).then_some(again)
    }

    /// Puts a signal into the mailbox. Returns whether it woke the run.
    pub(super) fn take_signal(&mut self, new: NewSignal, now: Timestamp) -> bool {
        let number = self.emit(now, EventKind::Signal, None, json!({ "signal": new.id.to_string(), "name": new.name }));
        self.fact(number, now, FactOf::Signal);
        self.signal_ids.insert(new.id, number);
        let resumed = self.wake(now, Cause::Signal(&new.name));
        self.signals.insert(number, new.stored(number, now));
        resumed
    }
}
