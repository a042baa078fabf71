//! The one boundary for host languages: everything both bindings would otherwise write.
//!
//! Hosts pull. [`Activations::poll`] gives what is to be done; the binding runs the user's coroutine on its own loop, calls
//! the session of the activation, and pulls again when [`Wake::ready`] rings. Rust never calls into an interpreter:
//! `ready` only makes the host's loop look. A binding converts values and drives coroutines; it decides nothing.

mod activations;
mod composite;
pub mod desk;
pub mod shown;
pub mod stage;

pub use activations::{Activation, Activations, AgentSpec, Wake, quietly};
pub use composite::CompositeHost;

use crate::client::Client;
use crate::error::{Code, Error, Result};
use crate::runtime::{Chosen, Runtime};
use crate::worker::{Worker, WorkerOptions};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static POOL: Mutex<Option<Arc<tokio::runtime::Runtime>>> = Mutex::new(None);

/// The process's threads for the engine: two, shared by all open backends. A forked child gets its own.
fn pool() -> Result<Arc<tokio::runtime::Runtime>> {
    static OWNER: AtomicU32 = AtomicU32::new(0);
    let mut pool = POOL.lock();
    if let Some(open) = pool.take() {
        if OWNER.load(Ordering::Relaxed) == std::process::id() {
            *pool = Some(open.clone());
            return Ok(open);
        }
        // The threads stayed in the parent; joining what is not there would wait for ever.
        std::mem::forget(open);
    }
    let built =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("flovyn").enable_all().build();
    let built = Arc::new(built.map_err(|error| {
        Error::new(Code::StorageUnavailable, format!("the engine's threads could not be started: {error}"))
            .caused_by(error)
    })?);
    OWNER.store(std::process::id(), Ordering::Relaxed);
    *pool = Some(built.clone());
    Ok(built)
}

/// The engine's threads, for work that belongs to no backend.
pub fn threads() -> Result<tokio::runtime::Handle> {
    Ok(pool()?.handle().clone())
}

fn forked() -> Error {
    Error::new(
        Code::ForkedProcess,
        "this process was forked after the backend was opened; open it in the child, or use the spawn start method",
    )
}

/// An open backend as a binding holds it. Every method may be called from any thread.
#[derive(Clone)]
pub struct HostRuntime {
    pool: Arc<tokio::runtime::Runtime>,
    runtime: Runtime,
    url: String,
    pid: u32,
}

impl HostRuntime {
    /// Opens a URL; `FLOVYN_URL`, else `sqlite:flovyn.db`, where none is given. Blocks until the backend is ready.
    pub fn open(url: Option<&str>) -> Result<Self> {
        let chosen = Chosen::of(url);
        let pool = pool()?;
        let runtime = pool.block_on(Runtime::open_chosen(&chosen))?;
        Ok(Self { pool, runtime, url: chosen.url, pid: std::process::id() })
    }

    /// The URL it was opened with.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The engine's threads, for work that a binding starts itself.
    pub fn handle(&self) -> tokio::runtime::Handle {
        self.pool.handle().clone()
    }

    /// Refuses use in a forked process.
    pub fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() { Ok(()) } else { Err(forked()) }
    }

    /// A client of the backend.
    pub fn client(&self) -> Client {
        self.runtime.client()
    }

    /// The runtime behind it, for what has no call here.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Starts a worker that serves these agents and tasks; `wake` rings when there is something to poll.
    pub async fn worker(&self, activations: Arc<Activations>, options: WorkerOptions) -> Result<Worker> {
        self.check_process()?;
        self.runtime.worker(activations, options).await
    }

    /// Runs a future on the engine's threads and hands its result to `done` there.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        done: impl FnOnce(T) + Send + 'static,
    ) -> Result<tokio::task::AbortHandle> {
        self.check_process()?;
        Ok(self.pool.spawn(async move { done(work.await) }).abort_handle())
    }

    /// Runs a future and blocks the calling thread for it, which must not be one of the engine's.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.check_process()?;
        Ok(self.pool.block_on(work))
    }

    /// Closes workers and backend, at most for so long. Nothing acknowledged is lost either way.
    pub fn close(&self, within: Duration) -> Result<()> {
        self.check_process()?;
        let runtime = self.runtime.clone();
        self.pool.block_on(async move { tokio::time::timeout(within, runtime.close()).await.unwrap_or(Ok(())) })
    }
}
