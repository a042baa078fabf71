//! Checkpoints: where recovery starts, what it replays, and what happens when one is damaged.

use super::Factory;
use super::rig::{ORG, Rig, done, ended, json, refused};
use crate::error::Code;
use crate::model::{
    BatchEnd, Checkpoint, EventKind, FactKind, NewCheckpoint, PageRequest, ResumeRequest, Status, TaskOptions,
    TaskStatus, Usage, WaitReason,
};
use std::time::Duration;

/// A checkpoint ends a segment; recovery has it and only the tail since it.
pub async fn recovery_starts_at_the_last(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.entry("a"), holder.usage("m", Usage { calls: 2, ..Usage::default() }), holder.flush()];
    let answer = holder.checkpoint(ops, json(&"one")).await;
    assert_eq!(answer.number, 1);
    let op = holder.entry("b");
    holder.checkpoint(vec![op], json(&"two")).await;
    let ops = vec![holder.flush(), holder.entry("c")];
    holder.commit(ops).await;
    assert_eq!(rig.execution(holder.id).await.segment, 2);
    let segment = holder.load().await;
    let checkpoint = segment.checkpoint.unwrap();
    assert_eq!((checkpoint.sequence, &checkpoint.saved.state), (2, &json(&"two")));
    assert_eq!(checkpoint.usage.0["m"].calls, 2);
    assert_eq!(segment.tail.iter().map(|op| op.sequence).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(segment.execution.segment, 2);
    assert_eq!(segment.execution.leaf, holder.leaf);
    let stored = rig.storage.checkpoints(ORG, holder.id, PageRequest::default()).await.unwrap().items;
    assert_eq!(stored.iter().map(|checkpoint| checkpoint.sequence).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(stored[1], checkpoint);
    for stored in &stored {
        let state = *blake3::hash(stored.saved.state.bytes().unwrap()).as_bytes();
        let hash = Checkpoint::content_hash(stored.sequence, &state, &stored.saved.leaves, &stored.usage);
        assert_eq!((stored.hash, stored.saved.metadata.as_str()), (hash, "{}"));
    }
    assert_eq!(rig.storage.journal(ORG, holder.id, 0).await.unwrap().len(), 3);
    let event = rig.events(holder.id).await.into_iter().find(|event| event.kind == EventKind::Checkpoint).unwrap();
    assert_eq!((event.segment, event.data), (1, serde_json::json!({ "sequence": 1 })));
}

/// Before the first checkpoint recovery has the whole of segment 0, after one an empty tail.
pub async fn a_tail_may_be_empty(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let segment = holder.load().await;
    assert!(segment.checkpoint.is_none() && segment.tail.is_empty() && segment.facts.is_empty());
    assert_eq!((segment.high, segment.now), (holder.known, rig.now()));
    holder.checkpoint(vec![], json(&1)).await;
    let segment = holder.load().await;
    assert!(segment.checkpoint.is_some() && segment.tail.is_empty());
}

/// Open tasks refuse a checkpoint; ended, orphaned and detached ones do not.
pub async fn open_operations_refuse_a_checkpoint(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let detached = TaskOptions { detached: true, ..TaskOptions::default() };
    let ops =
        vec![holder.inline(TaskOptions::default()), holder.queued(TaskOptions::default()), holder.queued(detached)];
    holder.commit(ops).await;
    let new = || NewCheckpoint { state: json(&1), leaves: Default::default(), metadata: "{}".into() };
    let high = rig.high(holder.id).await;
    let error = holder.try_commit(holder.batch(vec![], BatchEnd::Checkpoint(new()))).await.unwrap_err();
    assert_eq!(error.code(), Code::OpenOperations);
    assert!(error.message().contains("0-0") && error.message().contains("0-1"), "{error}");
    assert!(!error.message().contains("0-2"), "{error}");
    let mut half = holder.batch(vec![], BatchEnd::Checkpoint(new()));
    half.orphaned = vec![1];
    assert_eq!(refused(holder.try_commit(half.clone()).await), Code::OpenOperations);
    let mut again = half.clone();
    let retry = crate::model::RetryPolicy { retries: 1, ..Default::default() };
    let op = holder.inline(TaskOptions { retry, ..TaskOptions::default() });
    again.ops.push(op);
    again.attempts = vec![ended(0, 1, done(1)), ended(3, 1, super::rig::failed("E"))];
    assert_eq!(refused(holder.try_commit(again).await), Code::OpenOperations);
    assert_eq!(rig.high(holder.id).await, high);
    half.attempts.push(ended(0, 1, done(1)));
    holder.try_commit(half).await.unwrap();
    assert_eq!(rig.execution(holder.id).await.segment, 1);
}

/// A detached task outlives its segment, and its end is found by who joins it again.
pub async fn a_detached_task_survives(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.queued(TaskOptions { detached: true, ..TaskOptions::default() });
    let task = holder.task_id(0);
    holder.checkpoint(vec![op], json(&1)).await;
    let claimed = rig.claim_task().await;
    assert_eq!(claimed.task.new.id, task);
    rig.report(&claimed, done(5)).await.unwrap();
    let expected = FactKind::Task { task, result: Ok(json(&5)) };
    let facts = holder.commit(vec![]).await.facts;
    assert_eq!(facts.iter().map(|fact| &fact.kind).collect::<Vec<_>>(), [&expected]);
    let op = holder.attach(task);
    holder.commit(vec![op]).await;
    let segment = holder.load().await;
    assert_eq!(segment.tail.len(), 1);
    assert!(segment.facts.iter().any(|fact| fact.kind == expected));
    assert_eq!(rig.task(holder.id, task).await.status, TaskStatus::Completed);
}

/// Timers of a segment end with it.
pub async fn timers_end_with_their_segment(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.sleep(Duration::from_secs(5)), holder.wait("x", Some(Duration::from_secs(5)))];
    holder.checkpoint(ops, json(&1)).await;
    let op = holder.sleep(Duration::from_secs(8));
    holder.commit(vec![op]).await;
    rig.pass_after(Duration::from_secs(6)).await;
    assert!(!rig.kinds_after(holder.id, 0).await.contains(&EventKind::Timer));
    rig.pass_after(Duration::from_secs(3)).await;
    let (facts, ..) = rig.storage.facts_after(ORG, holder.id, 0).await.unwrap();
    assert_eq!(facts.iter().map(|fact| &fact.kind).collect::<Vec<_>>(), [&FactKind::Timer { slot: holder.slot(0) }]);
}

/// Signals are kept across checkpoints; those an old segment took do not come back.
pub async fn the_mailbox_survives(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let taken = rig.signal(holder.id, "s").await.id;
    let left = rig.signal(holder.id, "s").await.id;
    let op = holder.wait("s", None);
    let mut batch = holder.batch(vec![op], BatchEnd::Continue);
    batch.consumed.push(crate::model::Consumed { signal: taken, by: holder.slot(0) });
    holder.commit_batch(batch).await;
    let has = |segment: &crate::model::Segment| {
        let signals = segment.facts.iter().filter_map(|fact| match &fact.kind {
            FactKind::Signal(signal) => Some((signal.id, signal.consumed_by)),
            _ => None,
        });
        signals.collect::<Vec<_>>()
    };
    let by = Some(holder.slot(0));
    assert_eq!(has(&holder.load().await), [(taken, by), (left, None)]);
    holder.checkpoint(vec![], json(&1)).await;
    assert_eq!(has(&holder.load().await), [(left, None)]);
}

/// Results of `once` are kept whatever the segment.
pub async fn once_results_survive(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.once("plan", json(&"p"));
    holder.checkpoint(vec![op], json(&1)).await;
    let op = holder.once("more", json(&"q"));
    holder.checkpoint(vec![op], json(&2)).await;
    let once = holder.load().await.once;
    let names: Vec<_> = once.iter().map(|once| (&*once.name, once.value.clone())).collect();
    assert_eq!(names, [("more", json(&"q")), ("plan", json(&"p"))]);
}

/// Ops of a `once` without a result stay in the tail across checkpoints.
pub async fn an_unfinished_once_stays_in_the_tail(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let mut inside = holder.inline(TaskOptions::default());
    let place = |n| Some(crate::id::OnceSlot { name: "plan".into(), n });
    inside.once = place(1);
    let other = holder.flush();
    let mut batch = holder.batch(vec![inside, other], BatchEnd::Continue);
    batch.attempts.push(ended(0, 1, done(3)));
    holder.commit_batch(batch).await;
    let task = holder.task_id(0);
    holder.checkpoint(vec![], json(&1)).await;
    let segment = holder.load().await;
    assert_eq!(segment.tail.iter().map(|op| op.once.clone()).collect::<Vec<_>>(), [place(1)]);
    assert_eq!(segment.facts.len(), 1);
    assert_eq!(segment.facts[0].kind, FactKind::Task { task, result: Ok(json(&3)) });
    let op = holder.once("plan", json(&"p"));
    holder.checkpoint(vec![op], json(&2)).await;
    let segment = holder.load().await;
    assert!(segment.tail.is_empty() && segment.facts.is_empty());
    assert_eq!(segment.once.len(), 1);
}

/// A damaged checkpoint is passed over for its parent, with the longer tail.
pub async fn a_damaged_one_is_passed_over(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.flush()];
    holder.checkpoint(ops, json(&"one")).await;
    let ops = vec![holder.entry("a"), holder.flush()];
    holder.checkpoint(ops, json(&"two")).await;
    let op = holder.flush();
    holder.commit(vec![op]).await;
    if !rig.corrupt(holder.id, 2) {
        return;
    }
    let segment = holder.load().await;
    assert_eq!(segment.checkpoint.map(|checkpoint| checkpoint.sequence), Some(1));
    assert_eq!(segment.tail.iter().map(|op| op.sequence).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(segment.execution.segment, 2);
}

/// Without any good checkpoint the run is quarantined.
pub async fn without_a_good_one_the_run_is_quarantined(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    holder.checkpoint(vec![], json(&1)).await;
    if !rig.corrupt(holder.id, 1) {
        return;
    }
    let loaded = rig.storage.load_segment(ORG, holder.id, holder.lease).await;
    assert_eq!(refused(loaded), Code::CorruptCheckpoint);
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker), (Status::Paused, None));
    assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::Quarantined));
    assert_eq!(run.failure.map(|failure| failure.code), Some(Code::CorruptCheckpoint));
    assert!(rig.corrupt(holder.id, 1), "the damage is undone");
    rig.storage.resume(ORG, holder.id, ResumeRequest::default()).await.unwrap();
    assert!(rig.claim(holder.id).await.load().await.checkpoint.is_some());
}
