//! A stage for tests: a backend in memory on a clock moved by hand, and lives on it that end at a chosen commit.
//!
//! A life is what a process is outside of tests: its workers, its leases, its memory. When it ends nothing of it reaches
//! the store any more, as after kill -9; the next life finds what was durable.

use super::HostRuntime;
use crate::clock::{Clock, ManualClock, SystemClock, Timestamp};
use crate::error::{Code, Error, Result};
use crate::id::{OrgId, WorkerId};
use crate::model::{CommitAnswer, CommitRequest};
use crate::runtime::Runtime;
use crate::storage::Storage;
use crate::storage::guarded::{Call, Gate, Guarded};
use crate::storage::memory::MemoryStorage;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{RwLock, watch};

/// A backend in memory whose time is moved by hand.
pub struct Stage {
    host: HostRuntime,
    storage: Arc<dyn Storage>,
    clock: ManualClock,
}

impl Stage {
    /// An empty backend at the present time.
    pub fn new() -> Result<Self> {
        let host = HostRuntime::open(Some("memory:"))?;
        let clock = ManualClock::new(SystemClock::default().now());
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(Arc::new(clock.clone())));
        // Answers are lost on purpose here.
        storage.hints().outage().close();
        Ok(Self { host, storage, clock })
    }

    /// The threads its lives run on.
    pub fn host(&self) -> &HostRuntime {
        &self.host
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// The time on the stage's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Does what time has brought; the moment of the next thing it will bring, or none.
    pub fn passed(&self) -> impl Future<Output = Result<Option<Timestamp>>> + Send + 'static {
        let storage = self.storage.clone();
        async move { storage.pass().await }
    }

    /// Begins a life.
    pub fn life(&self) -> Result<(Runtime, Arc<Mortal>)> {
        let mortal = Arc::new(Mortal::over(self.storage.clone(), Life::default()));
        let storage: Arc<dyn Storage> = mortal.clone();
        Ok((self.host.block_on(async move { Runtime::over(storage) })?, mortal))
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
pub type Mortal = Guarded<Life>;

/// What ends a life, and when.
#[derive(Default)]
pub struct Life {
    commits: AtomicU64,
    plan: Mutex<Option<(u64, End)>>,
    workers: Mutex<Vec<(OrgId, WorkerId)>>,
    dead: watch::Sender<bool>,
    /// Held by the calls on their way: one that was let through before the end is over before the burial.
    under_way: RwLock<()>,
}

impl Life {
    /// Ends the life at its `n`-th commit.
    pub fn crash_at(&self, n: u64, how: &str) -> Result<()> {
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
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Ends the life now.
    pub fn end(&self) {
        self.dead.send_replace(true);
    }

    /// Ends when the life has ended.
    pub async fn ended(&self) {
        let mut dead = self.dead.subscribe();
        let _ = dead.wait_for(|dead| *dead).await;
    }
}

impl Gate for Life {
    /// What the call gives, as long as there is life.
    async fn pass<T: Send>(&self, _call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let under_way = self.under_way.read().await;
        if *self.dead.borrow() {
            drop(under_way);
            return std::future::pending().await;
        }
        let answer = body.await;
        drop(under_way);
        if *self.dead.borrow() {
            return std::future::pending().await;
        }
        answer
    }

    async fn commit(&self, inner: &dyn Storage, request: CommitRequest) -> Result<CommitAnswer> {
        let n = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let end = self.plan.lock().filter(|(at, _)| *at == n).map(|(_, end)| end);
        if end == Some(End::Before) {
            self.end();
        }
        let answer = self.pass(Call::Commit, inner.commit(request)).await?;
        match end {
            Some(End::AnswerLost) => {
                Err(Error::new(Code::StorageUnavailable, "the answer of this commit was lost on purpose"))
            }
            Some(End::After | End::Before) => {
                self.end();
                std::future::pending().await
            }
            None => Ok(answer),
        }
    }

    fn registering(&self, org: OrgId, worker: WorkerId) {
        self.workers.lock().push((org, worker));
    }

    /// The stage's next life goes on with the same rows.
    fn close(&self, _inner: &dyn Storage) {}
}

/// Ends a life and lets the store notice that its process is gone.
pub async fn bury(mortal: &Mortal) -> Result<()> {
    mortal.end();
    drop(mortal.under_way.write().await);
    let workers = std::mem::take(&mut *mortal.workers.lock());
    for (org, worker) in workers {
        mortal.inner().unregister_worker(org, worker).await?;
    }
    Ok(())
}
