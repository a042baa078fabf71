//! A stage for tests: a backend in memory on a clock moved by hand, and lives on it that end at a chosen commit.
//!
//! A life is what a process is outside of tests: its workers, its leases, its memory. When it ends nothing of it reaches
//! the store any more, as after kill -9; the next life finds what was durable.

use crate::error::Failure;
use crate::hub::{Hub, spawn};
use crate::runtime::Runtime;
use crate::session::duration;
use flovyn_core::clock::{Clock, ManualClock, SystemClock};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::host::HostRuntime;
use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::model::{CommitAnswer, CommitRequest};
use flovyn_core::runtime::Runtime as Core;
use flovyn_core::storage::Storage;
use flovyn_core::storage::guarded::{Call, Gate, Guarded};
use flovyn_core::storage::memory::MemoryStorage;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{RwLock, watch};

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
        let mortal = Arc::new(Mortal::over(self.storage.clone(), Life::default()));
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
pub(crate) type Mortal = Guarded<Life>;

/// What ends a life, and when.
#[derive(Default)]
pub(crate) struct Life {
    commits: AtomicU64,
    plan: Mutex<Option<(u64, End)>>,
    workers: Mutex<Vec<(OrgId, WorkerId)>>,
    dead: watch::Sender<bool>,
    /// Held by the calls on their way: one that was let through before the end is over before the burial.
    under_way: RwLock<()>,
}

impl Life {
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
pub(crate) async fn bury(mortal: &Mortal) -> Result<()> {
    mortal.end();
    drop(mortal.under_way.write().await);
    let workers = std::mem::take(&mut *mortal.workers.lock());
    for (org, worker) in workers {
        mortal.inner().unregister_worker(org, worker).await?;
    }
    Ok(())
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
