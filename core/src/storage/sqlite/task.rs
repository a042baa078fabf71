//! The row of a task and its transitions: attempts handed out, ended, lost, timed out and answered for.
//!
//! `journal::retry` judges; this file carries the verdict out: one guarded update, one event, and the fact that may wake
//! the run.

use super::fault::Done;
use super::run::{Cause, Run};
use super::tx::{Log, Tx, all, first};
use super::values::{
    Cell, blob, id, id_opt, json_opt, label_key, micros, one_of, payload, payload_opt, read_label_key, read_once,
    read_seen, seen_bytes, span, text_of,
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
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};
use std::time::Duration;

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
        "SELECT t.place, t.segment, t.sequence, t.id, t.status, t.placement, t.attempt, t.failed_attempts, t.losses, \
         t.reconcile, t.epoch, t.ended_number, t.kind, t.queue, t.entry_id, t.visible_at, t.worker, t.lease_expires, \
         t.sign_at, t.stop, t.created_at, t.started_at, t.ended_at, t.options, t.progress, t.failure, t.input, t.output, \
         x.org_id, x.id FROM task_execution t JOIN agent_execution x ON x.run = t.place >> 31 "
    };
}
pub(super) use select_task;

/// A task as stored.
#[derive(Debug, Clone)]
pub(super) struct TaskRow {
    pub place: i64,
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
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            place: row.get(0)?,
            task: Task {
                new: NewTask {
                    id: TaskId(id(row, 3)?),
                    kind: row.get(12)?,
                    queue: row.get(13)?,
                    input: payload(row, 26)?,
                    options: json_opt(row, 23)?.unwrap_or_default(),
                    placement: one_of(&[Placement::Inline, Placement::Queue, Placement::Queue], 5, row)?,
                    entry: id_opt(row, 14)?.map(EntryId),
                },
                org: OrgId(id(row, 28)?),
                execution: ExecutionId(id(row, 29)?),
                slot: Slot { segment: row.get(1)?, sequence: row.get(2)? },
                status: one_of(&TASK_STATUS, 4, row)?,
                attempt: row.get(6)?,
                failed_attempts: row.get(7)?,
                losses: row.get(8)?,
                output: payload_opt(row, 27)?,
                failure: json_opt(row, 25)?,
                progress: row.get(24)?,
                visible_at: Timestamp(row.get(15)?),
                worker: id_opt(row, 16)?.map(WorkerId),
                created_at: Timestamp(row.get(20)?),
                started_at: row.get::<_, Option<i64>>(21)?.map(Timestamp),
                ended_at: row.get::<_, Option<i64>>(22)?.map(Timestamp),
            },
            born_inline: row.get::<_, u8>(5)? != 1,
            reconcile: row.get::<_, Option<bool>>(9)?.unwrap_or(false),
            epoch: row.get::<_, Option<u64>>(10)?.unwrap_or(0),
            ended_number: row.get(11)?,
            lease_expires: row.get(17)?,
            sign_at: row.get(18)?,
            stop: row.get::<_, Option<bool>>(19)?.unwrap_or(false),
        })
    }

    /// The task of a place.
    pub(super) fn at(conn: &Connection, place: i64) -> Done<Option<Self>> {
        first(conn, concat!(select_task!(), "WHERE t.place = ?1"), [place], Self::read)
    }

    /// The task of an id, of a run. Ended tasks are in no index of ids: a step is one row in one place.
    pub(super) fn of(conn: &Connection, org: OrgId, execution: ExecutionId, task: TaskId) -> Done<Option<Self>> {
        let (low, high) = span(Run::find(conn, org, execution)?.run);
        let sql = concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 AND t.id = ?3");
        first(conn, sql, params![low, high, blob(&task.0)], Self::read)
    }

    /// The open task of an id.
    pub(super) fn find(conn: &Connection, org: OrgId, task: TaskId) -> Done<Option<Self>> {
        first(
            conn,
            concat!(select_task!(), "WHERE t.id = ?1 AND t.ended_at IS NULL AND x.org_id = ?2"),
            [blob(&task.0), blob(&org.0)],
            Self::read,
        )
    }

    /// A task that an op of a batch makes, not yet stored.
    pub(super) fn new(run: &Run, place: i64, slot: Slot, new: &NewTask, now: Timestamp) -> Self {
        let inline = new.placement == Placement::Inline;
        Self {
            place,
            task: Task {
                new: new.clone(),
                org: run.org,
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
        tx.execute(
            "INSERT INTO task_execution (place, segment, sequence, id, status, placement, attempt, failed_attempts, \
             losses, reconcile, epoch, ended_number, detached, kind, queue, org_id, entry_id, visible_at, worker, \
             due_at, created_at, started_at, ended_at, label_name, label_key, seen, once_name, once_n, options, failure, \
             input, output) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
             ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32)",
            params![
                self.place,
                task.slot.segment,
                task.slot.sequence,
                blob(&task.new.id.0),
                task.status as u8,
                self.placement(),
                task.attempt,
                task.failed_attempts,
                task.losses,
                self.reconcile.then_some(true),
                self.epoch,
                self.ended_number,
                task.new.options.detached.then_some(true),
                task.new.kind,
                task.new.queue,
                (task.new.placement == Placement::Queue).then(|| blob(&task.org.0)),
                task.new.entry.as_ref().map(|entry| blob(&entry.0)),
                task.visible_at.0,
                task.worker.as_ref().map(|worker| blob(&worker.0)),
                due,
                task.created_at.0,
                task.started_at.map(|at| at.0),
                task.ended_at.map(|at| at.0),
                (*label.name != *task.new.kind).then_some(&*label.name),
                label_key(&label.key),
                seen_bytes(&op.seen),
                op.once.as_ref().map(|once| &*once.name),
                op.once.as_ref().map(|once| once.n),
                options,
                task.failure.as_ref().map(text_of).transpose()?,
                Cell(&task.new.input),
                task.output.as_ref().map(Cell),
            ],
        )?;
        self.announce(tx, due);
        Ok(())
    }

    /// Stores what may have changed of an existing task.
    pub(super) fn save(&self, tx: &Tx) -> Done<()> {
        let task = &self.task;
        let due = self.due(tx.now.0);
        tx.execute(
            "UPDATE task_execution SET status = ?2, placement = ?3, attempt = ?4, failed_attempts = ?5, losses = ?6, \
             reconcile = ?7, epoch = ?8, ended_number = ?9, org_id = ?10, visible_at = ?11, worker = ?12, \
             lease_expires = ?13, sign_at = ?14, stop = ?15, due_at = ?16, started_at = ?17, ended_at = ?18, \
             failure = ?19, output = ?20 WHERE place = ?1",
            params![
                self.place,
                task.status as u8,
                self.placement(),
                task.attempt,
                task.failed_attempts,
                task.losses,
                self.reconcile.then_some(true),
                self.epoch,
                self.ended_number,
                (task.new.placement == Placement::Queue).then(|| blob(&task.org.0)),
                task.visible_at.0,
                task.worker.as_ref().map(|worker| blob(&worker.0)),
                self.lease_expires,
                self.sign_at,
                self.stop.then_some(true),
                due,
                task.started_at.map(|at| at.0),
                task.ended_at.map(|at| at.0),
                task.failure.as_ref().map(text_of).transpose()?,
                task.output.as_ref().map(Cell),
            ],
        )?;
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
fn open(conn: &Connection, run: &Run) -> Done<Vec<TaskRow>> {
    let (low, high) = span(run.run);
    all(
        conn,
        concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 AND t.ended_at IS NULL ORDER BY t.place"),
        [low, high],
        TaskRow::read,
    )
}

/// Open tasks of a status.
pub(super) fn open_with(conn: &Connection, run: &Run, status: TaskStatus) -> Done<Vec<TaskRow>> {
    Ok(open(conn, run)?.into_iter().filter(|row| row.task.status == status).collect())
}

/// Open tasks that do not outlive their segment.
pub(super) fn open_attached(conn: &Connection, run: &Run) -> Done<Vec<TaskRow>> {
    Ok(open(conn, run)?.into_iter().filter(|row| !row.task.new.options.detached).collect())
}

/// Whether an open task has a status.
pub(super) fn has_open(conn: &Connection, run: &Run, status: TaskStatus) -> Done<bool> {
    let (low, high) = span(run.run);
    let found = first(
        conn,
        "SELECT 1 FROM task_execution WHERE place BETWEEN ?1 AND ?2 AND ended_at IS NULL AND status = ?3 LIMIT 1",
        params![low, high, status as u8],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// The columns of [`recorded`], after which comes a condition.
macro_rules! select_task_op {
    () => {
        "SELECT place, segment, sequence, id, status, placement, attempt, kind, options, label_name, label_key, seen, \
         once_name, once_n, ended_number FROM task_execution "
    };
}
pub(super) use select_task_op;

/// A task as the journal has it, with its place and its fact number.
pub(super) fn recorded(row: &Row<'_>) -> rusqlite::Result<(i64, RecordedOp, Option<u64>)> {
    let kind: String = row.get(7)?;
    let options: TaskOptions = json_opt(row, 8)?.unwrap_or_default();
    let once: Option<OnceSlot> = read_once(row, 12)?;
    let op = RecordedOp {
        segment: row.get(1)?,
        sequence: row.get(2)?,
        once,
        label: Label {
            kind: OpKind::Task,
            name: row.get::<_, Option<String>>(9)?.unwrap_or(kind).into(),
            key: read_label_key(row, 10)?,
        },
        seen: read_seen(row, 11)?,
        body: RecordedBody::Task {
            id: TaskId(id(row, 3)?),
            status: one_of(&TASK_STATUS, 4, row)?,
            attempt: row.get(6)?,
            inline: row.get::<_, u8>(5)? == 0,
            at_most_once: options.side_effects == SideEffects::AtMostOnce,
            detached: options.detached,
        },
    };
    Ok((row.get(0)?, op, row.get(14)?))
}
