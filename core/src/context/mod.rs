//! What Rust agents see: the durable context and the steps it gives.
//!
//! [`AgentContext`] is object-safe and speaks in payloads; [`AgentContextExt`] adds the types.

mod call;
mod child;
mod combine;
mod driven;
mod ext;
mod inline;
mod step;

pub use call::TaskStep;
pub use child::{Child, ChildNews};
pub use combine::Selected;
pub(crate) use driven::driven;
pub use ext::{AgentContextExt, StepOf};
pub(crate) use ext::{error_of, value_of};
pub use inline::InlineStep;
pub use step::Step;

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, TaskId};
use crate::journal::{Answer, Call, ChildCall, OnceBegin, OpRef, Outcome, Question};
use crate::model::{
    ChunkKind, Entry, MessageBody, Persistence, Placement, RetryPolicy, SharedContext, TaskOptions, Usage,
};
use crate::payload::{Digest, Payload};
use crate::session::Session;
use crate::sync::Mutex;
use crate::task::TaskFuture;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

/// A message to append to the conversation.
#[derive(Debug, Clone)]
pub struct Message {
    /// Who speaks.
    pub role: String,
    /// JSON by convention.
    pub content: Payload,
    /// `message` unless set.
    pub entry_type: String,
    /// Groups the entries of one turn.
    pub turn_id: Option<String>,
    /// Small JSON object.
    pub metadata: Option<String>,
}

/// A task to schedule.
#[derive(Debug, Clone)]
pub struct TaskCall {
    /// The function.
    pub kind: String,
    /// Its argument.
    pub input: Payload,
    /// How to run it; the registered task's own options where absent.
    pub options: Option<TaskOptions>,
    /// Run it by a worker of this queue instead of here; [`PARENT_QUEUE`](crate::model::PARENT_QUEUE) for that of the run that
    /// has started this one.
    pub queue: Option<String>,
    /// Names this call among identical ones.
    pub key: Option<String>,
}

/// Refers to a conversation at one point (rule 15): a task gets this small value instead of the messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextRef {
    /// The run.
    pub execution: ExecutionId,
    /// The thread; empty for the main one.
    pub thread: String,
    /// The last entry of the thread at that point; none when it has no entry yet.
    pub leaf: Option<EntryId>,
}

/// What an agent may do. A method that makes a call takes the next slot of the journal. It is synchronous: it only adds
/// the call to the batch. The batch is sent when the agent awaits something that the engine cannot answer at once (rule
/// 1).
pub trait AgentContext: Send + Sync {
    /// The run's id.
    fn agent_execution_id(&self) -> ExecutionId;
    /// The tenant.
    fn org_id(&self) -> OrgId;
    /// What tells this activation of the run from all others that live in this process, also from those of runs of the
    /// same id in other stores. Inline tasks of it have the same
    /// ([`TaskContext::activation`](crate::task::TaskContext::activation)). Other activations, of this run too, have others.
    fn activation(&self) -> usize;
    /// The user's own name for the run.
    fn key(&self) -> Option<&str>;
    /// The queue on which its workers poll.
    fn queue(&self) -> &str;
    /// The argument of the run.
    fn raw_input(&self) -> &Payload;
    /// The state of the last checkpoint; none before the first.
    fn raw_state(&self) -> Option<&Payload>;
    /// What the run that has started this one gave it of its conversation. With a part of the conversation, this run's own
    /// one goes on from there.
    fn shared_context(&self) -> Option<&SharedContext>;
    /// What is kept of the run, and where.
    fn persistence(&self) -> Persistence;
    /// Appends a message and returns its id at once.
    fn append_message(&self, message: Message) -> Result<EntryId>;
    /// Schedules a task.
    fn schedule_raw(&self, call: TaskCall) -> Result<Step>;
    /// Runs a future as an inline step of this name.
    fn run_raw(&self, name: &str, work: TaskFuture) -> Result<Step>;
    /// Runs an inline step of this name that may be tried again: `work` makes the future of each try.
    fn run_again_raw(&self, name: &str, options: StepOptions, work: Tries) -> Result<Step>;
    /// Waits for a signal; the step ends with `Signal` or `TimedOut`.
    fn wait_raw(&self, name: &str, timeout: Option<Duration>) -> Result<Step>;
    /// Waits durably.
    fn sleep(&self, duration: Duration) -> Result<Step>;
    /// Marks the start of a step of the agent's loop: one model call together with the tools that it asked for.
    fn step(&self) -> Result<Step>;
    /// Makes everything called so far durable.
    fn flush(&self) -> Result<Step>;
    /// Keeps the journal from now on, in a run that was started without. The step ends when all so far is durable.
    fn enable_persistence(&self) -> Result<Step>;
    /// Waits for a detached task.
    fn attach(&self, task: TaskId) -> Result<Step>;
    /// Starts a run of another agent as a child of this one. It is born with the next commit; the step ends with its output.
    fn spawn_raw(&self, call: ChildCall) -> Result<(ExecutionId, Step)>;

    /// Sends a message to the parent or to a child. The step ends when the message is durable.
    fn send_raw(&self, body: MessageBody) -> Result<Step>;

    /// Sends the parent a request. The step ends with the answer.
    fn request_raw(&self, name: &str, payload: Payload, timeout: Option<Duration>) -> Result<Step>;
    /// Saves a state and ends the segment.
    fn checkpoint_raw(&self, state: Payload) -> Result<Step>;
    /// Begins a `once`; see [`AgentContextExt::once`].
    fn once_begin(&self, name: &str, digest: Digest) -> Result<OnceBegin>;
    /// Ends a `once`.
    fn once_end(&self, name: &str, digest: Digest, value: Payload) -> Result<Step>;
    /// A context whose calls are recorded as part of the `once` of this name.
    fn scoped(&self, once: &str) -> Context;
    /// The step of an op that was already recorded.
    fn step_of(&self, op: OpRef) -> Step;
    /// Whether a signal of this name is there. Recorded.
    fn has_signal(&self, name: &str) -> Result<bool>;
    /// Takes the signals of this name that are there. Recorded. A value over 64 KiB comes by reference: [`load`](Self::load) it.
    fn drain_raw(&self, name: &str, turn: bool) -> Result<Vec<Payload>>;
    /// Whether the run was asked to stop. Recorded. An answer of yes takes the place of the error: awaits of this
    /// branch no longer fail because of the request.
    fn check_cancellation(&self) -> Result<bool>;
    /// Whether the run was asked to stop. Not recorded: for display, not for decisions.
    fn is_cancellation_requested(&self) -> bool;
    /// What is left of the budget as JSON, `null` where there is none. Recorded.
    fn remaining_budget(&self) -> Result<Payload>;
    /// A small value that stands for the conversation at this point, to be passed to a task.
    fn context_ref(&self) -> ContextRef;
    /// Records what a model call cost; where `calls` is 0 it counts as one.
    fn record_usage(&self, model: &str, usage: Usage) -> Result<()>;
    /// The entries of the branch up to here.
    fn messages(&self) -> BoxFuture<'_, Result<Vec<Entry>>>;
    /// Loads a value that was handed over by reference. Any other value is returned as it is.
    fn load<'a>(&'a self, value: &'a Payload) -> BoxFuture<'a, Result<Payload>>;
    /// The time of the last outcome that was handed over, by the clock of the store. It is recorded and never goes
    /// back.
    fn current_time(&self) -> Timestamp;
    /// 16 random bytes, the same on replay.
    fn random_bytes(&self) -> [u8; 16];
    /// Streams a preview to watchers.
    fn stream(&self, kind: ChunkKind, data: &str);
    /// A context that appends its messages to the thread of this name.
    fn thread(&self, name: &str) -> Context;
    /// The same context as a value of its own, which a spawned task, a struct or a `'static` future may hold.
    ///
    /// ```
    /// use flovyn_core::prelude::*;
    ///
    /// #[task]
    /// async fn square(number: u64) -> Result<u64> {
    ///     Ok(number * number)
    /// }
    ///
    /// #[agent]
    /// async fn squares(ctx: Context, numbers: Vec<u64>) -> Result<u64> {
    ///     let mut branches = tokio::task::JoinSet::new();
    ///     for number in numbers {
    ///         let ctx = ctx.owned();
    ///         branches.spawn(async move { ctx.task(&Square, number).await });
    ///     }
    ///     let mut sum = 0;
    ///     while let Some(ended) = branches.join_next().await {
    ///         sum += ended??;
    ///     }
    ///     Ok(sum)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let agents = AgentBuilder::new().storage("memory:").build().await?;
    /// # assert_eq!(agents.execute(Squares, vec![2, 3]).await?, 13);
    /// # agents.close().await
    /// # }
    /// ```
    ///
    /// Branches of other tasks are waited for as anything outside of the context is: while a replay may still need one of
    /// their calls, nothing is handed over past it. Once the run has ended or was put away, every call and every step of
    /// such a branch ends with `Suspended`.
    fn owned(&self) -> Context {
        self.thread("")
    }
}

/// Makes the future of each try of an inline step.
#[doc(hidden)]
pub type Tries = Arc<dyn Fn() -> TaskFuture + Send + Sync>;

/// How an inline step is run. The process that calls the step makes its tries and waits for the pauses between them in
/// memory. A process that goes on with the run calls the step again, and starts the tries anew.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepOptions {
    /// Retries and pauses.
    pub retry: RetryPolicy,
    /// The longest one try may take; past it the try fails with `TaskTimeout`.
    pub timeout: Option<Duration>,
    /// Names this call among identical ones.
    pub key: Option<String>,
}

/// The context of one activation, or a scope of it. Clones are the same context.
///
/// `Context<Chat>` knows the type of the state that checkpoints save: its `state`, `checkpoint` and `update` take that type
/// and no other. Functions under `#[agent]` get it so.
pub struct Context<S = Untyped> {
    shared: Arc<Shared>,
    once: Option<Arc<str>>,
    thread: String,
    state: PhantomData<fn() -> S>,
}

/// Stands for the state of a context that does not know its type.
#[doc(hidden)]
pub struct Untyped;

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        self.with_state()
    }
}

pub(crate) struct Shared {
    pub session: Arc<Session>,
    pub tasks: Arc<crate::task::TaskRegistry>,
    pub slots: Mutex<Slots>,
    /// Wakes the driver of the agent's future.
    pub driver: Waker,
    /// What the agent was declared with, for the check of what it saves.
    pub declared: OnceLock<Declared>,
    /// The state that this activation has saved last.
    pub saved: Mutex<Option<Payload>>,
}

type Check = Box<dyn Fn(&Payload) -> Result<()> + Send + Sync>;

/// What an activation knows of its agent's state.
pub(crate) struct Declared {
    /// Refuses a state of another type.
    pub check: Check,
    /// The state to begin with, where it is not the stored one.
    pub migrated: Option<Payload>,
}

#[derive(Default)]
pub(crate) struct Slots {
    /// Outcomes that were handed over, and that their step has not taken yet.
    pub outcomes: HashMap<OpRef, Outcome>,
    /// The waker that each open step was last polled with. It has to be woken when the outcome comes, because a
    /// collection such as `FuturesUnordered` polls only members that were woken.
    pub wakers: HashMap<OpRef, std::task::Waker>,
    /// What the inline attempts that have not been started yet need.
    pub work: HashMap<OpRef, Work>,
}

pub(crate) enum Work {
    /// A registered task with its input.
    Task(Payload),
    /// A future of the agent's own. It can be started only once.
    Local(TaskFuture),
    /// A function of the agent's own that makes a future for each try.
    Again(Tries),
}

impl Shared {
    /// Takes out what an attempt of an op needs to start. [`Work::Again`] stays there for the next try.
    pub(crate) fn work_of(&self, op: OpRef) -> Option<Work> {
        let mut slots = self.slots.lock();
        let work = slots.work.remove(&op)?;
        if let Work::Again(tries) = &work {
            slots.work.insert(op, Work::Again(tries.clone()));
        }
        Some(work)
    }
}

impl Context {
    pub(crate) fn new(session: Arc<Session>, tasks: Arc<crate::task::TaskRegistry>, driver: Waker) -> Self {
        let (slots, declared, saved) = (Mutex::default(), OnceLock::new(), Mutex::default());
        let shared = Arc::new(Shared { session, tasks, slots, driver, declared, saved });
        Self { shared, once: None, thread: String::new(), state: PhantomData }
    }
}

impl<S> Context<S> {
    /// The same context with the type of the state that its agent declares: a checkpoint with a value of another type is
    /// refused in any case, by this one while it compiles. For definitions that are written by hand:
    /// `ctx.owned().with_state::<Self::State>()`.
    pub fn with_state<T>(&self) -> Context<T> {
        let Self { shared, once, thread, .. } = self;
        Context { shared: shared.clone(), once: once.clone(), thread: thread.clone(), state: PhantomData }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn call(&self, call: Call) -> Result<crate::journal::Called> {
        let called = self.shared.session.call(call, self.once.as_ref());
        self.shared.ring_from_elsewhere();
        called
    }

    fn step_for(&self, call: Call) -> Result<Step> {
        self.call(call).map(|called| self.opened(called.op).with_task(called.task))
    }

    fn opened(&self, op: OpRef) -> Step {
        Step::new(self.shared.clone(), op)
    }

    fn scope(&self, once: Option<Arc<str>>, thread: String) -> Context {
        Context { shared: self.shared.clone(), once, thread, state: PhantomData }
    }
}

impl<S: 'static> AgentContext for Context<S> {
    fn agent_execution_id(&self) -> ExecutionId {
        self.shared.session.execution_id()
    }

    fn org_id(&self) -> OrgId {
        self.shared.session.org()
    }

    fn activation(&self) -> usize {
        self.shared.session.activation()
    }

    fn key(&self) -> Option<&str> {
        self.shared.session.execution().new.key.as_deref()
    }

    fn queue(&self) -> &str {
        &self.shared.session.execution().new.queue
    }

    fn raw_input(&self) -> &Payload {
        &self.shared.session.execution().new.input
    }

    fn raw_state(&self) -> Option<&Payload> {
        let migrated = self.shared.declared.get().and_then(|declared| declared.migrated.as_ref());
        migrated.or_else(|| self.shared.session.state())
    }

    fn shared_context(&self) -> Option<&SharedContext> {
        self.shared.session.execution().new.shared_context.as_ref()
    }

    fn persistence(&self) -> Persistence {
        self.shared.session.execution().new.persistence
    }

    fn append_message(&self, message: Message) -> Result<EntryId> {
        let Message { role, content, entry_type, turn_id, metadata } = message;
        let called =
            self.call(Call::Entry { role, entry_type, content, turn_id, metadata, thread: self.thread.clone() })?;
        called.entry.ok_or_else(|| Error::new(Code::InvalidArgument, "an entry was recorded without an id"))
    }

    fn schedule_raw(&self, call: TaskCall) -> Result<Step> {
        let registered = self.shared.tasks.options(&call.kind);
        let inline = registered.is_some()
            && call.queue.is_none()
            && !call.options.as_ref().is_some_and(|options| options.detached);
        let options = call.options.or(registered).unwrap_or_default();
        let queue = call.queue.unwrap_or_else(|| self.shared.session.execution().new.queue.clone());
        if !inline && self.shared.tasks.leaves(&call.kind, &queue) {
            self.shared.session.warn_unless_served(&call.kind, &queue);
        }
        let called = self.call(Call::Task {
            kind: call.kind.as_str().into(),
            input: call.input.clone(),
            options,
            placement: if inline { Placement::Inline } else { Placement::Queue },
            queue,
            key: call.key.map(Into::into),
            aliases: self.shared.tasks.aliases(&call.kind),
        })?;
        if inline {
            self.shared.slots.lock().work.insert(called.op, Work::Task(call.input));
        }
        Ok(self.opened(called.op).with_task(called.task))
    }

    fn run_raw(&self, name: &str, work: TaskFuture) -> Result<Step> {
        let called = self.call(Call::Task {
            kind: name.into(),
            input: Payload::null(),
            options: TaskOptions::default(),
            placement: Placement::Inline,
            queue: self.shared.session.execution().new.queue.clone(),
            key: None,
            aliases: Arc::default(),
        })?;
        self.shared.slots.lock().work.insert(called.op, Work::Local(work));
        Ok(self.opened(called.op).with_task(called.task))
    }

    fn run_again_raw(&self, name: &str, options: StepOptions, work: Tries) -> Result<Step> {
        let StepOptions { retry, timeout, key } = options;
        let in_place = retry.retries > 0;
        let called = self.call(Call::Task {
            kind: name.into(),
            input: Payload::null(),
            options: TaskOptions { retry, timeout, in_place, ..TaskOptions::default() },
            placement: Placement::Inline,
            queue: self.shared.session.execution().new.queue.clone(),
            key: key.map(Into::into),
            aliases: Arc::default(),
        })?;
        self.shared.slots.lock().work.insert(called.op, Work::Again(work));
        Ok(self.opened(called.op).with_task(called.task))
    }

    fn wait_raw(&self, name: &str, timeout: Option<Duration>) -> Result<Step> {
        self.step_for(Call::Signal { name: name.into(), timeout })
    }

    fn sleep(&self, duration: Duration) -> Result<Step> {
        self.step_for(Call::Timer { duration })
    }

    fn step(&self) -> Result<Step> {
        self.step_for(Call::StepMark)
    }

    fn flush(&self) -> Result<Step> {
        self.step_for(Call::Flush)
    }

    fn enable_persistence(&self) -> Result<Step> {
        Ok(self.opened(self.shared.session.persist(self.once.as_ref())?))
    }

    fn attach(&self, task: TaskId) -> Result<Step> {
        self.step_for(Call::Attach { task })
    }

    fn spawn_raw(&self, mut call: ChildCall) -> Result<(ExecutionId, Step)> {
        let shared = call.options.shared_context.take();
        call.options.shared_context = shared.map(|shared| shared.in_thread(&self.thread));
        let called = self.call(Call::Child(Box::new(call)))?;
        Ok((called.child.unwrap_or_default(), self.opened(called.op)))
    }

    fn send_raw(&self, body: MessageBody) -> Result<Step> {
        self.step_for(Call::Send(body))
    }

    fn request_raw(&self, name: &str, payload: Payload, timeout: Option<Duration>) -> Result<Step> {
        let op = self.shared.session.request(name, payload, timeout, self.once.as_ref())?;
        Ok(self.opened(op))
    }

    fn checkpoint_raw(&self, state: Payload) -> Result<Step> {
        self.shared.declared.get().map_or(Ok(()), |declared| (declared.check)(&state))?;
        self.shared.session.checkpoint(state.clone(), "{}".into())?;
        *self.shared.saved.lock() = Some(state);
        self.shared.ring_from_elsewhere();
        Ok(Step::checkpoint(self.shared.clone()))
    }

    fn once_begin(&self, name: &str, digest: Digest) -> Result<OnceBegin> {
        self.shared.session.once_begin(&name.into(), digest)
    }

    fn once_end(&self, name: &str, digest: Digest, value: Payload) -> Result<Step> {
        let op = self.shared.session.once_end(&name.into(), digest, value)?;
        Ok(self.opened(op))
    }

    fn scoped(&self, once: &str) -> Context {
        self.scope(Some(once.into()), self.thread.clone())
    }

    fn step_of(&self, op: OpRef) -> Step {
        self.opened(op)
    }

    fn has_signal(&self, name: &str) -> Result<bool> {
        let answer = self.shared.session.read(Question::HasSignal(name.into()), self.once.as_ref())?;
        Ok(matches!(answer, Answer::Flag(true)))
    }

    fn drain_raw(&self, name: &str, turn: bool) -> Result<Vec<Payload>> {
        match self.shared.session.read(Question::Drain { name: name.into(), turn }, self.once.as_ref())? {
            Answer::Signals(values) => Ok(values),
            _ => Ok(Vec::new()),
        }
    }

    fn check_cancellation(&self) -> Result<bool> {
        let answer = self.shared.session.read(Question::Cancellation, self.once.as_ref())?;
        Ok(matches!(answer, Answer::Flag(true)))
    }

    fn is_cancellation_requested(&self) -> bool {
        self.shared.session.is_cancel_requested()
    }

    fn remaining_budget(&self) -> Result<Payload> {
        match self.shared.session.read(Question::Budget, self.once.as_ref())? {
            Answer::Value(left) => Ok(left),
            _ => Ok(Payload::null()),
        }
    }

    fn context_ref(&self) -> ContextRef {
        let leaf = self.shared.session.leaf(&self.thread);
        ContextRef { execution: self.agent_execution_id(), thread: self.thread.clone(), leaf }
    }

    fn record_usage(&self, model: &str, mut usage: Usage) -> Result<()> {
        usage.calls = usage.calls.max(1);
        self.call(Call::Usage { model: model.to_owned(), usage }).map(drop)
    }

    fn messages(&self) -> BoxFuture<'_, Result<Vec<Entry>>> {
        Box::pin(self.shared.session.branch(&self.thread))
    }

    fn load<'a>(&'a self, value: &'a Payload) -> BoxFuture<'a, Result<Payload>> {
        Box::pin(self.shared.session.load(value))
    }

    fn current_time(&self) -> Timestamp {
        self.shared.session.time()
    }

    fn random_bytes(&self) -> [u8; 16] {
        self.shared.session.random()
    }

    fn stream(&self, kind: ChunkKind, data: &str) {
        self.shared.session.stream(kind, data.into(), None);
    }

    fn thread(&self, name: &str) -> Context {
        self.shared.session.open_thread(name);
        self.scope(self.once.clone(), name.to_owned())
    }

    fn owned(&self) -> Context {
        self.with_state()
    }
}
