//! Workers and what they hold: registration, claims, heartbeats, reports of tasks, and work that is given back.

use super::fault::Done;
use super::lock::{Locks, host};
use super::quarantine::set_aside;
use super::queues;
use super::run::Run;
use super::task::{TaskRow, select_task};
use super::tx::{Log, Tx};
use super::values::{blob, id, text_of};
use crate::clock::Timestamp;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{Claim, ClaimedTask, EventKind, Lease, Placement, Status, TaskReport, TaskStatus};
use crate::storage::sql::quarantine::Aside;
use crate::storage::sql::queues::{passed, room};
use crate::storage::sql::request::forget_requests;
use crate::storage::sql::workers::{self, superseded};
use crate::storage::sql::{Dialect, Events, Runs, Tasks, Workers};
use crate::storage::unfenced::Work;
use crate::storage::{ClaimRequest, Heartbeat, HeartbeatAnswer, Only, WorkerInfo, fair_claims};
use crate::streaming::OpKey;
use rusqlite::params;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a worker counts as alive after it has registered.
const REGISTERED_TTL: Duration = Duration::from_secs(30);

/// Makes a worker known.
pub(super) fn register(tx: &Tx, info: &WorkerInfo) -> Done<()> {
    let alive_until = tx.now.after(REGISTERED_TTL).0;
    tx.execute(
        "INSERT INTO worker (org_id, id, name, queues, host, lock_at, seen_at, alive_until) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
         ON CONFLICT (org_id, id) DO UPDATE SET name = excluded.name, queues = excluded.queues, host = excluded.host, \
         lock_at = excluded.lock_at, seen_at = excluded.seen_at, alive_until = max(alive_until, excluded.alive_until)",
        params![
            blob(&info.org.0),
            blob(&info.id.0),
            info.name,
            text_of(&info.queues)?,
            // Only for workers on this machine does a lock tell whether they live. The others have no host here.
            if info.elsewhere { String::new() } else { host() },
            Locks::byte_of(info.org, info.id),
            tx.now.0,
            alive_until,
        ],
    )?;
    Ok(())
}

/// The pairs of kind and queue that a worker has claimed work of.
pub(super) type Serves = BTreeSet<(String, String)>;

/// The stored row of the worker that claims: until when it counts as alive, and what it serves.
fn known(tx: &Tx, claim: &ClaimRequest) -> Done<Option<(i64, Serves)>> {
    let sql = "SELECT alive_until, kinds FROM worker WHERE org_id = ?1 AND id = ?2";
    let of = [blob(&claim.org.0), blob(&claim.worker.0)];
    tx.first(sql, of, |row| Ok((row.get(0)?, super::values::json(row, 1)?)))
}

/// Notes that the worker of a claim lives, and what it serves. Writes only if it serves something new, or if an eighth
/// of the lease time has passed: most claims find nothing and should cost no write.
fn saw(tx: &Tx, claim: &ClaimRequest) -> Done<()> {
    let until = tx.now.after(claim.ttl).0;
    let (alive, mut served) = known(tx, claim)?.unwrap_or((i64::MIN, Serves::new()));
    let before = served.len();
    served.extend(claim.kinds.iter().map(|kind| (kind.clone(), claim.queue.clone())));
    let fresh = until.saturating_sub(alive) < super::values::micros(claim.ttl) / 8;
    if served.len() == before && fresh {
        return Ok(());
    }
    tx.execute(
        "INSERT INTO worker (org_id, id, name, queues, kinds, host, lock_at, seen_at, alive_until) \
         VALUES (?1, ?2, '', '[]', ?3, '', 0, ?4, ?5) ON CONFLICT (org_id, id) DO UPDATE SET kinds = excluded.kinds, \
         seen_at = excluded.seen_at, alive_until = max(alive_until, excluded.alive_until)",
        params![blob(&claim.org.0), blob(&claim.worker.0), text_of(&served)?, tx.now.0, until],
    )?;
    Ok(())
}

/// Whether a claim would do anything. It is asked on a reading connection before the claim, so that idle polls take no
/// write lock.
pub(super) fn anything(tx: &Tx, claim: &ClaimRequest, now: Timestamp, tasks: bool) -> Done<bool> {
    let Some((alive, served)) = known(tx, claim)? else { return Ok(true) };
    let aged = now.after(claim.ttl).0.saturating_sub(alive) >= super::values::micros(claim.ttl) / 8;
    if aged || claim.kinds.iter().any(|kind| !served.contains(&(kind.clone(), claim.queue.clone()))) {
        return Ok(true);
    }
    let delayed = "SELECT 1 FROM agent_execution WHERE due_at <= ?1 AND status = 0 AND ready = 0 LIMIT 1";
    if !tasks && tx.first(delayed, [now.0], |_| Ok(()))?.is_some() {
        return Ok(true);
    }
    if claim.limit == 0 {
        let preferred = "SELECT 1 FROM agent_execution WHERE org_id = ?1 AND last_worker = ?2 AND prefer_until IS NOT NULL \
                         LIMIT 1";
        let of = [blob(&claim.org.0), blob(&claim.worker.0)];
        return Ok(!tasks && tx.first(preferred, of, |_| Ok(()))?.is_some());
    }
    let sql = if tasks {
        "SELECT 1 FROM task_execution WHERE status = 0 AND org_id = ?1 AND queue = ?2 AND kind = ?3 AND visible_at <= ?4 \
         AND ?5 IS NOT NULL"
    } else {
        "SELECT 1 FROM agent_execution x WHERE ready = 1 AND org_id = ?1 AND queue = ?2 AND kind = ?3 \
         AND (prefer_until IS NULL OR prefer_until <= ?4 OR last_worker = ?5 \
         OR NOT EXISTS (SELECT 1 FROM worker w WHERE w.org_id = x.org_id AND w.id = x.last_worker AND w.alive_until > ?4))"
    };
    for kind in &*claim.kinds {
        let worker = blob(&claim.worker.0);
        if tx.first(sql, params![blob(&claim.org.0), claim.queue, kind, now.0, worker], |_| Ok(()))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes runs claimable whose delayed start has come: saving a run computes that anew.
pub(super) fn begin_delayed(tx: &Tx) -> Done<()> {
    let due =
        tx.all("SELECT run FROM agent_execution WHERE due_at <= ?1 AND status = 0 AND ready = 0", [tx.now.0], |row| {
            row.get::<_, i64>(0)
        })?;
    for run in due {
        if let Some(run) = Run::at(tx, run)? {
            run.save(tx)?;
        }
    }
    Ok(())
}

/// Hands runnable runs to a worker.
pub(super) fn claim_agents(tx: &Tx, claim: &ClaimRequest) -> Done<Vec<Claim>> {
    saw(tx, claim)?;
    begin_delayed(tx)?;
    if claim.limit == 0 {
        give_up_preference(tx, claim.org, claim.worker)?;
        return Ok(Vec::new());
    }
    let gate = queues::gate(tx, claim)?;
    let free = match &gate {
        None => claim.limit,
        Some(gate) => room(tx, claim, gate)?,
    };
    let mut claims = Vec::new();
    // A query may return several runs of one concurrency key, of which only as many as the key allows are taken. The
    // loop fills the places of the others.
    loop {
        let before = claims.len();
        for run in claimable(tx, claim, free - before)? {
            if let Some(run) = Run::at(tx, run)? {
                claims.extend(take(tx, run, claim)?);
            }
        }
        if claims.len() == before || claims.len() == free {
            break;
        }
    }
    if let Some(gate) = gate {
        let more = claims.len() == free && free < claim.limit && !claimable(tx, claim, 1)?.is_empty();
        passed(tx, claim, gate, claims.len(), more)?;
    }
    Ok(claims)
}

/// Lets others claim at once the runs that a worker has parked and that were reserved for it for a moment.
pub(super) fn give_up_preference(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<()> {
    let sql = "UPDATE agent_execution SET prefer_until = NULL WHERE org_id = ?1 AND last_worker = ?2 \
               AND prefer_until IS NOT NULL";
    if tx.execute(sql, [blob(&org.0), blob(&worker.0)])? > 0 {
        tx.agents_ready();
    }
    Ok(())
}

/// The next runs that may be claimed, in the order of claims.
fn claimable(tx: &Tx, claim: &ClaimRequest, limit: usize) -> Done<Vec<i64>> {
    let only = claim.only.map(Only::run);
    let limit_each = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut found: Vec<(i32, usize, (i64, uuid::Uuid, i64))> = Vec::new();
    for (place, kind) in fair_claims::kinds(claim).into_iter().enumerate() {
        found.extend(tx.all(
            "SELECT priority, created_at, id, run FROM agent_execution x WHERE ready = 1 AND org_id = ?1 AND queue = ?2 \
             AND kind = ?3 AND (?5 IS NULL OR id = ?5 OR (?8 AND root_id = ?5)) AND (concurrency_key IS NULL OR status <> 0 OR (SELECT count(*) \
             FROM agent_execution y WHERE y.org_id = x.org_id AND y.concurrency_key = x.concurrency_key \
             AND y.status = 1) < max(coalesce(concurrency_limit, 1), 1)) AND (prefer_until IS NULL OR prefer_until <= ?7 OR last_worker = ?6 \
             OR NOT EXISTS (SELECT 1 FROM worker w WHERE w.org_id = x.org_id AND w.id = x.last_worker AND w.alive_until > ?7)) \
             ORDER BY priority DESC, created_at, id LIMIT ?4",
            params![
                blob(&claim.org.0),
                claim.queue,
                kind,
                limit_each,
                only.as_ref().map(|only| blob(&only.0)),
                blob(&claim.worker.0),
                tx.now.0,
                claim.only.is_some_and(Only::is_family),
            ],
            |row| Ok((row.get(0)?, place, (row.get(1)?, id(row, 2)?, row.get(3)?))),
        )?);
    }
    Ok(fair_claims::in_turn(found).take(limit).map(|(.., run)| run).collect())
}

/// Hands a run to a worker. None if its concurrency key is at its limit by now.
fn take(tx: &Tx, mut run: Run, claim: &ClaimRequest) -> Done<Option<Claim>> {
    // A CANCELLING run needs no place of its key: it tidies up, whatever else runs.
    if run.status == Status::Pending && !tx.take_slot(&mut run)? {
        return Ok(None);
    }
    let parked = run.last_worker == Some(claim.worker);
    run.hand_to(claim, tx.now);
    let known = forget_requests(tx, &mut run)?.filter(|_| parked);
    let mut log = Log::open(tx, &run)?;
    run.claim_number =
        log.event(EventKind::Resumed, &json!({ "epoch": run.epoch, "worker": claim.worker.to_string() }))?;
    run.save(tx)?;
    // If the facts cannot be read, the claim goes on without them. The worker then asks for them, and that fails for
    // this run alone.
    let news = known.and_then(|known| tx.facts(&run, known, log.high, Some(run.segment)).ok());
    Ok(Some(Claim {
        execution: tx.execution(run.home.run)?,
        lease: Lease { worker: claim.worker, epoch: run.epoch },
        high: log.high,
        news,
    }))
}

/// Hands visible tasks to a worker.
pub(super) fn claim_tasks(tx: &Tx, claim: &ClaimRequest) -> Done<Vec<ClaimedTask>> {
    saw(tx, claim)?;
    let limit = i64::try_from(claim.limit).unwrap_or(i64::MAX);
    let only = claim.only.map(Only::run);
    let mut found: Vec<(i64, i64, uuid::Uuid, i64)> = Vec::new();
    let kinds: BTreeSet<&String> = claim.kinds.iter().collect();
    for kind in kinds {
        found.extend(tx.all(
            "SELECT t.visible_at, t.created_at, t.id, t.place FROM task_execution t \
             JOIN agent_execution x ON x.run = t.place >> 31 \
             WHERE t.status = 0 AND t.org_id = ?1 AND t.queue = ?2 AND t.kind = ?3 AND t.visible_at <= ?4 \
             AND x.status < 5 AND (?6 IS NULL OR x.id = ?6 OR (?7 AND x.root_id = ?6)) \
             ORDER BY t.visible_at, t.created_at, t.id LIMIT ?5",
            params![
                blob(&claim.org.0),
                claim.queue,
                kind,
                tx.now.0,
                limit,
                only.as_ref().map(|only| blob(&only.0)),
                claim.only.is_some_and(Only::is_family),
            ],
            |row| Ok((row.get(0)?, row.get(1)?, id(row, 2)?, row.get(3)?)),
        )?);
    }
    found.sort_unstable();
    let mut claimed = Vec::new();
    for (.., place) in found.into_iter().take(claim.limit) {
        let Some(mut row) = tx.task_at(place)? else { continue };
        let Some(run) = Run::at(tx, place >> super::values::SHIFT)? else { continue };
        row.hand_to(claim, tx.now);
        let mut log = Log::open(tx, &run)?;
        let event = row.emit(&run, &mut log, EventKind::TaskStarted, json!({ "worker": claim.worker }))?;
        row.save(tx)?;
        claimed.push(ClaimedTask { reconcile: row.reconcile, event, task: row.task });
    }
    Ok(claimed)
}

/// Records the end of a claimed attempt. Returns its run and its op.
pub(super) fn report_task(tx: &Tx, report: &TaskReport) -> Done<(ExecutionId, OpKey)> {
    let row = TaskRow::find(tx, report.org, report.task)?.ok_or_else(|| superseded(report))?;
    let mut run = Run::at(tx, row.place >> super::values::SHIFT)?.ok_or_else(|| superseded(report))?;
    let op = workers::report_task(tx, &mut run, row, report)?;
    Ok((run.id, op))
}

/// Extends the leases of a worker, and tells what it has lost.
pub(super) fn heartbeat(tx: &Tx, beat: &Heartbeat) -> Done<HeartbeatAnswer> {
    let expires = tx.now.after(beat.ttl).0;
    tx.execute(
        "UPDATE worker SET alive_until = max(alive_until, ?3), seen_at = ?4 WHERE org_id = ?1 AND id = ?2",
        params![blob(&beat.org.0), blob(&beat.worker.0), expires, tx.now.0],
    )?;
    let mut answer = HeartbeatAnswer::default();
    for &(execution, epoch, known) in &beat.executions {
        let lease = Lease { worker: beat.worker, epoch };
        let run = match tx.find_run(beat.org, execution) {
            Ok(run) => Some(run).filter(|run| run.check_lease(lease).is_ok()),
            Err(super::fault::Fault::Domain(_)) => None,
            Err(fault) => return Err(fault),
        };
        let Some(mut run) = run else {
            answer.lost_executions.push(execution);
            continue;
        };
        run.lease_expires = Some(expires);
        run.save(tx)?;
        let high = tx.high(&run)?;
        // If the facts cannot be read, the worker is told to read them, and that fails for this run alone.
        if high > known && tx.facts(&run, known, high, None).map_or(true, |facts| !facts.is_empty()) {
            answer.stale_executions.push(execution);
        }
    }
    for &(task, attempt, signed) in &beat.tasks {
        let row = TaskRow::find(tx, beat.org, task)?.filter(|row| {
            row.task.status == TaskStatus::Running
                && row.task.attempt == attempt
                && row.task.worker == Some(beat.worker)
                && row.lease_expires.is_some()
        });
        let Some(mut row) = row else {
            answer.cancelled_tasks.push(task);
            continue;
        };
        row.lease_expires = Some(expires);
        if signed {
            row.sign_at = Some(tx.now.0);
        }
        if row.stop {
            answer.cancelled_tasks.push(task);
        }
        row.save(tx)?;
    }
    for (task, attempt, report) in &beat.progress {
        if let Some(row) = TaskRow::find(tx, beat.org, *task)?.filter(|row| row.task.is_running(*attempt)) {
            tx.execute("UPDATE task_execution SET progress = ?2 WHERE place = ?1", params![row.place, report])?;
        }
    }
    Ok(answer)
}

/// Removes a worker, and gives back all that it holds.
pub(super) fn unregister(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<()> {
    forget(tx, org, worker)?;
    for mut run in held_runs(tx, org, worker)? {
        let mut log = Log::open(tx, &run)?;
        run.give_back(&mut log)?;
        run.save(tx)?;
    }
    for row in held_tasks(tx, org, worker)? {
        lose_task(tx, row)?;
    }
    give_up_preference(tx, org, worker)?;
    lose_host_timers(tx, org, worker)
}

/// Deletes a worker's row.
pub(super) fn forget(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<()> {
    tx.execute("DELETE FROM worker WHERE org_id = ?1 AND id = ?2", [blob(&org.0), blob(&worker.0)])?;
    Ok(())
}

/// Makes runs claimable that wait for timers inside a worker's process: the process is gone, and its timers with it.
pub(super) fn lose_host_timers(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<()> {
    let timed = tx.all(
        concat!(
            "SELECT ",
            super::run::run_columns!(),
            " FROM agent_execution x WHERE x.host_timer = 1 AND x.org_id = ?1 AND x.last_worker = ?2 ORDER BY x.run"
        ),
        [blob(&org.0), blob(&worker.0)],
        Run::read,
    )?;
    for mut run in timed {
        let mut log = Log::open(tx, &run)?;
        run.lose_host_timer(&mut log)?;
        run.save(tx)?;
    }
    Ok(())
}

/// Ends the attempt of a worker that is gone: it is lost, and may be tried again.
pub(super) fn lose_task(tx: &Tx, mut row: TaskRow) -> Done<()> {
    let Some(mut run) = Run::at(tx, row.place >> super::values::SHIFT)? else { return Ok(()) };
    let mut log = Log::open(tx, &run)?;
    row.lose_attempt(&mut run, &mut log)?;
    run.save(tx)
}

/// Runs that a worker holds.
pub(super) fn held_runs(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<Vec<Run>> {
    tx.all(
        concat!(
            "SELECT ",
            super::run::run_columns!(),
            " FROM agent_execution x WHERE x.worker = ?1 AND x.org_id = ?2 ORDER BY x.run"
        ),
        [blob(&worker.0), blob(&org.0)],
        Run::read,
    )
}

/// The tasks of queues whose attempt a worker has under a lease.
pub(super) fn held_tasks(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<Vec<TaskRow>> {
    let rows = tx.all(
        concat!(
            select_task!(),
            "WHERE t.worker = ?1 AND t.lease_expires IS NOT NULL AND t.org_id = ?2 ORDER BY t.place"
        ),
        [blob(&worker.0), blob(&org.0)],
        TaskRow::read,
    )?;
    Ok(rows.into_iter().filter(|row| row.task.new.placement == Placement::Queue).collect())
}

impl Workers for Tx<'_> {
    /// Locks nothing: SQLite has one writer at a time.
    fn lock_held(&self, _: OrgId, _: WorkerId) -> Done<()> {
        Ok(())
    }

    fn held_runs(&self, org: OrgId, worker: WorkerId) -> Done<Vec<Run>> {
        held_runs(self, org, worker)
    }

    fn held_tasks(&self, org: OrgId, worker: WorkerId) -> Done<Vec<TaskRow>> {
        held_tasks(self, org, worker)
    }

    fn set_aside(&self) -> Done<Vec<Aside>> {
        set_aside(self)
    }

    fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work, now: Timestamp) -> Done<Vec<String>> {
        let sql = match of {
            Work::Agents => {
                "SELECT DISTINCT kind FROM agent_execution WHERE ready = 1 AND org_id = ?1 AND queue = ?2 AND ?3 > 0"
            }
            Work::Tasks => {
                "SELECT DISTINCT kind FROM task_execution WHERE status = 0 AND org_id = ?1 AND queue = ?2 \
                 AND visible_at <= ?3"
            }
        };
        self.all(sql, params![blob(&org.0), queue, now.0], |row| row.get(0))
    }
}
