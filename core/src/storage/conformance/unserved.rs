//! Work whose kind no live worker serves is told of: to who asks, and once for each wait by an event.

use super::Factory;
use super::rig::{AGENT, Rig, TASK, TTL, ended, failed, for_tasks};
use crate::id::ExecutionId;
use crate::model::{EventKind, RetryPolicy, Status, TaskOptions, TaskStatus};
use crate::storage::NO_WORKER_AFTER;
use serde_json::json;
use std::time::Duration;

const MOMENT: Duration = Duration::from_micros(1);

async fn warnings(rig: &Rig, id: ExecutionId) -> Vec<serde_json::Value> {
    let events = rig.events(id).await.into_iter().filter(|event| event.kind == EventKind::NoWorker);
    events.map(|event| event.data).collect()
}

/// A run that nobody serves has one event for each wait.
pub async fn a_run_without_a_worker_is_told_once(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start().await;
    let served = rig.start_as(|new| new.queue = "served".into()).await;
    let asking = crate::storage::ClaimRequest { queue: "served".into(), limit: 0, ..rig.asking(rig.worker(), AGENT) };
    rig.storage.claim_agents(asking).await.unwrap();
    rig.pass_after(NO_WORKER_AFTER - MOMENT).await;
    assert!(warnings(&rig, id).await.is_empty());
    rig.pass_after(Duration::from_secs(1)).await;
    let expected = json!({ "kind": AGENT, "queue": "default" });
    assert_eq!(warnings(&rig, id).await, std::slice::from_ref(&expected));
    for _ in 0..3 {
        rig.pass_after(NO_WORKER_AFTER).await;
    }
    assert_eq!((warnings(&rig, id).await.len(), warnings(&rig, served).await.len()), (1, 0));
    // Another wait: its worker came and was lost.
    rig.claim(id).await;
    rig.pass_after(TTL).await;
    assert_eq!((rig.status(id).await, warnings(&rig, id).await.len()), (Status::Pending, 1));
    rig.pass_after(NO_WORKER_AFTER).await;
    assert_eq!(warnings(&rig, id).await, [expected.clone(), expected]);
}

/// A delayed run waits for nobody before its moment.
pub async fn a_delayed_run_is_told_after_its_moment(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.delay = Some(Duration::from_secs(60))).await;
    rig.pass_after(Duration::from_secs(60) + NO_WORKER_AFTER - MOMENT).await;
    assert!(warnings(&rig, id).await.is_empty());
    rig.pass_after(Duration::from_secs(1)).await;
    assert_eq!(warnings(&rig, id).await.len(), 1);
}

/// A task of a queue waits for a worker of that queue: its run is told, and goes on waiting.
pub async fn a_task_without_a_worker_is_told_once(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.queued(TaskOptions::default());
    holder.suspend(vec![op], for_tasks()).await;
    for _ in 0..3 {
        rig.pass_after(NO_WORKER_AFTER).await;
    }
    let expected = json!({ "task": holder.task_id(0), "kind": TASK, "attempt": 0, "queue": "default" });
    assert_eq!(warnings(&rig, holder.id).await, [expected]);
    assert_eq!(rig.status(holder.id).await, Status::Waiting);
}

/// An inline task whose next attempt nobody knows wakes its run: whoever runs the agent brings its tasks along.
pub async fn an_unknown_inline_task_wakes_its_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let retry = RetryPolicy { retries: 5, initial: Duration::from_secs(1), ..RetryPolicy::default() };
    let op = holder.inline(TaskOptions { retry, ..TaskOptions::default() });
    let attempt = ended(0, 1, failed("once"));
    let batch = holder.batch(vec![op], crate::model::BatchEnd::Continue);
    holder.commit_batch(crate::model::Batch { attempts: vec![attempt], ..batch }).await;
    holder.suspend(vec![], for_tasks()).await;
    rig.pass_after(NO_WORKER_AFTER * 2).await;
    let event = rig.events(holder.id).await.pop().unwrap();
    assert_eq!((event.kind, event.data), (EventKind::Woken, json!({ "reason": "no_worker" })));
    assert_eq!((rig.status(holder.id).await, warnings(&rig, holder.id).await.len()), (Status::Pending, 1));
    // Entered again it waits for the same attempt, and is not woken for it a second time.
    let mut again = rig.claim(holder.id).await;
    again.suspend(vec![], for_tasks()).await;
    rig.pass_after(NO_WORKER_AFTER * 2).await;
    assert_eq!((rig.status(holder.id).await, warnings(&rig, holder.id).await.len()), (Status::Waiting, 1));
    let claimed = rig.claim_task().await;
    assert_eq!(claimed.task.attempt, 2);
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Running);
}
