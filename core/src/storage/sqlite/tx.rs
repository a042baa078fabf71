//! One transaction as commands see it: statements, the present moment, event numbers, and the news to announce afterwards.

use super::facts::place_of;
use super::fault::{Done, Fault};
use super::request::Request;
use super::run::{Home, Run};
use super::task::TaskRow;
use super::values::{Cell, blob, key, number_of, one_of, span, text_of};
use crate::clock::Timestamp;
use crate::id::{ExecutionId, OrgId, Slot};
use crate::model::{Failure, Status, TaskStatus};
use crate::payload::Payload;
use crate::storage::Standing;
use crate::storage::allowance::Allowance;
use crate::storage::sql::log::Numbered;
use crate::storage::sql::tail::{Recorded, Tail};
use crate::storage::sql::{self, Statements};
use crate::streaming::Change;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use std::cell::RefCell;

/// An open transaction.
pub(super) struct Tx<'c> {
    pub conn: &'c Connection,
    /// The store's time, one for the whole transaction.
    pub now: Timestamp,
    news: RefCell<News>,
}

/// What to announce once the transaction is durable.
#[derive(Debug, Default)]
pub(super) struct News {
    pub changed: Vec<Change>,
    pub agents: bool,
    pub tasks: bool,
    pub due: Option<i64>,
}

impl<'c> Tx<'c> {
    pub(super) fn new(conn: &'c Connection, now: Timestamp) -> Self {
        Self { conn, now, news: RefCell::default() }
    }

    pub(super) fn into_news(self) -> News {
        self.news.into_inner()
    }

    /// Runs a statement; tells how many rows it changed.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Done<usize> {
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }

    /// The first row of a query.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Done<Option<T>> {
        Ok(self.conn.prepare_cached(sql)?.query_row(params, read).optional()?)
    }

    /// All rows of a query.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Done<Vec<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let rows = statement.query_map(params, read)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// The number of a run's last event; 0 before the first.
pub(super) fn high(tx: &Tx, run: i64) -> Done<u64> {
    let (low, last) = span(run);
    let found =
        tx.first("SELECT key FROM event WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1", [low, last], |row| {
            row.get(0)
        })?;
    Ok(found.map_or(0, number_of))
}

/// How far runs have come: their last event, their status.
pub(super) fn standings(tx: &Tx, org: OrgId, ids: &[ExecutionId]) -> Done<Vec<Standing>> {
    let sql = "SELECT run, status FROM agent_execution WHERE org_id = ?1 AND id = ?2";
    let mut there = Vec::with_capacity(ids.len());
    for &id in ids {
        let found = tx.first(sql, [blob(&org.0), blob(&id.0)], |row| {
            Ok((row.get::<_, i64>(0)?, one_of(&Status::ALL, 1, row)?))
        })?;
        if let Some((run, status)) = found {
            there.push(Standing::of(id, high(tx, run)?, status));
        }
    }
    Ok(there)
}

/// The events of one run.
pub(super) type Log<'t, 'c> = sql::log::Log<'t, Tx<'c>>;

impl Log<'_, '_> {
    /// Records a commit on the run's last event.
    pub(super) fn record(mut self, request: &Request) -> Done<()> {
        let Some(event) = self.held.take() else {
            return request.attach(self.tx, key(self.key, self.high as i64)?);
        };
        self.tx.execute(
            "INSERT INTO event (key, at, kind, segment, sequence, data, commit_number, committed_at, request_id, digest, \
             top, known, fact_high, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?2, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                key(self.key, event.number as i64)?,
                self.tx.now.0,
                event.kind as u8,
                event.segment,
                event.sequence,
                event.data,
                request.number,
                request.id.0.as_bytes(),
                &request.digest.0,
                request.top,
                request.known,
                request.fact_high,
                request.outcome(),
            ],
        )?;
        Ok(())
    }
}

impl Statements for Tx<'_> {
    type Fault = Fault;
    type Home = Home;
    type Key = i64;
    type Place = i64;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn changed(&self, change: Change) {
        let changed = &mut self.news.borrow_mut().changed;
        match changed.last_mut() {
            Some(last) if last.is_of(&change) => last.join(change),
            _ => changed.push(change),
        }
    }

    fn agents_ready(&self) {
        self.news.borrow_mut().agents = true;
    }

    fn tasks_ready(&self) {
        self.news.borrow_mut().tasks = true;
    }

    fn due(&self, at: i64) {
        let due = &mut self.news.borrow_mut().due;
        *due = Some(due.map_or(at, |before| before.min(at)));
    }

    fn org(home: &Home) -> OrgId {
        home.org
    }

    fn key(home: &Home) -> i64 {
        home.run
    }

    fn high(&self, run: &Run) -> Done<u64> {
        high(self, run.home.run)
    }

    fn put_event(&self, run: i64, event: Numbered) -> Done<()> {
        self.execute(
            "INSERT INTO event (key, at, kind, segment, sequence, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                key(run, event.number as i64)?,
                self.now.0,
                event.kind as u8,
                event.segment,
                event.sequence,
                event.data
            ],
        )?;
        Ok(())
    }

    fn refer(&self, run: &Run, payload: &Payload) -> Done<()> {
        super::payloads::refer(self, run, payload)
    }

    fn put_end(&self, run: &Run, output: Option<&Payload>, failure: Option<&Failure>) -> Done<()> {
        self.execute(
            "UPDATE agent_execution SET output = ?2, failure = ?3, ended_at = ?4 WHERE run = ?1",
            params![run.home.run, output.map(Cell), failure.map(text_of).transpose()?, self.now.0],
        )?;
        super::unfenced::tell_parent(self, run)
    }

    fn put_failure(&self, run: &Run, failure: Option<&Failure>) -> Done<()> {
        self.execute(
            "UPDATE agent_execution SET failure = ?2, ended_at = NULL WHERE run = ?1",
            params![run.home.run, failure.map(text_of).transpose()?],
        )?;
        Ok(())
    }

    fn disarm_all(&self, run: &Run) -> Done<()> {
        super::op::disarm_all(self, run)
    }

    fn rearm(&self, run: &Run, slot: Slot) -> Done<()> {
        super::op::rearm(self, place_of(self, run, slot)?)
    }

    fn undo(&self, run: &Run, slot: Slot) -> Done<()> {
        super::op::undo(self, place_of(self, run, slot)?)
    }

    fn tail(&self, run: &Run) -> Done<Vec<Recorded>> {
        super::segment::own(self, run, run.segment, &mut Tail::default())
    }

    fn tasks_at(&self, run: &Run, slots: &[Slot]) -> Done<Vec<TaskRow>> {
        super::segment::tasks_at(self, run, slots.iter().copied(), &mut Allowance::default())
    }

    fn save_task(&self, task: &TaskRow) -> Done<()> {
        task.save(self)
    }

    fn open_tasks(&self, run: &Run) -> Done<Vec<TaskRow>> {
        super::task::open(self, run)
    }

    fn has_open(&self, run: &Run, status: TaskStatus) -> Done<bool> {
        super::task::has_open(self, run, status)
    }
}
