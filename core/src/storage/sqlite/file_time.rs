//! One time for all processes that have a database open.
//!
//! A file has no clock of its own, and clocks of processes differ: one was set back while a process lived, another process is
//! told a wrong one (faketime, a virtual machine that was restored). Whoever was ahead would take the others' leases for over
//! and fire their timers early. So one process leads, writes its time into the lock file every few milliseconds, and the
//! others go by that: a process whose clock is more than a second off says so and counts the difference in. Which
//! one leads is decided by a lock, which the next takes when it ends.
//!
//! A clock that is driven by hand leads nobody and follows nobody.

use super::lock::Locks;
use crate::clock::{Clock, ManualClock, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Clocks that differ by less than this many microseconds agree.
const STEP: i64 = 1_000_000;
/// A time that was written since a look that is longer ago than this may itself be old.
const FRESH: Duration = Duration::from_millis(200);
/// How long the first write waits for the time of the process that leads, which may be busy or stopped.
const PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(4);

/// A clock and how far it is from the time of the file.
#[derive(Debug)]
pub(super) struct FileClock {
    own: Arc<dyn Clock>,
    shift: AtomicI64,
}

impl FileClock {
    pub(super) fn of(own: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { own, shift: AtomicI64::new(0) })
    }
}

impl Clock for FileClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.own.now().0.saturating_add(self.shift.load(Relaxed)))
    }

    fn manual(&self) -> Option<&ManualClock> {
        self.own.manual()
    }
}

/// Keeps a process at the time of the file.
pub(super) struct Pace {
    path: PathBuf,
    clock: Arc<FileClock>,
    locks: Arc<Locks>,
    came: Instant,
    leads: bool,
    /// What was read last, and when.
    seen: Option<(i64, Instant)>,
    settled: bool,
}

impl Pace {
    pub(super) fn new(path: PathBuf, clock: Arc<FileClock>, locks: Arc<Locks>) -> Self {
        let settled = clock.manual().is_some();
        Self { path, clock, locks, came: crate::clock::instant(), leads: false, seen: None, settled }
    }

    /// Whether the time of the file is known, or that nobody tells it.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Finds out the time of the file before anything is written.
    pub(super) fn settle(&mut self) {
        let since = crate::clock::instant();
        while !self.settled {
            self.keep();
            if !self.settled {
                self.settled = since.elapsed() > PATIENCE;
                crate::clock::block(PAUSE);
            }
        }
    }

    /// Leads or follows. Called every few milliseconds.
    pub(super) fn keep(&mut self) {
        if self.clock.manual().is_some() {
            return;
        }
        // Whoever has just come leaves it to those who know the time of the file already.
        let is_new = !self.settled && self.came.elapsed() < PATIENCE && !self.locks.is_alone();
        self.leads = self.leads || !is_new && self.locks.lead();
        if self.leads {
            self.locks.write_time(self.clock.now().0);
            self.settled = true;
            return;
        }
        let (Some(time), now) = (self.locks.time(), crate::clock::instant()) else { return };
        let Some((before, at)) = self.seen.replace((time, now)) else { return };
        // Where it was written between two looks that follow each other closely, it is the time now.
        if before != time && now.duration_since(at) < FRESH {
            self.follow(time);
            self.settled = true;
        }
    }

    fn follow(&self, time: i64) {
        let off = self.clock.now().0.saturating_sub(time);
        if off.abs() <= STEP {
            return;
        }
        self.clock.shift.fetch_sub(off, Relaxed);
        tracing::warn!(
            path = %self.path.display(),
            seconds = off as f64 / 1e6,
            "the clock of this process differs from that of others who have the database open, whose time counts here; set \
             it, for logs and traces go by it"
        );
    }
}
