//! A backend behind a gate: every call of the contract goes through one hook, which may delay it, drop it or replace
//! its answer.
//!
//! It forwards the whole contract. So code that injects crashes or counts calls has to say only what it does to a call.

use super::machines::{Approval, Approved, Machine, Machines, Paired, Pairing};
use super::{
    AgentStorage, Catalog, ClaimRequest, EventStream, Families, FamilyStream, Heartbeat, HeartbeatAnswer, Housekeeping,
    Load, Previews, Queues, Schedules, ServerSide, Standing, Storage, WorkSource, WorkerInfo,
};
use crate::clock::{Clock, Timestamp};
use crate::error::Result;
use crate::id::{EntryId, ExecutionId, OpId, OrgId, TaskId, WorkerId};
use crate::model::{
    Cancellation, Checkpoint, Claim, ClaimedTask, CommitAnswer, CommitRequest, Created, Divergence, Entry, Event,
    EventId, Execution, ExecutionFilter, Fact, ForkRequest, KnownWorker, Lease, NewExecution, NewSignal, Page,
    PageRequest, Purse, QueueLimit, QueueLoad, RecordedOp, Resolution, ResumeRequest, RollUp, Rows, Schedule,
    ScheduleSpec, Segment, Signal, SignalStored, Task, TaskReport,
};
use crate::payload::{Payload, RowOf};
use crate::streaming::{Chunks, Hints};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A kind of call, as gates tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Call {
    CreateExecution,
    LoadSegment,
    FactsAfter,
    Commit,
    StoreSignal,
    RequestCancel,
    RemoveExecution,
    Resume,
    ResolveTask,
    ResolveDivergence,
    Fork,
    StorePayload,
    ReadPayload,
    Branch,
    RegisterWorker,
    ClaimAgents,
    ClaimTasks,
    ReportTask,
    Heartbeat,
    Release,
    UnregisterWorker,
    Read,
    Schedule,
    LimitQueue,
    Machine,
    Pass,
}

/// What happens to the calls that go to a backend.
pub trait Gate: Send + Sync {
    /// Carries a call out or not, and returns its answer or another one.
    fn pass<T: Send>(
        &self,
        call: Call,
        body: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;

    /// As [`pass`](Self::pass), for a commit, which a gate may want to read.
    fn commit(&self, inner: &dyn Storage, request: CommitRequest) -> impl Future<Output = Result<CommitAnswer>> + Send {
        self.pass(Call::Commit, inner.commit(request))
    }

    /// As [`pass`](Self::pass), for a claim of runs.
    fn claim(&self, inner: &dyn Storage, claim: ClaimRequest) -> impl Future<Output = Result<Vec<Claim>>> + Send {
        self.pass(Call::ClaimAgents, inner.claim_agents(claim))
    }

    /// As [`pass`](Self::pass), for the load of a segment.
    fn load(
        &self,
        inner: &dyn Storage,
        org: OrgId,
        run: ExecutionId,
        lease: Lease,
    ) -> impl Future<Output = Result<Segment>> + Send {
        self.pass(Call::LoadSegment, inner.load_segment(org, run, lease))
    }

    /// As [`pass`](Self::pass), for a read of facts.
    fn facts(
        &self,
        inner: &dyn Storage,
        org: OrgId,
        run: ExecutionId,
        after: u64,
    ) -> impl Future<Output = Result<(Vec<Fact>, u64, Option<Purse>)>> + Send {
        self.pass(Call::FactsAfter, inner.facts_after(org, run, after))
    }

    /// As [`pass`](Self::pass), for a claim of tasks.
    fn claim_tasks(
        &self,
        inner: &dyn Storage,
        claim: ClaimRequest,
    ) -> impl Future<Output = Result<Vec<ClaimedTask>>> + Send {
        self.pass(Call::ClaimTasks, inner.claim_tasks(claim))
    }

    /// As [`pass`](Self::pass), for the report of a task.
    fn report(&self, inner: &dyn Storage, report: TaskReport) -> impl Future<Output = Result<()>> + Send {
        self.pass(Call::ReportTask, inner.report_task(report))
    }

    /// As [`pass`](Self::pass), for a read of results in their rows.
    fn results(
        &self,
        inner: &dyn Storage,
        org: OrgId,
        of: &[RowOf],
    ) -> impl Future<Output = Result<Vec<Bytes>>> + Send {
        async move { self.pass(Call::ReadPayload, inner.read_rows(org, of)).await }
    }

    /// As [`pass`](Self::pass), for a read of a payload.
    fn read(&self, inner: &dyn Storage, org: OrgId, payload: &Payload) -> impl Future<Output = Result<Bytes>> + Send {
        async move { self.pass(Call::ReadPayload, inner.read_payload(org, payload)).await }
    }

    /// As [`pass`](Self::pass), for a read of a part of a payload.
    fn read_part(
        &self,
        inner: &dyn Storage,
        org: OrgId,
        payload: &Payload,
        offset: u64,
        length: usize,
    ) -> impl Future<Output = Result<Bytes>> + Send {
        async move { self.pass(Call::ReadPayload, inner.read_payload_part(org, payload, offset, length)).await }
    }

    /// As [`pass`](Self::pass), for a read of a branch.
    fn branch(
        &self,
        inner: &dyn Storage,
        org: OrgId,
        leaf: EntryId,
        after: Option<EntryId>,
    ) -> impl Future<Output = Result<Vec<Entry>>> + Send {
        self.pass(Call::Branch, inner.branch(org, leaf, after))
    }

    /// Where the rows are.
    fn rows(&self, inner: &dyn Storage) -> Rows {
        inner.rows()
    }

    /// The holder of a run has loaded its segment.
    fn loaded(&self, _segment: &Segment) {}

    /// Somebody has read these entries of a branch.
    fn on_entries(&self, _entries: &[Entry]) {}

    /// A worker is about to register.
    fn registering(&self, _org: OrgId, _worker: WorkerId) {}

    /// The caller is done with the backend.
    fn close(&self, inner: &dyn Storage) {
        inner.close();
    }
}

/// A backend behind a gate. It dereferences to the gate.
pub struct Guarded<G> {
    inner: Arc<dyn Storage>,
    gate: G,
}

impl<G> Guarded<G> {
    /// Puts a gate in front of a backend.
    pub fn over(inner: Arc<dyn Storage>, gate: G) -> Self {
        Self { inner, gate }
    }

    /// The backend without the gate.
    pub fn inner(&self) -> &Arc<dyn Storage> {
        &self.inner
    }
}

impl<G> Deref for Guarded<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.gate
    }
}

#[async_trait]
impl<G: Gate> AgentStorage for Guarded<G> {
    async fn create_execution(&self, new: NewExecution) -> Result<Created> {
        self.gate.pass(Call::CreateExecution, self.inner.create_execution(new)).await
    }

    async fn load_segment(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<Segment> {
        let segment = self.gate.load(&*self.inner, org, execution, lease).await?;
        self.gate.loaded(&segment);
        Ok(segment)
    }

    async fn facts_after(
        &self,
        org: OrgId,
        execution: ExecutionId,
        after: u64,
    ) -> Result<(Vec<Fact>, u64, Option<Purse>)> {
        self.gate.facts(&*self.inner, org, execution, after).await
    }

    async fn standings(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<Standing>> {
        self.inner.standings(org, executions).await
    }

    async fn commit(&self, request: CommitRequest) -> Result<CommitAnswer> {
        self.gate.commit(&*self.inner, request).await
    }

    /// False, so that a gate sees commits and claims as separate calls.
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

    async fn store_signal(&self, signal: NewSignal) -> Result<SignalStored> {
        self.gate.pass(Call::StoreSignal, self.inner.store_signal(signal)).await
    }

    async fn request_cancel(&self, org: OrgId, execution: ExecutionId, cancel: Cancellation) -> Result<Execution> {
        self.gate.pass(Call::RequestCancel, self.inner.request_cancel(org, execution, cancel)).await
    }

    async fn remove_execution(&self, org: OrgId, execution: ExecutionId) -> Result<()> {
        self.gate.pass(Call::RemoveExecution, self.inner.remove_execution(org, execution)).await
    }

    async fn resume(&self, org: OrgId, execution: ExecutionId, request: ResumeRequest) -> Result<Execution> {
        self.gate.pass(Call::Resume, self.inner.resume(org, execution, request)).await
    }

    async fn resolve_task(&self, org: OrgId, op: OpId, resolution: Resolution) -> Result<Task> {
        self.gate.pass(Call::ResolveTask, self.inner.resolve_task(org, op, resolution)).await
    }

    async fn resolve_divergence(&self, org: OrgId, execution: ExecutionId, decision: Divergence) -> Result<Execution> {
        self.gate.pass(Call::ResolveDivergence, self.inner.resolve_divergence(org, execution, decision)).await
    }

    async fn fork(&self, request: ForkRequest) -> Result<Execution> {
        self.gate.pass(Call::Fork, self.inner.fork(request)).await
    }

    fn max_payload(&self) -> u64 {
        self.inner.max_payload()
    }

    async fn store_payload(&self, org: OrgId, payload: Payload) -> Result<Payload> {
        self.gate.pass(Call::StorePayload, self.inner.store_payload(org, payload)).await
    }

    async fn read_rows(&self, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>> {
        self.gate.results(&*self.inner, org, of).await
    }

    async fn read_payload(&self, org: OrgId, payload: &Payload) -> Result<Bytes> {
        self.gate.read(&*self.inner, org, payload).await
    }

    async fn read_payload_part(&self, org: OrgId, payload: &Payload, offset: u64, length: usize) -> Result<Bytes> {
        self.gate.read_part(&*self.inner, org, payload, offset, length).await
    }

    async fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>> {
        let entries = self.gate.branch(&*self.inner, org, leaf, after).await?;
        self.gate.on_entries(&entries);
        Ok(entries)
    }
}

#[async_trait]
impl<G: Gate> WorkSource for Guarded<G> {
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        self.gate.registering(worker.org, worker.id);
        self.gate.pass(Call::RegisterWorker, self.inner.register_worker(worker)).await
    }

    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>> {
        self.gate.claim(&*self.inner, claim).await
    }

    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>> {
        self.gate.claim_tasks(&*self.inner, claim).await
    }

    async fn report_task(&self, report: TaskReport) -> Result<()> {
        self.gate.report(&*self.inner, report).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        self.gate.pass(Call::Heartbeat, self.inner.heartbeat(beat)).await
    }

    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()> {
        self.gate.pass(Call::Release, self.inner.release(org, execution, lease)).await
    }

    async fn unregister_worker(&self, org: OrgId, worker: WorkerId) -> Result<()> {
        self.gate.pass(Call::UnregisterWorker, self.inner.unregister_worker(org, worker)).await
    }
}

#[async_trait]
impl<G: Gate> Catalog for Guarded<G> {
    async fn execution(&self, org: OrgId, id: ExecutionId) -> Result<Execution> {
        self.gate.pass(Call::Read, self.inner.execution(org, id)).await
    }

    async fn executions(&self, org: OrgId, filter: ExecutionFilter, page: PageRequest) -> Result<Page<Execution>> {
        self.gate.pass(Call::Read, self.inner.executions(org, filter, page)).await
    }

    async fn roll_ups(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<RollUp>> {
        self.gate.pass(Call::Read, self.inner.roll_ups(org, executions)).await
    }

    async fn descendants(&self, org: OrgId, execution: ExecutionId, limit: usize) -> Result<Vec<Execution>> {
        self.gate.pass(Call::Read, self.inner.descendants(org, execution, limit)).await
    }

    async fn entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>> {
        self.gate.pass(Call::Read, self.inner.entries(org, execution, page)).await
    }

    async fn latest_entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>> {
        self.gate.pass(Call::Read, self.inner.latest_entries(org, execution, page)).await
    }

    async fn entry(&self, org: OrgId, id: EntryId) -> Result<Entry> {
        self.gate.pass(Call::Read, self.inner.entry(org, id)).await
    }

    async fn tasks(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Task>> {
        self.gate.pass(Call::Read, self.inner.tasks(org, execution, page)).await
    }

    async fn task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Task> {
        self.gate.pass(Call::Read, self.inner.task(org, execution, id)).await
    }

    async fn checkpoints(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Checkpoint>> {
        self.gate.pass(Call::Read, self.inner.checkpoints(org, execution, page)).await
    }

    async fn signals(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Signal>> {
        self.gate.pass(Call::Read, self.inner.signals(org, execution, page)).await
    }

    async fn events(&self, org: OrgId, execution: ExecutionId, after: u64, limit: usize) -> Result<Vec<Event>> {
        self.gate.pass(Call::Read, self.inner.events(org, execution, after, limit)).await
    }

    async fn last_event(&self, org: OrgId, execution: ExecutionId) -> Result<u64> {
        self.gate.pass(Call::Read, self.inner.last_event(org, execution)).await
    }

    async fn journal(&self, org: OrgId, execution: ExecutionId, segment: u32) -> Result<Vec<RecordedOp>> {
        self.gate.pass(Call::Read, self.inner.journal(org, execution, segment)).await
    }

    async fn queues(&self, org: OrgId) -> Result<Vec<QueueLoad>> {
        self.gate.pass(Call::Read, self.inner.queues(org)).await
    }

    async fn workers(&self, org: OrgId, page: PageRequest) -> Result<Page<KnownWorker>> {
        self.gate.pass(Call::Read, self.inner.workers(org, page)).await
    }

    async fn unserved(&self, org: OrgId) -> Result<Vec<(String, String, u64)>> {
        self.gate.pass(Call::Read, self.inner.unserved(org)).await
    }
}

#[async_trait]
impl<G: Gate> Housekeeping for Guarded<G> {
    async fn pass(&self) -> Result<Option<Timestamp>> {
        self.gate.pass(Call::Pass, self.inner.pass()).await
    }

    async fn cut_leases(&self, org: OrgId, worker: WorkerId, left: Duration) -> Result<()> {
        self.gate.pass(Call::Pass, self.inner.cut_leases(org, worker, left)).await
    }

    async fn load(&self) -> Result<Load> {
        self.gate.pass(Call::Read, self.inner.load()).await
    }

    async fn remove_ended(&self, keep: Duration) -> Result<usize> {
        self.gate.pass(Call::Pass, self.inner.remove_ended(keep)).await
    }

    async fn backup(&self, to: &Path) -> Result<u64> {
        self.gate.pass(Call::Read, self.inner.backup(to)).await
    }
}

#[async_trait]
impl<G: Gate> Schedules for Guarded<G> {
    async fn put_schedule(&self, org: OrgId, spec: ScheduleSpec) -> Result<Schedule> {
        self.gate.pass(Call::Schedule, self.inner.put_schedule(org, spec)).await
    }

    async fn schedule(&self, org: OrgId, id: &str) -> Result<Schedule> {
        self.gate.pass(Call::Read, self.inner.schedule(org, id)).await
    }

    async fn schedules(&self, org: OrgId, page: PageRequest) -> Result<Page<Schedule>> {
        self.gate.pass(Call::Read, self.inner.schedules(org, page)).await
    }

    async fn delete_schedule(&self, org: OrgId, id: &str) -> Result<()> {
        self.gate.pass(Call::Schedule, self.inner.delete_schedule(org, id)).await
    }

    async fn due_schedules(&self) -> Result<Vec<Schedule>> {
        self.gate.pass(Call::Read, self.inner.due_schedules()).await
    }

    async fn advance_schedule(&self, org: OrgId, id: &str, from: Timestamp, to: Option<Timestamp>) -> Result<()> {
        self.gate.pass(Call::Pass, self.inner.advance_schedule(org, id, from, to)).await
    }
}

#[async_trait]
impl<G: Gate> Queues for Guarded<G> {
    async fn limit_queue(&self, org: OrgId, queue: &str, limit: QueueLimit) -> Result<()> {
        self.gate.pass(Call::LimitQueue, self.inner.limit_queue(org, queue, limit)).await
    }

    async fn queue_limits(&self, org: OrgId) -> Result<Vec<(String, QueueLimit)>> {
        self.gate.pass(Call::Read, self.inner.queue_limits(org)).await
    }
}

#[async_trait]
impl<G: Gate> Machines for Guarded<G> {
    async fn request_pairing(&self, name: &str, host: &str) -> Result<Pairing> {
        self.gate.pass(Call::Machine, self.inner.request_pairing(name, host)).await
    }

    async fn approve_pairing(&self, org: OrgId, approval: Approval) -> Result<Approved> {
        self.gate.pass(Call::Machine, self.inner.approve_pairing(org, approval)).await
    }

    async fn collect_pairing(&self, secret: &str) -> Result<Option<Paired>> {
        self.gate.pass(Call::Machine, self.inner.collect_pairing(secret)).await
    }

    async fn machines(&self, org: OrgId) -> Result<Vec<Machine>> {
        self.gate.pass(Call::Read, self.inner.machines(org)).await
    }

    async fn announce_machine(&self, org: OrgId, name: &str, offers: Option<&str>) -> Result<()> {
        self.gate.pass(Call::Machine, self.inner.announce_machine(org, name, offers)).await
    }

    async fn revoke_machine(&self, org: OrgId, name: &str, actor: &str) -> Result<Machine> {
        self.gate.pass(Call::Machine, self.inner.revoke_machine(org, name, actor)).await
    }
}

impl<G: Gate> Storage for Guarded<G> {
    fn server_side(&self) -> Result<&dyn ServerSide> {
        self.inner.server_side()
    }

    fn hints(&self) -> &Hints {
        self.inner.hints()
    }

    fn chunks(&self) -> Chunks {
        self.inner.chunks()
    }

    fn event_stream(&self, org: OrgId, run: ExecutionId, after: EventId, content_up_to: u64) -> Option<EventStream> {
        self.inner.event_stream(org, run, after, content_up_to)
    }

    fn families(&self) -> Option<&dyn Families> {
        self.inner.families()
    }

    fn family_stream(&self, org: OrgId, run: ExecutionId, after: &str, content_up_to: u64) -> Option<FamilyStream> {
        self.inner.family_stream(org, run, after, content_up_to)
    }

    fn previews(&self) -> Option<&dyn Previews> {
        self.inner.previews()
    }

    fn org(&self) -> OrgId {
        self.inner.org()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.clock()
    }

    fn rows(&self) -> Rows {
        self.gate.rows(&*self.inner)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn close(&self) {
        self.gate.close(&*self.inner);
    }
}
