//! How much may wait for a run at once.

use crate::error::{Code, Error};
use crate::id::ExecutionId;

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
