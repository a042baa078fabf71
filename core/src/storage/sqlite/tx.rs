//! One transaction as commands see it: statements, the present moment, event numbers, and the news to announce afterwards.

use super::fault::Done;
use super::request::Request;
use super::run::Run;
use super::values::{key, number_of, span};
use crate::clock::Timestamp;
use crate::id::{ExecutionId, Slot};
use crate::model::EventKind;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde_json::Value;
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
    pub changed: Vec<(ExecutionId, u64)>,
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
        first(self.conn, sql, params, read)
    }

    /// All rows of a query.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Done<Vec<T>> {
        all(self.conn, sql, params, read)
    }

    fn changed(&self, execution: ExecutionId, high: u64) {
        let changed = &mut self.news.borrow_mut().changed;
        match changed.last_mut() {
            Some((last, number)) if *last == execution => *number = high,
            _ => changed.push((execution, high)),
        }
    }

    /// Announces that a run may be claimed.
    pub(super) fn agents_ready(&self) {
        self.news.borrow_mut().agents = true;
    }

    /// Announces that a task may be claimed.
    pub(super) fn tasks_ready(&self) {
        self.news.borrow_mut().tasks = true;
    }

    /// Announces that time will bring something.
    pub(super) fn due(&self, at: i64) {
        let due = &mut self.news.borrow_mut().due;
        *due = Some(due.map_or(at, |before| before.min(at)));
    }
}

/// The first row of a query.
pub(super) fn first<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Done<Option<T>> {
    Ok(conn.prepare_cached(sql)?.query_row(params, read).optional()?)
}

/// All rows of a query.
pub(super) fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Done<Vec<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map(params, read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The number of a run's last event; 0 before the first.
pub(super) fn high(conn: &Connection, run: i64) -> Done<u64> {
    let (low, last) = span(run);
    let found = first(
        conn,
        "SELECT key FROM event WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1",
        [low, last],
        |row| row.get(0),
    )?;
    Ok(found.map_or(0, number_of))
}

/// The events of one run: gives each the next number, and announces the run when it is dropped.
pub(super) struct Log<'t, 'c> {
    tx: &'t Tx<'c>,
    run: i64,
    id: ExecutionId,
    /// The run's current segment.
    pub segment: u32,
    /// The last number given.
    pub high: u64,
    /// Whether the last event is held back, because a commit will be recorded on it.
    holds: bool,
    held: Option<Held>,
}

struct Held {
    row: i64,
    kind: EventKind,
    segment: u32,
    sequence: Option<u32>,
    data: Option<String>,
}

impl<'t, 'c> Log<'t, 'c> {
    /// Continues a run's events.
    pub(super) fn open(tx: &'t Tx<'c>, run: &Run) -> Done<Self> {
        let high = high(tx.conn, run.run)?;
        Ok(Self { tx, run: run.run, id: run.id, segment: run.segment, high, holds: false, held: None })
    }

    /// Continues a run's events after the last number, for a commit that ends with [`record`](Self::record).
    pub(super) fn of_commit(tx: &'t Tx<'c>, run: &Run, high: u64) -> Self {
        Self { tx, run: run.run, id: run.id, segment: run.segment, high, holds: true, held: None }
    }

    /// Writes an event about the run.
    pub(super) fn event(&mut self, kind: EventKind, data: &Value) -> Done<u64> {
        self.write(kind, None, data.to_string())
    }

    /// Writes an event about an op; `data` is JSON.
    pub(super) fn about(&mut self, kind: EventKind, slot: Slot, data: String) -> Done<u64> {
        self.write(kind, Some(slot), data)
    }

    fn write(&mut self, kind: EventKind, slot: Option<Slot>, data: String) -> Done<u64> {
        self.high += 1;
        let event = Held {
            row: key(self.run, self.high as i64)?,
            kind,
            segment: slot.map_or(self.segment, |slot| slot.segment),
            sequence: slot.map(|slot| slot.sequence),
            data: (data != "{}").then_some(data),
        };
        let event = if self.holds { self.held.replace(event) } else { Some(event) };
        if let Some(event) = event {
            self.tx.execute(
                "INSERT INTO event (key, at, kind, segment, sequence, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![event.row, self.tx.now.0, event.kind as u8, event.segment, event.sequence, event.data],
            )?;
        }
        Ok(self.high)
    }

    /// Records a commit on the run's last event.
    pub(super) fn record(mut self, request: &Request) -> Done<()> {
        let Some(event) = self.held.take() else {
            return request.attach(self.tx, key(self.run, self.high as i64)?);
        };
        self.tx.execute(
            "INSERT INTO event (key, at, kind, segment, sequence, data, commit_number, committed_at, request_id, digest, \
             top, known, fact_high, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?2, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                event.row,
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

impl Drop for Log<'_, '_> {
    fn drop(&mut self) {
        self.tx.changed(self.id, self.high);
    }
}
