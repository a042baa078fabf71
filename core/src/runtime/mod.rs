//! A backend, its client and its housekeeping in one process, chosen by a URL.

mod builder;
mod change_poller;
#[cfg(feature = "remote")]
#[doc(hidden)]
pub mod daemon;
mod flovyn;
mod home;
mod hybrid;
mod previews;
mod signals;
mod token;
mod url;
mod write_probe;

pub use builder::{AgentBuilder, AgentRunner, Backing};
#[cfg(feature = "remote")]
pub use daemon::{LocalWorkerDaemon, LocalWorkerDaemonBuilder};
pub use flovyn::{FlovynClient, FlovynClientBuilder};
pub use hybrid::RemoteTaskExecutor;
pub use signals::{ChannelSignals, Incoming, Listener, SignalSender, SignalSource, StdinSignals};
pub use token::dev_token_file;
#[doc(hidden)]
pub use url::{Backend, parse_url};
pub use url::{Chosen, parse_age};

use crate::client::Client;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use crate::model::Persistence;
use crate::storage::available::troubled;
use crate::storage::memory::MemoryStorage;
use crate::storage::{Storage, schedules};
use crate::streaming::Chunks;
use crate::sync::Mutex;
use crate::worker::{self, Host, Worker, WorkerOptions};
use std::collections::HashMap;
#[cfg(feature = "remote")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

/// An open backend. Clones share it; the last one dropped, or [`close`](Self::close), ends its housekeeping.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    /// What is kept of runs that are started without saying so.
    persistence: Persistence,
    /// The workers that were started here. Those that were closed meanwhile are left out when the next one is added.
    workers: Mutex<Vec<Weak<worker::Core>>>,
    /// The tasks that run in the background: housekeeping, and the one that carries previews.
    beside: Mutex<Vec<tokio::task::AbortHandle>>,
    /// The file for the values of local runs, where it is not that of the user's folder.
    values: OnceLock<PathBuf>,
    /// The task that removes runs which ended long ago.
    removing: Mutex<Option<tokio::task::AbortHandle>>,
}

/// The file for the values of local runs, in Flovyn's folder of the user or in the home of a daemon.
const VALUES: &str = "local.db";

static NAMED_MEMORY: LazyLock<Mutex<HashMap<String, Weak<Inner>>>> = LazyLock::new(Mutex::default);

impl Runtime {
    /// Opens the backend of a URL: `memory:`, `memory:name`, `sqlite:FILE`, `minimal:FILE`, `postgres://…`,
    /// `http://HOST:PORT`. Must be called inside
    /// a tokio runtime.
    pub async fn open(url: &str) -> Result<Self> {
        match parse_url(url)? {
            Backend::Memory { name: None } => {
                Ok(Self::over(Arc::new(MemoryStorage::new(Arc::new(SystemClock::default())))))
            }
            Backend::Memory { name: Some(name) } => {
                let mut named = NAMED_MEMORY.lock();
                if let Some(open) = named.get(&name).and_then(Weak::upgrade) {
                    return Ok(Self(open));
                }
                let runtime = Self::over(Arc::new(MemoryStorage::new(Arc::new(SystemClock::default()))));
                named.insert(name, Arc::downgrade(&runtime.0));
                Ok(runtime)
            }
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { path, normal, retention, max_payload, minimal } => {
                use crate::storage::sqlite::{SqliteOptions, SqliteStorage, Synchronous};
                let synchronous = if normal { Synchronous::Normal } else { Synchronous::Full };
                let mut options = SqliteOptions { synchronous, ..SqliteOptions::default() };
                options.max_payload = max_payload.unwrap_or(options.max_payload);
                let storage = tokio::task::spawn_blocking(move || SqliteStorage::open(path, options))
                    .await
                    .map_err(|error| Error::new(Code::StorageUnavailable, error.to_string()))??;
                let persistence = if minimal { Persistence::Minimal } else { Persistence::Full };
                Ok(Self::keeping(storage.shared(), retention, persistence))
            }
            #[cfg(feature = "remote")]
            Backend::Server { url } => {
                use crate::storage::remote::RemoteStorage;
                let tokens = Box::new(token::Found::of(&url));
                Ok(Self::over(Arc::new(RemoteStorage::connect_by(&url, tokens).await?)))
            }
            #[cfg(not(feature = "remote"))]
            Backend::Server { .. } => {
                Err(Error::new(Code::InvalidArgument, "this build speaks to no server; enable the feature \"remote\""))
            }
            #[cfg(feature = "postgres")]
            Backend::Postgres { url, retention, max_payload } => {
                use crate::storage::postgres::{PostgresOptions, PostgresStorage};
                let mut options = PostgresOptions::default();
                options.max_payload = max_payload.unwrap_or(options.max_payload);
                let storage = tokio::task::spawn_blocking(move || PostgresStorage::connect(&url, options))
                    .await
                    .map_err(|error| Error::new(Code::StorageUnavailable, error.to_string()))??;
                Ok(Self::keeping(storage.shared(), retention, Persistence::Full))
            }
            #[cfg(not(feature = "postgres"))]
            Backend::Postgres { .. } => {
                Err(Error::new(Code::InvalidArgument, "this build has no PostgreSQL; enable the feature \"postgres\""))
            }
            #[cfg(not(feature = "sqlite"))]
            Backend::Sqlite { .. } => {
                Err(Error::new(Code::InvalidArgument, "this build has no SQLite; enable the feature \"sqlite\""))
            }
        }
    }

    /// As [`open`](Self::open). An error also says where the URL comes from.
    pub async fn open_chosen(chosen: &Chosen) -> Result<Self> {
        Self::open(&chosen.url).await.map_err(|error| chosen.explain(error))
    }

    /// Uses a backend that is already open.
    pub fn over(storage: Arc<dyn Storage>) -> Self {
        Self::opened(storage, Persistence::Full)
    }

    fn opened(storage: Arc<dyn Storage>, persistence: Persistence) -> Self {
        let (open, clock) = (Arc::downgrade(&storage), storage.clock().clone());
        let mut beside = vec![
            crate::spawn::task(housekeep(open, clock)).abort_handle(),
            crate::spawn::task(write_probe::keep(Arc::downgrade(&storage))).abort_handle(),
            crate::spawn::task(change_poller::run(Arc::downgrade(&storage), storage.hints().change_poller()))
                .abort_handle(),
        ];
        if storage.previews().is_some() {
            beside.push(crate::spawn::task(previews::write(Arc::downgrade(&storage))).abort_handle());
        }
        let (chunks, org) = (storage.chunks(), storage.org());
        let (workers, beside, removing) = (Mutex::default(), Mutex::new(beside), Mutex::default());
        let values = OnceLock::new();
        Self(Arc::new(Inner { storage, chunks, org, persistence, workers, beside, values, removing }))
    }

    /// From now on, and as long as the runtime is open, removes each run with everything that belongs to it when `keep`
    /// has passed since its end. Without this call all runs are kept. Several processes may do this over one backend;
    /// none waits for another. A second call replaces the age of the first.
    pub fn keep_ended(&self, keep: Duration) {
        let removing = crate::spawn::task(remove_ended(Arc::downgrade(&self.0.storage), keep)).abort_handle();
        self.0.stop_removing(Some(removing));
    }

    /// Stops removing runs that have ended.
    pub fn keep_all(&self) {
        self.0.stop_removing(None);
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn keeping(storage: Arc<dyn Storage>, retention: Option<Duration>, persistence: Persistence) -> Self {
        let runtime = Self::opened(storage, persistence);
        if let Some(keep) = retention {
            runtime.keep_ended(keep);
        }
        runtime
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        self.client_of(self.0.org)
    }

    /// A client that calls as an org.
    pub fn client_of(&self, org: OrgId) -> Client {
        Client::new(self.0.storage.clone(), self.0.chunks.clone(), org).keeping(self.0.persistence)
    }

    /// The previews that its clients and workers share.
    pub fn chunks(&self) -> &Chunks {
        &self.0.chunks
    }

    /// The backend.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.0.storage
    }

    /// Keeps the values of local runs in a folder beside others than the user's.
    #[cfg(feature = "remote")]
    fn keep_values_in(&self, folder: &Path) {
        let _ = self.0.values.set(folder.join(VALUES));
    }

    /// Starts a worker that serves a host's agents and tasks.
    pub async fn worker(&self, host: Arc<dyn Host>, options: WorkerOptions) -> Result<Worker> {
        let values = options.values.or_else(|| self.0.values.get().cloned());
        let values = values.or_else(|| home::home().map(|home| home.join(VALUES)));
        let options = WorkerOptions { org: self.0.org, values, ..options };
        let worker = Worker::start(self.0.storage.clone(), self.0.chunks.clone(), host, options).await?;
        let mut workers = self.0.workers.lock();
        workers.retain(|known| Worker::upgrade(known).is_some());
        workers.push(worker.downgrade());
        drop(workers);
        Ok(worker)
    }

    /// Closes the workers, then the backend. Everything that was acknowledged is safe when it returns.
    pub async fn close(&self) -> Result<()> {
        let workers = std::mem::take(&mut *self.0.workers.lock());
        // An error of one worker must not leave the others or the backend open: a caller that waits for a run would
        // never learn that it was closed.
        let mut closed = Ok(());
        for worker in workers.iter().filter_map(Worker::upgrade) {
            closed = closed.and(worker.close(Duration::from_secs(5)).await);
        }
        self.0.end_beside();
        self.0.storage.hints().outage().close();
        self.0.storage.close();
        closed
    }
}

impl Inner {
    fn stop_removing(&self, instead: Option<tokio::task::AbortHandle>) {
        if let Some(removing) = std::mem::replace(&mut *self.removing.lock(), instead) {
            removing.abort();
        }
    }

    fn end_beside(&self) {
        self.stop_removing(None);
        self.beside.lock().iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end_beside();
    }
}

/// Opens the backend of `url`, or else of `FLOVYN_URL`, or else `sqlite:flovyn.db`.
pub async fn connect(url: Option<&str>) -> Result<Runtime> {
    Runtime::open_chosen(&Chosen::of(url)).await
}

/// One pass of housekeeping, which also starts the runs of schedules whose tick has come. Returns when the next pass is
/// due.
async fn keep(storage: &dyn Storage) -> Result<Option<Timestamp>> {
    let due = storage.pass().await?;
    if due.is_none_or(|due| due > storage.clock().now()) {
        return Ok(due);
    }
    schedules::start_due(storage).await?;
    storage.pass().await
}

/// Runs a pass of housekeeping whenever one is due, and after every change of what is due. There is at least a
/// millisecond between two passes that time has brought, so a due time in the past cannot make the loop spin.
async fn housekeep(storage: Weak<dyn Storage>, clock: Arc<dyn Clock>) {
    const LONGEST: Duration = Duration::from_secs(5);
    let Some(mut changed) = storage.upgrade().map(|storage| storage.hints().timers()) else { return };
    loop {
        let Some(open) = storage.upgrade() else { return };
        let wait = match keep(&*open).await {
            Ok(Some(due)) => due.since(clock.now()).clamp(Duration::from_millis(1), LONGEST),
            Ok(None) => LONGEST,
            Err(error) => {
                troubled(open.hints().outage(), "housekeeping could not run", &error);
                Duration::from_millis(500)
            }
        };
        let hints = open.hints().clone();
        drop(open);
        let due = wait < LONGEST;
        if let Some(manual) = clock.manual() {
            tokio::select! {
                () = manual.moved() => {}
                () = changed.changed() => {}
            }
            hints.agents_ready();
            hints.tasks_ready();
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {
                if due {
                    // A run or a task that becomes claimable because time has passed is announced by nobody else.
                    hints.agents_ready();
                    hints.tasks_ready();
                }
            }
            () = changed.changed() => {}
        }
    }
}

/// Removes runs that ended long ago. It does so in small steps, so that other writers need not wait long.
async fn remove_ended(storage: Weak<dyn Storage>, keep: Duration) {
    const EVERY: Duration = Duration::from_secs(600);
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        let Some(open) = storage.upgrade() else { return };
        let removed = open.remove_ended(keep).await;
        drop(open);
        let more = match removed {
            Ok(removed) => removed > 0,
            Err(error) => {
                tracing::warn!(%error, "runs that ended long ago could not be removed; trying again later");
                false
            }
        };
        tokio::time::sleep(if more { PAUSE } else { EVERY }).await;
    }
}
