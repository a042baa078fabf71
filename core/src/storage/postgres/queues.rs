//! The limit of a claim's queue. A claim locks its row, so claims of a limited queue come one after the other: two at
//! once could together take more than the limit.

use super::fault::Done;
use super::values::{Row, json};
use crate::storage::queues::Gate;

/// The limit of a queue, locked.
pub(super) const GATE: &str = "SELECT spec, paid_until FROM queue_limit WHERE org_id = $1 AND queue = $2 FOR UPDATE";

/// Reads the row of [`GATE`].
pub(super) fn gate(row: &Row) -> Done<Gate> {
    Ok(Gate { limit: json(row, 0)?, paid_until: row.get(1)? })
}
