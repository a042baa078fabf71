//! One time for all processes that have a database open.
//!
//! A file has no clock of its own, and the clocks of processes can differ: a clock was set back while a process lived,
//! or a process is shown a wrong one (faketime, a restored virtual machine). A process that is ahead would take the
//! others' leases for expired and fire their timers early. So one process leads: it writes its time into the lock file
//! every few milliseconds, and the others go by that time. A process whose clock is more than a second off logs a
//! warning and adds the difference. A lock decides which process leads; when that process ends, another one takes the
//! lock.
//!
//! A process whose clock is driven by hand, in a test, neither leads nor follows.

use super::lock::Locks;
use crate::clock::{Clock, ManualClock, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Clocks that differ by no more than this many microseconds are taken to agree.
const STEP: i64 = 1_000_000;
/// If the looks before and after a change of the written time are farther apart than this, the new time may be old.
const FRESH: Duration = Duration::from_millis(200);
/// How long the first write waits for the time of the leading process, which may be busy or stopped.
const PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(4);

/// The clock of this process, corrected by its difference from the time of the file.
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
    /// When this process opened the database.
    opened: Instant,
    leads: bool,
    /// The time that was read last, and when it was read.
    seen: Option<(i64, Instant)>,
    /// Whether the time of the file is known, or need not be known.
    settled: bool,
}

impl Pace {
    pub(super) fn new(path: PathBuf, clock: Arc<FileClock>, locks: Arc<Locks>) -> Self {
        let settled = clock.manual().is_some();
        Self { path, clock, locks, opened: crate::clock::instant(), leads: false, seen: None, settled }
    }

    /// Whether the time of the file is known, or this process has waited for it long enough.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Waits for the time of the file. Called before anything is written.
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
        // A process that has just opened the file does not try to lead while others have it open: they know the time
        // already.
        let is_new = !self.settled && self.opened.elapsed() < PATIENCE && !self.locks.is_alone();
        self.leads = self.leads || !is_new && self.locks.lead();
        if self.leads {
            self.locks.write_time(self.clock.now().0);
            self.settled = true;
            return;
        }
        let (Some(time), now) = (self.locks.time(), crate::clock::instant()) else { return };
        let Some((before, at)) = self.seen.replace((time, now)) else { return };
        // If it was written between two looks close to each other, it is the present time.
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
