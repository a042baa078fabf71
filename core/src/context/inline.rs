//! An inline step whose work borrows from the agent: it is polled inside of the agent's own future.
//!
//! For the engine it is an inline attempt like any other, with retries and limits of time. The attempt that the driver
//! starts does nothing but ask the agent's future for a try and wait for its end.

use super::ext::value_of;
use super::{AgentContext, Context, Shared, Step, StepOptions};
use crate::error::Result;
use crate::journal::OpRef;
use crate::model::RetryPolicy;
use crate::payload::Payload;
use crate::sync::Mutex;
use crate::task::TaskFuture;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::oneshot;

/// How a try ended, or what it panicked with.
type Tried = std::result::Result<Result<Payload>, Box<dyn Any + Send>>;

/// An inline step that may borrow, made by [`AgentContextExt::inline`](super::AgentContextExt::inline). Await it for its
/// result, an `O`. It takes its slot in the journal when it is first polled.
///
/// Errors of the await: as of [`TaskStep`](super::TaskStep).
#[must_use = "a step is made when it is awaited"]
pub struct InlineStep<'a, O> {
    // The step goes first, so that it is given up before the work is dropped.
    stage: Stage,
    work: Box<dyn FnMut() -> BoxFuture<'a, Result<Payload>> + Send + 'a>,
    current: Option<(oneshot::Sender<Tried>, BoxFuture<'a, Result<Payload>>)>,
    result: PhantomData<fn() -> O>,
}

enum Stage {
    Planned(Context, String, StepOptions),
    Open(Step, Arc<Bridge>),
    Ended,
}

impl<'a, O> InlineStep<'a, O> {
    pub(super) fn new(
        context: Context,
        name: &str,
        work: impl FnMut() -> BoxFuture<'a, Result<Payload>> + Send + 'a,
    ) -> Self {
        let stage = Stage::Planned(context, name.to_owned(), StepOptions::default());
        Self { stage, work: Box::new(work), current: None, result: PhantomData }
    }

    fn set(mut self, set: impl FnOnce(&mut StepOptions)) -> Self {
        if let Stage::Planned(_, _, options) = &mut self.stage {
            set(options);
        }
        self
    }

    /// Tries it again so often when it fails or takes too long: at most `retries` + 1 tries.
    pub fn retries(self, retries: u32) -> Self {
        self.set(|options| options.retry.retries = retries)
    }

    /// Sets retries and the pauses between them.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.set(|options| options.retry = retry)
    }

    /// Drops a try that takes longer; it counts as failed, with `TaskTimeout`.
    pub fn timeout(self, limit: Duration) -> Self {
        self.set(|options| options.timeout = Some(limit))
    }

    /// Names this call among identical ones, so that edited code finds it again.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.set(|options| options.key = Some(key.into()))
    }
}

impl<O: DeserializeOwned> Future for InlineStep<'_, O> {
    type Output = Result<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let me = &mut *self;
        if let Stage::Planned(context, name, options) = &mut me.stage {
            let bridge = Arc::new(Bridge::of(context));
            let asking = bridge.clone();
            let made = context.run_again_raw(name, std::mem::take(options), Arc::new(move || asking.clone().tried()));
            match made {
                Ok(step) => {
                    let _ = bridge.op.set(step.op());
                    me.stage = Stage::Open(step, bridge);
                }
                Err(error) => {
                    me.stage = Stage::Ended;
                    return Poll::Ready(Err(error));
                }
            }
        }
        let Stage::Open(step, bridge) = &mut me.stage else { return Poll::Ready(Err(super::step::polled_again())) };
        if let Poll::Ready(outcome) = Pin::new(step).poll(cx) {
            (me.stage, me.current) = (Stage::Ended, None);
            return Poll::Ready(outcome.and_then(value_of).and_then(|value| value.parse()));
        }
        // What the work waits for wakes the step by way of its slot: the driver then sees a step that is awaited and not
        // something outside.
        let waker = Waker::from(bridge.clone());
        let cx = &mut TaskContext::from_waker(&waker);
        if let Some(ask) = bridge.asked.lock().take() {
            me.current = Some((ask, (me.work)()));
        }
        let Some((ask, work)) = &mut me.current else { return Poll::Pending };
        // The attempt was told to stop: another try may follow.
        if ask.poll_closed(cx).is_ready() {
            me.current = None;
            return Poll::Pending;
        }
        let tried = match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => Ok(result),
            Err(panic) => Err(panic),
        };
        if let Some((ask, _)) = me.current.take() {
            // An attempt that has been stopped in the meantime takes no answer.
            let _ = ask.send(tried);
        }
        Poll::Pending
    }
}

/// Where the attempt and the agent's future meet. It does not keep the session alive, which has it among its work.
struct Bridge {
    shared: Weak<Shared>,
    op: OnceLock<OpRef>,
    /// A try that was asked for and not begun.
    asked: Mutex<Option<oneshot::Sender<Tried>>>,
}

impl Bridge {
    fn of(context: &Context) -> Self {
        Self { shared: Arc::downgrade(context.shared()), op: OnceLock::new(), asked: Mutex::default() }
    }

    /// The attempt's side: asks for a try and waits for its end.
    fn tried(self: Arc<Self>) -> TaskFuture {
        Box::pin(async move {
            let (ask, tried) = oneshot::channel();
            *self.asked.lock() = Some(ask);
            self.wake_by_ref();
            match tried.await {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => resume_unwind(panic),
                // The agent's future has let go of the step, and nobody waits for this attempt: it is stopped.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

impl Wake for Bridge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let (Some(shared), Some(op)) = (self.shared.upgrade(), self.op.get()) else { return };
        let waker = shared.slots.lock().wakers.get(op).cloned();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
