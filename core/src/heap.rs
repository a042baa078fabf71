//! Memory that a burst of work leaves behind in the allocator.

use crate::clock;
use crate::sync::Mutex;
use std::time::{Duration, Instant};

/// How often memory is given back at most.
const INTERVAL: Duration = Duration::from_secs(1);

static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Gives back to the system what the allocator holds and nobody uses. glibc keeps what a large commit has needed for the next one,
/// however long that is away; other allocators look after it themselves. It takes milliseconds, so call it behind something large,
/// on a thread that may block.
pub(crate) fn give_back() {
    let now = clock::instant();
    let is_due = {
        let mut last = LAST.lock();
        let is_due = last.is_none_or(|last| now.duration_since(last) >= INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    };
    if is_due {
        trim();
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: it takes no pointer, and any thread may call it at any time.
    unsafe { malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
