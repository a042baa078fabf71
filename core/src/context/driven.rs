//! Tells calls of the agent's own future from those of other tasks and threads.
//!
//! The driver looks at what the agent has called after each poll of its future. What another task or thread calls comes at
//! any moment, so whoever makes such a call wakes the driver.

use super::Shared;
use std::cell::Cell;

thread_local! {
    /// The activation whose future this thread polls; 0 while it polls none.
    static POLLED: Cell<usize> = const { Cell::new(0) };
}

/// Gives the thread back to whom it polled before, also after a panic.
struct Before(usize);

impl Drop for Before {
    fn drop(&mut self) {
        POLLED.set(self.0);
    }
}

/// Polls the future of an activation.
pub(crate) fn driven<R>(activation: usize, poll: impl FnOnce() -> R) -> R {
    let _before = Before(POLLED.replace(activation));
    poll()
}

impl Shared {
    /// Whether the caller is the agent's own future, which the driver polls on this thread.
    pub(super) fn is_polled_here(&self) -> bool {
        POLLED.get() == self.session.activation()
    }

    /// Wakes the driver if the caller is not the future that it polls.
    pub(super) fn ring_from_elsewhere(&self) {
        if !self.is_polled_here() {
            self.driver.wake_by_ref();
        }
    }

    /// Wakes all that wait for a step of a session that is over: tasks and threads of their own learn of it so.
    pub(crate) fn let_go(&self) {
        let wakers = std::mem::take(&mut self.slots.lock().wakers);
        wakers.into_values().for_each(std::task::Waker::wake);
    }
}
