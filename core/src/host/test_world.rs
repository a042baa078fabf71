//! A world for tests: a backend in memory whose clock is moved by hand, and processes on it that crash at a chosen commit.
//!
//! A process here is what one is outside of tests: its workers, its leases, its memory. Once it has crashed nothing of it
//! reaches the store any more, as after kill -9; the next process finds what was durable.

use super::HostRuntime;
use crate::clock::{Clock, ManualClock, SystemClock, Timestamp};
use crate::error::{Code, Error, Result};
use crate::id::{OrgId, WorkerId};
use crate::model::{CommitAnswer, CommitRequest};
use crate::runtime::Runtime;
use crate::storage::Storage;
use crate::storage::guarded::{Call, Gate, Guarded};
use crate::storage::memory::MemoryStorage;
use crate::sync::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{RwLock, watch};

/// A backend in memory whose time is moved by hand.
pub struct TestWorld {
    host: HostRuntime,
    storage: Arc<dyn Storage>,
    clock: ManualClock,
}

impl TestWorld {
    /// An empty backend at the present time.
    pub fn new() -> Result<Self> {
        let host = HostRuntime::open(Some("memory:"))?;
        let clock = ManualClock::new(SystemClock::default().now());
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(Arc::new(clock.clone())));
        // Answers are lost on purpose here.
        storage.hints().outage().close();
        Ok(Self { host, storage, clock })
    }

    /// The threads that its processes run on.
    pub fn host(&self) -> &HostRuntime {
        &self.host
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// The time on its clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Does what time has brought; the moment of the next thing it will bring, or none.
    pub fn passed(&self) -> impl Future<Output = Result<Option<Timestamp>>> + Send + 'static {
        let storage = self.storage.clone();
        async move { storage.pass().await }
    }

    /// Starts a process.
    pub fn start_process(&self) -> Result<(Runtime, Arc<CrashableStore>)> {
        let store = Arc::new(CrashableStore::over(self.storage.clone(), Process::default()));
        let storage: Arc<dyn Storage> = store.clone();
        Ok((self.host.block_on(async move { Runtime::over(storage) })?, store))
    }
}

/// What a crash at a commit does to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    /// The commit is not made.
    Before,
    /// The commit is made and nobody hears of it.
    After,
    /// The commit is made, its answer is lost, and the process goes on.
    AnswerLost,
}

/// The store as a process sees it until it crashes.
pub type CrashableStore = Guarded<Process>;

/// A process that may crash.
#[derive(Default)]
pub struct Process {
    commits: AtomicU64,
    crash_at: Mutex<Option<(u64, Crash)>>,
    workers: Mutex<Vec<(OrgId, WorkerId)>>,
    crashed: watch::Sender<bool>,
    /// Read-locked by calls on their way: those that were let through before the crash are over before `kill` goes on.
    under_way: RwLock<()>,
}

impl Process {
    /// Lets it crash at its `n`-th commit: `before` it, `after` it, or with only its `answer_lost`.
    pub fn crash_at(&self, n: u64, how: &str) -> Result<()> {
        let crash = match how {
            "before" => Crash::Before,
            "after" => Crash::After,
            "answer_lost" => Crash::AnswerLost,
            other => return Err(Error::new(Code::InvalidArgument, format!("{other:?} is no way to crash"))),
        };
        *self.crash_at.lock() = Some((n, crash));
        Ok(())
    }

    /// Commits made or tried so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Lets it crash now.
    pub fn crash(&self) {
        self.crashed.send_replace(true);
    }

    /// Waits until it has crashed.
    pub async fn crashed(&self) {
        let mut crashed = self.crashed.subscribe();
        let _ = crashed.wait_for(|crashed| *crashed).await;
    }
}

impl Gate for Process {
    /// What the call gives, as long as the process runs; a call of one that has crashed never ends.
    async fn pass<T: Send>(&self, _call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let under_way = self.under_way.read().await;
        if *self.crashed.borrow() {
            drop(under_way);
            return std::future::pending().await;
        }
        let answer = body.await;
        drop(under_way);
        if *self.crashed.borrow() {
            return std::future::pending().await;
        }
        answer
    }

    async fn commit(&self, inner: &dyn Storage, request: CommitRequest) -> Result<CommitAnswer> {
        let n = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let crash = self.crash_at.lock().filter(|(at, _)| *at == n).map(|(_, crash)| crash);
        if crash == Some(Crash::Before) {
            self.crash();
        }
        let answer = self.pass(Call::Commit, inner.commit(request)).await?;
        match crash {
            Some(Crash::AnswerLost) => {
                Err(Error::new(Code::StorageUnavailable, "the answer of this commit was lost on purpose"))
            }
            Some(Crash::After | Crash::Before) => {
                self.crash();
                std::future::pending().await
            }
            None => Ok(answer),
        }
    }

    fn registering(&self, org: OrgId, worker: WorkerId) {
        self.workers.lock().push((org, worker));
    }

    /// The next process goes on with the same rows.
    fn close(&self, _inner: &dyn Storage) {}
}

/// Kills a process and lets the store notice that it is gone.
pub async fn kill(store: &CrashableStore) -> Result<()> {
    store.crash();
    drop(store.under_way.write().await);
    let workers = std::mem::take(&mut *store.workers.lock());
    for (org, worker) in workers {
        store.inner().unregister_worker(org, worker).await?;
    }
    Ok(())
}
