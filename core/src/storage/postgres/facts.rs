//! The facts of a run, made of its events and the rows that these are about (see `sql::facts`).

use super::fault::{Done, Fault};
use super::run::Run;
use super::sets::row;
use super::signal::{select_signal, signal};
use super::task::{TaskRow, select_task};
use super::tx::{Question, Tx};
use super::values::Row;
use crate::clock::Timestamp;
use crate::id::Slot;
use crate::model::{EventKind, Fact, Signal};
use crate::storage::sql::facts::Mark;
use std::collections::HashMap;

/// The queries for facts above a number and up to `$4`: one each for events, signals and tasks.
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
/// The facts since the last commit. `$3` is the number of the event of the last claim.
const SINCE_COMMIT: [&str; 3] = facts!(
    "(SELECT c.number FROM event c WHERE c.org_id = $1 AND c.run = $2 AND c.number >= $3 AND c.commit_number IS NOT NULL \
     ORDER BY c.number DESC LIMIT 1)"
);

/// The queries for facts: three in one round trip.
pub(super) type Questions = [Question; 3];

/// The queries for the facts with a number above `after` and up to `until`.
fn questions(run: &Run, after: u64, until: u64) -> Questions {
    AFTER.map(|sql| (sql, row![run.home.key.org.0, run.home.key.run, after, until]))
}

/// The queries for the facts since the last commit of the run's last claim. They find nothing if there was no commit.
pub(super) fn since_commit(run: &Run) -> Questions {
    SINCE_COMMIT.map(|sql| (sql, row![run.home.key.org.0, run.home.key.run, run.claim_number, u64::MAX]))
}

/// Facts with a number above `after` and up to `until`, in order. With `from`, only those that matter from that segment
/// on.
pub(super) fn between(tx: &Tx, run: &Run, after: u64, until: u64, from: Option<u32>) -> Done<Vec<Fact>> {
    parse(run, from, &tx.ask_all(&questions(run, after, until))?)
}

/// Reads the answers to [`Questions`].
pub(super) fn parse(run: &Run, from: Option<u32>, answers: &[Vec<Row>]) -> Done<Vec<Fact>> {
    let [marks, signals, tasks] = answers else { return Ok(Vec::new()) };
    let signals = signals.iter().map(signal).collect::<Done<Vec<_>>>()?;
    let mut signals: HashMap<u64, Signal> = signals.into_iter().map(|signal| (signal.number, signal)).collect();
    let tasks = tasks.iter().map(TaskRow::read).collect::<Done<Vec<_>>>()?;
    let mut tasks: HashMap<_, TaskRow> = tasks.into_iter().map(|row| (row.ended_number, row)).collect();
    let mut facts = Vec::with_capacity(marks.len());
    for row in marks {
        let (number, segment): (u64, u32) = (row.get(0)?, row.get(3)?);
        let mark = Mark {
            number,
            at: Timestamp(row.get(1)?),
            kind: EventKind::from_number(row.get(2)?),
            slot: row.get::<Option<u32>>(4)?.map(|sequence| Slot { segment, sequence }),
        };
        facts.extend(mark.fact::<_, _, Fault>(
            run,
            from,
            |_| Ok(tasks.remove(&Some(number))),
            || Ok(signals.remove(&number)),
        )?);
    }
    Ok(facts)
}
