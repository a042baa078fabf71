//! Statistics of a young database, so that plans made on empty tables are made again as they fill.
//!
//! A connection plans a statement once. On an empty table every index of an org's rows looks as good to the planner as the
//! one made for the statement, and what it takes then costs more with each row. The database looks at its tables once a
//! minute; a burst of work on a new one does not wait that long.

use super::link::{Ask, Link};
use std::time::{Duration, Instant};

/// Transactions after which it is looked at for the first time, and how much rarer each further time is.
const FIRST: i64 = 64;
const RARER: i64 = 4;

/// Transactions are counted for the whole server: other databases may have used them up. What was written since the last
/// look is looked at after this time too, each time that much later, until the database's own looks are as frequent. A look
/// makes others plan again, so it is taken early, or put off as much, to come when nobody writes.
const SOON: Duration = Duration::from_secs(4);
const LATE: Duration = Duration::from_secs(64);

/// From so many rows on the database's own looks are enough.
const YOUNG: &str = "SELECT FROM pg_class WHERE reltuples < 10000 AND oid IN (to_regclass('agent_execution'), \
     to_regclass('agent_op'), to_regclass('agent_entry'), to_regclass('agent_signal'), to_regclass('task_execution'), \
     to_regclass('event')) LIMIT 1";

/// Waits for nobody, and only warns where the tables are another user's.
const LOOK: &str = "ANALYZE (SKIP_LOCKED) agent_execution, agent_op, agent_entry, agent_signal, task_execution, event";

/// When to look next.
#[derive(Debug, Default)]
pub(super) struct Statistics(Option<Plan>);

#[derive(Debug)]
struct Plan {
    /// The number of the transaction at which it is due, and how many there were since the time before.
    next: i64,
    since: i64,
    /// The number of the next transaction at the last look, when that was, and how long the pause after it is.
    seen: i64,
    /// The same at the last time it was asked.
    before: i64,
    looked: Instant,
    pause: Duration,
}

impl Statistics {
    /// Looks at the tables if enough has been written since the last time.
    pub(super) fn refresh(&mut self, link: &mut Link, transaction: i64) {
        if self.is_due(transaction, Instant::now()) {
            let young =
                link.exchange(&[Ask::plain(YOUNG)]).is_ok_and(|answers| answers.iter().any(|rows| !rows.is_empty()));
            if !young {
                return;
            }
            match link.exchange(&[Ask::plain(LOOK)]) {
                Ok(_) => link.has_looked(),
                Err(fault) => tracing::debug!(?fault, "tables could not be analyzed"),
            }
        }
    }

    fn is_due(&mut self, transaction: i64, now: Instant) -> bool {
        let plan = self.0.get_or_insert(Plan {
            next: transaction.saturating_add(FIRST),
            since: FIRST,
            seen: transaction,
            before: transaction,
            looked: now,
            pause: SOON,
        });
        let (written, waited) = (transaction.saturating_sub(plan.seen), now.duration_since(plan.looked));
        let calm = transaction == std::mem::replace(&mut plan.before, transaction);
        let many = transaction >= plan.next || calm && written >= plan.since / RARER;
        let patience = if calm { plan.pause } else { plan.pause * RARER as u32 };
        let late = written > 0 && plan.pause < LATE && waited >= patience;
        if many {
            plan.since = plan.since.saturating_mul(RARER);
            plan.next = transaction.saturating_add(plan.since);
        }
        if late {
            plan.pause *= RARER as u32;
        }
        if many || late {
            (plan.seen, plan.looked) = (transaction, now);
        }
        many || late
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Statistics};

    #[test]
    fn looks_become_rarer() {
        let (mut statistics, now) = (Statistics::default(), Instant::now());
        let due: Vec<i64> = (1_000..10_000).filter(|&transaction| statistics.is_due(transaction, now)).collect();
        assert_eq!(due, [1_064, 1_320, 2_344, 6_440]);
    }

    /// Other databases of the server have used up the transactions: what is written then is seen all the same.
    #[test]
    fn what_was_written_since_a_look_is_looked_at_in_time() {
        let (mut statistics, start) = (Statistics::default(), Instant::now());
        let mut due = |seconds: u64, transaction| statistics.is_due(transaction, start + Duration::from_secs(seconds));
        assert!(!due(0, 1_000));
        assert!(due(0, 1_064), "used up");
        assert!(!due(3, 1_074) && due(4, 1_074), "a little was written, and nobody writes now");
        assert!(!due(30, 1_074), "nothing was written");
        let written: Vec<u64> = (30..250).filter(|&second| due(second, 1_045 + second as i64)).collect();
        assert_eq!(written, [68], "somebody writes all the time; then the database looks itself");
    }

    /// The next look comes when those who write make a pause, if they have written a good part of what it waits for.
    #[test]
    fn a_look_comes_when_nobody_writes() {
        let (mut statistics, now) = (Statistics::default(), Instant::now());
        let mut due = |transaction| statistics.is_due(transaction, now);
        assert!(!due(1_000) && due(1_064));
        assert!(!due(1_200) && due(1_200), "a pause");
        assert!(!due(1_200) && !due(1_327) && !due(1_327), "too little since then");
        assert!(!due(2_223) && due(2_224), "enough without a pause");
    }
}
