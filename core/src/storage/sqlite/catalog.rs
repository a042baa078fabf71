//! The statements of listings.

use super::checkpoint::{checkpoint, select_checkpoint};
use super::entry::{entry, one_entry, select_entry};
use super::event::high;
use super::facts::{place_of, start_of};
use super::fault::Done;
use super::op::between;
use super::run::{Run, execution, select_execution};
use super::signal::{select_signal, signal};
use super::task::{TaskRow, select_task};
use super::tx::Tx;
use super::values::{blob, json_opt, key, number_of, span};
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId};
use crate::model::{
    Checkpoint, Entry, Event, EventKind, Execution, ExecutionFilter, QueueLoad, RecordedOp, Signal, Task,
};
use crate::storage::sql::{Listings, Place, if_there};
use rusqlite::params;

impl Listings for Tx<'_> {
    fn runs_before(&self, org: OrgId, filter: &ExecutionFilter, place: Place, most: usize) -> Done<Vec<Execution>> {
        let mut sql = String::from(concat!(
            select_execution!(),
            "WHERE x.org_id = ?1 AND (x.created_at, x.id) < (?2, ?3) AND x.created_at >= ?4 AND x.created_at < ?5 \
             AND (?6 IS NULL OR x.kind = ?6) AND (?7 IS NULL OR x.queue = ?7)"
        ));
        if !filter.statuses.is_empty() {
            let all: Vec<_> = filter.statuses.iter().map(|status| (*status as u8).to_string()).collect();
            sql.push_str(&format!(" AND x.status IN ({})", all.join(", ")));
        }
        sql.push_str(if filter.parent.is_some() { " AND x.parent_id = ?9" } else { " AND ?9 IS NULL" });
        let below = if filter.root.is_some() { "x.parent_id IS NOT NULL AND x.root_id = ?10" } else { "?10 IS NULL" };
        sql.push_str(&format!(" AND {below}"));
        if filter.roots {
            sql.push_str(" AND x.parent_id IS NULL");
        }
        sql.push_str(" ORDER BY x.created_at DESC, x.id DESC LIMIT ?8");
        self.all(
            &sql,
            params![
                blob(&org.0),
                place.0,
                blob(&place.1.0),
                filter.created_from.map_or(i64::MIN, |at| at.0),
                filter.created_until.map_or(i64::MAX, |at| at.0),
                filter.kind,
                filter.queue,
                most as i64,
                filter.parent.as_ref().map(|id| blob(&id.0)),
                filter.root.as_ref().map(|id| blob(&id.0)),
            ],
            execution,
        )
    }

    fn entries_after(&self, run: &Run, after: Option<Slot>, most: usize) -> Done<Vec<Entry>> {
        let (low, high) = behind(self, run, after)?;
        let sql = concat!(select_entry!(), "WHERE e.place BETWEEN ?1 AND ?2 ORDER BY e.place LIMIT ?3");
        self.all(sql, [low, high, most as i64], entry)
    }

    fn entries_before(&self, run: &Run, before: Option<Slot>, most: usize) -> Done<Vec<Entry>> {
        let (low, mut high) = span(run.home.run);
        if let Some(before) = before.filter(|before| before.segment <= run.segment) {
            high = place_of(self, run, before)? - 1;
        }
        let sql = concat!(select_entry!(), "WHERE e.place BETWEEN ?1 AND ?2 ORDER BY e.place DESC LIMIT ?3");
        self.all(sql, [low, high, most as i64], entry)
    }

    fn listed_tasks(&self, run: &Run, after: Option<Slot>, most: usize) -> Done<Vec<Task>> {
        let (low, high) = behind(self, run, after)?;
        let sql = concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 ORDER BY t.place LIMIT ?3");
        self.all(sql, [low, high, most as i64], |row| TaskRow::read(row).map(|row| row.task))
    }

    fn checkpoints_after(&self, run: &Run, after: Option<u32>, most: usize) -> Done<Vec<Checkpoint>> {
        let (first, high) = span(run.home.run);
        let low = after.map_or(Ok(first), |after| key(run.home.run, i64::from(after)).map(|key| key + 1))?;
        let sql = concat!(select_checkpoint!(), "WHERE c.key BETWEEN ?1 AND ?2 ORDER BY c.key LIMIT ?3");
        self.all(sql, [low, high, most as i64], checkpoint)
    }

    fn signals_after(&self, run: &Run, after: Option<i64>, most: usize) -> Done<Vec<Signal>> {
        let (first, high) = span(run.home.run);
        let low = after.map_or(Ok(first), |after| key(run.home.run, after).map(|key| key + 1))?;
        let sql = concat!(select_signal!(), "WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3");
        self.all(sql, [low, high, most as i64], signal)
    }

    fn events_after(&self, run: &Run, after: u64, most: usize) -> Done<Vec<Event>> {
        let (low, high) = span(run.home.run);
        let low = low.saturating_add(i64::try_from(after).unwrap_or(i64::MAX)).saturating_add(1);
        self.all(
            "SELECT key, at, kind, segment, sequence, data FROM event WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3",
            params![low, high, i64::try_from(most).unwrap_or(i64::MAX)],
            |row| {
                Ok(Event {
                    execution: run.id,
                    number: number_of(row.get(0)?),
                    at: Timestamp(row.get(1)?),
                    kind: EventKind::from_number(row.get(2)?).unwrap_or(EventKind::Warning),
                    segment: row.get(3)?,
                    sequence: row.get(4)?,
                    data: json_opt(row, 5)?.unwrap_or_else(|| serde_json::json!({})),
                })
            },
        )
    }

    fn last_event(&self, run: &Run) -> Done<u64> {
        high(self, run.home.run)
    }

    fn ops_of(&self, run: &Run, segment: u32) -> Done<Vec<RecordedOp>> {
        if segment > run.segment {
            return Ok(Vec::new());
        }
        // A fork has no ops of the segments before its checkpoint.
        let Some(start) = if_there(start_of(self, run, segment))? else { return Ok(Vec::new()) };
        let last = match segment < run.segment {
            true => match if_there(start_of(self, run, segment + 1))? {
                Some(next) => key(run.home.run, next)? - 1,
                None => return Ok(Vec::new()),
            },
            false => span(run.home.run).1,
        };
        Ok(between(self, key(run.home.run, start)?, last)?.into_iter().map(|op| op.op).collect())
    }

    fn entry(&self, org: OrgId, id: EntryId) -> Done<Entry> {
        one_entry(self, org, id)
    }

    fn listed_task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Done<Option<Task>> {
        Ok(TaskRow::of(self, org, execution, id)?.map(|row| row.task))
    }

    fn queue_loads(&self, org: OrgId, now: Timestamp) -> Done<Vec<QueueLoad>> {
        super::unserved::queues(self, org, now)
    }
}

/// The first and the last place of a run's rows after a slot.
fn behind(tx: &Tx, run: &Run, after: Option<Slot>) -> Done<(i64, i64)> {
    let (low, high) = span(run.home.run);
    Ok(match after {
        Some(after) if after.segment > run.segment => (high, high),
        Some(after) => (place_of(tx, run, after)? + 1, high),
        None => (low, high),
    })
}
