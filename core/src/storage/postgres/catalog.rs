//! Listings: keyset pages, every one scoped to an org.

use super::checkpoint::{checkpoint, select_checkpoint};
use super::entry::{entry, select_entry};
use super::fault::Done;
use super::op::between;
use super::run::{Run, execution, execution_columns};
use super::sets::{Value, row};
use super::signal::{select_signal, signal};
use super::task::{TaskRow, select_task};
use super::tx::Tx;
use super::values::{Row, json, json_opt};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{ExecutionId, OrgId, Slot, WorkerId};
use crate::model::{
    Checkpoint, Cursor, Entry, Event, EventKind, Execution, ExecutionFilter, KnownWorker, MAX_PAGE, Page, PageRequest,
    RecordedOp, Signal, Status, Task,
};
use crate::storage::sql::Runs;
use std::collections::BTreeSet;
use std::str::FromStr;

/// Runs by what a filter names: all of an org, of a kind, or with one of some statuses, each with an index in this order.
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
             AND ($11::uuid IS NULL OR (c.parent_id IS NOT NULL AND c.root_id = $11)) ORDER BY c.created_at DESC, c.id DESC LIMIT $9) x \
             ORDER BY x.created_at DESC, x.id DESC LIMIT $9"
        )
    };
}

const LISTED: &str = listed!("(SELECT) AS one", "TRUE");
const LISTED_OF_KIND: &str = listed!("(SELECT) AS one", "c.kind = $6");
/// Most runs of a database are COMPLETED; the index of statuses leaves them out, and so does who asks this.
const LISTED_OF_STATUS: &str = listed!("UNNEST($8::smallint[]) AS s(status)", "c.status = s.status AND c.status <> 5");
/// Families are small.
const LISTED_OF_PARENT: &str = listed!("(SELECT) AS one", "c.parent_id = $10");
const LISTED_OF_ROOT: &str = listed!("(SELECT) AS one", "c.parent_id IS NOT NULL AND c.root_id = $11");

/// Runs, newest first.
pub(super) fn executions(tx: &Tx, org: OrgId, filter: &ExecutionFilter, page: &PageRequest) -> Done<Page<Execution>> {
    let mut place = cursor(page, |text| {
        let (at, id) = text.split_once('.')?;
        Some((at.parse().ok()?, id.parse::<ExecutionId>().ok()?))
    })?
    .unwrap_or((i64::MAX, ExecutionId(uuid::Uuid::max())));
    let listed = match (&filter.statuses[..], &filter.kind) {
        _ if filter.parent.is_some() => LISTED_OF_PARENT,
        _ if filter.root.is_some() => LISTED_OF_ROOT,
        (named, _) if !named.is_empty() && !named.contains(&Status::Completed) => LISTED_OF_STATUS,
        (_, Some(_)) => LISTED_OF_KIND,
        (_, None) => LISTED,
    };
    // Each once, however often it was named.
    let statuses: BTreeSet<u8> = filter.statuses.iter().map(|status| *status as u8).collect();
    let statuses: Vec<Value> = statuses.into_iter().map(Value::from).collect();
    let statuses = (!statuses.is_empty()).then_some(statuses);
    let metadata =
        |run: &Execution| filter.metadata.iter().all(|(name, value)| run.new.metadata.get(name) == Some(value));
    let mut found = Vec::new();
    loop {
        let share = page.limit + 1;
        let rows = tx.all(
            listed,
            row![
                org.0,
                place.0,
                place.1.0,
                filter.created_from.map_or(i64::MIN, |at| at.0),
                filter.created_until.map_or(i64::MAX, |at| at.0),
                filter.kind.as_deref(),
                filter.queue.as_deref(),
                statuses.clone(),
                share as i64,
                filter.parent.map(|id| id.0),
                filter.root.map(|id| id.0),
            ],
            execution,
        )?;
        let last = rows.len() < share;
        if let Some(run) = rows.last() {
            place = (run.created_at.0, run.new.id);
        }
        found.extend(rows.into_iter().filter(metadata));
        if last || found.len() > page.limit {
            break;
        }
    }
    Ok(cut(found, page, |run| format!("{}.{}", run.created_at.0, run.new.id)))
}

/// A listing of a run's rows in order of their place.
fn by_place<T>(
    tx: &Tx,
    run: &Run,
    page: &PageRequest,
    sql: &'static str,
    read: impl FnMut(&Row) -> Done<T>,
    slot: impl Fn(&T) -> Slot,
) -> Done<Page<T>> {
    let after = cursor(page, parse_slot)?.map(|slot| (i64::from(slot.segment), i64::from(slot.sequence)));
    let (segment, sequence) = after.unwrap_or((-1, -1));
    let limit = (page.limit + 1) as i64;
    let rows = tx.all(sql, row![run.home.key.org.0, run.home.key.run, segment, sequence, limit], read)?;
    Ok(cut(rows, page, |row| slot(row).to_string()))
}

/// All entries a run appended.
pub(super) fn entries(tx: &Tx, org: OrgId, id: ExecutionId, page: &PageRequest) -> Done<Page<Entry>> {
    let run = tx.find_run(org, id)?;
    let sql = concat!(
        select_entry!(),
        "WHERE e.org_id = $1 AND e.run = $2 AND (e.segment, e.sequence) > ($3, $4) ORDER BY e.segment, e.sequence LIMIT $5"
    );
    by_place(tx, &run, page, sql, entry, |entry| entry.slot)
}

/// Tasks of a run.
pub(super) fn tasks(tx: &Tx, org: OrgId, id: ExecutionId, page: &PageRequest) -> Done<Page<Task>> {
    let run = tx.find_run(org, id)?;
    let sql = concat!(
        select_task!(),
        "WHERE t.org_id = $1 AND t.run = $2 AND (t.segment, t.sequence) > ($3, $4) ORDER BY t.segment, t.sequence LIMIT $5"
    );
    by_place(tx, &run, page, sql, |row| TaskRow::read(row).map(|row| row.task), |task| task.slot)
}

/// Checkpoints of a run, oldest first.
pub(super) fn checkpoints(tx: &Tx, org: OrgId, id: ExecutionId, page: &PageRequest) -> Done<Page<Checkpoint>> {
    let run = tx.find_run(org, id)?;
    let after = cursor(page, parse_number::<u32>)?.map_or(-1, i64::from);
    let sql = concat!(
        select_checkpoint!(),
        "WHERE c.org_id = $1 AND c.run = $2 AND c.sequence > $3 ORDER BY c.sequence LIMIT $4"
    );
    let rows = tx.all(sql, row![run.home.key.org.0, run.home.key.run, after, (page.limit + 1) as i64], checkpoint)?;
    Ok(cut(rows, page, |row| row.sequence.to_string()))
}

/// Signals of a run, oldest first.
pub(super) fn signals(tx: &Tx, org: OrgId, id: ExecutionId, page: &PageRequest) -> Done<Page<Signal>> {
    let run = tx.find_run(org, id)?;
    let after = cursor(page, parse_number::<i64>)?.unwrap_or(-1);
    let sql = concat!(select_signal!(), "WHERE org_id = $1 AND run = $2 AND number > $3 ORDER BY number LIMIT $4");
    let rows = tx.all(sql, row![run.home.key.org.0, run.home.key.run, after, (page.limit + 1) as i64], signal)?;
    Ok(cut(rows, page, |row| row.number.to_string()))
}

/// Durable events of a run after a number, oldest first.
pub(super) fn events(tx: &Tx, org: OrgId, id: ExecutionId, after: u64, limit: usize) -> Done<Vec<Event>> {
    let run = tx.find_run(org, id)?;
    tx.all(
        "SELECT number, at, kind, segment, sequence, data FROM event WHERE org_id = $1 AND run = $2 AND number > $3 \
         ORDER BY number LIMIT $4",
        row![run.home.key.org.0, run.home.key.run, after, i64::try_from(limit).unwrap_or(i64::MAX)],
        |row| {
            Ok(Event {
                execution: id,
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

/// The ops of a segment as recorded.
pub(super) fn journal(tx: &Tx, org: OrgId, id: ExecutionId, segment: u32) -> Done<Vec<RecordedOp>> {
    let run = tx.find_run(org, id)?;
    let (first, last) = (Slot { segment, sequence: 0 }, Slot { segment, sequence: i32::MAX as u32 });
    Ok(between(tx, run.home.key, first, last)?.into_iter().map(|op| op.op).collect())
}

/// Workers of an org.
pub(super) fn workers(tx: &Tx, org: OrgId, page: &PageRequest) -> Done<Page<KnownWorker>> {
    let after = cursor(page, parse_number::<uuid::Uuid>)?.unwrap_or_default();
    let sql = "SELECT id, name, queues, kinds, seen_at, alive_until FROM worker WHERE org_id = $1 AND id > $2 \
               ORDER BY id LIMIT $3";
    let rows = tx.all(sql, row![org.0, after, (page.limit + 1) as i64], |row| {
        Ok(KnownWorker {
            id: WorkerId(row.get(0)?),
            name: row.get(1)?,
            queues: json(row, 2)?,
            serves: json(row, 3)?,
            seen_at: Timestamp(row.get(4)?),
            alive_until: Timestamp(row.get(5)?),
        })
    })?;
    Ok(cut(rows, page, |worker: &KnownWorker| worker.id.to_string()))
}

/// The place a page starts after; refuses limits and cursors that are none of ours.
pub(super) fn cursor<K>(page: &PageRequest, parse: impl Fn(&str) -> Option<K>) -> Done<Option<K>> {
    if !(1..=MAX_PAGE).contains(&page.limit) {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("a page of {} items was asked for; ask for 1 to {MAX_PAGE}", page.limit),
        )
        .into());
    }
    let Some(Cursor(text)) = &page.after else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| {
        Error::new(Code::InvalidArgument, format!("{text:?} is no cursor of this listing; pass one it returned")).into()
    })
}

/// The first rows, and where the next page starts if there are more.
pub(super) fn cut<T>(mut rows: Vec<T>, page: &PageRequest, name: impl Fn(&T) -> String) -> Page<T> {
    let more = rows.len() > page.limit;
    rows.truncate(page.limit);
    let next = rows.last().filter(|_| more).map(|row| Cursor(name(row)));
    Page { items: rows, next }
}

fn parse_slot(text: &str) -> Option<Slot> {
    let (segment, sequence) = text.split_once('-')?;
    Some(Slot { segment: segment.parse().ok()?, sequence: sequence.parse().ok()? })
}

pub(super) fn parse_number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}
