//! The only door to time: a wall clock that tests can drive by hand.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// The machine's wall clock, held from going backwards within the process.
#[derive(Debug, Default)]
pub struct SystemClock(std::sync::atomic::AtomicI64);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        use std::sync::atomic::Ordering::Relaxed;
        #[allow(clippy::disallowed_methods)]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64);
        Timestamp(self.0.fetch_max(wall, Relaxed).max(wall))
    }
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
