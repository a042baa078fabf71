//! The statements about signals.

use super::fault::Done;
use super::run::Run;
use super::tx::Tx;
use super::values::{Cell, blob, id, key, number_of, one_of, payload, span};
use crate::clock::Timestamp;
use crate::id::{SignalId, Slot};
use crate::model::{Delivery, NewSignal, Signal};
use crate::payload::Payload;
use crate::storage::limits::PENDING_SIGNALS;
use crate::storage::sql::Signals;
use crate::storage::sql::tail::Point;
use rusqlite::{Row, params};

const DELIVERIES: [Delivery; 3] = [Delivery::NextStep, Delivery::NextTurn, Delivery::Now];

/// A SELECT of the columns of [`signal`], without its WHERE clause.
macro_rules! select_signal {
    () => {
        "SELECT key, id, name, delivery, consumed_segment, consumed_sequence, created_at, payload FROM agent_signal "
    };
}
pub(super) use select_signal;

/// Reads the columns of `select_signal!`.
pub(super) fn signal(row: &Row<'_>) -> rusqlite::Result<Signal> {
    let consumed_by = match (row.get(4)?, row.get(5)?) {
        (Some(segment), Some(sequence)) => Some(Slot { segment, sequence }),
        _ => None,
    };
    Ok(Signal {
        id: SignalId(id(row, 1)?),
        name: row.get(2)?,
        payload: payload(row, 7)?,
        delivery: one_of(&DELIVERIES, 3, row)?,
        number: number_of(row.get(0)?),
        consumed_by,
        created_at: Timestamp(row.get(6)?),
    })
}

impl Signals for Tx<'_> {
    fn known_signal(&self, run: &Run, new: &NewSignal) -> Done<Option<(SignalId, String, Payload)>> {
        self.first(
            "SELECT id, name, payload FROM agent_signal WHERE run = ?1 AND idempotency_key = ?2 \
             UNION ALL SELECT id, name, payload FROM agent_signal WHERE id = ?3 AND run = ?1",
            params![run.home.run, new.idempotency_key, blob(&new.id.0)],
            |row| Ok((SignalId(id(row, 0)?), row.get(1)?, payload(row, 2)?)),
        )
    }

    fn has_full_mailbox(&self, run: &Run) -> Done<bool> {
        let last = "SELECT 1 FROM agent_signal WHERE run = ?1 AND consumed_segment IS NULL LIMIT 1 OFFSET ?2";
        Ok(self.first(last, params![run.home.run, PENDING_SIGNALS as i64 - 1], |_| Ok(()))?.is_some())
    }

    fn put_signal(&self, run: &Run, number: u64, new: &NewSignal) -> Done<()> {
        self.execute(
            "INSERT INTO agent_signal (key, run, id, name, delivery, idempotency_key, created_at, payload) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                key(run.home.run, number as i64)?,
                run.home.run,
                blob(&new.id.0),
                new.name,
                new.delivery as u8,
                new.idempotency_key,
                self.now.0,
                Cell(&new.payload),
            ],
        )?;
        Ok(())
    }

    fn pending_signals(&self, run: &Run) -> Done<Vec<Signal>> {
        let sql = concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment IS NULL ORDER BY key");
        self.all(sql, [run.home.run], signal)
    }

    fn signals_since(&self, run: &Run, segment: u32) -> Done<Vec<Signal>> {
        let run = run.home.run;
        let pending = concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment IS NULL");
        let mut found = self.all(pending, [run], signal)?;
        let consumed = concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment >= ?2");
        found.extend(self.all(consumed, params![run, segment], signal)?);
        Ok(found)
    }

    fn consumed_until(&self, parent: &Run, point: &Point) -> Done<Vec<Signal>> {
        let (first, last) = span(parent.home.run);
        self.all(
            concat!(
                select_signal!(),
                "WHERE run = ?1 AND consumed_segment <= ?2 AND consumed_commit <= ?3 UNION ALL \
                 SELECT s.key, s.id, s.name, s.delivery, r.segment, r.sequence, s.created_at, s.payload \
                 FROM signal_return r JOIN agent_signal s ON s.key = r.key WHERE r.key BETWEEN ?4 AND ?5 \
                 AND r.segment <= ?2 AND r.consumed_commit <= ?3 AND r.returned_commit > ?3 ORDER BY key"
            ),
            params![parent.home.run, point.segment, point.base, first, last],
            signal,
        )
    }

    fn consumer(&self, run: &Run, signal: SignalId) -> Done<Option<Option<Slot>>> {
        self.first(
            "SELECT consumed_segment, consumed_sequence FROM agent_signal WHERE id = ?1 AND run = ?2",
            params![blob(&signal.0), run.home.run],
            |row| {
                Ok(row.get::<_, Option<u32>>(0)?.zip(row.get(1)?).map(|(segment, sequence)| Slot { segment, sequence }))
            },
        )
    }

    fn consume(&self, _: &Run, signal: SignalId, by: Slot, commit: u64) -> Done<()> {
        self.execute(
            "UPDATE agent_signal SET consumed_segment = ?2, consumed_sequence = ?3, consumed_commit = ?4 WHERE id = ?1",
            params![blob(&signal.0), by.segment, by.sequence, commit],
        )?;
        Ok(())
    }

    fn give_back(&self, run: &Run, by: Slot, commit: u64) -> Done<()> {
        self.execute(
            "INSERT INTO signal_return (key, returned_commit, segment, sequence, consumed_commit) \
             SELECT key, ?4, consumed_segment, consumed_sequence, consumed_commit FROM agent_signal \
             WHERE run = ?1 AND consumed_segment = ?2 AND consumed_sequence = ?3",
            params![run.home.run, by.segment, by.sequence, commit],
        )?;
        self.execute(
            "UPDATE agent_signal SET consumed_segment = NULL, consumed_sequence = NULL, consumed_commit = NULL \
             WHERE run = ?1 AND consumed_segment = ?2 AND consumed_sequence = ?3",
            params![run.home.run, by.segment, by.sequence],
        )?;
        Ok(())
    }
}
