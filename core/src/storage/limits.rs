//! What a run may have: signals that wait for it and tasks that are open at once, steps, ops of a tail.

use crate::error::{Code, Error};
use crate::id::ExecutionId;
use crate::model::Batch;

/// Cumulative steps after which `resume` is refused, where steps are limited.
pub(super) const DEFAULT_TOTAL_STEPS: u32 = 500;
/// Ops of a tail at which a run pauses.
pub(super) const DEFAULT_TAIL: u32 = 50_000;

/// Signals that a run has not consumed yet; one more is refused with `RateLimited` until it has taken some.
pub const PENDING_SIGNALS: usize = 10_000;

/// The mailbox of a run is full.
pub(super) fn mailbox_is_full(run: ExecutionId) -> Error {
    let message = format!(
        "the run {run} has {PENDING_SIGNALS} signals that it has not taken yet, and this one was not stored; send it again when \
         the run has taken some, or look why it does not (`flovyn runs show`)"
    );
    Error::new(Code::RateLimited, message).with("pending", PENDING_SIGNALS)
}

/// Whether a run may have too many open tasks after a batch. Each of them has left an event, so `high` tells most runs apart.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn may_open_too_many(batch: &Batch, high: u64) -> bool {
    high > Batch::MOST_OPEN as u64 && batch.calls_tasks()
}

/// The batch calls for more than a run may have open.
pub(super) fn too_many_open(run: ExecutionId) -> Error {
    let most = Batch::MOST_OPEN;
    let message = format!(
        "the run {run} would have more than {most} tasks that have not ended, and nothing of the commit was stored; let some end \
         before more are called"
    );
    Error::new(Code::LimitReached, message).with("limit", most)
}
