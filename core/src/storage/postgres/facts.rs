//! Facts of a run: what its events point at, in their order. A fact's number is its event's number.

use super::fault::Done;
use super::run::Run;
use super::sets::row;
use super::task::TaskRow;
use super::tx::Tx;
use super::values::{Place, Row, one_of, payload};
use crate::clock::Timestamp;
use crate::id::{SignalId, Slot};
use crate::model::{Delivery, EventKind, Fact, FactKind, Signal};

const DELIVERIES: [Delivery; 3] = [Delivery::NextStep, Delivery::NextTurn, Delivery::Now];

/// The number of a delivery, as its column holds it.
pub(super) fn delivery_number(delivery: Delivery) -> u8 {
    delivery as u8
}

/// The columns of [`signal`], after which comes a condition.
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

/// Facts with a number above `after` and up to `until`, in order. With a segment: those that count from it on.
pub(super) fn between(tx: &Tx, run: &Run, after: u64, until: u64, from: Option<u32>) -> Done<Vec<Fact>> {
    let rows = tx.all(
        "SELECT number, at, kind, segment, sequence FROM event WHERE org_id = $1 AND run = $2 AND number > $3 \
         AND number <= $4 AND kind IN (14, 15, 16, 20, 21, 6) ORDER BY number",
        row![run.home.key.org.0, run.home.key.run, after, until],
        |row| {
            Ok((
                row.get::<u64>(0)?,
                Timestamp(row.get(1)?),
                row.get::<u8>(2)?,
                row.get::<u32>(3)?,
                row.get::<Option<u32>>(4)?,
            ))
        },
    )?;
    let mut facts = Vec::with_capacity(rows.len());
    for (number, at, kind, segment, sequence) in rows {
        let slot = sequence.map(|sequence| Slot { segment, sequence });
        let fact = match (EventKind::from_number(kind), slot) {
            (Some(EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled), Some(slot)) => {
                let row = TaskRow::at(tx, Place { key: run.home.key, slot })?;
                let counts =
                    |row: &TaskRow| from.is_none_or(|from| slot.segment >= from || row.task.new.options.detached);
                row.filter(|row| row.ended_number == Some(number) && counts(row)).and_then(|row| row.fact())
            }
            (Some(EventKind::Timer), Some(slot)) => {
                let counts = from.is_none_or(|from| slot.segment >= from);
                counts.then_some(Fact { number, at, kind: FactKind::Timer { slot } })
            }
            (Some(EventKind::Signal), _) => {
                let sql = concat!(select_signal!(), "WHERE org_id = $1 AND run = $2 AND number = $3");
                tx.first(sql, row![run.home.key.org.0, run.home.key.run, number], signal)?
                    .filter(|signal| from.is_none_or(|from| signal.consumed_by.is_none_or(|slot| slot.segment >= from)))
                    .map(|signal| Fact { number, at, kind: FactKind::Signal(signal) })
            }
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
