//! One transaction as commands see it: reads, writes, the time, event numbers, and the news to announce.
//!
//! Writes are collected and sent all together with the next read or with the COMMIT. The writes of the current command
//! are kept apart until it has succeeded: if it refuses before they were sent, they are dropped, and the other commands
//! of the transaction go on.

use super::ends::Ahead;
use super::fault::{Done, Fault};
use super::gathered::Gathered;
use super::link::{Ask, Link};
use super::locks::{Last, Locked};
use super::run::Home;
use super::sets::{Set, Value, Writes};
use super::values::{Key, Place, Row};
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, SignalId};
use crate::storage::sql::news::News;
use crate::storage::sql::{self, Dialect};
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

/// Whose rows a reading transaction sees. Row-level policies of the tables enforce it, whatever the statements ask for.
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

/// Answers to what was asked together with a lock, each with what it is about.
#[derive(Default)]
pub(super) struct Answers {
    signal: Option<(SignalId, Vec<Row>)>,
    tasks: Option<((OrgId, ExecutionId), Vec<Row>)>,
}

impl Answers {
    /// Hands out what is known of a signal.
    pub(super) fn take_signal(&mut self, id: SignalId) -> Option<Vec<Row>> {
        self.signal.take_if(|(asked, _)| *asked == id).map(|(_, rows)| rows)
    }

    /// Hands out the open tasks of a run.
    pub(super) fn take_tasks(&mut self, org: OrgId, run: ExecutionId) -> Option<Vec<Row>> {
        self.tasks.take_if(|(asked, _)| *asked == (org, run)).map(|(_, rows)| rows)
    }
}

/// A query with its parameters.
pub(super) type Question = (&'static str, Vec<Value>);

/// Tells the policies the org of this transaction. It is sent with the first statement.
const NAME: &str = "SELECT set_config('flovyn.org', $1, true)";

/// An open transaction. It begins with the first statement.
pub(in crate::storage) struct Tx<'l> {
    link: RefCell<&'l mut Link>,
    pub(super) mode: Mode,
    /// Whether BEGIN was sent.
    begun: Cell<bool>,
    /// The store's time, the same for all commands that share the transaction.
    pub(super) now: Timestamp,
    /// Collected writes of commands that have succeeded.
    kept: RefCell<Writes>,
    /// Collected writes of the current command.
    own: RefCell<Writes>,
    /// Whether writes of the current command have been sent. They can only be undone with the whole transaction.
    sent: Cell<bool>,
    /// Whether any writes have been sent.
    wrote: Cell<bool>,
    /// PostgreSQL's number of the transaction, once it is known.
    pub(super) number: Cell<Option<i64>>,
    /// The answers to what the current command had asked with its lock, until the command takes them.
    pub(super) ahead: RefCell<Answers>,
    /// Runs that were locked and read before the commands began.
    pub(super) locked: RefCell<Locked>,
    /// The numbers of runs that the current command has written ahead of their births; none where the id was taken.
    pub(super) born: RefCell<HashMap<(OrgId, ExecutionId), Option<i64>>>,
    /// Runs below one that the current command asks to stop.
    pub(super) gathered: RefCell<Gathered>,
    /// Depths of entries that the transaction has written.
    pub(super) depths: RefCell<HashMap<EntryId, u32>>,
    news: RefCell<News>,
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
            ahead: RefCell::default(),
            locked: RefCell::default(),
            born: RefCell::default(),
            gathered: RefCell::default(),
            depths: RefCell::default(),
            news: RefCell::default(),
        }
    }

    /// Runs a query and returns its rows.
    pub(super) fn ask(&self, sql: &'static str, params: Vec<Value>) -> Done<Vec<Row>> {
        Ok(self.ask_all(&[(sql, params)])?.pop().unwrap_or_default())
    }

    /// Runs several queries in one round trip, after the collected writes.
    pub(super) fn ask_all(&self, questions: &[Question]) -> Done<Vec<Vec<Row>>> {
        self.exchange(questions, None)
    }

    /// Sends BEGIN if it was not sent, all collected writes, the queries, and a last statement, in one round trip.
    /// Returns the rows of the queries and of the last statement.
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

    /// Takes the answers to what the next command has asked with its lock.
    pub(super) fn take_ahead(&self, asked: &Ahead, answers: &mut impl Iterator<Item = Vec<Row>>) {
        let signal = asked.signal.as_ref().and_then(|(id, _)| Some((*id, answers.next()?)));
        let tasks = asked.tasks.as_ref().and_then(|(run, _)| Some((*run, answers.next()?)));
        self.ahead.replace(Answers { signal, tasks });
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

    /// Runs a statement now, and returns all its rows.
    pub(super) fn execute_all<T>(
        &self,
        sql: &'static str,
        params: Vec<Value>,
        read: impl FnMut(&Row) -> Done<T>,
    ) -> Done<Vec<T>> {
        self.sent.set(true);
        self.wrote.set(true);
        self.all(sql, params, read)
    }

    /// Runs a statement now, and returns its first row.
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

    /// Collects a row to be written. It is sent with the next query or with the COMMIT.
    pub(super) fn put(&self, set: &'static Set, row: Vec<Value>) {
        self.own.borrow_mut().put(set, row);
    }

    /// The current command has succeeded.
    pub(super) fn keep(&self) {
        self.gathered.take();
        self.born.take();
        let shares_rows = self.locked.borrow_mut().keep();
        self.kept.borrow_mut().append(self.own.take(), shares_rows);
        self.sent.set(false);
    }

    /// The current command has refused. Drops its collected writes. False if some were sent, so that only a rollback
    /// undoes them.
    pub(super) fn forget(&self) -> bool {
        self.gathered.take();
        self.born.take();
        self.locked.borrow_mut().forget();
        self.own.take();
        !self.sent.replace(false)
    }

    /// Whether it has sent or collected any writes.
    pub(super) fn has_written(&self) -> bool {
        self.wrote.get() || !self.kept.borrow().is_empty()
    }

    /// Sends the collected writes and the COMMIT in one round trip. Returns the news, and the number of the transaction
    /// if it has written.
    pub(super) fn commit(self) -> Done<(News, Option<i64>)> {
        let mut transaction = self.number.get().filter(|_| self.has_written());
        if self.has_written() && transaction.is_none() {
            let answers = self.exchange(&[(NUMBER, Vec::new())], Some("COMMIT"))?;
            transaction = answers.first().and_then(|rows| rows.first()).and_then(|row| row.get(0).ok()).flatten();
        } else if self.begun.get() {
            self.exchange(&[], Some("COMMIT"))?;
        }
        Ok((self.news.into_inner(), transaction))
    }
}

/// The events of one run.
pub(super) type Log<'t, 'l> = sql::log::Log<'t, Tx<'l>>;

impl Dialect for Tx<'_> {
    type Fault = Fault;
    type Home = Home;
    type Key = Key;
    type Place = Place;

    fn home(org: OrgId) -> Home {
        Home { key: Key { org, run: 0 }, last: Some(Last::default()) }
    }

    fn org(home: &Home) -> OrgId {
        home.key.org
    }

    fn key(home: &Home) -> Key {
        home.key
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn news(&self) -> &RefCell<News> {
        &self.news
    }
}

/// Reads in one snapshot, and ends it after the answer was given: the caller does not wait for that round trip. If the
/// connection was gone, reads once more on a new one.
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
                    return answer(Err(fault.into_error(asked, "nothing was changed")));
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
