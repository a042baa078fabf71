//! The row of a run: what decides its life, how it is saved, and the transitions that several commands share.

use super::fault::Done;
use super::locks::{self, Last};
use super::sets::{Set, row};
use super::tx::{Log, Mode, Tx, none};
use super::values::{
    Key, Row, cell, duration, json as json_column, json_opt, micros, one_of, payload, payload_opt, text_of,
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
use serde_json::{Value, json};
use uuid::Uuid;

/// The columns of [`Run`], in its order.
macro_rules! run_columns {
    () => {
        "x.org_id, x.run, x.id, x.status, x.epoch, x.worker, x.last_worker, x.lease_expires, x.lease_ttl, x.segment, \
         x.base, x.top, x.fact_high, x.losses, x.step_count, x.step_limit, x.tail_limit, x.leaf, x.code, x.cancel_number, \
         x.cancel_mode, x.cancel_grace, x.cancel_until, x.begins_at, x.ends_at, x.wait, x.quarantined, x.forked_run, \
         x.claim_number, x.concurrency_key"
    };
}
pub(super) use run_columns;

/// The columns of an [`Execution`]: those of [`Run`], then the rest. Followed by a condition on `x`.
macro_rules! select_execution {
    () => {
        concat!(
            "SELECT ",
            $crate::storage::postgres::run::run_columns!(),
            ", x.kind, x.queue, x.priority, x.key, x.input_digest, x.limits, x.metadata, \
             x.traceparent, x.usage, x.parent_id, x.root_id, x.forked_id, x.forked_segment, x.forked_sequence, \
             x.created_at, x.updated_at, x.ended_at, x.failure, x.input, x.output, \
             (SELECT commit_number FROM event WHERE org_id = x.org_id AND run = x.run AND number >= x.claim_number \
             AND commit_number IS NOT NULL ORDER BY number DESC LIMIT 1), \
             (SELECT greatest(at, committed_at) FROM event WHERE org_id = x.org_id AND run = x.run \
             ORDER BY number DESC LIMIT 1) \
             FROM agent_execution x "
        )
    };
}
pub(super) use select_execution;

static SAVED: Set = Set::update(
    "agent_execution",
    2,
    "org_id uuid, run bigint, status smallint, ready boolean, epoch bigint, worker uuid, last_worker uuid, \
     lease_expires bigint, lease_ttl bigint, segment int, base bigint, top int, fact_high bigint, losses int, \
     step_count int, step_limit int, tail_limit bigint, leaf uuid, code text, cancel_number bigint, cancel_mode smallint, \
     cancel_grace bigint, cancel_until bigint, begins_at bigint, ends_at bigint, wait text, due_at bigint, \
     updated_at bigint, quarantined boolean, claim_number bigint, host_timer boolean",
);
static PROGRESS: Set = Set::update(
    "agent_execution",
    2,
    "org_id uuid, run bigint, leaf uuid, step_count int, code text, losses int, updated_at bigint",
);
static ENDED: Set =
    Set::update("agent_execution", 2, "org_id uuid, run bigint, output bytea, failure text, ended_at bigint");
static FAILURE: Set = Set::update("agent_execution", 2, "org_id uuid, run bigint, failure text");

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
    pub key: Key,
    pub id: ExecutionId,
    pub status: Status,
    pub epoch: u64,
    pub worker: Option<WorkerId>,
    pub last_worker: Option<WorkerId>,
    pub lease_expires: Option<i64>,
    pub lease_ttl: i64,
    pub segment: u32,
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
    /// What its events told when it was locked; nothing for a run that is only read.
    pub last: Option<Last>,
}

impl Run {
    /// The run of an org with an id, or `ExecutionNotFound`. Locked, where the transaction writes.
    pub(super) fn find(tx: &Tx, org: OrgId, execution: ExecutionId) -> Done<Self> {
        let taken = tx.locked.borrow_mut().take(org, execution);
        let found = match (taken, tx.mode) {
            (Some(run), _) => Some(run),
            (None, Mode::Write) => {
                locks::lock(tx, &[(org, execution)])?;
                tx.locked.borrow_mut().take(org, execution)
            }
            (None, Mode::Read) => tx.first(
                concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.org_id = $1 AND x.id = $2"),
                row![org.0, execution.0],
                Self::read,
            )?,
        };
        found.ok_or_else(|| not_found(execution).into())
    }

    /// The run of a row's key; locked, where the transaction writes.
    pub(super) fn at(tx: &Tx, key: Key) -> Done<Option<Self>> {
        if let Some(run) = tx.locked.borrow_mut().take_at(key) {
            return Ok(Some(run));
        }
        let found = Self::peek(tx, key)?;
        match (found, tx.mode) {
            (Some(run), Mode::Write) => none(Self::find(tx, key.org, run.id)),
            (found, _) => Ok(found),
        }
    }

    /// The run of a row's key as it is, not locked.
    pub(super) fn peek(tx: &Tx, key: Key) -> Done<Option<Self>> {
        tx.first(
            concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.org_id = $1 AND x.run = $2"),
            row![key.org.0, key.run],
            Self::read,
        )
    }

    /// Reads the columns of `run_columns!`.
    pub(super) fn read(row: &Row) -> Done<Self> {
        let stop = match row.get::<Option<u64>>(19)? {
            Some(number) => Some(Stop {
                number,
                cancellation: Cancellation {
                    mode: one_of(&[CancelMode::Graceful, CancelMode::Hard], 20, row)?,
                    grace: duration(row.get(21)?),
                },
                until: row.get(22)?,
            }),
            None => None,
        };
        Ok(Self {
            key: Key { org: OrgId(row.get(0)?), run: row.get(1)? },
            id: ExecutionId(row.get(2)?),
            status: one_of(&Status::ALL, 3, row)?,
            epoch: row.get(4)?,
            worker: row.get::<Option<Uuid>>(5)?.map(WorkerId),
            last_worker: row.get::<Option<Uuid>>(6)?.map(WorkerId),
            lease_expires: row.get(7)?,
            lease_ttl: row.get(8)?,
            segment: row.get(9)?,
            base: row.get(10)?,
            top: row.get(11)?,
            fact_high: row.get(12)?,
            losses: row.get(13)?,
            step_count: row.get(14)?,
            step_limit: row.get(15)?,
            tail_limit: u32::try_from(row.get::<u64>(16)?).unwrap_or(u32::MAX),
            leaf: row.get::<Option<Uuid>>(17)?.map(EntryId),
            code: row.get(18)?,
            stop,
            begins_at: row.get(23)?,
            ends_at: row.get(24)?,
            wait: row.get(25)?,
            quarantined: row.get(26)?,
            forked: row.get(27)?,
            claim_number: row.get(28)?,
            concurrency_key: row.get(29)?,
            last: None,
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
    pub(super) fn due(&self, now: i64) -> Option<i64> {
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

    /// Whether it may be claimed now.
    pub(super) fn is_ready(&self, now: Timestamp) -> bool {
        self.is_claimable() && self.begins_at.is_none_or(|at| at <= now.0)
    }

    /// Announces what follows from what it is now.
    pub(super) fn announce(&self, tx: &Tx) {
        // A run that holds its key no longer makes room for another.
        let frees = self.concurrency_key.is_some() && self.status != Status::Running;
        if self.is_ready(tx.now) || frees {
            tx.agents_ready();
        }
        if let Some(due) = self.due(tx.now.0) {
            tx.due(due);
        }
    }

    /// Writes everything that may have changed and announces what follows from it.
    pub(super) fn save(&self, tx: &Tx) -> Done<()> {
        let stop = self.stop.as_ref();
        tx.put(
            &SAVED,
            row![
                self.key.org.0,
                self.key.run,
                self.status as u8,
                self.is_ready(tx.now),
                self.epoch,
                self.worker.map(|id| id.0),
                self.last_worker.map(|id| id.0),
                self.lease_expires,
                self.lease_ttl,
                self.segment,
                self.base,
                self.top,
                self.fact_high,
                self.losses,
                self.step_count,
                self.step_limit,
                self.tail_limit,
                self.leaf.map(|id| id.0),
                self.code.as_deref(),
                stop.map(|stop| stop.number),
                stop.map(|stop| u8::from(stop.cancellation.mode == CancelMode::Hard)),
                stop.map(|stop| micros(stop.cancellation.grace)),
                stop.map(|stop| stop.until),
                self.begins_at,
                self.ends_at,
                self.wait.as_deref(),
                self.due(tx.now.0),
                tx.now,
                self.quarantined,
                self.claim_number,
                self.status == Status::Waiting && self.wait().is_some_and(|wait| wait.host_timer),
            ],
        );
        self.announce(tx);
        Ok(())
    }

    /// Writes what a commit changes without a transition.
    pub(super) fn save_progress(&self, tx: &Tx) {
        tx.put(
            &PROGRESS,
            row![
                self.key.org.0,
                self.key.run,
                self.leaf.map(|id| id.0),
                self.step_count,
                self.code.as_deref(),
                self.losses,
                tx.now,
            ],
        );
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
        for mut task in super::task::open_attached(tx, self)? {
            task.cancel(tx, self, log)?;
            facts.extend(task.fact());
        }
        super::op::disarm_all(tx, self);
        self.drop_holder();
        self.status = status;
        log.event(kind, &data)?;
        if let Some(output) = output {
            super::payloads::refer(tx, self, output)?;
        }
        let (output, failure) = (output.map(cell).transpose()?, failure.map(text_of).transpose()?);
        tx.put(&ENDED, row![self.key.org.0, self.key.run, output, failure, tx.now]);
        Ok(facts)
    }

    fn set_failure(&self, tx: &Tx, failure: Option<&Failure>) -> Done<()> {
        tx.put(&FAILURE, row![self.key.org.0, self.key.run, failure.map(text_of).transpose()?]);
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
        if super::task::has_open(tx, self, TaskStatus::InDoubt)? {
            wait.reason = Some(WaitReason::InDoubt);
        } else if wait.reason == Some(WaitReason::InDoubt) {
            wait.reason = Some(WaitReason::Task);
        }
        self.set_wait(Some(&wait))
    }

    /// Pauses the run because of a quarantined task, if it has one.
    pub(super) fn quarantine(&mut self, tx: &Tx, log: &mut Log<'_, '_>) -> Done<bool> {
        let Some(task) = super::task::open_with(tx, self, TaskStatus::Quarantined)?.into_iter().next() else {
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
    pub(super) fn is_key_held(&self, tx: &Tx) -> Done<bool> {
        let Some(key) = self.concurrency_key.as_deref() else { return Ok(false) };
        let sql =
            "SELECT run FROM agent_execution WHERE org_id = $1 AND concurrency_key = $2 AND status = 1 AND run <> $3";
        Ok(tx.first(sql, row![self.key.org.0, key, self.key.run], |row| row.get::<i64>(0))?.is_some())
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
pub(super) fn execution(row: &Row) -> Done<Execution> {
    let run = Run::read(row)?;
    let forked_from = match row.get::<Option<Uuid>>(41)? {
        Some(parent) => {
            Some(ForkPoint { execution: ExecutionId(parent), segment: row.get(42)?, sequence: row.get(43)? })
        }
        None => None,
    };
    let created_at = Timestamp(row.get(44)?);
    let updated_at: i64 = row.get(45)?;
    let last_event: Option<i64> = row.get(51)?;
    Ok(Execution {
        new: NewExecution {
            org: run.key.org,
            id: run.id,
            kind: row.get(30)?,
            queue: row.get(31)?,
            priority: row.get(32)?,
            key: row.get(33)?,
            input_digest: Digest(row.get(34)?),
            limits: json_column(row, 35)?,
            metadata: json_column(row, 36)?,
            concurrency_key: run.concurrency_key.clone(),
            traceparent: row.get(37)?,
            input: payload(row, 48)?,
            delay: run.begins_at.map(|at| Timestamp(at).since(created_at)),
        },
        status: run.status,
        wait: run.wait(),
        output: payload_opt(row, 49)?,
        failure: json_opt(row, 47)?,
        segment: run.segment,
        leaf: run.leaf,
        code: run.code,
        epoch: run.epoch,
        worker: run.worker,
        lease_expires: run.lease_expires.map(Timestamp),
        base: run.base.max(row.get::<Option<u64>>(50)?.unwrap_or(0)),
        cancel: run.stop.map(|stop| (stop.cancellation, Timestamp(stop.until))),
        step_count: run.step_count,
        step_limit: run.step_limit,
        tail_limit: run.tail_limit,
        usage: json_column(row, 38)?,
        parent: row.get::<Option<Uuid>>(39)?.map(ExecutionId),
        root: ExecutionId(row.get(40)?),
        forked_from,
        losses: run.losses,
        created_at,
        updated_at: Timestamp(updated_at.max(last_event.unwrap_or(0))),
        ended_at: row.get::<Option<i64>>(46)?.map(Timestamp),
    })
}

/// The whole run of a key.
pub(super) fn execution_at(tx: &Tx, key: Key) -> Done<Execution> {
    tx.first(concat!(select_execution!(), "WHERE x.org_id = $1 AND x.run = $2"), row![key.org.0, key.run], execution)?
        .ok_or_else(|| super::values::missing("the row of a run").into())
}

/// The whole run of an id, or `ExecutionNotFound`.
pub(super) fn execution_of(tx: &Tx, org: OrgId, id: ExecutionId) -> Done<Execution> {
    tx.first(concat!(select_execution!(), "WHERE x.org_id = $1 AND x.id = $2"), row![org.0, id.0], execution)?
        .ok_or_else(|| not_found(id).into())
}
