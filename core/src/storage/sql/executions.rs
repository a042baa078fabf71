//! Requests about a run from outside: start, signal, cancel, resume, and decisions about tasks and divergences.

use super::database_error::unknown;
use super::fork;
use super::hand_off::successor;
use super::log::Log;
use super::op::append;
use super::request::position;
use super::run::{Cause, Origin, Run};
use super::{RunOf, Statements};
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, Slot};
use crate::journal::retry::{Verdict, described, last_life};
use crate::model::{
    Created, Delivery, Divergence, EventKind, Execution, ForkFrom, ForkRequest, Label, LabelKey, NewEntry,
    NewExecution, NewOp, NewSignal, OpBody, OpKind, Purse, Resolution, ResumeRequest, SignalStored, StartLimits,
    Status, Task, TaskStatus, WaitReason,
};
use crate::payload::Payload;
use crate::storage::limits::{self, DEFAULT_TAIL, DEFAULT_TOTAL_STEPS};
use serde_json::json;
use std::time::Duration;

/// Starts a run.
pub(in crate::storage) fn create<T: Statements>(tx: &T, new: &NewExecution) -> Result<Created, T::Fault> {
    create_below(tx, new, None)
}

/// Starts a run as the child of another one, where a parent is given.
pub(super) fn create_below<T: Statements>(
    tx: &T,
    new: &NewExecution,
    parent: Option<&RunOf<T>>,
) -> Result<Created, T::Fault> {
    if let Some(run) = start(tx, new, parent)? {
        return Ok(Created { execution: tx.execution(T::key(&run.home))?, existing: false });
    }
    let execution = tx.execution_of(new.org, new.id)?;
    if execution.is_of(new) {
        return Ok(Created { execution, existing: true });
    }
    Err(execution.is_in_the_way().into())
}

/// Writes a new run and announces it. None if its id is taken.
pub(super) fn start<T: Statements>(
    tx: &T,
    new: &NewExecution,
    parent: Option<&RunOf<T>>,
) -> Result<Option<RunOf<T>>, T::Fault> {
    let Some(run) = insert(tx, new, None, parent)? else { return Ok(None) };
    let mut log = Log::open(tx, &run)?;
    log.event(EventKind::Created, &json!({ "kind": new.kind, "queue": new.queue }))?;
    run.announce(tx);
    Ok(Some(run))
}

/// A new run that is not written yet, with its limits.
pub(super) fn fresh<T: Statements>(tx: &T, new: &NewExecution, parent: Option<&RunOf<T>>) -> (RunOf<T>, StartLimits) {
    let mut limits = new.limits.clone();
    if limits.max_steps.is_some() {
        limits.max_total_steps.get_or_insert(DEFAULT_TOTAL_STEPS);
    }
    let mut run = Run::new(T::home(new.org), new, tx.now());
    if let Some(parent) = parent {
        (run.parent, run.root, run.depth) = (Some(parent.id), parent.root, parent.depth + 1);
    }
    (run, limits)
}

/// Writes the row of a new run. None if its id is taken.
pub(super) fn insert<T: Statements>(
    tx: &T,
    new: &NewExecution,
    origin: Option<&Origin<T::Key>>,
    parent: Option<&RunOf<T>>,
) -> Result<Option<RunOf<T>>, T::Fault> {
    let (mut run, limits) = fresh(tx, new, parent);
    run.forked = origin.is_some();
    if !tx.insert_run(&mut run, new, &limits, origin)? {
        return Ok(None);
    }
    tx.refer(&run, &new.input)?;
    Ok(Some(run))
}

/// Stores a signal and wakes a run that waits for it.
pub(in crate::storage) fn store_signal<T: Statements>(tx: &T, new: &NewSignal) -> Result<SignalStored, T::Fault> {
    let mut run = tx.find_run(new.org, new.execution)?;
    if let Some((id, name, payload)) = tx.known_signal(&run, new)? {
        new.repeats(&name, &payload)?;
        return Ok(SignalStored { id, repeated: true, resumed: false });
    }
    if let Some(holder) = successor(tx, &run)? {
        return store_signal(tx, &NewSignal { execution: holder.id, ..new.clone() });
    }
    if run.status.is_terminal() {
        return Err(tx.execution(T::key(&run.home))?.takes_no_signals().into());
    }
    let mut log = Log::open(tx, &run)?;
    // Each signal is an event, so a run with fewer events than the limit cannot have a full mailbox.
    if log.high >= limits::PENDING_SIGNALS as u64 && tx.has_full_mailbox(&run)? {
        return Err(limits::mailbox_is_full(run.id).into());
    }
    let number = log.event(EventKind::Signal, &json!({ "signal": new.id, "name": new.name }))?;
    tx.refer(&run, &new.payload)?;
    tx.put_signal(&run, number, new)?;
    let waited = run.wait.clone();
    let mut resumed = run.wake(&mut log, Cause::Signal(&new.name))?;
    if new.delivery == Delivery::Now {
        let waits = run.status == Status::Waiting;
        for mut call in tx.open_tasks(&run)? {
            call.interrupt(&mut run, &mut log)?;
        }
        resumed |= waits && run.status != Status::Waiting;
    }
    if run.wait != waited {
        run.save(tx)?;
    }
    Ok(SignalStored { id: new.id, repeated: false, resumed })
}

/// Continues a paused run.
pub(in crate::storage) fn resume<T: Statements>(
    tx: &T,
    org: OrgId,
    id: ExecutionId,
    request: &ResumeRequest,
) -> Result<Execution, T::Fault> {
    let mut run = tx.find_run(org, id)?;
    if let Some(request) = request.request_id
        && tx.has_resumed(&run, request)?
    {
        return tx.execution(T::key(&run.home));
    }
    let execution = tx.execution(T::key(&run.home))?;
    if let Some(holder) = successor(tx, &run)? {
        if run.status.is_terminal() {
            return Err(execution.was_handed_off(holder.id).into());
        }
        resume(tx, org, holder.id, request)?;
        return Ok(execution);
    }
    let reason = run.pause_reason();
    let failed = request.retry && run.status == Status::Failed && run.stop.is_none();
    if reason.is_none() && !failed {
        return Err(execution.cannot(if request.retry { "retry" } else { "resume" }).into());
    }
    let budget = execution.budget_after(request, reason)?;
    let limits = execution.new.limits.clone();
    if let Some(total) = limits.max_total_steps.filter(|total| run.step_count >= *total) {
        return Err(Error::new(
            Code::StepLimitReached,
            format!("the run {id} has taken {} steps and may take {total} in all; start another", run.step_count),
        )
        .with("steps", run.step_count)
        .with("limit", total)
        .into());
    }
    let mut log = Log::open(tx, &run)?;
    if failed {
        if let Some(fork) = tx.forked_since(&run, log.high)? {
            return Err(execution.was_forked(fork).into());
        }
        run.reopen(&limits, tx.now().0);
    }
    if let Some(message) = &request.message {
        append_message(tx, &mut run, &mut log, message)?;
    }
    if let Some(request) = request.request_id {
        tx.put_resume(&run, request)?;
    }
    if let Some(more) = request.max_steps.or(limits.max_steps) {
        run.step_limit = Some(run.step_count.saturating_add(more));
    }
    if let Some(limit) = request.max_tail {
        run.tail_limit = limit;
    } else if reason == Some(WaitReason::TailLimit) {
        run.tail_limit = run.tail_limit.saturating_add(limits.max_tail.unwrap_or(DEFAULT_TAIL));
    }
    if budget != limits.budget {
        if run.purse.is_none() {
            tx.put_purse(org, id, &Purse::default())?;
        }
        let limits = StartLimits { budget, ..limits };
        tx.put_limits(&run, &limits)?;
    }
    if reason == Some(WaitReason::Quarantined) {
        for mut task in tx.open_with(&run, TaskStatus::Quarantined)? {
            task.task.losses = last_life(&task.task);
            task.carry_out(&mut run, &mut log, Verdict::Retry(Duration::ZERO), None)?;
            task.save(tx)?;
        }
        run.quarantined = false;
    }
    let from = reason.map_or_else(|| json!(Status::Failed.as_str()), |reason| json!(reason));
    run.unpause(&mut log, EventKind::Continued, &json!({ "from": from }))?;
    if failed || reason == Some(WaitReason::Error) {
        run.retry_unheard(&mut log)?;
    }
    run.save(tx)?;
    tx.execution(T::key(&run.home))
}

fn append_message<T: Statements>(
    tx: &T,
    run: &mut RunOf<T>,
    log: &mut Log<'_, T>,
    message: &Payload,
) -> Result<(), T::Fault> {
    let (top, _) = position(tx, run)?;
    let slot = Slot { segment: run.segment, sequence: top };
    let entry = NewEntry {
        id: EntryId(OpId { execution: run.id, slot, once: None }.uuid()),
        parent: run.leaf,
        thread: String::new(),
        role: "user".into(),
        entry_type: "message".into(),
        content: message.clone(),
        turn_id: None,
        metadata: None,
    };
    let label = Label { kind: OpKind::Entry, name: "resume".into(), key: LabelKey::Key("flovyn:resume".into()) };
    let op = NewOp { sequence: top, once: None, label, seen: Vec::new(), body: OpBody::Flush };
    append(tx, run, log, slot, &op, &entry)?;
    run.top = top + 1;
    Ok(())
}

/// Decides about a task that is in doubt or quarantined.
pub(in crate::storage) fn resolve_task<T: Statements>(
    tx: &T,
    org: OrgId,
    op: &OpId,
    resolution: &Resolution,
) -> Result<Task, T::Fault> {
    let mut run = tx.find_run(org, op.execution)?;
    let Some(mut row) = tx.task_of(&run, op)? else { return Err(unknown("task", op).into()) };
    let status = row.task.status;
    if !matches!(status, TaskStatus::InDoubt | TaskStatus::Quarantined) {
        return Err(Error::new(
            Code::InvalidTransition,
            format!("the task {op} is {status:?}: only one in doubt or quarantined can be answered for"),
        )
        .with("from", format!("{status:?}"))
        .into());
    }
    let mut log = Log::open(tx, &run)?;
    row.task.losses = 0;
    let verdict = match resolution {
        Resolution::Result(output) => Verdict::Complete(output.clone()),
        Resolution::Error(failure) => {
            Verdict::Fail(described(&row.task, failure.clone(), row.task.failed_attempts.max(1)))
        }
        Resolution::Retry => Verdict::Retry(Duration::ZERO),
    };
    row.carry_out(&mut run, &mut log, verdict, None)?;
    row.save(tx)?;
    if run.pause_reason() == Some(WaitReason::Quarantined) && !tx.has_open(&run, TaskStatus::Quarantined)? {
        run.quarantined = false;
        run.unpause(&mut log, EventKind::Woken, &json!({ "reason": "task" }))?;
    }
    run.save(tx)?;
    Ok(row.task)
}

/// Decides about a run that a divergence has paused.
pub(in crate::storage) fn resolve_divergence<T: Statements>(
    tx: &T,
    org: OrgId,
    id: ExecutionId,
    decision: Divergence,
) -> Result<Execution, T::Fault> {
    let mut run = tx.find_run(org, id)?;
    if run.pause_reason() != Some(WaitReason::Divergence) {
        return Err(tx.execution(T::key(&run.home))?.cannot("decide about a divergence of").into());
    }
    match decision {
        Divergence::Stay => tx.execution(T::key(&run.home)),
        Divergence::Continue => {
            let mut log = Log::open(tx, &run)?;
            run.code = Some("mixed".into());
            run.unpause(&mut log, EventKind::Continued, &json!({ "from": WaitReason::Divergence }))?;
            run.save(tx)?;
            tx.execution(T::key(&run.home))
        }
        Divergence::Fork => {
            let name = format!("divergence-{}", tx.high(&run)?);
            let fork = ExecutionId(uuid::Uuid::new_v5(&id.0, name.as_bytes()));
            let from = ForkFrom::Latest;
            let request = ForkRequest { org, execution: id, id: fork, key: None, from, state: None, input: None };
            fork::fork(tx, &request, None)
        }
    }
}
