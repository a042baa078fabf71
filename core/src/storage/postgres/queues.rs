//! Limits of queues, as a claim meets them. It locks the row of its queue, so claims of a limited queue come one after the other.

use super::fault::Done;
use super::values::{Row, json};
use crate::storage::queues::Gate;

/// The limit of a queue, locked.
pub(super) const GATE: &str = "SELECT spec, paid_until FROM queue_limit WHERE org_id = $1 AND queue = $2 FOR UPDATE";

/// Reads the row of [`GATE`].
pub(super) fn gate(row: &Row) -> Done<Gate> {
    Ok(Gate { limit: json(row, 0)?, paid_until: row.get(1)? })
}
