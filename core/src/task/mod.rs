//! Tasks in Rust: their definitions, the executors that run them, and the context that a running attempt may use.

mod executor;

pub use executor::{LocalTaskExecutor, QueueTaskExecutor, TaskExecutor};

use crate::context::ContextRef;
use crate::error::{Code, Error, Result};
use crate::id::TaskId;
use crate::journal::OpRef;
use crate::model::{AttemptResult, ChunkKind, Entry, Failure, TaskOptions};
use crate::payload::Payload;
use crate::session::Session;
use crate::sync::RwLock;
use crate::worker::Ticket;
use async_trait::async_trait;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The work of an attempt.
#[doc(hidden)]
pub type TaskFuture = BoxFuture<'static, Result<Payload>>;

/// A unit of side-effecting work. [`#[task]`](macro@crate::task) writes it for an async function; by hand it is
///
/// ```
/// use flovyn_core::prelude::*;
///
/// struct Fetch {
///     base: String,
/// }
///
/// #[async_trait]
/// impl TaskDefinition for Fetch {
///     type Input = String;
///     type Output = String;
///
///     fn kind(&self) -> &str {
///         "fetch"
///     }
///
///     async fn execute(&self, _ctx: &TaskContext, path: String) -> Result<String> {
///         Ok(format!("{}/{path}", self.base))
///     }
/// }
/// ```
#[async_trait]
pub trait TaskDefinition: Send + Sync + 'static {
    /// The argument.
    type Input: Serialize + DeserializeOwned + Send + Sync;
    /// The result.
    type Output: Serialize + DeserializeOwned + Send;

    /// The name under which it is recorded.
    fn kind(&self) -> &str;

    /// Names that it had before. It runs tasks that were recorded under them.
    fn aliases(&self) -> &[&str] {
        &[]
    }

    /// Retries, timeouts, side effects.
    fn options(&self) -> TaskOptions {
        TaskOptions::default()
    }

    /// The queue whose workers do it, where that is not the process that runs the agent.
    fn queue(&self) -> Option<&str> {
        None
    }

    /// What it does, for people and models.
    fn description(&self) -> Option<&str> {
        None
    }

    /// The JSON Schema of its argument.
    fn input_schema(&self) -> Option<Value> {
        None
    }

    /// The JSON Schema of its result.
    fn output_schema(&self) -> Option<Value> {
        None
    }

    /// Another value of it, so that a call in an agent registers it with the worker that runs the agent. A definition
    /// without fields, such as one of `#[task]`, has one; others are registered by hand.
    fn on_use(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Does the work. An error of code `NonRetryable` is final at once.
    async fn execute(&self, ctx: &TaskContext, input: Self::Input) -> Result<Self::Output>;

    /// Finds out whether a lost attempt took effect. It returns the attempt's result, or none so that the task is run
    /// again. The engine calls it for tasks that are declared as `Reconcile`.
    async fn reconcile(&self, _ctx: &TaskContext, _input: Self::Input) -> Result<Option<Self::Output>> {
        Err(Error::new(Code::InDoubt, format!("task {:?} has no reconcile function", self.kind())))
    }
}

/// What a running attempt may use. A function under [`#[task]`](macro@crate::task) gets it as its first argument if it asks.
///
/// ```
/// use flovyn_core::prelude::*;
///
/// #[task(retries = 2)]
/// async fn charge(ctx: TaskContext, cents: u64) -> Result<String> {
///     ctx.report_progress(0.5, "asking the bank");
///     if ctx.attempt() == 1 {
///         return Err(Error::other("the bank did not answer"));
///     }
///     Ok(format!("{cents} under {}", ctx.task_id())) // the same id in every attempt: the bank's idempotency key
/// }
/// ```
#[derive(Clone)]
pub struct TaskContext {
    id: TaskId,
    attempt: u32,
    holder: Holder,
}

#[derive(Clone)]
enum Holder {
    Inline(Arc<Session>, OpRef),
    Queue(Ticket),
}

impl TaskContext {
    pub(crate) fn inline(session: Arc<Session>, op: OpRef, id: TaskId, attempt: u32) -> Self {
        Self { id, attempt, holder: Holder::Inline(session, op) }
    }

    pub(crate) fn queued(ticket: Ticket) -> Self {
        Self { id: ticket.task(), attempt: ticket.attempt(), holder: Holder::Queue(ticket) }
    }

    /// The task's id: the same for every attempt, for use as an idempotency key.
    pub fn task_id(&self) -> TaskId {
        self.id
    }

    /// The attempt's number, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What [`AgentContext::activation`](crate::context::AgentContext::activation) is for the run that runs it inline. None
    /// where it runs off a queue.
    pub fn activation(&self) -> Option<usize> {
        match &self.holder {
            Holder::Inline(session, _) => Some(session.activation()),
            Holder::Queue(_) => None,
        }
    }

    /// The entries that a context reference of the task's own run refers to, from the root on, with their contents. A
    /// task takes the reference as its argument instead of the messages, so that a run of n turns stores n messages and
    /// not n² (rule 15).
    pub async fn messages(&self, at: &ContextRef) -> Result<Vec<Entry>> {
        match &self.holder {
            Holder::Inline(session, _) => session.branch_to(at.leaf).await,
            Holder::Queue(ticket) => ticket.branch_to(at.leaf).await,
        }
    }

    /// Tells the engine that the attempt is alive.
    pub fn heartbeat(&self) {
        match &self.holder {
            Holder::Inline(session, op) => session.task_heartbeat(*op),
            Holder::Queue(ticket) => ticket.heartbeat(),
        }
    }

    /// Whether the run wants the attempt to stop.
    pub fn is_cancelled(&self) -> bool {
        match &self.holder {
            Holder::Inline(session, op) => {
                session.is_closed() || session.is_cancel_requested() || !session.wants_attempt(*op, self.attempt)
            }
            Holder::Queue(ticket) => ticket.is_cancelled(),
        }
    }

    /// Whether nobody wants the attempt's result any more: its run was asked to stop, or goes on without it. It is
    /// false when the attempt ends only because its process does: the next process still needs the result.
    pub(crate) fn is_unwanted(&self) -> bool {
        match &self.holder {
            Holder::Inline(session, op) => {
                session.is_cancel_requested() || (!session.is_closed() && !session.wants_attempt(*op, self.attempt))
            }
            Holder::Queue(ticket) => ticket.is_cancelled() && !ticket.is_left(),
        }
    }

    /// Streams a token to the run's watchers.
    pub fn stream_token(&self, text: &str) {
        self.stream(ChunkKind::Token, text);
    }

    /// Streams a preview to the run's watchers. When a signal interrupts an `interruptible` task, the tokens that it
    /// has streamed become its result.
    pub fn stream(&self, kind: ChunkKind, data: &str) {
        match &self.holder {
            Holder::Inline(session, op) => session.stream(kind, data.into(), Some((*op, self.attempt))),
            Holder::Queue(ticket) => ticket.stream(kind, data),
        }
    }

    /// Reports how far the attempt is (0 to 1), which also tells that it is alive. The last report is stored with the
    /// task; it is written at most once a second.
    pub fn report_progress(&self, fraction: f64, message: &str) {
        match &self.holder {
            Holder::Inline(session, op) => session.task_progress(*op, self.attempt, fraction, message),
            Holder::Queue(ticket) => ticket.progress(fraction, message),
        }
    }
}

/// A [`TaskDefinition`] without its types, so that tasks of different types fit into one map.
#[async_trait]
pub(crate) trait AnyTask: Send + Sync {
    fn options(&self) -> TaskOptions;
    async fn execute(&self, ctx: &TaskContext, input: Payload) -> Result<Payload>;
    async fn reconcile(&self, ctx: &TaskContext, input: Payload) -> Result<Option<Payload>>;

    async fn run(&self, ctx: TaskContext, input: Payload, reconcile: bool) -> AttemptResult {
        let ended = match reconcile {
            true => self.reconcile(&ctx, input).await,
            false => self.execute(&ctx, input).await.map(Some),
        };
        match ended {
            Ok(Some(output)) => AttemptResult::Completed(output),
            Ok(None) => AttemptResult::NotDone,
            Err(error) => failed(&error),
        }
    }
}

#[async_trait]
impl<T: TaskDefinition> AnyTask for T {
    fn options(&self) -> TaskOptions {
        TaskDefinition::options(self)
    }

    async fn execute(&self, ctx: &TaskContext, input: Payload) -> Result<Payload> {
        Payload::of(&TaskDefinition::execute(self, ctx, input.parse()?).await?)
    }

    async fn reconcile(&self, ctx: &TaskContext, input: Payload) -> Result<Option<Payload>> {
        let found = TaskDefinition::reconcile(self, ctx, input.parse()?).await?;
        found.map(|output| Payload::of(&output)).transpose()
    }
}

/// The result of an attempt that returned an error.
pub(crate) fn failed(error: &Error) -> AttemptResult {
    let code = match error.code() {
        Code::NonRetryable => Code::NonRetryable,
        Code::TaskTimeout => Code::TaskTimeout,
        _ => Code::TaskFailed,
    };
    let failure = Failure::new(code, error.error_type(), error.message());
    AttemptResult::Failed { retryable: code != Code::NonRetryable, failure, pause: error.asked_pause() }
}

/// The tasks a process can run, by kind.
#[derive(Default)]
#[doc(hidden)]
pub struct TaskRegistry {
    known: RwLock<HashMap<String, Arc<dyn AnyTask>>>,
    /// The names that a kind had before. Kinds without such names are not in the map.
    aliases: RwLock<HashMap<String, Arc<[Arc<str>]>>>,
    /// Queues and kinds of calls that were left to whoever polls the queue.
    left: RwLock<HashSet<(String, String)>>,
    /// Tasks go to their queues unless they were registered before.
    fixed: AtomicBool,
}

impl TaskRegistry {
    /// Adds a task; two definitions of one kind are an error.
    pub fn add<T: TaskDefinition>(&self, task: T) -> Result<()> {
        let task = Arc::new(task);
        let (kind, aliases) = (task.kind().to_owned(), names_of(task.aliases()));
        for alias in aliases.iter() {
            self.add_any(alias.to_string(), task.clone())?;
        }
        if !aliases.is_empty() {
            self.aliases.write().insert(kind.clone(), aliases);
        }
        self.add_any(kind, task)
    }

    /// Adds a task that an agent calls, unless one of its kind is there or the executor takes none in this way.
    pub(crate) fn learn<T: TaskDefinition>(&self, task: &T) {
        if self.fixed.load(Ordering::Relaxed) || self.known.read().contains_key(task.kind()) {
            return;
        }
        if let Some(task) = task.on_use() {
            // Somebody else may have been quicker with the same one.
            let _ = self.add(task);
        }
    }

    /// Notes that a call of a kind was left to whoever polls a queue. True for the first time.
    pub(crate) fn leaves(&self, kind: &str, queue: &str) -> bool {
        let call = (queue.to_owned(), kind.to_owned());
        !self.left.read().contains(&call) && self.left.write().insert(call)
    }

    /// Adds the tasks that an executor runs.
    pub fn add_executor(&self, executor: &Arc<dyn TaskExecutor>) -> Result<()> {
        self.fixed.fetch_or(!executor.registers_on_use(), Ordering::Relaxed);
        executor.kinds().into_iter().try_for_each(|kind| {
            let task = executor::Executed::new(executor.clone(), &kind);
            self.add_any(kind, Arc::new(task))
        })
    }

    fn add_any(&self, kind: String, task: Arc<dyn AnyTask>) -> Result<()> {
        task.options().check(&kind)?;
        if self.known.write().insert(kind.clone(), task).is_some() {
            return Err(Error::new(
                Code::InvalidArgument,
                format!(
                    "two tasks of kind {kind:?}, one may have it as an alias, were given to one worker; rename one"
                ),
            ));
        }
        Ok(())
    }

    /// The kinds.
    pub fn kinds(&self) -> Arc<[String]> {
        let mut kinds: Vec<_> = self.known.read().keys().cloned().collect();
        kinds.sort_unstable();
        kinds.into()
    }

    pub(crate) fn options(&self, kind: &str) -> Option<TaskOptions> {
        self.known.read().get(kind).map(|task| task.options())
    }

    pub(crate) fn get(&self, kind: &str) -> Option<Arc<dyn AnyTask>> {
        self.known.read().get(kind).cloned()
    }

    /// The names that a kind had before.
    pub(crate) fn aliases(&self, kind: &str) -> Arc<[Arc<str>]> {
        self.aliases.read().get(kind).cloned().unwrap_or_default()
    }
}

/// Names in the form that calls carry them in.
pub(crate) fn names_of(names: &[&str]) -> Arc<[Arc<str>]> {
    names.iter().map(|name| Arc::from(*name)).collect()
}
