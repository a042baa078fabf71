//! The facts of a run, made of its events and the rows that these are about (see `sql::facts`).

use super::fault::Done;
use super::run::Run;
use super::signal::{select_signal, signal};
use super::tx::Tx;
use super::values::{key, number_of, span};
use crate::clock::Timestamp;
use crate::id::Slot;
use crate::model::{EventKind, Fact};
use crate::storage::sql::Tasks;
use crate::storage::sql::facts::Mark;

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

/// Facts with a number above `after` and up to `until`, in order. With `from`, only those that matter from that segment
/// on.
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
            let segment = row.get(3)?;
            Ok(Mark {
                number: number_of(row.get(0)?),
                at: Timestamp(row.get(1)?),
                kind: EventKind::from_number(row.get(2)?),
                slot: row.get::<_, Option<u32>>(4)?.map(|sequence| Slot { segment, sequence }),
            })
        },
    )?;
    let mut facts = Vec::with_capacity(rows.len());
    for mark in rows {
        let task = |slot| tx.task_at(place_of(tx, run, slot)?);
        let signal = || {
            let sql = concat!(select_signal!(), "WHERE key = ?1");
            tx.first(sql, [key(run.home.run, mark.number as i64)?], signal)
        };
        facts.extend(mark.fact(run, from, task, signal)?);
    }
    Ok(facts)
}
