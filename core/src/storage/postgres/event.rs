//! The statements about events and the commits that are recorded on them (see `sql::request`).

use super::facts;
use super::fault::Done;
use super::run::Run;
use super::sets::{Set, Value, row};
use super::tx::Tx;
use super::values::{Key, Row};
use crate::clock::Timestamp;
use crate::id::RequestId;
use crate::model::Fact;
use crate::payload::Digest;
use crate::storage::sql::Events;
use crate::storage::sql::log::Numbered;
use crate::storage::sql::request::Request;

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

static EVENT: Set = Set::insert(
    "event",
    "org_id uuid, run bigint, number bigint, at bigint, kind smallint, segment int, sequence int, data text, \
     commit_number bigint, committed_at bigint, request_id uuid, digest bytea, top int, known bigint, fact_high bigint, \
     outcome smallint",
);

static FORGOTTEN: Set = Set::delete("commit_request", 2, "org_id uuid, run bigint");

/// The number of a run's last event; 0 before the first.
pub(super) fn high(tx: &Tx, key: Key) -> Done<u64> {
    let sql = "SELECT number FROM event WHERE org_id = $1 AND run = $2 ORDER BY number DESC LIMIT 1";
    Ok(tx.first(sql, row![key.org.0, key.run], |row| row.get(0))?.unwrap_or(0))
}

/// Reads the record of a commit.
fn read(row: &Row) -> Done<Request> {
    read_at(row, 0)
}

/// Reads the record whose columns begin at an index. None if there is none.
pub(super) fn read_opt(row: &Row, from: usize) -> Done<Option<Request>> {
    row.get::<Option<u64>>(from + 1)?.map(|_| read_at(row, from)).transpose()
}

fn read_at(row: &Row, from: usize) -> Done<Request> {
    let (committed, paused) = Request::ended(row.get(from + 8)?);
    Ok(Request {
        high: row.get(from)?,
        number: row.get(from + 1)?,
        at: Timestamp(row.get(from + 2)?),
        id: RequestId(row.get(from + 3)?),
        digest: Digest(row.get(from + 4)?),
        top: row.get(from + 5)?,
        known: row.get(from + 6)?,
        fact_high: row.get(from + 7)?,
        committed,
        paused,
    })
}

/// The column values of a record.
fn columns(of: &Request) -> Vec<Value> {
    row![of.number, of.at, of.id.0, &of.digest.0[..], of.top, of.known, of.fact_high, of.outcome()]
}

impl Events for Tx<'_> {
    fn high(&self, run: &Run) -> Done<u64> {
        match &run.home.last {
            Some(last) => Ok(last.high),
            None => high(self, run.home.key),
        }
    }

    fn event_time(&self, run: &Run, number: u64) -> Done<Option<Timestamp>> {
        let sql = "SELECT at FROM event WHERE org_id = $1 AND run = $2 AND number = $3";
        self.first(sql, row![run.home.key.org.0, run.home.key.run, number], |row| row.get(0).map(Timestamp))
    }

    fn put_event(&self, key: Key, event: Numbered, commit: Option<&Request>) -> Done<()> {
        let Numbered { number, kind, segment, sequence, data } = event;
        let mut row = row![key.org.0, key.run, number, self.now, kind as u8, segment, sequence, data];
        match commit {
            Some(commit) => row.extend(columns(commit)),
            None => row.extend(std::iter::repeat_n(Value::Null, 8)),
        }
        self.put(&EVENT, row);
        Ok(())
    }

    fn attach(&self, key: Key, commit: &Request, before: Option<&Request>) -> Done<()> {
        if let Some(before) = before.filter(|before| before.high == commit.high) {
            let mut row = row![key.org.0, key.run, before.high];
            row.extend(columns(before));
            self.put(&ASIDE, row);
        }
        let mut row = row![key.org.0, key.run, commit.high];
        row.extend(columns(commit));
        self.put(&ATTACHED, row);
        Ok(())
    }

    /// What was read with the run's lock.
    fn last_request(&self, run: &Run) -> Done<(u64, Option<Request>)> {
        let last = run.home.last.as_ref();
        Ok(last.map_or((0, None), |last| (last.high, last.request.clone())))
    }

    fn request_of(&self, run: &Run, id: RequestId) -> Done<Option<Request>> {
        let on_event = self.first(
            concat!(
                "SELECT ",
                request_columns!(),
                " FROM event r WHERE r.org_id = $1 AND r.run = $2 AND r.number >= $3 AND r.request_id = $4"
            ),
            row![run.home.key.org.0, run.home.key.run, run.claim_number, id.0],
            read,
        )?;
        if on_event.is_some() {
            return Ok(on_event);
        }
        self.first(
            "SELECT high, number, at, request_id, digest, top, known, fact_high, outcome FROM commit_request \
             WHERE org_id = $1 AND run = $2 AND request_id = $3",
            row![run.home.key.org.0, run.home.key.run, id.0],
            read,
        )
    }

    fn forget_aside(&self, run: &Run) -> Done<()> {
        self.put(&FORGOTTEN, row![run.home.key.org.0, run.home.key.run]);
        Ok(())
    }

    fn facts(&self, run: &Run, after: u64, until: u64, from: Option<u32>) -> Done<Vec<Fact>> {
        facts::between(self, run, after, until, from)
    }
}
