//! Claims tasks of the queue and reports their ends.

use super::{Core, LEASE_TTL};
use crate::error::{Code, Kind};
use crate::id::{OrgId, TaskId};
use crate::model::{AttemptResult, ClaimedTask, TaskReport};
use crate::storage::ClaimRequest;
use crate::storage::stored::fetch;
use crate::tracer::Attempt;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A claimed attempt in the hands of the host. Clones speak for the same attempt.
#[derive(Clone)]
pub struct Ticket(Arc<Inner>);

struct Inner {
    core: Weak<Core>,
    org: OrgId,
    task: TaskId,
    attempt: u32,
    alive: AtomicBool,
    cancelled: AtomicBool,
    over: AtomicBool,
    on_cancel: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What it has streamed, where that may become its result.
    said: Mutex<Option<String>>,
    trace: Attempt,
}

impl Ticket {
    /// The task.
    pub fn task(&self) -> TaskId {
        self.0.task
    }

    /// The attempt's number.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// The span in which the attempt runs.
    pub fn span(&self) -> tracing::Span {
        self.0.trace.span()
    }

    /// A sign of life of the task itself.
    pub fn heartbeat(&self) {
        self.0.alive.store(true, Ordering::Relaxed);
    }

    /// How far the attempt is, from 0 to 1: kept with the task, written at most once a second; a sign of life too.
    pub fn progress(&self, fraction: f64, message: &str) {
        self.heartbeat();
        if let Some(core) = self.0.core.upgrade() {
            let report = crate::session::progress(fraction, message);
            super::progress::tell(&core, self.0.task, self.0.attempt, report);
        }
    }

    /// Keeps a token of a model call: its result, if it is cut short.
    pub fn say(&self, text: &str) {
        if let Some(said) = &mut *self.0.said.lock() {
            said.push_str(text);
        }
    }

    /// Whether the run wants it to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Calls back once when the attempt shall stop; at once if it shall already.
    pub fn on_cancel(&self, call: impl FnOnce() + Send + 'static) {
        *self.0.on_cancel.lock() = Some(Box::new(call));
        if self.is_cancelled() {
            self.cancel();
        }
    }

    /// Reports the end; retried until the store has it. Later ends are ignored. A model call that was told to stop ends
    /// with the text it has streamed.
    pub fn finish(&self, mut result: AttemptResult) {
        if self.0.over.swap(true, Ordering::AcqRel) {
            return;
        }
        if result == AttemptResult::Cancelled
            && let Some(said) = self.0.said.lock().take()
        {
            result = AttemptResult::said(&said);
        }
        let Some(core) = self.0.core.upgrade() else { return };
        self.0.trace.ended(core.storage.clock().now(), &result);
        let (ticket, runtime) = (self.clone(), core.runtime.clone());
        runtime.spawn(async move { ticket.report(core, result).await });
    }

    async fn report(&self, core: Arc<Core>, result: AttemptResult) {
        let report =
            TaskReport { org: self.0.org, task: self.0.task, attempt: self.0.attempt, worker: core.id, result };
        let mut pause = Duration::from_millis(20);
        loop {
            match core.storage.report_task(report.clone()).await {
                Err(error) if error.kind() == Kind::Unavailable => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                Err(error) if error.code() == Code::LeaseLost => {
                    tracing::debug!(task = %self.0.task, "a late result was refused");
                    break;
                }
                Err(error) => {
                    tracing::warn!(task = %self.0.task, %error, "a task's end could not be recorded");
                    break;
                }
                Ok(()) => break,
            }
        }
        core.tickets.lock().remove(&self.0.task);
        core.freed.notify_waiters();
    }

    pub(super) fn standing(&self) -> (TaskId, u32, bool) {
        (self.0.task, self.0.attempt, self.0.alive.swap(false, Ordering::Relaxed))
    }

    pub(super) fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        if let Some(call) = self.0.on_cancel.lock().take() {
            call();
        }
    }

    /// The worker ends before the task did: nothing is reported, the store gives the attempt to another worker.
    pub(super) fn stop(&self) {
        self.0.over.store(true, Ordering::Release);
        self.cancel();
    }
}

pub(super) async fn run(core: Arc<Core>) {
    let mut ready = core.storage.hints().tasks();
    while !core.is_closing() {
        let free = core.options.max_tasks.saturating_sub(core.tickets.lock().len());
        let kinds = core.host.task_kinds();
        let request = ClaimRequest {
            org: core.options.org,
            worker: core.id,
            queue: core.options.queue.clone(),
            kinds: kinds.clone(),
            limit: free,
            ttl: LEASE_TTL,
            only: core.options.only,
        };
        let claimed =
            if free == 0 || kinds.is_empty() { Ok(Vec::new()) } else { core.storage.claim_tasks(request).await };
        match claimed {
            Ok(tasks) if tasks.is_empty() => tokio::select! {
                () = ready.changed() => {}
                () = core.freed.notified(), if free == 0 => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = core.closed.notified() => return,
            },
            Ok(tasks) => {
                for task in tasks {
                    start(&core, task).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "tasks could not be claimed; trying again");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn start(core: &Arc<Core>, mut claimed: ClaimedTask) {
    let task = &mut claimed.task;
    let trace = Attempt::begin(core.options.tracer.clone(), task, core.storage.clock().now());
    let ticket = Ticket(Arc::new(Inner {
        core: Arc::downgrade(core),
        org: task.org,
        task: task.new.id,
        attempt: task.attempt,
        alive: AtomicBool::new(true),
        cancelled: AtomicBool::new(false),
        over: AtomicBool::new(false),
        on_cancel: Mutex::new(None),
        said: Mutex::new(task.new.options.interruptible.then(String::new)),
        trace,
    }));
    core.tickets.lock().insert(task.new.id, ticket.clone());
    match fetch(&core.storage, task.org, &task.new.input).await {
        Ok(input) => task.new.input = input,
        Err(error) => {
            let failure = crate::model::Failure::new(error.code(), error.code().as_str(), error.message());
            return ticket.finish(AttemptResult::Failed { failure, retryable: error.is_retryable() });
        }
    }
    core.host.start_task(claimed, ticket);
}
