//! Facts of a run: what its events point at, in their order. A fact's number is its event's number.

use super::fault::Done;
use super::run::Run;
use super::task::TaskRow;
use super::tx::Tx;
use super::values::{id, key, number_of, one_of, payload, span};
use crate::clock::Timestamp;
use crate::id::{SignalId, Slot};
use crate::model::{Delivery, EventKind, Fact, FactKind, Signal};
use crate::storage::limits::PENDING_SIGNALS;
use rusqlite::{Row, params};

const DELIVERIES: [Delivery; 3] = [Delivery::NextStep, Delivery::NextTurn, Delivery::Now];

/// The number of a delivery, as its column holds it.
pub(super) fn delivery_number(delivery: Delivery) -> u8 {
    delivery as u8
}

/// The columns of [`signal`], after which comes a condition.
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

/// Whether as many signals of a run are pending as may be.
pub(super) fn has_full_mailbox(tx: &Tx, run: &Run) -> Done<bool> {
    let last = "SELECT 1 FROM agent_signal WHERE run = ?1 AND consumed_segment IS NULL LIMIT 1 OFFSET ?2";
    Ok(tx.first(last, params![run.home.run, PENDING_SIGNALS as i64 - 1], |_| Ok(()))?.is_some())
}

/// The place of op 0 of a segment.
pub(super) fn start_of(tx: &Tx, run: &Run, segment: u32) -> Done<i64> {
    if segment == run.segment {
        return Ok(run.home.start);
    }
    if segment == 0 {
        return Ok(0);
    }
    let found = tx.first(
        "SELECT start FROM agent_checkpoint WHERE key = ?1",
        [key(run.home.run, i64::from(segment))?],
        |row| row.get(0),
    )?;
    found.ok_or_else(|| super::values::missing("the checkpoint of a segment").into())
}

/// The place of an op of any of a run's own segments.
pub(super) fn place_of(tx: &Tx, run: &Run, slot: Slot) -> Done<i64> {
    key(run.home.run, start_of(tx, run, slot.segment)? + i64::from(slot.sequence))
}

/// Facts with a number above `after` and up to `until`, in order. With a segment: those that count from it on.
pub(super) fn between(tx: &Tx, run: &Run, after: u64, until: u64, from: Option<u32>) -> Done<Vec<Fact>> {
    let limit = span(run.home.run).1;
    let low =
        key(run.home.run, i64::try_from(after).unwrap_or(i64::MAX).saturating_add(1).min(number_of(limit) as i64))?;
    let high = key(run.home.run, (until as i64).min(number_of(limit) as i64))?;
    let rows = tx.all(
        "SELECT key, at, kind, segment, sequence FROM event WHERE key BETWEEN ?1 AND ?2 \
         AND kind IN (14, 15, 16, 20, 21, 6) ORDER BY key",
        [low, high],
        |row| {
            Ok((
                number_of(row.get(0)?),
                Timestamp(row.get(1)?),
                row.get::<_, u8>(2)?,
                row.get::<_, u32>(3)?,
                row.get::<_, Option<u32>>(4)?,
            ))
        },
    )?;
    let mut facts = Vec::with_capacity(rows.len());
    for (number, at, kind, segment, sequence) in rows {
        let slot = sequence.map(|sequence| Slot { segment, sequence });
        let fact = match (EventKind::from_number(kind), slot) {
            (Some(EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled), Some(slot)) => {
                let row = TaskRow::at(tx, place_of(tx, run, slot)?)?;
                let counts =
                    |row: &TaskRow| from.is_none_or(|from| slot.segment >= from || row.task.new.options.detached);
                row.filter(|row| row.ended_number == Some(number) && counts(row)).and_then(|row| row.fact())
            }
            (Some(EventKind::Timer), Some(slot)) => {
                let counts = from.is_none_or(|from| slot.segment >= from);
                counts.then_some(Fact { number, at, kind: FactKind::Timer { slot } })
            }
            (Some(EventKind::Signal), _) => tx
                .first(concat!(select_signal!(), "WHERE key = ?1"), [key(run.home.run, number as i64)?], signal)?
                .filter(|signal| from.is_none_or(|from| signal.consumed_by.is_none_or(|slot| slot.segment >= from)))
                .map(|signal| Fact { number, at, kind: FactKind::Signal(signal) }),
            (Some(EventKind::Cancelling), _) => run.stop.filter(|stop| stop.number == number).map(|stop| Fact {
                number,
                at,
                kind: FactKind::Cancel(stop.cancellation),
            }),
            _ => None,
        };
        facts.extend(fact);
    }
    Ok(facts)
}
