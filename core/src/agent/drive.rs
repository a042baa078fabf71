//! Drives one Rust agent: polls its future, applies the effects of its session (it hands outcomes over, starts and
//! stops inline attempts), and tells the session when the future has nothing more to do by itself.

use super::{AnyAgent, is_of_stored_state};
use crate::context::{Context, Work, driven};
use crate::error::{Code, Error};
use crate::journal::{Ending, Outside, StartTask};
use crate::model::{AttemptResult, Failure, WaitReason};
use crate::session::{Closed, HostEffect, Port, Session};
use crate::task::{TaskContext, TaskRegistry, failed};
use futures::FutureExt;
use futures::task::AtomicWaker;
use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Context as TaskPoll, Poll, Wake, Waker};
use std::time::Duration;
use tokio::task::AbortHandle;
use tracing::Instrument;

/// Wakes the driver. The session wakes it when there are effects to apply, and the agent's waker wakes it when the
/// future is to be polled.
struct DriverWaker(AtomicWaker);

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

impl Port for DriverWaker {
    fn ready(&self, _: &Arc<Session>) {
        self.0.wake();
    }
}

/// The waker that the agent's future is polled with. Each poll gets a fresh one, so that the clones which are alive
/// after the poll are exactly those that this poll has handed out: whoever holds one of them means to wake the agent
/// ([`Driver::outside`] counts them).
struct AgentWaker {
    driver_waker: Arc<DriverWaker>,
    woken: AtomicBool,
}

impl AgentWaker {
    fn new(driver_waker: &Arc<DriverWaker>) -> Arc<Self> {
        Arc::new(Self { driver_waker: driver_waker.clone(), woken: AtomicBool::new(false) })
    }

    /// Whether it was woken, asked after its clones were counted. A thread that wakes the agent sets `woken` and then
    /// drops its clone. The fence pairs with that drop: if the count no longer included the clone, the load sees
    /// `woken` set. Without the fence a wake-up could be missed by both.
    fn was_woken(&self) -> bool {
        fence(Ordering::Acquire);
        self.woken.load(Ordering::Relaxed)
    }
}

impl Wake for AgentWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
        self.driver_waker.0.wake();
    }
}

/// How often a future that wakes itself is polled, without an effect in between, before it counts as waiting for
/// something outside. Without the limit, a loop that only yields would never let the session hand over what has come
/// for the run.
const SPINS: u32 = 1_000;

/// For how many turns the driver lets the runtime go on before it reports that something outside holds the agent's
/// waker.
/// `yield_now` does so too, but only until the runtime's next turn: it counts as a wake-up, not as something outside.
const TURNS: u32 = 2;

/// Runs until the activation is over.
pub(super) async fn drive(agent: Arc<dyn AnyAgent>, session: Arc<Session>, tasks: Arc<TaskRegistry>) {
    let driver_waker = Arc::new(DriverWaker(AtomicWaker::new()));
    session.connect(driver_waker.clone());
    let context = Context::new(session.clone(), tasks, driver_waker.clone().into());
    let mut driver = Driver { session: session.clone(), context: context.clone(), running: HashMap::new() };
    let mut future = Some(Box::pin(async move { AssertUnwindSafe(agent.run(&context)).catch_unwind().await }));
    let mut held = AgentWaker::new(&driver_waker);
    let mut waker = Waker::from(held.clone());
    let (mut spins, mut turns) = (0, 0);
    let closed = std::future::poll_fn(move |cx| {
        driver_waker.0.register(cx.waker());
        let mut fresh = true;
        loop {
            let effects = session.take_effects();
            if effects.is_empty() && !fresh {
                return Poll::Pending;
            }
            fresh = false;
            if !effects.is_empty() {
                (spins, turns) = (0, 0);
            } else if held.woken.load(Ordering::Relaxed) {
                turns = 0;
            }
            for effect in effects {
                if let Some(closed) = driver.apply(effect, &waker) {
                    future = None;
                    return Poll::Ready(closed);
                }
            }
            let Some(running) = future.as_mut() else { continue };
            let span = session.span();
            held = AgentWaker::new(&driver_waker);
            waker = Waker::from(held.clone());
            let mut poll = || running.as_mut().poll(&mut TaskPoll::from_waker(&waker));
            match span.in_scope(|| driven(session.activation(), &mut poll)) {
                Poll::Pending if held.woken.load(Ordering::Relaxed) && spins < SPINS => {
                    // The future has woken itself, and with it the driver: it is polled again after the runtime has had
                    // a turn.
                    spins += 1;
                    return Poll::Pending;
                }
                Poll::Pending => {
                    let outside = driver.outside(&held, &waker);
                    if held.was_woken() {
                        // Somebody woke the agent after the poll and dropped the waker, so the count may have missed
                        // it. The future has to be polled again before anything is said about what it waits for.
                        if spins < SPINS {
                            spins += 1;
                            return Poll::Pending;
                        }
                        session.settle(false, Some(Outside::Something));
                        continue;
                    }
                    if outside == Outside::Something && turns < TURNS && spins < SPINS {
                        (spins, turns) = (spins + 1, turns + 1);
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    turns = 0;
                    session.settle(false, Some(outside));
                }
                Poll::Ready(result) => {
                    future = None;
                    session.finish(ending(result));
                }
            }
        }
    })
    .await;
    if let Closed::Lost(error) = closed {
        tracing::debug!(%error, "an agent's copy was dropped");
    }
}

struct Driver {
    session: Arc<Session>,
    context: Context,
    running: HashMap<crate::journal::OpRef, AbortHandle>,
}

impl Driver {
    fn apply(&mut self, effect: HostEffect, own: &Waker) -> Option<Closed> {
        match effect {
            HostEffect::Deliver(handed) => {
                let mut slots = self.context.shared().slots.lock();
                let polled = handed.iter().filter_map(|one| slots.wakers.remove(&one.op)).collect::<Vec<_>>();
                for one in &handed {
                    slots.work.remove(&one.op);
                }
                slots.outcomes.extend(handed.into_iter().map(|one| (one.op, one.outcome)));
                drop(slots);
                // The agent's future is polled after every effect anyway. Only wakers of collections inside it
                // (`FuturesUnordered`) have to be woken: such a collection polls only those members that were woken.
                for waker in polled.into_iter().filter(|waker| !waker.will_wake(own)) {
                    waker.wake();
                }
                None
            }
            HostEffect::Start(start) => {
                self.start(start);
                None
            }
            HostEffect::CancelTask(op) => {
                if let Some(running) = self.running.remove(&op) {
                    running.abort();
                }
                None
            }
            // The future is polled after every effect, and the driver answers after every poll.
            HostEffect::Ask => None,
            HostEffect::Warn(what) => {
                tracing::warn!(execution = %self.session.execution_id(), "{what}");
                None
            }
            HostEffect::Close(why) => {
                for (_, running) in self.running.drain() {
                    running.abort();
                }
                self.context.shared().let_go();
                Some(why)
            }
        }
    }

    /// Whether something other than the run's own steps holds the agent's waker: a timer, a channel, another library.
    ///
    /// Two references are the driver's own (`held` and `waker`), and each step that was polled with the waker holds
    /// one. A collection that polls its members with wakers of its own (`FuturesUnordered`) holds the agent's waker
    /// while it is awaited; it cannot be told from something outside and counts as such.
    fn outside(&self, held: &Arc<AgentWaker>, waker: &Waker) -> Outside {
        let steps = self.context.shared().slots.lock().wakers.values().filter(|kept| kept.will_wake(waker)).count();
        if Arc::strong_count(held) > steps + 2 { Outside::Something } else { Outside::Nothing }
    }

    fn start(&mut self, start: StartTask) {
        let session = self.session.clone();
        let work = self.context.shared().work_of(start.op);
        let task = self.context.shared().tasks.get(&start.kind);
        let context = TaskContext::inline(session.clone(), start.op, start.task, start.attempt);
        let (op, attempt, kind) = (start.op, start.attempt, start.kind.clone());
        let span = session.attempt_span(op);
        let attempted = async move {
            let run = async {
                match (work, task) {
                    (Some(Work::Local(work)), _) => ended(work.await),
                    (Some(Work::Again(tries)), _) => ended(tries().await),
                    (Some(Work::Task(input)), Some(task)) => task.run(context, input, false).await,
                    _ => failed(&Error::new(Code::UnknownKind, format!("this process has no task {kind:?} to start"))),
                }
            };
            let result = AssertUnwindSafe(run).catch_unwind().await;
            session.task_ended(op, attempt, result.unwrap_or_else(|panic| panicked(&*panic)));
        };
        let run = crate::spawn::task(attempted.instrument(span));
        self.running.retain(|_, running| !running.is_finished());
        self.running.insert(op, run.abort_handle());
    }
}

fn ended(result: crate::Result<crate::Payload>) -> AttemptResult {
    match result {
        Ok(output) => AttemptResult::Completed(output),
        Err(error) => failed(&error),
    }
}

fn ending(result: Result<crate::Result<crate::Payload>, Box<dyn Any + Send>>) -> Ending {
    match result {
        Ok(Ok(output)) => Ending::Completed(output),
        Ok(Err(error)) if error.code() == Code::Cancelled => Ending::Cancelled,
        Ok(Err(error)) if error.pauses() => Ending::Paused(WaitReason::Error, failure_of(&error)),
        // The engine's own error about a value that it could not read or write as the declared type.
        Ok(Err(error)) if error.code() == Code::NotSerializable && is_of_engine(&error) => {
            Ending::Unfit(failure_of(&error))
        }
        Ok(Err(error)) if is_of_stored_state(&error) => Ending::Unfit(failure_of(&error)),
        Ok(Err(error)) => Ending::Failed(failure_of(&error)),
        Err(panic) => Ending::Failed(Failure::new(Code::AgentFailed, "panic", words(&*panic))),
    }
}

/// An error of the engine keeps its code, and the code's name is its type. An error with a type of its own was made by
/// the agent's code and becomes `AgentFailed`.
fn failure_of(error: &Error) -> Failure {
    let code = error.code();
    match is_of_engine(error) {
        true => Failure::new(code, code.as_str(), error.message()),
        false => Failure::new(Code::AgentFailed, error.error_type(), error.message()),
    }
}

fn is_of_engine(error: &Error) -> bool {
    let ends_child = matches!(error.code(), Code::ChildFailed | Code::ChildCancelled);
    ends_child || error.error_type() == error.code().as_str() || error.fact("task_id").is_some()
}

pub(super) fn panicked(panic: &(dyn Any + Send)) -> AttemptResult {
    AttemptResult::Failed {
        failure: Failure::new(Code::TaskFailed, "panic", words(panic)),
        retryable: true,
        pause: None,
    }
}

pub(super) fn timed_out(limit: Duration) -> AttemptResult {
    let failure = Failure::new(
        Code::TaskTimeout,
        "TaskTimeout",
        format!("the attempt ran longer than {limit:?} and was stopped"),
    );
    AttemptResult::Failed { failure, retryable: true, pause: None }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "the code panicked".into())
}
