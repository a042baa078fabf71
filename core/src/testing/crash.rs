//! A process that dies at a commit: a backend as one process sees it.
//!
//! Wrap the backend anew for every process. Once the point is reached nothing of that process reaches the backend any more:
//! its calls wait until [`CrashPoints::bury`] and then fail as those of a cut connection do.

use crate::clock::{Clock, Timestamp};
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, RequestId, TaskId, WorkerId};
use crate::model::{
    AttemptResult, BatchEnd, Cancellation, Checkpoint, Claim, ClaimedTask, CommitAnswer, CommitRequest, Created,
    Divergence, Entry, Event, Execution, ExecutionFilter, Fact, ForkRequest, Lease, NewExecution, NewSignal, Page,
    PageRequest, RecordedOp, Resolution, ResumeRequest, Segment, Signal, SignalStored, Task, TaskReport,
};
use crate::payload::Payload;
use crate::storage::{
    AgentStorage, Catalog, ClaimRequest, Heartbeat, HeartbeatAnswer, Housekeeping, Storage, WorkSource, WorkerInfo,
};
use crate::streaming::Hints;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Where a process dies. Commits are counted from 1, by process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashPoint {
    /// With the commit of this number on its lips: nothing of it is durable, though inline steps beside it have begun.
    Before(u64),
    /// The commit is durable and the process never learns it.
    After(u64),
    /// No death: the commit is durable, its answer is lost, and the same request is sent again.
    AnswerLost(u64),
    /// As `After`, at the first commit that ends a segment.
    Checkpoint,
}

/// What a run's processes have made durable together.
#[derive(Debug, Default)]
pub struct Ledger {
    done: HashSet<(ExecutionId, u32, u32)>,
    repeated: Vec<String>,
}

impl Ledger {
    /// Steps that ended although their result was durable already.
    pub fn repeated(&self) -> &[String] {
        &self.repeated
    }
}

/// A backend as one process sees it, with the point where that process dies.
pub struct CrashPoints {
    inner: Arc<dyn Storage>,
    point: Option<CrashPoint>,
    commits: Mutex<(u64, Option<RequestId>)>,
    ledger: Arc<Mutex<Ledger>>,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    Dead,
    Buried,
}

impl CrashPoints {
    /// A process that dies at a point; one that lives on without a point.
    pub fn new(inner: Arc<dyn Storage>, point: Option<CrashPoint>) -> Self {
        Self::with_ledger(inner, point, Arc::default())
    }

    /// As [`new`](Self::new), with a ledger that all processes of a run share.
    pub fn with_ledger(inner: Arc<dyn Storage>, point: Option<CrashPoint>, ledger: Arc<Mutex<Ledger>>) -> Self {
        Self { inner, point, commits: Mutex::new((0, None)), ledger, state: watch::Sender::new(State::Alive) }
    }

    /// Commits that this process sent, each counted once however often it was repeated.
    pub fn commits(&self) -> u64 {
        self.commits.lock().0
    }

    /// Whether the point was reached.
    pub fn is_dead(&self) -> bool {
        *self.state.borrow() != State::Alive
    }

    /// Ends when the point is reached.
    pub async fn died(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state != State::Alive).await;
    }

    /// Dies now, whatever is going on.
    pub fn die(&self) {
        self.state.send_if_modified(|state| {
            let alive = *state == State::Alive;
            if alive {
                *state = State::Dead;
            }
            alive
        });
    }

    /// Lets go of the dead process's calls.
    pub fn bury(&self) {
        self.state.send_replace(State::Buried);
    }

    async fn alive<T>(&self, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        if !self.is_dead() {
            return body.await;
        }
        self.gone().await
    }

    async fn gone<T>(&self) -> Result<T> {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state == State::Buried).await;
        Err(Error::new(Code::StorageUnavailable, "this process was killed on purpose"))
    }

    async fn commit_or_die(&self, request: CommitRequest) -> Result<CommitAnswer> {
        if self.is_dead() {
            return self.gone().await;
        }
        let number = {
            let mut commits = self.commits.lock();
            if commits.1 == Some(request.request_id) {
                None
            } else {
                *commits = (commits.0 + 1, Some(request.request_id));
                Some(commits.0)
            }
        };
        let Some(number) = number else { return self.inner.commit(request).await };
        if self.point == Some(CrashPoint::Before(number)) {
            self.die();
            return self.gone().await;
        }
        let ends_segment = matches!(request.batch.end, BatchEnd::Checkpoint(_));
        let execution = request.execution;
        let segment = request.batch.segment;
        let ended: Vec<u32> = request
            .batch
            .attempts
            .iter()
            .filter(|report| matches!(report.result, AttemptResult::Completed(_)))
            .map(|report| report.sequence)
            .collect();
        let answer = self.inner.commit(request).await;
        if answer.is_ok() {
            let mut ledger = self.ledger.lock();
            for sequence in ended {
                if !ledger.done.insert((execution, segment, sequence)) {
                    ledger.repeated.push(format!("{execution}-{segment}-{sequence}"));
                }
            }
        }
        let dies = match self.point {
            Some(CrashPoint::After(at)) => at == number,
            Some(CrashPoint::Checkpoint) => ends_segment,
            _ => false,
        };
        if dies {
            self.die();
            return self.gone().await;
        }
        if self.point == Some(CrashPoint::AnswerLost(number)) {
            return Err(Error::new(Code::StorageUnavailable, "the answer was lost on purpose"));
        }
        answer
    }
}

#[async_trait]
impl AgentStorage for CrashPoints {
    async fn create_execution(&self, new: NewExecution) -> Result<Created> {
        self.alive(self.inner.create_execution(new)).await
    }

    async fn load_segment(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<Segment> {
        self.alive(self.inner.load_segment(org, execution, lease)).await
    }

    async fn facts_after(&self, org: OrgId, execution: ExecutionId, after: u64) -> Result<(Vec<Fact>, u64)> {
        self.alive(self.inner.facts_after(org, execution, after)).await
    }

    async fn commit(&self, request: CommitRequest) -> Result<CommitAnswer> {
        self.commit_or_die(request).await
    }

    async fn store_signal(&self, signal: NewSignal) -> Result<SignalStored> {
        self.alive(self.inner.store_signal(signal)).await
    }

    async fn request_cancel(&self, org: OrgId, execution: ExecutionId, cancel: Cancellation) -> Result<Execution> {
        self.alive(self.inner.request_cancel(org, execution, cancel)).await
    }

    async fn resume(&self, org: OrgId, execution: ExecutionId, request: ResumeRequest) -> Result<Execution> {
        self.alive(self.inner.resume(org, execution, request)).await
    }

    async fn resolve_task(&self, org: OrgId, op: OpId, resolution: Resolution) -> Result<Task> {
        self.alive(self.inner.resolve_task(org, op, resolution)).await
    }

    async fn resolve_divergence(&self, org: OrgId, execution: ExecutionId, decision: Divergence) -> Result<Execution> {
        self.alive(self.inner.resolve_divergence(org, execution, decision)).await
    }

    async fn fork(&self, request: ForkRequest) -> Result<Execution> {
        self.alive(self.inner.fork(request)).await
    }

    async fn store_payload(&self, org: OrgId, payload: Payload) -> Result<Payload> {
        self.alive(self.inner.store_payload(org, payload)).await
    }

    async fn read_payload(&self, org: OrgId, payload: &Payload) -> Result<Bytes> {
        self.alive(self.inner.read_payload(org, payload)).await
    }

    async fn read_payload_part(&self, org: OrgId, payload: &Payload, offset: u64, length: usize) -> Result<Bytes> {
        self.alive(self.inner.read_payload_part(org, payload, offset, length)).await
    }

    async fn branch(&self, org: OrgId, leaf: EntryId) -> Result<Vec<Entry>> {
        self.alive(self.inner.branch(org, leaf)).await
    }
}

#[async_trait]
impl WorkSource for CrashPoints {
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        self.alive(self.inner.register_worker(worker)).await
    }

    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>> {
        self.alive(self.inner.claim_agents(claim)).await
    }

    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>> {
        self.alive(self.inner.claim_tasks(claim)).await
    }

    async fn report_task(&self, report: TaskReport) -> Result<()> {
        self.alive(self.inner.report_task(report)).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        self.alive(self.inner.heartbeat(beat)).await
    }

    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()> {
        self.alive(self.inner.release(org, execution, lease)).await
    }

    async fn unregister_worker(&self, worker: WorkerId) -> Result<()> {
        self.alive(self.inner.unregister_worker(worker)).await
    }
}

#[async_trait]
impl Catalog for CrashPoints {
    async fn execution(&self, org: OrgId, id: ExecutionId) -> Result<Execution> {
        self.alive(self.inner.execution(org, id)).await
    }

    async fn executions(&self, org: OrgId, filter: ExecutionFilter, page: PageRequest) -> Result<Page<Execution>> {
        self.alive(self.inner.executions(org, filter, page)).await
    }

    async fn entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>> {
        self.alive(self.inner.entries(org, execution, page)).await
    }

    async fn entry(&self, org: OrgId, id: EntryId) -> Result<Entry> {
        self.alive(self.inner.entry(org, id)).await
    }

    async fn tasks(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Task>> {
        self.alive(self.inner.tasks(org, execution, page)).await
    }

    async fn task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Task> {
        self.alive(self.inner.task(org, execution, id)).await
    }

    async fn checkpoints(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Checkpoint>> {
        self.alive(self.inner.checkpoints(org, execution, page)).await
    }

    async fn signals(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Signal>> {
        self.alive(self.inner.signals(org, execution, page)).await
    }

    async fn events(&self, org: OrgId, execution: ExecutionId, after: u64, limit: usize) -> Result<Vec<Event>> {
        self.alive(self.inner.events(org, execution, after, limit)).await
    }

    async fn journal(&self, org: OrgId, execution: ExecutionId, segment: u32) -> Result<Vec<RecordedOp>> {
        self.alive(self.inner.journal(org, execution, segment)).await
    }

    async fn unserved(&self, org: OrgId) -> Result<Vec<(String, String, u64)>> {
        self.alive(self.inner.unserved(org)).await
    }
}

#[async_trait]
impl Housekeeping for CrashPoints {
    async fn pass(&self) -> Result<Option<Timestamp>> {
        self.alive(self.inner.pass()).await
    }

    async fn remove_ended(&self, keep: Duration) -> Result<usize> {
        self.alive(self.inner.remove_ended(keep)).await
    }
}

impl Storage for CrashPoints {
    fn hints(&self) -> &Hints {
        self.inner.hints()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.clock()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    /// The backend outlives the process.
    fn close(&self) {}
}
