//! The client of a service: it registers agents and tasks, starts runs from their typed definitions, and serves them
//! all with one worker.

use super::Runtime;
use super::builder::Backing;
use crate::agent::{AgentDefinition, NativeHost};
use crate::client::{Client, Handle, StartOptions};
use crate::error::Result;
use crate::payload::Payload;
use crate::task::{TaskDefinition, TaskExecutor};
use crate::tracer::{AgentTracer, Tracer};
use crate::worker::{Worker, WorkerOptions};
use std::sync::Arc;

/// Puts a [`FlovynClient`] together.
pub struct FlovynClientBuilder {
    backing: Backing,
    host: Result<NativeHost>,
    options: WorkerOptions,
}

impl FlovynClientBuilder {
    /// Keeps runs in this backend: a URL, an open one, or that of an open [`Runtime`].
    #[must_use]
    pub fn storage(mut self, backing: impl Into<Backing>) -> Self {
        self.backing = backing.into();
        self
    }

    /// As [`storage`](Self::storage), with a URL.
    #[must_use]
    pub fn url(self, url: &str) -> Self {
        self.storage(url)
    }

    /// Serves an agent. Two of one kind are an error of [`build`](Self::build).
    #[must_use]
    pub fn agent<A: AgentDefinition>(mut self, agent: A) -> Self {
        self.host = self.host.and_then(|host| host.agent(agent));
        self
    }

    /// Serves a task. Two of one kind are an error of [`build`](Self::build).
    #[must_use]
    pub fn task<T: TaskDefinition>(mut self, task: T) -> Self {
        self.host = self.host.and_then(|host| host.task(task));
        self
    }

    /// Serves the tasks that an executor runs.
    #[must_use]
    pub fn task_executor(mut self, executor: impl TaskExecutor) -> Self {
        let executor: Arc<dyn TaskExecutor> = Arc::new(executor);
        self.host = self.host.and_then(|host| host.task_executor(&executor));
        self
    }

    /// Sends the records of the runs served here to this tracer.
    #[must_use]
    pub fn tracer(mut self, tracer: impl AgentTracer) -> Self {
        self.options.tracer = Tracer::new(tracer);
        self
    }

    /// Polls this queue; `default` otherwise.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.options.queue = queue.into();
        self
    }

    /// Advances at most `limit` runs at a time. Runs that wait do not count.
    #[must_use]
    pub fn max_agents(mut self, limit: usize) -> Self {
        self.options.max_agents = limit;
        self
    }

    /// Keeps at most `limit` waiting runs in memory. The others are loaded from their journals when they go on.
    #[must_use]
    pub fn max_parked(mut self, limit: usize) -> Self {
        self.options.max_parked = limit;
        self
    }

    /// Runs at most `limit` attempts at a time, claimed and inline ones together. With 0 it claims none, and inline
    /// ones run without a limit.
    #[must_use]
    pub fn max_tasks(mut self, limit: usize) -> Self {
        self.options.max_tasks = limit;
        self.options.count_inline = limit > 0;
        self
    }

    /// Opens the backend. Serves nothing before [`FlovynClient::worker`]. Must be called inside a tokio runtime.
    pub async fn build(self) -> Result<FlovynClient> {
        let host = Arc::new(self.host?);
        let runtime = self.backing.open().await?;
        Ok(FlovynClient { client: runtime.client(), runtime, host, options: self.options })
    }
}

/// A backend with the agents and tasks this process serves. Clones share them.
///
/// ```
/// use flovyn_core::prelude::*;
///
/// #[agent]
/// async fn mailer(ctx: Context, subject: String) -> Result<String> {
///     let answer: String = ctx.wait_for_signal("approval")?.await?;
///     Ok(format!("{subject}: {answer}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let flovyn = FlovynClient::builder().url("memory:").agent(Mailer).build().await?; // or "sqlite:agents.db", "http://…"
/// flovyn.worker().await?;
/// let handle = flovyn.start(&Mailer, &"the build".into(), StartOptions::with_id("mail-1")).await?;
/// handle.send("approval", "yes").await?; // may come before the agent waits for it
/// assert_eq!(handle.result_as::<String>(None).await?, "the build: yes");
/// flovyn.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct FlovynClient {
    runtime: Runtime,
    client: Client,
    host: Arc<NativeHost>,
    options: WorkerOptions,
}

impl FlovynClient {
    /// Keeps runs in the backend of `FLOVYN_URL`, or else in `sqlite:flovyn.db`. It serves nothing yet.
    pub fn builder() -> FlovynClientBuilder {
        FlovynClientBuilder {
            backing: Backing::default(),
            host: Ok(NativeHost::default()),
            options: WorkerOptions::default(),
        }
    }

    /// Starts to serve the registered agents and tasks, until the worker or this client is closed.
    pub async fn worker(&self) -> Result<Worker> {
        self.runtime.worker(self.host.clone(), self.options.clone()).await
    }

    /// Starts a run of an agent. The run is durable when this returns. A worker that serves its kind advances it, here
    /// or in another process.
    pub async fn start<A: AgentDefinition>(
        &self,
        agent: &A,
        input: &A::Input,
        mut options: StartOptions,
    ) -> Result<Handle> {
        options.queue.get_or_insert_with(|| self.options.queue.clone());
        options.limits.timeout = options.limits.timeout.or(agent.timeout());
        self.client.start(agent.kind(), Payload::of(input)?, options).await
    }

    /// The handle of a run that exists; `ExecutionNotFound` otherwise.
    pub async fn handle(&self, id_or_key: &str) -> Result<Handle> {
        self.client.handle(id_or_key).await
    }

    /// The untyped client, to list runs and start them by kind.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The runtime that it uses.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Closes its workers, then the backend. Everything that was acknowledged is safe when it returns.
    pub async fn close(&self) -> Result<()> {
        let closed = self.runtime.close().await;
        self.options.tracer.flush();
        closed
    }
}
