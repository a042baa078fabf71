//! The record of a commit: enough to answer a retry, kept on the event that was the run's last when it was made.
//!
//! One row less to write per step. Where a commit adds no event, it takes the place on the run's last event and the record
//! that was there moves to `commit_request`. Records before the last claim are of lower epochs and no longer looked at.

use super::facts;
use super::fault::Done;
use super::run::Run;
use super::tx::Tx;
use super::values::{blob, id, key, number_of, span};
use crate::clock::Timestamp;
use crate::id::RequestId;
use crate::model::{CommitAnswer, Committed, Status, WaitReason};
use crate::payload::Digest;
use rusqlite::{Row, params};

/// A commit of the current epoch.
#[derive(Debug)]
pub(super) struct Request {
    pub number: u64,
    pub id: RequestId,
    pub digest: Digest,
    /// The next free sequence of the segment.
    pub top: u32,
    pub known: u64,
    /// The last event when it was made.
    pub high: u64,
    pub fact_high: u64,
    pub committed: Committed,
    pub paused: Option<WaitReason>,
    pub at: Timestamp,
}

/// Reasons a commit can pause for, in the order of their numbers from 1.
const PAUSES: [WaitReason; 3] = [WaitReason::StepLimit, WaitReason::TailLimit, WaitReason::Quarantined];

impl Request {
    /// How it ended, as its column holds it.
    pub(super) fn outcome(&self) -> u8 {
        let committed = match self.committed {
            Committed::Continue => 0,
            Committed::Suspended => 1,
            Committed::Finished(status) => status as u8 + 2,
        };
        let pause = self.paused.and_then(|paused| PAUSES.iter().position(|reason| *reason == paused));
        committed + 16 * pause.map_or(0, |place| place as u8 + 1)
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let outcome: u8 = row.get(8)?;
        Ok(Self {
            high: row.get::<_, i64>(0).map(number_of)?,
            number: row.get::<_, i64>(1).map(number_of)?,
            at: Timestamp(row.get(2)?),
            id: RequestId(id(row, 3)?),
            digest: Digest(row.get(4)?),
            top: row.get(5)?,
            known: row.get(6)?,
            fact_high: row.get(7)?,
            committed: match outcome % 16 {
                0 => Committed::Continue,
                1 => Committed::Suspended,
                status => {
                    Committed::Finished(Status::ALL.get(usize::from(status) - 2).copied().unwrap_or(Status::Paused))
                }
            },
            paused: usize::from(outcome / 16).checked_sub(1).and_then(|place| PAUSES.get(place).copied()),
        })
    }

    /// Records it on an event that is there; the record it displaces moves aside.
    pub(super) fn attach(&self, tx: &Tx, event: i64) -> Done<()> {
        tx.execute(
            "INSERT INTO commit_request (key, high, at, request_id, digest, top, known, fact_high, outcome) \
             SELECT (key >> 31) << 31 | commit_number, key & 2147483647, committed_at, request_id, digest, top, known, \
             fact_high, outcome FROM event WHERE key = ?1 AND commit_number IS NOT NULL",
            [event],
        )?;
        tx.execute(
            "UPDATE event SET commit_number = ?2, committed_at = ?3, request_id = ?4, digest = ?5, top = ?6, known = ?7, \
             fact_high = ?8, outcome = ?9 WHERE key = ?1",
            params![
                event,
                self.number,
                self.at.0,
                blob(&self.id.0),
                &self.digest.0,
                self.top,
                self.known,
                self.fact_high,
                self.outcome()
            ],
        )?;
        Ok(())
    }

    /// The answer it had.
    pub(super) fn answer(&self, tx: &Tx, run: &Run) -> Done<CommitAnswer> {
        Ok(CommitAnswer {
            number: self.number,
            committed: self.committed,
            facts: facts::between(tx, run, self.known, self.high, None)?,
            high: self.high,
            now: self.at,
            cancel: run.stop.filter(|stop| (1..=self.high).contains(&stop.number)).map(|stop| stop.cancellation),
            paused: self.paused,
        })
    }
}

/// The number of the run's last event, and the last commit of the current epoch. One seek, where the last event is a commit's.
pub(super) fn last_request(tx: &Tx, run: &Run) -> Done<(u64, Option<Request>)> {
    let low = key(run.home.run, run.claim_number as i64)?;
    let mut statement = tx.conn.prepare_cached(
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
            return Ok((high, Some(Request::read(row)?)));
        }
    }
    Ok((high, None))
}

/// A commit of the current epoch by its id.
pub(super) fn request_of(tx: &Tx, run: &Run, id: RequestId) -> Done<Option<Request>> {
    let low = key(run.home.run, run.claim_number as i64)?;
    let on_event = tx.first(
        "SELECT key, commit_number, committed_at, request_id, digest, top, known, fact_high, outcome FROM event \
         WHERE key BETWEEN ?1 AND ?2 AND request_id = ?3",
        params![low, span(run.home.run).1, blob(&id.0)],
        Request::read,
    )?;
    if on_event.is_some() {
        return Ok(on_event);
    }
    tx.first(
        "SELECT high, key, at, request_id, digest, top, known, fact_high, outcome FROM commit_request \
         WHERE key BETWEEN ?1 AND ?2 AND request_id = ?3",
        params![span(run.home.run).0, span(run.home.run).1, blob(&id.0)],
        Request::read,
    )
}

/// Ends an epoch: what its last commit told is kept in the run's row. Tells the last event as of that commit.
pub(super) fn forget_requests(tx: &Tx, run: &mut Run) -> Done<Option<u64>> {
    let (_, last) = last_request(tx, run)?;
    if let Some(last) = &last {
        run.base = run.base.max(last.number);
        run.top = run.top.max(last.top);
        run.fact_high = run.fact_high.max(last.fact_high);
        tx.execute(
            "DELETE FROM commit_request WHERE key BETWEEN ?1 AND ?2",
            [span(run.home.run).0, span(run.home.run).1],
        )?;
    }
    Ok(last.map(|last| last.high))
}

/// The next free sequence of the run's segment and its last commit's number.
pub(super) fn position(tx: &Tx, run: &Run) -> Done<(u32, u64)> {
    let (_, last) = last_request(tx, run)?;
    Ok(last.map_or((run.top, run.base), |last| (run.top.max(last.top), run.base.max(last.number))))
}
