//! The statements about events and the commits that are recorded on them (see `sql::request`).

use super::facts;
use super::fault::Done;
use super::run::Run;
use super::tx::Tx;
use super::values::{blob, id, key, number_of, span};
use crate::clock::Timestamp;
use crate::id::RequestId;
use crate::model::Fact;
use crate::payload::Digest;
use crate::storage::sql::Events;
use crate::storage::sql::log::Numbered;
use crate::storage::sql::request::Request;
use rusqlite::{Row, params};

/// The number of a run's last event; 0 before the first.
pub(super) fn high(tx: &Tx, run: i64) -> Done<u64> {
    let (low, last) = span(run);
    let found =
        tx.first("SELECT key FROM event WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1", [low, last], |row| {
            row.get(0)
        })?;
    Ok(found.map_or(0, number_of))
}

/// Reads the record of a commit.
fn read(row: &Row<'_>) -> rusqlite::Result<Request> {
    let (committed, paused) = Request::ended(row.get(8)?);
    Ok(Request {
        high: row.get::<_, i64>(0).map(number_of)?,
        number: row.get::<_, i64>(1).map(number_of)?,
        at: Timestamp(row.get(2)?),
        id: RequestId(id(row, 3)?),
        digest: Digest(row.get(4)?),
        top: row.get(5)?,
        known: row.get(6)?,
        fact_high: row.get(7)?,
        committed,
        paused,
    })
}

impl Events for Tx<'_> {
    fn high(&self, run: &Run) -> Done<u64> {
        high(self, run.home.run)
    }

    fn event_time(&self, run: &Run, number: u64) -> Done<Option<Timestamp>> {
        let event = key(run.home.run, number as i64)?;
        self.first("SELECT at FROM event WHERE key = ?1", [event], |row| row.get(0).map(Timestamp))
    }

    fn put_event(&self, run: i64, event: Numbered, commit: Option<&Request>) -> Done<()> {
        let key = key(run, event.number as i64)?;
        let Some(request) = commit else {
            self.execute(
                "INSERT INTO event (key, at, kind, segment, sequence, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![key, self.now.0, event.kind as u8, event.segment, event.sequence, event.data],
            )?;
            return Ok(());
        };
        self.execute(
            "INSERT INTO event (key, at, kind, segment, sequence, data, commit_number, committed_at, request_id, digest, \
             top, known, fact_high, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?2, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                key,
                self.now.0,
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

    fn attach(&self, run: i64, commit: &Request, _: Option<&Request>) -> Done<()> {
        let event = key(run, commit.high as i64)?;
        self.execute(
            "INSERT INTO commit_request (key, high, at, request_id, digest, top, known, fact_high, outcome) \
             SELECT (key >> 31) << 31 | commit_number, key & 2147483647, committed_at, request_id, digest, top, known, \
             fact_high, outcome FROM event WHERE key = ?1 AND commit_number IS NOT NULL",
            [event],
        )?;
        self.execute(
            "UPDATE event SET commit_number = ?2, committed_at = ?3, request_id = ?4, digest = ?5, top = ?6, known = ?7, \
             fact_high = ?8, outcome = ?9 WHERE key = ?1",
            params![
                event,
                commit.number,
                commit.at.0,
                blob(&commit.id.0),
                &commit.digest.0,
                commit.top,
                commit.known,
                commit.fact_high,
                commit.outcome()
            ],
        )?;
        Ok(())
    }

    /// Goes backwards from the last event to the last one with a commit. Usually that is the last one: one seek.
    fn last_request(&self, run: &Run) -> Done<(u64, Option<Request>)> {
        let low = key(run.home.run, run.claim_number as i64)?;
        let mut statement = self.conn.prepare_cached(
            "SELECT key, commit_number, committed_at, request_id, digest, top, known, fact_high, outcome FROM event \
         WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC",
        )?;
        let mut rows = statement.query([low, span(run.home.run).1])?;
        let mut high = 0;
        while let Some(row) = rows.next()? {
            if high == 0 {
                high = number_of(row.get(0)?);
            }
            if row.get::<_, Option<i64>>(1)?.is_some() {
                return Ok((high, Some(read(row)?)));
            }
        }
        Ok((high, None))
    }

    fn request_of(&self, run: &Run, id: RequestId) -> Done<Option<Request>> {
        let low = key(run.home.run, run.claim_number as i64)?;
        let on_event = self.first(
            "SELECT key, commit_number, committed_at, request_id, digest, top, known, fact_high, outcome FROM event \
         WHERE key BETWEEN ?1 AND ?2 AND request_id = ?3",
            params![low, span(run.home.run).1, blob(&id.0)],
            read,
        )?;
        if on_event.is_some() {
            return Ok(on_event);
        }
        self.first(
            "SELECT high, key, at, request_id, digest, top, known, fact_high, outcome FROM commit_request \
         WHERE key BETWEEN ?1 AND ?2 AND request_id = ?3",
            params![span(run.home.run).0, span(run.home.run).1, blob(&id.0)],
            read,
        )
    }

    fn forget_aside(&self, run: &Run) -> Done<()> {
        let (low, high) = span(run.home.run);
        self.execute("DELETE FROM commit_request WHERE key BETWEEN ?1 AND ?2", [low, high])?;
        Ok(())
    }

    fn facts(&self, run: &Run, after: u64, until: u64, from: Option<u32>) -> Done<Vec<Fact>> {
        facts::between(self, run, after, until, from)
    }
}
