//! Facts of a run: what its events point at, in their order. A fact's number is its event's number.

use super::fault::Done;
use super::run::Run;
use super::sets::row;
use super::task::{TaskRow, select_task};
use super::tx::{Question, Tx};
use super::values::{Row, one_of, payload};
use crate::clock::Timestamp;
use crate::id::{SignalId, Slot};
use crate::model::{Delivery, EventKind, Fact, FactKind, Signal};
use crate::storage::limits::PENDING_SIGNALS;
use std::collections::HashMap;

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

/// Whether as many signals of a run are pending as may be.
pub(super) fn has_full_mailbox(tx: &Tx, run: &Run) -> Done<bool> {
    let last =
        "SELECT TRUE FROM agent_signal WHERE org_id = $1 AND run = $2 AND consumed_segment IS NULL LIMIT 1 OFFSET $3";
    let key = run.home.key;
    Ok(!tx.ask(last, row![key.org.0, key.run, PENDING_SIGNALS as i64 - 1])?.is_empty())
}

/// The questions for facts above a number and up to `$4`: marks, signals, tasks.
macro_rules! facts {
    ($after:literal) => {
        [
            concat!(
                "SELECT number, at, kind, segment, sequence FROM event WHERE org_id = $1 AND run = $2 AND number > ",
                $after,
                " AND number <= $4 AND kind IN (14, 15, 16, 20, 21, 6) ORDER BY number"
            ),
            concat!(
                select_signal!(),
                "WHERE org_id = $1 AND run = $2 AND number > ",
                $after,
                " AND number <= $4 ORDER BY number"
            ),
            concat!(
                select_task!(),
                "JOIN event m ON m.org_id = t.org_id AND m.run = t.run AND m.number = t.ended_number \
                 AND m.segment = t.segment AND m.sequence = t.sequence WHERE m.org_id = $1 AND m.run = $2 AND m.number > ",
                $after,
                " AND m.number <= $4 AND m.kind IN (14, 15, 16)"
            ),
        ]
    };
}
const AFTER: [&str; 3] = facts!("$3");
/// `$3` is the event of the last claim.
const SINCE_COMMIT: [&str; 3] = facts!(
    "(SELECT c.number FROM event c WHERE c.org_id = $1 AND c.run = $2 AND c.number >= $3 AND c.commit_number IS NOT NULL \
     ORDER BY c.number DESC LIMIT 1)"
);

/// What is asked for facts: three questions of one round trip.
pub(super) type Questions = [Question; 3];

/// What to ask for the facts with a number above `after` and up to `until`.
fn questions(run: &Run, after: u64, until: u64) -> Questions {
    AFTER.map(|sql| (sql, row![run.home.key.org.0, run.home.key.run, after, until]))
}

/// What to ask for the facts since the last commit of the run's last claim. No answers where there was no commit.
pub(super) fn since_commit(run: &Run) -> Questions {
    SINCE_COMMIT.map(|sql| (sql, row![run.home.key.org.0, run.home.key.run, run.claim_number, u64::MAX]))
}

/// Facts with a number above `after` and up to `until`, in order. With a segment: those that count from it on.
pub(super) fn between(tx: &Tx, run: &Run, after: u64, until: u64, from: Option<u32>) -> Done<Vec<Fact>> {
    told(run, from, &tx.ask_all(&questions(run, after, until))?)
}

/// Reads the answers to [`Questions`].
pub(super) fn told(run: &Run, from: Option<u32>, answers: &[Vec<Row>]) -> Done<Vec<Fact>> {
    let [marks, signals, tasks] = answers else { return Ok(Vec::new()) };
    let signals = signals.iter().map(signal).collect::<Done<Vec<_>>>()?;
    let mut signals: HashMap<u64, Signal> = signals.into_iter().map(|signal| (signal.number, signal)).collect();
    let tasks = tasks.iter().map(TaskRow::read).collect::<Done<Vec<_>>>()?;
    let mut tasks: HashMap<_, TaskRow> = tasks.into_iter().map(|row| (row.ended_number, row)).collect();
    let mut facts = Vec::with_capacity(marks.len());
    for row in marks {
        let (number, at): (u64, _) = (row.get(0)?, Timestamp(row.get(1)?));
        let (segment, sequence): (u32, Option<u32>) = (row.get(3)?, row.get(4)?);
        let slot = sequence.map(|sequence| Slot { segment, sequence });
        let counts = |slot: Slot| from.is_none_or(|from| slot.segment >= from);
        let fact = match (EventKind::from_number(row.get(2)?), slot) {
            (Some(EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled), Some(slot)) => tasks
                .remove(&Some(number))
                .filter(|row| counts(slot) || row.task.new.options.detached)
                .and_then(|row| row.fact()),
            (Some(EventKind::Timer), Some(slot)) => {
                counts(slot).then_some(Fact { number, at, kind: FactKind::Timer { slot } })
            }
            (Some(EventKind::Signal), _) => signals
                .remove(&number)
                .filter(|signal| signal.consumed_by.is_none_or(counts))
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
