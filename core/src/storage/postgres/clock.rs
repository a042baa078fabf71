//! The database's time: what processes on several machines agree on, whatever their own clocks say.
//!
//! It is asked for at the start and at every pass, and counted on in between by the time that has passed in this process, which
//! nobody sets. The wall clock of this machine is looked at only to say that it is wrong.

use super::link::{Ask, Link};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::Result;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Differences up to this many microseconds are the way there and back, not the clocks'.
const NOISE: i64 = 2_000;
/// What differs by more than this many microseconds was set by somebody.
const STEP: i64 = 1_000_000;

/// The question for the database's time, in microseconds.
pub(super) const ASK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// An answer of the database, between two moments of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    pub asked: Instant,
    pub time: i64,
    pub answered: Instant,
}

impl ClockReading {
    /// Asks.
    pub fn by(link: &mut Link) -> Result<Self> {
        let asked = crate::clock::instant();
        let told = link.exchange(&[Ask::plain(ASK)]).and_then(|rows| Ok(rows[0][0].try_get(0)?));
        let time = told.map_err(|fault| fault.into_error("read the database's time", "nothing was written"))?;
        Ok(Self { asked, time, answered: crate::clock::instant() })
    }

    /// When it was the database's time, as far as can be known.
    fn at(&self) -> Instant {
        self.asked + self.way() / 2
    }

    fn way(&self) -> Duration {
        self.answered.saturating_duration_since(self.asked)
    }
}

/// The database's time. It does not go back by less than a second: only who set the database's own clock moves it further.
#[derive(Debug)]
pub(super) struct DatabaseClock {
    start: Instant,
    /// The database's time at the start.
    zero: AtomicI64,
    last: AtomicI64,
    /// That this machine's clock is wrong has been said.
    is_said: AtomicBool,
}

impl DatabaseClock {
    pub fn new(told: ClockReading) -> Self {
        let start = told.at();
        let is_said = AtomicBool::new(false);
        let clock = Self { start, zero: AtomicI64::new(told.time), last: AtomicI64::new(told.time), is_said };
        clock.compare(told);
        clock
    }

    /// Takes over the database's time.
    pub fn set(&self, told: ClockReading) {
        let ahead = told.time.saturating_sub(self.at(told.at()));
        if ahead.abs() > NOISE.max(micros(told.way()) / 2) {
            self.zero.fetch_add(ahead, Ordering::Relaxed);
        }
        if ahead < -STEP {
            tracing::warn!(
                seconds = ahead as f64 / 1e6,
                "the clock of the database was set back; its time goes on from there"
            );
            self.last.store(told.time, Ordering::Relaxed);
        }
        self.compare(told);
    }

    /// Says so where this machine's own clock is wrong. Nothing of the engine goes by it, but logs and people do.
    fn compare(&self, told: ClockReading) {
        let off = SystemClock::default().now().0.saturating_sub(self.at(crate::clock::instant()));
        let is_off = off.abs() > STEP + micros(told.way());
        if is_off && !self.is_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                seconds = off as f64 / 1e6,
                "this machine's clock differs from the database's, whose time counts; set it, for logs and traces go by it"
            );
        }
        self.is_said.fetch_and(is_off, Ordering::Relaxed);
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
