//! Housekeeping: fires timers, and ends leases, attempts, deadlines and graces whose time is reached.
//!
//! Every process may do it. A pass takes the due runs that nobody has locked. The locked ones come with a later pass.

use super::PostgresStorage;
use super::claims::{lose_host_timers, split};
use super::fault::Done;
use super::locks;
use super::run::{Run, run_columns};
use super::sets::{Set, row};
use super::task::{TaskRow, select_task};
use super::tx::{Log, Tx};
use super::values::{Key, micros};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{OrgId, Slot, WorkerId};
use crate::model::EventKind;
use crate::storage::sql::previews;
use crate::storage::sql::queues;
use crate::storage::sql::run::Cause;
use crate::storage::sql::time::{COLLECT, SHARE};
use crate::storage::sql::{Backend, Tasks};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl PostgresStorage {
    /// Does what is due, and returns when the next pass has to be.
    pub(super) async fn keep(&self) -> Result<Option<Timestamp>> {
        self.set_clock().await?;
        let now = self.now();
        let looks = self.0.pulse.lock().looks_for_unserved(now);
        let look = move |tx: &Tx| {
            let unserved = looks && !super::unserved::waits(tx, now)?.is_empty();
            Ok((next_due(tx)?, unserved, looks && previews::lapsed(tx, now)?))
        };
        let (mut next, unserved, lapsed) = self.read_all("look for work that time brings", look).await?;
        if unserved || next.is_some_and(|at| at <= now.0) {
            let work = move |tx: &Tx| {
                sweep(tx)?;
                if looks {
                    super::unserved::tell(tx)?;
                }
                next_due(tx)
            };
            next = self.write_work("do the work that time brings", work).await?;
        }
        if lapsed {
            self.write_alone("forget readers of previews that are gone", |tx| previews::tidy(tx, tx.now)).await?;
        }
        if self.0.pulse.lock().collects(now) {
            self.write_alone("remove payloads nobody refers to", |tx| {
                tx.execute("DELETE FROM worker WHERE alive_until < $1", row![tx.now.0 - micros(COLLECT)])?;
                previews::tidy(tx, tx.now)?;
                super::payloads::collect(tx)
            })
            .await?;
        }
        self.0.context.next_due.store(next.unwrap_or(i64::MAX), Ordering::Relaxed);
        Ok(next.map(Timestamp))
    }
}

/// Workers whose process has timers that runs wait for, and until when each counts as alive: 0 for an unknown one. One
/// index seek for each worker, however many runs wait.
pub(super) const TIMING: &str = "WITH RECURSIVE timing AS (\
     (SELECT org_id, last_worker AS id FROM agent_execution WHERE host_timer AND last_worker IS NOT NULL \
     ORDER BY org_id, last_worker LIMIT 1) \
     UNION ALL SELECT n.* FROM timing CROSS JOIN LATERAL (SELECT org_id, last_worker FROM agent_execution \
     WHERE host_timer AND last_worker IS NOT NULL AND (org_id, last_worker) > (timing.org_id, timing.id) \
     ORDER BY org_id, last_worker LIMIT 1) n) \
     SELECT org_id, id, coalesce((SELECT alive_until FROM worker w WHERE w.org_id = timing.org_id AND w.id = timing.id), 0) \
     FROM timing";

pub(super) const NEXT: &str = "SELECT least(\
     (SELECT min(due_at) FROM agent_execution WHERE due_at IS NOT NULL), \
     (SELECT min(due_at) FROM task_execution WHERE due_at IS NOT NULL), \
     (SELECT min(due_at) FROM agent_op WHERE due_at IS NOT NULL), \
     (SELECT min(next_at) FROM schedule WHERE next_at IS NOT NULL), \
     (SELECT min(opens_at) FROM queue_limit WHERE opens_at IS NOT NULL))";

/// The earliest time at which something becomes due.
fn next_due(tx: &Tx) -> Done<Option<i64>> {
    let found = tx.ask_all(&[(NEXT, row![]), (TIMING, row![])])?;
    let next: Option<i64> = found[0].first().map_or(Ok(None), |row| row.get(0))?;
    let lapses = found[1].iter().map(|row| row.get::<i64>(2)).collect::<Done<Vec<_>>>()?;
    Ok(lapses.into_iter().chain(next).min())
}

pub(super) const DUE: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM (SELECT DISTINCT org_id, run FROM (\
     (SELECT org_id, run FROM agent_execution WHERE due_at <= $1 ORDER BY due_at LIMIT $2) UNION ALL \
     (SELECT org_id, run FROM agent_op WHERE due_at <= $1 ORDER BY due_at LIMIT $2) UNION ALL \
     (SELECT org_id, run FROM task_execution WHERE due_at <= $1 ORDER BY due_at LIMIT $2)) AS rows) d \
     JOIN agent_execution x ON x.org_id = d.org_id AND x.run = d.run ORDER BY x.org_id, x.run \
     FOR NO KEY UPDATE OF x SKIP LOCKED"
);

pub(super) const DUE_TIMERS: &str = "SELECT o.org_id, o.run, o.segment, o.sequence \
     FROM UNNEST($1::uuid[], $2::bigint[]) AS k(org_id, run) JOIN agent_op o ON o.org_id = k.org_id AND o.run = k.run \
     WHERE o.due_at <= $3 ORDER BY o.due_at, o.segment, o.sequence";

pub(super) const DUE_TASKS: &str = concat!(
    select_task!(),
    "JOIN UNNEST($1::uuid[], $2::bigint[]) AS k(org_id, run) ON k.org_id = t.org_id AND k.run = t.run \
     WHERE t.due_at <= $3 ORDER BY t.org_id, t.run, t.segment, t.sequence"
);

static FIRED: Set = Set::update(
    "agent_op",
    4,
    "org_id uuid, run bigint, segment int, sequence int, due_at bigint, fired bigint, fired_at bigint",
);

/// Does everything that is due. Each row is changed only if its status still allows it.
fn sweep(tx: &Tx) -> Done<()> {
    queues::open(tx)?;
    sweep_runs(tx)?;
    for row in tx.ask(TIMING, row![])? {
        if row.get::<i64>(2)? <= tx.now.0 {
            lose_host_timers(tx, OrgId(row.get(0)?), WorkerId(row.get(1)?))?;
        }
    }
    Ok(())
}

/// Does what is due in runs: their own times, their timers and their tasks.
fn sweep_runs(tx: &Tx) -> Done<()> {
    let runs = tx.all(DUE, row![tx.now, SHARE], Run::read)?;
    if runs.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = runs.iter().map(|run| run.home.key).collect();
    locks::adopt(tx, runs, Vec::new())?;
    // A parent comes before its children: it was started before.
    let mut due: BTreeMap<Key, (Run, Log<'_, '_>)> = BTreeMap::new();
    let mut tells = false;
    for &key in &keys {
        let Some(mut run) = Run::at(tx, key)? else { continue };
        let mut log = Log::open(tx, &run)?;
        let had_ended = run.status.is_terminal();
        run.meet_time(&mut log)?;
        run.save(tx)?;
        tells |= run.status.is_terminal() && !had_ended;
        due.insert(key, (run, log));
    }
    if tells {
        // Runs that ended have written to the rows of their parents and children.
        due.clear();
        for &key in &keys {
            let Some(run) = Run::at(tx, key)? else { continue };
            let log = Log::open(tx, &run)?;
            due.insert(key, (run, log));
        }
    }
    let listed = || {
        let (orgs, runs) = split(&keys);
        row![orgs, runs, tx.now]
    };
    let timers = tx.all(DUE_TIMERS, listed(), |row| {
        let key = Key { org: OrgId(row.get(0)?), run: row.get(1)? };
        Ok((key, Slot { segment: row.get(2)?, sequence: row.get(3)? }))
    })?;
    for (key, slot) in timers {
        let Some((run, log)) = due.get_mut(&key) else { continue };
        let number = log.about(EventKind::Timer, slot, "{}".to_owned())?;
        tx.put(&FIRED, row![key.org.0, key.run, slot.segment, slot.sequence, None::<i64>, number, tx.now]);
        if run.wake(log, Cause::Timer)? {
            run.save(tx)?;
        }
    }
    let mut before = None;
    for mut row in tx.all(DUE_TASKS, listed(), TaskRow::read)? {
        let Some((run, log)) = due.get_mut(&row.place.key) else { continue };
        if before == Some(row.place.key) {
            // The end of another task of the run may have changed this one since it was read.
            let Some(fresh) = tx.task_at(row.place)? else { continue };
            row.task.status = fresh.task.status;
        }
        before = Some(row.place.key);
        row.meet_time(run, log)?;
        run.save(tx)?;
    }
    Ok(())
}
