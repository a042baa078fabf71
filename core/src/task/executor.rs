//! Executors: they decide whether this process or the workers of a queue run the tasks that an agent schedules.

use super::{AnyTask, TaskContext, TaskDefinition, TaskRegistry};
use crate::error::{Code, Error, Result};
use crate::model::TaskOptions;
use crate::payload::Payload;
use async_trait::async_trait;
use std::sync::Arc;

/// Runs tasks for agents in this process. Tasks of kinds that it does not name go to the run's queue.
#[async_trait]
pub trait TaskExecutor: Send + Sync + 'static {
    /// The kinds it runs.
    fn kinds(&self) -> Vec<String>;

    /// Retries, timeouts and side effects of a kind.
    fn options(&self, _kind: &str) -> TaskOptions {
        TaskOptions::default()
    }

    /// Whether a task that an agent calls by its definition is registered with this process on its first use, where the
    /// definition allows it ([`TaskDefinition::on_use`]). Without that it goes to its queue.
    fn registers_on_use(&self) -> bool {
        true
    }

    /// Runs one attempt. The engine has recorded that it begins, and records its result. [`TaskContext::task_id`]
    /// serves as idempotency key.
    async fn execute(&self, ctx: &TaskContext, kind: &str, input: Payload) -> Result<Payload>;

    /// Finds out whether a lost attempt took effect. It returns the attempt's result, or none so that the task is run
    /// again. The engine calls it for tasks that are declared as `Reconcile`.
    async fn reconcile(&self, _ctx: &TaskContext, kind: &str, _input: Payload) -> Result<Option<Payload>> {
        Err(Error::new(Code::InDoubt, format!("task {kind:?} has no reconcile function")))
    }
}

/// Runs registered tasks in this process.
#[derive(Default)]
pub struct LocalTaskExecutor(TaskRegistry);

impl LocalTaskExecutor {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a task; two of one kind are an error.
    pub fn register<T: TaskDefinition>(self, task: T) -> Result<Self> {
        self.0.add(task)?;
        Ok(self)
    }

    fn task(&self, kind: &str) -> Result<Arc<dyn AnyTask>> {
        self.0.get(kind).ok_or_else(|| {
            Error::new(Code::UnknownKind, format!("this executor has no task {kind:?}; register it before the run"))
        })
    }
}

#[async_trait]
impl TaskExecutor for LocalTaskExecutor {
    fn kinds(&self) -> Vec<String> {
        self.0.kinds().to_vec()
    }

    fn options(&self, kind: &str) -> TaskOptions {
        self.0.options(kind).unwrap_or_default()
    }

    async fn execute(&self, ctx: &TaskContext, kind: &str, input: Payload) -> Result<Payload> {
        self.task(kind)?.execute(ctx, input).await
    }

    async fn reconcile(&self, ctx: &TaskContext, kind: &str, input: Payload) -> Result<Option<Payload>> {
        self.task(kind)?.reconcile(ctx, input).await
    }
}

/// Runs nothing here: every task goes to its queue, for workers anywhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueTaskExecutor;

#[async_trait]
impl TaskExecutor for QueueTaskExecutor {
    fn kinds(&self) -> Vec<String> {
        Vec::new()
    }

    fn registers_on_use(&self) -> bool {
        false
    }

    async fn execute(&self, _ctx: &TaskContext, kind: &str, _input: Payload) -> Result<Payload> {
        Err(Error::new(Code::UnknownKind, format!("task {kind:?} runs on its queue, not in this process")))
    }
}

/// One kind of an executor, in the form of a task that the registry can hold.
pub(super) struct Executed {
    executor: Arc<dyn TaskExecutor>,
    kind: String,
}

impl Executed {
    pub(super) fn new(executor: Arc<dyn TaskExecutor>, kind: &str) -> Self {
        Self { executor, kind: kind.to_owned() }
    }
}

#[async_trait]
impl AnyTask for Executed {
    fn options(&self) -> TaskOptions {
        self.executor.options(&self.kind)
    }

    async fn execute(&self, ctx: &TaskContext, input: Payload) -> Result<Payload> {
        self.executor.execute(ctx, &self.kind, input).await
    }

    async fn reconcile(&self, ctx: &TaskContext, input: Payload) -> Result<Option<Payload>> {
        self.executor.reconcile(ctx, &self.kind, input).await
    }
}
