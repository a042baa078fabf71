//! How Rust threads tell an event loop that something is there, without touching the interpreter.
//!
//! A thread puts what it has into the queue and makes the file descriptor readable. The loop reads the descriptor and
//! drains the queue in one call.

use crate::error::exception;
use crate::reply::Reply;
use crate::worker::News;
use flovyn_core::Error;
use flovyn_core::sync::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

/// What waits for the loop.
pub(crate) enum Note {
    /// A call that was made with a token has ended.
    Done(u64, Result<Reply, Error>),
    /// A worker has something for its loop.
    News(News),
}

pub(crate) struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    wake: Wake,
    tokens: AtomicU64,
}

#[derive(Default)]
struct State {
    notes: Vec<Note>,
    closed: bool,
}

impl Inbox {
    /// Puts a note into the queue and wakes the loop, from any thread.
    pub(crate) fn push(&self, note: Note) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let first = state.notes.is_empty();
        state.notes.push(note);
        drop(state);
        if first {
            self.wake.set();
            self.arrived.notify_one();
        }
    }

    /// A number that names something among what is drained.
    pub(crate) fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends a call by its token.
    pub(crate) fn done<T: Into<Reply>>(&self, token: u64, result: Result<T, Error>) {
        self.push(Note::Done(token, result.map(Into::into)));
    }

    fn take(&self) -> Vec<Note> {
        self.wake.reset();
        std::mem::take(&mut self.state.lock().notes)
    }
}

/// Runs a future of the engine to its end and tells the hub.
pub(crate) fn spawn<T: Into<Reply>>(
    runtime: &tokio::runtime::Handle,
    inbox: &Arc<Inbox>,
    token: u64,
    future: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> tokio::task::AbortHandle {
    let inbox = inbox.clone();
    runtime.spawn(async move { inbox.done(token, future.await) }).abort_handle()
}

/// The mailbox of one event loop.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Hub {
    pub(crate) inbox: Arc<Inbox>,
}

#[pymethods]
impl Hub {
    #[new]
    fn new() -> PyResult<Self> {
        let inbox =
            Inbox { state: Mutex::default(), arrived: Condvar::new(), wake: Wake::new()?, tokens: AtomicU64::new(1) };
        Ok(Self { inbox: Arc::new(inbox) })
    }

    /// The descriptor that becomes readable; -1 where the platform has none and `wait` must be used.
    fn fileno(&self) -> i32 {
        self.inbox.wake.descriptor()
    }

    /// Waits until something is there or the time is over, without the GIL.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        py.detach(|| {
            let mut state = self.inbox.state.lock();
            if state.notes.is_empty() && !state.closed {
                let waited = self.inbox.arrived.wait_timeout(state, Duration::from_secs_f64(seconds));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            !state.notes.is_empty()
        })
    }

    /// A number that names a call.
    fn token(&self) -> u64 {
        self.inbox.token()
    }

    /// Takes all that is there: `(token, ok, value)` of calls, `(token, None, news)` of workers.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for note in self.inbox.take() {
            match note {
                // A value that cannot be shown costs the call that asks for it, not what was taken with it.
                Note::Done(token, Ok(reply)) => match reply.into_python(py) {
                    Ok(value) => list.append((token, true, value))?,
                    Err(error) => list.append((token, false, error.into_value(py)))?,
                },
                Note::Done(token, Err(error)) => list.append((token, false, exception(py, &error)?))?,
                Note::News(news) => news.append_to(py, &list)?,
            }
        }
        Ok(list)
    }

    /// Takes nothing more; what is there is dropped.
    fn close(&self) {
        let mut state = self.inbox.state.lock();
        state.closed = true;
        state.notes.clear();
        self.inbox.arrived.notify_all();
    }
}

#[cfg(unix)]
struct Wake {
    read: std::os::fd::OwnedFd,
    write: std::os::fd::OwnedFd,
}

#[cfg(unix)]
impl Wake {
    fn new() -> std::io::Result<Self> {
        use std::os::fd::FromRawFd;
        let mut ends = [0; 2];
        // SAFETY: `pipe` fills the array with two descriptors that nobody else owns.
        unsafe {
            if libc::pipe(ends.as_mut_ptr()) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            for end in ends {
                let flags = libc::fcntl(end, libc::F_GETFL);
                libc::fcntl(end, libc::F_SETFL, flags | libc::O_NONBLOCK);
                libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
            }
            Ok(Self {
                read: std::os::fd::OwnedFd::from_raw_fd(ends[0]),
                write: std::os::fd::OwnedFd::from_raw_fd(ends[1]),
            })
        }
    }

    fn descriptor(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.read.as_raw_fd()
    }

    fn set(&self) {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open as long as `self`; a full pipe is readable already.
        unsafe { libc::write(self.write.as_raw_fd(), [1u8].as_ptr().cast(), 1) };
    }

    fn reset(&self) {
        use std::os::fd::AsRawFd;
        let mut bytes = [0u8; 64];
        // SAFETY: the buffer is as long as is said.
        while unsafe { libc::read(self.read.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) } == 64 {}
    }
}

#[cfg(not(unix))]
struct Wake;

#[cfg(not(unix))]
impl Wake {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    fn descriptor(&self) -> i32 {
        -1
    }

    fn set(&self) {}

    fn reset(&self) {}
}
