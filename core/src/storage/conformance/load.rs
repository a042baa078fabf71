//! The load: what waits and what runs, by queue, as operators see it.

use super::Factory;
use super::rig::{Rig, TTL};
use crate::model::TaskOptions;
use crate::storage::QueueDepth;
use std::time::Duration;

/// Runs and tasks are counted on their queue while they wait for a worker and while one has them.
pub async fn queues_are_counted(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    assert!(rig.keeper().load().await.unwrap().queues.is_empty());
    let began = rig.now();
    rig.start_as(|new| new.queue = "gpu".into()).await;
    rig.pass_after(Duration::from_secs(1)).await;
    rig.start_as(|new| new.queue = "gpu".into()).await;
    rig.start_as(|new| new.delay = Some(TTL)).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.queued(TaskOptions::default()), holder.queued(TaskOptions::default())];
    holder.commit(ops).await;
    let counted = |what, queue: &str, pending, running, oldest| QueueDepth {
        what,
        queue: queue.into(),
        pending,
        running,
        oldest,
    };
    let queues = rig.keeper().load().await.unwrap().queues;
    let expected = [
        counted("run", "default", 0, 1, None),
        counted("run", "gpu", 2, 0, Some(began)),
        counted("task", "default", 2, 0, Some(rig.now())),
    ];
    assert_eq!(queues, expected);
    assert_eq!(rig.claim_tasks().await.len(), 2);
    let queues = rig.keeper().load().await.unwrap().queues;
    assert_eq!(queues[2], counted("task", "default", 0, 2, None));
}
