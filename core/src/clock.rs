//! The only door to time: a wall clock that tests can drive by hand.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch, as the store counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment `duration` after this one, saturating.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339 in UTC, to the millisecond.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}", self.0),
        }
    }
}

/// RFC 3339 with any offset.
impl std::str::FromStr for Timestamp {
    type Err = crate::Error;
    fn from_str(text: &str) -> crate::Result<Self> {
        text.parse::<jiff::Timestamp>().map(|at| Self(at.as_microsecond())).map_err(|error| {
            let message = format!("{text:?} is no moment ({error}); write RFC 3339, such as 2026-01-31T12:00:00Z");
            crate::Error::new(crate::error::Code::InvalidArgument, message)
        })
    }
}

/// Where the engine reads the time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// The driven clock behind this one, where there is one: waits then follow it instead of real time.
    fn manual(&self) -> Option<&ManualClock> {
        None
    }
}

/// The machine's wall clock. Set forward it goes along; set back it goes on as if nothing had happened, for whatever waits for a
/// moment would else wait the whole way again.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    /// What the wall clock said at the start, in microseconds; later where it was set forward since.
    zero: AtomicI64,
}

/// What differs by less than this many microseconds are two looks at two clocks, one after the other.
const STEP: i64 = 1_000_000;

impl SystemClock {
    /// The present moment, by two looks at once: at the wall clock and at the time that has passed.
    fn at(&self, wall: i64, passed: i64) -> Timestamp {
        let zero = self.zero.load(Relaxed);
        let now = wall.saturating_sub(passed);
        let zero = if now.saturating_sub(zero) > STEP { self.zero.fetch_max(now, Relaxed).max(now) } else { zero };
        Timestamp(zero.saturating_add(passed))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now(), zero: AtomicI64::new(wall()) }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.at(wall(), i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

#[allow(clippy::disallowed_methods)]
fn wall() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// A look at the machine's steady clock: for how long something took or may take, never for what is stored.
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Makes the thread wait. Tasks wait by tokio's time, which tests can drive.
pub(crate) fn block(pause: Duration) {
    std::thread::sleep(pause);
}

/// A clock that moves only when told to, for tests.
#[derive(Debug, Clone)]
pub struct ManualClock {
    now: Arc<Mutex<Timestamp>>,
    moved: Arc<tokio::sync::Notify>,
}

impl ManualClock {
    /// Starts at a moment.
    pub fn new(start: Timestamp) -> Self {
        Self { now: Arc::new(Mutex::new(start)), moved: Arc::default() }
    }

    /// Moves forward and wakes who waits for time to pass.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        *now = now.after(by);
        self.moved.notify_waiters();
    }

    /// Ends at the next [`advance`](Self::advance).
    pub fn moved(&self) -> tokio::sync::futures::Notified<'_> {
        self.moved.notified()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.lock()
    }

    fn manual(&self) -> Option<&ManualClock> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_goes_on_and_one_that_is_set_forward_goes_along() {
        let clock = SystemClock { start: Instant::now(), zero: AtomicI64::new(1_000 * STEP) };
        let hour = 3_600 * STEP;
        assert_eq!(clock.at(1_002 * STEP, 2 * STEP).0, 1_002 * STEP);
        assert_eq!(clock.at(1_003 * STEP - hour, 3 * STEP).0, 1_003 * STEP);
        assert_eq!(clock.at(1_004 * STEP + hour, 4 * STEP).0, 1_004 * STEP + hour);
        // Back to where it was: the way forward is not taken back.
        assert_eq!(clock.at(1_005 * STEP, 5 * STEP).0, 1_005 * STEP + hour);
        // Two looks are never at one moment.
        assert_eq!(clock.at(1_006 * STEP + hour + STEP / 2, 6 * STEP).0, 1_006 * STEP + hour);
    }

    #[test]
    fn it_never_goes_back() {
        let clock = SystemClock::default();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
