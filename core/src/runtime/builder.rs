//! Runs agents in one process. The builder takes the parts one by one: the backend, executors of tasks, a source of
//! signals, a tracer.

use super::signals::{Listener, SignalSource};
use super::{Runtime, connect};
use crate::agent::{AgentDefinition, NativeHost};
use crate::client::{Client, Handle, StartOptions};
use crate::error::Result;
use crate::payload::Payload;
use crate::storage::Storage;
use crate::storage::memory::MemoryStorage;
use crate::task::TaskExecutor;
use crate::tracer::{AgentTracer, Tracer};
use crate::worker::{Worker, WorkerOptions};
use std::sync::Arc;
use std::time::Duration;

/// How long the worker waits for its claimed tasks when it is closed at the end of a run.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait until the worker has let go of the copy of a run that has ended.
const SETTLE: Duration = Duration::from_millis(200);

/// Where runs are kept: a URL, an open backend or an open runtime.
pub struct Backing(Source);

enum Source {
    Default,
    Url(String),
    Storage(Arc<dyn Storage>),
    Runtime(Runtime),
}

impl Default for Backing {
    /// `FLOVYN_URL`, else `sqlite:flovyn.db`.
    fn default() -> Self {
        Self(Source::Default)
    }
}

impl Backing {
    pub(super) async fn open(self) -> Result<Runtime> {
        match self.0 {
            Source::Default => connect(None).await,
            Source::Url(url) => Runtime::open(&url).await,
            Source::Storage(storage) => Ok(Runtime::over(storage)),
            Source::Runtime(runtime) => Ok(runtime),
        }
    }
}

impl From<&str> for Backing {
    fn from(url: &str) -> Self {
        Self(Source::Url(url.to_owned()))
    }
}

impl From<String> for Backing {
    fn from(url: String) -> Self {
        Self(Source::Url(url))
    }
}

impl From<Arc<dyn Storage>> for Backing {
    fn from(storage: Arc<dyn Storage>) -> Self {
        Self(Source::Storage(storage))
    }
}

impl From<MemoryStorage> for Backing {
    fn from(storage: MemoryStorage) -> Self {
        Self(Source::Storage(Arc::new(storage)))
    }
}

#[cfg(feature = "sqlite")]
impl From<crate::storage::sqlite::SqliteStorage> for Backing {
    fn from(storage: crate::storage::sqlite::SqliteStorage) -> Self {
        Self(Source::Storage(storage.shared()))
    }
}

#[cfg(feature = "postgres")]
impl From<crate::storage::postgres::PostgresStorage> for Backing {
    fn from(storage: crate::storage::postgres::PostgresStorage) -> Self {
        Self(Source::Storage(storage.shared()))
    }
}

impl From<Runtime> for Backing {
    fn from(runtime: Runtime) -> Self {
        Self(Source::Runtime(runtime))
    }
}

/// Puts an [`AgentRunner`] together.
///
/// ```
/// # use flovyn_core::{agent::AgentDefinition, context::{AgentContext, AgentContextExt}, Result};
/// # struct Hello;
/// # #[async_trait::async_trait]
/// # impl AgentDefinition for Hello {
/// #     type State = ();
/// #     type Input = String;
/// #     type Output = String;
/// #     fn kind(&self) -> &str { "hello" }
/// #     async fn execute(&self, _: &dyn AgentContext, name: String) -> Result<String> { Ok(format!("hello, {name}")) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// use flovyn_core::runtime::AgentBuilder;
///
/// let agents = AgentBuilder::new().storage("memory:").build().await?;
/// assert_eq!(agents.execute(Hello, "otter".to_owned()).await?, "hello, otter");
/// # agents.close().await
/// # }
/// ```
#[derive(Default)]
pub struct AgentBuilder {
    backing: Backing,
    executor: Option<Arc<dyn TaskExecutor>>,
    signals: Option<Arc<dyn SignalSource>>,
    tracer: Tracer,
}

impl AgentBuilder {
    /// Keeps runs in the backend of `FLOVYN_URL`, or else in `sqlite:flovyn.db`. It has no tasks, no signals and no
    /// tracer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps runs in this backend: a URL, an open one, or that of an open [`Runtime`].
    #[must_use]
    pub fn storage(mut self, backing: impl Into<Backing>) -> Self {
        self.backing = backing.into();
        self
    }

    /// Runs tasks with this executor. Tasks of kinds that it does not have wait for a worker of their queue.
    #[must_use]
    pub fn task_executor(mut self, executor: impl TaskExecutor) -> Self {
        self.executor = Some(Arc::new(executor));
        self
    }

    /// Sends the signals of this source to the runs that it executes.
    #[must_use]
    pub fn signals(mut self, source: impl SignalSource) -> Self {
        self.signals = Some(Arc::new(source));
        self
    }

    /// Sends the records of the runs that it executes to this tracer.
    #[must_use]
    pub fn tracer(mut self, tracer: impl AgentTracer) -> Self {
        self.tracer = Tracer::new(tracer);
        self
    }

    /// Opens the backend. Must be called inside a tokio runtime.
    pub async fn build(self) -> Result<AgentRunner> {
        let runtime = self.backing.open().await?;
        Ok(AgentRunner { runtime, executor: self.executor, signals: self.signals, tracer: self.tracer })
    }
}

/// Executes agents in this process. Clones share everything.
#[derive(Clone)]
pub struct AgentRunner {
    runtime: Runtime,
    executor: Option<Arc<dyn TaskExecutor>>,
    signals: Option<Arc<dyn SignalSource>>,
    tracer: Tracer,
}

impl AgentRunner {
    /// Runs an agent to its end under a fresh id.
    pub async fn execute<A: AgentDefinition>(&self, agent: A, input: A::Input) -> Result<A::Output> {
        self.execute_with(agent, &input, StartOptions::default()).await
    }

    /// Runs an agent to its end. With an id that was used before, it goes on with that run, or returns the recorded
    /// result. It fails with `AgentFailed` or `AgentCancelled`. When the future is dropped, the run stops here and
    /// stays as recorded: call it again with the same id to go on.
    pub async fn execute_with<A: AgentDefinition>(
        &self,
        agent: A,
        input: &A::Input,
        mut options: StartOptions,
    ) -> Result<A::Output> {
        options.limits.timeout = options.limits.timeout.or(agent.timeout());
        let queue = options.queue.clone().unwrap_or_else(|| "default".into());
        let handle = self.client().start(agent.kind(), Payload::of(input)?, options).await?;
        if handle.status().await?.is_terminal() {
            return handle.result(None).await?.parse();
        }
        let mut host = NativeHost::default().agent(agent)?;
        if let Some(executor) = &self.executor {
            host = host.task_executor(executor)?;
        }
        let serving =
            WorkerOptions { queue, only: Some(handle.id()), tracer: self.tracer.clone(), ..WorkerOptions::default() };
        let worker = self.runtime.worker(Arc::new(host), serving).await?;
        let putting_away = PutAway(Some(worker));
        let result = tokio::select! {
            result = handle.result(None) => result,
            error = self.pump(handle.clone()) => Err(error),
        };
        putting_away.now(result.is_ok()).await?;
        result?.parse()
    }

    /// Sends the run the signals of the source. It returns only with an error: when the source has ended, it waits for
    /// ever.
    async fn pump(&self, handle: Handle) -> crate::Error {
        let Some(source) = &self.signals else { return std::future::pending().await };
        let listener = Listener::new(self.runtime.storage().clone(), handle.clone());
        loop {
            let sent = match source.next(&listener).await {
                Ok(None) => return std::future::pending().await,
                Ok(Some(one)) => handle.signal(&one.name, one.payload, one.delivery, one.idempotency_key).await,
                Err(error) => return error,
            };
            match sent {
                // The run has ended in the meantime. That is no error: the caller gets the run's result.
                Err(error) if error.code() == crate::error::Code::ExecutionClosed => {
                    return std::future::pending().await;
                }
                Err(error) => return error,
                Ok(_) => {}
            }
        }
    }

    /// A client of the backend, to signal, watch and list runs.
    pub fn client(&self) -> Client {
        self.runtime.client()
    }

    /// The runtime that it uses.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Closes the backend. Every trace record is written when it returns.
    pub async fn close(&self) -> Result<()> {
        self.tracer.flush();
        self.runtime.close().await
    }
}

/// Closes the worker of an execution, also when the future that waits for the result is dropped.
struct PutAway(Option<Worker>);

impl PutAway {
    /// Closes the worker. If the run has ended, it first waits a moment for the worker's copy of the run: the result is
    /// known a little earlier than the copy has finished.
    async fn now(mut self, ended: bool) -> Result<()> {
        let Some(worker) = self.0.take() else { return Ok(()) };
        let patience = tokio::time::Instant::now() + SETTLE;
        while ended && worker.active_runs() > 0 && tokio::time::Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        worker.close(GRACE).await
    }
}

impl Drop for PutAway {
    fn drop(&mut self) {
        if let (Some(worker), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { worker.close(GRACE).await });
        }
    }
}
