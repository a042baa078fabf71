//! Work whose kind no live worker serves. Callers can ask for it, and a run that waits too long gets one event for each
//! wait.

use super::claims::Serves;
use super::fault::Done;
use super::run::Run;
use super::tx::{Log, Tx};
use super::values::{SHIFT, blob, id, json as json_column, micros};
use crate::clock::Timestamp;
use crate::id::OrgId;
use crate::model::{EventKind, QueueLoad, Status};
use crate::storage::NO_WORKER_AFTER;
use crate::storage::sql::Tasks;
use rusqlite::params;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The most waits of a kind for which one pass writes an event.
const SHARE: i64 = 512;

/// Counts of waiting work by kind and queue.
const QUEUED: [&str; 3] = [
    "SELECT kind, queue, count(*) FROM agent_execution WHERE ready = 1 AND org_id = ?1 AND ?2 > 0 GROUP BY kind, queue",
    "SELECT kind, queue, count(*) FROM agent_execution WHERE due_at <= ?2 AND org_id = ?1 AND status = 0 AND ready = 0 \
     AND begins_at <= ?2 GROUP BY kind, queue",
    "SELECT t.kind, t.queue, count(*) FROM task_execution t JOIN agent_execution x ON x.run = t.place >> 31 \
     WHERE t.status = 0 AND t.org_id = ?1 AND t.visible_at <= ?2 AND x.status < 5 GROUP BY t.kind, t.queue",
];
/// Counts of work that workers hold, by kind and queue.
const RUNNING: [&str; 2] = [
    "SELECT kind, queue, count(*) FROM agent_execution WHERE worker IS NOT NULL AND org_id = ?1 AND ?2 > 0 \
     GROUP BY kind, queue",
    "SELECT kind, queue, count(*) FROM task_execution WHERE lease_expires IS NOT NULL AND org_id = ?1 AND ?2 > 0 \
     GROUP BY kind, queue",
];

/// How much work of each kind each queue has.
pub(super) fn queues(tx: &Tx, org: OrgId, now: Timestamp) -> Done<Vec<QueueLoad>> {
    let served = served(tx, now)?;
    let polled = served.iter().filter(|kind| kind.0 == org);
    let mut loads: BTreeMap<(String, String), (u64, u64)> =
        polled.map(|(_, kind, queue)| ((kind.clone(), queue.clone()), (0, 0))).collect();
    for sql in QUEUED.into_iter().chain(RUNNING) {
        let rows = tx.all(sql, params![blob(&org.0), now.0], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, u64>(2)?))
        })?;
        for (kind, queue, count) in rows {
            let (queued, running) = loads.entry((kind, queue)).or_default();
            *if RUNNING.contains(&sql) { running } else { queued } += count;
        }
    }
    let load = |((kind, queue), (queued, running)): ((String, String), (u64, u64))| {
        let served = served.contains(&(org, kind.clone(), queue.clone()));
        QueueLoad { kind, queue, queued, running, served }
    };
    Ok(loads.into_iter().map(load).collect())
}

/// The org, kind and queue of all that live workers serve.
fn served(tx: &Tx, now: Timestamp) -> Done<BTreeSet<(OrgId, String, String)>> {
    let alive = tx.all("SELECT org_id, kinds FROM worker WHERE alive_until > ?1", [now.0], |row| {
        Ok((OrgId(id(row, 0)?), json_column::<Serves>(row, 1)?))
    })?;
    let served = alive.into_iter().flat_map(|(org, serves)| serves.into_iter().map(move |kind| (org, kind)));
    Ok(served.map(|(org, (kind, queue))| (org, kind, queue)).collect())
}

/// The next kind after a given one in an index.
const KINDS_OF_RUNS: &str = "SELECT org_id, queue, kind FROM agent_execution WHERE ready = 1 \
     AND (org_id, queue, kind) > (?1, ?2, ?3) ORDER BY org_id, queue, kind LIMIT 1";
const KINDS_OF_TASKS: &str = "SELECT org_id, queue, kind FROM task_execution WHERE status = 0 \
     AND (org_id, queue, kind) > (?1, ?2, ?3) ORDER BY org_id, queue, kind LIMIT 1";

// Both read the beginning of an index of work that has no event for its wait yet. So a backlog that has its events
// costs nothing more, and one that has none gets them a share at a time. A run that has not waited long enough is
// looked at again with the next share.
const LONE_RUNS: &str = "SELECT x.run FROM (SELECT run, begins_at FROM agent_execution INDEXED BY agent_execution_lone \
     WHERE ready = 1 AND org_id = ?1 AND kind = ?2 AND queue = ?3 AND status = 0 AND no_worker IS NOT epoch \
     ORDER BY run LIMIT ?5) x WHERE ifnull(x.begins_at, 0) <= ?4 AND \
     (SELECT at FROM event WHERE key BETWEEN x.run << 31 AND x.run << 31 | 2147483647 AND kind IN (1, 4, 25, 26, 27) \
     ORDER BY key DESC LIMIT 1) <= ?4";
const LONE_TASKS: &str = "SELECT t.place FROM (SELECT place FROM task_execution INDEXED BY task_execution_lone \
     WHERE status = 0 AND org_id = ?1 AND kind = ?2 AND queue = ?3 AND visible_at <= ?4 \
     AND no_worker IS NOT visible_at ORDER BY visible_at LIMIT ?5) t \
     JOIN agent_execution x ON x.run = t.place >> 31 WHERE x.status < 5 ORDER BY t.place";

/// Work that has waited too long and has no event for it yet.
#[derive(Debug, Default)]
pub(super) struct Waits {
    runs: Vec<i64>,
    tasks: Vec<i64>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.tasks.is_empty()
    }
}

/// Looks for work that has waited too long for a worker of its kind. A kind that is served costs one index seek.
pub(super) fn waits(tx: &Tx, now: Timestamp) -> Done<Waits> {
    let served = served(tx, now)?;
    let since = now.0.saturating_sub(micros(NO_WORKER_AFTER));
    let of_unserved = |next: &str, sql: &str| -> Done<Vec<i64>> {
        let mut found = Vec::new();
        // One index seek for each kind, however many rows it has.
        let mut last: Option<(OrgId, String, String)> = None;
        loop {
            let bound = last.as_ref().map(|(org, queue, kind)| (blob(&org.0), queue.as_str(), kind.as_str()));
            let (org, queue, kind) = bound.unwrap_or_default();
            let next = tx.first(next, params![org, queue, kind], |row| {
                Ok((OrgId(id(row, 0)?), row.get::<_, String>(1)?, row.get::<_, String>(2)?))
            })?;
            let Some((org, queue, kind)) = next else { break };
            if !served.contains(&(org, kind.clone(), queue.clone())) {
                let waiting = params![blob(&org.0), kind, queue, since, SHARE];
                found.extend(tx.all(sql, waiting, |row| row.get::<_, i64>(0))?);
            }
            last = Some((org, queue, kind));
        }
        Ok(found)
    };
    let (runs, tasks) = (of_unserved(KINDS_OF_RUNS, LONE_RUNS)?, of_unserved(KINDS_OF_TASKS, LONE_TASKS)?);
    Ok(Waits { runs, tasks })
}

/// Writes an event for work that has waited too long, once for each wait.
pub(super) fn tell(tx: &Tx) -> Done<()> {
    let waits = waits(tx, tx.now)?;
    for run in waits.runs {
        let Some(run) = Run::at(tx, run)? else { continue };
        let (kind, queue): (String, String) = tx
            .first("SELECT kind, queue FROM agent_execution WHERE run = ?1", [run.home.run], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .unwrap_or_default();
        Log::open(tx, &run)?.event(EventKind::NoWorker, &json!({ "kind": kind, "queue": queue }))?;
        tx.execute("UPDATE agent_execution SET no_worker = epoch WHERE run = ?1", [run.home.run])?;
    }
    for place in waits.tasks {
        let Some(row) = tx.task_at(place)? else { continue };
        let Some(mut run) = Run::at(tx, place >> SHIFT)? else { continue };
        let mut log = Log::open(tx, &run)?;
        row.emit(&run, &mut log, EventKind::NoWorker, json!({ "queue": row.task.new.queue }))?;
        tx.execute("UPDATE task_execution SET no_worker = visible_at WHERE place = ?1", [place])?;
        // A task that was scheduled inline and is on a queue now. Its kind is served by workers that run the agent, so
        // the run is woken: whoever claims it can run the task too.
        let awaited = run.status == Status::Waiting && run.wait().is_some_and(|wait| wait.tasks);
        if row.born_inline && awaited {
            run.wait = None;
            run.status = Status::Pending;
            log.event(EventKind::Woken, &json!({ "reason": "no_worker" }))?;
            run.save(tx)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sqlite::migrations::STEPS;

    /// However long the backlog, a look is served by indexes, in their order.
    #[test]
    fn a_look_reads_no_backlog() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        STEPS.iter().for_each(|step| conn.execute_batch(step).unwrap());
        for sql in [KINDS_OF_RUNS, KINDS_OF_TASKS, LONE_RUNS, LONE_TASKS] {
            let mut asked = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps: Vec<String> = asked.raw_query().mapped(|row| row.get(3)).map(Result::unwrap).collect();
            let tables = |step: &&String| step.contains("agent_execution") || step.contains("task_execution");
            assert!(steps.iter().any(|step| tables(&step)), "{sql}: {steps:?}");
            assert!(!steps.iter().any(|step| tables(&step) && step.starts_with("SCAN")), "{sql}: {steps:?}");
            let sorts = steps.iter().filter(|step| step.contains("TEMP B-TREE")).count();
            // What was found is put in order.
            assert_eq!(sorts, usize::from(sql == LONE_TASKS), "{sql}: {steps:?}");
        }
    }
}
