//! A backend that fails on purpose: before a call is carried out, or after it with the answer lost.
//!
//! Wraps any backend; crash-injection tests choose the n-th call of a kind, or let a seed choose.

use crate::clock::{Clock, Timestamp};
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, TaskId, WorkerId};
use crate::model::{
    Cancellation, Checkpoint, Claim, ClaimedTask, CommitAnswer, CommitRequest, Created, Divergence, Entry, Event,
    Execution, ExecutionFilter, Fact, ForkRequest, Lease, NewExecution, NewSignal, Page, PageRequest, RecordedOp,
    Resolution, ResumeRequest, Segment, Signal, SignalStored, Task, TaskReport,
};
use crate::payload::Payload;
use crate::storage::{
    AgentStorage, Catalog, ClaimRequest, Heartbeat, HeartbeatAnswer, Housekeeping, Storage, WorkSource, WorkerInfo,
};
use crate::streaming::Hints;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How a call fails. The caller sees `StorageUnavailable` either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was done.
    FailBefore,
    /// It was done and the answer is lost.
    ExecuteThenError,
}

/// A call of the contract that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Call {
    CreateExecution,
    LoadSegment,
    FactsAfter,
    Commit,
    StoreSignal,
    RequestCancel,
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
    Pass,
}

/// A backend with faults.
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    counts: BTreeMap<Call, u64>,
    planned: BTreeMap<(Call, u64), Fault>,
    /// State of the generator and how many calls in a thousand fail.
    seeded: Option<(u64, u64, Vec<Call>)>,
    injected: u64,
}

impl FaultyStorage {
    /// Wraps a backend; without faults it behaves as that one.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, plan: Mutex::default() }
    }

    /// Lets the `n`-th call of a kind from now (from 1) fail.
    pub fn inject(&self, call: Call, n: u64, fault: Fault) {
        let mut plan = self.plan.lock();
        let made = plan.counts.get(&call).copied().unwrap_or(0);
        plan.planned.insert((call, made + n), fault);
    }

    /// Lets so many of a thousand calls of these kinds fail, chosen by a seed.
    pub fn seed(&self, seed: u64, per_mille: u64, calls: &[Call]) {
        self.plan.lock().seeded = Some((seed, per_mille, calls.to_vec()));
    }

    /// Ends all faults.
    pub fn heal(&self) {
        let mut plan = self.plan.lock();
        plan.planned.clear();
        plan.seeded = None;
    }

    /// How many calls of a kind were made.
    pub fn count(&self, call: Call) -> u64 {
        self.plan.lock().counts.get(&call).copied().unwrap_or(0)
    }

    /// How many calls failed on purpose.
    pub fn injected(&self) -> u64 {
        self.plan.lock().injected
    }

    fn next(&self, call: Call) -> Option<Fault> {
        let mut plan = self.plan.lock();
        let count = plan.counts.entry(call).or_default();
        *count += 1;
        let place = (call, *count);
        let planned = plan.planned.remove(&place);
        let fault = planned.or_else(|| {
            let (state, per_mille, calls) = plan.seeded.as_mut()?;
            if !calls.contains(&call) {
                return None;
            }
            let drawn = super::random::next(state);
            let fault = if drawn & 1 == 0 { Fault::FailBefore } else { Fault::ExecuteThenError };
            ((drawn >> 1) % 1_000 < *per_mille).then_some(fault)
        });
        plan.injected += u64::from(fault.is_some());
        fault
    }

    async fn guard<T>(&self, call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let lost =
            || Error::new(Code::StorageUnavailable, format!("{call:?} failed on purpose; its outcome is unknown"));
        match self.next(call) {
            None => body.await,
            Some(Fault::FailBefore) => Err(lost()),
            Some(Fault::ExecuteThenError) => {
                let _ = body.await;
                Err(lost())
            }
        }
    }
}

#[async_trait]
impl AgentStorage for FaultyStorage {
    async fn create_execution(&self, new: NewExecution) -> Result<Created> {
        self.guard(Call::CreateExecution, self.inner.create_execution(new)).await
    }

    async fn load_segment(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<Segment> {
        self.guard(Call::LoadSegment, self.inner.load_segment(org, execution, lease)).await
    }

    async fn facts_after(&self, org: OrgId, execution: ExecutionId, after: u64) -> Result<(Vec<Fact>, u64)> {
        self.guard(Call::FactsAfter, self.inner.facts_after(org, execution, after)).await
    }

    async fn commit(&self, request: CommitRequest) -> Result<CommitAnswer> {
        self.guard(Call::Commit, self.inner.commit(request)).await
    }

    async fn store_signal(&self, signal: NewSignal) -> Result<SignalStored> {
        self.guard(Call::StoreSignal, self.inner.store_signal(signal)).await
    }

    async fn request_cancel(&self, org: OrgId, execution: ExecutionId, cancel: Cancellation) -> Result<Execution> {
        self.guard(Call::RequestCancel, self.inner.request_cancel(org, execution, cancel)).await
    }

    async fn resume(&self, org: OrgId, execution: ExecutionId, request: ResumeRequest) -> Result<Execution> {
        self.guard(Call::Resume, self.inner.resume(org, execution, request)).await
    }

    async fn resolve_task(&self, org: OrgId, op: OpId, resolution: Resolution) -> Result<Task> {
        self.guard(Call::ResolveTask, self.inner.resolve_task(org, op, resolution)).await
    }

    async fn resolve_divergence(&self, org: OrgId, execution: ExecutionId, decision: Divergence) -> Result<Execution> {
        self.guard(Call::ResolveDivergence, self.inner.resolve_divergence(org, execution, decision)).await
    }

    async fn fork(&self, request: ForkRequest) -> Result<Execution> {
        self.guard(Call::Fork, self.inner.fork(request)).await
    }

    async fn store_payload(&self, org: OrgId, payload: Payload) -> Result<Payload> {
        self.guard(Call::StorePayload, self.inner.store_payload(org, payload)).await
    }

    async fn read_payload(&self, org: OrgId, payload: &Payload) -> Result<Bytes> {
        self.guard(Call::ReadPayload, self.inner.read_payload(org, payload)).await
    }

    async fn branch(&self, org: OrgId, leaf: EntryId) -> Result<Vec<Entry>> {
        self.guard(Call::Branch, self.inner.branch(org, leaf)).await
    }
}

#[async_trait]
impl WorkSource for FaultyStorage {
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        self.guard(Call::RegisterWorker, self.inner.register_worker(worker)).await
    }

    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>> {
        self.guard(Call::ClaimAgents, self.inner.claim_agents(claim)).await
    }

    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>> {
        self.guard(Call::ClaimTasks, self.inner.claim_tasks(claim)).await
    }

    async fn report_task(&self, report: TaskReport) -> Result<()> {
        self.guard(Call::ReportTask, self.inner.report_task(report)).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        self.guard(Call::Heartbeat, self.inner.heartbeat(beat)).await
    }

    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()> {
        self.guard(Call::Release, self.inner.release(org, execution, lease)).await
    }

    async fn unregister_worker(&self, worker: WorkerId) -> Result<()> {
        self.guard(Call::UnregisterWorker, self.inner.unregister_worker(worker)).await
    }
}

#[async_trait]
impl Catalog for FaultyStorage {
    async fn execution(&self, org: OrgId, id: ExecutionId) -> Result<Execution> {
        self.guard(Call::Read, self.inner.execution(org, id)).await
    }

    async fn executions(&self, org: OrgId, filter: ExecutionFilter, page: PageRequest) -> Result<Page<Execution>> {
        self.guard(Call::Read, self.inner.executions(org, filter, page)).await
    }

    async fn entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>> {
        self.guard(Call::Read, self.inner.entries(org, execution, page)).await
    }

    async fn entry(&self, org: OrgId, id: EntryId) -> Result<Entry> {
        self.guard(Call::Read, self.inner.entry(org, id)).await
    }

    async fn tasks(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Task>> {
        self.guard(Call::Read, self.inner.tasks(org, execution, page)).await
    }

    async fn task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Task> {
        self.guard(Call::Read, self.inner.task(org, execution, id)).await
    }

    async fn checkpoints(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Checkpoint>> {
        self.guard(Call::Read, self.inner.checkpoints(org, execution, page)).await
    }

    async fn signals(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Signal>> {
        self.guard(Call::Read, self.inner.signals(org, execution, page)).await
    }

    async fn events(&self, org: OrgId, execution: ExecutionId, after: u64, limit: usize) -> Result<Vec<Event>> {
        self.guard(Call::Read, self.inner.events(org, execution, after, limit)).await
    }

    async fn journal(&self, org: OrgId, execution: ExecutionId, segment: u32) -> Result<Vec<RecordedOp>> {
        self.guard(Call::Read, self.inner.journal(org, execution, segment)).await
    }

    async fn unserved(&self, org: OrgId) -> Result<Vec<(String, String, u64)>> {
        self.guard(Call::Read, self.inner.unserved(org)).await
    }
}

#[async_trait]
impl Housekeeping for FaultyStorage {
    async fn pass(&self) -> Result<Option<Timestamp>> {
        self.guard(Call::Pass, self.inner.pass()).await
    }

    async fn remove_ended(&self, keep: Duration) -> Result<usize> {
        self.guard(Call::Pass, self.inner.remove_ended(keep)).await
    }
}

impl Storage for FaultyStorage {
    fn hints(&self) -> &Hints {
        self.inner.hints()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.clock()
    }

    fn describe(&self) -> String {
        format!("{} with faults", self.inner.describe())
    }

    fn close(&self) {
        self.inner.close();
    }
}
