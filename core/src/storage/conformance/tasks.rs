//! Tasks of a queue: claims, reports, retries, timeouts, doubt, quarantine.

use super::Factory;
use super::rig::{Holder, ORG, Rig, TASK, TTL, done, ended, failed, for_tasks, gracefully, json, refused};
use crate::error::Code;
use crate::id::{ExecutionId, OpId, Slot, TaskId};
use crate::journal::retry::MAX_LOSSES;
use crate::model::{
    AttemptResult, Batch, BatchEnd, ClaimedTask, Delivery, EventKind, FactKind, Failure, Resolution, ResumeRequest,
    RetryPolicy, SideEffects, Status, TaskOptions, TaskStatus, WaitReason,
};
use crate::storage::{ClaimRequest, Heartbeat, Only};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

pub(super) async fn waiting(rig: &Rig, options: TaskOptions) -> Holder<'_> {
    let mut holder = rig.running().await;
    let op = holder.queued(options);
    holder.suspend(vec![op], for_tasks()).await;
    holder
}

async fn beat(rig: &Rig, claimed: &ClaimedTask, signed: bool) -> Vec<TaskId> {
    let worker = claimed.task.worker.unwrap();
    let tasks = vec![(claimed.task.new.id, claimed.task.attempt, signed)];
    let beat = Heartbeat { org: ORG, worker, ttl: TTL, executions: vec![], tasks, progress: vec![] };
    rig.storage.heartbeat(beat).await.unwrap().cancelled_tasks
}

/// A scheduled task is claimed, run and reported; its end wakes the run.
pub async fn a_task_is_run_by_a_worker(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = waiting(&rig, TaskOptions::default()).await;
    let known = rig.high(holder.id).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.attempt, task.started_at), (TaskStatus::Pending, 0, None));
    assert_eq!((task.execution, task.slot), (holder.id, holder.slot(0)));
    rig.clock.advance(SECOND);
    let claimed = rig.claim_task().await;
    assert_eq!((claimed.task.status, claimed.task.attempt, claimed.reconcile), (TaskStatus::Running, 1, false));
    assert_eq!((claimed.task.started_at, &claimed.task.new.input), (Some(rig.now()), &json(&1)));
    assert_eq!(claimed.task, rig.task(holder.id, holder.task_id(0)).await);
    assert!(rig.claim_tasks().await.is_empty());
    rig.clock.advance(SECOND);
    rig.report(&claimed, done(5)).await.unwrap();
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.output, task.ended_at), (TaskStatus::Completed, Some(json(&5)), Some(rig.now())));
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    use EventKind::*;
    assert_eq!(rig.kinds_after(holder.id, known).await, [TaskStarted, TaskCompleted, Woken]);
    let (facts, ..) = rig.storage.facts_after(ORG, holder.id, known).await.unwrap();
    assert_eq!((facts.len(), facts[0].number), (1, known + 2));
    assert_eq!(refused(rig.report(&claimed, done(6)).await), Code::LeaseLost);
}

/// Claims of tasks take what was asked for, earliest visible first, each once.
pub async fn claims_take_what_was_asked_for(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    for _ in 0..4 {
        let op = holder.queued(TaskOptions::default());
        holder.commit(vec![op]).await;
        rig.clock.advance(SECOND);
    }
    let worker = rig.worker();
    let claim = async |change: &dyn Fn(&mut ClaimRequest)| {
        let mut request = rig.asking(worker, TASK);
        change(&mut request);
        rig.storage.claim_tasks(request).await.unwrap()
    };
    let stranger = crate::id::OrgId(rig.uuid());
    let nobody = ExecutionId(rig.uuid());
    assert!(claim(&|request| request.org = stranger).await.is_empty());
    assert!(claim(&|request| request.queue = "gpu".into()).await.is_empty());
    assert!(claim(&|request| request.kinds = ["other".into()].into()).await.is_empty());
    assert!(claim(&|request| request.limit = 0).await.is_empty());
    assert!(claim(&|request| request.only = Some(Only::Run(nobody))).await.is_empty());
    let first = claim(&|request| request.limit = 3).await;
    assert_eq!(first.iter().map(|claimed| claimed.task.slot.sequence).collect::<Vec<_>>(), [0, 1, 2]);
    let rest = claim(&|request| request.only = Some(Only::Run(holder.id))).await;
    assert_eq!(rest.iter().map(|claimed| claimed.task.slot.sequence).collect::<Vec<_>>(), [3]);
}

/// An attempt given back is claimable at once and does not count.
pub async fn a_released_attempt_is_claimable(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = waiting(&rig, TaskOptions::default()).await;
    let claimed = rig.claim_task().await;
    rig.report(&claimed, AttemptResult::Released).await.unwrap();
    let again = rig.claim_task().await;
    assert_eq!((again.task.attempt, again.task.failed_attempts, again.task.losses), (2, 0, 0));
    assert_eq!(refused(rig.report(&claimed, done(1)).await), Code::LeaseLost);
    rig.report(&again, AttemptResult::Cancelled).await.unwrap();
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Cancelled);
}

/// A claimed attempt lives by its worker's heartbeats; lost, it is made again and does not count.
pub async fn a_lost_attempt_is_made_again(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = waiting(&rig, TaskOptions::default()).await;
    let claimed = rig.claim_task().await;
    for _ in 0..3 {
        rig.pass_after(TTL / 2).await;
        assert!(beat(&rig, &claimed, false).await.is_empty());
    }
    rig.pass_after(TTL - Duration::from_micros(1)).await;
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Running);
    rig.pass_after(Duration::from_micros(1)).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.losses, task.failed_attempts, task.worker), (TaskStatus::Pending, 1, 0, None));
    assert_eq!(beat(&rig, &claimed, false).await, [holder.task_id(0)]);
    let again = rig.claim_task().await;
    assert_eq!(again.task.attempt, 2);
    assert_eq!(refused(rig.report(&claimed, done(1)).await), Code::LeaseLost);
    rig.report(&again, done(2)).await.unwrap();
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.output, Some(json(&2)));
}

/// The attempts that a failure names are those that failed, not those that were lost.
pub async fn lost_attempts_are_not_counted(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let retry = RetryPolicy { retries: 1, initial: Duration::ZERO, ..RetryPolicy::default() };
    let holder = waiting(&rig, TaskOptions { retry, ..TaskOptions::default() }).await;
    let attempts = async || rig.task(holder.id, holder.task_id(0)).await.failure.map(|failure| failure.attempts);
    for _ in 0..3 {
        rig.claim_task().await;
        rig.pass_after(TTL).await;
    }
    let claimed = rig.claim_task().await;
    assert_eq!((claimed.task.attempt, attempts().await), (4, None));
    rig.report(&claimed, failed("first")).await.unwrap();
    assert_eq!(attempts().await, Some(1));
    rig.clock.advance(Duration::from_secs(60));
    let claimed = rig.claim_task().await;
    rig.report(&claimed, failed("last")).await.unwrap();
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.attempt, task.failed_attempts), (TaskStatus::Failed, 5, 2));
    assert_eq!(attempts().await, Some(2));
}

/// Only the claimed attempt's own worker extends its lease.
pub async fn heartbeats_of_others_do_not_count(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = waiting(&rig, TaskOptions::default()).await;
    let claimed = rig.claim_task().await;
    let mut forged = claimed.clone();
    forged.task.worker = Some(rig.worker());
    assert_eq!(beat(&rig, &forged, true).await, [holder.task_id(0)]);
    let mut older = claimed.clone();
    older.task.attempt = 0;
    assert_eq!(beat(&rig, &older, true).await, [holder.task_id(0)]);
}

/// Twenty lost attempts in a row quarantine the task and pause the run; a resume tries once more.
pub async fn many_losses_quarantine(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = waiting(&rig, TaskOptions::default()).await;
    let id = holder.task_id(0);
    for _ in 0..MAX_LOSSES {
        rig.claim_task().await;
        rig.pass_after(TTL).await;
    }
    assert_eq!(rig.task(holder.id, id).await.status, TaskStatus::Quarantined);
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.wait.and_then(|wait| wait.reason)), (Status::Paused, Some(WaitReason::Quarantined)));
    assert_eq!(run.failure.and_then(|failure| failure.task), Some(id));
    let kinds = rig.kinds_after(holder.id, 0).await;
    assert_eq!(kinds[kinds.len() - 2..], [EventKind::TaskQuarantined, EventKind::Paused]);
    let run = rig.storage.resume(ORG, holder.id, ResumeRequest::default()).await.unwrap();
    assert_eq!((run.status, run.failure), (Status::Pending, None));
    let kinds = rig.kinds_after(holder.id, 0).await;
    assert_eq!(kinds[kinds.len() - 2..], [EventKind::TaskRetry, EventKind::Continued]);
    rig.claim_task().await;
    rig.pass_after(TTL).await;
    assert_eq!(rig.task(holder.id, id).await.status, TaskStatus::Quarantined);
    assert_eq!(rig.status(holder.id).await, Status::Paused);
    let answered = rig.storage.resolve_task(ORG, holder.op_id(0), Resolution::Result(json(&3))).await.unwrap();
    assert_eq!((answered.status, answered.output), (TaskStatus::Completed, Some(json(&3))));
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    let (facts, ..) = rig.storage.facts_after(ORG, holder.id, 0).await.unwrap();
    assert_eq!(facts.last().map(|fact| &fact.kind), Some(&FactKind::Task { task: id, result: Ok(json(&3)) }));
}

/// An attempt over its timeout failed with `TaskTimeout`, retries included; heartbeats do not help.
pub async fn attempts_time_out(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let retry = RetryPolicy { retries: 1, ..RetryPolicy::default() };
    let holder = waiting(&rig, TaskOptions { retry, timeout: Some(SECOND * 5), ..TaskOptions::default() }).await;
    let id = holder.task_id(0);
    let claimed = rig.claim_task().await;
    assert_eq!(rig.pass_after(SECOND * 4).await, Some(rig.now().after(SECOND)));
    assert!(beat(&rig, &claimed, true).await.is_empty());
    rig.pass_after(SECOND).await;
    let task = rig.task(holder.id, id).await;
    assert_eq!((task.status, task.failed_attempts, task.losses), (TaskStatus::Pending, 1, 0));
    assert_eq!(beat(&rig, &claimed, true).await, [id]);
    rig.clock.advance(SECOND);
    rig.claim_task().await;
    rig.pass_after(SECOND * 5).await;
    let task = rig.task(holder.id, id).await;
    assert_eq!((task.status, task.failed_attempts), (TaskStatus::Failed, 2));
    assert_eq!(task.failure.map(|failure| failure.code), Some(Code::TaskTimeout));
    assert_eq!(rig.status(holder.id).await, Status::Pending);
}

/// Silence of the task itself, not of its worker, is a timeout too.
pub async fn silent_tasks_time_out(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = waiting(&rig, TaskOptions { heartbeat_timeout: Some(SECOND * 5), ..TaskOptions::default() }).await;
    let claimed = rig.claim_task().await;
    for _ in 0..3 {
        rig.pass_after(SECOND * 4).await;
        assert!(beat(&rig, &claimed, true).await.is_empty());
    }
    rig.pass_after(SECOND * 4).await;
    assert!(beat(&rig, &claimed, false).await.is_empty());
    rig.pass_after(SECOND).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.failure.map(|failure| failure.code)), (TaskStatus::Failed, Some(Code::TaskTimeout)));
}

/// The deadline holds over all attempts, waiting ones included, and nothing is retried after it.
pub async fn deadlines_are_final(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let retry = RetryPolicy { retries: 9, ..RetryPolicy::default() };
    let options = TaskOptions { retry, deadline: Some(SECOND * 10), ..TaskOptions::default() };
    let mut holder = rig.running().await;
    let ops = vec![holder.queued(options.clone()), holder.queued(options)];
    holder.suspend(ops, for_tasks()).await;
    let request = ClaimRequest { limit: 1, ..rig.asking(rig.worker(), TASK) };
    assert_eq!(rig.storage.claim_tasks(request).await.unwrap().len(), 1);
    rig.pass_after(SECOND * 9).await;
    assert_eq!(rig.status(holder.id).await, Status::Waiting);
    rig.pass_after(SECOND).await;
    for sequence in 0..2 {
        let task = rig.task(holder.id, holder.task_id(sequence)).await;
        assert_eq!(task.status, TaskStatus::Failed);
        assert_eq!(task.failure.map(|failure| failure.code), Some(Code::TaskTimeout));
    }
    assert_eq!(rig.status(holder.id).await, Status::Pending);
}

async fn in_doubt(rig: &Rig) -> (Holder<'_>, ClaimedTask) {
    let holder = waiting(rig, TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() }).await;
    let claimed = rig.claim_task().await;
    rig.pass_after(TTL).await;
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.losses), (TaskStatus::InDoubt, 1));
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.wait.and_then(|wait| wait.reason)), (Status::Waiting, Some(WaitReason::InDoubt)));
    assert_eq!(rig.events(holder.id).await.last().unwrap().kind, EventKind::TaskInDoubt);
    assert!(rig.claim_tasks().await.is_empty());
    (holder, claimed)
}

/// A task in doubt takes its late result; the first answer wins.
pub async fn a_doubt_ends_by_a_late_result(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (holder, claimed) = in_doubt(&rig).await;
    rig.report(&claimed, done(7)).await.unwrap();
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.output, Some(json(&7)));
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    let late = rig.storage.resolve_task(ORG, holder.op_id(0), Resolution::Retry).await;
    assert_eq!(refused(late), Code::InvalidTransition);
    assert_eq!(refused(rig.report(&claimed, done(8)).await), Code::LeaseLost);
}

/// Or by an answer of a person: a result, an error, another try.
pub async fn a_doubt_ends_by_an_answer(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (holder, claimed) = in_doubt(&rig).await;
    rig.storage.resolve_task(ORG, holder.op_id(0), Resolution::Result(json(&1))).await.unwrap();
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    assert_eq!(refused(rig.report(&claimed, done(8)).await), Code::LeaseLost);

    let (holder, _) = in_doubt(&rig).await;
    let failure = Failure::new(Code::TaskFailed, "Lost", "it never arrived");
    let task = rig.storage.resolve_task(ORG, holder.op_id(0), Resolution::Error(failure)).await.unwrap();
    assert_eq!(task.status, TaskStatus::Failed);
    let failure = task.failure.unwrap();
    assert_eq!((failure.error_type.as_str(), failure.task), ("Lost", Some(task.new.id)));
    assert_eq!(rig.status(holder.id).await, Status::Pending);

    let (holder, claimed) = in_doubt(&rig).await;
    let task = rig.storage.resolve_task(ORG, holder.op_id(0), Resolution::Retry).await.unwrap();
    assert_eq!((task.status, task.losses), (TaskStatus::Pending, 0));
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.wait.and_then(|wait| wait.reason)), (Status::Waiting, Some(WaitReason::Task)));
    assert_eq!(refused(rig.report(&claimed, done(8)).await), Code::LeaseLost);
    let again = rig.claim_task().await;
    assert_eq!((again.task.attempt, again.reconcile), (2, false));
}

/// Only what is in doubt or quarantined can be answered for; unknown ops are not found.
pub async fn other_tasks_take_no_answer(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = waiting(&rig, TaskOptions::default()).await;
    let answer = |op: OpId| rig.storage.resolve_task(ORG, op, Resolution::Retry);
    assert_eq!(refused(answer(holder.op_id(0)).await), Code::InvalidTransition);
    rig.claim_task().await;
    assert_eq!(refused(answer(holder.op_id(0)).await), Code::InvalidTransition);
    assert_eq!(refused(answer(holder.op_id(5)).await), Code::NotFound);
    // Nor is one past the end of its segment an op of the next.
    let mut other = rig.running().await;
    let op = other.flush();
    other.checkpoint(vec![op], json(&1)).await;
    let once = TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() };
    let op = other.queued(once);
    other.suspend(vec![op], for_tasks()).await;
    rig.claim_tasks().await;
    rig.pass_after(TTL).await;
    assert_eq!(rig.task(other.id, other.task_id(0)).await.status, TaskStatus::InDoubt);
    let past = OpId { execution: other.id, slot: Slot { segment: 0, sequence: 1 }, once: None };
    assert_eq!(refused(answer(past).await), Code::NotFound);
    let stranger = OpId { execution: ExecutionId(rig.uuid()), slot: Slot::default(), once: None };
    assert_eq!(refused(answer(stranger).await), Code::ExecutionNotFound);
    assert_eq!(refused(rig.storage.task(ORG, holder.id, TaskId(rig.uuid())).await), Code::NotFound);
}

/// An op inside a `once` is answered for by its place there.
pub async fn a_doubt_inside_a_once_is_answered(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let mut op = holder.queued(TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() });
    let once = crate::id::OnceSlot { name: "plan".into(), n: 1 };
    op.once = Some(once.clone());
    holder.suspend(vec![op], for_tasks()).await;
    rig.claim_task().await;
    rig.pass_after(TTL).await;
    let op = OpId { execution: holder.id, slot: Slot::default(), once: Some(once) };
    let task = rig.storage.resolve_task(ORG, op, Resolution::Result(json(&1))).await.unwrap();
    assert_eq!(task.status, TaskStatus::Completed);
}

/// A lost or late `reconcile` task is asked about, as often as needed.
pub async fn reconcile_answers_doubts(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let options =
        TaskOptions { side_effects: SideEffects::Reconcile, timeout: Some(SECOND * 5), ..TaskOptions::default() };
    let holder = waiting(&rig, options).await;
    let id = holder.task_id(0);
    rig.claim_task().await;
    rig.pass_after(SECOND * 5).await;
    let task = rig.task(holder.id, id).await;
    assert_eq!((task.status, task.failed_attempts), (TaskStatus::Pending, 1));
    assert_eq!(rig.events(holder.id).await.last().unwrap().kind, EventKind::TaskInDoubt);
    assert_eq!(rig.status(holder.id).await, Status::Waiting);
    let asked = rig.claim_task().await;
    assert!(asked.reconcile);
    rig.report(&asked, AttemptResult::Released).await.unwrap();
    assert!(rig.claim_task().await.reconcile);
    rig.pass_after(SECOND * 5).await;
    let asked = rig.claim_task().await;
    assert!(asked.reconcile);
    rig.report(&asked, done(4)).await.unwrap();
    assert_eq!(rig.task(holder.id, id).await.output, Some(json(&4)));
    assert_eq!(rig.status(holder.id).await, Status::Pending);
}

/// The heartbeat tells attempts whose run wants them to stop; results are still taken until the run says otherwise.
pub async fn heartbeats_tell_of_a_stop(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let detached = TaskOptions { detached: true, ..TaskOptions::default() };
    let ops = vec![holder.queued(TaskOptions::default()), holder.queued(detached)];
    holder.commit(ops).await;
    let claimed = rig.claim_tasks().await;
    assert_eq!(claimed.len(), 2);
    rig.storage.request_cancel(ORG, holder.id, gracefully(SECOND * 60)).await.unwrap();
    for (n, claimed) in claimed.iter().enumerate() {
        assert_eq!(beat(&rig, claimed, false).await.len(), usize::from(n == 0));
    }
    // Tasks of the tidying up run on.
    let op = holder.queued(TaskOptions::default());
    holder.commit(vec![op]).await;
    let tidy = rig.claim_task().await;
    assert!(beat(&rig, &tidy, false).await.is_empty());
    holder.end(vec![], BatchEnd::Cancelled(None)).await;
    assert_eq!(beat(&rig, &tidy, false).await.len(), 1);
    assert_eq!(refused(rig.report(&tidy, done(1)).await), Code::LeaseLost);
}

/// A signal delivered `now` stops the model calls that run, and no other task; what they report then is their result.
pub async fn heartbeats_tell_of_an_interruption(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let call = TaskOptions { interruptible: true, ..TaskOptions::default() };
    let ops = vec![holder.queued(call.clone()), holder.queued(TaskOptions::default())];
    holder.commit(ops).await;
    let claimed = rig.claim_tasks().await;
    let later = holder.queued(call);
    holder.commit(vec![later]).await;
    rig.signal(holder.id, "steer").await;
    assert!(beat(&rig, &claimed[0], false).await.is_empty(), "a signal of the next step interrupts nothing");
    let mut signal = rig.new_signal(holder.id, "steer");
    signal.delivery = Delivery::Now;
    rig.storage.store_signal(signal).await.unwrap();
    let stopped = [beat(&rig, &claimed[0], false).await.len(), beat(&rig, &claimed[1], false).await.len()];
    assert_eq!(stopped, [1, 0]);
    // What had not begun was not in flight.
    let later = rig.claim_task().await;
    assert!(beat(&rig, &later, false).await.is_empty());
    rig.report(&claimed[0], done(1)).await.unwrap();
    assert_eq!(refused(rig.report(&claimed[0], done(2)).await), Code::LeaseLost);
    let task = rig.task(holder.id, claimed[0].task.new.id).await;
    assert_eq!((task.status, task.output), (TaskStatus::Completed, Some(json(&1))));
}

/// A call that waits to be made again has nobody who could hear: a signal delivered `now` ends it, without a word, and wakes
/// the run. What has to be asked first whether it took effect stays.
pub async fn an_interruption_ends_a_call_between_two_attempts(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let retry = RetryPolicy { retries: 3, initial: SECOND * 600, ..RetryPolicy::default() };
    let call = TaskOptions { interruptible: true, retry, ..TaskOptions::default() };
    let asks = TaskOptions { side_effects: SideEffects::Reconcile, timeout: Some(SECOND), ..call.clone() };
    let ops = vec![
        holder.queued(call.clone()),
        holder.queued(TaskOptions { interruptible: false, ..call }),
        holder.queued(asks),
    ];
    holder.suspend(ops, for_tasks()).await;
    for claimed in rig.claim_tasks().await {
        if claimed.task.new.options.side_effects == SideEffects::Idempotent {
            rig.report(&claimed, failed("Down")).await.unwrap();
        }
    }
    rig.pass_after(SECOND).await;
    rig.signal(holder.id, "steer").await;
    assert_eq!(rig.status(holder.id).await, Status::Waiting, "a signal of the next step interrupts nothing");
    let mut signal = rig.new_signal(holder.id, "steer");
    signal.delivery = Delivery::Now;
    assert!(rig.storage.store_signal(signal.clone()).await.unwrap().resumed);
    assert!(rig.storage.store_signal(signal).await.unwrap().repeated);
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    let task = rig.task(holder.id, holder.task_id(0)).await;
    assert_eq!((task.status, task.output, task.attempt), (TaskStatus::Completed, Some(json(&"")), 1));
    for other in [1, 2] {
        assert_eq!(rig.task(holder.id, holder.task_id(other)).await.status, TaskStatus::Pending);
    }
}

/// What an attempt tells of how far it is stays with its task, inline or claimed, and what a former one tells does not.
pub async fn progress_is_of_the_attempt_that_runs(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.inline(TaskOptions::default()), holder.queued(TaskOptions::default())];
    holder.commit(ops).await;
    let claimed = rig.claim_task().await;
    let worker = claimed.task.worker.unwrap();
    let ids = [holder.task_id(0), holder.task_id(1)];
    let tell = async |attempt: u32, report: &str| {
        let progress = ids.iter().map(|id| (*id, attempt, report.to_owned())).collect();
        let beat = Heartbeat { org: ORG, worker, ttl: TTL, executions: vec![], tasks: vec![], progress };
        rig.storage.heartbeat(beat).await.unwrap();
        [rig.task(holder.id, ids[0]).await.progress, rig.task(holder.id, ids[1]).await.progress]
    };
    let half = Some("{\"fraction\":0.5}".to_owned());
    assert_eq!(tell(1, "{\"fraction\":0.5}").await, [half.clone(), half.clone()]);
    assert_eq!(tell(2, "{\"fraction\":0.9}").await, [half.clone(), half.clone()]);
    rig.report(&claimed, done(1)).await.unwrap();
    let whole = Some("{\"fraction\":1}".to_owned());
    assert_eq!(tell(1, "{\"fraction\":1}").await, [whole, half]);
}

/// Tasks of a paused run still run; their facts wait for it.
pub async fn tasks_of_a_paused_run_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.queued(TaskOptions::default());
    holder.end(vec![op], BatchEnd::Pause { reason: WaitReason::Budget, failure: None }).await;
    let claimed = rig.claim_task().await;
    rig.report(&claimed, done(1)).await.unwrap();
    assert_eq!(rig.status(holder.id).await, Status::Paused);
    rig.storage.resume(ORG, holder.id, ResumeRequest::default()).await.unwrap();
    assert_eq!(rig.claim(holder.id).await.load().await.facts.len(), 1);
}

/// A detached task of an ended run is not made again: lost or out of time, that is its end.
pub async fn a_detached_task_ends_with_its_attempt(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let detached = TaskOptions { detached: true, ..TaskOptions::default() };
    let late = TaskOptions { timeout: Some(SECOND), ..detached.clone() };
    let ops = vec![holder.queued(detached.clone()), holder.queued(late), holder.queued(detached)];
    holder.commit(ops).await;
    let mut claimed = rig.claim_tasks().await;
    claimed.sort_by_key(|claimed| claimed.task.slot);
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;
    let before = rig.events(holder.id).await;
    rig.report(&claimed[2], AttemptResult::Released).await.unwrap();
    assert_eq!(rig.task(holder.id, holder.task_id(2)).await.status, TaskStatus::Cancelled);
    rig.pass_after(SECOND).await;
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Running);
    assert_eq!(rig.task(holder.id, holder.task_id(1)).await.status, TaskStatus::Failed);
    rig.pass_after(TTL).await;
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Cancelled);
    assert_eq!(rig.events(holder.id).await, before);
}

/// The report of a detached task of an ended run changes its row and tells nobody.
pub async fn a_detached_task_may_end_after_its_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.queued(TaskOptions { detached: true, ..TaskOptions::default() });
    holder.commit(vec![op]).await;
    let claimed = rig.claim_task().await;
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;
    let before = rig.events(holder.id).await;
    rig.report(&claimed, done(1)).await.unwrap();
    assert_eq!(rig.task(holder.id, holder.task_id(0)).await.status, TaskStatus::Completed);
    assert_eq!(rig.events(holder.id).await, before);
}

/// A run has so many open tasks: what calls for more is refused, and accepted where some end in the same batch.
pub async fn open_tasks_have_a_limit(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let detached = TaskOptions { detached: true, ..TaskOptions::default() };
    let ops = (0..Batch::MOST_OPEN).map(|_| holder.queued(detached.clone())).collect();
    holder.commit(ops).await;
    let more = vec![holder.queued(TaskOptions::default())];
    let mut batch = holder.batch(more, BatchEnd::Continue);
    let high = rig.high(holder.id).await;
    assert_eq!(refused(holder.try_commit(batch.clone()).await), Code::LimitReached);
    assert_eq!(rig.high(holder.id).await, high, "nothing was written");
    batch.orphaned.push(7);
    holder.commit_batch(batch).await;
    let ends_here = vec![holder.inline(TaskOptions::default())];
    let mut batch = holder.batch(ends_here, BatchEnd::Continue);
    assert_eq!(refused(holder.try_commit(batch.clone()).await), Code::LimitReached);
    batch.attempts.push(ended(holder.next - 1, 1, done(1)));
    holder.commit_batch(batch).await;
}
