//! A stage for tests: a backend in memory on a clock moved by hand, and lives on it that end at a chosen commit.
//!
//! A life is what a process is outside of tests: its workers, its leases, its memory. When it ends nothing of it reaches
//! the store any more, as after kill -9; the next life finds what was durable.

use crate::error::Failure;
use crate::hub::{Hub, spawn};
use crate::runtime::Runtime;
use crate::session::duration;
use async_trait::async_trait;
use bytes::Bytes;
use flovyn_core::clock::{Clock, ManualClock, SystemClock, Timestamp};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::host::HostRuntime;
use flovyn_core::id::{EntryId, ExecutionId, OpId, OrgId, TaskId, WorkerId};
use flovyn_core::model::{
    Cancellation, Checkpoint, Claim, ClaimedTask, CommitAnswer, CommitRequest, Created, Divergence, Entry, Event,
    Execution, ExecutionFilter, Fact, ForkRequest, Lease, NewExecution, NewSignal, Page, PageRequest, RecordedOp,
    Resolution, ResumeRequest, Segment, Signal, SignalStored, Task, TaskReport,
};
use flovyn_core::payload::Payload;
use flovyn_core::runtime::Runtime as Core;
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_core::storage::{
    AgentStorage, Catalog, ClaimRequest, Heartbeat, HeartbeatAnswer, Housekeeping, Storage, WorkSource, WorkerInfo,
};
use flovyn_core::streaming::Hints;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// A backend in memory whose time is moved by hand.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Stage {
    host: HostRuntime,
    storage: Arc<dyn Storage>,
    clock: ManualClock,
}

#[pymethods]
impl Stage {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let host = py.detach(|| HostRuntime::open(Some("memory:"))).map_err(Failure::from)?;
        let clock = ManualClock::new(SystemClock::default().now());
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(Arc::new(clock.clone())));
        Ok(Self { host, storage, clock })
    }

    /// Moves the time forward.
    fn advance(&self, seconds: f64) -> PyResult<()> {
        self.clock.advance(duration(seconds)?);
        Ok(())
    }

    /// Seconds since 1970 on the stage's clock.
    fn now(&self) -> f64 {
        self.clock.now().0 as f64 / 1e6
    }

    /// Does what time has brought; ends with the seconds of the next thing it will bring, or none.
    fn passed(&self, hub: &Hub, token: u64) -> PyResult<()> {
        let storage = self.storage.clone();
        let runtime = self.host.block_on(async { tokio::runtime::Handle::current() }).map_err(Failure::from)?;
        spawn(&runtime, &hub.inbox, token, async move {
            Ok(serde_json::json!(storage.pass().await?.map(|due| due.0 as f64 / 1e6)))
        });
        Ok(())
    }

    /// Begins a life.
    fn life(&self, py: Python<'_>) -> PyResult<Runtime> {
        let mortal = Arc::new(Mortal {
            inner: self.storage.clone(),
            commits: AtomicU64::new(0),
            plan: Mutex::new(None),
            workers: Mutex::default(),
            dead: watch::Sender::new(false),
        });
        let storage: Arc<dyn Storage> = mortal.clone();
        let runtime = py.detach(|| self.host.block_on(async move { Core::over(storage) })).map_err(Failure::from)?;
        Runtime::of_life(py, self.host.clone(), runtime, mortal)
    }
}

/// How a life ends at a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The commit is not made.
    Before,
    /// The commit is made and nobody hears of it.
    After,
    /// The commit is made, its answer is lost, and the life goes on.
    AnswerLost,
}

/// A store that a life sees until its end.
pub(crate) struct Mortal {
    inner: Arc<dyn Storage>,
    commits: AtomicU64,
    plan: Mutex<Option<(u64, End)>>,
    workers: Mutex<Vec<WorkerId>>,
    dead: watch::Sender<bool>,
}

impl Mortal {
    /// Ends the life at its `n`-th commit.
    pub(crate) fn crash_at(&self, n: u64, how: &str) -> Result<()> {
        let end = match how {
            "before" => End::Before,
            "after" => End::After,
            "answer_lost" => End::AnswerLost,
            other => return Err(Error::new(Code::InvalidArgument, format!("{other:?} is no way to crash"))),
        };
        *self.plan.lock() = Some((n, end));
        Ok(())
    }

    /// Commits made or tried so far.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Ends the life now.
    pub(crate) fn end(&self) {
        self.dead.send_replace(true);
    }

    /// Ends when the life has ended.
    pub(crate) async fn ended(&self) {
        let mut dead = self.dead.subscribe();
        let _ = dead.wait_for(|dead| *dead).await;
    }

    /// Lets the store notice that the process is gone.
    pub(crate) async fn bury(&self) -> Result<()> {
        self.end();
        let workers = std::mem::take(&mut *self.workers.lock());
        for worker in workers {
            self.inner.unregister_worker(worker).await?;
        }
        Ok(())
    }

    /// What the call gives, as long as there is life.
    async fn alive<T>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        if *self.dead.borrow() {
            return std::future::pending().await;
        }
        let answer = call.await;
        if *self.dead.borrow() {
            return std::future::pending().await;
        }
        answer
    }

    async fn commit_or_die(&self, request: CommitRequest) -> Result<CommitAnswer> {
        let n = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let end = self.plan.lock().filter(|(at, _)| *at == n).map(|(_, end)| end);
        match end {
            None => self.alive(self.inner.commit(request)).await,
            Some(End::AnswerLost) => {
                let _ = self.alive(self.inner.commit(request)).await?;
                Err(Error::new(Code::StorageUnavailable, "the answer of this commit was lost on purpose"))
            }
            Some(end) => {
                if end == End::After {
                    let _ = self.alive(self.inner.commit(request)).await?;
                }
                self.end();
                std::future::pending().await
            }
        }
    }
}

/// Waits for the end of a life through a hub.
pub(crate) fn tell_end(
    mortal: Arc<Mortal>,
    runtime: &tokio::runtime::Handle,
    hub: &Hub,
    token: u64,
) -> tokio::task::AbortHandle {
    spawn(runtime, &hub.inbox, token, async move {
        mortal.ended().await;
        Ok(())
    })
}

#[async_trait]
impl AgentStorage for Mortal {
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
impl WorkSource for Mortal {
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        self.workers.lock().push(worker.id);
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
impl Catalog for Mortal {
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
impl Housekeeping for Mortal {
    async fn pass(&self) -> Result<Option<Timestamp>> {
        self.alive(self.inner.pass()).await
    }

    async fn remove_ended(&self, keep: Duration) -> Result<usize> {
        self.alive(self.inner.remove_ended(keep)).await
    }
}

impl Storage for Mortal {
    fn hints(&self) -> &Hints {
        self.inner.hints()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.clock()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn close(&self) {
        // The stage's next life goes on with the same rows.
    }
}
