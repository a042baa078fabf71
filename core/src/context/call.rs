//! A call of a task that is put together, then awaited.

use super::ext::StepOf;
use super::{AgentContext, Context, TaskCall};
use crate::error::{Code, Error, Result};
use crate::model::{RetryPolicy, SideEffects, TaskOptions};
use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

/// A call of a task, made by [`AgentContextExt::task`](super::AgentContextExt::task). Await it for the task's result, an `O`.
///
/// ```
/// # use flovyn_core::prelude::*;
/// # #[task]
/// # async fn square(number: u64) -> Result<u64> {
/// #     Ok(number * number)
/// # }
/// # #[agent]
/// # async fn adder(ctx: Context) -> Result<u64> {
/// let (three, four) = tokio::try_join!(ctx.task(&Square, 3), ctx.task(&Square, 4).retries(2))?;
/// let five = ctx.task(&Square, 5).key("the last one").start()?; // begins at the next await
/// Ok(three + four + five.await?)
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let agents = AgentBuilder::new().storage("memory:").build().await?;
/// # assert_eq!(agents.execute(Adder, ()).await?, 50);
/// # agents.close().await
/// # }
/// ```
///
/// It takes its slot in the journal when it is first polled, or at once by [`start`](Self::start). It works with `join!`,
/// `try_join_all`, `select!` and `FuturesUnordered`, and may be moved to another tokio task.
///
/// Errors of the await: `TaskFailed`, with the type of the task's own error as [`Error::error_type`]; `TaskTimeout`; what
/// [`start`](Self::start) says.
#[must_use = "a call is made when it is awaited or started"]
pub struct TaskStep<O> {
    stage: Stage<O>,
}

enum Stage<O> {
    /// Not made yet.
    Planned(Box<Plan>),
    /// Made.
    Open(StepOf<O>),
    /// Over.
    Ended,
}

/// A call that is not made yet.
struct Plan {
    context: Context,
    call: Result<TaskCall>,
}

impl Plan {
    fn make<O>(self) -> Result<StepOf<O>> {
        self.context.schedule_raw(self.call?).map(StepOf::new)
    }
}

impl<O> TaskStep<O> {
    pub(super) fn new(context: Context, call: Result<TaskCall>) -> Self {
        Self { stage: Stage::Planned(Box::new(Plan { context, call })) }
    }

    fn change(mut self, change: impl FnOnce(&mut TaskCall)) -> Self {
        if let Stage::Planned(plan) = &mut self.stage
            && let Ok(call) = &mut plan.call
        {
            change(call);
        }
        self
    }

    /// Replaces all options of the task's definition.
    pub fn options(self, options: TaskOptions) -> Self {
        self.change(|call| call.options = Some(options))
    }

    fn set(mut self, set: impl FnOnce(&mut TaskOptions)) -> Self {
        if let Stage::Planned(plan) = &mut self.stage
            && let Ok(call) = &mut plan.call
        {
            let declared = || plan.context.shared().tasks.options(&call.kind).unwrap_or_default();
            set(call.options.get_or_insert_with(declared));
        }
        self
    }

    /// Lets a worker of this queue do it, instead of this process.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.change(|call| call.queue = Some(queue.into()))
    }

    /// Names this call among identical ones, so that edited code finds it again.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.change(|call| call.key = Some(key.into()))
    }

    /// Tries it again so often when it fails or takes too long: at most `retries` + 1 attempts.
    pub fn retries(self, retries: u32) -> Self {
        self.set(|options| options.retry.retries = retries)
    }

    /// Sets retries and the pauses between them.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.set(|options| options.retry = retry)
    }

    /// Stops an attempt that takes longer; it counts as failed, with `TaskTimeout`.
    pub fn timeout(self, limit: Duration) -> Self {
        self.set(|options| options.timeout = Some(limit))
    }

    /// Ends all attempts together after this time, counted from the call.
    pub fn deadline(self, limit: Duration) -> Self {
        self.set(|options| options.deadline = Some(limit))
    }

    /// Never starts it twice: an attempt that was lost with its process is in doubt, and the run waits for a decision.
    pub fn at_most_once(self) -> Self {
        self.set(|options| options.side_effects = SideEffects::AtMostOnce)
    }

    /// Lets it outlive the segment: keep the id of its step in the state, and [`attach`](AgentContext::attach) to it later.
    pub fn detached(self) -> Self {
        self.set(|options| options.detached = true)
    }

    /// Makes the call now, and returns its open step. Steps that are started one after the other run side by side.
    ///
    /// Errors: `NotSerializable` for an input without a JSON form, `InvalidArgument` for options that contradict each other,
    /// `PayloadTooLarge`, and `Suspended` once the run has ended or was put away.
    pub fn start(self) -> Result<StepOf<O>> {
        match self.stage {
            Stage::Planned(plan) => plan.make(),
            Stage::Open(step) => Ok(step),
            Stage::Ended => Err(ended()),
        }
    }
}

impl<O: DeserializeOwned> Future for TaskStep<O> {
    type Output = Result<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut step = match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Planned(plan) => plan.make()?,
            Stage::Open(step) => step,
            Stage::Ended => return Poll::Ready(Err(ended())),
        };
        let polled = Pin::new(&mut step).poll(cx);
        if polled.is_pending() {
            self.stage = Stage::Open(step);
        }
        polled
    }
}

fn ended() -> Error {
    Error::new(Code::InvalidArgument, "a call of a task was polled again after its end")
}
