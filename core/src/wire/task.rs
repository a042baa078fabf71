//! Tasks, their options, and how attempts end.

use super::v2::attempt_result::Result as WireResult;
use super::{id, micros, need, of_word, raw, some_duration, some_id, some_micros, some_raw, some_time, v2, word};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId, WorkerId};
use crate::model::{
    AttemptReport, AttemptResult, ClaimedTask, NewTask, Placement, RetryPolicy, SideEffects, Task, TaskOptions,
};
use std::time::Duration;

impl From<Slot> for v2::Slot {
    fn from(slot: Slot) -> Self {
        Self { segment: slot.segment, sequence: slot.sequence }
    }
}

impl From<v2::Slot> for Slot {
    fn from(wire: v2::Slot) -> Self {
        Self { segment: wire.segment, sequence: wire.sequence }
    }
}

/// `max_losses` on the wire. The default is left out, because peers of older versions do not know the field and mean
/// the default.
pub(super) fn said(max_losses: u32) -> Option<u32> {
    Some(max_losses).filter(|lives| *lives != TaskOptions::USUAL_LOSSES)
}

impl From<&TaskOptions> for v2::TaskOptions {
    fn from(options: &TaskOptions) -> Self {
        let side_effects = match options.side_effects {
            SideEffects::Idempotent => v2::SideEffects::Idempotent,
            SideEffects::AtMostOnce => v2::SideEffects::AtMostOnce,
            SideEffects::Reconcile => v2::SideEffects::Reconcile,
        };
        Self {
            retry: Some(v2::RetryPolicy {
                retries: options.retry.retries,
                initial: micros(options.retry.initial),
                max: micros(options.retry.max),
                factor: options.retry.factor,
                no_retry: options.retry.no_retry.clone(),
                jitter: Some(options.retry.jitter).filter(|jitter| *jitter != RetryPolicy::USUAL_JITTER),
            }),
            timeout: some_micros(options.timeout),
            heartbeat_timeout: some_micros(options.heartbeat_timeout),
            deadline: some_micros(options.deadline),
            side_effects: side_effects.into(),
            detached: options.detached,
            interruptible: options.interruptible,
            reserve: options.reserve,
            max_losses: said(options.max_losses),
            in_place: options.in_place,
        }
    }
}

impl TryFrom<v2::TaskOptions> for TaskOptions {
    type Error = Error;
    fn try_from(wire: v2::TaskOptions) -> Result<Self> {
        let retry = match wire.retry {
            Some(retry) => RetryPolicy {
                retries: retry.retries,
                initial: Duration::from_micros(retry.initial),
                max: Duration::from_micros(retry.max),
                factor: retry.factor,
                jitter: retry.jitter.unwrap_or(RetryPolicy::USUAL_JITTER),
                no_retry: retry.no_retry,
            },
            None => RetryPolicy::default(),
        };
        let side_effects = match v2::SideEffects::try_from(wire.side_effects) {
            Ok(v2::SideEffects::Idempotent) => SideEffects::Idempotent,
            Ok(v2::SideEffects::AtMostOnce) => SideEffects::AtMostOnce,
            Ok(v2::SideEffects::Reconcile) => SideEffects::Reconcile,
            Err(_) => return Err(super::wrong("side_effects", &format!("is {}", wire.side_effects))),
        };
        Ok(Self {
            retry,
            timeout: some_duration(wire.timeout),
            heartbeat_timeout: some_duration(wire.heartbeat_timeout),
            deadline: some_duration(wire.deadline),
            side_effects,
            detached: wire.detached,
            interruptible: wire.interruptible,
            reserve: wire.reserve,
            in_place: wire.in_place,
            max_losses: wire.max_losses.unwrap_or(TaskOptions::USUAL_LOSSES),
        })
    }
}

impl From<&NewTask> for v2::NewTask {
    fn from(new: &NewTask) -> Self {
        Self {
            id: raw(new.id.0),
            kind: new.kind.clone(),
            queue: new.queue.clone(),
            input: Some((&new.input).into()),
            options: Some((&new.options).into()),
            queued: new.placement == Placement::Queue,
            entry: some_raw(new.entry.map(|entry| entry.0)),
        }
    }
}

impl TryFrom<v2::NewTask> for NewTask {
    type Error = Error;
    fn try_from(wire: v2::NewTask) -> Result<Self> {
        Ok(Self {
            id: TaskId(id(&wire.id, "task.id")?),
            kind: wire.kind,
            queue: wire.queue,
            input: need(wire.input, "task.input")?.try_into()?,
            options: wire.options.unwrap_or_default().try_into()?,
            placement: if wire.queued { Placement::Queue } else { Placement::Inline },
            entry: some_id(&wire.entry, "task.entry")?.map(EntryId),
        })
    }
}

impl From<&Task> for v2::Task {
    fn from(task: &Task) -> Self {
        Self {
            new: Some((&task.new).into()),
            execution: raw(task.execution.0),
            slot: Some(task.slot.into()),
            status: word(&task.status),
            attempt: task.attempt,
            failed_attempts: task.failed_attempts,
            losses: task.losses,
            output: task.output.as_ref().map(Into::into),
            failure: task.failure.as_ref().map(Into::into),
            progress: task.progress.clone(),
            visible_at: task.visible_at.0,
            worker: some_raw(task.worker.map(|worker| worker.0)),
            created_at: task.created_at.0,
            started_at: task.started_at.map(|at| at.0),
            ended_at: task.ended_at.map(|at| at.0),
        }
    }
}

impl super::OfOrg for v2::Task {
    type Model = Task;
    fn into_model(self, org: OrgId) -> Result<Task> {
        Ok(Task {
            new: need(self.new, "task.new")?.try_into()?,
            org,
            execution: ExecutionId(id(&self.execution, "task.execution")?),
            slot: need(self.slot, "task.slot")?.into(),
            status: of_word(&self.status, "task.status")?,
            attempt: self.attempt,
            failed_attempts: self.failed_attempts,
            losses: self.losses,
            output: self.output.map(TryInto::try_into).transpose()?,
            failure: self.failure.map(TryInto::try_into).transpose()?,
            progress: self.progress,
            visible_at: Timestamp(self.visible_at),
            worker: some_id(&self.worker, "task.worker")?.map(WorkerId),
            created_at: Timestamp(self.created_at),
            started_at: some_time(self.started_at),
            ended_at: some_time(self.ended_at),
        })
    }
}

impl From<&ClaimedTask> for v2::ClaimedTask {
    fn from(claimed: &ClaimedTask) -> Self {
        Self { task: Some((&claimed.task).into()), reconcile: claimed.reconcile, event: claimed.event }
    }
}

impl super::OfOrg for v2::ClaimedTask {
    type Model = ClaimedTask;
    fn into_model(self, org: OrgId) -> Result<ClaimedTask> {
        let task = need(self.task, "claimed.task")?.into_model(org)?;
        Ok(ClaimedTask { task, reconcile: self.reconcile, event: self.event })
    }
}

impl From<&AttemptResult> for v2::AttemptResult {
    fn from(result: &AttemptResult) -> Self {
        let result = match result {
            AttemptResult::Completed(output) => WireResult::Completed(output.into()),
            AttemptResult::Failed { failure, retryable, pause } => WireResult::Failed(v2::AttemptFailure {
                failure: Some(failure.into()),
                retryable: *retryable,
                pause: some_micros(*pause),
            }),
            AttemptResult::Cancelled => WireResult::Cancelled(v2::Empty {}),
            AttemptResult::NotDone => WireResult::NotDone(v2::Empty {}),
            AttemptResult::Released => WireResult::Released(v2::Empty {}),
        };
        Self { result: Some(result) }
    }
}

impl TryFrom<v2::AttemptResult> for AttemptResult {
    type Error = Error;
    fn try_from(wire: v2::AttemptResult) -> Result<Self> {
        Ok(match need(wire.result, "attempt.result")? {
            WireResult::Completed(output) => Self::Completed(output.try_into()?),
            WireResult::Failed(failed) => Self::Failed {
                failure: need(failed.failure, "attempt.failure")?.try_into()?,
                retryable: failed.retryable,
                pause: some_duration(failed.pause),
            },
            WireResult::Cancelled(_) => Self::Cancelled,
            WireResult::NotDone(_) => Self::NotDone,
            WireResult::Released(_) => Self::Released,
        })
    }
}

impl From<&AttemptReport> for v2::Attempt {
    fn from(report: &AttemptReport) -> Self {
        Self {
            sequence: report.sequence,
            attempt: report.attempt,
            duration: micros(report.duration),
            result: Some((&report.result).into()),
            ended_at: report.ended_at.map(|at| at.0),
        }
    }
}

impl TryFrom<v2::Attempt> for AttemptReport {
    type Error = Error;
    fn try_from(wire: v2::Attempt) -> Result<Self> {
        Ok(Self {
            sequence: wire.sequence,
            attempt: wire.attempt,
            result: need(wire.result, "attempt.result")?.try_into()?,
            duration: Duration::from_micros(wire.duration),
            ended_at: wire.ended_at.map(Timestamp),
        })
    }
}
