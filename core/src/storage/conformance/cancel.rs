//! Stopping a run: gracefully, at once, and when the grace is over.

use super::Factory;
use super::rig::{Holder, ORG, Rig, TTL, at_once, done, for_signal, for_tasks, gracefully, json, refused};
use crate::error::Code;
use crate::model::{BatchEnd, Committed, EventKind, FactKind, Status, TaskOptions, TaskStatus, WaitReason};
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(10);

async fn cancel(holder: &Holder<'_>) -> crate::model::Execution {
    holder.rig.storage.request_cancel(ORG, holder.id, gracefully(GRACE)).await.unwrap()
}

/// A running run is told, tidies up, and ends with what it kept.
pub async fn a_running_run_tidies_up(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let known = holder.known;
    let run = cancel(&holder).await;
    assert_eq!((run.status, run.worker), (Status::Cancelling, Some(holder.lease.worker)));
    assert_eq!(run.cancel, Some((gracefully(GRACE), rig.now().after(GRACE))));
    let (facts, high, _) = rig.storage.facts_after(ORG, holder.id, known).await.unwrap();
    assert_eq!((facts.len(), facts[0].number, high), (1, known + 1, known + 1));
    assert_eq!(facts[0].kind, FactKind::Cancel(gracefully(GRACE)));
    // Once more says nothing new.
    assert_eq!(cancel(&holder).await.cancel, run.cancel);
    assert_eq!(rig.high(holder.id).await, high);
    assert_eq!(holder.load().await.facts.len(), 1);
    let op = holder.entry("bye");
    let answer = holder.end(vec![op], BatchEnd::Cancelled(Some(json(&"part")))).await;
    assert_eq!(answer.committed, Committed::Finished(Status::Cancelled));
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.output), (Status::Cancelled, Some(json(&"part"))));
    use EventKind::*;
    assert_eq!(rig.kinds_after(holder.id, known).await, [Cancelling, Entry, Cancelled]);
    let data: Vec<_> = rig.events(holder.id).await.into_iter().skip(known as usize).map(|event| event.data).collect();
    assert_eq!(data[0], serde_json::json!({ "mode": "graceful" }));
    assert_eq!(data[2], serde_json::json!({ "reason": "agent" }));
}

/// A run that was asked to stop may also complete or fail.
pub async fn a_stopping_run_may_complete(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    cancel(&holder).await;
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;
    assert_eq!(rig.status(holder.id).await, Status::Completed);
}

/// A waiting run is claimed to tidy up; it may wait while it does and stays CANCELLING.
pub async fn a_waiting_run_is_claimed_to_tidy_up(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.wait("s", None);
    holder.suspend(vec![op], for_signal("s")).await;
    let known = rig.high(holder.id).await;
    let run = cancel(&holder).await;
    assert_eq!((run.status, run.wait), (Status::Cancelling, None));
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::Cancelling]);
    let mut holder = rig.claim(holder.id).await;
    assert_eq!(rig.status(holder.id).await, Status::Cancelling);
    assert_eq!(holder.load().await.execution.status, Status::Cancelling);
    let op = holder.queued(TaskOptions::default());
    let answer = holder.suspend(vec![op], for_tasks()).await;
    assert_eq!(answer.committed, Committed::Suspended);
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker, run.wait), (Status::Cancelling, None, Some(for_tasks())));
    assert!(rig.try_claim(holder.id).await.is_none());
    assert!(!rig.signal(holder.id, "s").await.resumed);
    let task = rig.claim_task().await;
    rig.report(&task, done(1)).await.unwrap();
    let mut holder = rig.claim(holder.id).await;
    holder.end(vec![], BatchEnd::Cancelled(None)).await;
    assert_eq!(rig.status(holder.id).await, Status::Cancelled);
}

/// A run nobody has claimed yet, and a paused one, end at once.
pub async fn idle_runs_end_at_once(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start().await;
    let run = rig.storage.request_cancel(ORG, id, gracefully(GRACE)).await.unwrap();
    assert_eq!(run.status, Status::Cancelled);
    assert_eq!(rig.kinds_after(id, 1).await, [EventKind::Cancelled]);
    assert_eq!(rig.events(id).await[1].data, serde_json::json!({ "reason": "graceful" }));

    let mut holder = rig.running().await;
    let op = holder.queued(TaskOptions::default());
    holder.end(vec![op], BatchEnd::Pause { reason: WaitReason::Budget, failure: None }).await;
    assert_eq!(cancel(&holder).await.status, Status::Cancelled);
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Cancelled);

    // One that was claimed before and given back has something to tidy up.
    let holder = rig.running().await;
    rig.storage.release(ORG, holder.id, holder.lease).await.unwrap();
    assert_eq!(cancel(&holder).await.status, Status::Cancelling);
    assert!(rig.try_claim(holder.id).await.is_some());
}

/// A hard stop fences the holder off and cancels what is open.
pub async fn a_hard_stop_is_at_once(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.queued(TaskOptions::default()), holder.sleep(GRACE)];
    holder.commit(ops).await;
    let task = rig.claim_task().await;
    let known = rig.high(holder.id).await;
    let run = rig.storage.request_cancel(ORG, holder.id, at_once()).await.unwrap();
    assert_eq!((run.status, run.epoch, run.worker), (Status::Cancelled, 2, None));
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::TaskCancelled, EventKind::Cancelled]);
    assert_eq!(refused(holder.try_commit(holder.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
    assert_eq!(refused(rig.report(&task, done(1)).await), Code::LeaseLost);

    let mut holder = rig.running().await;
    let op = holder.queued(TaskOptions::default());
    holder.suspend(vec![op], for_tasks()).await;
    let known = rig.high(holder.id).await;
    rig.storage.request_cancel(ORG, holder.id, at_once()).await.unwrap();
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::TaskCancelled, EventKind::Cancelled]);
}

/// When the grace is over the run ends whoever holds it.
pub async fn the_grace_ends(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    cancel(&holder).await;
    assert_eq!(rig.pass_after(GRACE - Duration::from_micros(1)).await, Some(rig.now().after(Duration::from_micros(1))));
    holder.commit(vec![]).await;
    rig.pass_after(Duration::from_micros(1)).await;
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.epoch, run.worker), (Status::Cancelled, 2, None));
    assert_eq!(rig.events(holder.id).await.pop().unwrap().data, serde_json::json!({ "reason": "grace" }));
    assert_eq!(refused(holder.try_commit(holder.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
    // Also a graceful stop may be followed by a hard one.
    let holder = rig.running().await;
    cancel(&holder).await;
    let run = rig.storage.request_cancel(ORG, holder.id, at_once()).await.unwrap();
    assert_eq!(run.status, Status::Cancelled);
}

/// A stopping run whose holder is lost or gives it back can be claimed again.
pub async fn a_stopping_run_changes_hands(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = rig.running().await;
    rig.storage.request_cancel(ORG, holder.id, gracefully(TTL * 10)).await.unwrap();
    rig.pass_after(TTL).await;
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker, run.losses), (Status::Cancelling, None, 1));
    let holder = rig.claim(holder.id).await;
    let known = rig.high(holder.id).await;
    rig.storage.release(ORG, holder.id, holder.lease).await.unwrap();
    assert_eq!(rig.status(holder.id).await, Status::Cancelling);
    assert!(rig.kinds_after(holder.id, known).await.is_empty());
    assert!(rig.try_claim(holder.id).await.is_some());
}

/// A stopping run that pauses has nobody to wait for: it ends.
pub async fn a_stopping_run_does_not_pause(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.limits.max_steps = Some(1)).await;
    let mut holder = rig.claim(id).await;
    cancel(&holder).await;
    let ops = vec![holder.step(), holder.step()];
    assert_eq!(holder.commit(ops).await.paused, None);
    let answer = holder.end(vec![], BatchEnd::Pause { reason: WaitReason::Divergence, failure: None }).await;
    assert_eq!(answer.committed, Committed::Finished(Status::Cancelled));
    assert_eq!(rig.status(id).await, Status::Cancelled);
}
