//! The statements of listings.

use super::checkpoint::{checkpoint, select_checkpoint};
use super::entry::{entry, one_entry, select_entry};
use super::event::high;
use super::fault::Done;
use super::op::between;
use super::run::{Run, execution, execution_columns};
use super::sets::{Value, row};
use super::signal::{select_signal, signal};
use super::task::{TaskRow, select_task};
use super::tx::Tx;
use super::values::json_opt;
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId};
use crate::model::{
    Checkpoint, Entry, Event, EventKind, Execution, ExecutionFilter, QueueLoad, RecordedOp, Signal, Status, Task,
};
use crate::storage::sql::{Listings, Place};
use std::collections::BTreeSet;

/// Lists the runs that fit a filter. There is one statement for each sort of filter, since each has an index in the
/// order of the list.
macro_rules! listed {
    ($from:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            execution_columns!(),
            " FROM ",
            $from,
            " CROSS JOIN LATERAL (SELECT * FROM agent_execution c WHERE c.org_id = $1 AND ",
            $condition,
            " AND (c.created_at, c.id) < ($2, $3) AND c.created_at >= $4 AND c.created_at < $5 \
             AND ($6::text IS NULL OR c.kind = $6) AND ($7::text IS NULL OR c.queue = $7) \
             AND ($8::smallint[] IS NULL OR c.status = ANY($8)) AND ($10::uuid IS NULL OR c.parent_id = $10) \
             AND ($11::uuid IS NULL OR (c.parent_id IS NOT NULL AND c.root_id = $11)) \
             AND (NOT $12::boolean OR c.parent_id IS NULL) ORDER BY c.created_at DESC, c.id DESC LIMIT $9) x \
             ORDER BY x.created_at DESC, x.id DESC LIMIT $9"
        )
    };
}

const LISTED: &str = listed!("(SELECT) AS one", "TRUE");
const LISTED_OF_KIND: &str = listed!("(SELECT) AS one", "c.kind = $6");
/// Runs of some statuses other than COMPLETED. Most runs are COMPLETED, so the index of statuses leaves these out.
const LISTED_OF_STATUS: &str = listed!("UNNEST($8::smallint[]) AS s(status)", "c.status = s.status AND c.status <> 5");
/// Runs of a parent or a root. These are few, so no index has them in the order of the list.
const LISTED_OF_PARENT: &str = listed!("(SELECT) AS one", "c.parent_id = $10");
const LISTED_OF_ROOT: &str = listed!("(SELECT) AS one", "c.parent_id IS NOT NULL AND c.root_id = $11");

impl Listings for Tx<'_> {
    fn runs_before(&self, org: OrgId, filter: &ExecutionFilter, place: Place, most: usize) -> Done<Vec<Execution>> {
        let listed = match (&filter.statuses[..], &filter.kind) {
            _ if filter.parent.is_some() => LISTED_OF_PARENT,
            _ if filter.root.is_some() => LISTED_OF_ROOT,
            (named, _) if !named.is_empty() && !named.contains(&Status::Completed) => LISTED_OF_STATUS,
            (_, Some(_)) => LISTED_OF_KIND,
            (_, None) => LISTED,
        };
        // Each status once: a run would be listed twice if the filter named its status twice.
        let statuses: BTreeSet<u8> = filter.statuses.iter().map(|status| *status as u8).collect();
        let statuses: Vec<Value> = statuses.into_iter().map(Value::from).collect();
        let statuses = (!statuses.is_empty()).then_some(statuses);
        self.all(
            listed,
            row![
                org.0,
                place.0,
                place.1.0,
                filter.created_from.map_or(i64::MIN, |at| at.0),
                filter.created_until.map_or(i64::MAX, |at| at.0),
                filter.kind.as_deref(),
                filter.queue.as_deref(),
                statuses,
                most as i64,
                filter.parent.map(|id| id.0),
                filter.root.map(|id| id.0),
                filter.roots,
            ],
            execution,
        )
    }

    fn entries_after(&self, run: &Run, after: Option<Slot>, most: usize) -> Done<Vec<Entry>> {
        let sql = concat!(
            select_entry!(),
            "WHERE e.org_id = $1 AND e.run = $2 AND (e.segment, e.sequence) > ($3, $4) ORDER BY e.segment, e.sequence LIMIT $5"
        );
        self.all(sql, behind(run, after, most), entry)
    }

    fn entries_before(&self, run: &Run, before: Option<Slot>, most: usize) -> Done<Vec<Entry>> {
        let sql = concat!(
            select_entry!(),
            "WHERE e.org_id = $1 AND e.run = $2 AND (e.segment, e.sequence) < ($3, $4) \
             ORDER BY e.segment DESC, e.sequence DESC LIMIT $5"
        );
        let (segment, sequence) =
            before.map_or((i64::from(i32::MAX), 0), |slot| (i64::from(slot.segment), i64::from(slot.sequence)));
        self.all(sql, row![run.home.key.org.0, run.home.key.run, segment, sequence, most as i64], entry)
    }

    fn listed_tasks(&self, run: &Run, after: Option<Slot>, most: usize) -> Done<Vec<Task>> {
        let sql = concat!(
            select_task!(),
            "WHERE t.org_id = $1 AND t.run = $2 AND (t.segment, t.sequence) > ($3, $4) ORDER BY t.segment, t.sequence LIMIT $5"
        );
        self.all(sql, behind(run, after, most), |row| TaskRow::read(row).map(|row| row.task))
    }

    fn checkpoints_after(&self, run: &Run, after: Option<u32>, most: usize) -> Done<Vec<Checkpoint>> {
        let sql = concat!(
            select_checkpoint!(),
            "WHERE c.org_id = $1 AND c.run = $2 AND c.sequence > $3 ORDER BY c.sequence LIMIT $4"
        );
        let after = after.map_or(-1, i64::from);
        self.all(sql, row![run.home.key.org.0, run.home.key.run, after, most as i64], checkpoint)
    }

    fn signals_after(&self, run: &Run, after: Option<i64>, most: usize) -> Done<Vec<Signal>> {
        let sql = concat!(select_signal!(), "WHERE org_id = $1 AND run = $2 AND number > $3 ORDER BY number LIMIT $4");
        self.all(sql, row![run.home.key.org.0, run.home.key.run, after.unwrap_or(-1), most as i64], signal)
    }

    fn events_after(&self, run: &Run, after: u64, most: usize) -> Done<Vec<Event>> {
        self.all(
            "SELECT number, at, kind, segment, sequence, data FROM event WHERE org_id = $1 AND run = $2 AND number > $3 \
             ORDER BY number LIMIT $4",
            row![run.home.key.org.0, run.home.key.run, after, i64::try_from(most).unwrap_or(i64::MAX)],
            |row| {
                Ok(Event {
                    execution: run.id,
                    number: row.get(0)?,
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
        high(self, run.home.key)
    }

    fn ops_of(&self, run: &Run, segment: u32) -> Done<Vec<RecordedOp>> {
        let (first, last) = (Slot { segment, sequence: 0 }, Slot { segment, sequence: i32::MAX as u32 });
        Ok(between(self, run.home.key, first, last)?.into_iter().map(|op| op.op).collect())
    }

    fn entry(&self, org: OrgId, id: EntryId) -> Done<Entry> {
        one_entry(self, org, id)
    }

    fn listed_task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Done<Option<Task>> {
        Ok(TaskRow::find(self, org, id)?.map(|row| row.task).filter(|task| task.execution == execution))
    }

    fn queue_loads(&self, org: OrgId, now: Timestamp) -> Done<Vec<QueueLoad>> {
        super::unserved::queues(self, org, now)
    }
}

/// The parameters for a run's rows after a slot.
fn behind(run: &Run, after: Option<Slot>, most: usize) -> Vec<Value> {
    let (segment, sequence) = after.map_or((-1, -1), |slot| (i64::from(slot.segment), i64::from(slot.sequence)));
    row![run.home.key.org.0, run.home.key.run, segment, sequence, most as i64]
}
