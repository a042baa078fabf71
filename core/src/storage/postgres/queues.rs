//! Limits of queues. A claim locks the row of its queue, so claims of a limited queue come one after the other.

use super::PostgresStorage;
use super::fault::Done;
use super::sets::row;
use super::tx::Tx;
use super::values::{Row, json, text_of};
use crate::error::Result;
use crate::id::OrgId;
use crate::model::QueueLimit;
use crate::storage::queues::{Gate, check};
use crate::storage::sql::Dialect;
use crate::storage::{ClaimRequest, Queues};
use async_trait::async_trait;

#[async_trait]
impl Queues for PostgresStorage {
    async fn limit_queue(&self, org: OrgId, queue: &str, limit: QueueLimit) -> Result<()> {
        let (limits, queue) = (check(queue, &limit)?, queue.to_owned());
        self.write_alone("limit a queue", move |tx| {
            if limits {
                tx.execute(
                    "INSERT INTO queue_limit (org_id, queue, spec) VALUES ($1, $2, $3) \
                     ON CONFLICT (org_id, queue) DO UPDATE SET spec = excluded.spec",
                    row![org.0, &queue, text_of(&limit)?],
                )?;
            } else {
                tx.execute("DELETE FROM queue_limit WHERE org_id = $1 AND queue = $2", row![org.0, &queue])?;
            }
            tx.agents_ready();
            Ok(())
        })
        .await
    }

    async fn queue_limits(&self, org: OrgId) -> Result<Vec<(String, QueueLimit)>> {
        self.read("list limits of queues", org, move |tx| {
            let sql = "SELECT queue, spec FROM queue_limit WHERE org_id = $1 ORDER BY queue";
            tx.all(sql, row![org.0], |row| Ok((row.get(0)?, json(row, 1)?)))
        })
        .await
    }
}

/// The limit of a queue, locked.
pub(super) const GATE: &str = "SELECT spec, paid_until FROM queue_limit WHERE org_id = $1 AND queue = $2 FOR UPDATE";

/// Reads the row of [`GATE`].
pub(super) fn gate(row: &Row) -> Done<Gate> {
    Ok(Gate { limit: json(row, 0)?, paid_until: row.get(1)? })
}

/// How many runs of its queue a claim may take.
pub(super) fn room(tx: &Tx, claim: &ClaimRequest, gate: &Gate) -> Done<usize> {
    let sql = "SELECT count(*) FROM agent_execution WHERE worker IS NOT NULL AND org_id = $1 AND queue = $2";
    let held = tx.first(sql, row![claim.org.0, claim.queue.as_str()], |row| row.get::<i64>(0))?;
    Ok(gate.room(claim.limit, usize::try_from(held.unwrap_or(0)).unwrap_or(0), tx.now))
}

/// So many went through a gate; `more` could have but for it.
pub(super) fn passed(tx: &Tx, claim: &ClaimRequest, mut gate: Gate, runs: usize, more: bool) -> Done<()> {
    gate.pass(runs, tx.now);
    let opens_at = more.then(|| gate.opens_at(tx.now));
    if let Some(at) = opens_at {
        tx.due(at.0);
    }
    tx.execute(
        "UPDATE queue_limit SET paid_until = $3, opens_at = $4 WHERE org_id = $1 AND queue = $2",
        row![claim.org.0, claim.queue.as_str(), gate.paid_until, opens_at],
    )
}

/// Queues that have room again are looked at again.
pub(super) fn open(tx: &Tx) -> Done<()> {
    let sql = "UPDATE queue_limit SET opens_at = NULL WHERE opens_at <= $1 RETURNING queue";
    if tx.execute_returning(sql, row![tx.now], |_| Ok(()))?.is_some() {
        tx.agents_ready();
    }
    Ok(())
}
