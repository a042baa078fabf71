//! Removes runs that ended long ago, with all their rows. Their payloads are collected later, when nobody refers to
//! them any more.

use super::claims::split;
use super::fault::{Done, Fault};
use super::run::{Run, run_columns};
use super::sets::row;
use super::tx::Tx;
use super::values::{Key, micros};
use crate::id::{ExecutionId, OrgId};
use crate::storage::directory::{RETENTION, check_removable, removals};
use crate::storage::sql::Runs;
use crate::storage::sql::directory::audit;
use std::time::Duration;

/// The most runs that one transaction removes.
const SHARE: i64 = 256;

// The children are looked up run by run: as an anti-join the planner may read all the children there are.
const ENDED: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM agent_execution x WHERE x.ended_at <= $1 \
     AND NOT EXISTS (SELECT FROM agent_execution f WHERE f.org_id = x.org_id AND f.forked_run = x.run) \
     AND (SELECT c.run FROM agent_execution c WHERE c.org_id = x.org_id AND c.parent_id = x.id LIMIT 1) IS NULL \
     AND NOT (x.shared_context LIKE '{\"mode\":\"conversation\"%' AND EXISTS (SELECT FROM agent_execution p \
     WHERE p.org_id = x.org_id AND p.id = x.parent_id AND p.ended_at IS NULL)) \
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

/// Removes runs that ended at least `keep` ago. Runs that have forks, children or open tasks stay, and those of whose
/// conversation a parent that has not ended sees a thread.
pub(super) fn remove_ended(tx: &Tx, keep: Duration) -> Done<usize> {
    let runs = tx.all(ENDED, row![tx.now.0.saturating_sub(micros(keep)), SHARE], Run::read)?;
    let keys: Vec<Key> = runs.iter().map(|run| run.home.key).collect();
    remove(tx, &keys)?;
    for (org, told) in removals(keys.iter().map(|key| key.org)) {
        audit(tx, org, RETENTION.0, RETENTION.1, &told)?;
    }
    Ok(keys.len())
}

/// Removes a run. Refused if it has not ended, or has forks, children or open tasks.
pub(super) fn remove_one(tx: &Tx, org: OrgId, id: ExecutionId) -> Done<()> {
    let run = tx.find_run(org, id)?;
    let key = run.home.key;
    let is_there = |sql| Ok::<_, Fault>(tx.first(sql, row![org.0, key.run], |row| row.get::<bool>(0))?.is_some());
    let forked = is_there("SELECT true FROM agent_execution WHERE org_id = $1 AND forked_run = $2 LIMIT 1")?;
    let parent = "SELECT true FROM agent_execution WHERE org_id = $1 AND parent_id = $2 LIMIT 1";
    let parent = tx.first(parent, row![org.0, id.0], |row| row.get::<bool>(0))?.is_some();
    let open = is_there("SELECT true FROM task_execution WHERE org_id = $1 AND run = $2 AND ended_at IS NULL LIMIT 1")?;
    check_removable(id, run.status, forked, parent, open)?;
    remove(tx, &[key])
}

/// Removes some runs of an organization that is being removed, and returns how many: those first that refer to others.
pub(super) fn remove_some(tx: &Tx, org: OrgId) -> Done<usize> {
    let sql = "SELECT org_id, run FROM agent_execution WHERE org_id = $1 ORDER BY run DESC LIMIT $2 FOR UPDATE";
    let keys = tx.all(sql, row![org.0, SHARE], |row| Ok(Key { org: OrgId(row.get(0)?), run: row.get(1)? }))?;
    remove(tx, &keys)?;
    Ok(keys.len())
}

fn remove(tx: &Tx, keys: &[Key]) -> Done<()> {
    if keys.is_empty() {
        return Ok(());
    }
    for sql in [
        delete!("agent_op"),
        delete!("agent_entry"),
        delete!("task_execution"),
        delete!("agent_checkpoint"),
        delete!("signal_return"),
        delete!("agent_signal"),
        delete!("commit_request"),
        delete!("event"),
        delete!("payload_reference"),
        delete!("resume_request"),
        delete!("ledger"),
        delete!("agent_execution"),
    ] {
        let (orgs, runs) = split(keys);
        tx.execute(sql, row![orgs, runs])?;
    }
    Ok(())
}
