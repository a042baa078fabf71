//! Work whose kind no live worker serves: who asks is told, and the run has one event for each wait.

use super::claims::Serves;
use super::fault::Done;
use super::run::Run;
use super::task::TaskRow;
use super::tx::{Log, Tx, all};
use super::values::{SHIFT, blob, id, json as json_column, micros};
use crate::clock::Timestamp;
use crate::id::OrgId;
use crate::model::{EventKind, QueueLoad, Status};
use crate::storage::NO_WORKER_AFTER;
use rusqlite::{Connection, params};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// At most so many waits of a kind are told of in one pass.
const SHARE: i64 = 512;

/// What waits, and what workers hold: kind, queue and how many.
const QUEUED: [&str; 3] = [
    "SELECT kind, queue, count(*) FROM agent_execution WHERE ready = 1 AND org_id = ?1 AND ?2 > 0 GROUP BY kind, queue",
    "SELECT kind, queue, count(*) FROM agent_execution WHERE due_at <= ?2 AND org_id = ?1 AND status = 0 AND ready = 0 \
     AND begins_at <= ?2 GROUP BY kind, queue",
    "SELECT t.kind, t.queue, count(*) FROM task_execution t JOIN agent_execution x ON x.run = t.place >> 31 \
     WHERE t.status = 0 AND t.org_id = ?1 AND t.visible_at <= ?2 AND x.status < 5 GROUP BY t.kind, t.queue",
];
const RUNNING: [&str; 2] = [
    "SELECT kind, queue, count(*) FROM agent_execution WHERE worker IS NOT NULL AND org_id = ?1 AND ?2 > 0 \
     GROUP BY kind, queue",
    "SELECT kind, queue, count(*) FROM task_execution WHERE lease_expires IS NOT NULL AND org_id = ?1 AND ?2 > 0 \
     GROUP BY kind, queue",
];

/// What each queue has of each kind.
pub(super) fn queues(conn: &Connection, org: OrgId, now: Timestamp) -> Done<Vec<QueueLoad>> {
    let served = served(conn, now)?;
    let polled = served.iter().filter(|kind| kind.0 == org);
    let mut loads: BTreeMap<(String, String), (u64, u64)> =
        polled.map(|(_, kind, queue)| ((kind.clone(), queue.clone()), (0, 0))).collect();
    for sql in QUEUED.into_iter().chain(RUNNING) {
        let rows = all(conn, sql, params![blob(&org.0), now.0], |row| {
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

/// What live workers serve: org, kind, queue.
fn served(conn: &Connection, now: Timestamp) -> Done<BTreeSet<(OrgId, String, String)>> {
    let alive = all(conn, "SELECT org_id, kinds FROM worker WHERE alive_until > ?1", [now.0], |row| {
        Ok((OrgId(id(row, 0)?), json_column::<Serves>(row, 1)?))
    })?;
    let served = alive.into_iter().flat_map(|(org, serves)| serves.into_iter().map(move |kind| (org, kind)));
    Ok(served.map(|(org, (kind, queue))| (org, kind, queue)).collect())
}

/// What has waited too long and was not told of it.
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

/// Looks for work that has waited too long for a worker of its kind. Kinds that are served cost one look each.
pub(super) fn waits(conn: &Connection, now: Timestamp) -> Done<Waits> {
    let served = served(conn, now)?;
    let since = now.0.saturating_sub(micros(NO_WORKER_AFTER));
    let of_unserved = |kinds: &str, sql: &str| -> Done<Vec<i64>> {
        let kinds = all(conn, kinds, [], |row| Ok((OrgId(id(row, 0)?), row.get(1)?, row.get(2)?)))?;
        let mut found = Vec::new();
        for work in kinds.into_iter().filter(|work: &(OrgId, String, String)| !served.contains(work)) {
            let (org, kind, queue) = work;
            found.extend(all(conn, sql, params![blob(&org.0), kind, queue, since, SHARE], |row| row.get::<_, i64>(0))?);
        }
        Ok(found)
    };
    let runs = of_unserved(
        "SELECT org_id, kind, queue FROM agent_execution WHERE ready = 1 GROUP BY org_id, queue, kind",
        "SELECT x.run FROM agent_execution x WHERE x.ready = 1 AND x.org_id = ?1 AND x.kind = ?2 AND x.queue = ?3 \
         AND x.status = 0 AND ifnull(x.no_worker, -1) <> x.epoch AND ifnull(x.begins_at, 0) <= ?4 AND \
         (SELECT at FROM event WHERE key BETWEEN x.run << 31 AND x.run << 31 | 2147483647 AND kind IN (1, 4, 25, 26, 27) \
         ORDER BY key DESC LIMIT 1) <= ?4 LIMIT ?5",
    )?;
    let tasks = of_unserved(
        "SELECT org_id, kind, queue FROM task_execution WHERE status = 0 AND org_id IS NOT NULL \
         GROUP BY org_id, queue, kind",
        "SELECT t.place FROM task_execution t JOIN agent_execution x ON x.run = t.place >> 31 \
         WHERE t.status = 0 AND t.org_id = ?1 AND t.kind = ?2 AND t.queue = ?3 AND t.visible_at <= ?4 AND x.status < 5 \
         AND ifnull(t.no_worker, -1) <> t.visible_at ORDER BY t.place LIMIT ?5",
    )?;
    Ok(Waits { runs, tasks })
}

/// Tells runs whose work has waited too long, once for each wait.
pub(super) fn tell(tx: &Tx) -> Done<()> {
    let waits = waits(tx.conn, tx.now)?;
    for run in waits.runs {
        let Some(run) = Run::at(tx.conn, run)? else { continue };
        let (kind, queue): (String, String) = tx
            .first("SELECT kind, queue FROM agent_execution WHERE run = ?1", [run.home.run], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .unwrap_or_default();
        Log::open(tx, &run)?.event(EventKind::NoWorker, &json!({ "kind": kind, "queue": queue }))?;
        tx.execute("UPDATE agent_execution SET no_worker = epoch WHERE run = ?1", [run.home.run])?;
    }
    for place in waits.tasks {
        let Some(row) = TaskRow::at(tx.conn, place)? else { continue };
        let Some(mut run) = Run::at(tx.conn, place >> SHIFT)? else { continue };
        let mut log = Log::open(tx, &run)?;
        row.emit(&run, &mut log, EventKind::NoWorker, json!({ "queue": row.task.new.queue }))?;
        tx.execute("UPDATE task_execution SET no_worker = visible_at WHERE place = ?1", [place])?;
        // Whoever runs the agent brings the kinds of its inline tasks along.
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
