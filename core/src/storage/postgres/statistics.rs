//! Statistics of a young database, so that plans made on empty tables are made again as they fill.
//!
//! A connection plans a statement once. On an empty table every index of an org's rows looks as good to the planner as the
//! one made for the statement, and what it takes then costs more with each row. The database looks at its tables once a
//! minute; a burst of work on a new one does not wait that long.

use super::link::{Ask, Link};

/// Transactions after which it is looked at for the first time, and how much rarer each further time is.
const FIRST: i64 = 64;
const RARER: i64 = 4;

/// From so many rows on the database's own looks are enough.
const YOUNG: &str = "SELECT FROM pg_class WHERE reltuples < 10000 AND oid IN (to_regclass('agent_execution'), \
     to_regclass('agent_op'), to_regclass('agent_entry'), to_regclass('agent_signal'), to_regclass('task_execution'), \
     to_regclass('event')) LIMIT 1";

/// Waits for nobody, and only warns where the tables are another user's.
const LOOK: &str = "ANALYZE (SKIP_LOCKED) agent_execution, agent_op, agent_entry, agent_signal, task_execution, event";

/// When to look next.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// The number of the transaction at which it is due, and how many there were since the time before.
    next: Option<(i64, i64)>,
}

impl Statistics {
    /// Looks at the tables if enough has been written since the last time.
    pub(super) fn refresh(&mut self, link: &mut Link, transaction: i64) {
        if self.is_due(transaction) {
            let young =
                link.exchange(&[Ask::plain(YOUNG)]).is_ok_and(|answers| answers.iter().any(|rows| !rows.is_empty()));
            if young && let Err(fault) = link.exchange(&[Ask::plain(LOOK)]) {
                tracing::debug!(?fault, "tables could not be analyzed");
            }
        }
    }

    fn is_due(&mut self, transaction: i64) -> bool {
        let (at, since) = *self.next.get_or_insert((transaction.saturating_add(FIRST), FIRST));
        let due = transaction >= at;
        if due {
            let since = since.saturating_mul(RARER);
            self.next = Some((transaction.saturating_add(since), since));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::Statistics;

    #[test]
    fn looks_become_rarer() {
        let mut statistics = Statistics::default();
        let due: Vec<i64> = (1_000..10_000).filter(|&transaction| statistics.is_due(transaction)).collect();
        assert_eq!(due, [1_064, 1_320, 2_344, 6_440]);
    }
}
