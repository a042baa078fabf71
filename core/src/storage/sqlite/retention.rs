//! Removes runs that ended long ago, with all their rows. Their payloads are collected later, when nobody refers to
//! them any more.

use super::fault::{Done, Fault};
use super::tx::Tx;
use super::values::{blob, id, micros, span};
use crate::id::{ExecutionId, OrgId};
use crate::storage::directory::{RETENTION, check_removable, removals};
use crate::storage::sql::Runs;
use crate::storage::sql::directory::audit;
use rusqlite::params;
use std::time::Duration;

/// The most runs that one transaction removes.
const SHARE: i64 = 256;

/// Removes runs that ended at least `keep` ago. Runs that have forks, children or open tasks stay, and those of whose
/// conversation a parent that has not ended sees a thread.
pub(super) fn remove_ended(tx: &Tx, keep: Duration) -> Done<usize> {
    let ended = tx.all(
        "SELECT x.run, x.org_id FROM agent_execution x WHERE x.ended_at <= ?1 \
         AND NOT EXISTS (SELECT 1 FROM agent_execution f WHERE f.forked_run = x.run) \
         AND NOT EXISTS (SELECT 1 FROM agent_execution c WHERE c.parent_id = x.id AND c.org_id = x.org_id) \
         AND NOT (x.shared_context LIKE '{\"mode\":\"conversation\"%' AND EXISTS (SELECT 1 FROM agent_execution p \
         WHERE p.id = x.parent_id AND p.org_id = x.org_id AND p.ended_at IS NULL)) \
         AND NOT EXISTS (SELECT 1 FROM task_execution t WHERE t.ended_at IS NULL \
         AND t.place BETWEEN x.run << 31 AND x.run << 31 | 2147483647) ORDER BY x.ended_at LIMIT ?2",
        [tx.now.0.saturating_sub(micros(keep)), SHARE],
        |row| Ok((row.get::<_, i64>(0)?, OrgId(id(row, 1)?))),
    )?;
    for (run, _) in &ended {
        remove(tx, *run)?;
    }
    for (org, told) in removals(ended.iter().map(|(_, org)| *org)) {
        audit(tx, org, RETENTION.0, RETENTION.1, &told)?;
    }
    Ok(ended.len())
}

/// Removes a run. Refused if it has not ended, or has forks, children or open tasks.
pub(super) fn remove_one(tx: &Tx, org: OrgId, id: ExecutionId) -> Done<()> {
    let run = tx.find_run(org, id)?;
    let (first, last) = span(run.home.run);
    let is_there = |sql, given: [i64; 2]| Ok::<_, Fault>(!tx.all(sql, given, |row| row.get::<_, i64>(0))?.is_empty());
    let forked =
        is_there("SELECT run FROM agent_execution WHERE forked_run = ?1 AND ?2 > 0 LIMIT 1", [run.home.run, 1])?;
    let parent = "SELECT 1 FROM agent_execution WHERE parent_id = ?1 AND org_id = ?2 LIMIT 1";
    let parent = tx.first(parent, [blob(&id.0), blob(&org.0)], |_| Ok(()))?.is_some();
    let open = is_there(
        "SELECT place FROM task_execution WHERE place BETWEEN ?1 AND ?2 AND ended_at IS NULL LIMIT 1",
        [first, last],
    )?;
    check_removable(id, run.status, forked, parent, open)?;
    remove(tx, run.home.run)
}

/// Removes some runs of an organization that is being removed, and returns how many.
pub(super) fn remove_some(tx: &Tx, org: OrgId) -> Done<usize> {
    let sql = "SELECT run FROM agent_execution WHERE org_id = ?1 ORDER BY run LIMIT ?2";
    let runs = tx.all(sql, params![blob(&org.0), SHARE], |row| row.get::<_, i64>(0))?;
    for run in &runs {
        remove(tx, *run)?;
    }
    Ok(runs.len())
}

fn remove(tx: &Tx, run: i64) -> Done<()> {
    let (first, last) = span(run);
    for sql in [
        "DELETE FROM agent_op WHERE place BETWEEN ?1 AND ?2",
        "DELETE FROM agent_entry WHERE place BETWEEN ?1 AND ?2",
        "DELETE FROM task_execution WHERE place BETWEEN ?1 AND ?2",
        "DELETE FROM agent_checkpoint WHERE key BETWEEN ?1 AND ?2",
        "DELETE FROM agent_signal WHERE key BETWEEN ?1 AND ?2",
        "DELETE FROM signal_return WHERE key BETWEEN ?1 AND ?2",
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
    Ok(())
}
