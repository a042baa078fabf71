//! Counts how much work waits and runs in each queue. It reads only the indexes of claimable work and of leases.

use super::fault::Done;
use super::sets::row;
use super::tx::Tx;
use crate::clock::Timestamp;
use crate::storage::QueueDepth;

pub(super) const RUNS: &str = "SELECT queue, sum(pending)::bigint, sum(running)::bigint, min(since) FROM (\
     SELECT queue, 1 AS pending, 0 AS running, updated_at AS since FROM agent_execution WHERE ready UNION ALL \
     SELECT queue, 0, 1, NULL FROM agent_execution WHERE worker IS NOT NULL) w GROUP BY queue ORDER BY queue";

pub(super) const TASKS: &str = "SELECT queue, sum(pending)::bigint, sum(running)::bigint, min(since) FROM (\
     SELECT queue, 1 AS pending, 0 AS running, visible_at AS since FROM task_execution WHERE status = 0 UNION ALL \
     SELECT queue, 0, 1, NULL FROM task_execution WHERE worker IS NOT NULL AND lease_expires IS NOT NULL) w \
     GROUP BY queue ORDER BY queue";

/// The queues that have work.
pub(super) fn queues(tx: &Tx) -> Done<Vec<QueueDepth>> {
    let found = tx.ask_all(&[(RUNS, row![]), (TASKS, row![])])?;
    let mut queues = Vec::new();
    for (what, rows) in ["run", "task"].into_iter().zip(&found) {
        for row in rows {
            queues.push(QueueDepth {
                what,
                queue: row.get(0)?,
                pending: row.get(1)?,
                running: row.get(2)?,
                oldest: row.get::<Option<i64>>(3)?.map(Timestamp),
            });
        }
    }
    Ok(queues)
}
