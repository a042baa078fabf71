//! The in-process backend: its runs end with the process. It is also the reference model of the contract.
//!
//! It shares no algorithm with the SQL backends, on purpose. The differential tests make the same calls on it and on
//! them and compare the answers. A mistake in shared code would give the same wrong answer on both, and the tests would
//! not notice it.
//!
//! All rows are plain ordered maps behind one mutex. Every call is synchronous and atomic: it checks everything before
//! it writes anything. So equal calls at equal times give equal answers, which the differential tests rely on.

mod budgets;
mod catalog;
mod claims;
mod commit;
mod definitions;
mod directory;
mod executions;
mod family;
mod fork;
mod hand_off;
mod housekeeping;
mod kinship;
mod load;
mod machines;
mod messages;
mod payloads;
mod queues;
mod retention;
mod rows;
mod schedules;
mod segment;
mod state;
mod tasks;
mod unfenced;
mod unserved;

use super::{
    AgentStorage, Catalog, ClaimRequest, EventStream, Families, FamilyStream, Heartbeat, HeartbeatAnswer, Housekeeping,
    Load, Previews, ServerSide, Standing, Storage, WorkSource, WorkerInfo, no_backup, unserved_of,
};
use crate::clock::{Clock, Timestamp};
use crate::error::Result;
use crate::id::{EntryId, ExecutionId, OpId, OrgId, TaskId, WorkerId};
use crate::model::{
    Cancellation, Checkpoint, Claim, ClaimedTask, CommitAnswer, CommitRequest, Created, Divergence, Entry, Event,
    EventId, Execution, ExecutionFilter, Fact, ForkRequest, KnownWorker, Lease, NewExecution, NewSignal, Page,
    PageRequest, Purse, QueueLoad, RecordedOp, Relative, Resolution, ResumeRequest, RollUp, Rows, Segment, Signal,
    SignalStored, Task, TaskReport,
};
use crate::payload::{MAX_PAYLOAD, Payload, RowOf};
use crate::storage::stored::part_of;
use crate::streaming::{Chunks, Hints};
use crate::sync::Mutex;
use async_trait::async_trait;
use bytes::Bytes;
use state::State;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A store that lives as long as its process.
pub struct MemoryStorage {
    state: Mutex<State>,
    hints: Hints,
    clock: Arc<dyn Clock>,
}

impl MemoryStorage {
    /// An empty store that reads the time from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), hints: Hints::default(), clock }
    }

    /// Damages a stored checkpoint, so that its hash no longer fits. False if there is none.
    #[cfg(any(test, feature = "testing"))]
    pub fn corrupt_checkpoint(&self, org: OrgId, execution: ExecutionId, sequence: u32) -> bool {
        self.call(|state, _| {
            let run = state.run_mut(org, execution).ok();
            run.and_then(|run| run.checkpoints.get_mut(&sequence)).map(|row| row.hash[0] ^= 1).is_some()
        })
    }

    /// Carries out one call under the lock, then announces what it changed.
    fn call<T>(&self, body: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state.lock();
        let answer = body(&mut state, self.clock.now());
        let news = std::mem::take(&mut state.news);
        drop(state);
        news.announce(&self.hints);
        answer
    }
}

#[async_trait]
impl AgentStorage for MemoryStorage {
    async fn create_execution(&self, new: NewExecution) -> Result<Created> {
        new.check()?;
        crate::model::machine::check_named(&new.queue)?;
        self.call(|state, now| state.create(new, now))
    }

    async fn load_segment(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<Segment> {
        self.call(|state, now| state.load_segment(org, execution, lease, now))
    }

    async fn facts_after(
        &self,
        org: OrgId,
        execution: ExecutionId,
        after: u64,
    ) -> Result<(Vec<Fact>, u64, Option<Purse>)> {
        self.call(|state, _| {
            let run = state.run(org, execution)?;
            let purse = state.told_purse((org, execution), false);
            Ok((run.facts_after(after, Some(run.exec.segment)), run.high, purse))
        })
    }

    async fn standings(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<Standing>> {
        self.call(|state, _| {
            let there = executions.iter().filter_map(|&id| state.run(org, id).ok());
            Ok(there.map(|run| Standing::of(run.exec.new.id, run.high, run.exec.status)).collect())
        })
    }

    async fn commit(&self, request: CommitRequest) -> Result<CommitAnswer> {
        self.call(|state, now| state.commit(request, now))
    }

    fn brings_tasks(&self) -> bool {
        false
    }

    async fn commit_and_claim(
        &self,
        request: CommitRequest,
        _: &ClaimRequest,
    ) -> Result<(CommitAnswer, Vec<ClaimedTask>)> {
        Ok((self.commit(request).await?, Vec::new()))
    }

    fn max_payload(&self) -> u64 {
        MAX_PAYLOAD
    }

    async fn read_payload_part(&self, org: OrgId, payload: &Payload, offset: u64, length: usize) -> Result<Bytes> {
        part_of(&self.read_payload(org, payload).await?, offset, length)
    }

    async fn store_signal(&self, signal: NewSignal) -> Result<SignalStored> {
        signal.check()?;
        self.call(|state, now| state.store_signal(signal, now))
    }

    async fn request_cancel(&self, org: OrgId, execution: ExecutionId, cancel: Cancellation) -> Result<Execution> {
        self.call(|state, now| state.request_cancel(org, execution, cancel, false, now))
    }

    async fn remove_execution(&self, org: OrgId, execution: ExecutionId) -> Result<()> {
        self.call(|state, _| state.remove_one(org, execution))
    }

    async fn resume(&self, org: OrgId, execution: ExecutionId, request: ResumeRequest) -> Result<Execution> {
        self.call(|state, now| state.resume(org, execution, request, now))
    }

    async fn resolve_task(&self, org: OrgId, op: OpId, resolution: Resolution) -> Result<Task> {
        self.call(|state, now| state.resolve_task(org, &op, resolution, now))
    }

    async fn resolve_divergence(&self, org: OrgId, execution: ExecutionId, decision: Divergence) -> Result<Execution> {
        self.call(|state, now| state.resolve_divergence(org, execution, decision, now))
    }

    async fn fork(&self, request: ForkRequest) -> Result<Execution> {
        request.check()?;
        self.call(|state, now| state.fork(request, now))
    }

    async fn store_payload(&self, org: OrgId, mut payload: Payload) -> Result<Payload> {
        self.call(|state, _| state.payloads.store(org, &mut payload))?;
        Ok(payload)
    }

    async fn read_rows(&self, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>> {
        self.call(|state, _| of.iter().map(|row| state.row_value(org, row)).collect())
    }

    async fn read_payload(&self, org: OrgId, payload: &Payload) -> Result<Bytes> {
        self.call(|state, _| match payload.row() {
            Some(of) => state.row_value(org, &of),
            None => state.payloads.read(org, payload),
        })
    }

    async fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>> {
        self.call(|state, _| state.branch(org, leaf, after))
    }
}

#[async_trait]
impl WorkSource for MemoryStorage {
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        worker.check()?;
        self.call(|state, now| state.register_worker(worker, now));
        Ok(())
    }

    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>> {
        claim.check()?;
        Ok(self.call(|state, now| state.claim_agents(&claim, now)))
    }

    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>> {
        claim.check()?;
        Ok(self.call(|state, now| state.claim_tasks(&claim, now)))
    }

    async fn report_task(&self, report: TaskReport) -> Result<()> {
        self.call(|state, now| state.report_task(report, now))
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        beat.check()?;
        Ok(self.call(|state, now| state.heartbeat(&beat, now)))
    }

    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()> {
        self.call(|state, now| state.release(org, execution, lease, now))
    }

    async fn unregister_worker(&self, org: OrgId, worker: WorkerId) -> Result<()> {
        self.call(|state, now| state.unregister_worker(org, worker, now));
        Ok(())
    }
}

#[async_trait]
impl Catalog for MemoryStorage {
    async fn execution(&self, org: OrgId, id: ExecutionId) -> Result<Execution> {
        self.call(|state, _| state.run(org, id).map(|run| run.exec.clone()))
    }

    async fn executions(&self, org: OrgId, filter: ExecutionFilter, page: PageRequest) -> Result<Page<Execution>> {
        self.call(|state, _| state.executions(org, &filter, &page))
    }

    async fn roll_ups(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<RollUp>> {
        Ok(self.call(|state, _| state.roll_ups(org, executions)))
    }

    async fn descendants(&self, org: OrgId, execution: ExecutionId, limit: usize) -> Result<Vec<Execution>> {
        self.call(|state, _| state.descendants(org, execution, limit))
    }

    async fn entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>> {
        self.call(|state, _| state.entries_of(org, execution, &page))
    }

    async fn latest_entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>> {
        self.call(|state, _| state.latest_entries_of(org, execution, &page))
    }

    async fn entry(&self, org: OrgId, id: EntryId) -> Result<Entry> {
        self.call(|state, _| state.entry(org, id).cloned().ok_or_else(|| state::not_found("entry", id)))
    }

    async fn tasks(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Task>> {
        self.call(|state, _| state.tasks_of(org, execution, &page))
    }

    async fn task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Task> {
        self.call(|state, _| state.task(org, execution, id))
    }

    async fn checkpoints(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Checkpoint>> {
        self.call(|state, _| state.checkpoints_of(org, execution, &page))
    }

    async fn signals(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Signal>> {
        self.call(|state, _| state.signals_of(org, execution, &page))
    }

    async fn events(&self, org: OrgId, execution: ExecutionId, after: u64, limit: usize) -> Result<Vec<Event>> {
        self.call(|state, _| state.events_of(org, execution, after, limit))
    }

    async fn last_event(&self, org: OrgId, execution: ExecutionId) -> Result<u64> {
        self.call(|state, _| Ok(state.run(org, execution)?.events.len() as u64))
    }

    async fn journal(&self, org: OrgId, execution: ExecutionId, segment: u32) -> Result<Vec<RecordedOp>> {
        self.call(|state, _| state.journal(org, execution, segment))
    }

    async fn queues(&self, org: OrgId) -> Result<Vec<QueueLoad>> {
        Ok(self.call(|state, now| state.queues(org, now)))
    }

    async fn unserved(&self, org: OrgId) -> Result<Vec<(String, String, u64)>> {
        Ok(unserved_of(self.queues(org).await?))
    }

    async fn workers(&self, org: OrgId, page: PageRequest) -> Result<Page<KnownWorker>> {
        self.call(|state, _| state.workers_of(org, &page))
    }
}

#[async_trait]
impl Families for MemoryStorage {
    async fn children_after(&self, org: OrgId, parents: &[(ExecutionId, u64)], limit: usize) -> Result<Vec<Relative>> {
        Ok(self.call(|state, _| state.children_after(org, parents, limit)))
    }

    async fn born(&self, org: OrgId, births: &[u64]) -> Result<Vec<Relative>> {
        Ok(self.call(|state, _| state.born_as(org, births)))
    }
}

#[async_trait]
impl Housekeeping for MemoryStorage {
    async fn pass(&self) -> Result<Option<Timestamp>> {
        Ok(self.call(|state, now| state.pass(now)))
    }

    async fn cut_leases(&self, org: OrgId, worker: WorkerId, left: Duration) -> Result<()> {
        self.call(|state, now| state.cut_leases(org, worker, left, now));
        Ok(())
    }

    async fn load(&self) -> Result<Load> {
        Ok(Load { queues: self.call(|state, now| state.load(now)), ..Load::default() })
    }

    async fn remove_ended(&self, keep: Duration) -> Result<usize> {
        Ok(self.call(|state, now| state.remove_ended(keep, now)))
    }

    async fn backup(&self, to: &Path) -> Result<u64> {
        no_backup(to)
    }
}

impl Storage for MemoryStorage {
    fn server_side(&self) -> Result<&dyn ServerSide> {
        Ok(self)
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }

    fn chunks(&self) -> Chunks {
        Chunks::default()
    }

    fn families(&self) -> Option<&dyn Families> {
        Some(self)
    }

    fn family_stream(&self, _: OrgId, _: ExecutionId, _: &str, _: u64) -> Option<FamilyStream> {
        None
    }

    fn previews(&self) -> Option<&dyn Previews> {
        None
    }

    fn event_stream(&self, _: OrgId, _: ExecutionId, _: EventId, _: u64) -> Option<EventStream> {
        None
    }

    fn org(&self) -> OrgId {
        OrgId::DEFAULT
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn rows(&self) -> Rows {
        Rows::InMemory
    }

    fn describe(&self) -> String {
        "memory".into()
    }

    fn close(&self) {}
}
