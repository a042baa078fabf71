//! Housekeeping: fires timers, ends leases, attempts, deadlines and graces whose time is reached, and frees what
//! workers held whose process is gone.

use super::SqliteStorage;
use super::claims::{begin_delayed, forget, give_up_preference, held_runs, held_tasks, lose_host_timers, lose_task};
use super::fault::Done;
use super::lock::{Locks, host};
use super::run::Run;
use super::task::{TaskRow, select_task};
use super::tx::{Log, Tx};
use super::values::{SHIFT, blob, id, micros};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{OrgId, Slot, WorkerId};
use crate::model::EventKind;
use crate::storage::sql::previews;
use crate::storage::sql::run::Cause;
use crate::storage::sql::time::{COLLECT, SHARE};
use crate::storage::sql::{self, Backend, Tasks, queues};
use rusqlite::params;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the locks of other processes' workers are looked at.
const WATCH: Duration = Duration::from_millis(40);
/// If the wall clock has gained so much on the monotonic clock, it was set or the machine slept.
const JUMP: Duration = Duration::from_secs(5);

impl SqliteStorage {
    /// Does what is due, and returns when the next pass has to be. It looks with a read first: most passes find
    /// nothing, and then take no write lock.
    pub(super) async fn keep(&self) -> Result<Option<Timestamp>> {
        let clock = &self.0.options.clock;
        let now = clock.now();
        let jumped = self.0.pulse.lock().jumped(now) && clock.manual().is_none();
        let locks = self.0.locks.clone();
        let looks = self.0.pulse.lock().others.looks_for_unserved(now);
        let state = self.read_all("look for work that time brings", move |tx| look(tx, &locks, looks, now)).await?;
        let mut next = state.next;
        if jumped || state.due || state.unserved || !state.dead.is_empty() {
            let locks = self.0.locks.clone();
            next = self
                .write_work("do the work that time brings", move |tx| {
                    if jumped {
                        restart_leases(tx)?;
                    }
                    for &(org, worker) in &state.dead {
                        end_leases_of_dead(tx, &locks, org, worker)?;
                    }
                    sweep(tx)?;
                    if looks {
                        super::unserved::tell(tx)?;
                    }
                    next_due(tx)
                })
                .await?;
        }
        if state.lapsed {
            self.write_alone("forget readers of previews that are gone", |tx| previews::tidy(tx, tx.now)).await?;
        }
        if self.0.pulse.lock().others.collects(now) {
            self.write_alone("remove payloads nobody refers to", |tx| {
                // These workers were on other machines, or lived before this one was restarted. No lock tells of them,
                // and their leases have ended long ago.
                tx.execute("DELETE FROM worker WHERE alive_until < ?1", [tx.now.0 - micros(COLLECT)])?;
                previews::tidy(tx, tx.now)?;
                super::payloads::collect(tx)
            })
            .await?;
        }
        self.0.next_due.store(next.unwrap_or(i64::MAX), Ordering::Relaxed);
        if state.others {
            let soon = now.after(WATCH).0;
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        Ok(next.map(Timestamp))
    }
}

/// What is remembered from one pass to the next.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    last: Option<(Timestamp, std::time::Instant)>,
    others: sql::time::Pulse,
}

impl Pulse {
    /// Whether the wall clock has jumped ahead of the monotonic one since the last pass.
    fn jumped(&mut self, now: Timestamp) -> bool {
        let instant = crate::clock::instant();
        let jumped = self
            .last
            .is_some_and(|(wall, monotonic)| now.since(wall).saturating_sub(instant.duration_since(monotonic)) > JUMP);
        self.last = Some((now, instant));
        jumped
    }
}

/// What a look at the database found.
#[derive(Clone)]
struct Look {
    due: bool,
    /// Whether work has waited too long for a worker of its kind.
    unserved: bool,
    /// Whether readers of previews have gone.
    lapsed: bool,
    next: Option<i64>,
    /// Workers of this machine whose process is gone.
    dead: Vec<(OrgId, WorkerId)>,
    /// Whether workers of other processes hold something.
    others: bool,
}

fn look(tx: &Tx, locks: &Arc<Locks>, looks: bool, now: Timestamp) -> Done<Look> {
    let next = next_due(tx)?;
    let here = host();
    let unserved = looks && !super::unserved::waits(tx, now)?.is_empty();
    let lapsed = looks && previews::lapsed(tx, now)?;
    let due = next.is_some_and(|at| at <= now.0);
    let mut look = Look { due, unserved, lapsed, next, dead: Vec::new(), others: false };
    let workers = tx.all("SELECT org_id, id, host, lock_at FROM worker", [], |row| {
        Ok((OrgId(id(row, 0)?), WorkerId(id(row, 1)?), row.get::<_, String>(2)?, row.get::<_, i64>(3)?))
    })?;
    for (org, worker, at, byte) in workers {
        if at != here || locks.is_own(byte) {
            continue;
        }
        if !locks.is_held(byte) {
            look.dead.push((org, worker));
        } else if !look.others {
            look.others = holds(tx, org, worker)?;
        }
    }
    Ok(look)
}

fn holds(tx: &Tx, org: OrgId, worker: WorkerId) -> Done<bool> {
    let found = tx.first("SELECT 1 FROM agent_execution WHERE worker = ?2 AND org_id = ?1 \
         UNION ALL SELECT 1 FROM agent_execution WHERE org_id = ?1 AND last_worker = ?2 AND host_timer = 1 \
         UNION ALL SELECT 1 FROM task_execution WHERE worker = ?2 AND org_id = ?1 AND lease_expires IS NOT NULL LIMIT 1",
        [blob(&org.0), blob(&worker.0)],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// Ends the leases of a worker whose process is gone. The lock is looked at again, now in the transaction: the worker
/// may have come back.
fn end_leases_of_dead(tx: &Tx, locks: &Arc<Locks>, org: OrgId, worker: WorkerId) -> Done<()> {
    if locks.is_held(Locks::byte_of(org, worker)) {
        return Ok(());
    }
    for mut run in held_runs(tx, org, worker)? {
        let mut log = Log::open(tx, &run)?;
        run.lose_holder(&mut log)?;
        run.save(tx)?;
    }
    for row in held_tasks(tx, org, worker)? {
        lose_task(tx, row)?;
    }
    lose_host_timers(tx, org, worker)?;
    give_up_preference(tx, org, worker)?;
    forget(tx, org, worker)
}

/// After a jump of the clock, lets every lease begin anew, once: a machine that slept would otherwise lose the leases
/// of workers that have not had a chance to renew them.
fn restart_leases(tx: &Tx) -> Done<()> {
    tx.execute(
        "UPDATE agent_execution SET lease_expires = ?1 + lease_ttl, due_at = max(due_at, ?1 + 1) \
         WHERE worker IS NOT NULL AND lease_expires <= ?1",
        [tx.now.0],
    )?;
    let held =
        tx.all(concat!(select_task!(), "WHERE t.due_at <= ?1 AND t.lease_expires <= ?1"), [tx.now.0], TaskRow::read)?;
    for mut row in held {
        row.lease_expires = Some(tx.now.after(Duration::from_secs(30)).0);
        row.save(tx)?;
    }
    Ok(())
}

/// The earliest time at which something becomes due.
fn next_due(tx: &Tx) -> Done<Option<i64>> {
    let mut next: Option<i64> = None;
    for sql in [
        "SELECT min(due_at) FROM agent_execution WHERE due_at IS NOT NULL",
        "SELECT min(due_at) FROM task_execution WHERE due_at IS NOT NULL",
        "SELECT min(due_at) FROM agent_op WHERE due_at IS NOT NULL",
        "SELECT min(next_at) FROM schedule WHERE next_at IS NOT NULL",
        "SELECT min(opens_at) FROM queue_limit WHERE opens_at IS NOT NULL",
    ] {
        let found: Option<i64> = tx.first(sql, [], |row| row.get(0))?.flatten();
        next = match (next, found) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    let lapses = timing_workers(tx)?.into_iter().map(|(.., alive_until)| alive_until);
    Ok(lapses.chain(next).min())
}

/// Workers whose process has timers that runs wait for, and until when each counts as alive: 0 for an unknown one.
fn timing_workers(tx: &Tx) -> Done<Vec<(OrgId, WorkerId, i64)>> {
    // One index seek for each worker, however many runs wait.
    let next = "SELECT org_id, last_worker, ifnull((SELECT alive_until FROM worker w \
                WHERE w.org_id = x.org_id AND w.id = x.last_worker), 0) FROM agent_execution x \
                WHERE host_timer = 1 AND last_worker IS NOT NULL AND (org_id, last_worker) > (?1, ?2) \
                ORDER BY org_id, last_worker LIMIT 1";
    let mut found = Vec::new();
    let mut after = (OrgId(uuid::Uuid::nil()), WorkerId(uuid::Uuid::nil()));
    while let Some(timing) = tx.first(next, [blob(&after.0.0), blob(&after.1.0)], |row| {
        Ok((OrgId(id(row, 0)?), WorkerId(id(row, 1)?), row.get(2)?))
    })? {
        after = (timing.0, timing.1);
        found.push(timing);
    }
    Ok(found)
}

/// Does everything that is due. Each row is changed only if its status still allows it.
fn sweep(tx: &Tx) -> Done<()> {
    begin_delayed(tx)?;
    queues::open(tx)?;
    let mut runs = tx.all(
        // A parent comes before its children.
        "SELECT run FROM (SELECT run FROM agent_execution WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2) ORDER BY run",
        [tx.now.0, SHARE],
        |row| row.get::<_, i64>(0),
    )?;
    for run in std::mem::take(&mut runs) {
        if let Some(run) = Run::at(tx, run)? {
            keep_run(tx, run)?;
        }
    }
    fire_timers(tx)?;
    let mut tasks = tx.all(
        concat!(select_task!(), "WHERE t.due_at <= ?1 ORDER BY t.due_at LIMIT ?2"),
        [tx.now.0, SHARE],
        TaskRow::read,
    )?;
    tasks.sort_by_key(|row: &TaskRow| row.place);
    for row in tasks {
        keep_task(tx, row)?;
    }
    for (org, worker, alive_until) in timing_workers(tx)? {
        if alive_until <= tx.now.0 {
            lose_host_timers(tx, org, worker)?;
        }
    }
    Ok(())
}

fn keep_run(tx: &Tx, mut run: Run) -> Done<()> {
    if !run.status.is_terminal() {
        let mut log = Log::open(tx, &run)?;
        run.meet_time(&mut log)?;
    }
    run.save(tx)
}

fn fire_timers(tx: &Tx) -> Done<()> {
    let due = tx.all(
        "SELECT place, segment, sequence FROM agent_op WHERE due_at <= ?1 ORDER BY due_at, place LIMIT ?2",
        [tx.now.0, SHARE],
        |row| Ok((row.get::<_, i64>(0)?, Slot { segment: row.get(1)?, sequence: row.get(2)? })),
    )?;
    for (place, slot) in due {
        let Some(mut run) = Run::at(tx, place >> SHIFT)? else { continue };
        let mut log = Log::open(tx, &run)?;
        let number = log.about(EventKind::Timer, slot, "{}".to_owned())?;
        tx.execute(
            "UPDATE agent_op SET due_at = NULL, fired = ?2, fired_at = ?3 WHERE place = ?1",
            params![place, number, tx.now.0],
        )?;
        if run.wake(&mut log, Cause::Timer)? {
            run.save(tx)?;
        }
    }
    Ok(())
}

fn keep_task(tx: &Tx, mut row: TaskRow) -> Done<()> {
    let Some(mut run) = Run::at(tx, row.place >> SHIFT)? else { return Ok(()) };
    // The ends of other tasks of the run may have changed this one since it was read.
    let Some(fresh) = tx.task_at(row.place)? else { return Ok(()) };
    row.task.status = fresh.task.status;
    let mut log = Log::open(tx, &run)?;
    row.meet_time(&mut run, &mut log)?;
    run.save(tx)
}
