//! The one boundary for host languages: everything both bindings would otherwise write.
//!
//! Hosts pull. [`Activations::poll`] gives what is to be done; the binding runs the user's coroutine on its own loop, calls
//! the [`HostSession`] of the activation, and pulls again when [`Wake::ready`] says so. Rust never calls into an interpreter:
//! `ready` only makes the host's loop look. A binding converts values and drives coroutines; it decides nothing.

mod activations;
mod codes;
mod composite;
mod daemon;
mod family;
mod options;
pub mod requests;
mod session;
pub mod shown;
pub mod stream;
pub mod test_world;

pub use activations::{Activation, Activations, Wake, quietly};
pub use codes::{
    CHECKPOINT_OP, CODE_TABLES, CodeTable, EffectCode, EndCode, NewsCode, OnceCode, OutcomeCode, OutsideCode,
    PreviewCode,
};
pub use composite::CompositeHost;
pub use daemon::HostDaemon;
pub use family::{EventParts, child_of, request_of};
pub use options::{AgentDeclaration, Language, TaskDeclaration, TaskSpec, WorkerSettings, fork_from, op_id, run_id};
pub use session::{HostSession, closed, failure};

use crate::client::Client;
use crate::error::{Code, Error, Result};
use crate::runtime::{Chosen, Runtime};
use crate::sync::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

static POOL: Mutex<Option<Arc<tokio::runtime::Runtime>>> = Mutex::new(None);

/// The process's threads for the engine: two, shared by all open backends. A forked child gets its own.
fn pool() -> Result<Arc<tokio::runtime::Runtime>> {
    static OWNER: AtomicU32 = AtomicU32::new(0);
    // A child that is forked meanwhile could take neither this lock nor those of tokio's first runtime.
    let _inside = crate::forks::enter();
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
    /// The name of what this computer keeps for its runs.
    store: String,
    pid: u32,
}

impl HostRuntime {
    /// Opens a URL; `FLOVYN_URL`, else `sqlite:flovyn.db`, where none is given. Blocks until the backend is ready.
    pub fn open(url: Option<&str>) -> Result<Self> {
        let chosen = Chosen::of(url);
        let pool = pool()?;
        let runtime = pool.block_on(Runtime::open_chosen(&chosen))?;
        Ok(Self { pool, runtime, store: chosen.url.clone(), url: chosen.url, pid: std::process::id() })
    }

    /// The name of what this computer keeps for its runs, such as the records of tools: the URL, or a name of a machine's own.
    pub fn store(&self) -> &str {
        &self.store
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

    /// Runs a future and blocks the calling thread for it, which must not be one of the engine's.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.check_process()?;
        Ok(self.pool.block_on(work))
    }
}
