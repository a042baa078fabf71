//! Runs agents in the backend of this process and their tasks on the workers of another backend.

use super::Runtime;
use crate::agent::{Forward, NativeHost};
use crate::client::{Handle, Outcome, StartOptions};
use crate::error::{Code, Error, Kind, Result};
use crate::model::{CancelMode, Failure, PageRequest, TaskOptions};
use crate::payload::Payload;
use crate::task::{TaskContext, TaskExecutor};
use crate::worker::{Worker, WorkerOptions};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// How often an attempt sends a heartbeat while it waits.
const BEAT: Duration = Duration::from_secs(5);
/// The first pause and the longest pause between tries while the other backend cannot be reached.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// How long a task that nobody needs any more may take to stop.
const GRACE: Duration = Duration::from_secs(30);

/// Runs tasks on the workers of another backend, usually a server's, for agents whose runs are kept here.
///
/// Each task is a run in that backend, of the kind `task:KIND`. The id of the run is made from the id of the task, so
/// another process finds the run again when this one is lost, and a task that has finished is not run twice. The
/// options given to [`task`](Self::task) (retries, timeouts, side effects) apply there. In the agent's own journal each
/// task is one idempotent attempt. While the other backend cannot be reached, the attempt waits and tries again. When
/// the agent's run no longer needs a task, the task's run is cancelled.
///
/// The token needs to start runs and to take work of the queue. Clones share the connection.
///
/// ```no_run
/// # use flovyn_core::{Result, model::TaskOptions, runtime::{AgentBuilder, RemoteTaskExecutor}};
/// # async fn example() -> Result<()> {
/// let fleet = RemoteTaskExecutor::connect("http://localhost:9090").await?.task("transcode", TaskOptions::default());
/// let agents = AgentBuilder::new().storage("sqlite:agents.db").task_executor(fleet).build().await?;
/// # agents.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct RemoteTaskExecutor {
    remote: Runtime,
    queue: String,
    tasks: BTreeMap<String, TaskOptions>,
    worker: Arc<OnceCell<Worker>>,
}

impl RemoteTaskExecutor {
    /// Opens the backend whose workers run the tasks. Must be called inside a tokio runtime.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self::over(Runtime::open(url).await?))
    }

    /// As [`connect`](Self::connect), with a backend that is already open.
    pub fn over(remote: Runtime) -> Self {
        Self { remote, queue: "default".into(), tasks: BTreeMap::new(), worker: Arc::default() }
    }

    /// Sends tasks to this queue; `default` otherwise.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sends tasks of this kind to the other backend, with these options.
    #[must_use]
    pub fn task(mut self, kind: impl Into<String>, options: TaskOptions) -> Self {
        self.tasks.insert(kind.into(), options);
        self
    }

    /// Closes the connection to the other backend. Tasks that run there go on.
    pub async fn close(&self) -> Result<()> {
        self.remote.close().await
    }

    /// Starts a worker in the other backend, once. It advances the runs that the tasks are there; the tasks themselves
    /// run on the workers of the queue.
    async fn serve(&self) -> Result<()> {
        let start = || async {
            let host = self.tasks.iter().try_fold(NativeHost::default(), |host, (kind, options)| {
                let forward = Forward { task: kind.clone(), queue: self.queue.clone(), options: options.clone() };
                host.any_agent(run_kind(kind), Arc::new(forward))
            })?;
            let options = WorkerOptions { queue: self.queue.clone(), ..WorkerOptions::default() };
            self.remote.worker(Arc::new(host), options).await
        };
        self.worker.get_or_try_init(start).await.map(drop)
    }

    /// Starts the run of a task, or finds it, and waits for its end. Each part of this may be repeated, so after a
    /// transport error it is simply called again.
    async fn follow(&self, ctx: &TaskContext, kind: &str, input: Payload) -> Result<Payload> {
        self.serve().await?;
        let options = StartOptions {
            queue: Some(self.queue.clone()),
            ..StartOptions::with_id(format!("task-{}", ctx.task_id()))
        };
        let handle = self.remote.client().start(&run_kind(kind), input, options).await?;
        let mut following = Following { handle: Some(handle.clone()), ctx };
        let outcome = handle.outcome(None).await;
        following.handle = None;
        match outcome? {
            Outcome::Completed(output) => Ok(output),
            Outcome::Failed(failure) => Err(self.why(&handle, failure).await?),
            Outcome::Cancelled(_) => Err(Error::new(
                Code::NonRetryable,
                format!("the task {kind:?} was cancelled where it ran, as run {}", handle.id()),
            )),
        }
    }

    /// The error of the task whose run has failed.
    async fn why(&self, handle: &Handle, run: Failure) -> Result<Error> {
        let tasks = handle.tasks(PageRequest { limit: 1, after: None }).await?;
        let failure = tasks.items.into_iter().find_map(|task| task.failure).unwrap_or(run);
        let code = if failure.code == Code::TaskTimeout { Code::TaskTimeout } else { Code::NonRetryable };
        Ok(Error::new(code, failure.message).with("error_type", failure.error_type))
    }
}

#[async_trait]
impl TaskExecutor for RemoteTaskExecutor {
    fn kinds(&self) -> Vec<String> {
        self.tasks.keys().cloned().collect()
    }

    async fn execute(&self, ctx: &TaskContext, kind: &str, input: Payload) -> Result<Payload> {
        let work = async {
            let (mut pause, longest) = PAUSES;
            loop {
                match self.follow(ctx, kind, input.clone()).await {
                    Err(error) if error.kind() == Kind::Unavailable => {
                        tracing::warn!(%error, kind, "the backend of a task cannot be reached; trying again");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(longest);
                    }
                    ended => return ended,
                }
            }
        };
        tokio::select! {
            ended = work => ended,
            never = beat(ctx) => match never {},
        }
    }
}

async fn beat(ctx: &TaskContext) -> Infallible {
    loop {
        tokio::time::sleep(BEAT).await;
        ctx.heartbeat();
    }
}

fn run_kind(task: &str) -> String {
    format!("task:{task}")
}

/// An attempt that waits for the end of its task's run. When it is dropped before that end, and nobody needs the result
/// any more, it cancels the run.
struct Following<'a> {
    handle: Option<Handle>,
    ctx: &'a TaskContext,
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take().filter(|_| self.ctx.is_unwanted()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Err(error) = handle.cancel(CancelMode::Graceful, GRACE).await {
                tracing::warn!(%error, "a task that is wanted no more could not be cancelled where it runs");
            }
        });
    }
}
