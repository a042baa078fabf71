//! The places of inline attempts, for a worker that counts them among the attempts it runs at once.

use super::Core;
use crate::journal::OpRef;
use crate::session::{Session, Turn};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The inline attempts of a worker that counts them.
#[derive(Default)]
pub(super) struct Inline {
    /// How many run.
    taken: usize,
    /// The attempts that wait for a place, in the order in which they were to start.
    waiting: VecDeque<(Weak<Session>, OpRef)>,
}

impl Inline {
    /// The places that no claimed task may take. Waiting inline attempts go first, since each of them keeps its run,
    /// and the run's place, waiting.
    pub(super) fn taken_or_wanted(&self) -> usize {
        self.taken + self.waiting.len()
    }
}

/// A place that is given back when it is dropped.
struct Place(Weak<Core>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.inline.lock().taken -= 1;
            core.freed_place();
        }
    }
}

impl Core {
    /// Whether an inline attempt may start. If not, it is queued and starts when a place is free.
    pub(super) fn turn_of(&self, session: &Arc<Session>, op: OpRef) -> Turn {
        if !self.options.count_inline {
            return Turn::Now(None);
        }
        if let Some(place) = self.take_place(|inline| inline.waiting.is_empty()) {
            return Turn::Now(Some(Box::new(place)));
        }
        self.inline.lock().waiting.push_back((Arc::downgrade(session), op));
        // A place may have come free between the two locks. Whoever freed it did not see this attempt in the queue.
        self.fill_soon();
        Turn::Later
    }

    /// A place is free again, of an inline attempt or of a claimed task.
    pub(super) fn freed_place(&self) {
        self.fill_soon();
        self.freed_task.notify_one();
    }

    fn take_place(&self, may: impl Fn(&Inline) -> bool) -> Option<Place> {
        let tickets = self.tickets.lock();
        let claimed = tickets.len() + self.reserved_tasks.load(Ordering::Relaxed);
        let mut inline = self.inline.lock();
        if !may(&inline) || claimed + inline.taken >= self.options.max_tasks {
            return None;
        }
        inline.taken += 1;
        Some(Place(self.me.clone()))
    }

    /// Starts waiting attempts, from another task: the caller may hold the lock of a session, which starting an attempt
    /// needs.
    pub(super) fn fill_soon(&self) {
        if self.options.count_inline
            && let Some(me) = self.me.upgrade()
        {
            self.runtime.spawn(async move { me.fill() });
        }
    }

    fn fill(&self) {
        while !self.is_closing() {
            let Some(place) = self.take_place(|inline| !inline.waiting.is_empty()) else { return };
            let next = self.inline.lock().waiting.pop_front();
            // If the attempt is no longer wanted, the place is dropped and so comes free for the next one.
            if let Some((session, op)) = next
                && let Some(session) = session.upgrade()
            {
                session.begin_in(op, Box::new(place));
            }
        }
    }
}
