//! The database's time, told by this machine's clock: what processes on several machines agree on.

use crate::clock::{Clock, SystemClock, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};

/// Differences up to this many microseconds are the way there and back, not the clocks'.
const NOISE: i64 = 2_000;

/// This machine's clock, moved to the database's; never backwards within the process.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock {
    system: SystemClock,
    ahead: AtomicI64,
    last: AtomicI64,
}

impl DatabaseClock {
    /// Takes over the database's time, as it was between two looks at this clock.
    pub(super) fn set(&self, asked: Timestamp, told: i64, answered: Timestamp) {
        let ahead = told.saturating_sub(asked.0.midpoint(answered.0));
        if ahead.abs() > NOISE {
            self.ahead.fetch_add(ahead, Ordering::Relaxed);
        }
    }

    /// The time without the hold that keeps it from going backwards.
    pub(super) fn measured(&self) -> Timestamp {
        Timestamp(self.system.now().0.saturating_add(self.ahead.load(Ordering::Relaxed)))
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let now = self.measured().0;
        Timestamp(self.last.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_database_and_never_goes_back() {
        let clock = DatabaseClock::default();
        let now = clock.now();
        let hour = 3_600_000_000;
        clock.set(now, now.0 + hour, now);
        let later = clock.now();
        assert!(later.0 >= now.0 + hour);
        clock.set(later, later.0 - hour, later);
        assert!(clock.now() >= later);
        assert!(clock.measured().0 < later.0);
    }
}
