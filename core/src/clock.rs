//! Time. All code of the engine reads it here, so that tests can drive a clock by hand.

use crate::sync::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch, by the clock of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment `duration` after this one, or the last that there is.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This time less a duration.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long this is after `earlier`; zero if it is before it.
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

/// A clock that the engine reads.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// The hand-driven clock behind this one, where there is one. Whoever waits then waits for that clock to move
    /// instead of for real time to pass.
    fn manual(&self) -> Option<&ManualClock> {
        None
    }
}

/// The machine's wall clock, which never goes back. When somebody sets the machine's clock forward, this one follows.
/// When somebody sets it back, this one goes on as if nothing had happened: otherwise everything that waits for a
/// moment would wait that much longer.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    /// The time of the wall clock at `start`, in microseconds. It is raised by as much as the wall clock was set
    /// forward since.
    zero: AtomicI64,
}

/// From how many microseconds on a difference means that the wall clock was set forward. A smaller one comes from
/// reading the two clocks one after the other.
const STEP: i64 = 1_000_000;

impl SystemClock {
    /// The present moment, from the time of the wall clock and from the time that has passed since `start`.
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

/// The machine's steady clock. It measures how long something took or may take. It is never used for times that are
/// stored.
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Makes the thread wait. Async tasks must wait with tokio's timers instead, which tests can drive.
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
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self { now: Arc::new(Mutex::new(start)), moved: Arc::default() }
    }

    /// Moves forward, and wakes everyone who waits for time to pass.
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
