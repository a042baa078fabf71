//! One contract, many backends: how to write a store for the engine.
//!
//! A backend implements the traits here over one set of rows (`docs/storage-contract.md` and the conformance suite say what
//! each must keep). Every call is atomic. A call that returned is durable, at the durability the backend was opened with; an
//! error of kind `Unavailable` means *unknown*, never *failed*.

mod allowance;
pub(crate) mod available;
mod bounds;
#[cfg(feature = "testing")]
pub mod conformance;
#[doc(hidden)]
pub mod definitions;
#[doc(hidden)]
pub mod directory;
mod fair_claims;
#[doc(hidden)]
pub mod guarded;
#[doc(hidden)]
pub mod limits;
mod load;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[doc(hidden)]
pub mod previews;
pub mod queues;
#[cfg(feature = "remote")]
pub mod remote;
pub mod schedules;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[doc(hidden)]
pub mod stored;
#[cfg(any(feature = "postgres", feature = "remote"))]
mod tls_roots;
#[doc(hidden)]
pub mod unfenced;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{EntryId, ExecutionId, OpId, OrgId, TaskId, WorkerId};
use crate::model::{
    Cancellation, Checkpoint, Claim, ClaimedTask, CommitAnswer, CommitRequest, Created, Divergence, Entry, Event,
    EventId, Execution, ExecutionFilter, Fact, ForkRequest, KnownWorker, Lease, NewExecution, NewSignal, Page,
    PageRequest, Resolution, ResumeRequest, Segment, Signal, SignalStored, Status, StreamEvent, Task, TaskReport,
};
use crate::payload::{Payload, RowOf};
use crate::streaming::{Chunks, Hints};
use async_trait::async_trait;
pub use bounds::MAX_METADATA;
use bytes::Bytes;
#[doc(hidden)]
pub use definitions::Definitions;
#[doc(hidden)]
pub use directory::Directory;
use futures::stream::BoxStream;
#[doc(hidden)]
pub use load::{Load, PoolLoad, QueueDepth};
#[doc(hidden)]
pub use previews::Previews;
pub use queues::Queues;
pub use schedules::Schedules;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
#[doc(hidden)]
pub use unfenced::Unfenced;

/// How far a run has come, as one look tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Standing {
    /// The run.
    pub execution: ExecutionId,
    /// The number of its last event.
    pub high: u64,
    /// It has ended.
    pub ended: bool,
}

impl Standing {
    /// Of a run with this last event and status.
    pub fn of(execution: ExecutionId, high: u64, status: Status) -> Self {
        Self { execution, high, ended: status.is_terminal() }
    }
}

/// Events of a run as they come.
pub type EventStream = BoxStream<'static, Result<StreamEvent>>;

/// The writes and reads of one run.
#[async_trait]
pub trait AgentStorage: Send + Sync {
    /// Starts a run. An existing id with the same kind and input digest returns that run; with another: `ExecutionExists`.
    async fn create_execution(&self, new: NewExecution) -> Result<Created>;

    /// Reads the last good checkpoint and the tail since it for the holder of a lease (`LeaseLost` for anybody else).
    ///
    /// Ops come with their labels, all at once: any of them may be the twin of the next call. Of their tasks' results only
    /// about the first MiB comes along; the others are left in their rows (`Body::Row`) for [`read_rows`](Self::read_rows).
    ///
    /// A checkpoint whose hash is wrong is passed over for its parent, whose tail is then longer by a segment; when none is
    /// good the run is quarantined with `CorruptCheckpoint`.
    async fn load_segment(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<Segment>;

    /// Facts of the current segment newer than `after`, and the highest number. Reads only.
    async fn facts_after(&self, org: OrgId, execution: ExecutionId, after: u64) -> Result<(Vec<Fact>, u64)>;

    /// How far each of these runs has come, in one look. Unknown ones are left out.
    async fn standings(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<Standing>>;

    /// Makes a batch durable in one transaction: fence, request id, base, then the rows and the end of the batch.
    async fn commit(&self, request: CommitRequest) -> Result<CommitAnswer>;

    /// Whether commits may bring claimed tasks along.
    fn brings_tasks(&self) -> bool;

    /// As [`commit`](Self::commit), and brings tasks of the batch for which the sender has free places, claimed already, where
    /// that spares it a round trip. What it does not bring waits in its queue. An answer that was lost takes the claims with
    /// it: they end with their leases.
    async fn commit_and_claim(
        &self,
        request: CommitRequest,
        wanted: &ClaimRequest,
    ) -> Result<(CommitAnswer, Vec<ClaimedTask>)>;

    /// Stores a signal and wakes a run that waits for it, in one transaction.
    async fn store_signal(&self, signal: NewSignal) -> Result<SignalStored>;

    /// Records a request to stop. Graceful: CANCELLING, a fact, and a wake-up. Hard: epoch bump and CANCELLED at once.
    /// A run that has ended stays as it is and is returned.
    async fn request_cancel(&self, org: OrgId, execution: ExecutionId, cancel: Cancellation) -> Result<Execution>;

    /// Removes a run that has ended, with all it has; its id is free again. `InvalidTransition` while it goes on, while a fork
    /// reads its history, or while a detached task of it runs.
    async fn remove_execution(&self, org: OrgId, execution: ExecutionId) -> Result<()>;

    /// Continues a PAUSED run (`InvalidTransition` otherwise, `StepLimitReached` past the cumulative limit).
    async fn resume(&self, org: OrgId, execution: ExecutionId, request: ResumeRequest) -> Result<Execution>;

    /// Answers for a task that is in doubt or quarantined; the first answer wins.
    async fn resolve_task(&self, org: OrgId, op: OpId, resolution: Resolution) -> Result<Task>;

    /// Answers for a run that is paused by a divergence. `Fork` returns the fork, else the run itself.
    async fn resolve_divergence(&self, org: OrgId, execution: ExecutionId, decision: Divergence) -> Result<Execution>;

    /// Starts a run that shares another's tree up to a point. O(1) in the parent's history.
    async fn fork(&self, request: ForkRequest) -> Result<Execution>;

    /// The ceiling of one payload, in bytes.
    fn max_payload(&self) -> u64;

    /// Stores a payload for a call that will refer to it within a day; a small one comes back as it is.
    async fn store_payload(&self, org: OrgId, payload: Payload) -> Result<Payload>;

    /// The results that a load left in their rows, in the order asked: at most [`PAGE`] at once.
    async fn read_rows(&self, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>>;

    /// The bytes of a payload that was returned by reference, hash-checked.
    async fn read_payload(&self, org: OrgId, payload: &Payload) -> Result<Bytes>;

    /// A part of such a payload, so that a large one need not be in memory. Only reading the whole checks the hash.
    async fn read_payload_part(&self, org: OrgId, payload: &Payload, offset: u64, length: usize) -> Result<Bytes>;

    /// The entries from the root to a leaf, in order, across the runs a fork shares them with; where `after` is on that
    /// branch, only those behind it, so that a reader asks once for each.
    async fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>>;
}

/// The work of a queue, claimed under leases.
#[async_trait]
pub trait WorkSource: Send + Sync {
    /// Makes a worker known and alive.
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()>;

    /// Hands up to `limit` runnable runs of these kinds to a worker: RUNNING, epoch + 1, a lease, a `Resumed` event.
    ///
    /// The highest priority first, of that each kind in turn in the order of `kinds`, and of each the oldest. A run that has
    /// just been woken is left to the worker that has it parked for [`PREFERENCE`]. A claim of none
    /// (`limit` 0) gives up that preference for all runs the worker has parked: others may take them at once.
    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>>;

    /// Hands up to `limit` visible tasks of these kinds to a worker: RUNNING, attempt + 1, a lease.
    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>>;

    /// Records the end of a claimed attempt; refused (`LeaseLost`) when another attempt has superseded it.
    async fn report_task(&self, report: TaskReport) -> Result<()>;

    /// Extends the leases of a worker's runs and tasks; tells which it has lost and what is newer on those it holds.
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer>;

    /// Gives a run back unfinished: PENDING at once.
    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()>;

    /// Removes a worker of an org and gives back all it holds; none of another's.
    async fn unregister_worker(&self, org: OrgId, worker: WorkerId) -> Result<()>;
}

/// Rows that are read at once while a tail is loaded or replayed.
pub const PAGE: usize = 512;

/// How long a run that wakes is left to the worker that has its copy: what a worker that is gone costs at most.
pub const PREFERENCE: Duration = Duration::from_millis(400);

/// How long work may wait for a worker that serves its kind before its run has the event `NoWorker`.
pub const NO_WORKER_AFTER: Duration = Duration::from_secs(5);
/// How often, at most, a pass looks for such work.
pub const NO_WORKER_EVERY: Duration = Duration::from_secs(1);

/// A worker that makes itself known. It is of one org: another's worker of the same id is another one.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct WorkerInfo {
    /// Tenant.
    pub org: OrgId,
    /// Its id.
    pub id: WorkerId,
    /// Host, process and name, for people.
    pub name: String,
    /// The queues it polls.
    pub queues: Vec<String>,
    /// It lives in another process, which calls through this one: that this one ends says nothing about it.
    pub elsewhere: bool,
}

/// A request for work.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct ClaimRequest {
    /// Tenant.
    pub org: OrgId,
    /// Who asks.
    pub worker: WorkerId,
    /// The queue.
    pub queue: String,
    /// What it can run.
    pub kinds: Arc<[String]>,
    /// At most so many.
    pub limit: usize,
    /// How long the lease holds.
    pub ttl: Duration,
    /// Only this run (a `flovyn.run` serves its own).
    pub only: Option<ExecutionId>,
}

/// A worker's sign of life.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct Heartbeat {
    /// Tenant, of the worker and of all it names.
    pub org: OrgId,
    /// Who.
    pub worker: WorkerId,
    /// How long the leases shall hold from now.
    pub ttl: Duration,
    /// Runs it believes to hold, with the epoch and the highest fact number known.
    pub executions: Vec<(ExecutionId, u64, u64)>,
    /// Attempts it believes to run: task, attempt, whether the task itself gave a sign since the last beat.
    pub tasks: Vec<(TaskId, u32, bool)>,
    /// How far attempts say they are: task, attempt, a small JSON object. One that no longer runs is passed over.
    pub progress: Vec<(TaskId, u32, String)>,
}

/// What a heartbeat answers.
#[derive(Debug, Clone, Default)]
#[doc(hidden)]
pub struct HeartbeatAnswer {
    /// Runs that are no longer the worker's.
    pub lost_executions: Vec<ExecutionId>,
    /// Runs with facts newer than known.
    pub stale_executions: Vec<ExecutionId>,
    /// Attempts that are superseded or whose run wants them to stop.
    pub cancelled_tasks: Vec<TaskId>,
}

/// Reads for people and programs; every one scoped to an org.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// One run, or `ExecutionNotFound`.
    async fn execution(&self, org: OrgId, id: ExecutionId) -> Result<Execution>;
    /// Runs, newest first.
    async fn executions(&self, org: OrgId, filter: ExecutionFilter, page: PageRequest) -> Result<Page<Execution>>;
    /// All entries a run appended, in order of their place, on whatever branch.
    async fn entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>>;
    /// One entry.
    async fn entry(&self, org: OrgId, id: EntryId) -> Result<Entry>;
    /// Tasks of a run, in order of their place.
    async fn tasks(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Task>>;
    /// One task of a run.
    async fn task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Task>;
    /// Checkpoints of a run, oldest first.
    async fn checkpoints(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Checkpoint>>;
    /// Signals of a run, oldest first.
    async fn signals(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Signal>>;
    /// Durable events of a run after a number, oldest first.
    async fn events(&self, org: OrgId, execution: ExecutionId, after: u64, limit: usize) -> Result<Vec<Event>>;
    /// The ops of a segment as recorded: what tests and people compare.
    async fn journal(&self, org: OrgId, execution: ExecutionId, segment: u32) -> Result<Vec<crate::model::RecordedOp>>;
    /// What each queue has of each kind, by kind and queue: work that waits or runs, and what live workers serve.
    async fn queues(&self, org: OrgId) -> Result<Vec<crate::model::QueueLoad>>;
    /// Workers that are known, by id; one that is gone is forgotten some time after.
    async fn workers(&self, org: OrgId, page: PageRequest) -> Result<Page<KnownWorker>>;
    /// Kinds with work that no live worker serves: kind, queue and how many wait.
    async fn unserved(&self, org: OrgId) -> Result<Vec<(String, String, u64)>>;
}

/// Work that time brings.
#[async_trait]
pub trait Housekeeping: Send + Sync {
    /// One pass: fires due timers, ends expired leases, attempts, deadlines and graces. Guarded updates; safe in many processes.
    /// Returns when the next pass has something to do; a moment that has come is that of a schedule
    /// ([`start_due`](schedules::start_due)).
    async fn pass(&self) -> Result<Option<Timestamp>>;

    /// Makes the leases of an org's worker that seems gone end within `left`, never later than they would. A worker that lives
    /// extends them again by its next heartbeat; a backend whose server keeps house does nothing.
    async fn cut_leases(&self, org: OrgId, worker: WorkerId, left: Duration) -> Result<()>;

    /// What waits for workers and what they have, over all orgs; empty where a server keeps house.
    async fn load(&self) -> Result<Load>;

    /// Removes runs that ended at least `keep` ago with all they have, oldest first; tells how many, at most 256 a call.
    ///
    /// A run that others were forked from stays as long as they do, and one with a detached task that has not ended stays.
    /// Its id may be taken again afterwards. A backend that keeps every run refuses with `InvalidArgument`.
    async fn remove_ended(&self, keep: Duration) -> Result<usize>;

    /// Writes a consistent copy of the database to a new file while runs go on; tells its size in bytes. A file that is there
    /// stays as it is. A backend that is no file refuses with `InvalidArgument`.
    async fn backup(&self, to: &Path) -> Result<u64>;
}

/// What a backend that is no file says of a backup.
fn no_backup(to: &Path) -> Result<u64> {
    let message = format!(
        "no backup can be made to {}: this backend is no SQLite file. Back a PostgreSQL database up by pg_dump; the \
         database of a server where it is, by sqlite:FILE; memory: is kept nowhere",
        to.display()
    );
    Err(crate::Error::new(crate::error::Code::InvalidArgument, message))
}

/// Of all kinds with work those that no live worker serves.
fn unserved_of(loads: Vec<crate::model::QueueLoad>) -> Vec<(String, String, u64)> {
    let unserved = loads.into_iter().filter(|load| load.queued > 0 && !load.served);
    unserved.map(|load| (load.kind, load.queue, load.queued)).collect()
}

/// What a server keeps in its backend beside runs: who may call, predefined agents, and what calls need that name no claim.
#[doc(hidden)]
pub trait ServerSide: Directory + Definitions + Unfenced {}

impl<T: Directory + Definitions + Unfenced> ServerSide for T {}

/// Everything a runtime needs of a backend.
pub trait Storage: AgentStorage + WorkSource + Catalog + Housekeeping + Schedules + Queues {
    /// Where the backend says that something changed.
    fn hints(&self) -> &Hints;
    /// The previews of this process's runs.
    fn chunks(&self) -> Chunks;
    /// The rows by which processes that share the backend read each other's previews, where several can.
    fn previews(&self) -> Option<&dyn Previews>;
    /// The events of a run after a position from a server, which reads and fences them itself; none where this process reads.
    /// Entries with more bytes come without their content.
    fn event_stream(&self, org: OrgId, run: ExecutionId, after: EventId, content_up_to: u64) -> Option<EventStream>;
    /// What a server keeps in the backend beside runs. `InvalidArgument` where the backend is itself a server.
    fn server_side(&self) -> Result<&dyn ServerSide>;
    /// The org of callers that name none: of a server's token, else the default.
    fn org(&self) -> OrgId;
    /// The backend's clock.
    fn clock(&self) -> &Arc<dyn crate::clock::Clock>;
    /// How to name the backend to people.
    fn describe(&self) -> String;
    /// Ends the backend's threads once everything acknowledged is safe.
    fn close(&self);
}
