//! The contract of a store for the engine, which all backends implement.
//!
//! A backend implements the traits here over one set of rows. `docs/storage-contract.md` says what each call means in
//! rows, and the conformance suite checks it. Every call is atomic. When a call has returned, it is durable, at the
//! durability that the backend was opened with. An error of kind `Unavailable` means that the outcome is *unknown*,
//! never that the call *failed*.

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
pub mod families;
#[doc(hidden)]
pub mod guarded;
mod ledger;
#[doc(hidden)]
pub mod limits;
mod load;
#[cfg(feature = "sqlite")]
pub(crate) mod local;
pub(crate) mod local_reference;
#[doc(hidden)]
pub mod machines;
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
    EventId, Execution, ExecutionFilter, Fact, FamilyEvent, ForkRequest, KnownWorker, Lease, NewExecution, NewSignal,
    Page, PageRequest, Purse, Resolution, ResumeRequest, RollUp, Rows, Segment, Signal, SignalStored, Status,
    StreamEvent, Task, TaskReport,
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
#[doc(hidden)]
pub use families::Families;
use futures::stream::BoxStream;
#[doc(hidden)]
pub use load::{Load, PoolLoad, QueueDepth};
#[doc(hidden)]
pub use machines::Machines;
#[doc(hidden)]
pub use previews::Previews;
pub use queues::Queues;
pub use schedules::Schedules;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
#[doc(hidden)]
pub use unfenced::Unfenced;

/// How far a run has come.
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
    /// The standing of a run with this last event and status.
    pub fn of(execution: ExecutionId, high: u64, status: Status) -> Self {
        Self { execution, high, ended: status.is_terminal() }
    }
}

/// A stream of a run's events.
#[doc(hidden)]
pub type EventStream = BoxStream<'static, Result<StreamEvent>>;

/// A stream of the events of a run and of all below it; none is the end, and what breaks off without it goes on elsewhere.
#[doc(hidden)]
pub type FamilyStream = BoxStream<'static, Result<Option<FamilyEvent>>>;

/// The writes and reads of one run.
#[async_trait]
pub trait AgentStorage: Send + Sync {
    /// Starts a run. If there is a run with this id, and it has the same kind and input digest, returns that run; with
    /// others fails as
    /// `ExecutionExists`.
    async fn create_execution(&self, new: NewExecution) -> Result<Created>;

    /// Reads the last good checkpoint and the tail since it for the holder of a lease (`LeaseLost` for anybody else).
    ///
    /// All ops of the tail come at once, with their labels, since any of them may be the twin of the next call. Of
    /// their tasks' results only about the first MiB comes. The others stay in their rows (`Body::Row`) for
    /// [`read_rows`](Self::read_rows).
    ///
    /// If the hash of a checkpoint is wrong, the one before it is taken, and the tail is longer by a segment. If none
    /// is good, the run is quarantined with `CorruptCheckpoint`.
    async fn load_segment(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<Segment>;

    /// The facts of the current segment with a number above `after`, the run's highest number, and how the budgets of its
    /// family stand with these facts, where other runs may change that. Writes nothing.
    async fn facts_after(
        &self,
        org: OrgId,
        execution: ExecutionId,
        after: u64,
    ) -> Result<(Vec<Fact>, u64, Option<Purse>)>;

    /// How far each of these runs has come. Unknown ones are left out.
    async fn standings(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<Standing>>;

    /// Makes a batch durable in one transaction. Checks the lease, the request id and the base, in this order, then
    /// writes the rows and the end of the batch.
    async fn commit(&self, request: CommitRequest) -> Result<CommitAnswer>;

    /// Whether [`commit_and_claim`](Self::commit_and_claim) returns claimed tasks.
    fn brings_tasks(&self) -> bool;

    /// As [`commit`](Self::commit), and also claims tasks of the batch for the sender, who has free places for them,
    /// where that saves a round trip. Tasks that are not returned wait in their queue. If the answer is lost, the
    /// claims end with their leases.
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

    /// Removes a run that has ended, with all its rows. Its id is free again. Fails as `InvalidTransition` while the
    /// run has not ended, while a fork reads its history, while it has children, or while one of its detached tasks runs.
    async fn remove_execution(&self, org: OrgId, execution: ExecutionId) -> Result<()>;

    /// Continues a PAUSED run. Fails as `InvalidTransition` for any other, and as `StepLimitReached` past the
    /// cumulative limit of steps.
    async fn resume(&self, org: OrgId, execution: ExecutionId, request: ResumeRequest) -> Result<Execution>;

    /// Decides about a task that is in doubt or quarantined. The first decision counts.
    async fn resolve_task(&self, org: OrgId, op: OpId, resolution: Resolution) -> Result<Task>;

    /// Decides about a run that a divergence has paused. For `Fork` it returns the fork, else the run itself.
    async fn resolve_divergence(&self, org: OrgId, execution: ExecutionId, decision: Divergence) -> Result<Execution>;

    /// Starts a run that shares another one's history up to a point. It costs the same however long that history is.
    async fn fork(&self, request: ForkRequest) -> Result<Execution>;

    /// The ceiling of one payload, in bytes.
    fn max_payload(&self) -> u64;

    /// Stores a payload for a call that will refer to it within a day. A small one is returned as it is.
    async fn store_payload(&self, org: OrgId, payload: Payload) -> Result<Payload>;

    /// Results that a load has left in their rows, in the order of `of`: at most [`PAGE`] at once.
    async fn read_rows(&self, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>>;

    /// The bytes of a payload that was returned by reference. Their hash is checked.
    async fn read_payload(&self, org: OrgId, payload: &Payload) -> Result<Bytes>;

    /// A part of such a payload, so that a large one need not be in memory. The hash is not checked, since that needs
    /// the whole.
    async fn read_payload_part(&self, org: OrgId, payload: &Payload, offset: u64, length: usize) -> Result<Bytes>;

    /// The entries from the root to a leaf, in order. They can belong to several runs, since a fork shares those of its
    /// parent. If
    /// `after` is on that branch, only those after it are returned, so that a reader asks for each only once.
    async fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>>;
}

/// The work of a queue, claimed under leases.
#[async_trait]
pub trait WorkSource: Send + Sync {
    /// Makes a worker known and alive.
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()>;

    /// Hands up to `limit` runnable runs of these kinds to a worker: RUNNING, epoch + 1, a lease, a `Resumed` event.
    ///
    /// Runs of the highest priority come first; among these the kinds take turns in the order of `kinds`, and of each
    /// kind the oldest run comes first. A run that has just been woken is reserved for [`PREFERENCE`] for the worker
    /// that has it parked. A claim of none (`limit` 0) gives up that preference for all runs that the worker has
    /// parked: others may take them at once.
    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>>;

    /// Hands up to `limit` visible tasks of these kinds to a worker: RUNNING, attempt + 1, a lease.
    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>>;

    /// Records the end of a claimed attempt. Fails as `LeaseLost` if another attempt has superseded it.
    async fn report_task(&self, report: TaskReport) -> Result<()>;

    /// Extends the leases of a worker's runs and tasks. Returns which of them it has lost, and which runs have new
    /// facts.
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer>;

    /// Gives a run back unfinished: it is PENDING at once.
    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()>;

    /// Removes a worker of an org, and gives back all that it holds. A worker of another org with the same id is left
    /// alone.
    async fn unregister_worker(&self, org: OrgId, worker: WorkerId) -> Result<()>;
}

/// The most rows that are read at once while a tail is loaded or replayed.
pub const PAGE: usize = 512;

/// How long a run that was woken is reserved for the worker that has it parked. If that worker is gone, the run loses
/// so much time.
pub const PREFERENCE: Duration = Duration::from_millis(400);

/// How long work may wait for a worker that serves its kind before its run has the event `NoWorker`.
pub const NO_WORKER_AFTER: Duration = Duration::from_secs(5);
/// The least time between two looks for such work.
pub const NO_WORKER_EVERY: Duration = Duration::from_secs(1);

/// A worker that registers. It belongs to one org: a worker of another org with the same id is another one.
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
    /// It lives in another process, which calls through this one. So it may live on when this process ends.
    pub elsewhere: bool,
}

/// A request for work.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct ClaimRequest {
    /// Tenant.
    pub org: OrgId,
    /// The worker that asks.
    pub worker: WorkerId,
    /// The queue.
    pub queue: String,
    /// The kinds that it can run.
    pub kinds: Arc<[String]>,
    /// The most that it takes.
    pub limit: usize,
    /// How long the lease is to be valid.
    pub ttl: Duration,
    /// Only work of these runs.
    pub only: Option<Only>,
}

/// The runs that a claim is limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Only {
    /// One run.
    Run(ExecutionId),
    /// A run and all below it: a `flovyn.run` serves its own.
    Family(ExecutionId),
}

impl Only {
    /// The run that is named.
    pub fn run(self) -> ExecutionId {
        match self {
            Self::Run(run) | Self::Family(run) => run,
        }
    }

    /// Whether the runs below it are meant too.
    pub fn is_family(self) -> bool {
        matches!(self, Self::Family(_))
    }

    /// Whether a run with this root is meant.
    pub(crate) fn covers(self, run: ExecutionId, root: ExecutionId) -> bool {
        self.run() == run || (self.is_family() && self.run() == root)
    }
}

/// A worker's sign of life.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct Heartbeat {
    /// The tenant of the worker and of all that it names.
    pub org: OrgId,
    /// The worker.
    pub worker: WorkerId,
    /// How long the leases are to be valid from now.
    pub ttl: Duration,
    /// Runs that it believes to hold, with the epoch and the highest fact number it knows.
    pub executions: Vec<(ExecutionId, u64, u64)>,
    /// Attempts that it believes to run: the task, the attempt, and whether the attempt gave a sign of life since the
    /// last heartbeat.
    pub tasks: Vec<(TaskId, u32, bool)>,
    /// Progress reports: the task, the attempt, and a small JSON object. One of an attempt that no longer runs is
    /// ignored.
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
    /// Attempts that are superseded, or that have to stop.
    pub cancelled_tasks: Vec<TaskId>,
}

/// Reads for people and programs; every one scoped to an org.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// One run, or `ExecutionNotFound`.
    async fn execution(&self, org: OrgId, id: ExecutionId) -> Result<Execution>;
    /// Runs, newest first.
    async fn executions(&self, org: OrgId, filter: ExecutionFilter, page: PageRequest) -> Result<Page<Execution>>;
    /// What each of these runs has used together with all below it. Unknown ones are left out.
    async fn roll_ups(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<RollUp>>;
    /// The first `limit` runs below a run: its children, then theirs, and so on, each generation in the order of birth.
    async fn descendants(&self, org: OrgId, execution: ExecutionId, limit: usize) -> Result<Vec<Execution>>;
    /// All entries that a run has appended, on all of its branches, in order of their place.
    async fn entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>>;
    /// The same from the last one back: each page goes on before the first entry of the one before it.
    async fn latest_entries(&self, org: OrgId, execution: ExecutionId, page: PageRequest) -> Result<Page<Entry>>;
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
    /// The number of the last durable event of a run.
    async fn last_event(&self, org: OrgId, execution: ExecutionId) -> Result<u64>;
    /// The ops of a segment as recorded: what tests and people compare.
    async fn journal(&self, org: OrgId, execution: ExecutionId, segment: u32) -> Result<Vec<crate::model::RecordedOp>>;
    /// How much work of each kind waits and runs in each queue, and which kinds live workers serve. By kind and queue.
    async fn queues(&self, org: OrgId) -> Result<Vec<crate::model::QueueLoad>>;
    /// Known workers, by id. A worker that is gone is forgotten after some time.
    async fn workers(&self, org: OrgId, page: PageRequest) -> Result<Page<KnownWorker>>;
    /// Kinds with work that no live worker serves: kind, queue and how many wait.
    async fn unserved(&self, org: OrgId) -> Result<Vec<(String, String, u64)>>;
}

/// Work that has to be done regularly, or when a time is reached.
#[async_trait]
pub trait Housekeeping: Send + Sync {
    /// One pass: fires due timers, and ends expired leases, attempts, deadlines and graces. Several processes may do it
    /// at once. Returns when the next pass has something to do. A time that has already come is that of a schedule
    /// ([`start_due`](schedules::start_due)).
    async fn pass(&self) -> Result<Option<Timestamp>>;

    /// Shortens the leases of a worker that seems to be gone: they end within `left`, or earlier if they would. A
    /// worker that lives extends them again with its next heartbeat. Does nothing on a backend whose server does the
    /// housekeeping.
    async fn cut_leases(&self, org: OrgId, worker: WorkerId, left: Duration) -> Result<()>;

    /// How much work waits and runs, over all orgs. Empty on a backend whose server does the housekeeping.
    async fn load(&self) -> Result<Load>;

    /// Removes runs that ended at least `keep` ago, with all their rows, oldest first. Returns how many: at most 256 in
    /// a call.
    ///
    /// A run with forks stays as long as these, and a run with a detached task that has not ended stays. The id of a
    /// removed run may be used again. A backend that keeps every run refuses with `InvalidArgument`.
    async fn remove_ended(&self, keep: Duration) -> Result<usize>;

    /// Writes a consistent copy of the database to a new file while runs go on, and returns its size in bytes. An
    /// existing file is never replaced. A backend that is no file refuses with `InvalidArgument`.
    async fn backup(&self, to: &Path) -> Result<u64>;
}

/// Refuses a backup on a backend that is no file.
fn no_backup(to: &Path) -> Result<u64> {
    let message = format!(
        "no backup can be made to {}: this backend is no SQLite file. Back a PostgreSQL database up by pg_dump; the \
         database of a server where it is, by sqlite:FILE; memory: is kept nowhere",
        to.display()
    );
    Err(crate::Error::new(crate::error::Code::InvalidArgument, message))
}

/// The kinds with waiting work that no live worker serves.
fn unserved_of(loads: Vec<crate::model::QueueLoad>) -> Vec<(String, String, u64)> {
    let unserved = loads.into_iter().filter(|load| load.queued > 0 && !load.served);
    unserved.map(|load| (load.kind, load.queue, load.queued)).collect()
}

/// What a server keeps in its backend beside runs: who may call, predefined agents, and what calls need that name no claim.
#[doc(hidden)]
pub trait ServerSide: Directory + Definitions + Unfenced {}

impl<T: Directory + Definitions + Unfenced> ServerSide for T {}

/// Everything a runtime needs of a backend.
pub trait Storage: AgentStorage + WorkSource + Catalog + Housekeeping + Schedules + Queues + Machines {
    /// The hints by which the backend announces changes.
    fn hints(&self) -> &Hints;
    /// The previews of this process's runs.
    fn chunks(&self) -> Chunks;
    /// The rows by which processes that share the backend read each other's previews. None if only one process can use
    /// it.
    fn previews(&self) -> Option<&dyn Previews>;
    /// How a reader of a run finds those below it. None for a backend that a server reads.
    fn families(&self) -> Option<&dyn Families>;
    /// A stream of the events of a run and of all below it after a cursor, as [`event_stream`](Self::event_stream) is of one.
    fn family_stream(&self, org: OrgId, run: ExecutionId, after: &str, content_up_to: u64) -> Option<FamilyStream>;
    /// A stream of a run's events after a position, from a server that reads and fences them itself. None for a backend
    /// that this process reads itself. Entries with more bytes than `content_up_to` come without their content.
    fn event_stream(&self, org: OrgId, run: ExecutionId, after: EventId, content_up_to: u64) -> Option<EventStream>;
    /// What a server keeps in the backend beside runs. `InvalidArgument` where the backend is itself a server.
    fn server_side(&self) -> Result<&dyn ServerSide>;
    /// The org of callers that name none: that of the server's token, else the default one.
    fn org(&self) -> OrgId;
    /// The backend's clock.
    fn clock(&self) -> &Arc<dyn crate::clock::Clock>;
    /// Where it has its rows.
    fn rows(&self) -> Rows;
    /// The name of the backend for people.
    fn describe(&self) -> String;
    /// Ends the backend's threads after everything acknowledged is safe.
    fn close(&self);
}
