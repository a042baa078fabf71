//! Claims of runs and how they end: one holder at a time, expiry, signs of life, runs given back.

use super::Factory;
use super::rig::{AGENT, Holder, ORG, Rig, TTL, done, for_signal, for_tasks, gracefully, json, refused};
use crate::error::Code;
use crate::id::{ExecutionId, OrgId, TaskId};
use crate::journal::retry::MAX_LOSSES;
use crate::model::{
    BatchEnd, Claim, EventKind, Lease, NewExecution, ResumeRequest, SideEffects, Status, TaskOptions, TaskStatus, Wait,
    WaitReason,
};
use crate::storage::{ClaimRequest, Heartbeat, Only, WorkerInfo};
use std::time::Duration;

/// One claim at a time, each under a higher epoch.
pub async fn a_run_has_one_holder(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = rig.running().await;
    assert!(rig.try_claim(holder.id).await.is_none());
    let run = rig.execution(holder.id).await;
    assert_eq!((run.epoch, run.worker), (1, Some(holder.lease.worker)));
    assert_eq!(run.lease_expires, Some(rig.now().after(TTL)));
    let event = rig.events(holder.id).await.pop().unwrap();
    let worker = holder.lease.worker.to_string();
    assert_eq!((event.kind, event.data), (EventKind::Resumed, serde_json::json!({ "epoch": 1, "worker": worker })));
    assert_eq!(event.number, holder.known);
}

/// Claims take what was asked for: org, queue, kinds, one run, at most so many.
pub async fn claims_take_what_was_asked_for(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let plain = rig.start().await;
    let gpu = rig.start_as(|new| new.queue = "gpu".into()).await;
    let other = rig.start_as(|new| new.kind = "other".into()).await;
    let worker = rig.worker();
    let claim = async |change: &dyn Fn(&mut ClaimRequest)| {
        let mut request = rig.asking(worker, AGENT);
        change(&mut request);
        let claims = rig.storage.claim_agents(request).await.unwrap();
        claims.iter().map(|claim| claim.execution.new.id).collect::<Vec<_>>()
    };
    let stranger = OrgId(rig.uuid());
    assert!(claim(&|request| request.org = stranger).await.is_empty());
    assert!(claim(&|request| request.kinds = [].into()).await.is_empty());
    assert!(claim(&|request| request.limit = 0).await.is_empty());
    assert!(claim(&|request| request.only = Some(Only::Run(other))).await.is_empty());
    assert_eq!(claim(&|request| request.queue = "gpu".into()).await, [gpu]);
    assert_eq!(claim(&|request| request.kinds = ["x".into(), "other".into()].into()).await, [other]);
    assert_eq!(claim(&|_| {}).await, [plain]);
}

/// Highest priority first, then the oldest.
pub async fn claims_have_an_order(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut expected: Vec<(i32, u64, ExecutionId)> = Vec::new();
    for n in 0..6u64 {
        let priority = [0, 5, -1][n as usize % 3];
        let id = rig.start_as(|new| new.priority = priority).await;
        expected.push((-priority, n, id));
        rig.clock.advance(Duration::from_millis(1));
    }
    expected.sort_unstable();
    let worker = rig.worker();
    let mut claimed = Vec::new();
    for _ in 0..3 {
        let request = ClaimRequest { limit: 2, ..rig.asking(worker, AGENT) };
        let claims = rig.storage.claim_agents(request).await.unwrap();
        assert_eq!(claims.len(), 2);
        claimed.extend(claims.into_iter().map(|claim| claim.execution.new.id));
    }
    assert_eq!(claimed, expected.into_iter().map(|(.., id)| id).collect::<Vec<_>>());
}

/// Workers that claim at the same time share the work: nothing is handed out twice.
pub async fn claims_are_exclusive(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    for _ in 0..40 {
        rig.start().await;
    }
    let claims = (0..8).map(|_| {
        let request = ClaimRequest { limit: 7, ..rig.asking(rig.worker(), AGENT) };
        rig.storage.claim_agents(request)
    });
    let mut ids: Vec<ExecutionId> = Vec::new();
    for claims in futures::future::join_all(claims).await {
        ids.extend(claims.unwrap().iter().map(|claim| claim.execution.new.id));
    }
    assert_eq!(ids.len(), 40);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 40);
}

/// An expired lease makes the run PENDING; its old holder is fenced off.
pub async fn a_lease_expires(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut old = rig.running().await;
    assert_eq!(rig.pass_after(TTL - Duration::from_micros(1)).await, Some(rig.now().after(Duration::from_micros(1))));
    assert_eq!(rig.status(old.id).await, Status::Running);
    assert_eq!(rig.pass_after(Duration::from_micros(1)).await, None);
    let run = rig.execution(old.id).await;
    assert_eq!((run.status, run.worker, run.lease_expires, run.losses), (Status::Pending, None, None, 1));
    let event = rig.events(old.id).await.pop().unwrap();
    assert_eq!((event.kind, event.data), (EventKind::LeaseLost, serde_json::json!({ "epoch": 1, "losses": 1 })));
    assert_eq!(refused(old.try_commit(old.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
    let mut new = rig.claim(old.id).await;
    new.commit(vec![]).await;
    assert_eq!(rig.execution(old.id).await.losses, 0);
    assert_eq!(refused(old.try_commit(old.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
}

/// A lease that is over but not yet taken away still serves its holder.
pub async fn a_late_holder_may_still_commit(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    rig.clock.advance(TTL * 2);
    holder.commit(vec![]).await;
    let beat = Heartbeat {
        org: ORG,
        worker: holder.lease.worker,
        ttl: TTL,
        executions: vec![(holder.id, 1, holder.known)],
        tasks: vec![],
        progress: vec![],
    };
    assert!(rig.storage.heartbeat(beat).await.unwrap().lost_executions.is_empty());
    rig.pass().await;
    assert_eq!(rig.status(holder.id).await, Status::Running);
}

/// One heartbeat extends all leases of a worker and tells what it has lost and what is new.
pub async fn heartbeats_extend_and_tell(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let worker = rig.worker();
    let (a, b) = (rig.start().await, rig.start().await);
    let claims = rig.storage.claim_agents(rig.asking(worker, AGENT)).await.unwrap();
    assert_eq!(claims.len(), 2);
    let beat = |known: u64, epoch: u64| Heartbeat {
        org: ORG,
        worker,
        ttl: TTL,
        executions: vec![(a, 1, known), (b, epoch, u64::MAX)],
        tasks: vec![],
        progress: vec![],
    };
    for _ in 0..5 {
        rig.pass_after(TTL / 2).await;
        let answer = rig.storage.heartbeat(beat(claims[0].high, 1)).await.unwrap();
        assert!(answer.lost_executions.is_empty() && answer.stale_executions.is_empty());
    }
    let number = rig.high(a).await + 1;
    rig.signal(a, "news").await;
    let answer = rig.storage.heartbeat(beat(claims[0].high, 7)).await.unwrap();
    assert_eq!((answer.stale_executions, answer.lost_executions), (vec![a], vec![b]));
    let answer = rig.storage.heartbeat(beat(number, 1)).await.unwrap();
    assert!(answer.stale_executions.is_empty());
    rig.pass_after(TTL).await;
    let answer = rig.storage.heartbeat(beat(number, 1)).await.unwrap();
    assert_eq!(answer.lost_executions, [a, b]);
    let unknown = Heartbeat {
        org: ORG,
        worker,
        ttl: TTL,
        executions: vec![(ExecutionId(rig.uuid()), 1, 0)],
        tasks: vec![(TaskId(rig.uuid()), 1, true)],
        progress: vec![],
    };
    let answer = rig.storage.heartbeat(unknown).await.unwrap();
    assert_eq!((answer.lost_executions.len(), answer.cancelled_tasks.len()), (1, 1));
}

/// A run that is given back is PENDING at once, and that is no loss.
pub async fn a_released_run_is_pending(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    holder.commit(vec![]).await;
    rig.storage.release(ORG, holder.id, holder.lease).await.unwrap();
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker, run.losses, run.epoch), (Status::Pending, None, 0, 1));
    let event = rig.events(holder.id).await.pop().unwrap();
    assert_eq!((event.kind, event.data), (EventKind::Woken, serde_json::json!({ "reason": "released" })));
    assert_eq!(refused(rig.storage.release(ORG, holder.id, holder.lease).await), Code::LeaseLost);
    assert_eq!(rig.claim(holder.id).await.lease.epoch, 2);
}

/// Twenty claims lost in a row without a commit: a person must look. A resume tries once more.
pub async fn many_losses_quarantine(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start().await;
    for n in 1..=MAX_LOSSES {
        rig.claim(id).await;
        rig.pass_after(TTL).await;
        assert_eq!(rig.execution(id).await.losses, n);
    }
    let run = rig.execution(id).await;
    assert_eq!((run.status, run.wait.and_then(|wait| wait.reason)), (Status::Paused, Some(WaitReason::Quarantined)));
    assert!(run.failure.is_some());
    let kinds = rig.kinds_after(id, 0).await;
    assert_eq!(kinds[kinds.len() - 2..], [EventKind::LeaseLost, EventKind::Paused]);
    rig.storage.resume(ORG, id, ResumeRequest::default()).await.unwrap();
    let mut holder = rig.claim(id).await;
    holder.commit(vec![]).await;
    rig.pass_after(TTL).await;
    assert_eq!((rig.status(id).await, rig.execution(id).await.losses), (Status::Pending, 1));

    let id = rig.start().await;
    for _ in 1..MAX_LOSSES {
        rig.claim(id).await;
        rig.pass_after(TTL).await;
    }
    rig.claim(id).await.commit(vec![]).await;
    rig.pass_after(TTL).await;
    assert_eq!(rig.execution(id).await.losses, 1);
}

/// A resume of a run quarantined for its losses gives it one more chance.
pub async fn a_quarantined_run_has_one_more_chance(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start().await;
    for _ in 0..MAX_LOSSES {
        rig.claim(id).await;
        rig.pass_after(TTL).await;
    }
    rig.storage.resume(ORG, id, ResumeRequest::default()).await.unwrap();
    rig.claim(id).await;
    rig.pass_after(TTL).await;
    assert_eq!(rig.status(id).await, Status::Paused);
}

/// A worker that leaves gives back all it holds.
pub async fn a_worker_that_leaves_gives_all_back(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let worker = rig.worker();
    let info = WorkerInfo { org: ORG, id: worker, name: "w".into(), queues: vec!["default".into()], elsewhere: false };
    rig.storage.register_worker(info.clone()).await.unwrap();
    rig.storage.register_worker(info).await.unwrap();
    let mut asking = rig.running().await;
    let once = TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() };
    let ops = vec![asking.queued(TaskOptions::default()), asking.queued(once)];
    asking.suspend(ops, for_tasks()).await;
    let tasks = rig.claim_tasks_as(worker).await;
    assert_eq!(tasks.len(), 2);
    let id = rig.start().await;
    let request = ClaimRequest { only: Some(Only::Run(id)), ..rig.asking(worker, AGENT) };
    rig.storage.claim_agents(request).await.unwrap();
    rig.storage.unregister_worker(ORG, worker).await.unwrap();
    assert_eq!(rig.status(id).await, Status::Pending);
    assert_eq!(rig.task(asking.id, asking.task_id(0)).await.status, TaskStatus::Pending);
    assert_eq!(rig.task(asking.id, asking.task_id(1)).await.status, TaskStatus::InDoubt);
    let again = rig.claim_task().await;
    rig.report(&again, done(1)).await.unwrap();
    rig.storage.unregister_worker(ORG, worker).await.unwrap();
    assert_eq!(rig.status(asking.id).await, Status::Pending);
}

/// Of the runs of one concurrency key and org one is RUNNING at a time; waiting ones do not hold it.
pub async fn a_concurrency_key_has_one_runner(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut runs = Vec::new();
    for key in [Some("k"), Some("k"), None, Some("other"), Some("k")] {
        runs.push(rig.start_as(|new| new.concurrency_key = key.map(Into::into)).await);
        rig.clock.advance(Duration::from_millis(1));
    }
    let claim = async |limit: usize| {
        let request = ClaimRequest { limit, ..rig.asking(rig.worker(), AGENT) };
        rig.storage.claim_agents(request).await.unwrap()
    };
    let ids = |claims: &[Claim]| claims.iter().map(|claim| claim.execution.new.id).collect::<Vec<_>>();
    // Those that are blocked take nobody's place.
    let first = claim(3).await;
    assert_eq!(ids(&first), [runs[0], runs[2], runs[3]]);
    assert!(claim(9).await.is_empty());
    assert!(rig.try_claim(runs[1]).await.is_none());
    Holder::of(&rig, &first[0]).suspend(vec![], for_signal("go")).await;
    let second = claim(9).await;
    assert_eq!(ids(&second), [runs[1]]);
    // Woken, it waits for its turn as all others; a stop is not kept waiting.
    rig.signal(runs[0], "go").await;
    assert!(claim(9).await.is_empty());
    rig.storage.request_cancel(ORG, runs[0], gracefully(TTL)).await.unwrap();
    assert_eq!(ids(&claim(9).await), [runs[0]]);
    let mut holder = Holder::of(&rig, &second[0]);
    holder.commit_batch(holder.batch(vec![], BatchEnd::Complete(json(&1)))).await;
    assert_eq!(ids(&claim(9).await), [runs[4]]);
    rig.pass_after(TTL).await;
    assert!(ids(&claim(9).await).contains(&runs[4]));
}

/// A key may have more than one runner; those that wait leave their places to others.
pub async fn a_concurrency_key_may_have_more_runners(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let keyed = |new: &mut NewExecution| {
        new.concurrency_key = Some("k".into());
        new.concurrency_limit = Some(3);
    };
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(rig.start_as(keyed).await);
        rig.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(rig.execution(runs[0]).await.new.concurrency_limit, Some(3));
    let claim = async |limit: usize| {
        let request = ClaimRequest { limit, ..rig.asking(rig.worker(), AGENT) };
        let claims = rig.storage.claim_agents(request).await.unwrap();
        claims.into_iter().map(|claim| (claim.execution.new.id, claim)).collect::<Vec<_>>()
    };
    let ids = |claims: &[(ExecutionId, Claim)]| claims.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let first = claim(2).await;
    assert_eq!(ids(&first), runs[..2]);
    let second = claim(9).await;
    assert_eq!(ids(&second), runs[2..3]);
    assert!(claim(9).await.is_empty());
    // The place in the middle becomes free.
    Holder::of(&rig, &first[1].1).suspend(vec![], for_signal("go")).await;
    let third = claim(9).await;
    assert_eq!(ids(&third), runs[3..4]);
    // Its last holder takes it up again only where there is a place.
    let mut parked = Holder::of(&rig, &first[1].1);
    parked.base += 1;
    assert_eq!(refused(parked.try_commit(parked.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
    let mut ended = Holder::of(&rig, &second[0].1);
    ended.commit_batch(ended.batch(vec![], BatchEnd::Complete(json(&1)))).await;
    parked.commit(vec![]).await;
    assert_eq!(rig.status(runs[1]).await, Status::Running);
    assert!(claim(9).await.is_empty());
    // One that lets fewer beside it waits until there are.
    rig.start_as(|new| new.concurrency_key = Some("k".into())).await;
    for (_, claim) in [&first[0], &third[0]] {
        let mut holder = Holder::of(&rig, claim);
        holder.commit_batch(holder.batch(vec![], BatchEnd::Complete(json(&1)))).await;
    }
    assert_eq!(ids(&claim(9).await), runs[4..]);
}

/// The last holder of a waiting run takes it up again only while no other run of its key is RUNNING.
pub async fn a_parked_run_does_not_share_its_key(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let keyed = async || rig.start_as(|new| new.concurrency_key = Some("k".into())).await;
    let mut parked = rig.claim(keyed().await).await;
    parked.suspend(vec![], Wait { host_timer: true, ..for_signal("go") }).await;
    let mut other = rig.claim(keyed().await).await;
    let before = rig.high(parked.id).await;
    assert_eq!(refused(parked.try_commit(parked.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
    assert_eq!((rig.status(parked.id).await, rig.high(parked.id).await), (Status::Waiting, before));
    rig.storage.release(ORG, parked.id, parked.lease).await.unwrap();
    assert!(rig.try_claim(parked.id).await.is_none());
    other.suspend(vec![], for_signal("go")).await;
    let mut parked = rig.claim(parked.id).await;
    parked.suspend(vec![], for_signal("go")).await;
    parked.commit(vec![]).await;
    assert_eq!(rig.status(parked.id).await, Status::Running);
}

/// A run that a timer of its last holder's process may wake is entered again when that process is gone.
pub async fn a_host_timer_ends_with_its_process(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let timed = || Wait { host_timer: true, ..for_signal("go") };
    let woken = async |id| {
        let event = rig.events(id).await.pop().unwrap();
        (rig.status(id).await, event.kind == EventKind::Woken && event.data["reason"] == "host_timer")
    };
    // Its lease as a worker lapses: heartbeats keep it waiting, silence does not.
    let mut silent = rig.running().await;
    let worker = silent.lease.worker;
    silent.suspend(vec![], timed()).await;
    for _ in 0..4 {
        rig.pass_after(TTL / 2).await;
        let beat = Heartbeat { org: ORG, worker, ttl: TTL, executions: vec![], tasks: vec![], progress: vec![] };
        rig.storage.heartbeat(beat).await.unwrap();
    }
    assert_eq!(rig.pass_after(TTL - Duration::from_micros(1)).await, Some(rig.now().after(Duration::from_micros(1))));
    assert_eq!(rig.execution(silent.id).await.wait, Some(timed()));
    assert_eq!(rig.status(silent.id).await, Status::Waiting);
    assert_eq!(rig.pass_after(Duration::from_micros(1)).await, None);
    assert_eq!(woken(silent.id).await, (Status::Pending, true));
    assert_eq!(rig.execution(silent.id).await.losses, 0);
    // It leaves, or puts this copy away.
    let mut left = rig.claim(silent.id).await;
    left.suspend(vec![], timed()).await;
    rig.storage.unregister_worker(ORG, left.lease.worker).await.unwrap();
    assert_eq!(woken(left.id).await, (Status::Pending, true));
    let mut away = rig.claim(left.id).await;
    away.suspend(vec![], timed()).await;
    let stranger = Lease { worker: rig.worker(), ..away.lease };
    assert_eq!(refused(rig.storage.release(ORG, away.id, stranger).await), Code::LeaseLost);
    assert_eq!(refused(rig.storage.release(ORG, away.id, Lease { epoch: 1, ..away.lease }).await), Code::LeaseLost);
    rig.storage.release(ORG, away.id, away.lease).await.unwrap();
    assert_eq!(woken(away.id).await, (Status::Pending, true));
    assert_eq!(refused(rig.storage.release(ORG, away.id, away.lease).await), Code::LeaseLost);
    // A signal wakes it as any other; the timer's end is a commit of the parked copy.
    let mut holder = rig.claim(away.id).await;
    holder.suspend(vec![], timed()).await;
    holder.commit(vec![]).await;
    assert_eq!(rig.status(holder.id).await, Status::Running);
    holder.suspend(vec![], timed()).await;
    rig.signal(holder.id, "go").await;
    rig.storage.unregister_worker(ORG, holder.lease.worker).await.unwrap();
    assert_eq!(woken(holder.id).await, (Status::Pending, false));
}

/// A run that only facts can wake costs nothing when its last holder is gone.
pub async fn a_plain_wait_outlives_its_process(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    holder.suspend(vec![], for_signal("go")).await;
    assert_eq!(refused(rig.storage.release(ORG, holder.id, holder.lease).await), Code::LeaseLost);
    assert_eq!(rig.pass_after(TTL * 2).await, None);
    rig.storage.unregister_worker(ORG, holder.lease.worker).await.unwrap();
    assert_eq!(rig.status(holder.id).await, Status::Waiting);
}

/// A claim has the run as it is, and the count of commits goes on.
pub async fn a_claim_has_the_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start().await;
    let claim = rig.try_claim(id).await.unwrap();
    assert_eq!(format!("{:?}", claim.execution), format!("{:?}", rig.execution(id).await));
    assert_eq!(claim.high, rig.high(id).await);
    let mut holder = Holder::of(&rig, &claim);
    holder.checkpoint(vec![], json(&1)).await;
    rig.storage.release(ORG, id, holder.lease).await.unwrap();
    let claim = rig.try_claim(id).await.unwrap();
    assert_eq!((claim.execution.base, claim.execution.segment, claim.lease.epoch), (1, 1, 2));
}

/// A worker is of its org: another org's calls about its id change nothing and tell nothing.
pub async fn a_worker_belongs_to_its_org(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (worker, stranger) = (rig.worker(), OrgId(rig.uuid()));
    let info = |org, name: &str| WorkerInfo {
        org,
        id: worker,
        name: name.into(),
        queues: vec!["default".into()],
        elsewhere: false,
    };
    rig.storage.register_worker(info(ORG, "own")).await.unwrap();
    let mut timed = rig.running_as(worker).await;
    timed.suspend(vec![], Wait { host_timer: true, ..for_signal("go") }).await;
    let mut asking = rig.running().await;
    let op = asking.queued(TaskOptions::default());
    asking.suspend(vec![op], for_tasks()).await;
    let task = rig.claim_tasks_as(worker).await.remove(0);
    let held = rig.running_as(worker).await;
    let before = rig.execution(held.id).await.lease_expires;

    // One of the same id elsewhere: it comes, beats for what it does not have, and goes.
    rig.storage.register_worker(info(stranger, "other")).await.unwrap();
    let beat = Heartbeat {
        org: stranger,
        worker,
        ttl: TTL * 100,
        executions: vec![(held.id, held.lease.epoch, held.known)],
        tasks: vec![(task.task.new.id, task.task.attempt, true)],
        progress: vec![(task.task.new.id, task.task.attempt, "{}".into())],
    };
    let answer = rig.storage.heartbeat(beat).await.unwrap();
    assert_eq!((answer.lost_executions, answer.cancelled_tasks), (vec![held.id], vec![task.task.new.id]));
    rig.keeper().cut_leases(stranger, worker, Duration::ZERO).await.unwrap();
    rig.storage.unregister_worker(stranger, worker).await.unwrap();
    assert_eq!((rig.status(held.id).await, rig.execution(held.id).await.lease_expires), (Status::Running, before));
    assert_eq!(rig.status(timed.id).await, Status::Waiting);
    let untouched = rig.task(asking.id, task.task.new.id).await;
    assert_eq!((untouched.status, untouched.progress), (TaskStatus::Running, None));

    // Another's long life keeps no timer of this org waiting.
    rig.storage.register_worker(info(stranger, "other")).await.unwrap();
    let beat = Heartbeat { org: stranger, worker, ttl: TTL * 100, executions: vec![], tasks: vec![], progress: vec![] };
    rig.storage.heartbeat(beat).await.unwrap();
    rig.pass_after(TTL).await;
    assert_eq!(rig.status(timed.id).await, Status::Pending);
}

/// Cut leases end sooner, never later; the next sign of life makes them whole again.
pub async fn a_lease_is_cut(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (left, whole) = (Duration::from_secs(2), rig.now().after(TTL));
    let mut holder = rig.running().await;
    let other = rig.running().await;
    let op = holder.queued(TaskOptions::default());
    holder.suspend(vec![op], for_tasks()).await;
    let claimed = rig.claim_task().await;
    let working = claimed.task.worker.unwrap();
    for (worker, expected) in [(other.lease.worker, left), (working, left), (other.lease.worker, TTL * 2)] {
        rig.keeper().cut_leases(ORG, worker, expected).await.unwrap();
    }
    assert_eq!(rig.execution(other.id).await.lease_expires, Some(rig.now().after(left)));
    let executions = vec![(other.id, other.lease.epoch, other.known)];
    let worker = other.lease.worker;
    let beat = Heartbeat { org: ORG, worker, ttl: TTL, executions, tasks: vec![], progress: vec![] };
    rig.storage.heartbeat(beat).await.unwrap();
    assert_eq!(rig.execution(other.id).await.lease_expires, Some(whole));
    rig.keeper().cut_leases(ORG, other.lease.worker, left).await.unwrap();
    rig.pass_after(left).await;
    assert_eq!(rig.status(other.id).await, Status::Pending);
    let task = rig.task(holder.id, claimed.task.new.id).await;
    assert_eq!((task.status, task.losses), (TaskStatus::Pending, 1));
}
