//! A run gives its work to one of its children: what was sent to it and not read goes there, and its end follows.

use super::rows::Run;
use super::state::{RunKey, State};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::model::{Cancellation, EventKind, Status, Wait, WaitReason, handed_off, handed_signal};
use crate::payload::Payload;
use serde_json::json;

impl State {
    /// The run to which a run has handed off, where that is still there.
    pub(super) fn handed_to(&self, org: OrgId, id: ExecutionId) -> Option<ExecutionId> {
        let to = self.runs.get(&(org, id))?.exec.handed_to?;
        self.runs.contains_key(&(org, to)).then_some(to)
    }

    /// The run by which the parent of a run's work knows it: the first one that has handed off to it, or itself.
    pub(super) fn known_as(&self, org: OrgId, id: ExecutionId) -> ExecutionId {
        let mut known = id;
        while let Some(above) = self.runs.get(&(org, known)).and_then(|run| run.exec.parent)
            && self.handed_to(org, above) == Some(known)
        {
            known = above;
        }
        known
    }

    /// After a commit that may have handed the run off.
    pub(super) fn after_hand_off(&mut self, (org, id): RunKey, now: Timestamp) -> Result<()> {
        let Some(to) = self.handed_to(org, id) else { return Ok(()) };
        let run = self.run_mut(org, id)?;
        let unread = run.signals.values().filter(|signal| signal.consumed_by.is_none());
        let moved: Vec<_> = unread.filter_map(|signal| handed_signal(org, signal, to)).collect();
        let waits = !run.exec.status.is_terminal();
        let others = if waits { std::mem::replace(&mut run.children, vec![to]) } else { Vec::new() };
        for signal in moved {
            self.run_mut(org, to)?.take_signal(signal, now);
        }
        self.refresh((org, to), now);
        for child in others.into_iter().filter(|child| *child != to) {
            if self.is_detached(org, child) {
                self.leave_alone((org, child), (id, Status::Waiting), now);
            } else {
                self.request_cancel(org, child, Cancellation::USUAL, true, now)?;
            }
        }
        Ok(())
    }

    /// Ends a run as the one that it has handed off to has ended.
    pub(super) fn end_as(&mut self, (org, id): RunKey, successor: ExecutionId, now: Timestamp) {
        let Some(end) = self.runs.get(&(org, successor)).map(|run| run.exec.clone()) else { return };
        let Some(run) = self.runs.get_mut(&(org, id)) else { return };
        match (end.status, end.failure) {
            (Status::Completed, _) => run.complete(now, end.output.unwrap_or_else(Payload::null)),
            (Status::Failed, Some(failure)) => run.fail(now, failure),
            _ => run.cancelled(now, end.output, "handed_off"),
        }
        self.refresh((org, id), now);
    }
}

impl Run {
    /// Gives its work to a child. It waits for that, or is COMPLETED with `immediate`.
    pub(super) fn hand_off(&mut self, now: Timestamp, to: ExecutionId, immediate: bool) {
        self.exec.handed_to = Some(to);
        self.end_tasks(now);
        self.warn_of_children(now);
        self.disarmed.append(&mut self.timers);
        self.clear_holder();
        self.parked = None;
        self.exec.status = Status::Waiting;
        self.exec.wait = Some(Wait { reason: Some(WaitReason::HandedOff), ..Wait::default() });
        self.emit(now, EventKind::HandedOff, None, json!({ "to": to }));
        if immediate {
            self.complete(now, handed_off(to));
        }
    }
}
