//! Starts tasks and threads. All code of the engine starts them here.

use crate::error::{Code, Error, Result};
use std::thread::{Builder, JoinHandle};

/// Starts a task on the caller's runtime. The task goes on when its handle is dropped, so whoever starts it has to see
/// to it that it ends.
pub(crate) fn task<F>(work: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(work)
}

/// Starts a thread with a name that debuggers show. If the machine cannot start one, the error says what it was for
/// (`what`).
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
