//! The statements about runs: how a row is found, locked, read and saved; its transitions are in `sql::run`.

use super::fault::Done;
use super::gathered::gather_below;
use super::locks::{self, Last};
use super::sets::{Set, Value, row};
use super::tx::{Mode, Tx};
use super::values::{
    Key, Row, cell, duration, json as json_column, json_opt, micros, one_of, payload, payload_opt, text_of,
};
use crate::clock::Timestamp;
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
use crate::storage::sql::{self, Runs, if_there};
use std::collections::{BTreeSet, HashMap};
use uuid::Uuid;

/// The columns of [`Run`], in its order.
macro_rules! run_columns {
    () => {
        "x.org_id, x.run, x.id, x.status, x.epoch, x.worker, x.last_worker, x.lease_expires, x.lease_ttl, x.segment, \
         x.base, x.top, x.fact_high, x.losses, x.step_count, x.step_limit, x.tail_limit, x.leaf, x.code, x.cancel_number, \
         x.cancel_mode, x.cancel_grace, x.cancel_until, x.begins_at, x.ends_at, x.wait, x.quarantined, x.forked_run, \
         x.claim_number, x.concurrency_key, \
         x.prefer_until, x.concurrency_limit, x.concurrency_slot, x.children, x.depth, x.parent_id, x.root_id, \
         x.purse, x.shared_context, x.handed_to, x.starts_by, x.persistence"
    };
}
pub(super) use run_columns;

/// The columns of an [`Execution`] of a run `x`: those of [`Run`], then the others.
macro_rules! execution_columns {
    () => {
        concat!(
            $crate::storage::postgres::run::run_columns!(),
            ", x.kind, x.queue, x.priority, x.key, x.input_digest, x.limits, x.metadata, \
             x.traceparent, x.usage, x.forked_id, x.forked_segment, x.forked_sequence, \
             x.created_at, x.updated_at, x.ended_at, x.failure, x.input, x.output, \
             (SELECT commit_number FROM event WHERE org_id = x.org_id AND run = x.run AND number >= x.claim_number \
             AND commit_number IS NOT NULL ORDER BY number DESC LIMIT 1), \
             (SELECT greatest(at, committed_at) FROM event WHERE org_id = x.org_id AND run = x.run \
             ORDER BY number DESC LIMIT 1), x.purse, x.detached"
        )
    };
}
pub(super) use execution_columns;

/// A SELECT of the columns of an [`Execution`], without its WHERE clause. `x` is the run.
macro_rules! select_execution {
    () => {
        concat!("SELECT ", $crate::storage::postgres::run::execution_columns!(), " FROM agent_execution x ")
    };
}
pub(super) use select_execution;

/// The accounts of a run and of all above it, from the root downwards.
macro_rules! accounts {
    () => {
        "WITH RECURSIVE up AS (SELECT org_id, run, parent_id FROM agent_execution WHERE org_id = $1 AND id = $2 \
         UNION ALL SELECT a.org_id, a.run, a.parent_id FROM up JOIN agent_execution a \
         ON a.org_id = up.org_id AND a.id = up.parent_id) \
         SELECT x.id, x.limits, x.usage, x.purse, x.status FROM up JOIN agent_execution x \
         ON x.org_id = up.org_id AND x.run = up.run ORDER BY x.depth"
    };
}

/// What becomes of a child when its parent ends.
pub(super) fn then(detached: bool) -> OnParentEnd {
    if detached { OnParentEnd::Detach } else { OnParentEnd::Cancel }
}

static SAVED: Set = Set::update(
    "agent_execution",
    2,
    "org_id uuid, run bigint, status smallint, ready boolean, epoch bigint, worker uuid, last_worker uuid, \
     lease_expires bigint, lease_ttl bigint, segment int, base bigint, top int, fact_high bigint, losses int, \
     step_count int, step_limit int, tail_limit bigint, leaf uuid, code text, cancel_number bigint, cancel_mode smallint, \
     cancel_grace bigint, cancel_until bigint, begins_at bigint, ends_at bigint, wait text, due_at bigint, \
     updated_at bigint, quarantined boolean, claim_number bigint, host_timer boolean, prefer_until bigint, \
     concurrency_slot int, children int, starts_by bigint, persistence smallint",
);
static BORN: Set = Set::add(
    "agent_execution",
    "org_id uuid, id uuid, status smallint, ready boolean, step_limit int, tail_limit bigint, begins_at bigint, \
     ends_at bigint, due_at bigint, kind text, queue text, priority int, key text, input_digest bytea, limits text, \
     metadata text, concurrency_key text, traceparent text, forked_run bigint, forked_id uuid, forked_segment int, \
     forked_sequence int, forked_high bigint, forked_base bigint, created_at bigint, updated_at bigint, input bytea, \
     concurrency_limit int, root_id uuid, parent_id uuid, depth int, purse text, detached boolean, shared_context text, \
     leaf uuid, starts_by bigint, persistence smallint",
)
.returning("id, run");
static PROGRESS: Set = Set::update(
    "agent_execution",
    2,
    "org_id uuid, run bigint, leaf uuid, step_count int, code text, losses int, updated_at bigint",
);

static ENDED: Set =
    Set::update("agent_execution", 2, "org_id uuid, run bigint, output bytea, failure text, ended_at bigint");
static FAILURE: Set =
    Set::update("agent_execution", 2, "org_id uuid, run bigint, failure text").changing("ended_at = NULL");
static HANDED_TO: Set = Set::update("agent_execution", 2, "org_id uuid, run bigint, handed_to uuid");
static PURSE: Set = Set::update("agent_execution", 2, "org_id uuid, id uuid, purse text");
static LIMITS: Set = Set::update("agent_execution", 2, "org_id uuid, run bigint, limits text");
static RESUMED: Set = Set::insert("resume_request", "org_id uuid, run bigint, request_id uuid");
static USED: Set = Set::update("agent_execution", 2, "org_id uuid, run bigint, usage text");

/// Where the rows of a run are.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Home {
    pub key: Key,
    /// What its events said when it was locked. None for a run that is only read.
    pub(super) last: Option<Last>,
}

pub(super) type Run = sql::run::Run<Home>;

impl Run {
    /// The run of a key. A transaction that writes locks it.
    pub(super) fn at(tx: &Tx, key: Key) -> Done<Option<Self>> {
        if let Some(run) = tx.locked.borrow_mut().take_at(key) {
            return Ok(Some(run));
        }
        let found = tx.peek_run(key)?;
        match (found, tx.mode) {
            (Some(run), Mode::Write) => if_there(tx.find_run(key.org, run.id)),
            (found, _) => Ok(found),
        }
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
            forked: row.get::<Option<i64>>(27)?.is_some(),
            claim_number: row.get(28)?,
            concurrency_key: row.get(29)?,
            prefer_until: row.get(30)?,
            concurrency_limit: row.get(31)?,
            concurrency_slot: row.get(32)?,
            children: row.get(33)?,
            depth: row.get(34)?,
            parent: row.get::<Option<Uuid>>(35)?.map(ExecutionId),
            root: ExecutionId(row.get(36)?),
            purse: row.get(37)?,
            shared_context: json_opt(row, 38)?,
            handed_to: row.get::<Option<Uuid>>(39)?.map(ExecutionId),
            starts_by: row.get(40)?,
            persistence: one_of(&Persistence::ALL, 41, row)?,
        })
    }

    /// Takes a place among the RUNNING runs of its concurrency key that is not in `held`. False if the key is at its
    /// limit.
    pub(super) fn take_slot_beside(&mut self, held: &mut BTreeSet<u32>) -> bool {
        if held.len() >= self.key_limit() {
            return false;
        }
        let free = (0..).find(|slot| !held.contains(slot)).unwrap_or_default();
        self.concurrency_slot = free;
        held.insert(free)
    }
}

/// The row of a new run.
fn new_row(
    tx: &Tx,
    run: &Run,
    new: &NewExecution,
    limits: &StartLimits,
    origin: Option<&Origin<Key>>,
) -> Done<Vec<Value>> {
    let metadata = (!new.metadata.is_empty()).then(|| text_of(&new.metadata)).transpose()?;
    Ok(row![
        new.org.0,
        new.id.0,
        Status::Pending as u8,
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
        text_of(limits)?,
        metadata,
        new.concurrency_key.as_deref(),
        new.traceparent.as_deref(),
        origin.map(|origin| origin.parent.run),
        origin.map(|origin| origin.id.0),
        origin.map(|origin| origin.point.segment),
        origin.and_then(|origin| origin.point.sequence),
        origin.map(|origin| origin.point.high),
        origin.map(|origin| origin.point.base),
        tx.now,
        tx.now,
        cell(&new.input)?,
        new.concurrency_limit,
        run.root.0,
        run.parent.map(|parent| parent.0),
        run.depth,
        run.purse.as_deref(),
        new.on_parent_end == OnParentEnd::Detach,
        new.shared_context.as_ref().map(text_of).transpose()?,
        run.leaf.map(|id| id.0),
        run.starts_by,
        run.persistence as u8,
    ])
}

impl Tx<'_> {
    /// Writes new runs by one statement, and returns the numbers of those whose id was free.
    fn write_runs(&self, rows: Vec<Vec<Value>>) -> Done<Vec<(ExecutionId, i64)>> {
        let (sql, params) = BORN.question(rows);
        self.execute_all(sql, params, |row| Ok((ExecutionId(row.get(0)?), row.get(1)?)))
    }
}

impl Runs for Tx<'_> {
    fn peek_run(&self, key: Key) -> Done<Option<Run>> {
        self.first(
            concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.org_id = $1 AND x.run = $2"),
            row![key.org.0, key.run],
            Run::read,
        )
    }

    fn execution(&self, key: Key) -> Done<Execution> {
        let sql = concat!(select_execution!(), "WHERE x.org_id = $1 AND x.run = $2");
        self.first(sql, row![key.org.0, key.run], execution)?
            .ok_or_else(|| super::values::missing("the row of a run").into())
    }

    fn execution_of(&self, org: OrgId, id: ExecutionId) -> Done<Execution> {
        let sql = concat!(select_execution!(), "WHERE x.org_id = $1 AND x.id = $2");
        self.first(sql, row![org.0, id.0], execution)?.ok_or_else(|| not_found(id).into())
    }

    fn standings(&self, org: OrgId, ids: &[ExecutionId]) -> Done<Vec<Standing>> {
        let sql = "SELECT x.id, x.status, h.number FROM (SELECT * FROM UNNEST($2::uuid[]) AS u(id) LIMIT cardinality($2)) k \
                   JOIN agent_execution x ON x.org_id = $1 AND x.id = k.id \
                   CROSS JOIN LATERAL (SELECT number FROM event WHERE org_id = x.org_id AND run = x.run \
                   ORDER BY number DESC LIMIT 1) h";
        let ids: Vec<Value> = ids.iter().map(|id| Value::from(id.0)).collect();
        self.all(sql, row![org.0, ids], |row| {
            Ok(Standing::of(ExecutionId(row.get(0)?), row.get(2)?, one_of(&Status::ALL, 1, row)?))
        })
    }

    fn insert_run(
        &self,
        run: &mut Run,
        new: &NewExecution,
        limits: &StartLimits,
        origin: Option<&Origin<Key>>,
    ) -> Done<bool> {
        let ahead = self.born.borrow_mut().remove(&(new.org, new.id));
        let made = match ahead {
            Some(made) => made,
            None => self.write_runs(vec![new_row(self, run, new, limits, origin)?])?.pop().map(|(_, made)| made),
        };
        run.home.key.run = made.unwrap_or_default();
        Ok(made.is_some())
    }

    fn insert_together(&self, runs: &[(Run, NewExecution, StartLimits)]) -> Done<()> {
        let rows = runs.iter().map(|(run, new, limits)| new_row(self, run, new, limits, None));
        let mut made: HashMap<_, _> = self.write_runs(rows.collect::<Done<_>>()?)?.into_iter().collect();
        let mut born = self.born.borrow_mut();
        born.extend(runs.iter().map(|(run, new, _)| ((new.org, run.id), made.remove(&run.id))));
        Ok(())
    }

    fn origin(&self, fork: Key) -> Done<Option<Origin<Key>>> {
        self.first(
            "SELECT forked_run, forked_id, forked_segment, forked_sequence, forked_high, forked_base FROM agent_execution \
             WHERE org_id = $1 AND run = $2 AND forked_run IS NOT NULL",
            row![fork.org.0, fork.run],
            |row| {
                let point = Point { segment: row.get(2)?, sequence: row.get(3)?, high: row.get(4)?, base: row.get(5)? };
                Ok(Origin { parent: Key { run: row.get(0)?, ..fork }, id: ExecutionId(row.get(1)?), point })
            },
        )
    }

    fn forked_since(&self, run: &Run, end: u64) -> Done<Option<ExecutionId>> {
        let sql = "SELECT id FROM agent_execution WHERE org_id = $1 AND forked_run = $2 AND forked_high >= $3 LIMIT 1";
        self.first(sql, row![run.home.key.org.0, run.home.key.run, end], |row| Ok(ExecutionId(row.get(0)?)))
    }

    fn gather_below(&self, run: &Run) -> Done<()> {
        gather_below(self, run)
    }

    fn open_children(&self, run: &Run) -> Done<Vec<(ExecutionId, OnParentEnd)>> {
        if let Some(gathered) = self.gathered.borrow_mut().take_children(run.id) {
            return Ok(gathered);
        }
        self.all(
            "SELECT id, detached FROM agent_execution WHERE org_id = $1 AND parent_id = $2 AND ended_at IS NULL ORDER BY run",
            row![run.home.key.org.0, run.id.0],
            |row| Ok((ExecutionId(row.get(0)?), then(row.get(1)?))),
        )
    }

    fn accounts(&self, org: OrgId, id: ExecutionId) -> Done<Vec<Account>> {
        // The rows are locked from the root downwards, as all transactions lock them that lock several of a family.
        let sql = match self.mode {
            Mode::Write => concat!(accounts!(), " FOR NO KEY UPDATE OF x"),
            Mode::Read(_) => accounts!(),
        };
        let mut accounts = self.all(sql, row![org.0, id.0], |row| {
            let limits: StartLimits = json_column(row, 1)?;
            let usage = json_column(row, 2)?;
            let id = ExecutionId(row.get(0)?);
            Ok(Account::of(id, limits.budget.as_deref(), &usage, json_opt(row, 3)?, one_of(&Status::ALL, 4, row)?))
        })?;
        accounts.reverse();
        Ok(accounts)
    }

    fn put_handed_to(&self, run: &Run, to: ExecutionId) -> Done<()> {
        self.put(&HANDED_TO, row![run.home.key.org.0, run.home.key.run, to.0]);
        Ok(())
    }

    fn put_purse(&self, org: OrgId, id: ExecutionId, purse: &Purse) -> Done<()> {
        self.put(&PURSE, row![org.0, id.0, text_of(purse)?]);
        Ok(())
    }

    fn find_run(&self, org: OrgId, execution: ExecutionId) -> Done<Run> {
        let taken = self.gathered.borrow_mut().take_run(org, execution);
        let taken = taken.or_else(|| self.locked.borrow_mut().take(org, execution));
        let found = match (taken, self.mode) {
            (Some(run), _) => Some(run),
            (None, Mode::Write) => {
                locks::lock(self, &[(org, execution)])?;
                self.locked.borrow_mut().take(org, execution)
            }
            (None, Mode::Read(_)) => self.first(
                concat!("SELECT ", run_columns!(), " FROM agent_execution x WHERE x.org_id = $1 AND x.id = $2"),
                row![org.0, execution.0],
                Run::read,
            )?,
        };
        found.ok_or_else(|| not_found(execution).into())
    }

    fn put_back(&self, mut run: Run, high: u64) {
        // What it has of budgets may have been written beside it.
        let Some(last) = run.home.last.as_mut().filter(|_| run.purse.is_none()) else { return };
        last.high = high;
        self.locked.borrow_mut().put_back(run);
    }

    fn save_run(&self, run: &Run) -> Done<()> {
        let stop = run.stop.as_ref();
        self.put(
            &SAVED,
            row![
                run.home.key.org.0,
                run.home.key.run,
                run.status as u8,
                run.is_ready(self.now),
                run.epoch,
                run.worker.map(|id| id.0),
                run.last_worker.map(|id| id.0),
                run.lease_expires,
                run.lease_ttl,
                run.segment,
                run.base,
                run.top,
                run.fact_high,
                run.losses,
                run.step_count,
                run.step_limit,
                run.tail_limit,
                run.leaf.map(|id| id.0),
                run.code.as_deref(),
                stop.map(|stop| stop.number),
                stop.map(|stop| u8::from(stop.cancellation.mode == CancelMode::Hard)),
                stop.map(|stop| micros(stop.cancellation.grace)),
                stop.map(|stop| stop.until),
                run.begins_at,
                run.ends_at,
                run.wait.as_deref(),
                run.due(self.now.0),
                self.now,
                run.quarantined,
                run.claim_number,
                run.status == Status::Waiting && run.wait().is_some_and(|wait| wait.host_timer),
                run.prefer_until,
                run.concurrency_slot,
                run.children,
                run.starts_by,
                run.persistence as u8,
            ],
        );
        Ok(())
    }

    fn save_progress(&self, run: &Run) -> Done<()> {
        self.put(
            &PROGRESS,
            row![
                run.home.key.org.0,
                run.home.key.run,
                run.leaf.map(|id| id.0),
                run.step_count,
                run.code.as_deref(),
                run.losses,
                self.now,
            ],
        );
        Ok(())
    }

    fn take_slot(&self, run: &mut Run) -> Done<bool> {
        let Some(key) = run.concurrency_key.as_deref() else { return Ok(true) };
        let sql = "SELECT concurrency_slot FROM agent_execution \
                   WHERE org_id = $1 AND concurrency_key = $2 AND status = 1 AND run <> $3";
        let held = self.all(sql, row![run.home.key.org.0, key, run.home.key.run], |row| row.get(0))?;
        Ok(run.take_slot_beside(&mut held.into_iter().collect()))
    }

    fn put_end(&self, run: &Run, output: Option<&Payload>, failure: Option<&Failure>) -> Done<()> {
        let (output, failure) = (output.map(cell).transpose()?, failure.map(text_of).transpose()?);
        self.put(&ENDED, row![run.home.key.org.0, run.home.key.run, output, failure, self.now]);
        Ok(())
    }

    fn put_failure(&self, run: &Run, failure: Option<&Failure>) -> Done<()> {
        self.put(&FAILURE, row![run.home.key.org.0, run.home.key.run, failure.map(text_of).transpose()?]);
        Ok(())
    }

    fn usage(&self, run: &Run) -> Done<UsageTotals> {
        let sql = "SELECT usage FROM agent_execution WHERE org_id = $1 AND run = $2";
        let found = self.first(sql, row![run.home.key.org.0, run.home.key.run], |row| json_column(row, 0))?;
        Ok(found.unwrap_or_default())
    }

    fn put_usage(&self, run: &Run, totals: &UsageTotals) -> Done<()> {
        self.put(&USED, row![run.home.key.org.0, run.home.key.run, text_of(totals)?]);
        Ok(())
    }

    fn put_limits(&self, run: &Run, limits: &StartLimits) -> Done<()> {
        self.put(&LIMITS, row![run.home.key.org.0, run.home.key.run, text_of(limits)?]);
        Ok(())
    }

    fn has_resumed(&self, run: &Run, request: RequestId) -> Done<bool> {
        let made = self.first(
            "SELECT run FROM resume_request WHERE org_id = $1 AND run = $2 AND request_id = $3",
            row![run.home.key.org.0, run.home.key.run, request.0],
            |row| row.get::<i64>(0),
        )?;
        Ok(made.is_some())
    }

    fn put_resume(&self, run: &Run, request: RequestId) -> Done<()> {
        self.put(&RESUMED, row![run.home.key.org.0, run.home.key.run, request.0]);
        Ok(())
    }
}

/// Reads the row of `select_execution!`.
pub(super) fn execution(row: &Row) -> Done<Execution> {
    let run = Run::read(row)?;
    let forked_from = match row.get::<Option<Uuid>>(51)? {
        Some(parent) => {
            Some(ForkPoint { execution: ExecutionId(parent), segment: row.get(52)?, sequence: row.get(53)? })
        }
        None => None,
    };
    let created_at = Timestamp(row.get(54)?);
    let updated_at: i64 = row.get(55)?;
    let last_event: Option<i64> = row.get(61)?;
    Ok(Execution {
        new: NewExecution {
            org: run.home.key.org,
            id: run.id,
            kind: row.get(42)?,
            queue: row.get(43)?,
            priority: row.get(44)?,
            key: row.get(45)?,
            input_digest: Digest(row.get(46)?),
            limits: json_column(row, 47)?,
            metadata: json_column(row, 48)?,
            concurrency_key: run.concurrency_key.clone(),
            concurrency_limit: run.concurrency_limit,
            traceparent: row.get(49)?,
            input: payload(row, 58)?,
            shared_context: run.shared_context.clone(),
            persistence: run.persistence,
            delay: run.begins_at.map(|at| Timestamp(at).since(created_at)),
            on_parent_end: then(row.get(63)?),
        },
        status: run.status,
        wait: run.wait(),
        output: payload_opt(row, 59)?,
        failure: json_opt(row, 57)?,
        segment: run.segment,
        leaf: run.leaf,
        code: run.code,
        epoch: run.epoch,
        worker: run.worker,
        lease_expires: run.lease_expires.map(Timestamp),
        base: run.base.max(row.get::<Option<u64>>(60)?.unwrap_or(0)),
        cancel: run.stop.map(|stop| (stop.cancellation, Timestamp(stop.until))),
        step_count: run.step_count,
        step_limit: run.step_limit,
        tail_limit: run.tail_limit,
        usage: json_column(row, 50)?,
        parent: run.parent,
        root: run.root,
        depth: run.depth,
        handed_to: run.handed_to,
        purse: json_opt(row, 62)?,
        forked_from,
        losses: run.losses,
        created_at,
        updated_at: Timestamp(updated_at.max(last_event.unwrap_or(0))),
        ended_at: row.get::<Option<i64>>(56)?.map(Timestamp),
    })
}
