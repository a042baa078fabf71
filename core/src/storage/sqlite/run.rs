//! The statements about runs: how a row is read and saved; its transitions are in `sql::run`.

use super::event::high;
use super::fault::Done;
use super::tx::Tx;
use super::values::{
    Cell, blob, duration, id, id_opt, json as json_column, json_opt, micros, one_of, payload, payload_opt, text_of,
};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OrgId, RequestId, WorkerId};
use crate::model::{
    CancelMode, Cancellation, Execution, Failure, ForkPoint, NewExecution, OnParentEnd, Persistence, Purse,
    StartLimits, Status, UsageTotals,
};
use crate::payload::{Digest, Payload};
use crate::storage::Standing;
use crate::storage::ledger::Account;
use crate::storage::sql::run::{Origin, Stop, not_found};
use crate::storage::sql::tail::Point;
use crate::storage::sql::{self, Runs};
use rusqlite::{Row, params};

/// The columns of [`Run`], in its order.
macro_rules! run_columns {
    () => {
        "x.run, x.org_id, x.id, x.status, x.ready, x.epoch, x.worker, x.last_worker, x.lease_expires, x.lease_ttl, \
         x.segment, x.start, x.base, x.top, x.fact_high, x.losses, x.step_count, x.step_limit, x.tail_limit, x.leaf, \
         x.code, x.cancel_number, x.cancel_mode, x.cancel_grace, x.cancel_until, x.begins_at, x.ends_at, x.wait, x.quarantined, x.forked_run, x.claim_number, x.concurrency_key, \
         x.prefer_until, x.concurrency_limit, x.children, x.depth, x.parent_id, x.root_id, x.purse, \
         x.shared_context, x.handed_to, x.starts_by, x.persistence"
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
             x.traceparent, x.usage, x.forked_id, x.forked_segment, x.forked_sequence, \
             x.created_at, x.updated_at, x.ended_at, x.failure, x.input, x.output, \
             (SELECT commit_number FROM event WHERE key BETWEEN x.run << 31 | x.claim_number AND x.run << 31 | 2147483647 \
             AND commit_number IS NOT NULL ORDER BY key DESC LIMIT 1), \
             (SELECT max(at, ifnull(committed_at, 0)) FROM event WHERE key BETWEEN x.run << 31 AND x.run << 31 | 2147483647 \
             ORDER BY key DESC LIMIT 1), x.purse, x.detached \
             FROM agent_execution x "
        )
    };
}
pub(super) use select_execution;

/// Where the rows of a run are.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Home {
    /// The number that leads the keys of its rows.
    pub run: i64,
    pub org: OrgId,
    /// The place of op 0 of its segment.
    pub start: i64,
}

pub(super) type Run = sql::run::Run<Home>;

/// What becomes of a child when its parent ends.
fn then(detached: bool) -> OnParentEnd {
    if detached { OnParentEnd::Detach } else { OnParentEnd::Cancel }
}

impl Run {
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
            forked: row.get::<_, Option<i64>>(29)?.is_some(),
            claim_number: row.get(30)?,
            concurrency_key: row.get(31)?,
            prefer_until: row.get(32)?,
            concurrency_limit: row.get(33)?,
            concurrency_slot: 0,
            children: row.get(34)?,
            depth: row.get(35)?,
            parent: id_opt(row, 36)?.map(ExecutionId),
            root: ExecutionId(id(row, 37)?),
            purse: row.get(38)?,
            shared_context: json_opt(row, 39)?,
            handed_to: id_opt(row, 40)?.map(ExecutionId),
            starts_by: row.get(41)?,
            persistence: one_of(&Persistence::ALL, 42, row)?,
        })
    }
}

impl Runs for Tx<'_> {
    fn peek_run(&self, run: i64) -> Done<Option<Run>> {
        Run::at(self, run)
    }

    fn execution(&self, run: i64) -> Done<Execution> {
        self.first(concat!(select_execution!(), "WHERE x.run = ?1"), [run], execution)?
            .ok_or_else(|| super::values::missing("the row of a run").into())
    }

    fn execution_of(&self, org: OrgId, id: ExecutionId) -> Done<Execution> {
        let sql = concat!(select_execution!(), "WHERE x.org_id = ?1 AND x.id = ?2");
        self.first(sql, [blob(&org.0), blob(&id.0)], execution)?.ok_or_else(|| not_found(id).into())
    }

    fn standings(&self, org: OrgId, ids: &[ExecutionId]) -> Done<Vec<Standing>> {
        let sql = "SELECT run, status FROM agent_execution WHERE org_id = ?1 AND id = ?2";
        let mut there = Vec::with_capacity(ids.len());
        for &id in ids {
            let found = self.first(sql, [blob(&org.0), blob(&id.0)], |row| {
                Ok((row.get::<_, i64>(0)?, one_of(&Status::ALL, 1, row)?))
            })?;
            if let Some((run, status)) = found {
                there.push(Standing::of(id, high(self, run)?, status));
            }
        }
        Ok(there)
    }

    fn insert_run(
        &self,
        run: &mut Run,
        new: &NewExecution,
        limits: &StartLimits,
        origin: Option<&Origin<i64>>,
    ) -> Done<bool> {
        let metadata = (!new.metadata.is_empty()).then(|| text_of(&new.metadata)).transpose()?;
        let made = self.execute(
            "INSERT INTO agent_execution (org_id, id, status, ready, step_limit, tail_limit, begins_at, ends_at, due_at, kind, \
             queue, priority, key, input_digest, limits, metadata, concurrency_key, traceparent, root_id, forked_run, \
             forked_id, forked_segment, forked_sequence, forked_high, forked_base, created_at, updated_at, input, \
             concurrency_limit, parent_id, depth, purse, detached, shared_context, leaf, starts_by, persistence) VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, \
             ?16, ?17, ?29, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?24, ?25, ?26, ?27, ?28, ?30, ?31, ?32, ?33, ?34, ?35) ON CONFLICT (org_id, id) DO NOTHING",
            params![
                blob(&new.org.0),
                blob(&new.id.0),
                run.is_ready(self.now),
                run.step_limit,
                run.tail_limit,
                run.begins_at,
                run.ends_at,
                run.due(self.now.0),
                new.kind,
                new.queue,
                new.priority,
                new.key,
                &new.input_digest.0[..],
                text_of(limits)?,
                metadata,
                new.concurrency_key,
                new.traceparent,
                origin.map(|origin| origin.parent),
                origin.map(|origin| blob(&origin.id.0)),
                origin.map(|origin| origin.point.segment),
                origin.and_then(|origin| origin.point.sequence),
                origin.map(|origin| origin.point.high),
                origin.map(|origin| origin.point.base),
                self.now.0,
                Cell(&new.input),
                new.concurrency_limit,
                run.parent.as_ref().map(|parent| blob(&parent.0)),
                run.depth,
                blob(&run.root.0),
                run.purse.as_deref(),
                new.on_parent_end == OnParentEnd::Detach,
                new.shared_context.as_ref().map(text_of).transpose()?,
                run.leaf.as_ref().map(|id| blob(&id.0)),
                run.starts_by,
                run.persistence as u8,
            ],
        )?;
        if made == 0 {
            return Ok(false);
        }
        run.home.run = self.conn.last_insert_rowid();
        if run.home.run > i64::from(u32::MAX) {
            let message = "the file has no numbers left for runs; use a new file";
            return Err(Error::new(Code::InvalidArgument, message).into());
        }
        Ok(true)
    }

    fn origin(&self, fork: i64) -> Done<Option<Origin<i64>>> {
        self.first(
            "SELECT forked_run, forked_id, forked_segment, forked_sequence, forked_high, forked_base FROM agent_execution \
             WHERE run = ?1 AND forked_run IS NOT NULL",
            [fork],
            |row| {
                let point =
                    Point { segment: row.get(2)?, sequence: row.get(3)?, high: row.get(4)?, base: row.get(5)? };
                Ok(Origin { parent: row.get(0)?, id: ExecutionId(id(row, 1)?), point })
            },
        )
    }

    fn forked_since(&self, run: &Run, end: u64) -> Done<Option<ExecutionId>> {
        let sql = "SELECT id FROM agent_execution WHERE forked_run = ?1 AND forked_high >= ?2 LIMIT 1";
        self.first(sql, params![run.home.run, end], |row| id(row, 0).map(ExecutionId))
    }

    fn open_children(&self, run: &Run) -> Done<Vec<(ExecutionId, OnParentEnd)>> {
        self.all(
            "SELECT id, detached FROM agent_execution WHERE parent_id = ?1 AND org_id = ?2 AND ended_at IS NULL ORDER BY run",
            [blob(&run.id.0), blob(&run.home.org.0)],
            |row| Ok((ExecutionId(id(row, 0)?), then(row.get(1)?))),
        )
    }

    fn accounts(&self, org: OrgId, execution: ExecutionId) -> Done<Vec<Account>> {
        let sql = "WITH RECURSIVE up AS (SELECT org_id, run, parent_id FROM agent_execution WHERE org_id = ?1 AND id = ?2 \
                   UNION ALL SELECT a.org_id, a.run, a.parent_id FROM up JOIN agent_execution a \
                   ON a.org_id = up.org_id AND a.id = up.parent_id) \
                   SELECT x.id, x.limits, x.usage, x.purse, x.status FROM up JOIN agent_execution x ON x.run = up.run \
                   ORDER BY x.depth DESC";
        self.all(sql, [blob(&org.0), blob(&execution.0)], |row| {
            let (limits, usage): (StartLimits, UsageTotals) = (json_column(row, 1)?, json_column(row, 2)?);
            let (id, status) = (ExecutionId(id(row, 0)?), one_of(&Status::ALL, 4, row)?);
            Ok(Account::of(id, limits.budget.as_deref(), &usage, json_opt(row, 3)?, status))
        })
    }

    fn put_purse(&self, org: OrgId, execution: ExecutionId, purse: &Purse) -> Done<()> {
        let sql = "UPDATE agent_execution SET purse = ?3 WHERE org_id = ?1 AND id = ?2";
        self.execute(sql, params![blob(&org.0), blob(&execution.0), text_of(purse)?])?;
        Ok(())
    }

    fn put_handed_to(&self, run: &Run, to: ExecutionId) -> Done<()> {
        self.execute("UPDATE agent_execution SET handed_to = ?2 WHERE run = ?1", params![run.home.run, blob(&to.0)])?;
        Ok(())
    }

    fn find_run(&self, org: OrgId, execution: ExecutionId) -> Done<Run> {
        self.first(
            concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.org_id = ?1 AND x.id = ?2"),
            [blob(&org.0), blob(&execution.0)],
            Run::read,
        )?
        .ok_or_else(|| not_found(execution).into())
    }

    fn save_run(&self, run: &Run) -> Done<()> {
        let stop = run.stop.as_ref();
        self.execute(
            "UPDATE agent_execution SET status = ?2, ready = ?3, epoch = ?4, worker = ?5, last_worker = ?6, \
             lease_expires = ?7, lease_ttl = ?8, segment = ?9, start = ?10, base = ?11, top = ?12, fact_high = ?13, \
             losses = ?14, step_count = ?15, step_limit = ?16, tail_limit = ?17, leaf = ?18, code = ?19, \
             cancel_number = ?20, cancel_mode = ?21, cancel_grace = ?22, cancel_until = ?23, begins_at = ?24, \
             ends_at = ?25, wait = ?26, due_at = ?27, updated_at = ?28, quarantined = ?29, claim_number = ?30, prefer_until = ?31, \
             children = ?32, starts_by = ?33, persistence = ?34 \
             WHERE run = ?1",
            params![
                run.home.run,
                run.status as u8,
                run.is_ready(self.now),
                run.epoch,
                run.worker.as_ref().map(|id| blob(&id.0)),
                run.last_worker.as_ref().map(|id| blob(&id.0)),
                run.lease_expires,
                run.lease_ttl,
                run.segment,
                run.home.start,
                run.base,
                run.top,
                run.fact_high,
                run.losses,
                run.step_count,
                run.step_limit,
                run.tail_limit,
                run.leaf.as_ref().map(|id| blob(&id.0)),
                run.code,
                stop.map(|stop| stop.number),
                stop.map(|stop| u8::from(stop.cancellation.mode == CancelMode::Hard)),
                stop.map(|stop| micros(stop.cancellation.grace)),
                stop.map(|stop| stop.until),
                run.begins_at,
                run.ends_at,
                run.wait,
                run.due(self.now.0),
                self.now.0,
                run.quarantined,
                run.claim_number,
                run.prefer_until,
                run.children,
                run.starts_by,
                run.persistence as u8,
            ],
        )?;
        Ok(())
    }

    fn save_progress(&self, run: &Run) -> Done<()> {
        self.execute(
            "UPDATE agent_execution SET leaf = ?2, step_count = ?3, code = ?4, losses = ?5, updated_at = ?6 WHERE run = ?1",
            params![run.home.run, run.leaf.as_ref().map(|id| blob(&id.0)), run.step_count, run.code, run.losses, self.now.0],
        )?;
        Ok(())
    }

    fn take_slot(&self, run: &mut Run) -> Done<bool> {
        let Some(key) = &run.concurrency_key else { return Ok(true) };
        let last = "SELECT 1 FROM agent_execution WHERE org_id = ?1 AND concurrency_key = ?2 AND status = 1 AND run <> ?3 \
                    LIMIT 1 OFFSET ?4";
        let before = run.key_limit() as i64 - 1;
        Ok(self.first(last, params![blob(&run.home.org.0), key, run.home.run, before], |_| Ok(()))?.is_none())
    }

    fn put_end(&self, run: &Run, output: Option<&Payload>, failure: Option<&Failure>) -> Done<()> {
        self.execute(
            "UPDATE agent_execution SET output = ?2, failure = ?3, ended_at = ?4 WHERE run = ?1",
            params![run.home.run, output.map(Cell), failure.map(text_of).transpose()?, self.now.0],
        )?;
        Ok(())
    }

    fn put_failure(&self, run: &Run, failure: Option<&Failure>) -> Done<()> {
        self.execute(
            "UPDATE agent_execution SET failure = ?2, ended_at = NULL WHERE run = ?1",
            params![run.home.run, failure.map(text_of).transpose()?],
        )?;
        Ok(())
    }

    fn usage(&self, run: &Run) -> Done<UsageTotals> {
        let sql = "SELECT usage FROM agent_execution WHERE run = ?1";
        Ok(self.first(sql, [run.home.run], |row| json_column(row, 0))?.unwrap_or_default())
    }

    fn put_usage(&self, run: &Run, totals: &UsageTotals) -> Done<()> {
        let sql = "UPDATE agent_execution SET usage = ?2 WHERE run = ?1";
        self.execute(sql, params![run.home.run, text_of(totals)?])?;
        Ok(())
    }

    fn put_limits(&self, run: &Run, limits: &StartLimits) -> Done<()> {
        let sql = "UPDATE agent_execution SET limits = ?2 WHERE run = ?1";
        self.execute(sql, params![run.home.run, text_of(limits)?])?;
        Ok(())
    }

    fn has_resumed(&self, run: &Run, request: RequestId) -> Done<bool> {
        let sql = "SELECT 1 FROM resume_request WHERE run = ?1 AND request_id = ?2";
        Ok(self.first(sql, params![run.home.run, blob(&request.0)], |_| Ok(()))?.is_some())
    }

    fn put_resume(&self, run: &Run, request: RequestId) -> Done<()> {
        let sql = "INSERT INTO resume_request (run, request_id) VALUES (?1, ?2)";
        self.execute(sql, params![run.home.run, blob(&request.0)])?;
        Ok(())
    }
}

/// Reads the row of `select_execution!`.
pub(super) fn execution(row: &Row<'_>) -> rusqlite::Result<Execution> {
    let run = Run::read(row)?;
    let forked_from = match id_opt(row, 52)? {
        Some(parent) => {
            Some(ForkPoint { execution: ExecutionId(parent), segment: row.get(53)?, sequence: row.get(54)? })
        }
        None => None,
    };
    let created_at = Timestamp(row.get(55)?);
    let updated_at: i64 = row.get(56)?;
    let last_event: Option<i64> = row.get(62)?;
    Ok(Execution {
        new: NewExecution {
            org: run.home.org,
            id: run.id,
            kind: row.get(43)?,
            queue: row.get(44)?,
            priority: row.get(45)?,
            key: row.get(46)?,
            input_digest: Digest(row.get(47)?),
            limits: json_column(row, 48)?,
            metadata: json_column(row, 49)?,
            concurrency_key: run.concurrency_key.clone(),
            concurrency_limit: run.concurrency_limit,
            traceparent: row.get(50)?,
            input: payload(row, 59)?,
            shared_context: run.shared_context.clone(),
            persistence: run.persistence,
            delay: run.begins_at.map(|at| Timestamp(at).since(created_at)),
            on_parent_end: then(row.get(64)?),
        },
        status: run.status,
        wait: run.wait(),
        output: payload_opt(row, 60)?,
        failure: json_opt(row, 58)?,
        segment: run.segment,
        leaf: run.leaf,
        code: run.code,
        epoch: run.epoch,
        worker: run.worker,
        lease_expires: run.lease_expires.map(Timestamp),
        base: run.base.max(row.get::<_, Option<u64>>(61)?.unwrap_or(0)),
        cancel: run.stop.map(|stop| (stop.cancellation, Timestamp(stop.until))),
        step_count: run.step_count,
        step_limit: run.step_limit,
        tail_limit: run.tail_limit,
        usage: json_column(row, 51)?,
        parent: run.parent,
        root: run.root,
        depth: run.depth,
        handed_to: run.handed_to,
        purse: json_opt(row, 63)?,
        forked_from,
        losses: run.losses,
        created_at,
        updated_at: Timestamp(updated_at.max(last_event.unwrap_or(0))),
        ended_at: row.get::<_, Option<i64>>(57)?.map(Timestamp),
    })
}
