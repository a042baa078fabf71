//! The only door to tasks and threads that go on by themselves.

use crate::error::{Code, Error, Result};
use std::thread::{Builder, JoinHandle};

/// Starts a task on the caller's runtime. It goes on when its handle is dropped, so who starts it ends it.
pub(crate) fn task<F>(work: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(work)
}

/// Starts a thread with a name that debuggers show. Where the machine has none left, the error says what it was for.
pub(crate) fn thread<T: Send + 'static>(
    name: &str,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        let message = format!("no thread for {what}: {error}; end other processes or raise the limit of threads");
        Error::new(Code::StorageUnavailable, message).caused_by(error)
    })
}
