//! Forked processes: keeps a fork from copying SQLite while a thread is inside it.
//!
//! A child gets a copy of SQLite's memory, but none of its parent's threads. What such a thread was in the middle of
//! stays so in the child for ever: a mutex that it held is never released, and a lock that it had on the shared memory
//! of a log seems to be held, since SQLite counts the locks of a process in its memory. A child that opens the same
//! file hangs, or hears until it ends that the database is locked.
//!
//! So a fork waits until no thread is inside SQLite, and no thread goes in while it takes place. Between two
//! transactions a connection holds nothing but shared locks, which the storage takes again for the child. If a
//! transaction takes longer than a fork can wait, the child is marked, and refuses to open a database.
//!
//! This costs two atomic additions for each transaction. A mutex of a library would not do: its queue of waiting
//! threads would be copied too (see `sync.rs`).

use crate::error::{Code, Error, Result};
use std::path::Path;

/// Marks the thread as inside SQLite until the result is dropped. Waits while another thread forks. A thread must not
/// have two at a time: a fork between them would wait for the first one, and the second one for the fork.
#[must_use]
pub(crate) fn enter() -> Inside {
    system::enter();
    Inside(process())
}

/// See [`enter`].
pub(crate) struct Inside(u64);

impl Drop for Inside {
    fn drop(&mut self) {
        // In a forked child the count begins anew. A guard that was made in the parent must not lower it.
        if self.0 == process() {
            system::leave();
        }
    }
}

/// Refuses to open a database in a child whose parent was inside SQLite at the fork.
pub(crate) fn check(path: &Path) -> Result<()> {
    if !system::was_inside() {
        return Ok(());
    }
    Err(Error::new(
        Code::ForkedProcess,
        format!(
            "open the database {}: this process was forked while its parent was in the middle of a long transaction, so \
             what SQLite has locked here stays locked; fork before the parent opens a database, or start a new program \
             (in Python: the start method spawn)",
            path.display()
        ),
    ))
}

pub(crate) use system::process;

#[cfg(unix)]
mod system {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    use std::time::Duration;

    /// How long a fork waits for the threads that are inside.
    const PATIENCE: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_micros(50);

    /// The lower half counts threads that are inside, the upper half threads that fork. One number for both, so that a
    /// thread can enter and check for forks in one atomic step.
    static THREADS: AtomicU64 = AtomicU64::new(0);
    /// One forking thread.
    const FORKS: u64 = 1 << 32;
    /// Forks between the first process and this one.
    static GENERATION: AtomicU64 = AtomicU64::new(0);
    static WAS_INSIDE: AtomicBool = AtomicBool::new(false);
    static HOOKED: OnceLock<bool> = OnceLock::new();

    fn hooked() -> bool {
        // SAFETY: the handlers touch atomics and sleep; that of the child, which may do little, only touches atomics.
        *HOOKED.get_or_init(|| unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 })
    }

    /// A number that differs between a parent and its forked child. It needs no system call after the first time.
    pub(crate) fn process() -> u64 {
        if hooked() { GENERATION.load(SeqCst) } else { u64::from(std::process::id()) }
    }

    pub(super) fn enter() {
        hooked();
        let mut threads = THREADS.load(SeqCst);
        loop {
            if threads >= FORKS {
                crate::clock::block(PAUSE);
                threads = THREADS.load(SeqCst);
                continue;
            }
            // Compare and exchange rather than add and take back: the count must not be too high even for a moment,
            // since a fork in that moment would wait for a thread that is not inside, or mark its child for it.
            match THREADS.compare_exchange_weak(threads, threads + 1, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(found) => threads = found,
            }
        }
    }

    pub(super) fn leave() {
        THREADS.fetch_sub(1, SeqCst);
    }

    pub(super) fn was_inside() -> bool {
        WAS_INSIDE.load(SeqCst)
    }

    fn inside_of(threads: u64) -> u64 {
        threads % FORKS
    }

    extern "C" fn before() {
        THREADS.fetch_add(FORKS, SeqCst);
        let since = crate::clock::instant();
        while inside_of(THREADS.load(SeqCst)) > 0 && since.elapsed() < PATIENCE {
            crate::clock::block(PAUSE);
        }
    }

    extern "C" fn in_parent() {
        THREADS.fetch_sub(FORKS, SeqCst);
    }

    extern "C" fn in_child() {
        GENERATION.fetch_add(1, SeqCst);
        // The counted threads are the parent's, and do not exist here. The mark stays: it holds for the children of
        // this child too.
        if inside_of(THREADS.swap(0, SeqCst)) > 0 {
            WAS_INSIDE.store(true, SeqCst);
        }
    }
}

#[cfg(not(unix))]
mod system {
    pub(crate) fn process() -> u64 {
        0
    }

    pub(super) fn enter() {}

    pub(super) fn leave() {}

    pub(super) fn was_inside() -> bool {
        false
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_child_of_a_long_transaction_opens_no_database() {
        assert!(check(Path::new("runs.db")).is_ok());
        let ((entered, is_inside), (leave, left)) = (channel(), channel::<()>());
        let long = std::thread::spawn(move || {
            let _inside = enter();
            entered.send(()).unwrap();
            let _ = left.recv();
        });
        is_inside.recv().unwrap();
        // SAFETY: the child looks at an atomic, makes an error, and leaves without running destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = check(Path::new("runs.db")).is_err_and(|error| error.code() == Code::ForkedProcess);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if refused { 0 } else { 1 }) };
        }
        drop(leave);
        long.join().unwrap();
        let mut status = 0;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child opens a database");
        assert!(check(Path::new("runs.db")).is_ok(), "its parent goes on");
    }
}
