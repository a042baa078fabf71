//! Workers and what they hold: registration, claims, heartbeats, reports of tasks, and work that is given back.
//!
//! A claim never waits for a lock: it passes over rows that others have locked. If it has passed over any, it announces
//! work once more, so that none is forgotten because somebody was just writing to its row.

use super::facts;
use super::fault::Done;
use super::locks;
use super::quarantine::set_aside;
use super::queues;
use super::run::{Run, run_columns, select_execution};
use super::sets::{Value, row};
use super::task::{TaskRow, select_task};
use super::tx::{Log, Tx};
use super::values::{Key, json, text_of};
use crate::clock::Timestamp;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{Claim, ClaimedTask, EventKind, Execution, Lease, Placement, Status, TaskReport, TaskStatus};
use crate::storage::sql::quarantine::Aside;
use crate::storage::sql::queues::{passed, room};
use crate::storage::sql::request::forget_requests;
use crate::storage::sql::workers::{self, superseded};
use crate::storage::sql::{Dialect, Events, Runs, Workers, if_there};
use crate::storage::unfenced::Work;
use crate::storage::{ClaimRequest, Heartbeat, HeartbeatAnswer, Only, WorkerInfo, fair_claims};
use crate::streaming::OpKey;
use serde_json::json;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use uuid::Uuid;

/// How long a worker counts as alive after it has registered.
const REGISTERED_TTL: Duration = Duration::from_secs(30);
/// The most delayed runs that one claim makes claimable.
const SHARE: i64 = 512;

/// Makes a worker known.
pub(super) fn register(tx: &Tx, info: &WorkerInfo) -> Done<()> {
    tx.execute(
        "INSERT INTO worker (org_id, id, name, queues, seen_at, alive_until) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (org_id, id) DO UPDATE SET name = excluded.name, queues = excluded.queues, seen_at = excluded.seen_at, \
         alive_until = greatest(worker.alive_until, excluded.alive_until)",
        row![info.org.0, info.id.0, &info.name, text_of(&info.queues)?, tx.now, tx.now.after(REGISTERED_TTL)],
    )
}

/// The pairs of kind and queue that a worker has claimed work of.
pub(super) type Serves = BTreeSet<(String, String)>;

/// The stored row of the worker that claims: until when it counts as alive, and what it serves.
type Known = Option<(i64, Serves)>;

const KNOWN: &str = "SELECT alive_until, kinds FROM worker WHERE org_id = $1 AND id = $2";

/// Notes that the worker of a claim lives, and what it serves. Writes only if it serves something new, or every few
/// seconds: most claims find nothing and should cost no write.
fn saw(tx: &Tx, claim: &ClaimRequest, known: Known) -> Done<()> {
    let until = tx.now.after(claim.ttl).0;
    let (alive, mut served) = known.unwrap_or((i64::MIN, Serves::new()));
    let before = served.len();
    served.extend(claim.kinds.iter().map(|kind| (kind.clone(), claim.queue.clone())));
    let fresh = until.saturating_sub(alive) < super::values::micros(claim.ttl) / 8;
    if served.len() == before && fresh {
        return Ok(());
    }
    tx.execute(
        "INSERT INTO worker (org_id, id, name, queues, kinds, seen_at, alive_until) \
         VALUES ($1, $2, '', '[]', $3, $4, $5) ON CONFLICT (org_id, id) DO UPDATE SET kinds = excluded.kinds, seen_at = excluded.seen_at, \
         alive_until = greatest(worker.alive_until, excluded.alive_until)",
        row![claim.org.0, claim.worker.0, text_of(&served)?, tx.now, until],
    )
}

pub(super) const DELAYED: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM agent_execution x WHERE x.due_at <= $1 AND x.status = 0 AND NOT x.ready ORDER BY x.due_at LIMIT $2 \
     FOR NO KEY UPDATE OF x SKIP LOCKED"
);

/// Runnable runs of each kind, in the order of claims. With `count(*)` and without a lock it counts them, locked ones
/// too: if there are more than were found, some are locked by others.
macro_rules! runnable {
    ($columns:expr, $lock:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM UNNEST($3::text[]) WITH ORDINALITY AS k(name, place) CROSS JOIN LATERAL (SELECT * FROM agent_execution c WHERE c.ready \
             AND c.org_id = $1 AND c.queue = $2 AND c.kind = k.name AND ($5::uuid IS NULL OR c.id = $5 OR ($8 AND c.root_id = $5)) \
             AND (c.concurrency_key IS NULL OR c.status <> 0 OR (SELECT count(*) FROM agent_execution y \
             WHERE y.org_id = c.org_id AND y.concurrency_key = c.concurrency_key AND y.status = 1) \
             < greatest(coalesce(c.concurrency_limit, 1), 1)) \
             AND (c.prefer_until IS NULL OR c.prefer_until <= $7 OR c.last_worker = $6 \
             OR NOT EXISTS (SELECT FROM worker w WHERE w.org_id = c.org_id AND w.id = c.last_worker AND w.alive_until > $7)) \
             ORDER BY c.priority DESC, c.created_at, c.id LIMIT $4 ",
            $lock,
            ") x "
        )
    };
}

pub(super) const RUNNABLE: &str = concat!(
    runnable!(run_columns!(), "FOR NO KEY UPDATE SKIP LOCKED"),
    "ORDER BY x.priority DESC, row_number() OVER (PARTITION BY k.place, x.priority ORDER BY x.created_at, x.id), k.place \
     LIMIT $4"
);
pub(super) const RUNNABLE_COUNT: &str = runnable!("count(*)", "");

/// Hands runnable runs to a worker.
pub(super) fn claim_agents(tx: &Tx, claim: &ClaimRequest) -> Done<Vec<Claim>> {
    let kinds: Vec<Value> = fair_claims::kinds(claim).into_iter().map(Value::from).collect();
    let look = |limit: usize| {
        let only = claim.only.map(|only| only.run().0);
        let family = claim.only.is_some_and(Only::is_family);
        let wanted =
            row![claim.org.0, claim.queue.as_str(), kinds.clone(), limit as u64, only, claim.worker.0, tx.now, family];
        [(RUNNABLE, wanted.clone()), (RUNNABLE_COUNT, wanted)]
    };
    let [runs, count] = look(claim.limit);
    let gate = (queues::GATE, row![claim.org.0, claim.queue.as_str()]);
    let known = (KNOWN, row![claim.org.0, claim.worker.0]);
    let mut found = tx.ask_all(&[known, (DELAYED, row![tx.now, SHARE]), gate, runs, count])?;
    let known = found[0].first().map(|row| Ok::<_, super::fault::Fault>((row.get(0)?, json(row, 1)?))).transpose()?;
    let gate = found[2].first().map(queues::gate).transpose()?;
    if !found[1].is_empty() {
        // The delayed start of these runs has come. Saving makes them claimable.
        for row in &found[1] {
            Run::read(row)?.save(tx)?;
        }
        found = tx.ask_all(&look(claim.limit))?;
    } else {
        found.drain(..3);
    }
    saw(tx, claim, known)?;
    if claim.limit == 0 {
        give_up_preference(tx, claim.org, claim.worker)?;
        return Ok(Vec::new());
    }
    let free = gate.as_ref().map_or(Ok(claim.limit), |gate| room(tx, claim, gate))?;
    let mut claims = Vec::new();
    let mut more = false;
    loop {
        let mut runs = found[0].iter().map(Run::read).collect::<Done<Vec<_>>>()?;
        let there: i64 = found[1].first().map_or(Ok(0), |row| row.get(0))?;
        let left = free - claims.len();
        if runs.len() < left && there > runs.len() as i64 {
            tx.agents_ready();
        }
        more |= runs.len() > left;
        runs.truncate(left);
        let (found_all, before) = (runs.len(), claims.len());
        claims.extend(take(tx, runs, claim)?);
        // The query may return several runs of one concurrency key, of which only as many as the key allows are taken.
        // The loop fills the places of the others.
        if claims.len() == before || claims.len() - before == found_all || claims.len() == free {
            break;
        }
        found = tx.ask_all(&look(free - claims.len()))?;
    }
    if let Some(gate) = gate {
        passed(tx, claim, gate, claims.len(), more)?;
    }
    Ok(claims)
}

/// Lets others claim at once the runs that a worker has parked and that were reserved for it for a moment. Waits for no
/// lock.
fn give_up_preference(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<()> {
    let preferred =
        "SELECT 1 FROM agent_execution WHERE org_id = $1 AND last_worker = $2 AND prefer_until IS NOT NULL LIMIT 1";
    if tx.ask(preferred, row![org.0, worker.0])?.is_empty() {
        return Ok(());
    }
    tx.execute(
        "UPDATE agent_execution x SET prefer_until = NULL FROM (SELECT org_id, run FROM agent_execution \
         WHERE org_id = $1 AND last_worker = $2 AND prefer_until IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED) p \
         WHERE x.org_id = p.org_id AND x.run = p.run",
        row![org.0, worker.0],
    )?;
    tx.agents_ready();
    Ok(())
}

/// The places that are held of the keys of runs. Where one run of a key may run, and it is runnable, there is none.
fn held(tx: &Tx, org: OrgId, runs: &[Run]) -> Done<HashMap<String, BTreeSet<u32>>> {
    let mut held: HashMap<String, BTreeSet<u32>> = HashMap::new();
    let shared = runs.iter().filter(|run| run.key_limit() > 1).filter_map(|run| run.concurrency_key.as_deref());
    let keys: BTreeSet<&str> = shared.collect();
    if keys.is_empty() {
        return Ok(held);
    }
    let keys: Vec<Value> = keys.into_iter().map(Value::from).collect();
    let found = tx.all(HELD, row![org.0, keys], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (key, slot) in found {
        held.entry(key).or_default().insert(slot);
    }
    Ok(held)
}

pub(super) const HELD: &str = "SELECT y.concurrency_key, y.concurrency_slot FROM (SELECT * FROM UNNEST($2::text[]) \
    LIMIT cardinality($2)) AS k(name) JOIN agent_execution y ON y.org_id = $1 AND y.concurrency_key = k.name AND y.status = 1";

/// Hands locked runs to a worker. Of those that share a concurrency key it takes as many as the key allows.
fn take(tx: &Tx, mut runs: Vec<Run>, claim: &ClaimRequest) -> Done<Vec<Claim>> {
    let mut held = held(tx, claim.org, &runs)?;
    // A CANCELLING run needs no place of its key: it tidies up, whatever else runs.
    runs.retain_mut(|run| match run.concurrency_key.clone().filter(|_| run.status == Status::Pending) {
        Some(key) => run.take_slot_beside(held.entry(key).or_default()),
        None => true,
    });
    let keys: Vec<Key> = runs.iter().map(|run| run.home.key).collect();
    // The runs are locked, so they are read in full before the claim changes them. What it changes is set on the copies
    // below, which saves another round trip.
    let mut questions = vec![whole(&keys)];
    questions.extend(runs.iter().filter(|run| run.last_worker == Some(claim.worker)).flat_map(facts::since_commit));
    let mut answers = locks::adopt(tx, runs, questions)?;
    let mut claims = Vec::with_capacity(keys.len());
    for row in answers.next().unwrap_or_default() {
        let mut execution = super::run::execution(&row)?;
        let Some(mut run) = Run::at(tx, Key { org: execution.new.org, run: row.get(1)? })? else { continue };
        let parked = run.last_worker == Some(claim.worker);
        let fact_rows: Vec<_> = answers.by_ref().take(if parked { 3 } else { 0 }).collect();
        let known = run.home.last.as_ref().is_some_and(|last| last.request.is_some());
        // If the facts cannot be read, the claim goes on without them. The worker then asks for them, and that fails
        // for this run alone.
        let news = (parked && known).then(|| facts::parse(&run, Some(run.segment), &fact_rows)).and_then(Result::ok);
        run.hand_to(claim, tx.now);
        forget_requests(tx, &mut run)?;
        let mut log = Log::open(tx, &run)?;
        let data = json!({ "epoch": run.epoch, "worker": claim.worker.to_string() });
        run.claim_number = log.event(EventKind::Resumed, &data)?;
        run.save(tx)?;
        execution.status = run.status;
        execution.epoch = run.epoch;
        execution.worker = run.worker;
        execution.lease_expires = run.lease_expires.map(Timestamp);
        execution.updated_at = tx.now;
        let lease = Lease { worker: claim.worker, epoch: run.epoch };
        claims.push(Claim { lease, high: log.high, news, execution });
    }
    Ok(claims)
}

fn executions_at(tx: &Tx, keys: &[Key]) -> Done<Vec<Execution>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let (sql, params) = whole(keys);
    tx.all(sql, params, super::run::execution)
}

/// The query for whole runs, in the order of the given keys.
fn whole(keys: &[Key]) -> (&'static str, Vec<Value>) {
    let (orgs, runs) = split(keys);
    let sql = concat!(
        select_execution!(),
        "JOIN (SELECT * FROM UNNEST($1::uuid[], $2::bigint[]) WITH ORDINALITY AS u(org_id, run, n) LIMIT cardinality($1)) k \
         ON k.org_id = x.org_id AND k.run = x.run ORDER BY k.n"
    );
    (sql, row![orgs, runs])
}

/// Keys as two lists of parameters.
pub(super) fn split(keys: &[Key]) -> (Vec<Value>, Vec<Value>) {
    keys.iter().map(|key| (Value::from(key.org.0), Value::from(key.run))).unzip()
}

/// Visible tasks of each kind, the oldest first.
macro_rules! visible {
    ($columns:literal, $lock:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM UNNEST($3::text[]) AS k(name) CROSS JOIN LATERAL (SELECT t.visible_at, t.created_at, t.id, t.org_id, \
             t.run, x.id AS execution FROM task_execution t JOIN agent_execution x ON x.org_id = t.org_id AND x.run = t.run \
             WHERE t.status = 0 AND t.org_id = $1 AND t.queue = $2 AND t.kind = k.name AND t.visible_at <= $5 \
             AND x.status < 5 AND ($6::uuid IS NULL OR x.id = $6 OR ($7 AND x.root_id = $6)) ORDER BY t.visible_at, t.created_at, t.id LIMIT $4 ",
            $lock,
            ") c "
        )
    };
}

pub(super) const VISIBLE: &str = concat!(
    visible!("c.id, c.execution", "FOR NO KEY UPDATE OF x SKIP LOCKED"),
    "ORDER BY c.visible_at, c.created_at, c.id LIMIT $4"
);
pub(super) const VISIBLE_COUNT: &str = visible!("count(*)", "");

/// Hands visible tasks to a worker.
pub(super) fn claim_tasks(tx: &Tx, claim: &ClaimRequest) -> Done<Vec<ClaimedTask>> {
    let limit = i64::try_from(claim.limit).unwrap_or(i64::MAX);
    let kinds: Vec<Value> = claim.kinds.iter().collect::<BTreeSet<_>>().into_iter().map(Value::from).collect();
    let only = claim.only.map(|only| only.run().0);
    let family = claim.only.is_some_and(Only::is_family);
    let wanted = || row![claim.org.0, claim.queue.as_str(), kinds.clone(), limit, tx.now, only, family];
    let found =
        tx.ask_all(&[(KNOWN, row![claim.org.0, claim.worker.0]), (VISIBLE, wanted()), (VISIBLE_COUNT, wanted())])?;
    let known = found[0].first().map(|row| Ok::<_, super::fault::Fault>((row.get(0)?, json(row, 1)?))).transpose()?;
    saw(tx, claim, known)?;
    let there: i64 = found[2].first().map_or(Ok(0), |row| row.get(0))?;
    if found[1].len() < claim.limit && there > found[1].len() as i64 {
        tx.tasks_ready();
    }
    let mut ids = Vec::with_capacity(found[1].len());
    let mut runs = BTreeSet::new();
    for row in &found[1] {
        ids.push((claim.org, crate::id::TaskId(row.get(0)?)));
        runs.insert((claim.org, ExecutionId(row.get(1)?)));
    }
    // Only now are the runs locked. The tasks may have changed before that, so they are read again.
    locks::lock(tx, &runs.into_iter().collect::<Vec<_>>())?;
    let mut claimed = Vec::with_capacity(ids.len());
    let mut logs: HashMap<Key, (Run, Log<'_, '_>)> = HashMap::new();
    for mut row in tasks_of(tx, &ids)? {
        if row.task.status != TaskStatus::Pending || row.task.visible_at > tx.now {
            continue;
        }
        let (run, log) = match logs.entry(row.place.key) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => {
                let Some(run) = Run::at(tx, row.place.key)? else { continue };
                let log = Log::open(tx, &run)?;
                free.insert((run, log))
            }
        };
        row.hand_to(claim, tx.now);
        let event = row.emit(run, log, EventKind::TaskStarted, json!({ "worker": claim.worker }))?;
        row.save(tx)?;
        claimed.push(ClaimedTask { reconcile: row.reconcile, event, task: row.task });
    }
    Ok(claimed)
}

/// Tasks by their ids, in the order of the ids.
fn tasks_of(tx: &Tx, ids: &[(OrgId, crate::id::TaskId)]) -> Done<Vec<TaskRow>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let (orgs, tasks): (Vec<Value>, Vec<Value>) =
        ids.iter().map(|(org, task)| (Value::from(org.0), Value::from(task.0))).unzip();
    let sql = concat!(
        select_task!(),
        "JOIN (SELECT * FROM UNNEST($1::uuid[], $2::uuid[]) WITH ORDINALITY AS u(org_id, id, n) LIMIT cardinality($1)) k ON k.org_id = t.org_id AND k.id = t.id \
         ORDER BY k.n"
    );
    tx.all(sql, row![orgs, tasks], TaskRow::read)
}

/// The run of a task.
pub(super) fn run_of(tx: &Tx, org: OrgId, task: crate::id::TaskId) -> Done<Option<ExecutionId>> {
    tx.first(
        "SELECT x.id FROM task_execution t JOIN agent_execution x ON x.org_id = t.org_id AND x.run = t.run \
         WHERE t.org_id = $1 AND t.id = $2",
        row![org.0, task.0],
        |row| row.get(0).map(ExecutionId),
    )
}

/// Records the end of a claimed attempt of a run's task, and returns the task's op.
pub(super) fn report_task(tx: &Tx, execution: ExecutionId, report: &TaskReport) -> Done<OpKey> {
    let mut run = if_there(tx.find_run(report.org, execution))?.ok_or_else(|| superseded(report))?;
    let row = TaskRow::find(tx, report.org, report.task)?.ok_or_else(|| superseded(report))?;
    workers::report_task(tx, &mut run, row, report)
}

/// Extends the leases of a worker, and tells what it has lost.
pub(super) fn heartbeat(tx: &Tx, beat: &Heartbeat) -> Done<HeartbeatAnswer> {
    let expires = tx.now.after(beat.ttl).0;
    tx.execute(
        "UPDATE worker SET alive_until = greatest(alive_until, $3), seen_at = $4 WHERE org_id = $1 AND id = $2",
        row![beat.org.0, beat.worker.0, expires, tx.now],
    )?;
    let org = beat.org;
    let reports = beat.progress.iter().map(|(task, ..)| (org, *task));
    let tasks: Vec<_> = beat.tasks.iter().map(|&(task, ..)| (org, task)).chain(reports).collect();
    let mut targets: BTreeSet<_> = beat.executions.iter().map(|&(execution, ..)| (org, execution)).collect();
    targets.extend(tasks_of(tx, &tasks)?.into_iter().map(|row| (row.place.key.org, row.task.execution)));
    locks::lock(tx, &targets.into_iter().collect::<Vec<_>>())?;
    let mut answer = HeartbeatAnswer::default();
    for &(execution, epoch, known) in &beat.executions {
        let lease = Lease { worker: beat.worker, epoch };
        let run = if_there(tx.find_run(org, execution))?.filter(|run| run.check_lease(lease).is_ok());
        let Some(mut run) = run else {
            answer.lost_executions.push(execution);
            continue;
        };
        run.lease_expires = Some(expires);
        run.save(tx)?;
        let high = run.home.last.as_ref().map_or(0, |last| last.high);
        // If the facts cannot be read, the worker is told to read them, and that fails for this run alone.
        if high > known && tx.facts(&run, known, high, None).map_or(true, |facts| !facts.is_empty()) {
            answer.stale_executions.push(execution);
        }
    }
    let mut held: HashMap<Uuid, TaskRow> =
        tasks_of(tx, &tasks)?.into_iter().map(|row| (row.task.new.id.0, row)).collect();
    for &(task, attempt, signed) in &beat.tasks {
        let row = held.remove(&task.0).filter(|row| {
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
        tx.execute(
            "UPDATE task_execution SET progress = $4 WHERE org_id = $1 AND id = $2 AND attempt = $3 AND status = $5",
            row![org.0, task.0, *attempt, report, TaskStatus::Running as u8],
        )?;
    }
    Ok(answer)
}

/// Locks the runs of all that a worker holds.
pub(super) fn lock_held(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<Vec<Key>> {
    let mut keys: BTreeSet<Key> = held_runs(tx, org, worker)?.into_iter().map(|run| run.home.key).collect();
    keys.extend(held_tasks(tx, org, worker)?.into_iter().map(|row| row.place.key));
    let keys: Vec<Key> = keys.into_iter().collect();
    let targets: Vec<_> = executions_at(tx, &keys)?.into_iter().map(|run| (run.new.org, run.new.id)).collect();
    locks::lock(tx, &targets)?;
    Ok(keys)
}

/// Removes a worker, and gives back all that it holds.
pub(super) fn unregister(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<()> {
    tx.execute("DELETE FROM worker WHERE org_id = $1 AND id = $2", row![org.0, worker.0])?;
    let keys = lock_held(tx, org, worker)?;
    let mut lost: HashMap<Key, Vec<TaskRow>> = HashMap::new();
    for row in held_tasks(tx, org, worker)? {
        lost.entry(row.place.key).or_default().push(row);
    }
    for key in keys {
        let Some(mut run) = Run::at(tx, key)? else { continue };
        let mut log = Log::open(tx, &run)?;
        if run.worker == Some(worker) {
            run.give_back(&mut log)?;
        }
        for mut row in lost.remove(&key).unwrap_or_default() {
            row.lose_attempt(&mut run, &mut log)?;
        }
        run.save(tx)?;
    }
    give_up_preference(tx, org, worker)?;
    lose_host_timers(tx, org, worker)
}

/// Makes runs claimable that wait for timers inside a worker's process: the process is gone, and its timers with it.
pub(super) fn lose_host_timers(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<()> {
    let sql = "SELECT id FROM agent_execution WHERE host_timer AND org_id = $1 AND last_worker = $2";
    let timed = tx.all(sql, row![org.0, worker.0], |row| Ok((org, ExecutionId(row.get(0)?))))?;
    locks::lock(tx, &timed)?;
    for (org, id) in timed {
        let Some(mut run) = tx.locked.borrow_mut().take(org, id) else { continue };
        if run.is_timed_by(worker) {
            let mut log = Log::open(tx, &run)?;
            run.lose_host_timer(&mut log)?;
            run.save(tx)?;
        }
    }
    Ok(())
}

/// Runs that a worker holds.
pub(super) fn held_runs(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<Vec<Run>> {
    let sql = concat!(
        "SELECT ",
        run_columns!(),
        " FROM agent_execution x WHERE x.worker = $1 AND x.org_id = $2 ORDER BY x.run"
    );
    tx.all(sql, row![worker.0, org.0], Run::read)
}

/// The tasks of queues whose attempt a worker has under a lease.
pub(super) fn held_tasks(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<Vec<TaskRow>> {
    let sql = concat!(
        select_task!(),
        "WHERE t.worker = $1 AND t.lease_expires IS NOT NULL AND t.org_id = $2 ORDER BY t.run, t.segment, t.sequence"
    );
    let rows = tx.all(sql, row![worker.0, org.0], TaskRow::read)?;
    Ok(rows.into_iter().filter(|row| row.task.new.placement == Placement::Queue).collect())
}

/// The kinds of rows that a condition holds for. Each kind costs one index seek, however many rows it has.
macro_rules! kinds {
    ($table:literal, $condition:literal) => {
        concat!(
            "WITH RECURSIVE found(kind) AS (SELECT (SELECT min(kind) FROM ",
            $table,
            " WHERE ",
            $condition,
            ") UNION ALL SELECT (SELECT min(kind) FROM ",
            $table,
            " WHERE ",
            $condition,
            " AND kind > found.kind) FROM found WHERE found.kind IS NOT NULL) \
             SELECT kind FROM found WHERE kind IS NOT NULL AND $3::bigint > 0"
        )
    };
}

const WAITING_AGENTS: &str = kinds!("agent_execution", "ready AND org_id = $1 AND queue = $2");
const WAITING_TASKS: &str =
    kinds!("task_execution", "status = 0 AND org_id = $1 AND queue = $2 AND visible_at <= $3::bigint");

impl Workers for Tx<'_> {
    fn lock_held(&self, org: OrgId, worker: WorkerId) -> Done<()> {
        lock_held(self, org, worker).map(drop)
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
            Work::Agents => WAITING_AGENTS,
            Work::Tasks => WAITING_TASKS,
        };
        self.all(sql, row![org.0, queue, now.0], |row| row.get(0))
    }
}
