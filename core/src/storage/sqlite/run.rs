//! The statements about runs: how a row is read and saved; its transitions are in `sql::run`.

use super::fault::Done;
use super::tx::Tx;
use super::values::{blob, duration, id, id_opt, json as json_column, json_opt, micros, one_of, payload, payload_opt};
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OrgId, WorkerId};
use crate::model::{CancelMode, Cancellation, Execution, ForkPoint, NewExecution, Status};
use crate::payload::Digest;
use crate::storage::sql;
use crate::storage::sql::run::{Stop, not_found};
use rusqlite::{Row, ToSql, params};

/// The columns of [`Run`], in its order.
macro_rules! run_columns {
    () => {
        "x.run, x.org_id, x.id, x.status, x.ready, x.epoch, x.worker, x.last_worker, x.lease_expires, x.lease_ttl, \
         x.segment, x.start, x.base, x.top, x.fact_high, x.losses, x.step_count, x.step_limit, x.tail_limit, x.leaf, \
         x.code, x.cancel_number, x.cancel_mode, x.cancel_grace, x.cancel_until, x.begins_at, x.ends_at, x.wait, x.quarantined, x.forked_run, x.claim_number, x.concurrency_key, \
         x.prefer_until, x.concurrency_limit"
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

/// Where the rows of a run are.
#[derive(Debug, Clone)]
pub(super) struct Home {
    /// The number that leads the keys of its rows.
    pub run: i64,
    pub org: OrgId,
    /// The place of op 0 of its segment.
    pub start: i64,
}

pub(super) type Run = sql::run::Run<Home>;

impl Run {
    /// The run of an org with an id, or `ExecutionNotFound`.
    pub(super) fn find(tx: &Tx, org: OrgId, execution: ExecutionId) -> Done<Self> {
        tx.first(
            concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.org_id = ?1 AND x.id = ?2"),
            [blob(&org.0), blob(&execution.0)],
            Self::read,
        )?
        .ok_or_else(|| not_found(execution).into())
    }

    /// The run of a row's key.
    pub(super) fn at(tx: &Tx, run: i64) -> Done<Option<Self>> {
        tx.first(concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.run = ?1"), [run], Self::read)
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
            home: Home { run: row.get(0)?, org: OrgId(id(row, 1)?), start: row.get(11)? },
            id: ExecutionId(id(row, 2)?),
            status: one_of(&Status::ALL, 3, row)?,
            epoch: row.get(5)?,
            worker: id_opt(row, 6)?.map(WorkerId),
            last_worker: id_opt(row, 7)?.map(WorkerId),
            lease_expires: row.get(8)?,
            lease_ttl: row.get(9)?,
            segment: row.get(10)?,
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
            prefer_until: row.get(32)?,
            concurrency_limit: row.get(33)?,
            concurrency_slot: 0,
        })
    }

    /// Writes everything that may have changed and announces what follows from it.
    pub(super) fn save(&self, tx: &Tx) -> Done<()> {
        let stop = self.stop.as_ref();
        tx.execute(
            "UPDATE agent_execution SET status = ?2, ready = ?3, epoch = ?4, worker = ?5, last_worker = ?6, \
             lease_expires = ?7, lease_ttl = ?8, segment = ?9, start = ?10, base = ?11, top = ?12, fact_high = ?13, \
             losses = ?14, step_count = ?15, step_limit = ?16, tail_limit = ?17, leaf = ?18, code = ?19, \
             cancel_number = ?20, cancel_mode = ?21, cancel_grace = ?22, cancel_until = ?23, begins_at = ?24, \
             ends_at = ?25, wait = ?26, due_at = ?27, updated_at = ?28, quarantined = ?29, claim_number = ?30, prefer_until = ?31 \
             WHERE run = ?1",
            params![
                self.home.run,
                self.status as u8,
                self.is_ready(tx.now),
                self.epoch,
                self.worker.as_ref().map(|id| blob(&id.0)),
                self.last_worker.as_ref().map(|id| blob(&id.0)),
                self.lease_expires,
                self.lease_ttl,
                self.segment,
                self.home.start,
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
                self.due(tx.now.0),
                tx.now.0,
                self.quarantined,
                self.claim_number,
                self.prefer_until,
            ],
        )?;
        self.announce(tx);
        Ok(())
    }

    /// Writes what a commit changes without a transition.
    pub(super) fn save_progress(&self, tx: &Tx) -> Done<()> {
        tx.execute(
            "UPDATE agent_execution SET leaf = ?2, step_count = ?3, code = ?4, losses = ?5, updated_at = ?6 WHERE run = ?1",
            params![self.home.run, self.leaf.as_ref().map(|id| blob(&id.0)), self.step_count, self.code, self.losses, tx.now.0],
        )?;
        Ok(())
    }

    /// Whether as many other runs of its concurrency key are RUNNING as may be.
    pub(super) fn is_key_held(&self, tx: &Tx) -> Done<bool> {
        let Some(key) = &self.concurrency_key else { return Ok(false) };
        let last = "SELECT 1 FROM agent_execution WHERE org_id = ?1 AND concurrency_key = ?2 AND status = 1 AND run <> ?3 \
                    LIMIT 1 OFFSET ?4";
        let before = self.key_limit() as i64 - 1;
        Ok(tx.first(last, params![blob(&self.home.org.0), key, self.home.run, before], |_| Ok(()))?.is_some())
    }
}

/// Reads the row of `select_execution!`.
pub(super) fn execution(row: &Row<'_>) -> rusqlite::Result<Execution> {
    let run = Run::read(row)?;
    let forked_from = match id_opt(row, 45)? {
        Some(parent) => {
            Some(ForkPoint { execution: ExecutionId(parent), segment: row.get(46)?, sequence: row.get(47)? })
        }
        None => None,
    };
    let created_at = Timestamp(row.get(48)?);
    let updated_at: i64 = row.get(49)?;
    let last_event: Option<i64> = row.get(55)?;
    Ok(Execution {
        new: NewExecution {
            org: run.home.org,
            id: run.id,
            kind: row.get(34)?,
            queue: row.get(35)?,
            priority: row.get(36)?,
            key: row.get(37)?,
            input_digest: Digest(row.get(38)?),
            limits: json_column(row, 39)?,
            metadata: json_column(row, 40)?,
            concurrency_key: run.concurrency_key.clone(),
            concurrency_limit: run.concurrency_limit,
            traceparent: row.get(41)?,
            input: payload(row, 52)?,
            delay: run.begins_at.map(|at| Timestamp(at).since(created_at)),
        },
        status: run.status,
        wait: run.wait(),
        output: payload_opt(row, 53)?,
        failure: json_opt(row, 51)?,
        segment: run.segment,
        leaf: run.leaf,
        code: run.code,
        epoch: run.epoch,
        worker: run.worker,
        lease_expires: run.lease_expires.map(Timestamp),
        base: run.base.max(row.get::<_, Option<u64>>(54)?.unwrap_or(0)),
        cancel: run.stop.map(|stop| (stop.cancellation, Timestamp(stop.until))),
        step_count: run.step_count,
        step_limit: run.step_limit,
        tail_limit: run.tail_limit,
        usage: json_column(row, 42)?,
        parent: id_opt(row, 43)?.map(ExecutionId),
        root: ExecutionId(id(row, 44)?),
        forked_from,
        losses: run.losses,
        created_at,
        updated_at: Timestamp(updated_at.max(last_event.unwrap_or(0))),
        ended_at: row.get::<_, Option<i64>>(50)?.map(Timestamp),
    })
}

/// The whole run of a compact number.
pub(super) fn execution_at(tx: &Tx, run: i64) -> Done<Execution> {
    load(tx, concat!(select_execution!(), "WHERE x.run = ?1"), &[&run])?
        .ok_or_else(|| super::values::missing("the row of a run").into())
}

/// The whole run of an id, or `ExecutionNotFound`.
pub(super) fn execution_of(tx: &Tx, org: OrgId, id: ExecutionId) -> Done<Execution> {
    load(tx, concat!(select_execution!(), "WHERE x.org_id = ?1 AND x.id = ?2"), &[&blob(&org.0), &blob(&id.0)])?
        .ok_or_else(|| not_found(id).into())
}

fn load(tx: &Tx, sql: &str, params: &[&dyn ToSql]) -> Done<Option<Execution>> {
    tx.first(sql, params, execution)
}
