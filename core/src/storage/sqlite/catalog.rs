//! Listings: keyset pages, every one scoped to an org.

use super::checkpoint::{checkpoint, select_checkpoint};
use super::entry::{entry, select_entry};
use super::facts::{place_of, start_of};
use super::fault::Done;
use super::op::between;
use super::run::{Run, execution, select_execution};
use super::signal::{select_signal, signal};
use super::task::{TaskRow, select_task};
use super::tx::Tx;
use super::values::{blob, id, json, json_opt, key, number_of, span};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{ExecutionId, OrgId, Slot, WorkerId};
use crate::model::{
    Checkpoint, Cursor, Entry, Event, EventKind, Execution, ExecutionFilter, KnownWorker, MAX_PAGE, Page, PageRequest,
    RecordedOp, Signal, Task,
};
use crate::storage::sql::Runs;
use rusqlite::{Row, params};
use std::str::FromStr;

/// Runs, newest first.
pub(super) fn executions(tx: &Tx, org: OrgId, filter: &ExecutionFilter, page: &PageRequest) -> Done<Page<Execution>> {
    let mut place = cursor(page, |text| {
        let (at, id) = text.split_once('.')?;
        Some((at.parse().ok()?, id.parse::<ExecutionId>().ok()?))
    })?
    .unwrap_or((i64::MAX, ExecutionId(uuid::Uuid::max())));
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
    sql.push_str(" ORDER BY x.created_at DESC, x.id DESC LIMIT ?8");
    let metadata =
        |run: &Execution| filter.metadata.iter().all(|(name, value)| run.new.metadata.get(name) == Some(value));
    let mut found = Vec::new();
    loop {
        let share = page.limit + 1;
        let rows = tx.all(
            &sql,
            params![
                blob(&org.0),
                place.0,
                blob(&place.1.0),
                filter.created_from.map_or(i64::MIN, |at| at.0),
                filter.created_until.map_or(i64::MAX, |at| at.0),
                filter.kind,
                filter.queue,
                share as i64,
                filter.parent.as_ref().map(|id| blob(&id.0)),
                filter.root.as_ref().map(|id| blob(&id.0)),
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
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    slot: impl Fn(&T) -> Slot,
) -> Done<Page<T>> {
    let (low, high) = span(run.home.run);
    let low = match cursor(page, parse_slot)? {
        Some(after) if after.segment > run.segment => high,
        Some(after) => place_of(tx, run, after)? + 1,
        None => low,
    };
    let rows = tx.all(sql, params![low, high, (page.limit + 1) as i64], read)?;
    Ok(cut(rows, page, |row| slot(row).to_string()))
}

/// All entries a run appended.
pub(super) fn entries(tx: &Tx, org: OrgId, id: ExecutionId, page: &PageRequest) -> Done<Page<Entry>> {
    let run = tx.find_run(org, id)?;
    let sql = concat!(select_entry!(), "WHERE e.place BETWEEN ?1 AND ?2 ORDER BY e.place LIMIT ?3");
    by_place(tx, &run, page, sql, entry, |entry| entry.slot)
}

/// Tasks of a run.
pub(super) fn tasks(tx: &Tx, org: OrgId, id: ExecutionId, page: &PageRequest) -> Done<Page<Task>> {
    let run = tx.find_run(org, id)?;
    let sql = concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 ORDER BY t.place LIMIT ?3");
    by_place(tx, &run, page, sql, |row| TaskRow::read(row).map(|row| row.task), |task| task.slot)
}

/// Checkpoints of a run, oldest first.
pub(super) fn checkpoints(tx: &Tx, org: OrgId, id: ExecutionId, page: &PageRequest) -> Done<Page<Checkpoint>> {
    let run = tx.find_run(org, id)?;
    let after = cursor(page, parse_number::<u32>)?;
    let low = match after {
        Some(after) => key(run.home.run, i64::from(after))? + 1,
        None => span(run.home.run).0,
    };
    let sql = concat!(select_checkpoint!(), "WHERE c.key BETWEEN ?1 AND ?2 ORDER BY c.key LIMIT ?3");
    let rows = tx.all(sql, params![low, span(run.home.run).1, (page.limit + 1) as i64], checkpoint)?;
    Ok(cut(rows, page, |row| row.sequence.to_string()))
}

/// Signals of a run, oldest first.
pub(super) fn signals(tx: &Tx, org: OrgId, id: ExecutionId, page: &PageRequest) -> Done<Page<Signal>> {
    let run = tx.find_run(org, id)?;
    let low = match cursor(page, parse_number::<i64>)? {
        Some(after) => key(run.home.run, after)? + 1,
        None => span(run.home.run).0,
    };
    let sql = concat!(select_signal!(), "WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3");
    let rows = tx.all(sql, params![low, span(run.home.run).1, (page.limit + 1) as i64], signal)?;
    Ok(cut(rows, page, |row| row.number.to_string()))
}

/// Durable events of a run after a number, oldest first.
pub(super) fn events(tx: &Tx, org: OrgId, id: ExecutionId, after: u64, limit: usize) -> Done<Vec<Event>> {
    let run = tx.find_run(org, id)?;
    let (low, high) = span(run.home.run);
    let low = low.saturating_add(i64::try_from(after).unwrap_or(i64::MAX)).saturating_add(1);
    tx.all(
        "SELECT key, at, kind, segment, sequence, data FROM event WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3",
        params![low, high, i64::try_from(limit).unwrap_or(i64::MAX)],
        |row| {
            Ok(Event {
                execution: id,
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

/// The ops of a segment as recorded.
pub(super) fn journal(tx: &Tx, org: OrgId, id: ExecutionId, segment: u32) -> Done<Vec<RecordedOp>> {
    let run = tx.find_run(org, id)?;
    if segment > run.segment {
        return Ok(Vec::new());
    }
    let start = match start_of(tx, &run, segment) {
        Ok(start) => start,
        // A fork has no ops of the segments before its checkpoint.
        Err(super::fault::Fault::Domain(_)) => return Ok(Vec::new()),
        Err(fault) => return Err(fault),
    };
    let last = match segment < run.segment {
        true => match start_of(tx, &run, segment + 1) {
            Ok(next) => key(run.home.run, next)? - 1,
            Err(super::fault::Fault::Domain(_)) => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        },
        false => span(run.home.run).1,
    };
    Ok(between(tx, key(run.home.run, start)?, last)?.into_iter().map(|op| op.op).collect())
}

/// Workers of an org.
pub(super) fn workers(tx: &Tx, org: OrgId, page: &PageRequest) -> Done<Page<KnownWorker>> {
    let after = cursor(page, parse_number::<uuid::Uuid>)?.unwrap_or_default();
    let sql = "SELECT id, name, queues, kinds, seen_at, alive_until FROM worker WHERE org_id = ?1 AND id > ?2 \
               ORDER BY id LIMIT ?3";
    let rows = tx.all(sql, params![blob(&org.0), blob(&after), (page.limit + 1) as i64], |row| {
        Ok(KnownWorker {
            id: WorkerId(id(row, 0)?),
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
