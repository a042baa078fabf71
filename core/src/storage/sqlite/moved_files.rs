//! What the writer does when its database files were moved, removed or replaced while it has them open.
//!
//! An acknowledged commit has to be in the files that the next process opens. So after each commit, before it answers,
//! the writer compares the open files with those at the path ([`Place`](super::file_identity::Place)). If they differ
//! it answers with an error, and from then on it looks before each write too. If the old files come back, it continues
//! with them. If other files are at the path, it closes its own and opens those, but only if they are a sound database
//! that has the last acknowledged commit. Commits come one after the other, so a database with the last one has all of
//! them.

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

/// The mean time between two attempts to open another database at the path.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What the writer knows of its files.
#[derive(Default)]
pub(super) struct FileWatch {
    /// What was wrong at the last look. None while the files are sound.
    lost: Option<Lost>,
    /// The modification time of the database at the last look, and how far the log was folded into it then.
    written: Option<(Written, Option<Folded>)>,
    /// The run of the last acknowledged commit that changed one, and the number of its latest fact.
    last: Option<(OrgId, ExecutionId, u64)>,
    /// From when on another database at the path may be tried.
    next_attempt: Option<Instant>,
}

/// How long to wait until another database at the path is tried again. An attempt needs the database for itself, so two
/// processes that lost the same log would refuse each other for ever if they kept the same pace.
fn retry_pause() -> Duration {
    let chance = (crate::id::random().as_u128() % 1_000) as u32;
    RETRY_INTERVAL / 2 + RETRY_INTERVAL * chance / 1_000
}

impl Loop {
    /// Called before a write. Refuses to write into files that no other process would find. If other files are at the
    /// path and have all that was acknowledged, opens them and goes on there.
    pub(super) fn check_place(&mut self, asked: &str) -> Result<()> {
        const UNCHANGED: &str = "nothing was changed";
        if self.files.lost.is_none() && self.open.is_some() {
            let Err(lost) = self.setting.place.memory() else { return Ok(()) };
            self.lose(lost);
        }
        let lost = match self.look() {
            Ok(()) if self.open.is_some() && !self.files.lost.as_ref().is_some_and(|lost| lost.over) => {
                self.files.lost = None;
                return Ok(());
            }
            Ok(()) => self.files.lost.clone().unwrap_or_else(|| self.setting.place.overwritten()),
            Err(lost) => lost,
        };
        let lost = self.lose(lost);
        // While nothing is at the path, the open files may still be moved back. So they stay open.
        let now = crate::clock::instant();
        if self.files.next_attempt.is_some_and(|next| now < next) || !self.setting.path.is_file() {
            return Err(lost.to_error(asked, UNCHANGED));
        }
        self.files.next_attempt = Some(now + retry_pause());
        self.reopen().map_err(|error| lost.to_error(asked, UNCHANGED).caused_by(error))?;
        tracing::warn!(path = %self.setting.path.display(), "the database was opened again: it has what was acknowledged");
        self.files.lost = None;
        Ok(())
    }

    /// Looks at the files while no command is queued. Without it a process that only reads would never get back to
    /// sound files, since only a write would open them.
    pub(super) fn keeps_place(&mut self) -> bool {
        let looked = if self.is_lost() { Ok(()) } else { self.look() };
        if let Err(lost) = looked {
            self.lose(lost);
        }
        self.check_place("keep the database open").is_ok()
    }

    /// Called after a commit, before its answer. Fails if the files that have the commit are not those at the path.
    pub(super) fn is_kept(&mut self, asked: &str, news: &News) -> Result<()> {
        if let Err(lost) = self.look() {
            return Err(self.lose(lost).to_error(asked, "the outcome is unknown"));
        }
        if let Some(change) = news.changed.last() {
            self.files.last = Some((change.org, change.execution, change.high));
        }
        Ok(())
    }

    /// Compares the open files with those at the path, and checks that nobody else wrote into the database.
    pub(super) fn look(&mut self) -> std::result::Result<(), Lost> {
        let place = &self.setting.place;
        let written = place.look()?;
        if self.files.written.as_ref().is_some_and(|(before, _)| *before == written) {
            return Ok(());
        }
        // The database file has changed. SQLite changes it only when it folds the log, and counts that in the shared
        // memory. A change without a count is another program's. While somebody folds, nothing can be said.
        let Some(folded) = place.folded() else { return Ok(()) };
        // Somebody may have folded between the two looks, so that what was read belongs to a later change.
        if place.look()? != written {
            return Ok(());
        }
        if let Some((_, before)) = &self.files.written
            && before.as_ref() == Some(&folded)
        {
            return Err(place.overwritten());
        }
        self.files.written = Some((written, Some(folded)));
        Ok(())
    }

    /// Remembers what is wrong with the files, and returns it.
    fn lose(&mut self, found: Lost) -> Lost {
        // Once another program has written into the database, our log must never be folded into it, whatever becomes of
        // the other files. They may be gone because of an attempt to open the database again, so they are not the cause.
        let lost = self.files.lost.take().filter(|before| before.over).unwrap_or(found);
        // The outage is reported here, since it is otherwise reported by failed writes and there may be none.
        let error = lost.to_error("keep a database open", "nothing is acknowledged any more");
        self.setting.hints.outage().refused(&error);
        self.files.lost.insert(lost).clone()
    }

    /// Whether the files at the path are known to be others than the open ones.
    pub(super) fn is_lost(&self) -> bool {
        self.files.lost.is_some()
    }

    /// Closes the files for good.
    pub(super) fn end(&mut self) {
        self.let_go();
        self.setting.place.close();
    }

    fn let_go(&mut self) {
        let Some(Open { connection, log }) = self.open.take() else { return };
        log.end();
        let _inside = forks::enter();
        // Moved into a later local on purpose: locals are dropped in reverse order, so SQLite closes the files before
        // the guard above lets other threads fork again.
        let connection = connection;
        let looked = self.look();
        // SQLite's last connection folds the log into the database on closing, and removes the log by its name. It may
        // do so only if the files at the path are ours: else it would fold our log into somebody else's database. If
        // only the log was removed from the path, it is folded here at once. Such a log has no name any more, and its
        // content is lost when the last process that has it open closes it.
        let place = &self.setting.place;
        let overwritten = [looked.as_ref().err(), self.files.lost.as_ref()].into_iter().flatten().any(|lost| lost.over);
        let sound = !overwritten && (looked.is_ok() || (place.memory().is_ok() && place.may_fold()));
        if sound && looked.is_err() {
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
        if !sound && let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::error!(%error, "a log that is no longer the database's cannot be left alone");
            // A connection that is never closed never folds.
            std::mem::forget(connection);
        }
    }

    fn reopen(&mut self) -> Result<()> {
        self.setting.readers.stop();
        self.let_go();
        let setting = &self.setting;
        let failed = |error| explain("open the database again", error, "nothing was changed");
        let unusable = |found: &str| Error::new(Code::StorageUnavailable, format!("the database at the path {found}"));
        let unreadable = |error| unusable(&format!("cannot be looked at: {error}"));
        // The time is taken before the content is checked. If somebody is still writing over the file, the next look
        // finds a later time.
        let written = setting.place.written().map_err(unreadable)?;
        let look = |connection: &Connection| self.has_what_was_acknowledged(connection);
        // With exclusive access SQLite reads the log itself, as a new process would. Without it, it would believe the
        // shared memory, which may describe the log of another database.
        let found = match files::try_out(&setting.path, true, look) {
            Err(error) if is_busy(&error) && setting.place.has_old_memory() => {
                return Err(unusable(
                    "is in use by somebody who may have lost the same files; end what else has it open",
                ));
            }
            // Another process has it open and has made new shared memory for it, which can be believed.
            Err(error) if is_busy(&error) => files::try_out(&setting.path, false, look),
            found => found,
        };
        found.map_err(failed)?.map_err(|found| unusable(&found))?;
        let mut connection = files::open_writer(&setting.path, setting.synchronous, setting.busy_timeout)?;
        super::migrations::migrate(&mut connection)?;
        connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        setting.place.adopt().map_err(unreadable)?;
        setting.readers.start()?;
        let log = Log::open(&mut connection, setting)?;
        self.open = Some(Open { connection, log });
        self.files.written = Some((written, setting.place.folded()));
        (self.synchronous, self.version, self.seen) = (None, None, None);
        self.setting.hints.everything_changed();
        Ok(())
    }

    /// Checks a database found at the path: of this version, undamaged, and with the last acknowledged commit. The
    /// inner error says what it lacks.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `who_lost_the_same_log_goes_on_one_after_the_other` of core's tests would need the two to meet at each attempt.
    #[test]
    fn two_who_lost_the_same_files_do_not_keep_the_same_pace() {
        let pauses: Vec<_> = (0..64).map(|_| retry_pause()).collect();
        assert!(pauses.iter().all(|pause| (RETRY_INTERVAL / 2..RETRY_INTERVAL * 2).contains(pause)), "{pauses:?}");
        let differ = pauses.windows(2).filter(|two| two[0].abs_diff(two[1]) > Duration::from_millis(20)).count();
        assert!(differ > 48, "{pauses:?}");
    }
}
