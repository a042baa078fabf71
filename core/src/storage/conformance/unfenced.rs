//! What callers need whose calls name no claim. A backend that does not serve them passes.

use super::Factory;
use super::rig::{AGENT, ORG, Rig, TASK, TTL, done, for_tasks, json, refused};
use crate::error::Code;
use crate::id::{ExecutionId, OrgId, TaskId};
use crate::model::{
    BatchEnd, Committed, Consumed, Ends, EventKind, ExecutionFilter, NewExecution, PageRequest, Status, TaskOptions,
    TaskStatus, Until, Wait, child_signal,
};
use crate::storage::ClaimRequest;
use crate::storage::unfenced::{Serves, SignOf, Work};
use std::collections::BTreeSet;
use std::time::Duration;

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// What a worker can run is remembered for its org, the last word of it, for a week after its last sign.
pub async fn a_worker_is_enrolled(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let Ok(unfenced) = rig.storage.server_side() else { return };
    let (worker, other) = (rig.worker(), rig.worker());
    let serves = |tasks: &[&str]| Serves { agents: named(&["a"]), tasks: named(tasks), known_as: Some(other) };
    assert_eq!(unfenced.enrolled(ORG, worker).await.unwrap(), None);
    unfenced.enroll(ORG, worker, serves(&["x"])).await.unwrap();
    unfenced.enroll(ORG, worker, serves(&["x", "y"])).await.unwrap();
    assert_eq!(unfenced.enrolled(ORG, worker).await.unwrap(), Some(serves(&["x", "y"])));
    assert_eq!(unfenced.enrolled(OrgId(rig.uuid()), worker).await.unwrap(), None);
    assert_eq!(unfenced.enrolled(ORG, other).await.unwrap(), None);
    let days = |days: u64| Duration::from_secs(days * 24 * 3_600);
    rig.clock.advance(days(5));
    unfenced.keep_leases(ORG, worker, TTL, SignOf::Every).await.unwrap();
    rig.clock.advance(days(5));
    unfenced.enroll(ORG, other, serves(&[])).await.unwrap();
    assert!(unfenced.enrolled(ORG, worker).await.unwrap().is_some(), "it gave a sign five days ago");
    rig.clock.advance(days(8));
    unfenced.enroll(ORG, rig.worker(), serves(&[])).await.unwrap();
    assert_eq!(unfenced.enrolled(ORG, worker).await.unwrap(), None);
}

/// Kinds are told once, of what can be claimed now, of one queue of one org.
pub async fn what_waits_has_kinds(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let Ok(unfenced) = rig.storage.server_side() else { return };
    let kinds = async |queue: &str, of: Work| {
        let mut kinds = unfenced.waiting_kinds(ORG, queue, of).await.unwrap();
        kinds.sort();
        kinds
    };
    for (kind, queue) in [("b", "default"), ("a", "default"), ("b", "default"), ("c", "other")] {
        rig.start_as(|new| (new.kind, new.queue) = (kind.into(), queue.into())).await;
    }
    let stranger = OrgId(rig.uuid());
    rig.start_as(|new| (new.org, new.kind) = (stranger, "d".into())).await;
    assert_eq!(kinds("default", Work::Agents).await, ["a", "b"]);
    assert_eq!(kinds("other", Work::Agents).await, ["c"]);
    assert_eq!(kinds("default", Work::Tasks).await, Vec::<String>::new());

    let mut holder = rig.running().await;
    assert_eq!(kinds("default", Work::Agents).await, ["a", "b"]);
    let ops = vec![holder.queued(TaskOptions::default()), holder.inline(TaskOptions::default())];
    holder.commit(ops).await;
    assert_eq!(kinds("default", Work::Tasks).await, [TASK]);
    rig.claim_task().await;
    assert_eq!(kinds("default", Work::Tasks).await, Vec::<String>::new());
}

/// All that a worker holds in an org lasts so long from its sign, and never shorter than it would have; of runs those that the
/// sign is of.
pub async fn a_worker_keeps_its_leases(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let Ok(unfenced) = rig.storage.server_side() else { return };
    let id = rig.start().await;
    let mut holder = rig.claim(id).await;
    let op = holder.queued(TaskOptions { detached: true, ..TaskOptions::default() });
    holder.commit(vec![op]).await;
    let worker = holder.lease.worker;
    let task = rig.claim_tasks_as(worker).await.remove(0).task;
    rig.clock.advance(TTL / 2);
    unfenced.keep_leases(OrgId(rig.uuid()), worker, TTL, SignOf::Every).await.unwrap();
    unfenced.keep_leases(ORG, rig.worker(), TTL, SignOf::Every).await.unwrap();
    let expires = rig.execution(id).await.lease_expires;
    assert_eq!(expires, Some(rig.now().after(TTL / 2)));
    unfenced.keep_leases(ORG, worker, TTL, SignOf::Every).await.unwrap();
    unfenced.keep_leases(ORG, worker, TTL / 4, SignOf::Every).await.unwrap();
    assert_eq!(rig.execution(id).await.lease_expires, Some(rig.now().after(TTL)));
    let of_others = SignOf::These([ExecutionId(rig.uuid())].into());
    let until = rig.execution(id).await.lease_expires;
    rig.clock.advance(Duration::from_secs(1));
    unfenced.keep_leases(ORG, worker, TTL, of_others).await.unwrap();
    assert_eq!(rig.execution(id).await.lease_expires, until, "the sign is not one of the run");
    unfenced.keep_leases(ORG, worker, TTL, SignOf::These([id].into())).await.unwrap();
    rig.pass_after(TTL - Duration::from_secs(1)).await;
    assert_eq!(rig.status(id).await, Status::Running);
    assert_eq!(rig.task(id, task.new.id).await.status, TaskStatus::Running);
    rig.pass_after(Duration::from_secs(2)).await;
    assert_eq!(rig.status(id).await, Status::Pending);
    assert_eq!(rig.task(id, task.new.id).await.status, TaskStatus::Pending);
}

/// A task is cancelled from outside, claimed or not, of whatever segment; its end is a fact, and a late report is refused.
pub async fn a_task_is_cancelled_from_outside(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let Ok(unfenced) = rig.storage.server_side() else { return };
    let mut holder = rig.running().await;
    let (id, tasks) = (holder.id, [holder.task_id(0), holder.task_id(1)]);
    let detached = || TaskOptions { detached: true, ..TaskOptions::default() };
    let ops = vec![holder.queued(detached()), holder.queued(detached())];
    holder.commit(ops).await;
    holder.checkpoint(vec![], json(&0)).await;
    let one = ClaimRequest { limit: 1, ..rig.asking(rig.worker(), TASK) };
    let claimed = rig.storage.claim_tasks(one).await.unwrap().remove(0);
    let running = claimed.task.new.id;
    let pending = if running == tasks[0] { tasks[1] } else { tasks[0] };
    let open = unfenced.open_task(ORG, running).await.unwrap().expect("it is open");
    assert_eq!((open.status, open.execution), (TaskStatus::Running, id));
    assert!(unfenced.open_task(OrgId(rig.uuid()), running).await.unwrap().is_none());
    assert!(unfenced.open_task(ORG, TaskId(rig.uuid())).await.unwrap().is_none());

    holder.suspend(vec![], for_tasks()).await;
    let known = rig.high(id).await;
    let (task, cancelled) = unfenced.cancel_task(ORG, id, running).await.unwrap();
    assert_eq!((task.status, cancelled), (TaskStatus::Cancelled, true));
    assert_eq!(rig.kinds_after(id, known).await, [EventKind::TaskCancelled, EventKind::Woken]);
    assert_eq!(rig.status(id).await, Status::Pending);
    assert_eq!(refused(rig.report(&claimed, done(1)).await), Code::LeaseLost);
    let (task, cancelled) = unfenced.cancel_task(ORG, id, running).await.unwrap();
    assert_eq!((task.status, cancelled), (TaskStatus::Cancelled, false));
    assert!(unfenced.cancel_task(ORG, id, pending).await.unwrap().1);
    assert!(unfenced.open_task(ORG, running).await.unwrap().is_none());
    assert_eq!(refused(unfenced.cancel_task(ORG, id, TaskId(rig.uuid())).await), Code::NotFound);
    let other = rig.start().await;
    assert_eq!(refused(unfenced.cancel_task(ORG, other, running).await), Code::NotFound);
}

/// A mailbox holds what nothing has consumed, oldest first.
pub async fn a_mailbox_holds_what_nothing_took(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let Ok(unfenced) = rig.storage.server_side() else { return };
    let mut holder = rig.running().await;
    let mut sent = Vec::new();
    for name in ["a", "b", "a"] {
        sent.push(rig.signal(holder.id, name).await.id);
    }
    let mailbox = async || {
        let signals = unfenced.mailbox(ORG, holder.id).await.unwrap();
        signals.into_iter().map(|signal| signal.id).collect::<Vec<_>>()
    };
    assert_eq!(mailbox().await, sent);
    let op = holder.read(json(&1));
    let mut batch = holder.batch(vec![op], BatchEnd::Continue);
    batch.consumed.push(Consumed { signal: sent[0], by: holder.slot(0) });
    holder.commit_batch(batch).await;
    let left = unfenced.mailbox(ORG, holder.id).await.unwrap();
    assert_eq!(left.iter().map(|signal| signal.id).collect::<Vec<_>>(), sent[1..]);
    assert_eq!(left[0].payload, json(&"b"));
    assert_eq!(refused(unfenced.mailbox(ORG, ExecutionId(rig.uuid())).await), Code::ExecutionNotFound);
}

/// A run below another is one of its family; its end, however it comes, is told to the parent in the same transaction.
pub async fn a_child_tells_its_parent(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let Ok(unfenced) = rig.storage.server_side() else { return };
    let spawn = async |parent: ExecutionId| {
        let new = NewExecution::new(ExecutionId(rig.uuid()), AGENT, json(&"child")).unwrap();
        unfenced.spawn(parent, new).await.unwrap().execution
    };
    let mut parent = rig.running().await;
    let children = [spawn(parent.id).await, spawn(parent.id).await, spawn(parent.id).await];
    let grandchild = spawn(children[0].new.id).await;
    assert_eq!((children[0].parent, children[0].root), (Some(parent.id), parent.id));
    let there = rig.execution(grandchild.new.id).await;
    assert_eq!((there.parent, there.root), (Some(children[0].new.id), parent.id));
    let nobody = NewExecution::new(ExecutionId(rig.uuid()), AGENT, json(&"child")).unwrap();
    assert_eq!(refused(unfenced.spawn(ExecutionId(rig.uuid()), nobody).await), Code::ExecutionNotFound);
    let listed = async |filter: ExecutionFilter| {
        let page = rig.storage.executions(ORG, filter, PageRequest::default()).await.unwrap();
        page.items.into_iter().map(|run| run.new.id).collect::<BTreeSet<_>>()
    };
    let ids: BTreeSet<_> = children.iter().map(|child| child.new.id).collect();
    let of = ExecutionFilter::default();
    assert_eq!(listed(ExecutionFilter { parent: Some(parent.id), ..of.clone() }).await, ids);
    let family = ids.iter().copied().chain([grandchild.new.id]).collect();
    assert_eq!(listed(ExecutionFilter { root: Some(parent.id), ..of.clone() }).await, family);
    assert!(listed(ExecutionFilter { root: Some(children[0].new.id), ..of.clone() }).await.is_empty(), "it is no top");
    let both = ExecutionFilter { parent: Some(children[0].new.id), root: Some(parent.id), ..of };
    assert_eq!(listed(both).await, BTreeSet::from([grandchild.new.id]));

    let names: Vec<String> = children.iter().map(|child| child_signal(child.new.id)).collect();
    let ends = Ends { open: names.iter().cloned().collect(), until: Until::All };
    parent.suspend(vec![], Wait { ends: Some(ends), ..Wait::default() }).await;
    let mut first = rig.claim(children[0].new.id).await;
    first.end(vec![], BatchEnd::Complete(json(&1))).await;
    assert_eq!(rig.status(parent.id).await, Status::Waiting);
    rig.storage.request_cancel(ORG, children[1].new.id, super::rig::at_once()).await.unwrap();
    assert_eq!(rig.status(parent.id).await, Status::Waiting);
    let mut last = rig.claim(children[2].new.id).await;
    let known = rig.high(parent.id).await;
    let failure = crate::model::Failure::new(Code::AgentFailed, "E", "no");
    last.end(vec![], BatchEnd::Fail(failure)).await;
    assert_eq!(rig.kinds_after(parent.id, known).await, [EventKind::Signal, EventKind::Woken]);
    assert_eq!(rig.status(parent.id).await, Status::Pending);
    let told = unfenced.mailbox(ORG, parent.id).await.unwrap();
    assert_eq!(told.iter().map(|signal| signal.name.clone()).collect::<Vec<_>>(), names);
    let child = children[2].new.id;
    let failure = serde_json::json!({ "code": "AgentFailed", "error_type": "E", "message": "no", "attempts": 0 });
    let end = serde_json::json!({ "child": child, "status": "FAILED", "failure": failure });
    assert_eq!(told[2].payload.parse::<serde_json::Value>().unwrap(), end);

    // Nobody hears of the end of one whose parent has ended.
    let mut parent = rig.claim(parent.id).await;
    parent.end(vec![], BatchEnd::Complete(json(&1))).await;
    let known = rig.high(children[0].new.id).await;
    let mut orphan = rig.claim(grandchild.new.id).await;
    orphan.end(vec![], BatchEnd::Complete(json(&1))).await;
    assert_eq!(rig.status(grandchild.new.id).await, Status::Completed);
    assert_eq!(rig.high(children[0].new.id).await, known);
}

/// A wait for named tasks ends with the one that decides it, and with no other; an end that came before is no reason to wait.
pub async fn ends_are_awaited_by_name(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    for (until, ends, decides) in [
        (Until::All, [true, false, true], 2),
        (Until::First, [true, true, true], 0),
        (Until::Success, [false, true, true], 1),
        (Until::Success, [false, false, false], 2),
    ] {
        let mut holder = rig.running().await;
        let tasks: Vec<TaskId> = (0..4).map(|n| holder.task_id(n)).collect();
        let detached = || TaskOptions { detached: true, ..TaskOptions::default() };
        let ops = (0..4).map(|_| holder.queued(detached())).collect();
        holder.commit(ops).await;
        let claimed = rig.claim_tasks().await;
        let report = async |task: TaskId, ok: bool| {
            let claimed = claimed.iter().find(|claimed| claimed.task.new.id == task).expect("it was claimed");
            let result = if ok { done(1) } else { super::rig::failed("E") };
            rig.report(claimed, result).await.unwrap();
        };
        let open = tasks[..3].iter().map(ToString::to_string).collect();
        let wait = Wait { ends: Some(Ends { open, until }), ..for_tasks() };
        holder.known = rig.high(holder.id).await;
        let answer = holder.suspend(vec![], wait.clone()).await;
        assert_eq!(answer.committed, Committed::Suspended);
        assert_eq!(rig.execution(holder.id).await.wait, Some(wait));
        report(tasks[3], true).await;
        for (n, ok) in ends.into_iter().enumerate() {
            assert_eq!(rig.status(holder.id).await, Status::Waiting, "{until:?} {n}");
            report(tasks[n], ok).await;
            if n == decides {
                break;
            }
        }
        assert_eq!(rig.status(holder.id).await, Status::Pending, "{until:?}");
        let page = rig.storage.tasks(ORG, holder.id, PageRequest::default()).await.unwrap();
        assert!(page.items.iter().all(|task| task.new.options.detached));
        rig.storage.request_cancel(ORG, holder.id, super::rig::at_once()).await.unwrap();
    }
}
