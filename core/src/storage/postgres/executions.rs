//! What is asked of a run from outside: start, signal, cancel, resume, and answers for tasks and divergences.

use super::fault::Done;
use super::locks::Last;
use super::request::position;
use super::run::{Home, Run, execution_at, execution_of};
use super::sets::{Set, row};
use super::task::TaskRow;
use super::tx::{Log, Question, Tx};
use super::values::{Key, Place, cell, payload, text_of};
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
use serde_json::json;
use std::time::Duration;

/// Cumulative steps after which `resume` is refused, where steps are limited.
const DEFAULT_TOTAL_STEPS: u32 = 500;
/// Ops of a tail at which a run pauses.
const DEFAULT_TAIL: u32 = 50_000;

/// Starts a run.
pub(super) fn create(tx: &Tx, new: &NewExecution) -> Done<Created> {
    let Some(run) = insert(tx, new, None)? else {
        let execution = execution_of(tx, new.org, new.id)?;
        if execution.new.kind == new.kind && execution.new.input_digest == new.input_digest {
            return Ok(Created { execution, existing: true });
        }
        return Err(execution.is_in_the_way().into());
    };
    let mut log = Log::open(tx, &run)?;
    log.event(EventKind::Created, &json!({ "kind": new.kind, "queue": new.queue }))?;
    run.announce(tx);
    Ok(Created { execution: execution_at(tx, run.home.key)?, existing: false })
}

/// Writes the row of a new run; none where its id is taken.
pub(super) fn insert(tx: &Tx, new: &NewExecution, fork: Option<(i64, ForkPoint, u64, u64)>) -> Done<Option<Run>> {
    let mut limits = new.limits.clone();
    if limits.max_steps.is_some() {
        limits.max_total_steps.get_or_insert(DEFAULT_TOTAL_STEPS);
    }
    let metadata = (!new.metadata.is_empty()).then(|| text_of(&new.metadata)).transpose()?;
    let mut run = Run {
        home: Home { key: Key { org: new.org, run: 0 }, last: Some(Last::default()) },
        id: new.id,
        status: Status::Pending,
        epoch: 0,
        worker: None,
        last_worker: None,
        lease_expires: None,
        lease_ttl: 0,
        segment: 0,
        base: 0,
        top: 0,
        fact_high: 0,
        losses: 0,
        step_count: 0,
        step_limit: limits.max_steps,
        tail_limit: limits.max_tail.unwrap_or(DEFAULT_TAIL),
        leaf: None,
        code: None,
        stop: None,
        begins_at: new.delay.map(|delay| tx.now.after(delay).0),
        ends_at: limits.timeout.map(|timeout| tx.now.after(timeout).0),
        wait: None,
        quarantined: false,
        forked: fork.map(|fork| fork.0),
        claim_number: 0,
        concurrency_key: new.concurrency_key.clone(),
        concurrency_limit: new.concurrency_limit,
        concurrency_slot: 0,
        prefer_until: None,
    };
    let made = tx.execute_returning(
        "INSERT INTO agent_execution (org_id, id, status, ready, step_limit, tail_limit, begins_at, ends_at, due_at, kind, \
         queue, priority, key, input_digest, limits, metadata, concurrency_key, traceparent, root_id, forked_run, forked_id, \
         forked_segment, forked_sequence, forked_high, forked_base, created_at, updated_at, input, concurrency_limit) \
         VALUES ($1, $2, 0, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $2, $18, $19, $20, $21, \
         $22, $23, $24, $24, $25, $26) ON CONFLICT (org_id, id) DO NOTHING RETURNING run",
        row![
            new.org.0,
            new.id.0,
            run.is_ready(tx.now),
            run.step_limit,
            run.tail_limit,
            run.begins_at,
            run.ends_at,
            run.due(tx.now.0),
            &new.kind,
            &new.queue,
            new.priority,
            new.key.as_deref(),
            &new.input_digest.0[..],
            text_of(&limits)?,
            metadata,
            new.concurrency_key.as_deref(),
            new.traceparent.as_deref(),
            fork.map(|fork| fork.0),
            fork.map(|fork| fork.1.execution.0),
            fork.map(|fork| fork.1.segment),
            fork.and_then(|fork| fork.1.sequence),
            fork.map(|fork| fork.2),
            fork.map(|fork| fork.3),
            tx.now,
            cell(&new.input)?,
            new.concurrency_limit,
        ],
        |row| row.get(0),
    )?;
    let Some(number) = made else { return Ok(None) };
    run.home.key.run = number;
    payloads::refer(tx, &run, &new.input)?;
    Ok(Some(run))
}

static SIGNAL: Set = Set::insert(
    "agent_signal",
    "org_id uuid, run bigint, number bigint, id uuid, name text, delivery smallint, idempotency_key text, \
     created_at bigint, payload bytea",
);
static RESUMED: Set = Set::insert("resume_request", "org_id uuid, run bigint, request_id uuid");
static LIMITS: Set = Set::update("agent_execution", 2, "org_id uuid, run bigint, limits text");

/// Asks for a signal that is stored already: the same one, or one with its idempotency key.
pub(super) fn known_signal(new: &NewSignal) -> Question {
    let sql = "SELECT s.id, s.name, s.payload FROM agent_execution x JOIN agent_signal s ON s.org_id = x.org_id AND s.run = x.run \
               WHERE x.org_id = $1 AND x.id = $2 AND s.idempotency_key = $3 \
               UNION ALL SELECT s.id, s.name, s.payload FROM agent_signal s JOIN agent_execution x ON x.org_id = s.org_id AND x.run = s.run \
               WHERE s.org_id = $1 AND s.id = $4 AND x.id = $2";
    (sql, row![new.org.0, new.execution.0, new.idempotency_key.as_deref(), new.id.0])
}

/// Stores a signal and wakes a run that waits for it.
pub(super) fn store_signal(tx: &Tx, new: &NewSignal) -> Done<SignalStored> {
    let mut run = Run::find(tx, new.org, new.execution)?;
    let key = run.home.key;
    let known = match tx.ahead.take() {
        Some(known) => known,
        None => tx.ask_all(&[known_signal(new)])?.swap_remove(0),
    };
    if let Some(known) = known.first() {
        new.repeats(&known.get::<String>(1)?, &payload(known, 2)?)?;
        return Ok(SignalStored { id: SignalId(known.get(0)?), repeated: true, resumed: false });
    }
    if run.status.is_terminal() {
        return Err(execution_at(tx, run.home.key)?.takes_no_signals().into());
    }
    let mut log = Log::open(tx, &run)?;
    // Each of them is an event.
    if log.high >= limits::PENDING_SIGNALS as u64 && facts::has_full_mailbox(tx, &run)? {
        return Err(limits::mailbox_is_full(run.id).into());
    }
    let number = log.event(EventKind::Signal, &json!({ "signal": new.id, "name": new.name }))?;
    payloads::refer(tx, &run, &new.payload)?;
    tx.put(
        &SIGNAL,
        row![
            key.org.0,
            key.run,
            number,
            new.id.0,
            &new.name,
            facts::delivery_number(new.delivery),
            new.idempotency_key.as_deref(),
            tx.now,
            cell(&new.payload)?,
        ],
    );
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
        return execution_at(tx, run.home.key);
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
    execution_at(tx, run.home.key)
}

/// Continues a paused run.
pub(super) fn resume(tx: &Tx, org: OrgId, id: ExecutionId, request: &ResumeRequest) -> Done<Execution> {
    let mut run = Run::find(tx, org, id)?;
    if let Some(request) = &request.request_id {
        let made = tx.first(
            "SELECT run FROM resume_request WHERE org_id = $1 AND run = $2 AND request_id = $3",
            row![run.home.key.org.0, run.home.key.run, request.0],
            |row| row.get::<i64>(0),
        )?;
        if made.is_some() {
            return execution_at(tx, run.home.key);
        }
    }
    let execution = execution_at(tx, run.home.key)?;
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
        tx.put(&RESUMED, row![run.home.key.org.0, run.home.key.run, request.0]);
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
        tx.put(&LIMITS, row![run.home.key.org.0, run.home.key.run, text_of(&limits)?]);
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
    execution_at(tx, run.home.key)
}

/// A fork of the run that starts from its end, which is its event `end`.
fn forked_since(tx: &Tx, run: &Run, end: u64) -> Done<Option<ExecutionId>> {
    let sql = "SELECT id FROM agent_execution WHERE org_id = $1 AND forked_run = $2 AND forked_high >= $3 LIMIT 1";
    tx.first(sql, row![run.home.key.org.0, run.home.key.run, end], |row| Ok(ExecutionId(row.get(0)?)))
}

fn append_message(tx: &Tx, run: &mut Run, log: &mut Log<'_, '_>, message: &Payload) -> Done<()> {
    let (top, _) = position(run);
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
    let slot = match &op.once {
        None => Some(op.slot),
        Some(once) => tx.first(
            "SELECT segment, sequence FROM task_execution WHERE org_id = $1 AND run = $2 AND once_name = $3 \
             AND once_n = $4",
            row![run.home.key.org.0, run.home.key.run, &*once.name, once.n],
            |row| Ok(Slot { segment: row.get(0)?, sequence: row.get(1)? }),
        )?,
    };
    let row = match slot {
        Some(slot) => TaskRow::at(tx, Place { key: run.home.key, slot })?,
        None => None,
    };
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
        return Err(execution_at(tx, run.home.key)?.cannot("decide about a divergence of").into());
    }
    match decision {
        Divergence::Stay => execution_at(tx, run.home.key),
        Divergence::Continue => {
            let mut log = Log::open(tx, &run)?;
            run.code = Some("mixed".into());
            run.unpause(&mut log, EventKind::Continued, &json!({ "from": WaitReason::Divergence }))?;
            run.save(tx)?;
            execution_at(tx, run.home.key)
        }
        Divergence::Fork => {
            let name = format!("divergence-{}", super::tx::high(tx, run.home.key)?);
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
