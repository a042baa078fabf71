//! The row of a run: what decides its life, how it is saved, and the transitions that several commands share.

use super::fault::Done;
use super::tx::{Log, Tx, first};
use super::values::{
    blob, duration, id, id_opt, json as json_column, json_opt, micros, one_of, payload, payload_opt, text_of,
};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OrgId, WorkerId};
use crate::journal::retry::{MAX_LOSSES, described};
use crate::model::{
    CancelMode, Cancellation, EventKind, Execution, Fact, Failure, ForkPoint, Lease, NewExecution, Status, TaskStatus,
    Wait, WaitReason,
};
use crate::payload::{Digest, Payload};
use rusqlite::{Connection, Row, ToSql, params};
use serde_json::{Value, json};

/// The columns of [`Run`], in its order.
macro_rules! run_columns {
    () => {
        "x.run, x.org_id, x.id, x.status, x.ready, x.epoch, x.worker, x.last_worker, x.lease_expires, x.lease_ttl, \
         x.segment, x.start, x.base, x.top, x.fact_high, x.losses, x.step_count, x.step_limit, x.tail_limit, x.leaf, \
         x.code, x.cancel_number, x.cancel_mode, x.cancel_grace, x.cancel_until, x.begins_at, x.ends_at, x.wait, x.quarantined, x.forked_run, x.claim_number, x.concurrency_key"
    };
}
pub(super) use run_columns;

/// The columns of an [`Execution`]: those of [`Run`], then the rest. Followed by a condition on `x`.
macro_rules! select_execution {
    () => {
        concat!(
            "SELECT ",
            super::run::run_columns!(),
            ", x.kind, x.queue, x.priority, x.key, x.input_digest, x.limits, x.metadata, \
             x.traceparent, x.usage, x.parent_id, x.root_id, x.forked_id, x.forked_segment, x.forked_sequence, \
             x.created_at, x.updated_at, x.ended_at, x.failure, x.input, x.output, \
             (SELECT commit_number FROM event WHERE key BETWEEN x.run << 31 | x.claim_number AND x.run << 31 | 2147483647 \
             AND commit_number IS NOT NULL ORDER BY key DESC LIMIT 1), \
             (SELECT max(at, ifnull(committed_at, 0)) FROM event WHERE key BETWEEN x.run << 31 AND x.run << 31 | 2147483647 \
             ORDER BY key DESC LIMIT 1) \
             FROM agent_execution x "
        )
    };
}
pub(super) use select_execution;

/// A stop that was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    /// The number of its fact.
    pub number: u64,
    pub cancellation: Cancellation,
    pub until: i64,
}

/// What decides a run's life.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub run: i64,
    pub org: OrgId,
    pub id: ExecutionId,
    pub status: Status,
    pub epoch: u64,
    pub worker: Option<WorkerId>,
    pub last_worker: Option<WorkerId>,
    pub lease_expires: Option<i64>,
    pub lease_ttl: i64,
    pub segment: u32,
    pub start: i64,
    pub base: u64,
    pub top: u32,
    pub fact_high: u64,
    pub losses: u32,
    pub step_count: u32,
    pub step_limit: Option<u32>,
    pub tail_limit: u32,
    pub leaf: Option<EntryId>,
    pub code: Option<String>,
    pub stop: Option<Stop>,
    pub begins_at: Option<i64>,
    pub ends_at: Option<i64>,
    pub wait: Option<String>,
    /// It may have a quarantined task.
    pub quarantined: bool,
    pub forked: Option<i64>,
    /// The event of the last claim.
    pub claim_number: u64,
    pub concurrency_key: Option<String>,
}

impl Run {
    /// The run of an org with an id, or `ExecutionNotFound`.
    pub(super) fn find(conn: &Connection, org: OrgId, execution: ExecutionId) -> Done<Self> {
        first(
            conn,
            concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.org_id = ?1 AND x.id = ?2"),
            [blob(&org.0), blob(&execution.0)],
            Self::read,
        )?
        .ok_or_else(|| not_found(execution).into())
    }

    /// The run of a row's key.
    pub(super) fn at(conn: &Connection, run: i64) -> Done<Option<Self>> {
        first(conn, concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.run = ?1"), [run], Self::read)
    }

    /// Reads the columns of `run_columns!`.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let stop = match row.get::<_, Option<u64>>(21)? {
            Some(number) => Some(Stop {
                number,
                cancellation: Cancellation {
                    mode: one_of(&[CancelMode::Graceful, CancelMode::Hard], 22, row)?,
                    grace: duration(row.get(23)?),
                },
                until: row.get(24)?,
            }),
            None => None,
        };
        Ok(Self {
            run: row.get(0)?,
            org: OrgId(id(row, 1)?),
            id: ExecutionId(id(row, 2)?),
            status: one_of(&Status::ALL, 3, row)?,
            epoch: row.get(5)?,
            worker: id_opt(row, 6)?.map(WorkerId),
            last_worker: id_opt(row, 7)?.map(WorkerId),
            lease_expires: row.get(8)?,
            lease_ttl: row.get(9)?,
            segment: row.get(10)?,
            start: row.get(11)?,
            base: row.get(12)?,
            top: row.get(13)?,
            fact_high: row.get(14)?,
            losses: row.get(15)?,
            step_count: row.get(16)?,
            step_limit: row.get(17)?,
            tail_limit: row.get(18)?,
            leaf: id_opt(row, 19)?.map(EntryId),
            code: row.get(20)?,
            stop,
            begins_at: row.get(25)?,
            ends_at: row.get(26)?,
            wait: row.get(27)?,
            quarantined: row.get(28)?,
            forked: row.get(29)?,
            claim_number: row.get(30)?,
            concurrency_key: row.get(31)?,
        })
    }

    /// What it waits for.
    pub(super) fn wait(&self) -> Option<Wait> {
        self.wait.as_deref().and_then(|text| serde_json::from_str(text).ok())
    }

    /// Sets what it waits for.
    pub(super) fn set_wait(&mut self, wait: Option<&Wait>) -> Done<()> {
        self.wait = wait.map(text_of).transpose()?;
        Ok(())
    }

    /// When housekeeping must look at it.
    fn due(&self, now: i64) -> Option<i64> {
        [
            self.begins_at.filter(|at| self.status == Status::Pending && *at > now),
            self.lease_expires.filter(|_| self.worker.is_some()),
            self.stop.map(|stop| stop.until).filter(|_| self.status == Status::Cancelling),
            self.ends_at.filter(|_| !self.status.is_terminal()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Writes everything that may have changed and announces what follows from it.
    pub(super) fn save(&self, tx: &Tx) -> Done<()> {
        let due = self.due(tx.now.0);
        let ready = self.is_claimable() && self.begins_at.is_none_or(|at| at <= tx.now.0);
        let stop = self.stop.as_ref();
        tx.execute(
            "UPDATE agent_execution SET status = ?2, ready = ?3, epoch = ?4, worker = ?5, last_worker = ?6, \
             lease_expires = ?7, lease_ttl = ?8, segment = ?9, start = ?10, base = ?11, top = ?12, fact_high = ?13, \
             losses = ?14, step_count = ?15, step_limit = ?16, tail_limit = ?17, leaf = ?18, code = ?19, \
             cancel_number = ?20, cancel_mode = ?21, cancel_grace = ?22, cancel_until = ?23, begins_at = ?24, \
             ends_at = ?25, wait = ?26, due_at = ?27, updated_at = ?28, quarantined = ?29, claim_number = ?30 WHERE run = ?1",
            params![
                self.run,
                self.status as u8,
                ready,
                self.epoch,
                self.worker.as_ref().map(|id| blob(&id.0)),
                self.last_worker.as_ref().map(|id| blob(&id.0)),
                self.lease_expires,
                self.lease_ttl,
                self.segment,
                self.start,
                self.base,
                self.top,
                self.fact_high,
                self.losses,
                self.step_count,
                self.step_limit,
                self.tail_limit,
                self.leaf.as_ref().map(|id| blob(&id.0)),
                self.code,
                stop.map(|stop| stop.number),
                stop.map(|stop| u8::from(stop.cancellation.mode == CancelMode::Hard)),
                stop.map(|stop| micros(stop.cancellation.grace)),
                stop.map(|stop| stop.until),
                self.begins_at,
                self.ends_at,
                self.wait,
                due,
                tx.now.0,
                self.quarantined,
                self.claim_number,
            ],
        )?;
        // A run that holds its key no longer makes room for another.
        let frees = self.concurrency_key.is_some() && self.status != Status::Running;
        if ready || frees {
            tx.agents_ready();
        }
        if let Some(due) = due {
            tx.due(due);
        }
        Ok(())
    }

    /// Writes what a commit changes without a transition.
    pub(super) fn save_progress(&self, tx: &Tx) -> Done<()> {
        tx.execute(
            "UPDATE agent_execution SET leaf = ?2, step_count = ?3, code = ?4, losses = ?5, updated_at = ?6 WHERE run = ?1",
            params![self.run, self.leaf.as_ref().map(|id| blob(&id.0)), self.step_count, self.code, self.losses, tx.now.0],
        )?;
        Ok(())
    }

    /// Takes the holder away.
    pub(super) fn drop_holder(&mut self) {
        self.worker = None;
        self.lease_expires = None;
    }

    /// Whether a worker may claim it, its moment aside.
    pub(super) fn is_claimable(&self) -> bool {
        match self.status {
            Status::Pending => true,
            Status::Cancelling => self.worker.is_none() && self.wait.is_none(),
            _ => false,
        }
    }

    /// Why it is paused, if it is.
    pub(super) fn pause_reason(&self) -> Option<WaitReason> {
        self.wait().filter(|_| self.status == Status::Paused).and_then(|wait| wait.reason)
    }

    /// Stops it until somebody decides. The caller saves, as in all of these.
    pub(super) fn pause(
        &mut self,
        tx: &Tx,
        log: &mut Log<'_, '_>,
        reason: WaitReason,
        failure: Option<&Failure>,
    ) -> Done<()> {
        self.status = Status::Paused;
        self.drop_holder();
        self.last_worker = None;
        self.set_wait(Some(&Wait { reason: Some(reason), ..Wait::default() }))?;
        let mut data = json!({ "reason": reason });
        if let Some(failure) = failure {
            data["error"] = json!(failure);
        }
        log.event(EventKind::Paused, &data)?;
        self.set_failure(tx, failure)
    }

    /// Makes a paused run runnable.
    pub(super) fn unpause(&mut self, tx: &Tx, log: &mut Log<'_, '_>, kind: EventKind, data: &Value) -> Done<()> {
        self.status = Status::Pending;
        self.wait = None;
        self.losses = self.losses.min(MAX_LOSSES - 1);
        log.event(kind, data)?;
        self.set_failure(tx, None)
    }

    /// Ends it: open tasks are cancelled, timers disarmed, and it leaves what `end` says.
    /// The facts are those tasks' ends.
    pub(super) fn finish(&mut self, tx: &Tx, log: &mut Log<'_, '_>, end: Ending<'_>) -> Done<Vec<Fact>> {
        let (status, kind, output, failure, data) = match end {
            Ending::Completed(output) => (Status::Completed, EventKind::Completed, Some(output), None, json!({})),
            Ending::Failed(failure) => {
                (Status::Failed, EventKind::Failed, None, Some(failure), json!({ "error": failure }))
            }
            Ending::Cancelled(output, reason) => {
                (Status::Cancelled, EventKind::Cancelled, output, None, json!({ "reason": reason }))
            }
        };
        // First of all, so that the ends of its tasks wake nobody.
        self.wait = None;
        let mut facts = Vec::new();
        for mut task in super::task::open_attached(tx.conn, self)? {
            task.cancel(tx, self, log)?;
            facts.extend(task.fact());
        }
        super::op::disarm_all(tx, self)?;
        self.drop_holder();
        self.status = status;
        log.event(kind, &data)?;
        if let Some(output) = output {
            super::payloads::refer(tx, self, output)?;
        }
        tx.execute(
            "UPDATE agent_execution SET output = ?2, failure = ?3, ended_at = ?4 WHERE run = ?1",
            params![self.run, output.map(super::values::Cell), failure.map(text_of).transpose()?, tx.now.0],
        )?;
        Ok(facts)
    }

    fn set_failure(&self, tx: &Tx, failure: Option<&Failure>) -> Done<()> {
        tx.execute(
            "UPDATE agent_execution SET failure = ?2 WHERE run = ?1",
            params![self.run, failure.map(text_of).transpose()?],
        )?;
        Ok(())
    }

    /// Makes a waiting run runnable if it waits for this; tells whether it did.
    pub(super) fn wake(&mut self, log: &mut Log<'_, '_>, cause: Cause<'_>) -> Done<bool> {
        if !matches!(self.status, Status::Waiting | Status::Cancelling) {
            return Ok(false);
        }
        let Some(wait) = self.wait() else { return Ok(false) };
        let (met, reason) = match cause {
            Cause::Task => (wait.tasks, "task"),
            Cause::Timer => (wait.timers, "timer"),
            Cause::Signal(name) => (wait.signals.iter().any(|awaited| awaited == name), "signal"),
        };
        if met {
            self.wait = None;
            if self.status == Status::Waiting {
                self.status = Status::Pending;
                log.event(EventKind::Woken, &json!({ "reason": reason }))?;
            }
        }
        Ok(met)
    }

    /// Keeps the reason of a wait true while tasks go in and out of doubt.
    pub(super) fn review_wait(&mut self, tx: &Tx) -> Done<()> {
        if !matches!(self.status, Status::Waiting | Status::Cancelling) {
            return Ok(());
        }
        let Some(mut wait) = self.wait().filter(|wait| wait.tasks) else { return Ok(()) };
        if super::task::has_open(tx.conn, self, TaskStatus::InDoubt)? {
            wait.reason = Some(WaitReason::InDoubt);
        } else if wait.reason == Some(WaitReason::InDoubt) {
            wait.reason = Some(WaitReason::Task);
        }
        self.set_wait(Some(&wait))
    }

    /// Pauses the run because of a quarantined task, if it has one.
    pub(super) fn quarantine(&mut self, tx: &Tx, log: &mut Log<'_, '_>) -> Done<bool> {
        let Some(task) = super::task::open_with(tx.conn, self, TaskStatus::Quarantined)?.into_iter().next() else {
            self.quarantined = false;
            return Ok(false);
        };
        let task = &task.task;
        let message = format!("the task {:?} lost its worker {} times in a row", task.new.kind, task.losses);
        let failure = described(task, Failure::new(Code::TaskFailed, "Quarantined", message), task.failed_attempts);
        self.pause(tx, log, WaitReason::Quarantined, Some(&failure))?;
        Ok(true)
    }

    /// Gives it back unfinished.
    pub(super) fn give_back(&mut self, tx: &Tx, log: &mut Log<'_, '_>) -> Done<()> {
        self.drop_holder();
        self.last_worker = None;
        if self.status == Status::Running {
            self.status = Status::Pending;
            log.event(EventKind::Woken, &json!({ "reason": "released" }))?;
            if self.quarantined {
                self.quarantine(tx, log)?;
            }
        }
        Ok(())
    }

    /// Whether it waits by a timer that runs in this worker's process alone.
    pub(super) fn is_timed_by(&self, worker: WorkerId) -> bool {
        let waits = self.status == Status::Waiting && self.last_worker == Some(worker);
        waits && self.wait().is_some_and(|wait| wait.host_timer)
    }

    /// The process with the timer that may end its wait is gone: it is entered again, and the timer starts anew.
    pub(super) fn lose_host_timer(&mut self, log: &mut Log<'_, '_>) -> Done<()> {
        self.last_worker = None;
        self.wait = None;
        self.status = Status::Pending;
        log.event(EventKind::Woken, &json!({ "reason": "host_timer" }))?;
        Ok(())
    }

    /// Whether another run of its concurrency key is RUNNING.
    pub(super) fn is_key_held(&self, conn: &Connection) -> Done<bool> {
        let Some(key) = &self.concurrency_key else { return Ok(false) };
        let sql =
            "SELECT 1 FROM agent_execution WHERE org_id = ?1 AND concurrency_key = ?2 AND status = 1 AND run <> ?3";
        Ok(first(conn, sql, params![blob(&self.org.0), key, self.run], |_| Ok(()))?.is_some())
    }

    /// Refuses who does not hold it.
    pub(super) fn check_lease(&self, lease: Lease) -> Result<(), Error> {
        let held = matches!(self.status, Status::Running | Status::Cancelling);
        if held && self.epoch == lease.epoch && self.worker == Some(lease.worker) {
            return Ok(());
        }
        Err(Error::new(
            Code::LeaseLost,
            format!(
                "the worker {} at epoch {} no longer holds the run {}: it is {} at epoch {}; drop the work",
                lease.worker, lease.epoch, self.id, self.status, self.epoch
            ),
        )
        .with("epoch", self.epoch)
        .with("status", self.status))
    }
}

/// What a run leaves behind.
pub(super) enum Ending<'a> {
    Completed(&'a Payload),
    Failed(&'a Failure),
    /// What was kept, and who ended it.
    Cancelled(Option<&'a Payload>, &'static str),
}

/// What may wake a waiting run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause<'a> {
    Task,
    Timer,
    Signal(&'a str),
}

/// The error for an unknown run.
pub(super) fn not_found(execution: ExecutionId) -> Error {
    Error::new(
        Code::ExecutionNotFound,
        format!("no run has the id {execution}; check the id and that this is the database it was started in"),
    )
    .with("execution", execution)
}

/// Reads the row of `select_execution!`.
pub(super) fn execution(row: &Row<'_>) -> rusqlite::Result<Execution> {
    let run = Run::read(row)?;
    let forked_from = match id_opt(row, 43)? {
        Some(parent) => {
            Some(ForkPoint { execution: ExecutionId(parent), segment: row.get(44)?, sequence: row.get(45)? })
        }
        None => None,
    };
    let created_at = Timestamp(row.get(46)?);
    let updated_at: i64 = row.get(47)?;
    let last_event: Option<i64> = row.get(53)?;
    Ok(Execution {
        new: NewExecution {
            org: run.org,
            id: run.id,
            kind: row.get(32)?,
            queue: row.get(33)?,
            priority: row.get(34)?,
            key: row.get(35)?,
            input_digest: Digest(row.get(36)?),
            limits: json_column(row, 37)?,
            metadata: json_column(row, 38)?,
            concurrency_key: run.concurrency_key.clone(),
            traceparent: row.get(39)?,
            input: payload(row, 50)?,
            delay: run.begins_at.map(|at| Timestamp(at).since(created_at)),
        },
        status: run.status,
        wait: run.wait(),
        output: payload_opt(row, 51)?,
        failure: json_opt(row, 49)?,
        segment: run.segment,
        leaf: run.leaf,
        code: run.code,
        epoch: run.epoch,
        worker: run.worker,
        lease_expires: run.lease_expires.map(Timestamp),
        base: run.base.max(row.get::<_, Option<u64>>(52)?.unwrap_or(0)),
        cancel: run.stop.map(|stop| (stop.cancellation, Timestamp(stop.until))),
        step_count: run.step_count,
        step_limit: run.step_limit,
        tail_limit: run.tail_limit,
        usage: json_column(row, 40)?,
        parent: id_opt(row, 41)?.map(ExecutionId),
        root: ExecutionId(id(row, 42)?),
        forked_from,
        losses: run.losses,
        created_at,
        updated_at: Timestamp(updated_at.max(last_event.unwrap_or(0))),
        ended_at: row.get::<_, Option<i64>>(48)?.map(Timestamp),
    })
}

/// The whole run of a compact number.
pub(super) fn execution_at(conn: &Connection, run: i64) -> Done<Execution> {
    load(conn, concat!(select_execution!(), "WHERE x.run = ?1"), &[&run])?
        .ok_or_else(|| super::values::missing("the row of a run").into())
}

/// The whole run of an id, or `ExecutionNotFound`.
pub(super) fn execution_of(conn: &Connection, org: OrgId, id: ExecutionId) -> Done<Execution> {
    load(conn, concat!(select_execution!(), "WHERE x.org_id = ?1 AND x.id = ?2"), &[&blob(&org.0), &blob(&id.0)])?
        .ok_or_else(|| not_found(id).into())
}

fn load(conn: &Connection, sql: &str, params: &[&dyn ToSql]) -> Done<Option<Execution>> {
    first(conn, sql, params, execution)
}
