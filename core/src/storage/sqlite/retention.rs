//! Takes out runs that ended long ago, with all their rows. Their payloads go when nobody refers to them.

use super::directory::audit;
use super::fault::Done;
use super::tx::Tx;
use super::values::{id, micros, span};
use crate::id::OrgId;
use crate::storage::directory::{RETENTION, removals};
use std::time::Duration;

/// At most so many runs in one transaction.
const SHARE: i64 = 256;

/// Removes runs that ended at least `keep` ago and that no other needs.
pub(super) fn remove_ended(tx: &Tx, keep: Duration) -> Done<usize> {
    let ended = tx.all(
        "SELECT x.run, x.org_id FROM agent_execution x WHERE x.ended_at <= ?1 \
         AND NOT EXISTS (SELECT 1 FROM agent_execution f WHERE f.forked_run = x.run) \
         AND NOT EXISTS (SELECT 1 FROM task_execution t WHERE t.ended_at IS NULL \
         AND t.place BETWEEN x.run << 31 AND x.run << 31 | 2147483647) ORDER BY x.ended_at LIMIT ?2",
        [tx.now.0.saturating_sub(micros(keep)), SHARE],
        |row| Ok((row.get::<_, i64>(0)?, OrgId(id(row, 1)?))),
    )?;
    for (run, _) in &ended {
        let (first, last) = span(*run);
        for sql in [
            "DELETE FROM agent_op WHERE place BETWEEN ?1 AND ?2",
            "DELETE FROM agent_entry WHERE place BETWEEN ?1 AND ?2",
            "DELETE FROM task_execution WHERE place BETWEEN ?1 AND ?2",
            "DELETE FROM agent_checkpoint WHERE key BETWEEN ?1 AND ?2",
            "DELETE FROM agent_signal WHERE key BETWEEN ?1 AND ?2",
            "DELETE FROM commit_request WHERE key BETWEEN ?1 AND ?2",
            "DELETE FROM event WHERE key BETWEEN ?1 AND ?2",
        ] {
            tx.execute(sql, [first, last])?;
        }
        for sql in [
            "DELETE FROM payload_reference WHERE run = ?1",
            "DELETE FROM resume_request WHERE run = ?1",
            "DELETE FROM ledger WHERE run = ?1",
            "DELETE FROM agent_execution WHERE run = ?1",
        ] {
            tx.execute(sql, [run])?;
        }
    }
    for (org, told) in removals(ended.iter().map(|(_, org)| *org)) {
        audit(tx, org, RETENTION.0, RETENTION.1, &told)?;
    }
    Ok(ended.len())
}
