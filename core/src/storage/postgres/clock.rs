//! The database's time, on which processes on several machines agree, whatever their own clocks show.
//!
//! It is read at the start and at every pass of housekeeping. In between it is computed with this process's monotonic
//! clock, which nobody can set. The wall clock of this machine is only compared with it, to warn if it is wrong.

use super::link::{Ask, Link};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::Result;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Differences up to this many microseconds come from the network, not from the clocks.
const NOISE: i64 = 2_000;
/// If a clock differs by more than this many microseconds, somebody has set it.
const STEP: i64 = 1_000_000;

/// The query for the database's time, in microseconds.
pub(super) const ASK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The database's time, and the moments of this process between which it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    pub asked: Instant,
    pub time: i64,
    pub answered: Instant,
}

impl ClockReading {
    /// Reads the database's time.
    pub(super) fn by(link: &mut Link) -> Result<Self> {
        let asked = crate::clock::instant();
        let told = link.exchange(&[Ask::plain(ASK)]).and_then(|rows| Ok(rows[0][0].try_get(0)?));
        let time = told.map_err(|fault| fault.into_error("read the database's time", "nothing was written"))?;
        Ok(Self { asked, time, answered: crate::clock::instant() })
    }

    /// The moment of this process at which the database had that time: the middle of the round trip, as the best guess.
    fn at(&self) -> Instant {
        self.asked + self.round_trip() / 2
    }

    fn round_trip(&self) -> Duration {
        self.answered.saturating_duration_since(self.asked)
    }
}

/// The database's time. It never goes back, unless somebody has set the database's own clock back by more than a
/// second.
#[derive(Debug)]
pub(super) struct DatabaseClock {
    start: Instant,
    /// The database's time at the start.
    zero: AtomicI64,
    /// The latest time that was returned.
    last: AtomicI64,
    /// Whether the warning about this machine's clock was given.
    has_warned: AtomicBool,
}

impl DatabaseClock {
    pub(super) fn new(reading: ClockReading) -> Self {
        let start = reading.at();
        let has_warned = AtomicBool::new(false);
        let clock = Self { start, zero: AtomicI64::new(reading.time), last: AtomicI64::new(reading.time), has_warned };
        clock.compare(reading);
        clock
    }

    /// Sets the clock by a new reading.
    pub(super) fn set(&self, reading: ClockReading) {
        let ahead = reading.time.saturating_sub(self.at(reading.at()));
        if ahead.abs() > NOISE.max(micros(reading.round_trip()) / 2) {
            self.zero.fetch_add(ahead, Ordering::Relaxed);
        }
        if ahead < -STEP {
            tracing::warn!(
                seconds = ahead as f64 / 1e6,
                "the clock of the database was set back; its time goes on from there"
            );
            self.last.store(reading.time, Ordering::Relaxed);
        }
        self.compare(reading);
    }

    /// Warns if this machine's own clock is wrong. The engine does not use it, but logs and people do.
    fn compare(&self, reading: ClockReading) {
        let off = SystemClock::default().now().0.saturating_sub(self.at(crate::clock::instant()));
        let is_off = off.abs() > STEP + micros(reading.round_trip());
        if is_off && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                seconds = off as f64 / 1e6,
                "this machine's clock differs from the database's, whose time counts; set it, for logs and traces go by it"
            );
        }
        self.has_warned.fetch_and(is_off, Ordering::Relaxed);
    }

    fn at(&self, moment: Instant) -> i64 {
        self.zero.load(Ordering::Relaxed).saturating_add(micros(moment.saturating_duration_since(self.start)))
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let now = self.at(crate::clock::instant());
        Timestamp(self.last.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn reading(time: i64) -> ClockReading {
        let now = Instant::now();
        ClockReading { asked: now, time, answered: now }
    }

    #[test]
    fn it_is_the_databases_from_the_first_moment() {
        for time in [0, HOUR, i64::MAX / 2] {
            let clock = DatabaseClock::new(reading(time));
            let now = clock.now().0;
            assert!((time..time + 1_000_000).contains(&now), "{time} and {now}");
            assert!(clock.now().0 >= now);
        }
    }

    #[test]
    fn it_follows_the_database_and_goes_back_only_if_that_was_set_back() {
        let clock = DatabaseClock::new(reading(HOUR));
        clock.set(reading(2 * HOUR));
        let later = clock.now();
        assert!(later.0 >= 2 * HOUR);
        // A little behind: it waits.
        clock.set(reading(2 * HOUR - 500_000));
        assert!(clock.now() >= later);
        clock.set(reading(HOUR));
        assert!((HOUR..HOUR + 1_000_000).contains(&clock.now().0));
    }

    #[test]
    fn a_slow_answer_moves_it_by_no_more_than_is_known() {
        let clock = DatabaseClock::new(reading(HOUR));
        let now = Instant::now();
        clock.set(ClockReading { asked: now, time: HOUR, answered: now + Duration::from_secs(4) });
        assert!(clock.now().0 < HOUR + 1_000_000);
    }
}
