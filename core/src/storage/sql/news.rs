//! What a transaction announces once it is durable.

use crate::streaming::{Change, Hints};
use std::sync::atomic::{AtomicI64, Ordering};

/// What to announce once a transaction is durable.
#[derive(Debug, Default)]
pub(in crate::storage) struct News {
    pub changed: Vec<Change>,
    pub agents: bool,
    pub tasks: bool,
    pub due: Option<i64>,
}

impl News {
    /// Notes that a run has events up to a number.
    pub(crate) fn changed(&mut self, change: Change) {
        match self.changed.last_mut() {
            Some(last) if last.is_of(&change) => last.join(change),
            _ => self.changed.push(change),
        }
    }

    /// Notes a time at which housekeeping has to look.
    pub(crate) fn due(&mut self, at: i64) {
        self.due = Some(self.due.map_or(at, |before| before.min(at)));
    }

    /// Announces it all. `next_due` is when housekeeping looks next anyway.
    pub(crate) fn publish(self, hints: &Hints, next_due: &AtomicI64) {
        for change in self.changed {
            hints.changed(change);
        }
        if self.agents {
            hints.agents_ready();
        }
        if self.tasks {
            hints.tasks_ready();
        }
        if self.due.is_some_and(|due| due < next_due.load(Ordering::Relaxed)) {
            hints.timers_changed();
        }
    }
}
