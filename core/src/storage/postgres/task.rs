//! The row of a task and its transitions: attempts handed out, ended, lost, timed out and answered for.
//!
//! `journal::retry` judges; this file carries the verdict out: one guarded update, one event, and the fact that may wake
//! the run.

use super::fault::Done;
use super::run::{Cause, Run};
use super::sets::{Set, row};
use super::tx::{Log, Tx};
use super::values::{
    Key, Place, Row, cell, json_opt, label_key, micros, one_of, payload, payload_opt, read_label_key, read_once,
    read_seen, seen_bytes, text_of,
};
use crate::clock::Timestamp;
use crate::error::Code;
use crate::id::{EntryId, ExecutionId, OnceSlot, OrgId, Slot, TaskId, WorkerId};
use crate::journal::retry::{Verdict, after_attempt, after_loss, described};
use crate::model::{
    AttemptResult, EventKind, Fact, FactKind, Failure, Label, NewOp, NewTask, OpKind, Placement, RecordedBody,
    RecordedOp, SideEffects, Status, Task, TaskOptions, TaskStatus,
};
use crate::payload::Payload;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// Every status, in the order of its number.
pub(super) const TASK_STATUS: [TaskStatus; 7] = [
    TaskStatus::Pending,
    TaskStatus::Running,
    TaskStatus::Completed,
    TaskStatus::Failed,
    TaskStatus::Cancelled,
    TaskStatus::InDoubt,
    TaskStatus::Quarantined,
];

/// The columns of [`TaskRow`], after which comes a condition on `t`.
macro_rules! select_task {
    () => {
        "SELECT t.org_id, t.run, t.segment, t.sequence, t.id, t.status, t.placement, t.attempt, t.failed_attempts, t.losses, \
         t.reconcile, t.epoch, t.ended_number, t.kind, t.queue, t.entry_id, t.visible_at, t.worker, t.lease_expires, \
         t.sign_at, t.stop, t.created_at, t.started_at, t.ended_at, t.options, t.progress, t.failure, t.input, t.output, \
         x.id FROM task_execution t JOIN agent_execution x ON x.org_id = t.org_id AND x.run = t.run "
    };
}
pub(super) use select_task;

static SCHEDULED: Set = Set::insert(
    "task_execution",
    "org_id uuid, run bigint, segment int, sequence int, id uuid, status smallint, placement smallint, attempt int, \
     failed_attempts int, losses int, reconcile boolean, epoch bigint, ended_number bigint, detached boolean, kind text, \
     queue text, entry_id uuid, visible_at bigint, worker uuid, due_at bigint, created_at bigint, started_at bigint, \
     ended_at bigint, label_name text, label_key bytea, seen bytea, once_name text, once_n int, options text, \
     failure text, input bytea, output bytea",
);
static SAVED: Set = Set::update(
    "task_execution",
    4,
    "org_id uuid, run bigint, segment int, sequence int, status smallint, placement smallint, attempt int, \
     failed_attempts int, losses int, reconcile boolean, epoch bigint, ended_number bigint, visible_at bigint, \
     worker uuid, lease_expires bigint, sign_at bigint, stop boolean, due_at bigint, started_at bigint, ended_at bigint, \
     failure text, output bytea",
);

/// A task as stored.
#[derive(Debug, Clone)]
pub(super) struct TaskRow {
    pub key: Key,
    pub task: Task,
    /// Its op gave it to the agent's own worker, wherever it is now.
    pub born_inline: bool,
    /// `reconcile` is to be asked, or is being asked.
    pub reconcile: bool,
    /// The claim of the run under which an inline attempt started.
    pub epoch: u64,
    /// Its fact number.
    pub ended_number: Option<u64>,
    pub lease_expires: Option<i64>,
    /// When a claimed attempt last gave a sign.
    pub sign_at: Option<i64>,
    /// The run was asked to stop while the task was open.
    pub stop: bool,
}

impl TaskRow {
    /// Reads the columns of `select_task!`.
    pub(super) fn read(row: &Row) -> Done<Self> {
        let key = Key { org: OrgId(row.get(0)?), run: row.get(1)? };
        Ok(Self {
            key,
            task: Task {
                new: NewTask {
                    id: TaskId(row.get(4)?),
                    kind: row.get(13)?,
                    queue: row.get(14)?,
                    input: payload(row, 27)?,
                    options: json_opt(row, 24)?.unwrap_or_default(),
                    placement: one_of(&[Placement::Inline, Placement::Queue, Placement::Queue], 6, row)?,
                    entry: row.get::<Option<Uuid>>(15)?.map(EntryId),
                },
                org: key.org,
                execution: ExecutionId(row.get(29)?),
                slot: Slot { segment: row.get(2)?, sequence: row.get(3)? },
                status: one_of(&TASK_STATUS, 5, row)?,
                attempt: row.get(7)?,
                failed_attempts: row.get(8)?,
                losses: row.get(9)?,
                output: payload_opt(row, 28)?,
                failure: json_opt(row, 26)?,
                progress: row.get(25)?,
                visible_at: Timestamp(row.get(16)?),
                worker: row.get::<Option<Uuid>>(17)?.map(WorkerId),
                created_at: Timestamp(row.get(21)?),
                started_at: row.get::<Option<i64>>(22)?.map(Timestamp),
                ended_at: row.get::<Option<i64>>(23)?.map(Timestamp),
            },
            born_inline: row.get::<u8>(6)? != 1,
            reconcile: row.get::<Option<bool>>(10)?.unwrap_or(false),
            epoch: row.get::<Option<u64>>(11)?.unwrap_or(0),
            ended_number: row.get(12)?,
            lease_expires: row.get(18)?,
            sign_at: row.get(19)?,
            stop: row.get::<Option<bool>>(20)?.unwrap_or(false),
        })
    }

    /// Where it is.
    pub(super) fn place(&self) -> Place {
        Place { key: self.key, slot: self.task.slot }
    }

    /// The task of a place.
    pub(super) fn at(tx: &Tx, place: Place) -> Done<Option<Self>> {
        let Place { key, slot } = place;
        tx.first(
            concat!(select_task!(), "WHERE t.org_id = $1 AND t.run = $2 AND t.segment = $3 AND t.sequence = $4"),
            row![key.org.0, key.run, slot.segment, slot.sequence],
            Self::read,
        )
    }

    /// The task of an id.
    pub(super) fn find(tx: &Tx, org: OrgId, task: TaskId) -> Done<Option<Self>> {
        tx.first(concat!(select_task!(), "WHERE t.org_id = $1 AND t.id = $2"), row![org.0, task.0], Self::read)
    }

    /// A task that an op of a batch makes, not yet stored.
    pub(super) fn new(run: &Run, slot: Slot, new: &NewTask, now: Timestamp) -> Self {
        let inline = new.placement == Placement::Inline;
        Self {
            key: run.key,
            task: Task {
                new: new.clone(),
                org: run.key.org,
                execution: run.id,
                slot,
                status: if inline { TaskStatus::Running } else { TaskStatus::Pending },
                attempt: u32::from(inline),
                failed_attempts: 0,
                losses: 0,
                output: None,
                failure: None,
                progress: None,
                visible_at: now,
                worker: run.worker.filter(|_| inline),
                created_at: now,
                started_at: inline.then_some(now),
                ended_at: None,
            },
            born_inline: inline,
            reconcile: false,
            epoch: run.epoch,
            ended_number: None,
            lease_expires: None,
            sign_at: None,
            stop: false,
        }
    }

    /// Stores a new task as it is now.
    pub(super) fn insert(&self, tx: &Tx, run: &Run, op: &NewOp) -> Done<()> {
        let task = &self.task;
        let label = &op.label;
        let due = self.due(tx.now.0);
        super::payloads::refer(tx, run, &task.new.input)?;
        if let Some(output) = &task.output {
            super::payloads::refer(tx, run, output)?;
        }
        let options = (task.new.options != TaskOptions::default()).then(|| text_of(&task.new.options)).transpose()?;
        tx.put(
            &SCHEDULED,
            row![
                self.key.org.0,
                self.key.run,
                task.slot.segment,
                task.slot.sequence,
                task.new.id.0,
                task.status as u8,
                self.placement(),
                task.attempt,
                task.failed_attempts,
                task.losses,
                self.reconcile.then_some(true),
                self.epoch,
                self.ended_number,
                task.new.options.detached.then_some(true),
                &task.new.kind,
                &task.new.queue,
                task.new.entry.map(|entry| entry.0),
                task.visible_at,
                task.worker.map(|worker| worker.0),
                due,
                task.created_at,
                task.started_at,
                task.ended_at,
                (*label.name != *task.new.kind).then_some(&*label.name),
                label_key(&label.key),
                seen_bytes(&op.seen),
                op.once.as_ref().map(|once| &*once.name),
                op.once.as_ref().map(|once| once.n),
                options,
                task.failure.as_ref().map(text_of).transpose()?,
                cell(&task.new.input)?,
                task.output.as_ref().map(cell).transpose()?,
            ],
        );
        self.announce(tx, due);
        Ok(())
    }

    /// Stores what may have changed of an existing task.
    pub(super) fn save(&self, tx: &Tx) -> Done<()> {
        let task = &self.task;
        let due = self.due(tx.now.0);
        tx.put(
            &SAVED,
            row![
                self.key.org.0,
                self.key.run,
                task.slot.segment,
                task.slot.sequence,
                task.status as u8,
                self.placement(),
                task.attempt,
                task.failed_attempts,
                task.losses,
                self.reconcile.then_some(true),
                self.epoch,
                self.ended_number,
                task.visible_at,
                task.worker.map(|worker| worker.0),
                self.lease_expires,
                self.sign_at,
                self.stop.then_some(true),
                due,
                task.started_at,
                task.ended_at,
                task.failure.as_ref().map(text_of).transpose()?,
                task.output.as_ref().map(cell).transpose()?,
            ],
        );
        self.announce(tx, due);
        Ok(())
    }

    fn placement(&self) -> u8 {
        match (self.task.new.placement, self.born_inline) {
            (Placement::Inline, _) => 0,
            (Placement::Queue, false) => 1,
            (Placement::Queue, true) => 2,
        }
    }

    fn announce(&self, tx: &Tx, due: Option<i64>) {
        if self.task.status == TaskStatus::Pending && self.task.visible_at <= tx.now {
            tx.tasks_ready();
        }
        if let Some(due) = due {
            tx.due(due);
        }
    }

    /// When housekeeping must look at it.
    fn due(&self, now: i64) -> Option<i64> {
        let task = &self.task;
        let options = &task.new.options;
        let after = |since: Option<i64>, limit: Option<Duration>| Some(since?.saturating_add(micros(limit?)));
        let deadline = after(Some(task.created_at.0), options.deadline);
        match task.status {
            TaskStatus::Pending if task.new.placement == Placement::Queue => {
                deadline.into_iter().chain(Some(task.visible_at.0).filter(|at| *at > now)).min()
            }
            // Inline attempts have no lease of their own: the session that runs them judges.
            TaskStatus::Running if self.lease_expires.is_some() => [
                deadline,
                self.lease_expires,
                after(task.started_at.map(|at| at.0), options.timeout),
                after(self.sign_at, options.heartbeat_timeout),
            ]
            .into_iter()
            .flatten()
            .min(),
            _ => None,
        }
    }

    /// Whether an end of its current attempt counts.
    pub(super) fn can_end(&self) -> bool {
        matches!(self.task.status, TaskStatus::Running | TaskStatus::InDoubt)
    }

    /// Whether its attempt runs in the worker that holds the run.
    pub(super) fn runs_inline(&self) -> bool {
        self.task.status == TaskStatus::Running && self.task.new.placement == Placement::Inline
    }

    /// Writes an event about it: its id, kind and attempt, and what else there is to say.
    pub(super) fn emit(&self, run: &Run, log: &mut Log<'_, '_>, kind: EventKind, mut data: Value) -> Done<u64> {
        // What happens to a task after its run has ended is nobody's event.
        if run.status.is_terminal() {
            return Ok(log.high);
        }
        let task = &self.task;
        let plain = data.as_object().is_none_or(serde_json::Map::is_empty);
        if plain {
            let text = format!(
                r#"{{"task":"{}","kind":{},"attempt":{}}}"#,
                task.new.id,
                text_of(&task.new.kind)?,
                task.attempt
            );
            return log.about(kind, task.slot, text);
        }
        data["task"] = json!(task.new.id);
        data["kind"] = json!(task.new.kind);
        data["attempt"] = json!(task.attempt);
        log.about(kind, task.slot, data.to_string())
    }

    /// An attempt ended by itself or ran out of time.
    pub(super) fn end_attempt(
        &mut self,
        tx: &Tx,
        run: &mut Run,
        log: &mut Log<'_, '_>,
        result: AttemptResult,
    ) -> Done<Option<Fact>> {
        let failure = match &result {
            AttemptResult::Failed { failure, .. } => {
                Some(described(&self.task, failure.clone(), self.task.failed_attempts + 1))
            }
            _ => None,
        };
        let released = matches!(result, AttemptResult::Released);
        let verdict = after_attempt(&self.task, result);
        self.task.failed_attempts += u32::from(failure.is_some());
        if !released {
            self.task.losses = 0;
        }
        // An attempt given back has answered nothing.
        let still_asked = released && self.reconcile;
        let fact = self.carry_out(tx, run, log, verdict, failure)?;
        self.reconcile |= still_asked && self.task.status == TaskStatus::Pending;
        Ok(fact)
    }

    /// An attempt's process is gone.
    pub(super) fn lose_attempt(&mut self, tx: &Tx, run: &mut Run, log: &mut Log<'_, '_>) -> Done<()> {
        let verdict = after_loss(&self.task);
        self.task.losses += 1;
        self.carry_out(tx, run, log, verdict, None)?;
        self.save(tx)
    }

    /// A limit of time passed.
    pub(super) fn time_out(
        &mut self,
        tx: &Tx,
        run: &mut Run,
        log: &mut Log<'_, '_>,
        what: &str,
        limit: Duration,
    ) -> Done<()> {
        let message = format!("the task {:?} did not end within its {what} of {limit:?}", self.task.new.kind);
        let failure = Failure::new(Code::TaskTimeout, "TaskTimeout", message);
        if self.task.status == TaskStatus::Pending {
            let failure = described(&self.task, failure, self.task.failed_attempts);
            self.carry_out(tx, run, log, Verdict::Fail(failure), None)?;
        } else {
            let retryable = what != "deadline";
            self.end_attempt(tx, run, log, AttemptResult::Failed { failure, retryable })?;
        }
        self.save(tx)
    }

    /// Ends it as cancelled.
    pub(super) fn cancel(&mut self, tx: &Tx, run: &mut Run, log: &mut Log<'_, '_>) -> Done<()> {
        self.carry_out(tx, run, log, Verdict::Cancel, None)?;
        self.save(tx)
    }

    /// One transition; the row is changed in memory and the caller stores it. `error` is what an attempt that is not the
    /// last one raised. The fact, if it ended.
    pub(super) fn carry_out(
        &mut self,
        tx: &Tx,
        run: &mut Run,
        log: &mut Log<'_, '_>,
        verdict: Verdict,
        error: Option<Failure>,
    ) -> Done<Option<Fact>> {
        if self.task.status.is_terminal() {
            return Ok(None);
        }
        let verdict = match verdict {
            Verdict::Retry(_) | Verdict::InDoubt | Verdict::Quarantine if run.status.is_terminal() => Verdict::Cancel,
            verdict => verdict,
        };
        self.lease_expires = None;
        self.reconcile = false;
        let task = &mut self.task;
        task.worker = None;
        task.failure = error.or(task.failure.take());
        match verdict {
            Verdict::Complete(output) => {
                super::payloads::refer(tx, run, &output)?;
                task.output = Some(output);
                task.failure = None;
                self.end(tx, run, log, (TaskStatus::Completed, EventKind::TaskCompleted), json!({}))
            }
            Verdict::Fail(failure) => {
                let data = json!({ "error": failure });
                task.failure = Some(failure);
                self.end(tx, run, log, (TaskStatus::Failed, EventKind::TaskFailed), data)
            }
            Verdict::Cancel => {
                let failure = Failure::new(Code::Cancelled, "Cancelled", "the task was cancelled");
                task.failure = Some(described(task, failure, task.failed_attempts));
                self.end(tx, run, log, (TaskStatus::Cancelled, EventKind::TaskCancelled), json!({}))
            }
            Verdict::Retry(pause) => {
                let data = json!({ "error": task.failure, "pause": micros(pause) });
                self.queue(tx.now.after(pause));
                self.emit(run, log, EventKind::TaskRetry, data)?;
                self.reviewed(tx, run)
            }
            Verdict::InDoubt if task.new.options.side_effects == SideEffects::Reconcile => {
                self.queue(tx.now);
                self.reconcile = true;
                self.emit(run, log, EventKind::TaskInDoubt, json!({}))?;
                self.reviewed(tx, run)
            }
            // A late report of a timeout says nothing new.
            Verdict::InDoubt if task.status == TaskStatus::InDoubt => Ok(None),
            Verdict::InDoubt => {
                task.status = TaskStatus::InDoubt;
                self.emit(run, log, EventKind::TaskInDoubt, json!({}))?;
                self.reviewed(tx, run)
            }
            Verdict::Quarantine => {
                task.status = TaskStatus::Quarantined;
                self.emit(run, log, EventKind::TaskQuarantined, json!({}))?;
                run.quarantined = true;
                self.save(tx)?;
                run.review_wait(tx)?;
                if matches!(run.status, Status::Pending | Status::Waiting) {
                    run.quarantine(tx, log)?;
                }
                Ok(None)
            }
        }
    }

    fn queue(&mut self, visible_at: Timestamp) {
        self.task.status = TaskStatus::Pending;
        self.task.new.placement = Placement::Queue;
        self.task.visible_at = visible_at;
    }

    /// A wait's reason depends on the stored rows of its tasks.
    fn reviewed(&self, tx: &Tx, run: &mut Run) -> Done<Option<Fact>> {
        if run.wait.is_some() {
            self.save(tx)?;
            run.review_wait(tx)?;
        }
        Ok(None)
    }

    fn end(
        &mut self,
        tx: &Tx,
        run: &mut Run,
        log: &mut Log<'_, '_>,
        (status, kind): (TaskStatus, EventKind),
        data: Value,
    ) -> Done<Option<Fact>> {
        self.task.status = status;
        self.task.ended_at = Some(tx.now);
        if run.status.is_terminal() {
            return Ok(None);
        }
        let number = self.emit(run, log, kind, data)?;
        self.ended_number = Some(number);
        self.reviewed(tx, run)?;
        run.wake(log, Cause::Task)?;
        Ok(self.fact())
    }

    /// The fact of its end.
    pub(super) fn fact(&self) -> Option<Fact> {
        let number = self.ended_number?;
        let kind = FactKind::Task { task: self.task.new.id, result: outcome(&self.task) };
        Some(Fact { number, at: self.task.ended_at.unwrap_or_default(), kind })
    }
}

/// With what a task ended.
fn outcome(task: &Task) -> Result<Payload, Failure> {
    match (&task.output, &task.failure) {
        (Some(output), _) if task.status == TaskStatus::Completed => Ok(output.clone()),
        (_, Some(failure)) => Err(failure.clone()),
        _ => Err(Failure::new(Code::TaskFailed, "Unknown", "the task ended without a result")),
    }
}

/// Open tasks of a run, in order of their place.
fn open(tx: &Tx, run: &Run) -> Done<Vec<TaskRow>> {
    let sql = concat!(
        select_task!(),
        "WHERE t.org_id = $1 AND t.run = $2 AND t.ended_at IS NULL ORDER BY t.segment, t.sequence"
    );
    tx.all(sql, row![run.key.org.0, run.key.run], TaskRow::read)
}

/// Open tasks of a status.
pub(super) fn open_with(tx: &Tx, run: &Run, status: TaskStatus) -> Done<Vec<TaskRow>> {
    Ok(open(tx, run)?.into_iter().filter(|row| row.task.status == status).collect())
}

/// Open tasks that do not outlive their segment.
pub(super) fn open_attached(tx: &Tx, run: &Run) -> Done<Vec<TaskRow>> {
    Ok(open(tx, run)?.into_iter().filter(|row| !row.task.new.options.detached).collect())
}

/// Whether an open task has a status.
pub(super) fn has_open(tx: &Tx, run: &Run, status: TaskStatus) -> Done<bool> {
    let found = tx.first(
        "SELECT TRUE FROM task_execution WHERE org_id = $1 AND run = $2 AND ended_at IS NULL AND status = $3 LIMIT 1",
        row![run.key.org.0, run.key.run, status as u8],
        |row| row.get::<bool>(0),
    )?;
    Ok(found.is_some())
}

/// The columns of [`recorded`], after which comes a condition.
macro_rules! select_task_op {
    () => {
        "SELECT segment, sequence, id, status, placement, attempt, kind, options, label_name, label_key, seen, once_name, \
         once_n, ended_number FROM task_execution "
    };
}
pub(super) use select_task_op;

/// A task as the journal has it, with its fact number.
pub(super) fn recorded(row: &Row) -> Done<(RecordedOp, Option<u64>)> {
    let kind: String = row.get(6)?;
    let options: TaskOptions = json_opt(row, 7)?.unwrap_or_default();
    let once: Option<OnceSlot> = read_once(row, 11)?;
    let op = RecordedOp {
        segment: row.get(0)?,
        sequence: row.get(1)?,
        once,
        label: Label {
            kind: OpKind::Task,
            name: row.get::<Option<String>>(8)?.unwrap_or(kind).into(),
            key: read_label_key(row, 9)?,
        },
        seen: read_seen(row, 10)?,
        body: RecordedBody::Task {
            id: TaskId(row.get(2)?),
            status: one_of(&TASK_STATUS, 3, row)?,
            attempt: row.get(5)?,
            inline: row.get::<u8>(4)? == 0,
            at_most_once: options.side_effects == SideEffects::AtMostOnce,
            detached: options.detached,
        },
    };
    Ok((op, row.get(13)?))
}
