//! The limits of a run: pending signals, open tasks, steps, and ops of a tail.

use crate::error::{Code, Error};
use crate::id::ExecutionId;
use crate::model::{Batch, Failure};

/// The default number of cumulative steps after which `resume` is refused, for runs whose steps are limited.
pub(super) const DEFAULT_TOTAL_STEPS: u32 = 500;
/// The default number of ops in a tail at which a run pauses.
pub(super) const DEFAULT_TAIL: u32 = 50_000;

/// The most signals that a run has not consumed yet. One more is refused as `RateLimited` until the run has taken some.
pub const PENDING_SIGNALS: usize = 10_000;

/// How many runs may be above a run.
pub(super) const DEPTH: u32 = 8;
/// The most children of a run that have not ended.
pub(super) const CHILDREN: usize = 10_000;

/// Whether a run at this depth, with so many children that have not ended, may start another.
///
/// Errors: `LimitReached`.
pub(super) fn check_family(run: ExecutionId, depth: u32, children: usize) -> Result<(), Error> {
    let (message, limit) = if depth >= DEPTH {
        let message = format!("the run {run} has {depth} runs above it, and its child would have more than {DEPTH}");
        (message, DEPTH as usize)
    } else if children >= CHILDREN {
        let message = format!("the run {run} has {children} children that have not ended, and may have no more");
        (message, CHILDREN)
    } else {
        return Ok(());
    };
    Err(Error::new(Code::LimitReached, format!("{message}; the child was not started")).with("limit", limit))
}

/// The failure of a run that no worker has begun in time.
pub(super) fn not_begun() -> Failure {
    let message = "no worker has begun the run within its start timeout; look whether one runs that serves its agent on its queue";
    Failure::new(Code::Timeout, "StartTimeout", message)
}

/// The failure of a run whose values stay on a machine, which has not gone on with it in time.
pub(super) fn worker_lost() -> Failure {
    let message = "the machine that has the values of the run has not gone on with it within its start timeout, and no other can; look \
                   whether its daemon runs, or start the work anew";
    Failure::new(Code::Timeout, "WorkerLost", message)
}

/// The error for a full mailbox.
pub(super) fn mailbox_is_full(run: ExecutionId) -> Error {
    let message = format!(
        "the run {run} has {PENDING_SIGNALS} signals that it has not taken yet, and this one was not stored; send it again when \
         the run has taken some, or look why it does not (`flovyn runs show`)"
    );
    Error::new(Code::RateLimited, message).with("pending", PENDING_SIGNALS)
}

/// Whether a run could have too many open tasks after a batch, so that they have to be counted. Each task has an event,
/// so a run whose last event has a small number cannot.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn may_open_too_many(batch: &Batch, high: u64) -> bool {
    high > Batch::MOST_OPEN as u64 && batch.calls_tasks()
}

/// The error for a batch after which a run would have too many open tasks.
pub(super) fn too_many_open(run: ExecutionId) -> Error {
    let most = Batch::MOST_OPEN;
    let message = format!(
        "the run {run} would have more than {most} tasks that have not ended, and nothing of the commit was stored; let some end \
         before more are called"
    );
    Error::new(Code::LimitReached, message).with("limit", most)
}
