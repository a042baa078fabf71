//! The row of a task in memory, and its transitions: an attempt ends, is lost or times out, or a person answers for the
//! task.
//!
//! What follows is decided by `journal::retry` and carried out here: one guarded update, one event, and the fact that
//! may wake the run.

use super::log::Log;
use super::run::{Cause, Run};
use super::values::{micros, text_of};
use super::{Dialect, Statements, Tasks};
use crate::clock::Timestamp;
use crate::error::Code;
use crate::id::{OrgId, Slot};
use crate::journal::retry::{Verdict, after_attempt, after_loss, described, interrupted};
use crate::model::{
    AttemptReport, AttemptResult, EventKind, Fact, FactKind, Failure, Interruption, NewOp, NewTask, Placement,
    SideEffects, Status, Task, TaskOptions, TaskStatus,
};
use crate::payload::Payload;
use crate::storage::ClaimRequest;
use serde_json::{Value, json};
use std::time::Duration;

/// All statuses, each at the index of its number in the database.
pub(in crate::storage) const TASK_STATUS: [TaskStatus; 7] = [
    TaskStatus::Pending,
    TaskStatus::Running,
    TaskStatus::Completed,
    TaskStatus::Failed,
    TaskStatus::Cancelled,
    TaskStatus::InDoubt,
    TaskStatus::Quarantined,
];

/// A task as stored.
#[derive(Debug, Clone)]
pub(in crate::storage) struct TaskRow<P> {
    pub place: P,
    pub task: Task,
    /// It was scheduled inline. It may be on a queue by now.
    pub born_inline: bool,
    /// Its next or current attempt asks `reconcile` what became of the one before.
    pub reconcile: bool,
    /// The claim of the run under which an inline attempt started.
    pub epoch: u64,
    /// The number of the fact of its end.
    pub ended_number: Option<u64>,
    pub lease_expires: Option<i64>,
    /// When a claimed attempt last gave a sign of life.
    pub sign_at: Option<i64>,
    /// The run was asked to stop while the task was open.
    pub stop: bool,
}

impl<P> TaskRow<P> {
    /// A new task of an op, which is not stored yet.
    pub(in crate::storage) fn new<H>(
        run: &Run<H>,
        org: OrgId,
        place: P,
        slot: Slot,
        new: &NewTask,
        now: Timestamp,
    ) -> Self {
        let inline = new.placement == Placement::Inline;
        Self {
            place,
            task: Task {
                new: new.clone(),
                org,
                execution: run.id,
                slot,
                status: if inline { TaskStatus::Running } else { TaskStatus::Pending },
                attempt: u32::from(inline),
                failed_attempts: 0,
                losses: 0,
                output: None,
                failure: None,
                progress: None,
                visible_at: now,
                worker: run.worker.filter(|_| inline),
                created_at: now,
                started_at: inline.then_some(now),
                ended_at: None,
            },
            born_inline: inline,
            reconcile: false,
            epoch: run.epoch,
            ended_number: None,
            lease_expires: None,
            sign_at: None,
            stop: false,
        }
    }

    /// Hands it to a worker that claims it.
    pub(in crate::storage) fn hand_to(&mut self, claim: &ClaimRequest, now: Timestamp) {
        self.lease_expires = Some(now.after(claim.ttl).0);
        self.sign_at = Some(now.0);
        self.task.status = TaskStatus::Running;
        self.task.attempt += 1;
        self.task.worker = Some(claim.worker);
        self.task.started_at = Some(now);
    }

    /// The value of its placement column.
    pub(in crate::storage) fn placement(&self) -> u8 {
        match (self.task.new.placement, self.born_inline) {
            (Placement::Inline, _) => 0,
            (Placement::Queue, false) => 1,
            (Placement::Queue, true) => 2,
        }
    }

    /// Stores a new task.
    pub(in crate::storage) fn insert<T: Statements<Place = P>>(
        &self,
        tx: &T,
        run: &Run<T::Home>,
        op: &NewOp,
    ) -> Result<(), T::Fault> {
        let task = &self.task;
        let due = self.due(tx.now().0);
        tx.refer(run, &task.new.input)?;
        if let Some(output) = &task.output {
            tx.refer(run, output)?;
        }
        let options = (task.new.options != TaskOptions::default()).then(|| text_of(&task.new.options)).transpose()?;
        tx.put_task(self, op, due, options)?;
        self.announce(tx, due);
        Ok(())
    }

    /// Writes its row.
    pub(in crate::storage) fn save<T: Tasks<Place = P>>(&self, tx: &T) -> Result<(), T::Fault> {
        let due = self.due(tx.now().0);
        tx.save_task(self, due)?;
        self.announce(tx, due);
        Ok(())
    }

    fn announce<T: Dialect<Place = P>>(&self, tx: &T, due: Option<i64>) {
        if self.task.status == TaskStatus::Pending && self.task.visible_at <= tx.now() {
            tx.tasks_ready();
        }
        if let Some(due) = due {
            tx.due(due);
        }
    }

    /// When housekeeping must look at it next.
    pub(in crate::storage) fn due(&self, now: i64) -> Option<i64> {
        let task = &self.task;
        let options = &task.new.options;
        let after = |since: Option<i64>, limit: Option<Duration>| Some(since?.saturating_add(micros(limit?)));
        let deadline = after(Some(task.created_at.0), options.deadline);
        match task.status {
            TaskStatus::Pending if task.new.placement == Placement::Queue => {
                deadline.into_iter().chain(Some(task.visible_at.0).filter(|at| *at > now)).min()
            }
            // An inline attempt has no lease of its own. The session that runs it watches its limits.
            TaskStatus::Running if self.lease_expires.is_some() => [
                deadline,
                self.lease_expires,
                after(task.started_at.map(|at| at.0), options.timeout),
                after(self.sign_at, options.heartbeat_timeout),
            ]
            .into_iter()
            .flatten()
            .min(),
            _ => None,
        }
    }

    /// Whether the end of its current attempt may still be reported.
    pub(in crate::storage) fn can_end(&self) -> bool {
        matches!(self.task.status, TaskStatus::Running | TaskStatus::InDoubt)
    }

    /// Whether its attempt runs in the worker that holds the run.
    pub(in crate::storage) fn runs_inline(&self) -> bool {
        self.task.status == TaskStatus::Running && self.task.new.placement == Placement::Inline
    }

    /// Writes an event about it, with its id, kind and attempt, and the fields of `data`.
    pub(in crate::storage) fn emit<T: Statements<Place = P>>(
        &self,
        run: &Run<T::Home>,
        log: &mut Log<'_, T>,
        kind: EventKind,
        mut data: Value,
    ) -> Result<u64, T::Fault> {
        // The event that ended the run is its last one.
        if run.status.is_terminal() {
            return Ok(log.high);
        }
        let task = &self.task;
        let plain = data.as_object().is_none_or(serde_json::Map::is_empty);
        if plain {
            let text = format!(
                r#"{{"task":"{}","kind":{},"attempt":{}}}"#,
                task.new.id,
                text_of(&task.new.kind)?,
                task.attempt
            );
            return log.about(kind, task.slot, text);
        }
        data["task"] = json!(task.new.id);
        data["kind"] = json!(task.new.kind);
        data["attempt"] = json!(task.attempt);
        log.about(kind, task.slot, data.to_string())
    }

    /// An attempt has ended: it reported its end, or a time limit has passed.
    pub(in crate::storage) fn end_attempt<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
        result: AttemptResult,
    ) -> Result<Option<Fact>, T::Fault> {
        let failure = match &result {
            AttemptResult::Failed { failure, .. } => {
                Some(described(&self.task, failure.clone(), self.task.failed_attempts + 1))
            }
            _ => None,
        };
        let released = matches!(result, AttemptResult::Released);
        let verdict = after_attempt(&self.task, result);
        self.task.failed_attempts += u32::from(failure.is_some());
        if !released {
            self.task.losses = 0;
        }
        // An attempt that was given back has not asked `reconcile`. The next one has to.
        let must_reconcile = released && self.reconcile;
        let fact = self.carry_out(run, log, verdict, failure)?;
        self.reconcile |= must_reconcile && self.task.status == TaskStatus::Pending;
        Ok(fact)
    }

    /// As [`end_attempt`](Self::end_attempt), by a report that may say when the code learned of it.
    pub(in crate::storage) fn end_reported<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
        report: &AttemptReport,
    ) -> Result<Option<Fact>, T::Fault> {
        let fact = self.end_attempt(run, log, report.result.clone())?;
        let Some(at) = report.ended_at.filter(|_| fact.is_some()) else { return Ok(fact) };
        self.task.ended_at = Some(at.min(log.tx.now()));
        Ok(self.fact())
    }

    /// An attempt was lost with its process.
    pub(in crate::storage) fn lose_attempt<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        let verdict = after_loss(&self.task);
        self.task.losses += 1;
        self.carry_out(run, log, verdict, None)?;
        self.save(log.tx)
    }

    /// A signal with the delivery `now` has come (rule 12): an interruptible model call is stopped.
    pub(in crate::storage) fn interrupt<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        match self.task.interruption() {
            Interruption::None => return Ok(()),
            Interruption::Stop => self.stop = true,
            Interruption::End => drop(self.carry_out(run, log, interrupted(), None)?),
        }
        self.save(log.tx)
    }

    /// A time limit has passed.
    pub(in crate::storage) fn time_out<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
        what: &str,
        limit: Duration,
    ) -> Result<(), T::Fault> {
        let message =
            format!("the task {:?} timed out: it did not end within its {what} of {limit:?}", self.task.new.kind);
        let failure = Failure::new(Code::TaskTimeout, "TaskTimeout", message);
        if self.task.status == TaskStatus::Pending {
            let failure = described(&self.task, failure, self.task.failed_attempts);
            self.carry_out(run, log, Verdict::Fail(failure), None)?;
        } else {
            let retryable = what != "deadline";
            self.end_attempt(run, log, AttemptResult::Failed { failure, retryable, pause: None })?;
        }
        self.save(log.tx)
    }

    /// Ends it as cancelled.
    pub(in crate::storage) fn cancel<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        self.carry_out(run, log, Verdict::Cancel, None)?;
        self.save(log.tx)
    }

    /// Makes the transition of a verdict, in memory; the caller writes the row. `error` is the failure of an attempt
    /// that is not the last one. Returns the fact of the task's end, if it has ended.
    pub(in crate::storage) fn carry_out<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
        verdict: Verdict,
        error: Option<Failure>,
    ) -> Result<Option<Fact>, T::Fault> {
        if self.task.status.is_terminal() {
            return Ok(None);
        }
        let verdict = match verdict {
            Verdict::Retry(_) | Verdict::InDoubt | Verdict::Quarantine if run.status.is_terminal() => Verdict::Cancel,
            verdict => verdict,
        };
        self.lease_expires = None;
        self.reconcile = false;
        let task = &mut self.task;
        task.worker = None;
        task.failure = error.or(task.failure.take());
        match verdict {
            Verdict::Complete(output) => {
                log.tx.refer(run, &output)?;
                task.output = Some(output);
                task.failure = None;
                self.end(run, log, (TaskStatus::Completed, EventKind::TaskCompleted), json!({}))
            }
            Verdict::Fail(failure) => {
                let data = json!({ "error": failure });
                task.failure = Some(failure);
                self.end(run, log, (TaskStatus::Failed, EventKind::TaskFailed), data)
            }
            Verdict::Cancel => {
                let failure = Failure::new(Code::Cancelled, "Cancelled", "the task was cancelled");
                task.failure = Some(described(task, failure, task.failed_attempts));
                self.end(run, log, (TaskStatus::Cancelled, EventKind::TaskCancelled), json!({}))
            }
            Verdict::Retry(pause) => {
                let data = json!({ "error": task.failure, "pause": micros(pause) });
                self.queue(log.tx.now().after(pause));
                self.emit(run, log, EventKind::TaskRetry, data)?;
                self.reviewed(log.tx, run)
            }
            Verdict::InDoubt if task.new.options.side_effects == SideEffects::Reconcile => {
                self.queue(log.tx.now());
                self.reconcile = true;
                self.emit(run, log, EventKind::TaskInDoubt, json!({}))?;
                self.reviewed(log.tx, run)
            }
            // It is in doubt already. A late report of a timeout changes nothing.
            Verdict::InDoubt if task.status == TaskStatus::InDoubt => Ok(None),
            Verdict::InDoubt => {
                task.status = TaskStatus::InDoubt;
                self.emit(run, log, EventKind::TaskInDoubt, json!({}))?;
                self.reviewed(log.tx, run)
            }
            Verdict::Quarantine => {
                task.status = TaskStatus::Quarantined;
                self.emit(run, log, EventKind::TaskQuarantined, json!({}))?;
                run.quarantined = true;
                self.save(log.tx)?;
                run.review_wait(log.tx)?;
                if matches!(run.status, Status::Pending | Status::Waiting) {
                    run.quarantine(log)?;
                }
                Ok(None)
            }
        }
    }

    fn queue(&mut self, visible_at: Timestamp) {
        self.task.status = TaskStatus::Pending;
        self.task.new.placement = Placement::Queue;
        self.task.visible_at = visible_at;
    }

    /// Has the run set the reason of its wait anew. The row is written first, since the reason is computed from stored
    /// rows.
    fn reviewed<T: Statements<Place = P>>(&self, tx: &T, run: &mut Run<T::Home>) -> Result<Option<Fact>, T::Fault> {
        if run.wait.is_some() {
            self.save(tx)?;
            run.review_wait(tx)?;
        }
        Ok(None)
    }

    fn end<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
        (status, kind): (TaskStatus, EventKind),
        data: Value,
    ) -> Result<Option<Fact>, T::Fault> {
        self.task.status = status;
        self.task.ended_at = Some(log.tx.now());
        if run.status.is_terminal() {
            return Ok(None);
        }
        let number = self.emit(run, log, kind, data)?;
        self.ended_number = Some(number);
        self.reviewed(log.tx, run)?;
        run.wake(log, Cause::Task(&self.task))?;
        Ok(self.fact())
    }

    /// The fact of its end.
    pub(in crate::storage) fn fact(&self) -> Option<Fact> {
        let number = self.ended_number?;
        let kind = FactKind::Task { task: self.task.new.id, result: outcome(&self.task) };
        Some(Fact { number, at: self.task.ended_at.unwrap_or_default(), kind })
    }
}

/// The result or the failure of a task that has ended.
fn outcome(task: &Task) -> Result<Payload, Failure> {
    match (&task.output, &task.failure) {
        (Some(output), _) if task.status == TaskStatus::Completed => Ok(output.clone()),
        (_, Some(failure)) => Err(failure.clone()),
        _ => Err(Failure::new(Code::TaskFailed, "Unknown", "the task ended without a result")),
    }
}
