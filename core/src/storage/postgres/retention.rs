//! Takes out runs that ended long ago, with all their rows. Their payloads go when nobody refers to them.

use super::claims::split;
use super::directory::audit;
use super::fault::Done;
use super::run::{Run, run_columns};
use super::sets::row;
use super::tx::Tx;
use super::values::{Key, micros};
use crate::storage::directory::{RETENTION, removals};
use std::time::Duration;

/// At most so many runs in one transaction.
const SHARE: i64 = 256;

const ENDED: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM agent_execution x WHERE x.ended_at <= $1 \
     AND NOT EXISTS (SELECT FROM agent_execution f WHERE f.org_id = x.org_id AND f.forked_run = x.run) \
     AND NOT EXISTS (SELECT FROM task_execution t WHERE t.org_id = x.org_id AND t.run = x.run AND t.ended_at IS NULL) \
     ORDER BY x.ended_at LIMIT $2 FOR UPDATE OF x SKIP LOCKED"
);

/// Deletes the rows of some runs from a table.
macro_rules! delete {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " t USING UNNEST($1::uuid[], $2::bigint[]) AS k(org_id, run) WHERE t.org_id = k.org_id AND t.run = k.run"
        )
    };
}

/// Removes runs that ended at least `keep` ago and that no other needs.
pub(super) fn remove_ended(tx: &Tx, keep: Duration) -> Done<usize> {
    let runs = tx.all(ENDED, row![tx.now.0.saturating_sub(micros(keep)), SHARE], Run::read)?;
    let keys: Vec<Key> = runs.iter().map(|run| run.home.key).collect();
    if keys.is_empty() {
        return Ok(0);
    }
    for sql in [
        delete!("agent_op"),
        delete!("agent_entry"),
        delete!("task_execution"),
        delete!("agent_checkpoint"),
        delete!("agent_signal"),
        delete!("commit_request"),
        delete!("event"),
        delete!("payload_reference"),
        delete!("resume_request"),
        delete!("ledger"),
        delete!("agent_execution"),
    ] {
        let (orgs, runs) = split(&keys);
        tx.execute(sql, row![orgs, runs])?;
    }
    for (org, told) in removals(keys.iter().map(|key| key.org)) {
        audit(tx, org, RETENTION.0, RETENTION.1, &told)?;
    }
    Ok(keys.len())
}
