//! Counts how much work waits and runs in each queue. It reads only the indexes of claimable work and of leases.

use super::fault::Done;
use super::tx::Tx;
use crate::clock::Timestamp;
use crate::storage::QueueDepth;

const RUNS: &str = "SELECT queue, sum(pending), sum(running), min(since) FROM (\
     SELECT queue, 1 AS pending, 0 AS running, updated_at AS since FROM agent_execution WHERE ready = 1 UNION ALL \
     SELECT queue, 0, 1, NULL FROM agent_execution WHERE worker IS NOT NULL) GROUP BY queue ORDER BY queue";

const TASKS: &str = "SELECT queue, sum(pending), sum(running), min(since) FROM (\
     SELECT queue, 1 AS pending, 0 AS running, visible_at AS since FROM task_execution WHERE status = 0 UNION ALL \
     SELECT queue, 0, 1, NULL FROM task_execution WHERE worker IS NOT NULL AND lease_expires IS NOT NULL) \
     GROUP BY queue ORDER BY queue";

/// The queues that have work.
pub(super) fn queues(tx: &Tx) -> Done<Vec<QueueDepth>> {
    let mut queues = Vec::new();
    for (what, sql) in [("run", RUNS), ("task", TASKS)] {
        queues.extend(tx.all(sql, [], |row| {
            Ok(QueueDepth {
                what,
                queue: row.get(0)?,
                pending: row.get(1)?,
                running: row.get(2)?,
                oldest: row.get::<_, Option<i64>>(3)?.map(Timestamp),
            })
        })?);
    }
    Ok(queues)
}
