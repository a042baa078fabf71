//! What is asked of a run from outside: start, signal, cancel, resume, and answers for tasks and divergences.

use super::fault::Done;
use super::request::position;
use super::run::{Run, execution_at, execution_of};
use super::task::TaskRow;
use super::tx::{Log, Tx};
use super::values::{Cell, blob, key, payload, text_of};
use super::{facts, op, payloads};
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, SignalId, Slot};
use crate::journal::retry::{Verdict, described, last_life};
use crate::model::{
    CancelMode, Cancellation, Created, Delivery, Divergence, EventKind, Execution, ForkFrom, ForkPoint, ForkRequest,
    Label, LabelKey, NewEntry, NewExecution, NewOp, NewSignal, OpBody, OpKind, Resolution, ResumeRequest, SignalStored,
    Status, Task, TaskStatus, WaitReason,
};
use crate::payload::Payload;
use crate::storage::limits;
use crate::storage::sql::Statements;
use crate::storage::sql::run::{Cause, Ending, Stop};
use rusqlite::params;
use serde_json::json;
use std::time::Duration;

/// Cumulative steps after which `resume` is refused, where steps are limited.
const DEFAULT_TOTAL_STEPS: u32 = 500;
/// Ops of a tail at which a run pauses.
const DEFAULT_TAIL: u32 = 50_000;

/// Starts a run.
pub(super) fn create(tx: &Tx, new: &NewExecution) -> Done<Created> {
    let found = match execution_of(tx, new.org, new.id) {
        Ok(found) => Some(found),
        Err(super::fault::Fault::Domain(_)) => None,
        Err(fault) => return Err(fault),
    };
    if let Some(execution) = found {
        if execution.new.kind == new.kind && execution.new.input_digest == new.input_digest {
            return Ok(Created { execution, existing: true });
        }
        return Err(execution.is_in_the_way().into());
    }
    let run = insert(tx, new, None)?;
    let mut log = Log::open(tx, &run)?;
    log.event(EventKind::Created, &json!({ "kind": new.kind, "queue": new.queue }))?;
    run.save(tx)?;
    Ok(Created { execution: execution_at(tx, run.home.run)?, existing: false })
}

/// Writes the row of a new run.
pub(super) fn insert(tx: &Tx, new: &NewExecution, fork: Option<(i64, ForkPoint, u64, u64)>) -> Done<Run> {
    let mut limits = new.limits.clone();
    if limits.max_steps.is_some() {
        limits.max_total_steps.get_or_insert(DEFAULT_TOTAL_STEPS);
    }
    let begins_at = new.delay.map(|delay| tx.now.after(delay).0);
    let ends_at = limits.timeout.map(|timeout| tx.now.after(timeout).0);
    let metadata = (!new.metadata.is_empty()).then(|| text_of(&new.metadata)).transpose()?;
    tx.execute(
        "INSERT INTO agent_execution (org_id, id, status, ready, step_limit, tail_limit, begins_at, ends_at, kind, queue, \
         priority, key, input_digest, limits, metadata, concurrency_key, traceparent, root_id, forked_run, forked_id, \
         forked_segment, forked_sequence, forked_high, forked_base, created_at, updated_at, input, concurrency_limit) \
         VALUES (?1, ?2, 0, 0, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?2, ?16, ?17, ?18, ?19, ?20, \
         ?21, ?22, ?22, ?23, ?24)",
        params![
            blob(&new.org.0),
            blob(&new.id.0),
            limits.max_steps,
            limits.max_tail.unwrap_or(DEFAULT_TAIL),
            begins_at,
            ends_at,
            new.kind,
            new.queue,
            new.priority,
            new.key,
            &new.input_digest.0[..],
            text_of(&limits)?,
            metadata,
            new.concurrency_key,
            new.traceparent,
            fork.map(|fork| fork.0),
            fork.as_ref().map(|fork| blob(&fork.1.execution.0)),
            fork.map(|fork| fork.1.segment),
            fork.and_then(|fork| fork.1.sequence),
            fork.map(|fork| fork.2),
            fork.map(|fork| fork.3),
            tx.now.0,
            Cell(&new.input),
            new.concurrency_limit,
        ],
    )?;
    let run = tx.conn.last_insert_rowid();
    if run > i64::from(u32::MAX) {
        return Err(Error::new(Code::InvalidArgument, "the file has no numbers left for runs; use a new file").into());
    }
    payloads::refer_from(tx, new.org, run, &new.input)?;
    Run::at(tx, run)?.ok_or_else(|| super::values::missing("the row of a new run").into())
}

/// Stores a signal and wakes a run that waits for it.
pub(super) fn store_signal(tx: &Tx, new: &NewSignal) -> Done<SignalStored> {
    let mut run = Run::find(tx, new.org, new.execution)?;
    let repeated = tx.first(
        "SELECT id, name, payload FROM agent_signal WHERE run = ?1 AND idempotency_key = ?2 \
         UNION ALL SELECT id, name, payload FROM agent_signal WHERE id = ?3 AND run = ?1",
        params![run.home.run, new.idempotency_key, blob(&new.id.0)],
        |row| Ok((super::values::id(row, 0)?, row.get::<_, String>(1)?, payload(row, 2)?)),
    )?;
    if let Some((id, name, payload)) = repeated {
        new.repeats(&name, &payload)?;
        return Ok(SignalStored { id: SignalId(id), repeated: true, resumed: false });
    }
    if run.status.is_terminal() {
        return Err(execution_at(tx, run.home.run)?.takes_no_signals().into());
    }
    let mut log = Log::open(tx, &run)?;
    if log.high >= limits::PENDING_SIGNALS as u64 && facts::has_full_mailbox(tx, &run)? {
        return Err(limits::mailbox_is_full(run.id).into());
    }
    let number = log.event(EventKind::Signal, &json!({ "signal": new.id, "name": new.name }))?;
    payloads::refer(tx, &run, &new.payload)?;
    tx.execute(
        "INSERT INTO agent_signal (key, run, id, name, delivery, idempotency_key, created_at, payload) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            key(run.home.run, number as i64)?,
            run.home.run,
            blob(&new.id.0),
            new.name,
            facts::delivery_number(new.delivery),
            new.idempotency_key,
            tx.now.0,
            Cell(&new.payload),
        ],
    )?;
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

/// Records a request to stop.
pub(super) fn request_cancel(tx: &Tx, org: OrgId, id: ExecutionId, cancellation: Cancellation) -> Done<Execution> {
    let mut run = Run::find(tx, org, id)?;
    let never_claimed = run.status == Status::Pending && run.epoch == 0;
    let graceful = cancellation.mode == CancelMode::Graceful;
    if run.status.is_terminal() || (graceful && run.status == Status::Cancelling) {
        return execution_at(tx, run.home.run);
    }
    let mut log = Log::open(tx, &run)?;
    if !graceful {
        run.stop = Some(Stop { number: 0, cancellation, until: tx.now.0 });
        run.epoch += 1;
        run.finish(&mut log, Ending::Cancelled(None, "hard"))?;
    } else if never_claimed || run.status == Status::Paused {
        run.stop = Some(Stop { number: 0, cancellation, until: tx.now.0 });
        run.finish(&mut log, Ending::Cancelled(None, "graceful"))?;
    } else {
        run.end_wait(tx.now);
        run.status = Status::Cancelling;
        let number = log.event(EventKind::Cancelling, &json!({ "mode": cancellation.mode }))?;
        run.stop = Some(Stop { number, cancellation, until: tx.now.after(cancellation.grace).0 });
        for mut task in tx.open_attached(&run)? {
            task.stop = true;
            task.save(tx)?;
        }
    }
    run.save(tx)?;
    execution_at(tx, run.home.run)
}

/// Continues a paused run.
pub(super) fn resume(tx: &Tx, org: OrgId, id: ExecutionId, request: &ResumeRequest) -> Done<Execution> {
    let mut run = Run::find(tx, org, id)?;
    if let Some(request) = &request.request_id {
        let made = tx.first(
            "SELECT 1 FROM resume_request WHERE run = ?1 AND request_id = ?2",
            params![run.home.run, blob(&request.0)],
            |_| Ok(()),
        )?;
        if made.is_some() {
            return execution_at(tx, run.home.run);
        }
    }
    let execution = execution_at(tx, run.home.run)?;
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
        if let Some(fork) = forked_since(tx, &run, log.high)? {
            return Err(execution.was_forked(fork).into());
        }
        run.reopen(limits.timeout, tx.now.0);
    }
    if let Some(message) = &request.message {
        append_message(tx, &mut run, &mut log, message)?;
    }
    if let Some(request) = &request.request_id {
        tx.execute(
            "INSERT INTO resume_request (run, request_id) VALUES (?1, ?2)",
            params![run.home.run, blob(&request.0)],
        )?;
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
        let limits = crate::model::StartLimits { budget, ..limits };
        tx.execute("UPDATE agent_execution SET limits = ?2 WHERE run = ?1", params![run.home.run, text_of(&limits)?])?;
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
    execution_at(tx, run.home.run)
}

/// A fork of the run that starts from its end, which is its event `end`.
fn forked_since(tx: &Tx, run: &Run, end: u64) -> Done<Option<ExecutionId>> {
    let sql = "SELECT id FROM agent_execution WHERE forked_run = ?1 AND forked_high >= ?2 LIMIT 1";
    Ok(tx.first(sql, params![run.home.run, end], |row| super::values::id(row, 0))?.map(ExecutionId))
}

fn append_message(tx: &Tx, run: &mut Run, log: &mut Log<'_, '_>, message: &Payload) -> Done<()> {
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
    op::append(tx, run, log, slot, &op, &entry)?;
    run.top = top + 1;
    Ok(())
}

/// Answers for a task in doubt or quarantined.
pub(super) fn resolve_task(tx: &Tx, org: OrgId, op: &OpId, resolution: &Resolution) -> Done<Task> {
    let mut run = Run::find(tx, org, op.execution)?;
    let place = match &op.once {
        None => Some(facts::place_of(tx, &run, op.slot)),
        Some(once) => tx
            .first(
                "SELECT place FROM task_execution WHERE run = ?1 AND once_name = ?2 AND once_n = ?3",
                params![run.home.run, &*once.name, once.n],
                |row| row.get(0),
            )?
            .map(Ok),
    };
    let row = match place {
        Some(Ok(place)) => TaskRow::at(tx, place)?,
        _ => None,
    };
    // A number past the end of its segment is the place of an op of the next.
    let row = row.filter(|row| op.once.is_some() || row.task.slot == op.slot);
    let Some(mut row) = row else { return Err(unknown("task", op).into()) };
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
    if run.pause_reason() == Some(WaitReason::Quarantined) && !super::task::has_open(tx, &run, TaskStatus::Quarantined)?
    {
        run.quarantined = false;
        run.unpause(&mut log, EventKind::Woken, &json!({ "reason": "task" }))?;
    }
    run.save(tx)?;
    Ok(row.task)
}

/// Answers for a run that is paused by a divergence.
pub(super) fn resolve_divergence(tx: &Tx, org: OrgId, id: ExecutionId, decision: Divergence) -> Done<Execution> {
    let mut run = Run::find(tx, org, id)?;
    if run.pause_reason() != Some(WaitReason::Divergence) {
        return Err(execution_at(tx, run.home.run)?.cannot("decide about a divergence of").into());
    }
    match decision {
        Divergence::Stay => execution_at(tx, run.home.run),
        Divergence::Continue => {
            let mut log = Log::open(tx, &run)?;
            run.code = Some("mixed".into());
            run.unpause(&mut log, EventKind::Continued, &json!({ "from": WaitReason::Divergence }))?;
            run.save(tx)?;
            execution_at(tx, run.home.run)
        }
        Divergence::Fork => {
            let name = format!("divergence-{}", super::tx::high(tx, run.home.run)?);
            let fork = ExecutionId(uuid::Uuid::new_v5(&id.0, name.as_bytes()));
            let from = ForkFrom::Latest;
            let request = ForkRequest { org, execution: id, id: fork, key: None, from, state: None, input: None };
            super::fork::fork(tx, &request, None)
        }
    }
}

/// The error for an id that names nothing.
pub(super) fn unknown(what: &str, id: impl std::fmt::Display) -> Error {
    Error::new(Code::NotFound, format!("there is no {what} {id} here; check the id and the database"))
}
