//! The record of a commit: enough to answer a retry, kept on the event that was the run's last when it was made.
//!
//! One row less to write per step. Where a commit adds no event, it takes the place on the run's last event and the record
//! that was there moves to `commit_request`. Records before the last claim are of lower epochs and no longer looked at.

use super::facts;
use super::fault::Done;
use super::run::Run;
use super::sets::{Set, Value, row};
use super::tx::Tx;
use super::values::{Key, Row};
use crate::clock::Timestamp;
use crate::id::RequestId;
use crate::model::{CommitAnswer, Committed, Status, WaitReason};
use crate::payload::Digest;

/// The columns of [`Request`] on an event `r`.
macro_rules! request_columns {
    () => {
        "r.number, r.commit_number, r.committed_at, r.request_id, r.digest, r.top, r.known, r.fact_high, r.outcome"
    };
}
pub(super) use request_columns;

static ATTACHED: Set = Set::update(
    "event",
    3,
    "org_id uuid, run bigint, number bigint, commit_number bigint, committed_at bigint, request_id uuid, digest bytea, \
     top int, known bigint, fact_high bigint, outcome smallint",
);
static ASIDE: Set = Set::insert(
    "commit_request",
    "org_id uuid, run bigint, high bigint, number bigint, at bigint, request_id uuid, digest bytea, top int, \
     known bigint, fact_high bigint, outcome smallint",
);

/// A commit of the current epoch.
#[derive(Debug, Clone)]
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

    /// As the columns of an event hold it.
    pub(super) fn columns(&self) -> Vec<Value> {
        row![self.number, self.at, self.id.0, &self.digest.0[..], self.top, self.known, self.fact_high, self.outcome()]
    }

    fn read(row: &Row) -> Done<Self> {
        Self::read_at(row, 0)
    }

    /// Reads the columns from an index on, where there are any.
    pub(super) fn read_opt(row: &Row, from: usize) -> Done<Option<Self>> {
        row.get::<Option<u64>>(from + 1)?.map(|_| Self::read_at(row, from)).transpose()
    }

    fn read_at(row: &Row, from: usize) -> Done<Self> {
        let outcome: u8 = row.get(from + 8)?;
        Ok(Self {
            high: row.get(from)?,
            number: row.get(from + 1)?,
            at: Timestamp(row.get(from + 2)?),
            id: RequestId(row.get(from + 3)?),
            digest: Digest(row.get(from + 4)?),
            top: row.get(from + 5)?,
            known: row.get(from + 6)?,
            fact_high: row.get(from + 7)?,
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

    /// Records it on the last event, which is there already; a record that was there moves aside.
    pub(super) fn attach(&self, tx: &Tx, key: Key, before: Option<&Request>) {
        if let Some(before) = before.filter(|before| before.high == self.high) {
            let mut row = row![key.org.0, key.run, before.high];
            row.extend(before.columns());
            tx.put(&ASIDE, row);
        }
        let mut row = row![key.org.0, key.run, self.high];
        row.extend(self.columns());
        tx.put(&ATTACHED, row);
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

/// A commit of the current epoch by its id.
pub(super) fn request_of(tx: &Tx, run: &Run, id: RequestId) -> Done<Option<Request>> {
    let on_event = tx.first(
        concat!(
            "SELECT ",
            request_columns!(),
            " FROM event r WHERE r.org_id = $1 AND r.run = $2 AND r.number >= $3 AND r.request_id = $4"
        ),
        row![run.home.key.org.0, run.home.key.run, run.claim_number, id.0],
        Request::read,
    )?;
    if on_event.is_some() {
        return Ok(on_event);
    }
    tx.first(
        "SELECT high, number, at, request_id, digest, top, known, fact_high, outcome FROM commit_request \
         WHERE org_id = $1 AND run = $2 AND request_id = $3",
        row![run.home.key.org.0, run.home.key.run, id.0],
        Request::read,
    )
}

static FORGOTTEN: Set = Set::delete("commit_request", 2, "org_id uuid, run bigint");

/// Ends an epoch: what its last commit told is kept in the run's row, and what moved aside is deleted.
pub(super) fn forget_requests(tx: &Tx, run: &mut Run) {
    let Some(last) = run.home.last.as_ref().and_then(|last| last.request.as_ref()) else { return };
    run.base = run.base.max(last.number);
    run.top = run.top.max(last.top);
    run.fact_high = run.fact_high.max(last.fact_high);
    tx.put(&FORGOTTEN, row![run.home.key.org.0, run.home.key.run]);
}

/// The next free sequence of a locked run's segment and its last commit's number.
pub(super) fn position(run: &Run) -> (u32, u64) {
    let last = run.home.last.as_ref().and_then(|last| last.request.as_ref());
    last.map_or((run.top, run.base), |last| (run.top.max(last.top), run.base.max(last.number)))
}
