//! The port [`Catalog`], written once for all SQL backends: listings in keyset pages, each scoped to an org.

use super::backend::Backend;
use super::database_error::unknown;
use super::kinship::{Kinship, roll_ups};
use super::pages::{cursor, cut, parse_number, parse_slot};
use super::tables::{Tables, json, moment, text};
use super::values::row;
use super::{RunOf, Runs, Statements};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId, WorkerId};
use crate::model::{
    Checkpoint, Cursor, Entry, Event, Execution, ExecutionFilter, KnownWorker, Page, PageRequest, QueueLoad,
    RecordedOp, RollUp, Signal, Task,
};
use crate::storage::{Catalog, unserved_of};
use async_trait::async_trait;

/// Where a page of runs begins: after the run with this time of creation and this id.
pub(in crate::storage) type Place = (i64, ExecutionId);

/// The queries of listings. Each returns at most `most` rows.
pub(in crate::storage) trait Listings: Statements {
    /// Runs that fit a filter, newest first. The filter's metadata is not looked at.
    fn runs_before(
        &self,
        org: OrgId,
        filter: &ExecutionFilter,
        place: Place,
        most: usize,
    ) -> Result<Vec<Execution>, Self::Fault>;
    /// Entries that a run appended, in order of their place.
    fn entries_after(&self, run: &RunOf<Self>, after: Option<Slot>, most: usize) -> Result<Vec<Entry>, Self::Fault>;
    /// Entries that a run appended before a place, the last one first.
    fn entries_before(&self, run: &RunOf<Self>, before: Option<Slot>, most: usize) -> Result<Vec<Entry>, Self::Fault>;
    /// Tasks of a run, in order of their place.
    fn listed_tasks(&self, run: &RunOf<Self>, after: Option<Slot>, most: usize) -> Result<Vec<Task>, Self::Fault>;
    /// Checkpoints of a run, oldest first.
    fn checkpoints_after(
        &self,
        run: &RunOf<Self>,
        after: Option<u32>,
        most: usize,
    ) -> Result<Vec<Checkpoint>, Self::Fault>;
    /// Signals of a run, oldest first.
    fn signals_after(&self, run: &RunOf<Self>, after: Option<i64>, most: usize) -> Result<Vec<Signal>, Self::Fault>;
    /// Events of a run, oldest first.
    fn events_after(&self, run: &RunOf<Self>, after: u64, most: usize) -> Result<Vec<Event>, Self::Fault>;
    /// The number of the last event of a run.
    fn last_event(&self, run: &RunOf<Self>) -> Result<u64, Self::Fault>;
    /// A run's own ops of a segment.
    fn ops_of(&self, run: &RunOf<Self>, segment: u32) -> Result<Vec<RecordedOp>, Self::Fault>;
    /// An entry of an org.
    fn entry(&self, org: OrgId, id: EntryId) -> Result<Entry, Self::Fault>;
    /// A task of a run, by its id.
    fn listed_task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Option<Task>, Self::Fault>;
    /// How much work waits and runs in each queue of an org.
    fn queue_loads(&self, org: OrgId, now: Timestamp) -> Result<Vec<QueueLoad>, Self::Fault>;
}

/// Rows that a search reads at a time.
const SEARCH_SHARE: usize = 500;
/// How many runs one page of a search looks at: what it has found by then is answered, with the place to go on from.
const SEARCHED: usize = 10_000;

/// A page of runs, newest first. Metadata and words are filtered here, so pages of rows are read until one page of runs is full.
fn executions<T: Listings>(
    tx: &T,
    org: OrgId,
    filter: &ExecutionFilter,
    page: &PageRequest,
) -> Result<Page<Execution>, T::Fault> {
    let mut place = cursor(page, |text| {
        let (at, id) = text.split_once('.')?;
        Some((at.parse().ok()?, id.parse::<ExecutionId>().ok()?))
    })?
    .unwrap_or((i64::MAX, ExecutionId(uuid::Uuid::max())));
    let fits = filter.fits();
    let (mut found, mut looked) = (Vec::new(), 0);
    let share = if fits.is_search() { SEARCH_SHARE.max(page.limit + 1) } else { page.limit + 1 };
    loop {
        let rows = tx.runs_before(org, filter, place, share)?;
        let last = rows.len() < share;
        if let Some(run) = rows.last() {
            place = (run.created_at.0, run.new.id);
        }
        looked += rows.len();
        found.extend(rows.into_iter().filter(|run| fits.admits(run)));
        if last || found.len() > page.limit {
            break;
        }
        if fits.is_search() && looked >= SEARCHED {
            let next = Some(Cursor(format!("{}.{}", place.0, place.1)));
            return Ok(Page { items: found, next });
        }
    }
    Ok(cut(found, page, |run| format!("{}.{}", run.created_at.0, run.new.id)))
}

#[async_trait]
impl<B: Backend> Catalog for B {
    async fn execution(&self, org: OrgId, id: ExecutionId) -> Result<Execution> {
        self.read("read a run", org, move |tx| tx.execution_of(org, id)).await
    }

    async fn executions(&self, org: OrgId, filter: ExecutionFilter, page: PageRequest) -> Result<Page<Execution>> {
        self.read("list runs", org, move |tx| executions(tx, org, &filter, &page)).await
    }

    async fn roll_ups(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<RollUp>> {
        let runs = executions.to_vec();
        self.read("add up what a family has used", org, move |tx| roll_ups(tx, org, &runs)).await
    }

    async fn descendants(&self, org: OrgId, execution: ExecutionId, limit: usize) -> Result<Vec<Execution>> {
        self.read("list a family", org, move |tx| {
            tx.find_run(org, execution)?;
            tx.descendants(org, execution, limit)
        })
        .await
    }

    async fn entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>> {
        self.read("list entries", org, move |tx| {
            let run = tx.find_run(org, execution)?;
            let rows = tx.entries_after(&run, cursor(&page, parse_slot)?, page.limit + 1)?;
            Ok(cut(rows, &page, |entry| entry.slot.to_string()))
        })
        .await
    }

    async fn latest_entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>> {
        self.read("list entries", org, move |tx| {
            let run = tx.find_run(org, execution)?;
            let rows = tx.entries_before(&run, cursor(&page, parse_slot)?, page.limit + 1)?;
            Ok(cut(rows, &page, |entry| entry.slot.to_string()))
        })
        .await
    }

    async fn entry(&self, org: OrgId, id: EntryId) -> Result<Entry> {
        self.read("read an entry", org, move |tx| tx.entry(org, id)).await
    }

    async fn tasks(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Task>> {
        self.read("list tasks", org, move |tx| {
            let run = tx.find_run(org, execution)?;
            let rows = tx.listed_tasks(&run, cursor(&page, parse_slot)?, page.limit + 1)?;
            Ok(cut(rows, &page, |task| task.slot.to_string()))
        })
        .await
    }

    async fn task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Task> {
        self.read("read a task", org, move |tx| {
            tx.listed_task(org, execution, id)?.ok_or_else(|| unknown("task", id).into())
        })
        .await
    }

    async fn checkpoints(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Checkpoint>> {
        self.read("list checkpoints", org, move |tx| {
            let run = tx.find_run(org, execution)?;
            let rows = tx.checkpoints_after(&run, cursor(&page, parse_number)?, page.limit + 1)?;
            Ok(cut(rows, &page, |checkpoint| checkpoint.sequence.to_string()))
        })
        .await
    }

    async fn signals(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Signal>> {
        self.read("list signals", org, move |tx| {
            let run = tx.find_run(org, execution)?;
            let rows = tx.signals_after(&run, cursor(&page, parse_number)?, page.limit + 1)?;
            Ok(cut(rows, &page, |signal| signal.number.to_string()))
        })
        .await
    }

    async fn events(&self, org: OrgId, execution: ExecutionId, after: u64, limit: usize) -> Result<Vec<Event>> {
        self.read("read events", org, move |tx| tx.events_after(&tx.find_run(org, execution)?, after, limit)).await
    }

    async fn last_event(&self, org: OrgId, execution: ExecutionId) -> Result<u64> {
        self.read("read events", org, move |tx| tx.last_event(&tx.find_run(org, execution)?)).await
    }

    async fn journal(&self, org: OrgId, execution: ExecutionId, segment: u32) -> Result<Vec<RecordedOp>> {
        self.read("read a journal", org, move |tx| tx.ops_of(&tx.find_run(org, execution)?, segment)).await
    }

    async fn queues(&self, org: OrgId) -> Result<Vec<QueueLoad>> {
        let now = self.now();
        self.read("look at the queues", org, move |tx| tx.queue_loads(org, now)).await
    }

    async fn unserved(&self, org: OrgId) -> Result<Vec<(String, String, u64)>> {
        Ok(unserved_of(self.queues(org).await?))
    }

    async fn workers(&self, org: OrgId, page: PageRequest) -> Result<Page<KnownWorker>> {
        self.read("list workers", org, move |tx| {
            let after = cursor(&page, parse_number::<uuid::Uuid>)?.unwrap_or_default();
            let sql = "SELECT id, name, queues, kinds, seen_at, alive_until FROM worker WHERE org_id = $1 AND id > $2 \
                       ORDER BY id LIMIT $3";
            let rows = tx.query(sql, row![org.0, after, page.limit as i64 + 1], |row| {
                Ok(KnownWorker {
                    id: WorkerId(row.id(0)?),
                    name: text(row, 1)?,
                    queues: json(row, 2)?,
                    serves: json(row, 3)?,
                    seen_at: moment(row, 4)?,
                    alive_until: moment(row, 5)?,
                })
            })?;
            Ok(cut(rows, &page, |worker| worker.id.to_string()))
        })
        .await
    }
}
