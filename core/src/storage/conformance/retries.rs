//! Attempts of a queued task that failed: how often and when it is tried again.

use super::Factory;
use super::rig::{Rig, failed};
use super::tasks::waiting;
use crate::error::Code;
use crate::journal::retry::pause;
use crate::model::{AttemptResult, EventKind, Failure, RetryPolicy, Status, TaskOptions, TaskStatus};
use std::time::Duration;

/// `retries` is so many more attempts that failed, with growing pauses; then the task failed.
pub async fn retries_have_growing_pauses(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let retry = RetryPolicy { retries: 3, ..RetryPolicy::default() };
    let holder = waiting(&rig, TaskOptions { retry: retry.clone(), ..TaskOptions::default() }).await;
    let id = holder.task_id(0);
    for failures in 1..=3 {
        let claimed = rig.claim_task().await;
        assert_eq!(claimed.task.attempt, failures);
        rig.report(&claimed, failed("E")).await.unwrap();
        let task = rig.task(holder.id, id).await;
        assert_eq!((task.status, task.failed_attempts), (TaskStatus::Pending, failures));
        let wait = pause(&retry, failures, &id.0.as_u128().to_le_bytes());
        assert_eq!(task.visible_at, rig.now().after(wait));
        let event = rig.events(holder.id).await.pop().unwrap();
        assert_eq!(
            (event.kind, &event.data["pause"]),
            (EventKind::TaskRetry, &serde_json::json!(wait.as_micros() as u64))
        );
        assert_eq!(event.data["attempt"], serde_json::json!(failures));
        rig.clock.advance(wait - Duration::from_micros(1));
        assert!(rig.claim_tasks().await.is_empty());
        rig.clock.advance(Duration::from_micros(1));
    }
    let claimed = rig.claim_task().await;
    rig.report(&claimed, failed("Last")).await.unwrap();
    let task = rig.task(holder.id, id).await;
    assert_eq!((task.status, task.failed_attempts, task.attempt), (TaskStatus::Failed, 4, 4));
    let failure = task.failure.unwrap();
    assert_eq!((failure.error_type.as_str(), failure.attempts), ("Last", 4));
    assert_eq!(rig.status(holder.id).await, Status::Pending);
}

/// An error that says how long to wait is waited for so long, and the policy's own pauses go on as if it had said nothing.
pub async fn an_error_names_its_own_pause(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let retry = RetryPolicy { retries: 2, jitter: 0.0, ..RetryPolicy::default() };
    let holder = waiting(&rig, TaskOptions { retry: retry.clone(), ..TaskOptions::default() }).await;
    let id = holder.task_id(0);
    let asked = Duration::from_secs(90);
    let claimed = rig.claim_task().await;
    let AttemptResult::Failed { failure, retryable, .. } = failed("TooMany") else { unreachable!() };
    rig.report(&claimed, AttemptResult::Failed { failure, retryable, pause: Some(asked) }).await.unwrap();
    assert_eq!(rig.task(holder.id, id).await.visible_at, rig.now().after(asked));
    let event = rig.events(holder.id).await.pop().unwrap();
    assert_eq!((event.kind, &event.data["pause"]), (EventKind::TaskRetry, &serde_json::json!(90_000_000u64)));
    rig.clock.advance(asked - Duration::from_micros(1));
    assert!(rig.claim_tasks().await.is_empty());
    rig.clock.advance(Duration::from_micros(1));
    let claimed = rig.claim_task().await;
    rig.report(&claimed, failed("E")).await.unwrap();
    // The second pause of the policy, to the microsecond: chance takes nothing away from it.
    assert_eq!(rig.task(holder.id, id).await.visible_at, rig.now().after(retry.initial * 2));
}

/// Errors that ask not to be retried fail at once.
pub async fn some_errors_are_not_retried(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let retry = RetryPolicy { retries: 3, no_retry: vec!["ValueError".into()], ..RetryPolicy::default() };
    let non_retryable = Failure::new(Code::NonRetryable, "E", "m");
    let results = [
        failed("ValueError"),
        AttemptResult::Failed { failure: non_retryable, retryable: true, pause: None },
        AttemptResult::Failed { failure: Failure::new(Code::TaskFailed, "E", "m"), retryable: false, pause: None },
    ];
    for result in results {
        let holder = waiting(&rig, TaskOptions { retry: retry.clone(), ..TaskOptions::default() }).await;
        let claimed = rig.claim_task().await;
        rig.report(&claimed, result).await.unwrap();
        assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Failed);
    }
}
