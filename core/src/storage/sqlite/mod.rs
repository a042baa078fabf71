//! The one-file backend: SQLite in WAL mode behind one writer thread.
//!
//! All commands that wait become one transaction with one fsync (`writer`). Reads have connections of their own
//! (`readers`). The rows of a run are keyed by one integer, made of the run's number in the file and the row's number
//! in the run (`values`), so they lie side by side and a step is two seeks and two short inserts. These rows have no
//! org: every query finds the run by org and id first.

mod backup;
mod catalog;
mod checkpoint;
mod claims;
mod entry;
mod event;
mod facts;
mod fault;
mod file_identity;
mod file_time;
mod files;
mod housekeeping;
mod kinship;
mod load;
mod local_values;
mod lock;
mod migrations;
mod moved_files;
mod op;
mod payloads;
mod previews;
mod process_locks;
mod quarantine;
mod queues;
mod readers;
mod result_pages;
mod retention;
mod run;
mod signal;
mod tables;
mod task;
mod tx;
mod unserved;
mod values;
mod wal;
mod writer;

pub use files::Synchronous;

use super::sql::Backend;
use super::sql::database_error::closed;
use super::sql::executions::store_signal;
use super::sql::previews::{Beside, commit_beside, end_attempt};
use super::sql::quarantine::Counted;
use super::sql::workers::{cut_leases, release};
use super::{
    ClaimRequest, EventStream, Families, FamilyStream, Heartbeat, HeartbeatAnswer, Housekeeping, Load, Previews,
    ServerSide, Storage, WorkSource, WorkerInfo,
};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Code, Error, Result};
use crate::forks;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{
    AttemptResult, Claim, ClaimedTask, CommitAnswer, CommitRequest, EventId, Lease, NewSignal, Rows, SignalStored,
    TaskReport,
};
use crate::payload::{Content, ContentHash, MAX_PAYLOAD};
use crate::streaming::{Chunks, Hints};
use crate::sync::Mutex;
use async_trait::async_trait;
use fault::{Done, Fault};
use lock::Locks;
use readers::Readers;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use tx::Tx;
use writer::{Setting, Writer};

/// How a database file is opened.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// When an acknowledged commit is on the disk.
    pub synchronous: Synchronous,
    /// How long a write waits for another process before it is `StorageUnavailable`.
    pub busy_timeout: Duration,
    /// The ceiling of one payload in bytes.
    pub max_payload: u64,
    /// Connections that read.
    pub readers: usize,
    /// The store's time.
    pub clock: Arc<dyn Clock>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(5),
            max_payload: MAX_PAYLOAD,
            readers: 3,
            clock: Arc::new(SystemClock::default()),
        }
    }
}

/// A store in one file on a local disk, shared by any number of processes of one machine. Clones share the connections.
#[derive(Clone)]
pub struct SqliteStorage(Arc<Shared>);

struct Shared {
    path: PathBuf,
    options: SqliteOptions,
    hints: Hints,
    chunks: Chunks,
    locks: Arc<Locks>,
    writer: Writer,
    readers: Arc<Readers>,
    place: Arc<file_identity::Place>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// The moment the last housekeeping pass gave as the next one.
    next_due: Arc<AtomicI64>,
    pulse: Mutex<housekeeping::Pulse>,
    aside: Counted,
    process: u64,
}

impl std::fmt::Debug for SqliteStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

impl SqliteStorage {
    /// Opens or creates a database file and brings it to this version's schema.
    ///
    /// Errors: `InvalidArgument` (a folder, a missing parent, a read-only file, another program's database),
    /// `UnsupportedFilesystem`, `SchemaTooNew`, `CorruptCheckpoint` (no sound database), `StorageUnavailable`.
    pub fn open(path: impl AsRef<Path>, mut options: SqliteOptions) -> Result<Self> {
        let path = files::check(path.as_ref())?;
        let mut connection = files::open_writer(&path, options.synchronous, options.busy_timeout)?;
        migrations::migrate(&mut connection)?;
        // The writer polls for the write lock itself, so that it can stand in line with other processes.
        let failed = |error| fault::explain("open the database", error, "nothing was changed");
        connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        let lock_file = files::beside(&path, "-lock");
        let locks = Locks::open(&lock_file).map_err(|error| {
            Error::new(
                Code::InvalidArgument,
                format!("the lock file {} cannot be opened: {error}; make it writable", lock_file.display()),
            )
            .caused_by(error)
        })?;
        let (locks, hints, next_due) = (Arc::new(locks), Hints::default(), Arc::new(AtomicI64::new(i64::MAX)));
        let place = file_identity::Place::of(&path).map(Arc::new).map_err(|error| {
            Error::new(
                Code::StorageUnavailable,
                format!("the database {} was moved while it was opened: {error}; open it again", path.display()),
            )
        })?;
        let clock = file_time::FileClock::of(options.clock);
        options.clock = clock.clone();
        let readers = Arc::new(Readers::of(place.clone(), options.readers.clamp(1, 16), options.busy_timeout));
        readers.start()?;
        let setting = Setting {
            path: path.clone(),
            log: files::beside(&path, "-wal"),
            synchronous: options.synchronous,
            busy_timeout: options.busy_timeout,
            clock,
            hints: hints.clone(),
            locks: locks.clone(),
            place: place.clone(),
            readers: readers.clone(),
            next_due: next_due.clone(),
        };
        let (writer, thread) = Writer::start(connection, setting)?;
        Ok(Self(Arc::new(Shared {
            path,
            options,
            hints,
            chunks: Chunks::shared(),
            locks,
            writer,
            readers,
            place,
            thread: Mutex::new(Some(thread)),
            next_due,
            pulse: Mutex::default(),
            aside: Counted::default(),
            process: forks::process(),
        })))
    }

    /// The storage as a trait object. Made here and never inlined, so that its generic methods are compiled with this
    /// crate's settings. A program that made the object itself would compile them again with its own settings, which
    /// may be for size.
    #[inline(never)]
    pub(crate) fn shared(self) -> Arc<dyn Storage> {
        Arc::new(self)
    }

    /// Refuses a process that was forked after the file was opened: it has none of the threads and locks.
    fn check_process(&self) -> Result<()> {
        if self.0.process == forks::process() {
            return Ok(());
        }
        Err(Error::new(
            Code::ForkedProcess,
            format!(
                "the database {} was opened before this process was forked; open it again here",
                self.0.path.display()
            ),
        ))
    }

    async fn settle_result(&self, org: OrgId, result: &mut AttemptResult) -> Result<()> {
        match result {
            AttemptResult::Completed(output) => self.settle(org, output).await,
            _ => Ok(()),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.readers.stop();
        self.writer.stop();
    }
}

impl Backend for SqliteStorage {
    type Fault = Fault;
    type Tx<'t> = Tx<'t>;

    async fn write<T, F>(&self, asked: &'static str, _: OrgId, _: ExecutionId, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.write_alone(asked, command).await
    }

    async fn write_new<T, F>(&self, asked: &'static str, _: ExecutionId, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.write_alone(asked, command).await
    }

    /// Shares the transaction of the one writer with other commands that wait.
    async fn write_alone<T, F>(&self, asked: &'static str, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.check_process()?;
        self.0.writer.run(asked, command).await
    }

    async fn read<T, F>(&self, asked: &'static str, _: OrgId, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.read_all(asked, read).await
    }

    async fn write_later<T, F>(&self, asked: &'static str, _: ExecutionId, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.0.writer.run_lazily(asked, command).await.unwrap_or_else(|_| Err(closed(asked)))
    }

    async fn read_all<T, F>(&self, asked: &'static str, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.check_process()?;
        self.0.readers.run(asked, self.now(), read).await
    }

    async fn commit_batch(&self, request: CommitRequest) -> Result<CommitAnswer> {
        self.check_process()?;
        let execution = request.execution;
        let mut beside = Beside::of(&self.0.chunks, &request);
        let (run, read) = ((request.org, execution), beside.is_some());
        let commit = move |tx: &Tx| commit_beside(tx, &request, beside.as_mut());
        self.0.writer.run_for(execution, "commit a batch", commit).await.inspect_err(|_| {
            if read {
                self.0.chunks.write_again(run);
            }
        })
    }

    async fn store(&self, signal: NewSignal) -> Result<SignalStored> {
        self.write_alone("store a signal", move |tx| store_signal(tx, &signal)).await
    }

    fn aside(&self) -> &Counted {
        &self.0.aside
    }

    async fn upload(&self, org: OrgId, content: Content) -> Result<ContentHash> {
        self.put_away(org, content).await
    }

    fn chunks(&self) -> &Chunks {
        &self.0.chunks
    }

    fn max_payload(&self) -> u64 {
        self.0.options.max_payload
    }

    fn now(&self) -> Timestamp {
        self.0.options.clock.now()
    }
}

#[async_trait]
impl WorkSource for SqliteStorage {
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        worker.check()?;
        if !worker.elsewhere {
            self.0.locks.hold(Locks::byte_of(worker.org, worker.id));
        }
        self.0.chunks.worker_seen(worker.org, worker.id);
        self.write_alone("register a worker", move |tx| claims::register(tx, &worker)).await
    }

    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>> {
        claim.check()?;
        self.0.chunks.worker_seen(claim.org, claim.worker);
        let (asked, now) = (claim.clone(), self.now());
        if !self.read_all("look for runs", move |tx| claims::anything(tx, &asked, now, false)).await? {
            return Ok(Vec::new());
        }
        self.write_work("claim runs", move |tx| claims::claim_agents(tx, &claim)).await
    }

    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>> {
        claim.check()?;
        let (asked, now) = (claim.clone(), self.now());
        if !self.read_all("look for tasks", move |tx| claims::anything(tx, &asked, now, true)).await? {
            return Ok(Vec::new());
        }
        self.write_work("claim tasks", move |tx| claims::claim_tasks(tx, &claim)).await
    }

    async fn report_task(&self, mut report: TaskReport) -> Result<()> {
        self.settle_result(report.org, &mut report.result).await?;
        let chunks = self.0.chunks.clone();
        self.write_alone("report a task", move |tx| {
            let (run, op) = claims::report_task(tx, &report)?;
            end_attempt(tx, &chunks, (report.org, run), op)
        })
        .await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        beat.check()?;
        self.0.chunks.worker_seen(beat.org, beat.worker);
        self.write_work("extend leases", move |tx| claims::heartbeat(tx, &beat)).await
    }

    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()> {
        self.write_alone("give a run back", move |tx| release(tx, org, execution, lease)).await
    }

    async fn unregister_worker(&self, org: OrgId, worker: WorkerId) -> Result<()> {
        self.0.chunks.worker_left(org, worker);
        self.write_alone("remove a worker", move |tx| claims::unregister(tx, org, worker)).await?;
        self.0.locks.let_go(Locks::byte_of(org, worker));
        Ok(())
    }
}

#[async_trait]
impl Housekeeping for SqliteStorage {
    async fn pass(&self) -> Result<Option<Timestamp>> {
        self.keep().await
    }

    async fn backup(&self, to: &Path) -> Result<u64> {
        self.back_up(to).await
    }

    async fn cut_leases(&self, org: OrgId, worker: WorkerId, left: Duration) -> Result<()> {
        self.write_alone("cut leases", move |tx| cut_leases(tx, org, worker, left)).await
    }

    async fn load(&self) -> Result<Load> {
        let queues = self.read_all("count what waits", load::queues).await?;
        Ok(Load { queues, set_aside: self.0.aside.total(), ..Load::default() })
    }

    async fn remove_ended(&self, keep: Duration) -> Result<usize> {
        self.write_alone("remove runs that ended long ago", move |tx| retention::remove_ended(tx, keep)).await
    }
}

impl Storage for SqliteStorage {
    fn server_side(&self) -> Result<&dyn ServerSide> {
        Ok(self)
    }

    fn hints(&self) -> &Hints {
        &self.0.hints
    }

    fn chunks(&self) -> Chunks {
        self.0.chunks.clone()
    }

    fn families(&self) -> Option<&dyn Families> {
        Some(self)
    }

    fn family_stream(&self, _: OrgId, _: ExecutionId, _: &str, _: u64) -> Option<FamilyStream> {
        None
    }

    fn previews(&self) -> Option<&dyn Previews> {
        Some(self)
    }

    fn event_stream(&self, _: OrgId, _: ExecutionId, _: EventId, _: u64) -> Option<EventStream> {
        None
    }

    fn org(&self) -> OrgId {
        OrgId::DEFAULT
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.options.clock
    }

    fn rows(&self) -> Rows {
        Rows::InFile
    }

    fn describe(&self) -> String {
        format!("sqlite:{}", self.0.path.display())
    }

    fn close(&self) {
        if self.check_process().is_err() {
            return;
        }
        self.0.readers.stop();
        self.0.writer.stop();
        if let Some(thread) = self.0.thread.lock().take() {
            let _ = thread.join();
        }
    }
}
