//! A store's clock that follows tokio's: under paused time an hour of waiting passes at once.

use crate::clock::{Clock, Timestamp};
use tokio::time::Instant;

/// Tokio's time as a wall clock. Made inside a runtime; virtual where that runtime's time is paused.
#[derive(Debug)]
pub struct VirtualClock {
    origin: Instant,
    start: Timestamp,
}

impl VirtualClock {
    /// A clock that shows a round moment now.
    pub fn new() -> Self {
        Self { origin: Instant::now(), start: Timestamp(1_800_000_000_000_000) }
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.start.after(self.origin.elapsed())
    }
}
