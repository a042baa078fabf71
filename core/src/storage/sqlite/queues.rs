//! The limit of a claim's queue.

use super::fault::Done;
use super::tx::Tx;
use super::values::{blob, json};
use crate::storage::ClaimRequest;
use crate::storage::queues::Gate;
use rusqlite::params;

/// The limit of a claim's queue, if it has one.
pub(super) fn gate(tx: &Tx, claim: &ClaimRequest) -> Done<Option<Gate>> {
    let sql = "SELECT spec, paid_until FROM queue_limit WHERE org_id = ?1 AND queue = ?2";
    tx.first(sql, params![blob(&claim.org.0), claim.queue], |row| {
        Ok(Gate { limit: json(row, 0)?, paid_until: row.get(1)? })
    })
}
