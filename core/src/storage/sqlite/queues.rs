//! Limits of queues.

use super::SqliteStorage;
use super::fault::Done;
use super::tx::Tx;
use super::values::{blob, json, text_of};
use crate::error::Result;
use crate::id::OrgId;
use crate::model::QueueLimit;
use crate::storage::queues::{Gate, check};
use crate::storage::sql::Dialect;
use crate::storage::{ClaimRequest, Queues};
use async_trait::async_trait;
use rusqlite::params;

#[async_trait]
impl Queues for SqliteStorage {
    async fn limit_queue(&self, org: OrgId, queue: &str, limit: QueueLimit) -> Result<()> {
        let (limits, queue) = (check(queue, &limit)?, queue.to_owned());
        self.write("limit a queue", move |tx| {
            if limits {
                tx.execute(
                    "INSERT INTO queue_limit (org_id, queue, spec) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (org_id, queue) DO UPDATE SET spec = excluded.spec",
                    params![blob(&org.0), queue, text_of(&limit)?],
                )?;
            } else {
                tx.execute("DELETE FROM queue_limit WHERE org_id = ?1 AND queue = ?2", params![blob(&org.0), queue])?;
            }
            tx.agents_ready();
            Ok(())
        })
        .await
    }

    async fn queue_limits(&self, org: OrgId) -> Result<Vec<(String, QueueLimit)>> {
        self.read("list limits of queues", move |tx| {
            let sql = "SELECT queue, spec FROM queue_limit WHERE org_id = ?1 ORDER BY queue";
            tx.all(sql, [blob(&org.0)], |row| Ok((row.get(0)?, json(row, 1)?)))
        })
        .await
    }
}

/// The limit of a claim's queue, if it has one.
pub(super) fn gate(tx: &Tx, claim: &ClaimRequest) -> Done<Option<Gate>> {
    let sql = "SELECT spec, paid_until FROM queue_limit WHERE org_id = ?1 AND queue = ?2";
    tx.first(sql, params![blob(&claim.org.0), claim.queue], |row| {
        Ok(Gate { limit: json(row, 0)?, paid_until: row.get(1)? })
    })
}

/// Runs of a claim's queue that workers hold.
pub(super) fn held(tx: &Tx, claim: &ClaimRequest) -> Done<usize> {
    let sql = "SELECT count(*) FROM agent_execution WHERE worker IS NOT NULL AND org_id = ?1 AND queue = ?2";
    let held: Option<i64> = tx.first(sql, params![blob(&claim.org.0), claim.queue], |row| row.get(0))?;
    Ok(usize::try_from(held.unwrap_or(0)).unwrap_or(0))
}

/// So many went through a gate; `more` could have but for it.
pub(super) fn passed(tx: &Tx, claim: &ClaimRequest, mut gate: Gate, runs: usize, more: bool) -> Done<()> {
    gate.pass(runs, tx.now);
    let opens_at = more.then(|| gate.opens_at(tx.now).0);
    tx.execute(
        "UPDATE queue_limit SET paid_until = ?3, opens_at = ?4 WHERE org_id = ?1 AND queue = ?2",
        params![blob(&claim.org.0), claim.queue, gate.paid_until, opens_at],
    )?;
    if let Some(at) = opens_at {
        tx.due(at);
    }
    Ok(())
}

/// Queues that have room again are looked at again.
pub(super) fn open(tx: &Tx) -> Done<()> {
    if tx.execute("UPDATE queue_limit SET opens_at = NULL WHERE opens_at <= ?1", [tx.now.0])? > 0 {
        tx.agents_ready();
    }
    Ok(())
}
