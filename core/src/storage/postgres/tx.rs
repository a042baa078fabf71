//! One transaction as commands see it: reads, writes that travel later, the present moment, event numbers, and the news.
//!
//! Writes are collected and sent with the next read or with the COMMIT, all in one go. What the current command has written
//! is kept apart until it has succeeded, so that a refusal leaves its neighbours in the transaction alone.

use super::fault::{Done, Fault};
use super::link::{Ask, Link};
use super::locks::Locked;
use super::request::Request;
use super::run::{Home, Run};
use super::sets::{Set, Value, Writes, row};
use super::task::TaskRow;
use super::values::{Key, Place, Row, cell, one_of, text_of};
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, Slot};
use crate::model::{Failure, Status, TaskStatus};
use crate::payload::Payload;
use crate::storage::Standing;
use crate::storage::allowance::Allowance;
use crate::storage::sql::log::Numbered;
use crate::storage::sql::tail::{Recorded, Tail};
use crate::storage::sql::{self, Statements};
use crate::streaming::Change;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio_postgres::types::ToSql;

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Rows that are found are locked.
    Write,
    /// One snapshot of the database, or of what an org has in it.
    Read(Sees),
}

/// Whose rows a transaction that reads sees: policies of the tables say so too, whatever its statements ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sees {
    /// Everybody's.
    All,
    /// An org's.
    Org(OrgId),
}

impl Sees {
    fn named(self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Org(org) => org.to_string(),
        }
    }
}

/// A statement that answers, with its parameters.
pub(super) type Question = (&'static str, Vec<Value>);

/// Names the org for this transaction; travels with its first statement.
const NAME: &str = "SELECT set_config('flovyn.org', $1, true)";

/// An open transaction. It begins with the first statement.
pub(super) struct Tx<'l> {
    link: RefCell<&'l mut Link>,
    pub mode: Mode,
    begun: Cell<bool>,
    /// The store's time, one for all commands that share the transaction.
    pub now: Timestamp,
    /// Writes of commands that have succeeded, and of the current one.
    kept: RefCell<Writes>,
    own: RefCell<Writes>,
    /// Whether the current command's writes have been sent, and so can only be undone with all others.
    sent: Cell<bool>,
    wrote: Cell<bool>,
    /// The transaction's own number, once it is known.
    pub number: Cell<Option<i64>>,
    /// What the current command asked ahead, until it is looked at.
    pub ahead: Cell<Option<Vec<Row>>>,
    /// Runs that were locked and read ahead.
    pub locked: RefCell<Locked>,
    /// Depths of entries that the transaction has written.
    pub depths: RefCell<HashMap<EntryId, u32>>,
    news: RefCell<News>,
}

/// What to announce once the transaction is durable.
#[derive(Debug, Default)]
pub(super) struct News {
    pub changed: Vec<Change>,
    pub agents: bool,
    pub tasks: bool,
    pub due: Option<i64>,
    /// The transaction's own number, where it has written.
    pub transaction: Option<i64>,
}

const NUMBER: &str = "SELECT pg_current_xact_id_if_assigned()::text::bigint";

impl<'l> Tx<'l> {
    pub(super) fn new(link: &'l mut Link, mode: Mode, now: Timestamp) -> Self {
        Self {
            link: RefCell::new(link),
            mode,
            begun: Cell::new(false),
            now,
            kept: RefCell::default(),
            own: RefCell::default(),
            sent: Cell::new(false),
            wrote: Cell::new(false),
            number: Cell::new(None),
            ahead: Cell::new(None),
            locked: RefCell::default(),
            depths: RefCell::default(),
            news: RefCell::default(),
        }
    }

    /// Asks one question; tells the rows.
    pub(super) fn ask(&self, sql: &'static str, params: Vec<Value>) -> Done<Vec<Row>> {
        Ok(self.ask_all(&[(sql, params)])?.pop().unwrap_or_default())
    }

    /// Asks several questions in one round trip, after the writes that wait.
    pub(super) fn ask_all(&self, questions: &[Question]) -> Done<Vec<Vec<Row>>> {
        self.exchange(questions, None)
    }

    fn exchange(&self, questions: &[Question], last: Option<&'static str>) -> Done<Vec<Vec<Row>>> {
        let (kept, own) = (self.kept.take(), self.own.take());
        self.sent.set(self.sent.get() || !own.is_empty());
        self.wrote.set(self.wrote.get() || !own.is_empty() || !kept.is_empty());
        let mut asks = Vec::new();
        let begin = match self.mode {
            Mode::Write => "BEGIN",
            Mode::Read(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        let org = match self.mode {
            Mode::Read(sees) => sees.named(),
            Mode::Write => String::new(),
        };
        if !self.begun.replace(true) {
            asks.push(Ask::plain(begin));
            if !org.is_empty() {
                asks.push(Ask { sql: NAME, params: vec![&org] });
            }
        }
        let sets: Vec<_> = kept.statements().chain(own.statements()).collect();
        for (sql, columns) in &sets {
            asks.push(Ask { sql, params: columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect() });
        }
        let first = asks.len();
        for (sql, params) in questions {
            asks.push(Ask { sql, params: params.iter().map(|value| value as &(dyn ToSql + Sync)).collect() });
        }
        asks.extend(last.map(Ask::plain));
        let mut answers = self.link.borrow_mut().exchange(&asks)?;
        Ok(answers.drain(first..).map(|rows| rows.into_iter().map(Row).collect()).collect())
    }

    /// The first row of a query.
    pub(super) fn first<T>(
        &self,
        sql: &'static str,
        params: Vec<Value>,
        read: impl FnOnce(&Row) -> Done<T>,
    ) -> Done<Option<T>> {
        self.ask(sql, params)?.first().map(read).transpose()
    }

    /// All rows of a query.
    pub(super) fn all<T>(
        &self,
        sql: &'static str,
        params: Vec<Value>,
        read: impl FnMut(&Row) -> Done<T>,
    ) -> Done<Vec<T>> {
        self.ask(sql, params)?.iter().map(read).collect()
    }

    /// Runs a statement now.
    pub(super) fn execute(&self, sql: &'static str, params: Vec<Value>) -> Done<()> {
        self.sent.set(true);
        self.wrote.set(true);
        self.ask(sql, params).map(|_| ())
    }

    /// Runs a statement now, and tells the first row that it returns.
    pub(super) fn execute_returning<T>(
        &self,
        sql: &'static str,
        params: Vec<Value>,
        read: impl FnOnce(&Row) -> Done<T>,
    ) -> Done<Option<T>> {
        self.sent.set(true);
        self.wrote.set(true);
        self.first(sql, params, read)
    }

    /// Writes a row, with the next statement that needs an answer or with the COMMIT.
    pub(super) fn put(&self, set: &'static Set, row: Vec<Value>) {
        self.own.borrow_mut().put(set, row);
    }

    /// The current command has succeeded.
    pub(super) fn keep(&self) {
        self.kept.borrow_mut().append(self.own.take());
        self.sent.set(false);
    }

    /// The current command has refused. Whether nothing of it remains.
    pub(super) fn forget(&self) -> bool {
        self.own.take();
        !self.sent.replace(false)
    }

    /// Whether it changed the database, or is about to.
    pub(super) fn has_written(&self) -> bool {
        self.wrote.get() || !self.kept.borrow().is_empty()
    }

    /// Sends what waits and the COMMIT. An error before the COMMIT was answered is told with the news lost.
    pub(super) fn commit(self) -> Done<News> {
        let mut transaction = self.number.get().filter(|_| self.has_written());
        if self.has_written() && transaction.is_none() {
            let answers = self.exchange(&[(NUMBER, Vec::new())], Some("COMMIT"))?;
            transaction = answers.first().and_then(|rows| rows.first()).and_then(|row| row.get(0).ok()).flatten();
        } else if self.begun.get() {
            self.exchange(&[], Some("COMMIT"))?;
        }
        Ok(News { transaction, ..self.news.into_inner() })
    }
}

/// The number of a run's last event; 0 before the first.
pub(super) fn high(tx: &Tx, key: Key) -> Done<u64> {
    let sql = "SELECT number FROM event WHERE org_id = $1 AND run = $2 ORDER BY number DESC LIMIT 1";
    Ok(tx.first(sql, row![key.org.0, key.run], |row| row.get(0))?.unwrap_or(0))
}

/// How far runs have come: their last event, their status.
pub(super) fn standings(tx: &Tx, org: OrgId, ids: &[ExecutionId]) -> Done<Vec<Standing>> {
    let sql = "SELECT x.id, x.status, h.number FROM (SELECT * FROM UNNEST($2::uuid[]) AS u(id) LIMIT cardinality($2)) k \
               JOIN agent_execution x ON x.org_id = $1 AND x.id = k.id \
               CROSS JOIN LATERAL (SELECT number FROM event WHERE org_id = x.org_id AND run = x.run \
               ORDER BY number DESC LIMIT 1) h";
    let ids: Vec<Value> = ids.iter().map(|id| Value::from(id.0)).collect();
    tx.all(sql, row![org.0, ids], |row| {
        Ok(Standing::of(ExecutionId(row.get(0)?), row.get(2)?, one_of(&Status::ALL, 1, row)?))
    })
}

static EVENT: Set = Set::insert(
    "event",
    "org_id uuid, run bigint, number bigint, at bigint, kind smallint, segment int, sequence int, data text, \
     commit_number bigint, committed_at bigint, request_id uuid, digest bytea, top int, known bigint, fact_high bigint, \
     outcome smallint",
);

/// The events of one run.
pub(super) type Log<'t, 'l> = sql::log::Log<'t, Tx<'l>>;

fn event_row(tx: &Tx, key: Key, event: Numbered, commit: Option<&Request>) -> Vec<Value> {
    let mut row =
        row![key.org.0, key.run, event.number, tx.now, event.kind as u8, event.segment, event.sequence, event.data];
    match commit {
        Some(request) => row.extend(request.columns()),
        None => row.extend(std::iter::repeat_n(Value::Null, 8)),
    }
    row
}

impl Log<'_, '_> {
    /// Records a commit on the run's last event. `before` is the commit before it.
    pub(super) fn record(mut self, request: &Request, before: Option<&Request>) -> Done<()> {
        match self.held.take() {
            Some(event) => self.tx.put(&EVENT, event_row(self.tx, self.key, event, Some(request))),
            None => request.attach(self.tx, self.key, before),
        }
        Ok(())
    }
}

static ENDED: Set =
    Set::update("agent_execution", 2, "org_id uuid, run bigint, output bytea, failure text, ended_at bigint");
static FAILURE: Set =
    Set::update("agent_execution", 2, "org_id uuid, run bigint, failure text").changing("ended_at = NULL");

impl Statements for Tx<'_> {
    type Fault = Fault;
    type Home = Home;
    type Key = Key;
    type Place = Place;

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
        home.key.org
    }

    fn key(home: &Home) -> Key {
        home.key
    }

    fn high(&self, run: &Run) -> Done<u64> {
        match &run.home.last {
            Some(last) => Ok(last.high),
            None => high(self, run.home.key),
        }
    }

    fn put_event(&self, key: Key, event: Numbered) -> Done<()> {
        self.put(&EVENT, event_row(self, key, event, None));
        Ok(())
    }

    fn refer(&self, run: &Run, payload: &Payload) -> Done<()> {
        super::payloads::refer(self, run, payload)
    }

    fn put_end(&self, run: &Run, output: Option<&Payload>, failure: Option<&Failure>) -> Done<()> {
        let (output, failure) = (output.map(cell).transpose()?, failure.map(text_of).transpose()?);
        self.put(&ENDED, row![run.home.key.org.0, run.home.key.run, output, failure, self.now]);
        super::unfenced::tell_parent(self, run)
    }

    fn put_failure(&self, run: &Run, failure: Option<&Failure>) -> Done<()> {
        self.put(&FAILURE, row![run.home.key.org.0, run.home.key.run, failure.map(text_of).transpose()?]);
        Ok(())
    }

    fn disarm_all(&self, run: &Run) -> Done<()> {
        super::op::disarm_all(self, run);
        Ok(())
    }

    fn rearm(&self, run: &Run, slot: Slot) -> Done<()> {
        super::op::rearm(self, Place { key: run.home.key, slot });
        Ok(())
    }

    fn undo(&self, run: &Run, slot: Slot) -> Done<()> {
        super::op::undo(self, Place { key: run.home.key, slot });
        Ok(())
    }

    fn tail(&self, run: &Run) -> Done<Vec<Recorded>> {
        super::segment::own(self, run.home.key, run.segment, &mut Tail::default())
    }

    fn tasks_at(&self, run: &Run, slots: &[Slot]) -> Done<Vec<TaskRow>> {
        super::segment::tasks_at(self, run.home.key, slots, &mut Allowance::default())
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

/// Reads on a connection and ends the snapshot after the answer; once more on a new one, where the connection was gone.
pub(super) fn snapshot<T>(
    link: &mut Link,
    asked: &str,
    sees: Sees,
    now: Timestamp,
    read: &impl Fn(&Tx) -> Done<T>,
    answer: &mut dyn FnMut(Result<T>),
) {
    for last in [false, true] {
        if let Err(error) = link.connect() {
            return answer(Err(error));
        }
        let tx = Tx::new(link, Mode::Read(sees), now);
        match catch_unwind(AssertUnwindSafe(|| read(&tx))) {
            Ok(Ok(value)) => {
                answer(Ok(value));
                if tx.commit().is_err() {
                    link.rollback();
                }
                return;
            }
            Ok(Err(fault)) => {
                drop(tx);
                link.rollback();
                if last || link.is_open() || !matches!(fault, Fault::Sql(_)) {
                    return answer(Err(fault.told(asked, "nothing was changed")));
                }
            }
            Err(_) => {
                drop(tx);
                link.rollback();
                let message = format!("{asked}: the storage backend met a bug in a read; please report it");
                return answer(Err(Error::new(Code::Internal, message)));
            }
        }
    }
}

/// What a command that found nothing to answer with is told.
pub(super) fn none<T>(found: Done<T>) -> Done<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Fault::Domain(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}
