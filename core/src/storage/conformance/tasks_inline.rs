//! Tasks that the agent's own worker runs: ended in batches, restarted or in doubt after a crash.

use super::Factory;
use super::rig::{Holder, ORG, Rig, TTL, done, ended, failed, for_tasks, json, refused};
use crate::error::Code;
use crate::journal::retry::MAX_LOSSES;
use crate::model::{
    AttemptResult, BatchEnd, Committed, EventKind, FactKind, Failure, Placement, Resolution, RetryPolicy, SideEffects,
    Status, TaskOptions, TaskReport, TaskStatus, WaitReason,
};
use std::time::Duration;

fn with(side_effects: SideEffects) -> TaskOptions {
    TaskOptions { side_effects, ..TaskOptions::default() }
}

pub(super) async fn taken_over<'a>(old: &Holder<'a>) -> Holder<'a> {
    old.rig.pass_after(TTL).await;
    old.rig.claim(old.id).await
}

/// A task that ends in the batch that makes it is written once, with one event.
pub async fn an_end_in_the_same_batch_is_one_event(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    rig.clock.advance(Duration::from_secs(1));
    let ops = vec![holder.inline(TaskOptions::default()), holder.inline(TaskOptions::default()), holder.flush()];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.attempts = vec![ended(1, 1, done(2)), ended(0, 1, failed("ValueError"))];
    let known = holder.known;
    let answer = holder.commit_batch(batch).await;
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::TaskCompleted, EventKind::TaskFailed]);
    let task = rig.task(holder.id, holder.task_id(1)).await;
    assert_eq!((task.status, task.attempt, task.failed_attempts), (TaskStatus::Completed, 1, 0));
    assert_eq!((task.output, task.ended_at, task.created_at), (Some(json(&2)), Some(rig.now()), rig.now()));
    assert_eq!(task.ended_at.unwrap().since(task.started_at.unwrap()), Duration::from_millis(5));
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.failed_attempts), (TaskStatus::Failed, 1));
    let failure = task.failure.unwrap();
    assert_eq!((failure.code, failure.error_type.as_str()), (Code::TaskFailed, "ValueError"));
    assert_eq!((failure.kind.as_deref(), failure.task, failure.attempts), (Some("work"), Some(holder.task_id(0)), 1));
    assert_eq!(answer.facts.len(), 2);
    assert!(matches!(&answer.facts[0].kind, FactKind::Task { task, result: Ok(_) } if *task == holder.task_id(1)));
    let event = rig.events(holder.id).await.pop().unwrap();
    assert_eq!((event.sequence, &event.data["attempt"]), (Some(0), &serde_json::json!(1)));
    assert_eq!(event.data["error"]["error_type"], serde_json::json!("ValueError"));
}

/// A task whose intent is durable first has its start and its end.
pub async fn a_start_before_its_end(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let known = holder.known;
    let op = holder.inline(TaskOptions::default());
    holder.commit(vec![op]).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.attempt, task.worker), (TaskStatus::Running, 1, Some(holder.lease.worker)));
    assert!(rig.claim_tasks().await.is_empty());
    let answer = holder.attempts(vec![ended(0, 1, done(1))]).await;
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::TaskStarted, EventKind::TaskCompleted]);
    assert_eq!(answer.facts.len(), 1);
    // What is said about another attempt, or once more, changes nothing.
    let answer = holder.attempts(vec![ended(0, 1, done(9)), ended(0, 2, done(9)), ended(50, 1, done(9))]).await;
    assert!(answer.facts.is_empty());
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.output, Some(json(&1)));
    assert_eq!(holder.load().await.facts.len(), 1);
}

/// A failed attempt that may be retried goes to the queue after its pause.
pub async fn a_retry_goes_to_the_queue(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let retry = RetryPolicy { retries: 1, ..RetryPolicy::default() };
    let op = holder.inline(TaskOptions { retry: retry.clone(), ..TaskOptions::default() });
    let known = holder.known;
    let mut batch = holder.batch(vec![op], BatchEnd::Suspend(for_tasks()));
    batch.attempts.push(ended(0, 1, failed("E")));
    let answer = holder.commit_batch(batch).await;
    assert_eq!((answer.committed, answer.facts.len()), (Committed::Suspended, 0));
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::TaskRetry, EventKind::Waiting]);
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.new.placement), (TaskStatus::Pending, Placement::Queue));
    assert_eq!((task.attempt, task.failed_attempts), (1, 1));
    assert_eq!(task.failure.map(|failure| failure.error_type), Some("E".into()));
    let pause = task.visible_at.since(rig.now());
    assert!(pause >= retry.initial / 2 && pause <= retry.initial, "{pause:?}");
    assert!(rig.claim_tasks().await.is_empty());
    assert_eq!(rig.pass_after(Duration::ZERO).await, Some(task.visible_at));
    rig.clock.advance(pause);
    let claimed = rig.claim_task().await;
    assert_eq!((claimed.task.attempt, claimed.reconcile), (2, false));
    rig.report(&claimed, failed("E")).await.unwrap();
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Failed);
    assert_eq!(rig.status(holder.id).await, Status::Pending);
}

/// What an inline attempt asks to wait travels with its commit.
pub async fn an_inline_error_names_its_own_pause(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let retry = RetryPolicy { retries: 1, factor: 3.0, jitter: 0.25, ..RetryPolicy::default() };
    let op = holder.inline(TaskOptions { retry: retry.clone(), ..TaskOptions::default() });
    let mut batch = holder.batch(vec![op], BatchEnd::Suspend(for_tasks()));
    let AttemptResult::Failed { failure, retryable, .. } = failed("TooMany") else { unreachable!() };
    batch.attempts.push(ended(0, 1, AttemptResult::Failed { failure, retryable, pause: Some(Duration::from_secs(7)) }));
    holder.commit_batch(batch).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.visible_at, &task.new.options.retry), (rig.now().after(Duration::from_secs(7)), &retry));
}

/// What is tried again by its session has one end to the store, which keeps how often it was tried.
pub async fn tries_in_place_are_one_attempt(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let retry = RetryPolicy { retries: 5, ..RetryPolicy::default() };
    let op = holder.inline(TaskOptions { retry, in_place: true, ..TaskOptions::default() });
    let mut batch = holder.batch(vec![op], BatchEnd::Continue);
    let AttemptResult::Failed { mut failure, retryable, pause } = failed("E") else { unreachable!() };
    failure.attempts = 3;
    batch.attempts.push(ended(0, 1, AttemptResult::Failed { failure, retryable, pause }));
    holder.commit_batch(batch).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.attempt, task.failed_attempts), (TaskStatus::Failed, 1, 1));
    assert_eq!(task.failure.map(|failure| failure.attempts), Some(3));
    assert!(task.new.options.in_place);
}

/// A drained attempt is given back without counting.
pub async fn a_released_attempt_is_retried(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.inline(TaskOptions::default());
    holder.commit(vec![op]).await;
    holder.attempts(vec![ended(0, 1, AttemptResult::Released)]).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.failed_attempts, task.losses), (TaskStatus::Pending, 0, 0));
    assert_eq!(rig.claim_task().await.task.attempt, 2);
}

/// After a crash an idempotent task runs again under the next attempt.
pub async fn a_lost_attempt_is_restarted(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut old = rig.running().await;
    let ops = vec![old.inline(TaskOptions::default()), old.inline(TaskOptions::default())];
    old.commit(ops).await;
    let mut new = taken_over(&old).await;
    let segment = new.load().await;
    assert!(segment.tail.iter().all(|op| {
        matches!(
            op.body,
            crate::model::RecordedBody::Task { status: TaskStatus::Running, attempt: 1, inline: true, .. }
        )
    }));
    let known = new.known;
    let mut batch = new.batch(vec![], BatchEnd::Continue);
    batch.restarted = vec![(0, 2), (1, 2), (1, 9), (30, 2)];
    batch.attempts = vec![ended(0, 2, done(4)), ended(1, 1, done(9))];
    new.commit_batch(batch).await;
    assert_eq!(rig.kinds_after(new.id, known).await, [EventKind::TaskStarted, EventKind::TaskCompleted]);
    let task = rig.task(new.id, new.task_id(1)).await;
    assert_eq!((task.status, task.attempt, task.losses), (TaskStatus::Running, 2, 1));
    assert_eq!(task.worker, Some(new.lease.worker));
    let task = rig.task(new.id, new.task_id(0)).await;
    assert_eq!((task.status, task.attempt, task.losses), (TaskStatus::Completed, 2, 0));
}

/// A task that kills its worker twenty times is quarantined and pauses its run.
pub async fn a_deadly_task_is_quarantined(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.inline(TaskOptions::default());
    holder.commit(vec![op]).await;
    let task = holder.task_id(0);
    for loss in 1..MAX_LOSSES {
        holder = taken_over(&holder).await;
        let mut batch = holder.batch(vec![], BatchEnd::Continue);
        batch.restarted = vec![(0, loss + 1)];
        let answer = holder.commit_batch(batch).await;
        assert_eq!(answer.committed, Committed::Continue);
        assert_eq!(rig.task(holder.id, task).await.losses, loss);
    }
    let mut holder = taken_over(&holder).await;
    let mut batch = holder.batch(vec![], BatchEnd::Continue);
    batch.restarted = vec![(0, MAX_LOSSES + 1)];
    let answer = holder.commit_batch(batch).await;
    assert_eq!(answer.committed, Committed::Finished(Status::Paused));
    assert_eq!(answer.paused, Some(WaitReason::Quarantined));
    assert_eq!(rig.task(holder.id, task).await.status, TaskStatus::Quarantined);
    let kinds = rig.kinds_after(holder.id, 0).await;
    assert_eq!(kinds[kinds.len() - 2..], [EventKind::TaskQuarantined, EventKind::Paused]);
    let resolved = rig.storage.resolve_task(ORG, holder.op_id(0), Resolution::Retry).await.unwrap();
    assert_eq!((resolved.status, resolved.losses), (TaskStatus::Pending, 0));
    assert_eq!(rig.status(holder.id).await, Status::Pending);
}

/// An `at_most_once` attempt that went with its worker is in doubt once the run is loaded anew.
pub async fn a_lost_at_most_once_is_in_doubt(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut old = rig.running().await;
    let op = old.inline(with(SideEffects::AtMostOnce));
    old.commit(vec![op]).await;
    let task = old.task_id(0);
    // Its own holder may load as often as it likes.
    old.load().await;
    assert_eq!(rig.task(old.id, task).await.status, TaskStatus::Running);
    let mut new = taken_over(&old).await;
    assert_eq!(rig.task(old.id, task).await.status, TaskStatus::Running);
    let segment = new.load().await;
    assert!(matches!(
        segment.tail[0].body,
        crate::model::RecordedBody::Task { status: TaskStatus::InDoubt, at_most_once: true, .. }
    ));
    assert_eq!(segment.high, rig.high(new.id).await);
    assert_eq!(rig.kinds_after(new.id, new.known).await, [EventKind::TaskInDoubt]);
    new.load().await;
    assert_eq!(rig.high(new.id).await, segment.high);
    new.known = segment.high;
    new.suspend(vec![], for_tasks()).await;
    let wait = rig.execution(new.id).await.wait.unwrap();
    assert_eq!(wait.reason, Some(WaitReason::InDoubt));
    // The late result still counts, once.
    let report = |value| TaskReport { org: ORG, task, attempt: 1, worker: old.lease.worker, result: done(value) };
    rig.storage.report_task(report(1)).await.unwrap();
    assert_eq!(refused(rig.storage.report_task(report(2)).await), Code::LeaseLost);
    assert_eq!(rig.task(new.id, task).await.output, Some(json(&1)));
    assert_eq!(rig.status(new.id).await, Status::Pending);
}

/// An error of an `at_most_once` attempt is final; a timeout puts it in doubt.
pub async fn at_most_once_errors_are_final(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let retry = RetryPolicy { retries: 5, ..RetryPolicy::default() };
    let options = TaskOptions { retry, ..with(SideEffects::AtMostOnce) };
    let ops = vec![holder.inline(options.clone()), holder.inline(options)];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    let timeout = Failure::new(Code::TaskTimeout, "TaskTimeout", "late");
    batch.attempts = vec![
        ended(0, 1, failed("E")),
        ended(1, 1, AttemptResult::Failed { failure: timeout, retryable: true, pause: None }),
    ];
    holder.commit_batch(batch).await;
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Failed);
    let task = rig.task(holder.id, holder.task_id(1)).await;
    assert_eq!((task.status, task.failed_attempts), (TaskStatus::InDoubt, 1));
}

/// A lost attempt with `reconcile` is asked about on the queue.
pub async fn a_lost_reconcile_is_asked_about(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut old = rig.running().await;
    let op = old.inline(with(SideEffects::Reconcile));
    old.commit(vec![op]).await;
    let mut new = taken_over(&old).await;
    assert!(rig.claim_tasks().await.is_empty());
    let segment = new.load().await;
    assert_eq!(rig.kinds_after(new.id, new.known).await, [EventKind::TaskInDoubt]);
    new.known = segment.high;
    new.suspend(vec![], for_tasks()).await;
    let claimed = rig.claim_task().await;
    assert_eq!((claimed.reconcile, claimed.task.attempt), (true, 2));
    // It did not take effect: the function itself runs.
    rig.report(&claimed, AttemptResult::NotDone).await.unwrap();
    assert_eq!(rig.status(new.id).await, Status::Waiting);
    let claimed = rig.claim_task().await;
    assert_eq!((claimed.reconcile, claimed.task.attempt), (false, 3));
    rig.report(&claimed, done(1)).await.unwrap();
    assert_eq!(rig.status(new.id).await, Status::Pending);
}

/// An attempt that was cancelled with its run ends its task.
pub async fn a_cancelled_attempt_ends_its_task(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.inline(TaskOptions::default());
    let mut batch = holder.batch(vec![op], BatchEnd::Continue);
    batch.attempts.push(ended(0, 1, AttemptResult::Cancelled));
    let answer = holder.commit_batch(batch).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    assert_eq!(task.failure.map(|failure| failure.code), Some(Code::Cancelled));
    assert_eq!(answer.facts.len(), 1);
}

/// The end of a run cancels what is open.
pub async fn an_end_cancels_open_tasks(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let detached = TaskOptions { detached: true, ..TaskOptions::default() };
    let ops =
        vec![holder.inline(TaskOptions::default()), holder.queued(TaskOptions::default()), holder.queued(detached)];
    let known = holder.known;
    holder.end(ops, BatchEnd::Complete(json(&1))).await;
    use EventKind::*;
    let expected = [TaskStarted, TaskScheduled, TaskScheduled, TaskCancelled, TaskCancelled, TaskCancelled, Completed];
    assert_eq!(rig.kinds_after(holder.id, known).await, expected);
    // Nobody would start the detached one.
    assert_eq!(rig.task(holder.id, holder.task_id(2)).await.status, TaskStatus::Cancelled);
    assert!(rig.claim_tasks().await.is_empty());
}
