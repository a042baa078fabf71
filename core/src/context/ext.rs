//! The typed methods of the context, written on top of its methods that take payloads.

use super::combine::mapped;
use super::{AgentContext, Child, ChildNews, Context, InlineStep, Message, Step, StepOptions, TaskCall, TaskStep};
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId};
use crate::journal::{ChildCall, ChildOptions, Completion, OnceBegin, Outcome};
use crate::model::{Cancellation, ChildRequest, ChunkKind, Delivery, Failure, MessageBody, event_signal};
use crate::payload::{Digest, Payload};
use crate::task::{TaskDefinition, TaskFuture};
use futures::future::{Either, select};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

/// A step whose result is a `T`.
pub struct StepOf<T> {
    step: Step,
    result: PhantomData<fn() -> T>,
}

impl<T> StepOf<T> {
    pub(super) fn new(step: Step) -> Self {
        Self { step, result: PhantomData }
    }

    /// The step itself.
    pub fn step(&self) -> &Step {
        &self.step
    }
}

impl<T: DeserializeOwned> Future for StepOf<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.step).poll(cx).map(|outcome| value_of(outcome?)?.parse())
    }
}

pub(crate) fn value_of(outcome: Outcome) -> Result<Payload> {
    match outcome {
        Outcome::Value(payload) | Outcome::Signal(payload) => Ok(payload),
        Outcome::Event(event) => Ok(event.payload().cloned().unwrap_or_else(Payload::null)),
        Outcome::Fired | Outcome::Done => Ok(Payload::null()),
        Outcome::TimedOut => Err(Error::new(Code::SignalTimeout, "no signal came in time")),
        Outcome::Cancelled => Err(Error::new(Code::Cancelled, "the run was asked to stop")),
        Outcome::Failed(failure) => Err(error_of(&failure)),
    }
}

/// The error that a failure of a task or a run raises.
pub(crate) fn error_of(failure: &Failure) -> Error {
    let Some(kind) = &failure.kind else {
        return Error::new(failure.code, failure.message.clone()).with("error_type", &failure.error_type);
    };
    if let Code::ChildFailed | Code::ChildCancelled = failure.code {
        let ended = if failure.code == Code::ChildFailed { "failed" } else { "was cancelled" };
        let message = format!("child \"{kind}\" {ended}: {}: {}", failure.error_type, failure.message);
        let error = Error::new(failure.code, message).with("kind", kind);
        return error.with("error_type", &failure.error_type).with("reason", &failure.message);
    }
    if failure.is_of_childs_budget() {
        let message = format!("child \"{kind}\" was stopped: {}", failure.message);
        return Error::new(failure.code, message).with("kind", kind).with("reason", &failure.message);
    }
    // Whatever made the task fail, the code that awaits it gets `TaskFailed` or `TaskTimeout`. The reason is in the
    // message.
    let code = if failure.code == Code::TaskTimeout { Code::TaskTimeout } else { Code::TaskFailed };
    let Failure { attempts, error_type, message, .. } = failure;
    let tried = if *attempts <= 1 { String::new() } else { format!(" after {attempts} attempts") };
    let error = Error::new(code, format!("task \"{kind}\" failed{tried}: {error_type}: {message}"))
        .with("error_type", error_type)
        .with("reason", message)
        .with("kind", kind)
        .with("attempts", attempts);
    match failure.task {
        Some(task) => error.with("task_id", task),
        None => error,
    }
}

fn named_call(kind: &str, input: Payload) -> TaskCall {
    TaskCall { kind: kind.to_owned(), input, options: None, queue: None, key: None }
}

impl Context {
    /// The call of a task by its definition, which this process learns of, if it may, so that it can do it.
    fn typed_call<T: TaskDefinition>(&self, task: &T, input: Payload) -> TaskCall {
        self.shared().tasks.learn(task);
        let queue = task.queue().map(str::to_owned);
        TaskCall { options: Some(task.options()), queue, ..named_call(task.kind(), input) }
    }
}

/// Typed calls on any context.
pub trait AgentContextExt: AgentContext {
    /// Appends an entry of a role with a serialisable content.
    fn append_entry<C: Serialize + ?Sized>(&self, role: &str, content: &C) -> Result<EntryId> {
        let content = Payload::of(content)?;
        self.append_message(Message {
            role: role.into(),
            content,
            entry_type: "message".into(),
            turn_id: None,
            metadata: None,
        })
    }

    /// Calls a task: await it for the result, or set first how it is to be done.
    ///
    /// ```
    /// # use flovyn_core::prelude::*;
    /// # #[task]
    /// # async fn fetch(url: String) -> Result<String> {
    /// #     Ok(url)
    /// # }
    /// # #[agent]
    /// # async fn reader(ctx: Context, url: String) -> Result<String> {
    /// let page = ctx.task(&Fetch, url).retries(3).timeout(Duration::from_secs(30)).await?;
    /// # Ok(page)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let agents = AgentBuilder::new().storage("memory:").build().await?;
    /// # assert_eq!(agents.execute(Reader, "a".into()).await?, "a");
    /// # agents.close().await
    /// # }
    /// ```
    ///
    /// A task of [`#[task]`](macro@crate::task) is registered with the worker of this agent by its first call.
    fn task<T: TaskDefinition>(&self, task: &T, input: T::Input) -> TaskStep<T::Output> {
        let context = self.owned();
        let call = Payload::of(&input).map(|input| context.typed_call(task, input));
        TaskStep::new(context, call)
    }

    /// As [`task`](Self::task), by the name of a task that may be written in another language.
    fn task_named<O>(&self, kind: &str, input: &(impl Serialize + ?Sized)) -> TaskStep<O> {
        TaskStep::new(self.owned(), Payload::of(input).map(|input| named_call(kind, input)))
    }

    /// Runs work of the agent's own as a durable step of this name. It may borrow from the agent, may be tried again and
    /// limited in time, and is never done again once its result is recorded:
    ///
    /// ```
    /// # use flovyn_core::prelude::*;
    /// # #[agent]
    /// # async fn writer(ctx: Context, words: Vec<String>) -> Result<String> {
    /// let text = ctx.inline("join", || async { Ok(words.join(" ")) }).retries(2).timeout(Duration::from_secs(5)).await?;
    /// # Ok(text)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let agents = AgentBuilder::new().storage("memory:").build().await?;
    /// # assert_eq!(agents.execute(Writer, vec!["two".into(), "words".into()]).await?, "two words");
    /// # agents.close().await
    /// # }
    /// ```
    ///
    /// `work` makes the future of each try, which is polled as a part of the agent's future; what blocks a thread belongs
    /// into a task.
    fn inline<'a, O, W, F>(&self, name: &str, mut work: W) -> InlineStep<'a, O>
    where
        O: Serialize + DeserializeOwned + 'a,
        W: FnMut() -> F + Send + 'a,
        F: Future<Output = Result<O>> + Send + 'a,
    {
        InlineStep::new(self.owned(), name, move || {
            let one = work();
            Box::pin(async move { Payload::of(&one.await?) })
        })
    }

    /// Schedules a task with the options of its definition. It takes its slot at once; see [`task`](Self::task) for a call
    /// with other options.
    fn schedule_task<T: TaskDefinition>(&self, task: &T, input: &T::Input) -> Result<StepOf<T::Output>> {
        let call = self.owned().typed_call(task, Payload::of(input)?);
        self.schedule_raw(call).map(StepOf::new)
    }

    /// Schedules a task by name.
    fn schedule<O: DeserializeOwned>(&self, kind: &str, input: &(impl Serialize + ?Sized)) -> Result<StepOf<O>> {
        self.schedule_raw(named_call(kind, Payload::of(input)?)).map(StepOf::new)
    }

    /// Starts a run of another agent as a child of this one, on this run's queue. It is born with the next commit, once,
    /// whatever crashes. When this run ends, its children are cancelled, unless they were started with
    /// [`OnParentEnd::Detach`](crate::model::OnParentEnd).
    ///
    /// Errors: `InvalidArgument` inside of a [`once`](Self::once).
    fn spawn_agent<O>(&self, kind: &str, input: &(impl Serialize + ?Sized)) -> Result<Child<O>> {
        self.spawn_agent_with(kind, input, ChildOptions::default())
    }

    /// As [`spawn_agent`](Self::spawn_agent), with options. A child with an id can be left running over a checkpoint:
    /// the same call again, with its id, agent and input, waits for the same child.
    fn spawn_agent_with<O>(
        &self,
        kind: &str,
        input: &(impl Serialize + ?Sized),
        options: ChildOptions,
    ) -> Result<Child<O>> {
        let call = ChildCall { kind: kind.into(), input: Payload::of(input)?, options, hand_off: None };
        let (id, step) = self.spawn_raw(call)?;
        Ok(Child::new(id, step))
    }

    /// Gives the run away to an agent: the last call of this run. In one commit the successor is started and this run lets
    /// go of everything; then its code is dropped, so the future never returns a value. Children that still run are
    /// cancelled as at an end. What is sent to this run goes to the successor, and on to whoever that hands off to.
    ///
    /// Errors, after which the run goes on: `LimitReached`, `BudgetExceeded` and `InvalidArgument` as of
    /// [`spawn_agent_with`](Self::spawn_agent_with), and `Cancelled` where the run was asked to stop.
    fn handoff_to_agent<'a>(
        &'a self,
        kind: &'a str,
        input: &(impl Serialize + ?Sized),
        options: ChildOptions,
        completion: Completion,
    ) -> impl Future<Output = Result<Infallible>> + Send + 'a {
        let call = Payload::of(input).and_then(|input| {
            self.spawn_raw(ChildCall { kind: kind.into(), input, options, hand_off: Some(completion) })
        });
        async move {
            let ended = value_of(call?.1.await?)?;
            drop(ended);
            let message = format!("the run cannot be handed off to the child {kind:?}: it has ended");
            Err(Error::new(Code::InvalidTransition, message))
        }
    }

    /// Sends a child a signal, as a client does. The step ends when it is durable, and fails with `ExecutionClosed` where
    /// the child has ended.
    fn signal_child(
        &self,
        child: impl Into<ExecutionId>,
        name: &str,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<StepOf<()>> {
        let (child, payload) = (child.into(), Payload::of(payload)?);
        self.send_raw(MessageBody::ToChild { child, name: name.into(), payload, delivery: Delivery::NextStep })
            .map(StepOf::new)
    }

    /// Tells the run that has started this one something. It gets it by
    /// [`wait_for_child_event`](Self::wait_for_child_event). The step ends when it is durable, and fails with `NoParent`
    /// in a run that nobody has started, and with `ExecutionClosed` where the parent has ended.
    fn signal_parent(&self, name: &str, payload: &(impl Serialize + ?Sized)) -> Result<StepOf<()>> {
        self.send_raw(MessageBody::ToParent { name: name.into(), payload: Payload::of(payload)?, is_request: false })
            .map(StepOf::new)
    }

    /// Asks the run that has started this one, and waits for its answer. Errors of the await: `NoParent`, `ParentGone`,
    /// and `SignalTimeout` when no answer comes within `timeout`.
    fn request_from_parent<T: DeserializeOwned>(
        &self,
        name: &str,
        payload: &(impl Serialize + ?Sized),
        timeout: Option<Duration>,
    ) -> Result<StepOf<T>> {
        self.request_raw(name, Payload::of(payload)?, timeout).map(StepOf::new)
    }

    /// Waits for what a child tells next, or for its end. What it tells is told once, in order; its end comes last, and
    /// may be read any number of times. Errors of the await: `SignalTimeout` when nothing comes within `timeout`.
    fn wait_for_child_event(&self, child: impl Into<ExecutionId>, timeout: Option<Duration>) -> Result<ChildNews> {
        self.wait_raw(&event_signal(child.into()), timeout).map(ChildNews::new)
    }

    /// Answers a request of a child, once. The step ends when the answer is durable; another answer to the same request
    /// fails with `AlreadyExists`.
    fn respond(&self, request: &ChildRequest, payload: &(impl Serialize + ?Sized)) -> Result<StepOf<()>> {
        let ChildRequest { child, id } = *request;
        self.send_raw(MessageBody::Answer { child, request: id, payload: Payload::of(payload)? }).map(StepOf::new)
    }

    /// Asks a child to stop. The step ends when that is durable; the child's end comes later. A child that has ended
    /// stays as it is.
    fn cancel_child(&self, child: impl Into<ExecutionId>, how: Cancellation) -> Result<StepOf<()>> {
        self.send_raw(MessageBody::Stop { child: child.into(), how }).map(StepOf::new)
    }

    /// Runs a future once as a durable step of this name. It runs on the runtime, beside the agent, so it owns what it uses;
    /// see [`inline`](Self::inline) for one that borrows, and that may be tried again.
    fn run<O, F>(&self, name: &str, work: F) -> Result<StepOf<O>>
    where
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Future<Output = Result<O>> + Send + 'static,
    {
        self.run_raw(name, Box::pin(async move { Payload::of(&work.await?) })).map(StepOf::new)
    }

    /// Runs a durable step of this name with retries and a limit of time. `work` makes the future of each try.
    fn run_with<O, W, F>(&self, name: &str, options: StepOptions, work: W) -> Result<StepOf<O>>
    where
        O: Serialize + DeserializeOwned + Send + 'static,
        W: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<O>> + Send + 'static,
    {
        let tries = move || {
            let one = work();
            Box::pin(async move { Payload::of(&one.await?) }) as TaskFuture
        };
        self.run_again_raw(name, options, Arc::new(tries)).map(StepOf::new)
    }

    /// Runs a task for each input, at most `limit` at a time, and returns how each ended, in the order of the inputs.
    /// The outer result is an error when a task could not be scheduled, or when the run was asked to stop.
    fn map<'a, T: TaskDefinition>(
        &'a self,
        task: &'a T,
        inputs: Vec<T::Input>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Result<T::Output>>>> + Send + 'a {
        let schedule = move |input: &T::Input| self.schedule_task(task, input);
        mapped(inputs, limit, schedule)
    }

    /// Waits for a signal, however long.
    fn wait_for_signal<T: DeserializeOwned>(&self, name: &str) -> Result<StepOf<T>> {
        self.wait_raw(name, None).map(StepOf::new)
    }

    /// Waits for a signal. When none comes within `timeout`, the step ends with `SignalTimeout`.
    fn wait_for_signal_within<T: DeserializeOwned>(&self, name: &str, timeout: Duration) -> Result<StepOf<T>> {
        self.wait_raw(name, Some(timeout)).map(StepOf::new)
    }

    /// Takes the signals of this name that are there. Values over 64 KiB are an error here: take them by
    /// [`drain_raw`](AgentContext::drain_raw).
    fn drain_signals<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>> {
        self.drain_raw(name, false)?.iter().map(Payload::parse).collect()
    }

    /// The argument of the run.
    fn input<T: DeserializeOwned>(&self) -> Result<T> {
        self.raw_input().parse()
    }

    /// The state of the last checkpoint, or the default before the first.
    fn state<S: DeserializeOwned + Default>(&self) -> Result<S> {
        self.raw_state().map_or_else(|| Ok(S::default()), Payload::parse)
    }

    /// Saves the state and ends the segment. The state is durable when the step has ended.
    fn checkpoint<S: Serialize>(&self, state: &S) -> Result<Step> {
        self.checkpoint_raw(Payload::of(state)?)
    }

    /// Limits the time of a future with a durable timer. When the timer ends first, the result is `Timeout`, and the
    /// future is dropped together with its open steps.
    fn timeout<F: Future + Send>(&self, limit: Duration, work: F) -> impl Future<Output = Result<F::Output>> + Send {
        let timer = self.sleep(limit);
        async move {
            match select(std::pin::pin!(work), timer?).await {
                Either::Left((done, _)) => Ok(done),
                Either::Right((fired, _)) => {
                    fired?;
                    Err(Error::new(Code::Timeout, format!("the future took longer than {limit:?}")))
                }
            }
        }
    }

    /// A random UUID, the same on replay.
    fn random_uuid(&self) -> uuid::Uuid {
        uuid::Builder::from_random_bytes(self.random_bytes()).into_uuid()
    }

    /// A random number in `0.0..1.0`, the same on replay.
    fn random(&self) -> f64 {
        crate::session::number_of(self.random_bytes())
    }

    /// Streams a token.
    fn stream_token(&self, text: &str) {
        self.stream(ChunkKind::Token, text);
    }

    /// Streams data.
    fn stream_data<D: Serialize>(&self, data: &D) -> Result<()> {
        let json = serde_json::to_string(data).map_err(|error| Error::new(Code::NotSerializable, error.to_string()))?;
        self.stream(ChunkKind::Data, &json);
        Ok(())
    }

    /// Does something once per run, over all its segments. Later calls of the same name return the first result.
    fn once<O, F, W>(
        &self,
        name: &str,
        input: &(impl Serialize + ?Sized),
        work: W,
    ) -> impl Future<Output = Result<O>> + Send
    where
        O: Serialize + DeserializeOwned + Send,
        W: FnOnce(Context) -> F + Send,
        F: Future<Output = Result<O>> + Send,
    {
        let begun = Payload::of(input)
            .and_then(|input| input.digest())
            .and_then(|digest| Ok((digest, self.once_begin(name, digest)?)));
        let context = self.scoped(name);
        let name = name.to_owned();
        async move {
            let (digest, begun): (Digest, OnceBegin) = begun?;
            match begun {
                OnceBegin::Done(value) => value.parse(),
                OnceBegin::Recorded(op) => value_of(context.step_of(op).await?)?.parse(),
                OnceBegin::Run => {
                    let value = Payload::of(&work(context.clone()).await?)?;
                    let step = context.once_end(&name, digest, value)?;
                    value_of(step.await?)?.parse()
                }
            }
        }
    }
}

impl<C: AgentContext + ?Sized> AgentContextExt for C {}
