//! The transitions of a task: an attempt is handed out, ends, is lost or times out, or a person answers for the task.
//!
//! What follows is decided by `journal::retry` and carried out here: one guarded update, one event, and the fact that
//! may wake the run.

use super::rows::{Cause, FactOf, FactRow, Run, TaskRow};
use super::state::{State, not_found};
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{OpId, Slot};
use crate::journal::retry::{Verdict, after_attempt, after_loss, described, interrupted, quarantined};
use crate::model::{
    AttemptReport, AttemptResult, ClaimedTask, EventKind, Failure, Interruption, NewTask, Placement, Resolution,
    SideEffects, Status, Task, TaskReport, TaskStatus, WaitReason,
};
use crate::storage::ClaimRequest;
use serde_json::{Value, json};
use std::time::Duration;

impl State {
    pub(super) fn claim_tasks(&mut self, claim: &ClaimRequest, now: Timestamp) -> Vec<ClaimedTask> {
        self.saw_worker(claim, now);
        let mut found = Vec::new();
        for &(key, slot) in &self.queued {
            let Some(run) = self.runs.get(&key) else { continue };
            let Some(task) = run.tasks.get(&slot).map(|row| &row.task) else { continue };
            let asked = key.0 == claim.org && claim.only.is_none_or(|only| only.covers(key.1, run.exec.root));
            let served = task.new.queue == claim.queue && claim.kinds.contains(&task.new.kind);
            if asked && served && task.visible_at <= now {
                found.push((task.visible_at, task.created_at, task.new.id, key, slot));
            }
        }
        found.sort_unstable();
        let mut claimed = Vec::new();
        for (.., key, slot) in found.into_iter().take(claim.limit) {
            if let Some(run) = self.runs.get_mut(&key) {
                claimed.extend(run.claim_task(slot, claim, now));
                self.refresh(key, now);
            }
        }
        claimed
    }

    pub(super) fn report_task(&mut self, mut report: TaskReport, now: Timestamp) -> Result<()> {
        let superseded = || {
            Error::new(
                Code::LeaseLost,
                format!("attempt {} of task {} is no longer the one that counts", report.attempt, report.task),
            )
        };
        let (execution, slot) = self.task_place(report.org, report.task).map_err(|_| superseded())?;
        let row = self.run(report.org, execution)?.tasks.get(&slot).ok_or_else(superseded)?;
        let counts = matches!(row.task.status, TaskStatus::Running | TaskStatus::InDoubt);
        if !counts || row.task.attempt != report.attempt {
            return Err(superseded());
        }
        if let AttemptResult::Completed(output) = &mut report.result {
            self.payloads.store(report.org, output)?;
        }
        self.run_mut(report.org, execution)?.end_attempt(slot, report.result, now);
        self.refresh((report.org, execution), now);
        Ok(())
    }

    pub(super) fn resolve_task(
        &mut self,
        org: crate::id::OrgId,
        op: &OpId,
        mut resolution: Resolution,
        now: Timestamp,
    ) -> Result<Task> {
        let run = self.run(org, op.execution)?;
        let slot = match &op.once {
            None => Some(op.slot),
            Some(place) => run.once_places.get(place).copied(),
        };
        let row = slot.and_then(|slot| run.tasks.get(&slot)).ok_or_else(|| not_found("task", op))?;
        let (slot, status) = (row.task.slot, row.task.status);
        if !matches!(status, TaskStatus::InDoubt | TaskStatus::Quarantined) {
            return Err(Error::new(
                Code::InvalidTransition,
                format!("the task {op} is {status:?}: only one in doubt or quarantined can be answered for"),
            )
            .with("from", format!("{status:?}")));
        }
        if let Resolution::Result(output) = &mut resolution {
            self.payloads.store(org, output)?;
        }
        let run = self.run_mut(org, op.execution)?;
        run.resolve(slot, resolution, now);
        let task = run.tasks.get(&slot).map(|row| row.task.clone()).ok_or_else(|| not_found("task", op))?;
        self.refresh((org, op.execution), now);
        Ok(task)
    }
}

impl Run {
    /// Writes a task's row. The caller writes its event.
    pub(super) fn add_task(&mut self, slot: Slot, new: NewTask, now: Timestamp) {
        let inline = new.placement == Placement::Inline;
        let task = Task {
            new,
            org: self.exec.new.org,
            execution: self.exec.new.id,
            slot,
            status: if inline { TaskStatus::Running } else { TaskStatus::Pending },
            attempt: u32::from(inline),
            failed_attempts: 0,
            losses: 0,
            output: None,
            failure: None,
            progress: None,
            visible_at: now,
            worker: self.exec.worker.filter(|_| inline),
            created_at: now,
            started_at: inline.then_some(now),
            ended_at: None,
        };
        let epoch = self.exec.epoch;
        let born_inline = task.new.placement == Placement::Inline;
        let row = TaskRow {
            task,
            epoch,
            lease_expires: None,
            sign_at: now,
            reconcile: false,
            stop: false,
            born_inline,
            no_worker: None,
        };
        self.tasks.insert(slot, row);
        self.open.insert(slot);
    }

    fn claim_task(&mut self, slot: Slot, claim: &ClaimRequest, now: Timestamp) -> Option<ClaimedTask> {
        let row = self.tasks.get_mut(&slot)?;
        row.lease_expires = Some(now.after(claim.ttl));
        row.sign_at = now;
        row.task.status = TaskStatus::Running;
        row.task.attempt += 1;
        row.task.worker = Some(claim.worker);
        row.task.started_at = Some(now);
        let (task, reconcile) = (row.task.clone(), row.reconcile);
        let event = self.emit_task(slot, EventKind::TaskStarted, json!({ "worker": claim.worker }), now);
        Some(ClaimedTask { task, reconcile, event })
    }

    /// Writes an event about a task, with its id, kind and attempt, and the fields of `data`.
    pub(super) fn emit_task(&mut self, slot: Slot, kind: EventKind, mut data: Value, now: Timestamp) -> u64 {
        if let Some(row) = self.tasks.get(&slot) {
            data["task"] = json!(row.task.new.id.to_string());
            data["kind"] = json!(row.task.new.kind);
            data["attempt"] = json!(row.task.attempt);
        }
        // The event that ended the run is its last one.
        if self.exec.status.is_terminal() { self.high } else { self.emit(now, kind, Some(slot), data) }
    }

    /// An attempt has ended: it reported its end, or a time limit has passed.
    pub(super) fn end_attempt(&mut self, slot: Slot, result: AttemptResult, now: Timestamp) {
        let Some(row) = self.tasks.get_mut(&slot) else { return };
        let failure = match &result {
            AttemptResult::Failed { failure, .. } => {
                Some(described(&row.task, failure.clone(), row.task.failed_attempts + 1))
            }
            _ => None,
        };
        let verdict = after_attempt(&row.task, result.clone());
        row.task.failed_attempts += u32::from(failure.is_some());
        // An attempt that was given back has not asked `reconcile`. The next one has to.
        let released = matches!(result, AttemptResult::Released);
        let still_asked = released && row.reconcile;
        if !released {
            row.task.losses = 0;
        }
        self.carry_out(slot, verdict, failure, now);
        if let Some(row) = self.tasks.get_mut(&slot).filter(|row| row.task.status == TaskStatus::Pending) {
            row.reconcile |= still_asked;
        }
    }

    /// An attempt has ended, by a report that may say when the code learned of it.
    pub(super) fn end_reported(&mut self, slot: Slot, report: &AttemptReport, now: Timestamp) {
        self.end_attempt(slot, report.result.clone(), now);
        let Some(at) = report.ended_at.map(|at| at.min(now)) else { return };
        let Some(row) = self.tasks.get_mut(&slot).filter(|row| row.task.ended_at == Some(now)) else { return };
        row.task.ended_at = Some(at);
        let of_it = |fact: &&mut FactRow| matches!(fact.what, FactOf::Task(ended) if ended == slot);
        if let Some(fact) = self.facts.values_mut().rev().find(of_it) {
            fact.at = at;
        }
    }

    /// An attempt was lost with its process.
    pub(super) fn lose_attempt(&mut self, slot: Slot, now: Timestamp) {
        let Some(row) = self.tasks.get_mut(&slot) else { return };
        let verdict = after_loss(&row.task);
        row.task.losses += 1;
        self.carry_out(slot, verdict, None, now);
    }

    /// A time limit has passed. After a deadline (`retryable` is false) no other attempt follows.
    pub(super) fn time_out(&mut self, slot: Slot, what: &str, limit: Duration, retryable: bool, now: Timestamp) {
        let Some(row) = self.tasks.get(&slot) else { return };
        let message =
            format!("the task {:?} timed out: it did not end within its {what} of {limit:?}", row.task.new.kind);
        let failure = Failure::new(Code::TaskTimeout, "TaskTimeout", message);
        if row.task.status == TaskStatus::Pending {
            let failure = described(&row.task, failure, row.task.failed_attempts);
            self.carry_out(slot, Verdict::Fail(failure), None, now);
        } else {
            self.end_attempt(slot, AttemptResult::Failed { failure, retryable, pause: None }, now);
        }
    }

    /// A signal with the delivery `now` has come (rule 12): interruptible model calls are stopped.
    pub(super) fn interrupt(&mut self, now: Timestamp) {
        for slot in self.open.iter().copied().collect::<Vec<_>>() {
            let Some(row) = self.tasks.get_mut(&slot) else { continue };
            match row.task.interruption() {
                Interruption::None => {}
                Interruption::Stop => row.stop = true,
                Interruption::End => self.carry_out(slot, interrupted(), None, now),
            }
        }
    }

    pub(super) fn cancel_task(&mut self, slot: Slot, now: Timestamp) {
        self.carry_out(slot, Verdict::Cancel, None, now);
    }

    /// Makes a task claimable again.
    pub(super) fn retry_task(&mut self, slot: Slot, pause: Duration, error: Option<Failure>, now: Timestamp) {
        self.carry_out(slot, Verdict::Retry(pause), error, now);
    }

    fn resolve(&mut self, slot: Slot, resolution: Resolution, now: Timestamp) {
        let Some(row) = self.tasks.get_mut(&slot) else { return };
        row.task.losses = 0;
        let verdict = match resolution {
            Resolution::Result(output) => Verdict::Complete(output),
            Resolution::Error(failure) => Verdict::Fail(described(&row.task, failure, row.task.failed_attempts.max(1))),
            Resolution::Retry => Verdict::Retry(Duration::ZERO),
        };
        self.carry_out(slot, verdict, None, now);
        if self.pause_reason() == Some(WaitReason::Quarantined) && !self.has_open(TaskStatus::Quarantined) {
            self.unpause(now, EventKind::Woken, json!({ "reason": "task" }));
        }
    }

    /// Makes the transition of a verdict. `error` is the failure of an attempt that is not the last one.
    pub(super) fn carry_out(&mut self, slot: Slot, verdict: Verdict, error: Option<Failure>, now: Timestamp) {
        let ended = self.exec.status.is_terminal();
        let Some(row) = self.tasks.get_mut(&slot).filter(|row| !row.task.status.is_terminal()) else { return };
        let verdict = match verdict {
            Verdict::Retry(_) | Verdict::InDoubt | Verdict::Quarantine if ended => Verdict::Cancel,
            verdict => verdict,
        };
        row.lease_expires = None;
        row.reconcile = false;
        let task = &mut row.task;
        task.worker = None;
        task.failure = error.or(task.failure.take());
        match verdict {
            Verdict::Complete(output) => {
                task.output = Some(output);
                task.failure = None;
                self.end_task(slot, TaskStatus::Completed, EventKind::TaskCompleted, json!({}), now);
            }
            Verdict::Fail(failure) => {
                let data = json!({ "error": failure });
                task.failure = Some(failure);
                self.end_task(slot, TaskStatus::Failed, EventKind::TaskFailed, data, now);
            }
            Verdict::Cancel => {
                let failure = Failure::new(Code::Cancelled, "Cancelled", "the task was cancelled");
                task.failure = Some(described(task, failure, task.failed_attempts));
                self.end_task(slot, TaskStatus::Cancelled, EventKind::TaskCancelled, json!({}), now);
            }
            Verdict::Retry(pause) => {
                task.status = TaskStatus::Pending;
                task.new.placement = Placement::Queue;
                task.visible_at = now.after(pause);
                let pause = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
                let data = json!({ "error": task.failure, "pause": pause });
                self.emit_task(slot, EventKind::TaskRetry, data, now);
                self.review_wait();
            }
            Verdict::InDoubt if task.new.options.side_effects == SideEffects::Reconcile => {
                task.status = TaskStatus::Pending;
                task.new.placement = Placement::Queue;
                task.visible_at = now;
                row.reconcile = true;
                self.emit_task(slot, EventKind::TaskInDoubt, json!({}), now);
                self.review_wait();
            }
            // It is in doubt already. A late report of a timeout changes nothing.
            Verdict::InDoubt if task.status == TaskStatus::InDoubt => {}
            Verdict::InDoubt => {
                task.status = TaskStatus::InDoubt;
                self.emit_task(slot, EventKind::TaskInDoubt, json!({}), now);
                self.review_wait();
            }
            Verdict::Quarantine => {
                task.status = TaskStatus::Quarantined;
                self.emit_task(slot, EventKind::TaskQuarantined, json!({}), now);
                self.review_wait();
                if matches!(self.exec.status, Status::Pending | Status::Waiting) {
                    self.quarantine(now);
                }
            }
        }
    }

    fn end_task(&mut self, slot: Slot, status: TaskStatus, kind: EventKind, data: Value, now: Timestamp) {
        if let Some(row) = self.tasks.get_mut(&slot) {
            row.task.status = status;
            row.task.ended_at = Some(now);
        }
        self.open.remove(&slot);
        let number = self.emit_task(slot, kind, data, now);
        if !self.exec.status.is_terminal() {
            self.fact(number, now, FactOf::Task(slot));
            self.review_wait();
            self.wake(now, Cause::Task(slot));
        }
    }

    /// Pauses the run because of a quarantined task.
    pub(super) fn quarantine(&mut self, now: Timestamp) {
        let deadly = |slot: &Slot| {
            self.tasks.get(slot).filter(|row| row.task.status == TaskStatus::Quarantined).map(|row| &row.task)
        };
        let failure = self.open.iter().find_map(deadly).map(quarantined);
        self.pause(now, WaitReason::Quarantined, failure);
    }
}
