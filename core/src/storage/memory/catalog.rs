//! Listings: what people and programs read, page by page.

use super::state::{State, not_found};
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, Slot, TaskId, WorkerId};
use crate::model::{
    Checkpoint, Cursor, Entry, Event, Execution, ExecutionFilter, KnownWorker, MAX_PAGE, Page, PageRequest, RecordedOp,
    Signal, Task,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::str::FromStr;

type Place = (Timestamp, ExecutionId);

impl State {
    pub(super) fn executions(
        &self,
        org: OrgId,
        filter: &ExecutionFilter,
        page: &PageRequest,
    ) -> Result<Page<Execution>> {
        let after = cursor(page, |text| {
            let (at, id) = text.split_once('.')?;
            Some((Timestamp(at.parse().ok()?), id.parse().ok()?))
        })?;
        let first = Bound::Included((org, Timestamp(i64::MIN), ExecutionId(uuid::Uuid::nil())));
        let last = match after {
            Some((at, id)) => Bound::Excluded((org, at, id)),
            None => Bound::Included((org, Timestamp(i64::MAX), ExecutionId(uuid::Uuid::max()))),
        };
        let newest = self.ages.range((first, last)).rev();
        let runs = newest.filter_map(|(_, at, id)| Some(((*at, *id), self.runs.get(&(org, *id))?)));
        let fits = filter.fits();
        let wanted = runs.filter(|(_, run)| filter.admits(&run.exec) && fits.admits(&run.exec));
        let wanted = wanted.map(|(place, run)| (place, run.exec.clone()));
        Ok(cut(wanted, page, |(at, id): &Place| format!("{}.{id}", at.0)))
    }

    pub(super) fn entries_of(&self, org: OrgId, id: ExecutionId, page: &PageRequest) -> Result<Page<Entry>> {
        let run = self.run(org, id)?;
        let rows = rest(&run.entries, cursor(page, parse_slot)?);
        Ok(cut(rows.map(|(slot, entry)| (*slot, entry.clone())), page, Slot::to_string))
    }

    pub(super) fn latest_entries_of(&self, org: OrgId, id: ExecutionId, page: &PageRequest) -> Result<Page<Entry>> {
        let run = self.run(org, id)?;
        let before = cursor(page, parse_slot)?.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = run.entries.range((Bound::Unbounded, before)).rev();
        Ok(cut(rows.map(|(slot, entry)| (*slot, entry.clone())), page, Slot::to_string))
    }

    pub(super) fn tasks_of(&self, org: OrgId, id: ExecutionId, page: &PageRequest) -> Result<Page<Task>> {
        let run = self.run(org, id)?;
        let rows = rest(&run.tasks, cursor(page, parse_slot)?);
        Ok(cut(rows.map(|(slot, row)| (*slot, row.task.clone())), page, Slot::to_string))
    }

    pub(super) fn task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Task> {
        let (_, slot) =
            self.task_place(org, id).ok().filter(|place| place.0 == execution).ok_or_else(|| not_found("task", id))?;
        let row = self.run(org, execution)?.tasks.get(&slot);
        row.map(|row| row.task.clone()).ok_or_else(|| not_found("task", id))
    }

    pub(super) fn checkpoints_of(&self, org: OrgId, id: ExecutionId, page: &PageRequest) -> Result<Page<Checkpoint>> {
        let run = self.run(org, id)?;
        let rows = rest(&run.checkpoints, cursor(page, parse_number)?);
        Ok(cut(rows.map(|(sequence, row)| (*sequence, row.clone())), page, u32::to_string))
    }

    pub(super) fn signals_of(&self, org: OrgId, id: ExecutionId, page: &PageRequest) -> Result<Page<Signal>> {
        let run = self.run(org, id)?;
        let rows = rest(&run.signals, cursor(page, parse_number)?);
        Ok(cut(rows.map(|(number, row)| (*number, row.clone())), page, u64::to_string))
    }

    pub(super) fn events_of(&self, org: OrgId, id: ExecutionId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let run = self.run(org, id)?;
        // Events are numbered from 1 without gaps, so the event after number n has the index n.
        let start = usize::try_from(after).unwrap_or(usize::MAX).min(run.events.len());
        Ok(run.events[start..].iter().take(limit).cloned().collect())
    }

    pub(super) fn workers_of(&self, org: OrgId, page: &PageRequest) -> Result<Page<KnownWorker>> {
        let after = cursor(page, parse_number)?
            .map_or(Bound::Included((org, WorkerId(uuid::Uuid::nil()))), |id| Bound::Excluded((org, WorkerId(id))));
        let rows = self.workers.range((after, Bound::Included((org, WorkerId(uuid::Uuid::max())))));
        Ok(cut(rows.map(|((_, id), row)| (*id, row.known(*id))), page, |id: &WorkerId| id.to_string()))
    }

    pub(super) fn journal(&self, org: OrgId, id: ExecutionId, segment: u32) -> Result<Vec<RecordedOp>> {
        let run = self.run(org, id)?;
        let of_segment = Slot { segment, sequence: 0 }..=Slot { segment, sequence: u32::MAX };
        Ok(run.ops.range(of_segment).map(|(slot, op)| run.recorded(*slot, op)).collect())
    }
}

impl ExecutionFilter {
    /// Whether a run fits the filter, but for what is looked for in the run itself.
    fn admits(&self, run: &Execution) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&run.status))
            && self.kind.as_ref().is_none_or(|kind| *kind == run.new.kind)
            && self.queue.as_ref().is_none_or(|queue| *queue == run.new.queue)
            && self.created_from.is_none_or(|from| run.created_at >= from)
            && self.created_until.is_none_or(|until| run.created_at < until)
            && self.parent.is_none_or(|parent| run.parent == Some(parent))
            && self.root.is_none_or(|root| run.parent.is_some() && run.root == root)
            && (!self.roots || run.parent.is_none())
    }
}

/// The place after which a page starts. Refuses a limit out of bounds, and a cursor that no listing has returned.
pub(super) fn cursor<K>(page: &PageRequest, parse: impl Fn(&str) -> Option<K>) -> Result<Option<K>> {
    if !(1..=MAX_PAGE).contains(&page.limit) {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("a page of {} items was asked for; ask for 1 to {MAX_PAGE}", page.limit),
        ));
    }
    let Some(Cursor(text)) = &page.after else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| {
        Error::new(Code::InvalidArgument, format!("{text:?} is no cursor of this listing; pass one it returned"))
    })
}

fn rest<K: Ord + Copy, V>(rows: &BTreeMap<K, V>, after: Option<K>) -> impl Iterator<Item = (&K, &V)> {
    rows.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
}

/// Makes a page of the first rows, with the cursor of the next page if there are more.
pub(super) fn cut<K, T>(
    rows: impl Iterator<Item = (K, T)>,
    page: &PageRequest,
    name: impl Fn(&K) -> String,
) -> Page<T> {
    let mut rows: Vec<_> = rows.take(page.limit + 1).collect();
    let more = rows.len() > page.limit;
    rows.truncate(page.limit);
    let next = rows.last().filter(|_| more).map(|(key, _)| Cursor(name(key)));
    Page { items: rows.into_iter().map(|(_, item)| item).collect(), next }
}

fn parse_slot(text: &str) -> Option<Slot> {
    let (segment, sequence) = text.split_once('-')?;
    Some(Slot { segment: segment.parse().ok()?, sequence: sequence.parse().ok()? })
}

pub(super) fn parse_number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}
