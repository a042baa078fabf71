//! Drives one Rust agent: polls its future, hands outcomes over one at a time, starts inline attempts.

use super::AnyAgent;
use crate::context::{Context, Work};
use crate::error::{Code, Error};
use crate::journal::{Ending, Outside, StartTask};
use crate::model::{AttemptResult, Failure};
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

/// Wakes the driver: rung by the session, and by whatever the agent's future waits for.
struct Bell(AtomicWaker);

impl Port for Bell {
    fn ready(&self, _: &Arc<Session>) {
        self.0.wake();
    }
}

/// What the agent's future is polled with, a fresh one for each poll: who holds it afterwards waits for something.
struct AgentWaker {
    bell: Arc<Bell>,
    woken: AtomicBool,
}

impl AgentWaker {
    fn new(bell: &Arc<Bell>) -> Arc<Self> {
        Arc::new(Self { bell: bell.clone(), woken: AtomicBool::new(false) })
    }

    /// Whether it was woken. Whoever was seen to have let it go has been seen to wake it.
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
        self.bell.0.wake();
    }
}

/// How often code that wakes itself is polled before it counts as waiting for something outside: a loop that yields must
/// not hold up what the run was told.
const SPINS: u32 = 1_000;

/// Turns of the runtime in which a wake-up that it has put off (`yield_now`) would come.
const TURNS: u32 = 2;

/// Runs until the activation is over.
pub(super) async fn drive(agent: Arc<dyn AnyAgent>, session: Arc<Session>, tasks: Arc<TaskRegistry>) {
    let bell = Arc::new(Bell(AtomicWaker::new()));
    session.connect(bell.clone());
    let context = Context::new(session.clone(), tasks);
    let mut driver = Driver { session: session.clone(), context: context.clone(), running: HashMap::new() };
    let mut future = Some(Box::pin(async move { AssertUnwindSafe(agent.run(&context)).catch_unwind().await }));
    let mut held = AgentWaker::new(&bell);
    let mut waker = Waker::from(held.clone());
    let (mut spins, mut turns) = (0, 0);
    let closed = std::future::poll_fn(move |cx| {
        bell.0.register(cx.waker());
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
            held = AgentWaker::new(&bell);
            waker = Waker::from(held.clone());
            match span.in_scope(|| running.as_mut().poll(&mut TaskPoll::from_waker(&waker))) {
                Poll::Pending if held.woken.load(Ordering::Relaxed) && spins < SPINS => {
                    // It goes on at once; the runtime has its turn first.
                    spins += 1;
                    return Poll::Pending;
                }
                Poll::Pending => {
                    let outside = driver.outside(&held, &waker);
                    if held.was_woken() {
                        // Since it was polled: who woke it has let the waker go, and was not counted.
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
                // The agent itself is polled anyway.
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
            // The poll that follows every effect settles again.
            HostEffect::Ask => None,
            HostEffect::Warn(what) => {
                tracing::warn!(execution = %self.session.execution_id(), "{what}");
                None
            }
            HostEffect::Close(why) => {
                for (_, running) in self.running.drain() {
                    running.abort();
                }
                Some(why)
            }
        }
    }

    /// Whether somebody beside the run's own steps keeps a waker of the agent: a timer, a channel, another library.
    /// Collections that poll their members by wakers of their own (`FuturesUnordered`) count while they are awaited.
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
        // The engine's own, of a value that it could not read or write as its type.
        Ok(Err(error)) if error.code() == Code::NotSerializable && is_of_engine(&error) => {
            Ending::Unfit(failure_of(&error))
        }
        Ok(Err(error)) => Ending::Failed(failure_of(&error)),
        Err(panic) => Ending::Failed(Failure::new(Code::AgentFailed, "panic", words(&*panic))),
    }
}

/// Errors of the engine keep their code and go by its name; one with a type of its own is the agent's.
fn failure_of(error: &Error) -> Failure {
    let code = error.code();
    match is_of_engine(error) {
        true => Failure::new(code, code.as_str(), error.message()),
        false => Failure::new(Code::AgentFailed, error.error_type(), error.message()),
    }
}

fn is_of_engine(error: &Error) -> bool {
    error.error_type() == error.code().as_str() || error.fact("task_id").is_some()
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
