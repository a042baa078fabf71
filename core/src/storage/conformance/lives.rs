//! How often a task may be lost with its process: the number its call says, on every backend.

use super::Factory;
use super::rig::{ORG, Rig, TTL, done, for_tasks};
use super::tasks_inline::taken_over;
use crate::model::{BatchEnd, Committed, RecordedBody, ResumeRequest, Status, TaskOptions, TaskStatus};

/// A task says itself how often it may be lost: with the last life its run is paused, saying what to do; a resume gives one more.
pub async fn a_task_says_how_many_lives_it_has(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    for lives in [1, 3] {
        let mut holder = rig.running().await;
        let op = holder.queued(TaskOptions { max_losses: lives, ..TaskOptions::default() });
        holder.suspend(vec![op], for_tasks()).await;
        let id = holder.task_id(0);
        for lost in 0..lives {
            let task = rig.task(holder.id, id).await;
            assert_eq!((task.status, task.losses), (TaskStatus::Pending, lost));
            assert_eq!(task.new.options.max_losses, lives);
            rig.claim_task().await;
            rig.pass_after(TTL).await;
        }
        let task = rig.task(holder.id, id).await;
        assert_eq!((task.status, task.losses), (TaskStatus::Quarantined, lives));
        let told = rig.execution(holder.id).await.failure.unwrap();
        let said = if lives == 1 { "lost its process once (max_losses=1)" } else { "3 times in a row (max_losses=3)" };
        for words in [said, "resume the run", "resolve its op"] {
            assert!(told.message.contains(words), "{words:?} is missing in {:?}", told.message);
        }
        rig.storage.resume(ORG, holder.id, ResumeRequest::default()).await.unwrap();
        assert_eq!(rig.task(holder.id, id).await.losses, lives - 1);
        rig.claim_task().await;
        rig.pass_after(TTL).await;
        assert_eq!(
            (rig.task(holder.id, id).await.status, rig.status(holder.id).await),
            (TaskStatus::Quarantined, Status::Paused)
        );
        // An attempt that ends by itself ends the row of losses.
        rig.storage.resume(ORG, holder.id, ResumeRequest::default()).await.unwrap();
        let claimed = rig.claim_task().await;
        rig.report(&claimed, done(1)).await.unwrap();
        assert_eq!(rig.task(holder.id, id).await.losses, 0);
    }
}

/// An inline task's own number of lives holds, and whoever takes its run over reads it in the journal.
pub async fn a_deadly_inline_task_has_its_own_lives(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.inline(TaskOptions { max_losses: 2, ..TaskOptions::default() });
    holder.commit(vec![op]).await;
    for loss in 1..=2 {
        holder = taken_over(&holder).await;
        let segment = holder.load().await;
        let body = &segment.tail[0].body;
        assert!(matches!(body, RecordedBody::Task { max_losses: 2, .. }), "{body:?}");
        let mut batch = holder.batch(vec![], BatchEnd::Continue);
        batch.restarted = vec![(0, loss + 1)];
        let answer = holder.commit_batch(batch).await;
        let ended = if loss < 2 { Committed::Continue } else { Committed::Finished(Status::Paused) };
        assert_eq!(answer.committed, ended);
    }
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.losses), (TaskStatus::Quarantined, 2));
}
