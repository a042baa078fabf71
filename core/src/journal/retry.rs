//! Decides what follows the end of an attempt: another attempt, a failure, or a doubt. All backends share it.

use crate::error::Code;
use crate::id::{Slot, TaskId};
use crate::model::{
    AttemptResult, Failure, RecordedBody, RecordedOp, RetryPolicy, SideEffects, Task, TaskOptions, TaskStatus,
};
use crate::payload::{Digest, Payload};
use std::collections::BTreeSet;
use std::time::Duration;

/// After so many claims of a run in a row that were lost without a commit, the run is quarantined: a person must look.
/// For a task its own `max_losses` is the limit of lost attempts.
pub const MAX_LOSSES: u32 = TaskOptions::USUAL_LOSSES;

/// What to do with a task now.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It has its result.
    Complete(Payload),
    /// It failed for good.
    Fail(Failure),
    /// It was cancelled.
    Cancel,
    /// Another attempt after a pause.
    Retry(Duration),
    /// Nobody knows whether it took effect.
    InDoubt,
    /// It killed its worker too often.
    Quarantine,
}

/// Judges an attempt that has reported its end.
pub fn after_attempt(task: &Task, result: AttemptResult) -> Verdict {
    let options = &task.new.options;
    match result {
        AttemptResult::Completed(output) => Verdict::Complete(output),
        AttemptResult::Cancelled => Verdict::Cancel,
        AttemptResult::NotDone | AttemptResult::Released => Verdict::Retry(Duration::ZERO),
        AttemptResult::Failed { failure, retryable, pause: asked } => {
            // After a timeout nobody knows whether the call has taken effect.
            if failure.code == Code::TaskTimeout && options.side_effects != SideEffects::Idempotent {
                return Verdict::InDoubt;
            }
            let failed = task.failed_attempts + 1;
            if retryable && may_retry(options, &failure, failed) {
                let salt = task.new.id.0.as_u128().to_le_bytes();
                return Verdict::Retry(asked.unwrap_or_else(|| pause(&options.retry, failed, &salt)));
            }
            Verdict::Fail(described(task, failure, failed))
        }
    }
}

/// Judges an attempt that was lost with its process.
pub fn after_loss(task: &Task) -> Verdict {
    match task.new.options.side_effects {
        SideEffects::AtMostOnce => Verdict::InDoubt,
        // `reconcile` is asked on the next claim.
        SideEffects::Reconcile => Verdict::InDoubt,
        SideEffects::Idempotent if task.losses + 1 >= task.new.options.max_losses => Verdict::Quarantine,
        SideEffects::Idempotent => Verdict::Retry(Duration::ZERO),
    }
}

/// What a run does again when it is resumed after an error. The code was told of these ends, or gave these awaits up,
/// but nothing recorded was decided by them: only the error that ended the run came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unheard {
    /// Failed and cancelled tasks whose end no later op has seen, and that were not given up.
    pub tasks: Vec<Slot>,
    /// Timers, also those of signal waits, that no later op has seen and that were not given up.
    pub timers: Vec<Slot>,
    /// The `abandon` ops at the very end of the tail: awaits given up while the error ended the code. They count no
    /// more.
    pub undone: Vec<Slot>,
}

/// Finds them in the tail of a run, which comes in its order.
pub fn unheard(tail: &[&RecordedOp]) -> Unheard {
    let near = |op: &RecordedOp, sequence| Slot { sequence, ..op.slot() };
    let given_up = tail.iter().rev().take_while(|op| matches!(op.body, RecordedBody::Abandon { .. })).count();
    let (kept, last) = tail.split_at(tail.len() - given_up);
    let mut settled = BTreeSet::new();
    for op in kept.iter().filter(|op| !op.is_undone()) {
        settled.extend(op.seen.iter().map(|seen| near(op, seen.0)));
        if let RecordedBody::Abandon { target } = op.body {
            settled.insert(near(op, target));
        }
    }
    let mut found = Unheard { undone: last.iter().map(|op| op.slot()).collect(), ..Unheard::default() };
    for op in kept {
        let slot = op.slot();
        let list = match op.body {
            RecordedBody::Task { status: TaskStatus::Failed | TaskStatus::Cancelled, .. } => &mut found.tasks,
            RecordedBody::Timer | RecordedBody::Signal => &mut found.timers,
            _ => continue,
        };
        if !settled.contains(&slot) {
            list.push(slot);
        }
    }
    found
}

/// Judges a task of [`Unheard::tasks`] when its run is resumed after an error. A failed task is tried again, and so is
/// one that was cancelled with its run. A task that is not idempotent is not tried again: if an attempt of it was cut
/// off, it is in doubt.
pub fn after_error(task: &Task) -> Option<Verdict> {
    let idempotent = task.new.options.side_effects == SideEffects::Idempotent;
    match task.status {
        TaskStatus::Failed if idempotent => Some(Verdict::Retry(Duration::ZERO)),
        TaskStatus::Cancelled if idempotent || task.attempt == 0 => Some(Verdict::Retry(Duration::ZERO)),
        TaskStatus::Cancelled => Some(Verdict::InDoubt),
        _ => None,
    }
}

/// The count of losses that a quarantined task is given when it is tried once more: the next loss quarantines it again.
pub fn last_life(task: &Task) -> u32 {
    task.new.options.max_losses.saturating_sub(1)
}

/// Why a run with a quarantined task is paused, and what to do.
pub fn quarantined(task: &Task) -> Failure {
    let (kind, lives) = (&task.new.kind, task.losses);
    let times = if lives == 1 { "once".to_owned() } else { format!("{lives} times in a row") };
    let message = format!(
        "the task {kind:?} lost its process {times} (max_losses={}), so it is not started again by itself; look how that \
         worker ended (os._exit, abort, out of memory, a kill), then resume the run, which starts the task once more, or \
         answer for it: resolve its op with a result or an error",
        task.new.options.max_losses
    );
    described(task, Failure::new(Code::TaskFailed, "Quarantined", message), task.failed_attempts)
}

/// Why a run is paused that keeps losing its worker, and what to do.
pub fn run_quarantined(losses: u32) -> Failure {
    let message = format!(
        "the run lost its worker {losses} times in a row without one commit, so it is not started again by itself; look how \
         those workers ended (os._exit, abort, out of memory, a kill), then resume the run, which starts it once more"
    );
    Failure::new(Code::AgentFailed, "Quarantined", message)
}

/// Judges a model call that is interrupted between two attempts. Its result is the empty text, since what the attempt
/// before had streamed was retracted.
pub fn interrupted() -> Verdict {
    Verdict::Complete(Payload::json("\"\""))
}

/// Adds to a failure the task's kind and id, and the number of attempts that failed. Lost attempts do not count (rule
/// 10).
pub fn described(task: &Task, mut failure: Failure, attempts: u32) -> Failure {
    failure.kind = Some(task.new.kind.clone());
    failure.task = Some(task.new.id);
    // A task that is retried in place has counted its tries itself.
    failure.attempts = attempts.max(failure.attempts);
    failure
}

/// The pause before the next try of a task that is retried in place, after `failed` failures. None if there is no next
/// try.
pub fn in_place(options: &TaskOptions, task: TaskId, result: &AttemptResult, failed: u32) -> Option<Duration> {
    let AttemptResult::Failed { failure, retryable, pause: asked } = result else { return None };
    let again = options.in_place && *retryable && may_try(options, failure, failed);
    again.then(|| asked.unwrap_or_else(|| pause(&options.retry, failed, &task.0.as_u128().to_le_bytes())))
}

fn may_retry(options: &TaskOptions, failure: &Failure, failed: u32) -> bool {
    !options.in_place && may_try(options, failure, failed)
}

fn may_try(options: &TaskOptions, failure: &Failure, failed: u32) -> bool {
    options.side_effects == SideEffects::Idempotent
        && failed <= options.retry.retries
        && failure.code != Code::NonRetryable
        && !options.retry.no_retry.contains(&failure.error_type)
}

/// The pause before the next attempt after `failed` failures: exponential, at most `policy.max`, and shortened by the
/// jitter. The jitter follows from `salt`, so that it is the same whoever computes it.
pub fn pause(policy: &RetryPolicy, failed: u32, salt: &[u8]) -> Duration {
    let step = policy.initial.as_secs_f64() * policy.factor.max(1.0).powi(failed.saturating_sub(1).min(1_000) as i32);
    let capped = if step.is_finite() { step.min(policy.max.as_secs_f64()) } else { policy.max.as_secs_f64() };
    let noise = Digest::of_parts(&[salt, &failed.to_le_bytes()]).0[0];
    let jitter = if (0.0..=1.0).contains(&policy.jitter) { policy.jitter } else { RetryPolicy::USUAL_JITTER };
    let jitter = f64::from(jitter);
    Duration::from_secs_f64(capped * (1.0 - jitter + jitter * f64::from(noise) / 255.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_saturate() {
        let policy = RetryPolicy { retries: u32::MAX, ..RetryPolicy::default() };
        for failed in [1, 2, 31, 32, 64, 1_000_000, u32::MAX] {
            let pause = pause(&policy, failed, b"x");
            assert!(pause <= policy.max && pause >= policy.initial / 2, "{failed}: {pause:?}");
        }
    }
}
