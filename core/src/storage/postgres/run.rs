//! The statements about runs: how a row is found, locked, read and saved; its transitions are in `sql::run`.

use super::fault::Done;
use super::locks::{self, Last};
use super::sets::{Set, row};
use super::tx::{Mode, Tx, none};
use super::values::{Key, Row, duration, json as json_column, json_opt, micros, one_of, payload, payload_opt};
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OrgId, WorkerId};
use crate::model::{CancelMode, Cancellation, Execution, ForkPoint, NewExecution, Status};
use crate::payload::Digest;
use crate::storage::sql;
use crate::storage::sql::run::{Stop, not_found};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The columns of [`Run`], in its order.
macro_rules! run_columns {
    () => {
        "x.org_id, x.run, x.id, x.status, x.epoch, x.worker, x.last_worker, x.lease_expires, x.lease_ttl, x.segment, \
         x.base, x.top, x.fact_high, x.losses, x.step_count, x.step_limit, x.tail_limit, x.leaf, x.code, x.cancel_number, \
         x.cancel_mode, x.cancel_grace, x.cancel_until, x.begins_at, x.ends_at, x.wait, x.quarantined, x.forked_run, \
         x.claim_number, x.concurrency_key, \
         x.prefer_until, x.concurrency_limit, x.concurrency_slot"
    };
}
pub(super) use run_columns;

/// The columns of an [`Execution`], of a run `x`: those of [`Run`], then the rest.
macro_rules! execution_columns {
    () => {
        concat!(
            $crate::storage::postgres::run::run_columns!(),
            ", x.kind, x.queue, x.priority, x.key, x.input_digest, x.limits, x.metadata, \
             x.traceparent, x.usage, x.parent_id, x.root_id, x.forked_id, x.forked_segment, x.forked_sequence, \
             x.created_at, x.updated_at, x.ended_at, x.failure, x.input, x.output, \
             (SELECT commit_number FROM event WHERE org_id = x.org_id AND run = x.run AND number >= x.claim_number \
             AND commit_number IS NOT NULL ORDER BY number DESC LIMIT 1), \
             (SELECT greatest(at, committed_at) FROM event WHERE org_id = x.org_id AND run = x.run \
             ORDER BY number DESC LIMIT 1)"
        )
    };
}
pub(super) use execution_columns;

/// Followed by a condition on `x`.
macro_rules! select_execution {
    () => {
        concat!("SELECT ", $crate::storage::postgres::run::execution_columns!(), " FROM agent_execution x ")
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
     updated_at bigint, quarantined boolean, claim_number bigint, host_timer boolean, prefer_until bigint, \
     concurrency_slot int",
);
static PROGRESS: Set = Set::update(
    "agent_execution",
    2,
    "org_id uuid, run bigint, leaf uuid, step_count int, code text, losses int, updated_at bigint",
);

/// Where the rows of a run are.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub key: Key,
    /// What its events told when it was locked; nothing for a run that is only read.
    pub last: Option<Last>,
}

pub(super) type Run = sql::run::Run<Home>;

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
            (None, Mode::Read(_)) => tx.first(
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
            home: Home { key: Key { org: OrgId(row.get(0)?), run: row.get(1)? }, last: None },
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
            prefer_until: row.get(30)?,
            concurrency_limit: row.get(31)?,
            concurrency_slot: row.get(32)?,
        })
    }

    /// Writes everything that may have changed and announces what follows from it.
    pub(super) fn save(&self, tx: &Tx) -> Done<()> {
        let stop = self.stop.as_ref();
        tx.put(
            &SAVED,
            row![
                self.home.key.org.0,
                self.home.key.run,
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
                self.prefer_until,
                self.concurrency_slot,
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
                self.home.key.org.0,
                self.home.key.run,
                self.leaf.map(|id| id.0),
                self.step_count,
                self.code.as_deref(),
                self.losses,
                tx.now,
            ],
        );
    }

    /// Takes a place among the RUNNING runs of its concurrency key; false where as many run as may.
    pub(super) fn take_slot(&mut self, tx: &Tx) -> Done<bool> {
        let Some(key) = self.concurrency_key.as_deref() else { return Ok(true) };
        let sql = "SELECT concurrency_slot FROM agent_execution \
                   WHERE org_id = $1 AND concurrency_key = $2 AND status = 1 AND run <> $3";
        let held = tx.all(sql, row![self.home.key.org.0, key, self.home.key.run], |row| row.get(0))?;
        Ok(self.take_slot_beside(&mut held.into_iter().collect()))
    }

    /// As [`take_slot`](Self::take_slot), of the places that are held.
    pub(super) fn take_slot_beside(&mut self, held: &mut BTreeSet<u32>) -> bool {
        if held.len() >= self.key_limit() {
            return false;
        }
        let free = (0..).find(|slot| !held.contains(slot)).unwrap_or_default();
        self.concurrency_slot = free;
        held.insert(free)
    }
}

/// Reads the row of `select_execution!`.
pub(super) fn execution(row: &Row) -> Done<Execution> {
    let run = Run::read(row)?;
    let forked_from = match row.get::<Option<Uuid>>(44)? {
        Some(parent) => {
            Some(ForkPoint { execution: ExecutionId(parent), segment: row.get(45)?, sequence: row.get(46)? })
        }
        None => None,
    };
    let created_at = Timestamp(row.get(47)?);
    let updated_at: i64 = row.get(48)?;
    let last_event: Option<i64> = row.get(54)?;
    Ok(Execution {
        new: NewExecution {
            org: run.home.key.org,
            id: run.id,
            kind: row.get(33)?,
            queue: row.get(34)?,
            priority: row.get(35)?,
            key: row.get(36)?,
            input_digest: Digest(row.get(37)?),
            limits: json_column(row, 38)?,
            metadata: json_column(row, 39)?,
            concurrency_key: run.concurrency_key.clone(),
            concurrency_limit: run.concurrency_limit,
            traceparent: row.get(40)?,
            input: payload(row, 51)?,
            delay: run.begins_at.map(|at| Timestamp(at).since(created_at)),
        },
        status: run.status,
        wait: run.wait(),
        output: payload_opt(row, 52)?,
        failure: json_opt(row, 50)?,
        segment: run.segment,
        leaf: run.leaf,
        code: run.code,
        epoch: run.epoch,
        worker: run.worker,
        lease_expires: run.lease_expires.map(Timestamp),
        base: run.base.max(row.get::<Option<u64>>(53)?.unwrap_or(0)),
        cancel: run.stop.map(|stop| (stop.cancellation, Timestamp(stop.until))),
        step_count: run.step_count,
        step_limit: run.step_limit,
        tail_limit: run.tail_limit,
        usage: json_column(row, 41)?,
        parent: row.get::<Option<Uuid>>(42)?.map(ExecutionId),
        root: ExecutionId(row.get(43)?),
        forked_from,
        losses: run.losses,
        created_at,
        updated_at: Timestamp(updated_at.max(last_event.unwrap_or(0))),
        ended_at: row.get::<Option<i64>>(49)?.map(Timestamp),
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
