//! One transaction as commands see it: statements, the time, event numbers, and the news to announce afterwards.

use super::fault::{Done, Fault};
use super::run::Home;
use crate::clock::Timestamp;
use crate::id::OrgId;
use crate::storage::sql::news::News;
use crate::storage::sql::{self, Dialect};
use rusqlite::{Connection, OptionalExtension, Params, Row};
use std::cell::RefCell;

/// An open transaction.
pub(in crate::storage) struct Tx<'c> {
    pub(super) conn: &'c Connection,
    /// The store's time, the same for the whole transaction.
    pub(super) now: Timestamp,
    news: RefCell<News>,
}

impl<'c> Tx<'c> {
    pub(super) fn new(conn: &'c Connection, now: Timestamp) -> Self {
        Self { conn, now, news: RefCell::default() }
    }

    pub(super) fn into_news(self) -> News {
        self.news.into_inner()
    }

    /// Runs a statement, and returns how many rows it changed.
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

    /// Reads the rows of a query until `read` wants no more of them.
    pub(super) fn each(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
    ) -> Done<()> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            if !read(row)? {
                break;
            }
        }
        Ok(())
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

/// The events of one run.
pub(super) type Log<'t, 'c> = sql::log::Log<'t, Tx<'c>>;

impl Dialect for Tx<'_> {
    type Fault = Fault;
    type Home = Home;
    type Key = i64;
    type Place = i64;

    fn home(org: OrgId) -> Home {
        Home { run: 0, org, start: 0 }
    }

    fn org(home: &Home) -> OrgId {
        home.org
    }

    fn key(home: &Home) -> i64 {
        home.run
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn news(&self) -> &RefCell<News> {
        &self.news
    }
}
