//! Records in a SQLite file of their own, so that people can query them with SQL.

use super::background::{Background, Sink};
use super::{AgentTracer, Trace};
use crate::error::{Code, Error, Result};
use crate::forks;
use rusqlite::{Connection, params};
use std::path::Path;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS trace (
        id        INTEGER PRIMARY KEY,
        at        INTEGER NOT NULL,  -- microseconds since the Unix epoch
        execution TEXT    NOT NULL,
        agent     TEXT,
        epoch     INTEGER NOT NULL,
        segment   INTEGER NOT NULL,
        what      TEXT    NOT NULL,
        data      TEXT    NOT NULL   -- the whole record as JSON
    ) STRICT;
    CREATE INDEX IF NOT EXISTS trace_by_execution ON trace (execution, id);";

/// Appends records to the table `trace` of a SQLite file. Dropping it writes what is queued.
///
/// The file is not the one that runs are kept in, so that it can be deleted at any time.
pub struct SqliteTracer(Background);

impl SqliteTracer {
    /// Opens the file, creating it where it is missing; its folder must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let refused = |error: &dyn std::fmt::Display| {
            let message = format!("traces cannot be written to {}: {error}; name a file of its own", path.display());
            Error::new(Code::InvalidArgument, message)
        };
        let database = open(path).map_err(|error| refused(&error))?;
        Background::start(Table(database)).map(Self).map_err(|error| refused(&error))
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let _inside = forks::enter();
    let database = Connection::open(path)?;
    database.busy_timeout(std::time::Duration::from_secs(5))?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    // A power loss may lose the last records. Waiting for the disk at every commit would cost more than they are worth.
    database.pragma_update(None, "synchronous", "NORMAL")?;
    database.execute_batch(SCHEMA)?;
    Ok(database)
}

impl AgentTracer for SqliteTracer {
    fn trace(&self, record: &Trace) {
        self.0.send(record);
    }

    fn flush(&self) {
        self.0.flush();
    }
}

struct Table(Connection);

impl Table {
    fn insert(&mut self, batch: &[Trace]) -> rusqlite::Result<()> {
        let _inside = forks::enter();
        let transaction = self.0.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO trace (at, execution, agent, epoch, segment, what, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
            )?;
            for record in batch {
                let data = serde_json::to_string(record).unwrap_or_default();
                insert.execute(params![
                    record.at.0,
                    record.execution.to_string(),
                    record.agent.as_deref(),
                    record.epoch,
                    record.segment,
                    record.what.word(),
                    data
                ])?;
            }
        }
        transaction.commit()
    }
}

impl Sink for Table {
    fn write(&mut self, batch: &[Trace]) -> std::io::Result<()> {
        self.insert(batch).map_err(std::io::Error::other)
    }
}
