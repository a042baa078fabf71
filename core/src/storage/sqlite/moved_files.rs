//! Acknowledged means stored: what the writer does about files that are not where they were.
//!
//! After each commit, before its answer, it looks ([`place`](super::file_identity)). Where the files are others it answers with an
//! error, and from then on looks before it writes. Files that were put back are gone on with. Where there are others, it
//! lets go of those it has and opens those, if they are a sound database with what it acknowledged last: commits are one
//! after the other, so such a one has all of them.

use super::fault::{explain, is_busy};
use super::file_identity::{Folded, Lost, Written};
use super::files;
use super::tx::Tx;
use super::wal::Log;
use super::writer::{Loop, Open};
use crate::clock::Clock;
use crate::error::{Code, Error, Result};
use crate::forks;
use crate::id::{ExecutionId, OrgId};
use crate::storage::sql::Runs;
use crate::storage::sql::news::News;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::time::{Duration, Instant};

/// How often another database at the path is tried.
const AGAIN: Duration = Duration::from_secs(1);

/// What the writer knows of its files.
#[derive(Default)]
pub(super) struct FileWatch {
    /// What was wrong at the last look.
    lost: Option<Lost>,
    /// When the database was seen to be written last, and what had been folded into it by then.
    written: Option<(Written, Option<Folded>)>,
    /// What was acknowledged last of a run, and its last number.
    last: Option<(OrgId, ExecutionId, u64)>,
    tried: Option<Instant>,
}

impl Loop {
    /// Refuses to write into files that nobody would find; opens others that have what was acknowledged.
    pub(super) fn check_place(&mut self, asked: &str) -> Result<()> {
        const UNCHANGED: &str = "nothing was changed";
        if self.files.lost.is_none() && self.open.is_some() {
            let Err(lost) = self.setting.place.memory() else { return Ok(()) };
            self.lose(lost);
        }
        let lost = match self.look() {
            Ok(()) if self.open.is_some() => {
                self.files.lost = None;
                return Ok(());
            }
            Ok(()) => self.files.lost.clone().unwrap_or_else(|| self.setting.place.overwritten()),
            Err(lost) => lost,
        };
        self.lose(lost.clone());
        // Where there is nothing, what is open may still be put back.
        let soon = self.files.tried.is_some_and(|tried| tried.elapsed() < AGAIN);
        if soon || !self.setting.path.is_file() {
            return Err(lost.to_error(asked, UNCHANGED));
        }
        self.files.tried = Some(crate::clock::instant());
        self.reopen().map_err(|error| lost.to_error(asked, UNCHANGED).caused_by(error))?;
        tracing::warn!(path = %self.setting.path.display(), "the database was opened again: it has what was acknowledged");
        self.files.lost = None;
        Ok(())
    }

    /// Looks while nobody asks for anything: whoever only reads waits for files that can be gone on with, too.
    pub(super) fn keeps_place(&mut self) -> bool {
        let looked = if self.is_lost() { Ok(()) } else { self.look() };
        if let Err(lost) = looked {
            self.lose(lost);
        }
        self.check_place("keep the database open").is_ok()
    }

    /// Whether what was just committed is where the next process looks.
    pub(super) fn is_kept(&mut self, asked: &str, news: &News) -> Result<()> {
        if let Err(lost) = self.look() {
            self.lose(lost.clone());
            return Err(lost.to_error(asked, "the outcome is unknown"));
        }
        if let Some(change) = news.changed.last() {
            self.files.last = Some((change.org, change.execution, change.high));
        }
        Ok(())
    }

    /// Looks at the files.
    pub(super) fn look(&mut self) -> std::result::Result<(), Lost> {
        let place = &self.setting.place;
        let written = place.look()?;
        if self.files.written.as_ref().is_some_and(|(before, _)| *before == written) {
            return Ok(());
        }
        // Somebody has written into the database. Who folds the log does, and says so.
        let Some(folded) = place.folded() else { return Ok(()) };
        if let Some((_, before)) = &self.files.written
            && before.as_ref() == Some(&folded)
        {
            return Err(place.overwritten());
        }
        self.files.written = Some((written, Some(folded)));
        Ok(())
    }

    fn lose(&mut self, lost: Lost) {
        // While nothing is written, nobody else would say that nothing could be.
        let told = lost.to_error("keep a database open", "nothing is acknowledged any more");
        self.setting.hints.outage().refused(&told);
        self.files.lost = Some(lost);
    }

    /// Whether the files are known to be others.
    pub(super) fn is_lost(&self) -> bool {
        self.files.lost.is_some()
    }

    /// Lets go of the files for good.
    pub(super) fn end(&mut self) {
        self.let_go();
        self.setting.place.close();
    }

    fn let_go(&mut self) {
        let Some(Open { connection, log }) = self.open.take() else { return };
        log.end();
        let _inside = forks::enter();
        // Closed before the threads of others may fork again.
        let connection = connection;
        let looked = self.look();
        // The last connection folds the log into the database and removes it by its name. Only where it is ours; and if it
        // was removed, before there is a last one: with the last that has it open, what is in it is gone.
        let place = &self.setting.place;
        let over = [looked.as_ref().err(), self.files.lost.as_ref()].into_iter().flatten().any(|lost| lost.over);
        let sound = !over && (looked.is_ok() || (place.memory().is_ok() && place.may_fold()));
        if sound && looked.is_err() {
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
        if !sound && let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::error!(%error, "a log that is no longer the database's cannot be left alone");
            std::mem::forget(connection);
        }
    }

    fn reopen(&mut self) -> Result<()> {
        self.setting.readers.stop();
        self.let_go();
        let setting = &self.setting;
        let told = |error| explain("open the database again", error, "nothing was changed");
        let strange = |found: &str| Error::new(Code::StorageUnavailable, format!("the database at the path {found}"));
        // Before it is read: who is still writing over it is found by what comes later.
        let unseen = |error| strange(&format!("cannot be looked at: {error}"));
        let written = setting.place.written().map_err(unseen)?;
        let look = |connection: &Connection| self.has_what_was_acknowledged(connection);
        // Alone, it is read as a new process would: by the log itself, whatever the shared memory says of another.
        let found = match files::try_out(&setting.path, true, look) {
            Err(error) if is_busy(&error) && setting.place.has_old_memory() => {
                return Err(strange(
                    "is in use by somebody who may have lost the same files; end what else has it open",
                ));
            }
            // Who has it open has made its shared memory since.
            Err(error) if is_busy(&error) => files::try_out(&setting.path, false, look),
            found => found,
        };
        found.map_err(told)?.map_err(|found| strange(&found))?;
        let mut connection = files::open_writer(&setting.path, setting.synchronous, setting.busy_timeout)?;
        super::migrations::migrate(&mut connection)?;
        connection.busy_timeout(Duration::ZERO).map_err(told)?;
        setting.place.adopt().map_err(unseen)?;
        setting.readers.start()?;
        let log = Log::open(&mut connection, setting)?;
        self.open = Some(Open { connection, log });
        self.files.written = Some((written, setting.place.folded()));
        (self.synchronous, self.version, self.seen) = (None, None, None);
        self.setting.hints.everything_changed();
        Ok(())
    }

    /// What a database at the path lacks; nothing if it is one to go on with.
    fn has_what_was_acknowledged(&self, connection: &Connection) -> rusqlite::Result<std::result::Result<(), String>> {
        let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
        if !super::migrations::is_ours(connection)? {
            return Ok(Err("is not of this version".into()));
        }
        let found = one("PRAGMA integrity_check(1)")?;
        if found != "ok" {
            return Ok(Err(format!("is damaged: {found}")));
        }
        let Some((org, run, high)) = self.files.last else { return Ok(Ok(())) };
        let there = Tx::new(connection, self.setting.clock.now()).standings(org, &[run]).unwrap_or_default();
        if there.first().is_some_and(|standing| standing.high >= high) {
            return Ok(Ok(()));
        }
        Ok(Err("lacks what was acknowledged".into()))
    }
}
