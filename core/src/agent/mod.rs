//! Agents in Rust: what a definition is, and the host that drives its futures.

mod drive;
mod forward;
mod state;
mod typed;

pub use crate::journal::{OnDivergence, OnError};
pub(crate) use forward::Forward;
pub use state::{AgentState, Append, Merge, Reduce};
use typed::is_of_stored_state;

use crate::context::{AgentContext, Context};
use crate::error::{Code, Error, Result};
use crate::journal::{MachineConfig, REPLAY_TIMEOUT};
use crate::model::ClaimedTask;
use crate::payload::Payload;
use crate::session::Session;
use crate::sync::RwLock;
use crate::task::{TaskContext, TaskExecutor, TaskRegistry};
use crate::worker::{Host, Ticket};
use async_trait::async_trait;
use futures::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// A durable agent: a plain async function over a context. [`#[agent]`](macro@crate::agent) writes it for an async function;
/// by hand it is
///
/// ```
/// use flovyn_core::prelude::*;
///
/// struct Greeter {
///     greeting: String,
/// }
///
/// #[async_trait]
/// impl AgentDefinition for Greeter {
///     type State = ();
///     type Input = String;
///     type Output = String;
///
///     fn kind(&self) -> &str {
///         "greeter"
///     }
///
///     async fn execute(&self, ctx: &dyn AgentContext, name: String) -> Result<String> {
///         ctx.append_entry("user", &name)?;
///         Ok(format!("{}, {name}", self.greeting))
///     }
/// }
/// ```
#[async_trait]
pub trait AgentDefinition: Send + Sync + 'static {
    /// The state that checkpoints save; `()` declares an agent without state.
    type State: AgentState;
    /// The argument.
    type Input: Serialize + DeserializeOwned + Send;
    /// The result.
    type Output: Serialize + DeserializeOwned + Send;

    /// The name under which it is recorded.
    fn kind(&self) -> &str;

    /// Names that it had before. It goes on with runs that were recorded under them.
    fn aliases(&self) -> &[&str] {
        &[]
    }

    /// Identifies the code: change it whenever the steps of the code change. Without a version every build counts as
    /// changed code.
    fn version(&self) -> Option<String> {
        None
    }

    /// What to do when the code no longer makes the calls that the journal has recorded.
    fn on_divergence(&self) -> OnDivergence {
        OnDivergence::Continue
    }

    /// What happens to the run when the agent returns an error. `Handle::resume` lets a paused run go on,
    /// `Handle::retry` a failed one.
    fn on_error(&self) -> OnError {
        OnError::Judge
    }

    /// How long a replay waits for unchanged code to make its next recorded call. While a branch waits for something
    /// outside of the context (a timer of the host, a thread, another library), that branch may still make the call, so
    /// the replay hands over no further outcome. When the time is over, the run pauses.
    fn replay_timeout(&self) -> Duration {
        REPLAY_TIMEOUT
    }

    /// What it does, for people and models.
    fn description(&self) -> Option<&str> {
        None
    }

    /// Words to find it by.
    fn tags(&self) -> &[&str] {
        &[]
    }

    /// How long a run may take from its start, unless the start says otherwise. It counts for runs that are started by the
    /// definition: by `FlovynClient::start` and by an `AgentRunner`.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Whether its awaits end with `Cancelled` when the run is asked to stop. If not, only
    /// [`check_cancellation`](AgentContext::check_cancellation) tells of the request.
    fn cancellable(&self) -> bool {
        true
    }

    /// The JSON Schema of its argument.
    fn input_schema(&self) -> Option<Value> {
        None
    }

    /// The JSON Schema of its result.
    fn output_schema(&self) -> Option<Value> {
        None
    }

    /// Makes the present state of one that was stored as another type. It is called with a stored state that cannot be read
    /// as [`State`](Self::State), before the agent is entered. If it fails, the run pauses with `WrongStateType`, and goes on
    /// when it is resumed with code that can read the state.
    fn migrate(&self, _old: Value) -> Result<Self::State> {
        Err(Error::new(Code::WrongStateType, "the agent has no `migrate` that makes the present state of it"))
    }

    /// Runs the agent. An agent with state is started from the top in every segment: it reads the state of the last
    /// checkpoint and loops from there.
    async fn execute(&self, ctx: &dyn AgentContext, input: Self::Input) -> Result<Self::Output>;
}

/// An [`AgentDefinition`] without its types, so that agents of different types fit into one map.
#[async_trait]
pub(crate) trait AnyAgent: Send + Sync {
    fn config(&self) -> MachineConfig;
    async fn run(&self, ctx: &Context) -> Result<Payload>;
}

#[async_trait]
impl<A: AgentDefinition> AnyAgent for A {
    fn config(&self) -> MachineConfig {
        MachineConfig {
            stateful: A::State::DECLARED,
            code: Some(self.version().unwrap_or_else(build_fingerprint)),
            on_divergence: self.on_divergence(),
            on_error: self.on_error(),
            replay_timeout: self.replay_timeout(),
            not_cancellable: !self.cancellable(),
            ..MachineConfig::default()
        }
    }

    async fn run(&self, ctx: &Context) -> Result<Payload> {
        if A::State::DECLARED {
            let declared = typed::declared(self, ctx.raw_state())?;
            let _ = ctx.shared().declared.set(declared);
        }
        let input = ctx.raw_input().parse()?;
        Payload::of(&self.execute(ctx, input).await?)
    }
}

/// A text that differs from build to build, made of the size and time of the executable: a compiled agent has no source
/// to take a fingerprint of.
fn build_fingerprint() -> String {
    static PRINT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    PRINT
        .get_or_init(|| {
            let meta = std::env::current_exe().and_then(std::fs::metadata);
            let modified = meta.as_ref().ok().and_then(|meta| meta.modified().ok());
            let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
            format!("build-{:x}-{:x}", meta.map_or(0, |meta| meta.len()), since.as_nanos())
        })
        .clone()
}

/// The agents and tasks a Rust process serves: a worker's host.
#[derive(Default)]
#[doc(hidden)]
pub struct NativeHost {
    agents: RwLock<HashMap<String, Arc<dyn AnyAgent>>>,
    tasks: Arc<TaskRegistry>,
}

impl NativeHost {
    /// Adds an agent; two of one kind are an error.
    pub fn agent<A: AgentDefinition>(self, agent: A) -> Result<Self> {
        let agent = Arc::new(agent);
        let mut host = self.any_agent(agent.kind().to_owned(), agent.clone())?;
        for alias in agent.aliases() {
            host = host.any_agent((*alias).to_owned(), agent.clone())?;
        }
        Ok(host)
    }

    pub(crate) fn any_agent(self, kind: String, agent: Arc<dyn AnyAgent>) -> Result<Self> {
        if self.agents.write().insert(kind.clone(), agent).is_some() {
            return Err(Error::new(
                Code::InvalidArgument,
                format!(
                    "two agents of kind {kind:?}, one may have it as an alias, were given to one worker; rename one"
                ),
            ));
        }
        Ok(self)
    }

    /// Adds a task; two of one kind are an error.
    pub fn task<T: crate::task::TaskDefinition>(self, task: T) -> Result<Self> {
        self.tasks.add(task)?;
        Ok(self)
    }

    /// Adds what an executor runs; a kind that is there already is an error.
    pub fn task_executor(self, executor: &Arc<dyn TaskExecutor>) -> Result<Self> {
        self.tasks.add_executor(executor)?;
        Ok(self)
    }
}

impl Host for NativeHost {
    fn agent_kinds(&self) -> Arc<[String]> {
        let mut kinds: Vec<_> = self.agents.read().keys().cloned().collect();
        kinds.sort_unstable();
        kinds.into()
    }

    fn task_kinds(&self) -> Arc<[String]> {
        self.tasks.kinds()
    }

    fn agent_config(&self, kind: &str) -> Option<MachineConfig> {
        self.agents.read().get(kind).map(|agent| agent.config())
    }

    fn start_agent(&self, session: Arc<Session>) {
        let agent = self.agents.read().get(&session.execution().new.kind).cloned();
        if let Some(agent) = agent {
            crate::spawn::task(drive::drive(agent, session, self.tasks.clone()));
        }
    }

    fn start_task(&self, claimed: ClaimedTask, ticket: Ticket) {
        let Some(task) = self.tasks.get(&claimed.task.new.kind) else { return };
        let context = TaskContext::queued(ticket.clone());
        let timeout = claimed.task.new.options.timeout;
        let ended = ticket.clone();
        let span = ticket.span();
        let attempt = async move {
            let input = claimed.task.new.input;
            let run = AssertUnwindSafe(task.run(context, input, claimed.reconcile)).catch_unwind();
            let result = match timeout {
                Some(limit) => tokio::time::timeout(limit, run).await.unwrap_or_else(|_| Ok(drive::timed_out(limit))),
                None => run.await,
            };
            ended.finish(result.unwrap_or_else(|panic| drive::panicked(&*panic)));
        };
        let work = crate::spawn::task(attempt.instrument(span));
        let stop = work.abort_handle();
        let stopped = ticket.clone();
        ticket.on_cancel(move || {
            stop.abort();
            stopped.finish(crate::model::AttemptResult::Cancelled);
        });
    }
}
