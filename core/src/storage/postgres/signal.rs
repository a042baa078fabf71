//! The statements about signals.

use super::fault::Done;
use super::run::Run;
use super::sets::{Set, row};
use super::tx::{Question, Tx};
use super::values::{Row, cell, one_of, payload};
use crate::clock::Timestamp;
use crate::id::{OrgId, SignalId, Slot};
use crate::model::{Delivery, NewSignal, Signal};
use crate::payload::Payload;
use crate::storage::limits::PENDING_SIGNALS;
use crate::storage::sql::Signals;
use crate::storage::sql::tail::Point;

const DELIVERIES: [Delivery; 3] = [Delivery::NextStep, Delivery::NextTurn, Delivery::Now];

/// A SELECT of the columns of [`signal`], without its WHERE clause.
macro_rules! select_signal {
    () => {
        "SELECT number, id, name, delivery, consumed_segment, consumed_sequence, created_at, payload FROM agent_signal "
    };
}
pub(super) use select_signal;

/// Reads the columns of `select_signal!`.
pub(super) fn signal(row: &Row) -> Done<Signal> {
    let consumed_by = match (row.get(4)?, row.get(5)?) {
        (Some(segment), Some(sequence)) => Some(Slot { segment, sequence }),
        _ => None,
    };
    Ok(Signal {
        id: SignalId(row.get(1)?),
        name: row.get(2)?,
        payload: payload(row, 7)?,
        delivery: one_of(&DELIVERIES, 3, row)?,
        number: row.get(0)?,
        consumed_by,
        created_at: Timestamp(row.get(6)?),
    })
}

static SIGNAL: Set = Set::insert(
    "agent_signal",
    "org_id uuid, run bigint, number bigint, id uuid, name text, delivery smallint, idempotency_key text, \
     created_at bigint, payload bytea",
);
static CONSUMED: Set = Set::update(
    "agent_signal",
    2,
    "org_id uuid, id uuid, consumed_segment int, consumed_sequence int, consumed_commit bigint",
);

/// The query for a stored signal with the id or the idempotency key of a new one.
pub(super) fn known_signal(new: &NewSignal) -> Question {
    let sql = "SELECT s.id, s.name, s.payload FROM agent_execution x JOIN agent_signal s ON s.org_id = x.org_id AND s.run = x.run \
               WHERE x.org_id = $1 AND x.id = $2 AND s.idempotency_key = $3 \
               UNION ALL SELECT s.id, s.name, s.payload FROM agent_signal s JOIN agent_execution x ON x.org_id = s.org_id AND x.run = s.run \
               WHERE s.org_id = $1 AND s.id = $4 AND x.id = $2";
    (sql, row![new.org.0, new.execution.0, new.idempotency_key.as_deref(), new.id.0])
}

/// Asks for a signal of an id that only one run can have.
pub(super) fn known_id(org: OrgId, id: SignalId) -> Question {
    let sql = "SELECT s.id, s.name, s.payload FROM agent_signal s WHERE s.org_id = $1 AND s.id = $2";
    (sql, row![org.0, id.0])
}

impl Signals for Tx<'_> {
    /// Takes the answer that was read with the run's lock, if it was asked for there.
    fn known_signal(&self, _: &Run, new: &NewSignal) -> Done<Option<(SignalId, String, Payload)>> {
        let ahead = self.ahead.borrow_mut().take_signal(new.id);
        let known = match ahead {
            Some(known) => known,
            None => self.ask_all(&[known_signal(new)])?.swap_remove(0),
        };
        known.first().map(|row| Ok((SignalId(row.get(0)?), row.get(1)?, payload(row, 2)?))).transpose()
    }

    fn has_full_mailbox(&self, run: &Run) -> Done<bool> {
        let last = "SELECT TRUE FROM agent_signal WHERE org_id = $1 AND run = $2 AND consumed_segment IS NULL LIMIT 1 OFFSET $3";
        Ok(!self.ask(last, row![run.home.key.org.0, run.home.key.run, PENDING_SIGNALS as i64 - 1])?.is_empty())
    }

    fn put_signal(&self, run: &Run, number: u64, new: &NewSignal) -> Done<()> {
        self.put(
            &SIGNAL,
            row![
                run.home.key.org.0,
                run.home.key.run,
                number,
                new.id.0,
                &new.name,
                new.delivery as u8,
                new.idempotency_key.as_deref(),
                self.now,
                cell(&new.payload)?,
            ],
        );
        Ok(())
    }

    fn pending_signals(&self, run: &Run) -> Done<Vec<Signal>> {
        let sql =
            concat!(select_signal!(), "WHERE org_id = $1 AND run = $2 AND consumed_segment IS NULL ORDER BY number");
        self.all(sql, row![run.home.key.org.0, run.home.key.run], signal)
    }

    fn signals_since(&self, run: &Run, segment: u32) -> Done<Vec<Signal>> {
        let key = run.home.key;
        let pending = concat!(select_signal!(), "WHERE org_id = $1 AND run = $2 AND consumed_segment IS NULL");
        let consumed = concat!(select_signal!(), "WHERE org_id = $1 AND run = $2 AND consumed_segment >= $3");
        let asked = [(pending, row![key.org.0, key.run]), (consumed, row![key.org.0, key.run, segment])];
        self.ask_all(&asked)?.iter().flatten().map(signal).collect()
    }

    fn consumed_until(&self, parent: &Run, point: &Point) -> Done<Vec<Signal>> {
        let sql = concat!(
            select_signal!(),
            "WHERE org_id = $1 AND run = $2 AND consumed_segment <= $3 AND consumed_commit <= $4 UNION ALL \
             SELECT s.number, s.id, s.name, s.delivery, r.segment, r.sequence, s.created_at, s.payload \
             FROM signal_return r JOIN agent_signal s USING (org_id, run, number) \
             WHERE r.org_id = $1 AND r.run = $2 AND r.segment <= $3 AND r.consumed_commit <= $4 \
             AND r.returned_commit > $4 ORDER BY number"
        );
        self.all(sql, row![parent.home.key.org.0, parent.home.key.run, point.segment, point.base], signal)
    }

    fn consumer(&self, run: &Run, signal: SignalId) -> Done<Option<Option<Slot>>> {
        self.first(
            "SELECT consumed_segment, consumed_sequence FROM agent_signal WHERE org_id = $1 AND id = $2 AND run = $3",
            row![run.home.key.org.0, signal.0, run.home.key.run],
            |row| Ok(row.get::<Option<u32>>(0)?.zip(row.get(1)?).map(|(segment, sequence)| Slot { segment, sequence })),
        )
    }

    fn consume(&self, run: &Run, signal: SignalId, by: Slot, commit: u64) -> Done<()> {
        self.put(&CONSUMED, row![run.home.key.org.0, signal.0, by.segment, by.sequence, commit]);
        Ok(())
    }

    fn give_back(&self, run: &Run, by: Slot, commit: u64) -> Done<()> {
        // Both parts see the rows as they were before.
        self.execute(
            "WITH kept AS (\
             INSERT INTO signal_return (org_id, run, number, returned_commit, segment, sequence, consumed_commit) \
             SELECT org_id, run, number, $5, consumed_segment, consumed_sequence, consumed_commit FROM agent_signal \
             WHERE org_id = $1 AND run = $2 AND consumed_segment = $3 AND consumed_sequence = $4) \
             UPDATE agent_signal SET consumed_segment = NULL, consumed_sequence = NULL, consumed_commit = NULL \
             WHERE org_id = $1 AND run = $2 AND consumed_segment = $3 AND consumed_sequence = $4",
            row![run.home.key.org.0, run.home.key.run, by.segment, by.sequence, commit],
        )
    }
}
