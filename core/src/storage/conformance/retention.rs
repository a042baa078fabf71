//! Runs that ended long ago are removed with all they have, unless others need them.

use super::Factory;
use super::rig::{Holder, ORG, Rig, TASK, at_once, done, gracefully, json, refused};
use crate::error::Code;
use crate::id::{ExecutionId, SignalId};
use crate::model::{
    BatchEnd, Delivery, ForkFrom, ForkRequest, NewSignal, PageRequest, Status, TaskOptions, TaskStatus, child_signal,
};
use crate::storage::ClaimRequest;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// A run that ends with a value too large for its row.
async fn ended(rig: &Rig) -> Holder<'_> {
    let mut holder = rig.running().await;
    let ops = vec![holder.entry("hello"), holder.sleep(DAY)];
    holder.commit(ops).await;
    holder.commit_batch(holder.batch(vec![], BatchEnd::Complete(json(&"x".repeat(20_000))))).await;
    holder
}

/// Old ended runs go, oldest first; young and living ones stay.
pub async fn ended_runs_are_removed(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let living = rig.start().await;
    let old = ended(&rig).await;
    let entry = old.leaf.unwrap();
    rig.clock.advance(DAY);
    let young = ended(&rig).await;
    assert_eq!(rig.keeper().remove_ended(DAY + Duration::from_micros(1)).await.unwrap(), 0);
    assert_eq!(rig.keeper().remove_ended(DAY).await.unwrap(), 1);
    let told = rig.keeper().server_side().unwrap().audit(ORG, PageRequest::default()).await.unwrap().items;
    let told: Vec<_> = told.iter().map(|row| (row.actor.as_str(), row.action.as_str(), row.subject.as_str())).collect();
    assert_eq!(told, [("retention", "executions.removed", "ended runs: 1")]);
    assert_eq!(refused(rig.storage.execution(ORG, old.id).await), Code::ExecutionNotFound);
    assert_eq!(refused(rig.storage.entry(ORG, entry).await), Code::NotFound);
    assert_eq!(refused(rig.storage.events(ORG, old.id, 0, 10).await), Code::ExecutionNotFound);
    assert_eq!(rig.status(living).await, Status::Pending);
    // What another run has in common with it is still there.
    let output = rig.execution(young.id).await.output.unwrap();
    assert_eq!(rig.storage.read_payload(ORG, &output).await.unwrap().len(), 20_002);
    let left = rig.storage.executions(ORG, Default::default(), PageRequest::default()).await.unwrap().items;
    assert_eq!(left.iter().map(|run| run.new.id).collect::<Vec<_>>(), [young.id, living]);
    // The id is free again, for a run that knows nothing of the first.
    rig.start_as(|new| new.id = old.id).await;
    let mut again = rig.claim(old.id).await;
    assert_eq!((again.lease.epoch, again.load().await.tail.len()), (1, 0));
    let op = again.entry("anew");
    again.commit(vec![op]).await;
    assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 0);
}

/// A run that has ended is removed by who asks for it, unless others need it.
pub async fn one_run_is_removed(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let gone = |id| rig.storage.remove_execution(ORG, id);
    let living = rig.start().await;
    assert_eq!(refused(gone(living).await), Code::InvalidTransition);
    assert_eq!(refused(gone(ExecutionId(rig.uuid())).await), Code::ExecutionNotFound);
    let origin = ended(&rig).await;
    let other = ended(&rig).await;
    let stranger = crate::id::OrgId(rig.uuid());
    assert_eq!(refused(rig.storage.remove_execution(stranger, origin.id).await), Code::ExecutionNotFound);
    let id = ExecutionId(rig.uuid());
    let request =
        ForkRequest { org: ORG, execution: origin.id, id, key: None, from: ForkFrom::Latest, state: None, input: None };
    rig.storage.fork(request).await.unwrap();
    assert_eq!(refused(gone(origin.id).await), Code::InvalidTransition);
    let mut fork = rig.claim(id).await;
    fork.next = 50;
    let op = fork.queued(TaskOptions { detached: true, ..TaskOptions::default() });
    fork.commit(vec![op]).await;
    let task = rig.claim_task().await;
    fork.commit_batch(fork.batch(vec![], BatchEnd::Complete(json(&1)))).await;
    assert_eq!(refused(gone(id).await), Code::InvalidTransition);
    rig.report(&task, done(1)).await.unwrap();
    gone(id).await.unwrap();
    gone(origin.id).await.unwrap();
    assert_eq!(refused(gone(origin.id).await), Code::ExecutionNotFound);
    assert_eq!(refused(rig.storage.events(ORG, origin.id, 0, 10).await), Code::ExecutionNotFound);
    // What another has in common with it is still there, and its id is free.
    let output = rig.execution(other.id).await.output.unwrap();
    assert_eq!(rig.storage.read_payload(ORG, &output).await.unwrap().len(), 20_002);
    let left = rig.storage.executions(ORG, Default::default(), PageRequest::default()).await.unwrap().items;
    assert_eq!(left.iter().map(|run| run.new.id).collect::<Vec<_>>(), [other.id, living]);
    rig.start_as(|new| new.id = origin.id).await;
    assert_eq!(rig.claim(origin.id).await.load().await.tail.len(), 0);
}

/// A run stays as long as its children do. Its end has cancelled the one that nobody had claimed.
pub async fn a_parent_outlives_its_children(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let op = parent.child(json(&1));
    let child = ExecutionId(parent.task_id(op.sequence).0);
    parent.commit(vec![op]).await;
    parent.commit_batch(parent.batch(vec![], BatchEnd::Complete(json(&1)))).await;
    assert_eq!(rig.status(child).await, Status::Cancelled);
    assert_eq!(refused(rig.storage.remove_execution(ORG, parent.id).await), Code::InvalidTransition);
    assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(refused(rig.storage.execution(ORG, child).await), Code::ExecutionNotFound);
    assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(refused(rig.storage.execution(ORG, parent.id).await), Code::ExecutionNotFound);
}

/// Nobody but the store tells a run of the end of a child.
pub async fn the_end_of_a_child_cannot_be_made_up(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let op = parent.child(json(&1));
    let child = ExecutionId(parent.task_id(op.sequence).0);
    parent.commit(vec![op]).await;
    let signal = NewSignal {
        org: ORG,
        execution: parent.id,
        id: SignalId(rig.uuid()),
        name: child_signal(child),
        payload: json(&serde_json::json!({ "child": child, "status": "COMPLETED", "output": { "json": "made up" } })),
        delivery: Delivery::NextStep,
        idempotency_key: None,
    };
    assert_eq!(refused(rig.storage.store_signal(signal).await), Code::InvalidArgument);
    assert!(rig.storage.signals(ORG, parent.id, PageRequest::default()).await.unwrap().items.is_empty());
}

/// A run stays as long as its forks do, and as long as a detached task of it runs.
pub async fn what_others_need_is_kept(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let origin = ended(&rig).await;
    let id = ExecutionId(rig.uuid());
    let request =
        ForkRequest { org: ORG, execution: origin.id, id, key: None, from: ForkFrom::Latest, state: None, input: None };
    rig.storage.fork(request).await.unwrap();
    assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 0);
    let mut fork = rig.claim(id).await;
    assert_eq!(rig.storage.branch(ORG, fork.leaf.unwrap(), None).await.unwrap().len(), 1);
    fork.next = 50;
    let op = fork.queued(TaskOptions { detached: true, ..TaskOptions::default() });
    fork.commit(vec![op]).await;
    let task = rig.claim_task().await;
    fork.commit_batch(fork.batch(vec![], BatchEnd::Complete(json(&1)))).await;
    assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 0);
    // With the task's end the fork may go, and then its origin.
    rig.report(&task, done(1)).await.unwrap();
    assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(refused(rig.storage.execution(ORG, origin.id).await), Code::ExecutionNotFound);
}

/// A detached task that nobody has started ends with its run, however that ends, and holds it no longer.
pub async fn what_nobody_started_is_not_kept(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let detached = || TaskOptions { detached: true, ..TaskOptions::default() };
    for stop in [at_once(), gracefully(Duration::from_secs(1))] {
        let mut holder = rig.running().await;
        let ops = vec![holder.queued(detached()), holder.queued(detached())];
        holder.commit(ops).await;
        let one = ClaimRequest { limit: 1, ..rig.asking(rig.worker(), TASK) };
        let begun = rig.storage.claim_tasks(one).await.unwrap().remove(0);
        rig.storage.request_cancel(ORG, holder.id, stop).await.unwrap();
        rig.pass_after(Duration::from_secs(2)).await;
        assert_eq!(rig.status(holder.id).await, Status::Cancelled);
        for id in [holder.task_id(0), holder.task_id(1)] {
            let expected = if id == begun.task.new.id { TaskStatus::Running } else { TaskStatus::Cancelled };
            assert_eq!(rig.task(holder.id, id).await.status, expected);
        }
        assert!(rig.claim_tasks().await.is_empty());
        assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 0);
        rig.report(&begun, done(1)).await.unwrap();
        assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), 1);
    }
}
