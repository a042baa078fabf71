//! Work whose kind no live worker serves. Callers can ask for it, and a run that waits too long gets one event for each
//! wait.

use super::claims::Serves;
use super::fault::Done;
use super::locks;
use super::run::Run;
use super::sets::{Set, row};
use super::tx::{Log, Tx};
use super::values::{Place, Row, json as json_column, micros};
use crate::clock::Timestamp;
use crate::id::{ExecutionId, OrgId, Slot};
use crate::model::{EventKind, QueueLoad, Status};
use crate::storage::NO_WORKER_AFTER;
use crate::storage::sql::Tasks;
use serde_json::json;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most waits of a kind for which one pass writes an event.
const SHARE: i64 = 512;

const READY: &str =
    "SELECT kind, queue, count(*) FROM agent_execution WHERE ready AND org_id = $1 GROUP BY kind, queue";
const DELAYED: &str = "SELECT kind, queue, count(*) FROM agent_execution WHERE due_at <= $2 AND org_id = $1 \
                       AND status = 0 AND NOT ready AND begins_at <= $2 GROUP BY kind, queue";
const TASKS: &str = "SELECT t.kind, t.queue, count(*) FROM task_execution t \
                     JOIN agent_execution x ON x.org_id = t.org_id AND x.run = t.run \
                     WHERE t.status = 0 AND t.org_id = $1 AND t.visible_at <= $2 AND x.status < 5 \
                     GROUP BY t.kind, t.queue";
const HELD_RUNS: &str = "SELECT kind, queue, count(*) FROM agent_execution WHERE worker IS NOT NULL AND org_id = $1 \
                         GROUP BY kind, queue";
const HELD_TASKS: &str = "SELECT kind, queue, count(*) FROM task_execution WHERE lease_expires IS NOT NULL \
                          AND org_id = $1 AND placement > 0 GROUP BY kind, queue";

/// How much work of each kind each queue has.
pub(super) fn queues(tx: &Tx, org: OrgId, now: Timestamp) -> Done<Vec<QueueLoad>> {
    let served = served(tx, now)?;
    let polled = served.iter().filter(|kind| kind.0 == org);
    let mut loads: BTreeMap<(String, String), (u64, u64)> =
        polled.map(|(_, kind, queue)| ((kind.clone(), queue.clone()), (0, 0))).collect();
    let (own, due) = (row![org.0], row![org.0, now]);
    let asked =
        [(READY, own.clone()), (DELAYED, due.clone()), (TASKS, due), (HELD_RUNS, own.clone()), (HELD_TASKS, own)];
    for (found, (sql, _)) in tx.ask_all(&asked)?.iter().zip(&asked) {
        for row in found {
            let (queued, running) = loads.entry((row.get(0)?, row.get(1)?)).or_default();
            *if [HELD_RUNS, HELD_TASKS].contains(sql) { running } else { queued } += row.get::<u64>(2)?;
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
    let sql = "SELECT org_id, kinds FROM worker WHERE alive_until > $1";
    let alive = tx.all(sql, row![now], |row| Ok((OrgId(row.get(0)?), json_column::<Serves>(row, 1)?)))?;
    let served = alive.into_iter().flat_map(|(org, serves)| serves.into_iter().map(move |kind| (org, kind)));
    Ok(served.map(|(org, (kind, queue))| (org, kind, queue)).collect())
}

/// The kinds and queues in an index. Each costs one index seek, however many rows it has.
macro_rules! kinds {
    ($table:literal, $condition:literal) => {
        concat!(
            "WITH RECURSIVE k AS ((SELECT org_id, queue, kind FROM ",
            $table,
            " WHERE ",
            $condition,
            " ORDER BY org_id, queue, kind LIMIT 1) UNION ALL SELECT n.* FROM k CROSS JOIN LATERAL \
             (SELECT org_id, queue, kind FROM ",
            $table,
            " WHERE ",
            $condition,
            " AND (org_id, queue, kind) > (k.org_id, k.queue, k.kind) ORDER BY org_id, queue, kind LIMIT 1) n) \
             SELECT org_id, kind, queue FROM k"
        )
    };
}

const KINDS_OF_RUNS: &str = kinds!("agent_execution", "ready");
const KINDS_OF_TASKS: &str = kinds!("task_execution", "status = 0");

// Both read the beginning of an index of work that has no event for its wait yet. So a backlog that has its events
// costs nothing more, and one that has none gets them a share at a time. A run that has not waited long enough is
// looked at again with the next share.
const LONE_RUNS: &str = "SELECT x.org_id, x.id FROM (SELECT org_id, id, run, begins_at FROM agent_execution \
     WHERE ready AND org_id = $1 AND kind = $2 AND queue = $3 AND status = 0 AND no_worker IS DISTINCT FROM epoch \
     ORDER BY run LIMIT $5) x WHERE coalesce(x.begins_at, 0) <= $4 AND \
     (SELECT at FROM event WHERE org_id = x.org_id AND run = x.run AND kind IN (1, 4, 25, 26, 27) \
     ORDER BY number DESC LIMIT 1) <= $4 ORDER BY x.run";
const LONE_TASKS: &str = "SELECT t.org_id, x.id, t.segment, t.sequence FROM (SELECT org_id, run, segment, sequence \
     FROM task_execution WHERE status = 0 AND org_id = $1 AND kind = $2 AND queue = $3 AND visible_at <= $4 \
     AND no_worker IS DISTINCT FROM visible_at ORDER BY visible_at LIMIT $5) t \
     JOIN agent_execution x ON x.org_id = t.org_id AND x.run = t.run \
     WHERE x.status < 5 ORDER BY t.run, t.segment, t.sequence";

/// Work that has waited too long and has no event for it yet.
#[derive(Debug, Default)]
pub(super) struct Waits {
    runs: Vec<(OrgId, ExecutionId)>,
    tasks: Vec<((OrgId, ExecutionId), Slot)>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.tasks.is_empty()
    }
}

/// Looks for work that has waited too long for a worker of its kind. A kind that is served costs one index seek.
pub(super) fn waits(tx: &Tx, now: Timestamp) -> Done<Waits> {
    let kinds = tx.ask_all(&[(KINDS_OF_RUNS, row![]), (KINDS_OF_TASKS, row![])])?;
    if kinds.iter().all(Vec::is_empty) {
        return Ok(Waits::default());
    }
    let served = served(tx, now)?;
    let since = now.0.saturating_sub(micros(NO_WORKER_AFTER));
    let run_of = |row: &Row| Ok::<_, super::fault::Fault>((OrgId(row.get(0)?), ExecutionId(row.get(1)?)));
    let mut waits = Waits::default();
    for (kinds, sql) in kinds.iter().zip([LONE_RUNS, LONE_TASKS]) {
        for kind in kinds {
            let (org, kind, queue): (_, String, String) = (OrgId(kind.get(0)?), kind.get(1)?, kind.get(2)?);
            if served.contains(&(org, kind.clone(), queue.clone())) {
                continue;
            }
            for row in tx.ask(sql, row![org.0, kind, queue, since, SHARE])? {
                match sql == LONE_RUNS {
                    true => waits.runs.push(run_of(&row)?),
                    false => waits.tasks.push((run_of(&row)?, Slot { segment: row.get(2)?, sequence: row.get(3)? })),
                }
            }
        }
    }
    Ok(waits)
}

static TOLD_RUN: Set = Set::update("agent_execution", 2, "org_id uuid, run bigint, no_worker bigint");
static TOLD_TASK: Set =
    Set::update("task_execution", 4, "org_id uuid, run bigint, segment int, sequence int, no_worker bigint");

/// Writes an event for work that has waited too long, once for each wait.
pub(super) fn tell(tx: &Tx) -> Done<()> {
    let found = waits(tx, tx.now)?;
    let targets: BTreeSet<_> = found.runs.iter().chain(found.tasks.iter().map(|(run, _)| run)).copied().collect();
    locks::lock(tx, &targets.into_iter().collect::<Vec<_>>())?;
    // Some of the work may have been claimed before the locks were granted. It is left out.
    let waits = waits(tx, tx.now)?;
    let mut logs: HashMap<(OrgId, ExecutionId), (Run, Log<'_, '_>)> = HashMap::new();
    let both = waits.runs.iter().chain(waits.tasks.iter().map(|(run, _)| run));
    for &(org, id) in both {
        if let Entry::Vacant(free) = logs.entry((org, id))
            && let Some(run) = tx.locked.borrow_mut().take(org, id)
        {
            let log = Log::open(tx, &run)?;
            free.insert((run, log));
        }
    }
    for target in waits.runs {
        let Some((run, log)) = logs.get_mut(&target) else { continue };
        let (kind, queue): (String, String) = tx
            .first(
                "SELECT kind, queue FROM agent_execution WHERE org_id = $1 AND run = $2",
                row![run.home.key.org.0, run.home.key.run],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?
            .unwrap_or_default();
        log.event(EventKind::NoWorker, &json!({ "kind": kind, "queue": queue }))?;
        tx.put(&TOLD_RUN, row![run.home.key.org.0, run.home.key.run, run.epoch]);
    }
    for (target, slot) in waits.tasks {
        let Some((run, log)) = logs.get_mut(&target) else { continue };
        let Some(row) = tx.task_at(Place { key: run.home.key, slot })? else { continue };
        row.emit(run, log, EventKind::NoWorker, json!({ "queue": row.task.new.queue }))?;
        tx.put(
            &TOLD_TASK,
            row![run.home.key.org.0, run.home.key.run, slot.segment, slot.sequence, row.task.visible_at],
        );
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
