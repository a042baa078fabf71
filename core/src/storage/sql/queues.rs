//! The port [`Queues`], written once for all SQL backends, and how claims are held to the limits of queues.

use super::Dialect;
use super::backend::Backend;
use super::tables::{Tables, json, text};
use super::values::{row, text_of};
use crate::error::Result;
use crate::id::OrgId;
use crate::model::QueueLimit;
use crate::storage::queues::{Gate, check};
use crate::storage::{ClaimRequest, Queues};
use async_trait::async_trait;

#[async_trait]
impl<B: Backend> Queues for B {
    async fn limit_queue(&self, org: OrgId, queue: &str, limit: QueueLimit) -> Result<()> {
        let (limits, queue) = (check(queue, &limit)?, queue.to_owned());
        self.write_alone("limit a queue", move |tx| {
            if limits {
                tx.apply(
                    "INSERT INTO queue_limit (org_id, queue, spec) VALUES ($1, $2, $3) \
                     ON CONFLICT (org_id, queue) DO UPDATE SET spec = excluded.spec",
                    row![org.0, &queue, text_of(&limit)?],
                )?;
            } else {
                tx.apply("DELETE FROM queue_limit WHERE org_id = $1 AND queue = $2", row![org.0, &queue])?;
            }
            tx.agents_ready();
            Ok(())
        })
        .await
    }

    async fn queue_limits(&self, org: OrgId) -> Result<Vec<(String, QueueLimit)>> {
        self.read("list limits of queues", org, move |tx| {
            let sql = "SELECT queue, spec FROM queue_limit WHERE org_id = $1 ORDER BY queue";
            tx.query(sql, row![org.0], |row| Ok((text(row, 0)?, json(row, 1)?)))
        })
        .await
    }
}

/// How many runs a claim may take under the limit of its queue.
pub(in crate::storage) fn room<T: Tables>(tx: &T, claim: &ClaimRequest, gate: &Gate) -> Result<usize, T::Fault> {
    let sql = "SELECT count(*) FROM agent_execution WHERE worker IS NOT NULL AND org_id = $1 AND queue = $2";
    let held = tx.one(sql, row![claim.org.0, &claim.queue], |row| row.int(0))?.flatten();
    Ok(gate.room(claim.limit, usize::try_from(held.unwrap_or(0)).unwrap_or(0), tx.now()))
}

/// Notes that a claim has taken `runs` runs under a limit. `more` tells that others wait only because of it: then
/// housekeeping looks again when the limit allows more.
pub(in crate::storage) fn passed<T: Tables>(
    tx: &T,
    claim: &ClaimRequest,
    mut gate: Gate,
    runs: usize,
    more: bool,
) -> Result<(), T::Fault> {
    gate.pass(runs, tx.now());
    let opens_at = more.then(|| gate.opens_at(tx.now()));
    if let Some(at) = opens_at {
        tx.due(at.0);
    }
    tx.apply(
        "UPDATE queue_limit SET paid_until = $1, opens_at = $2 WHERE org_id = $3 AND queue = $4",
        row![gate.paid_until, opens_at, claim.org.0, &claim.queue],
    )
}

/// Announces work of queues whose limit allows more again.
pub(in crate::storage) fn open<T: Tables>(tx: &T) -> Result<(), T::Fault> {
    let sql = "UPDATE queue_limit SET opens_at = NULL WHERE opens_at <= $1 RETURNING queue";
    if tx.changes_any(sql, row![tx.now()])? {
        tx.agents_ready();
    }
    Ok(())
}
