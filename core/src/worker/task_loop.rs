//! Claims tasks of the queue and reports their ends.

use super::Core;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId};
use crate::model::{AttemptResult, Chunk, ChunkKind, ClaimedTask, Entry, TaskReport};
use crate::storage::available::{troubled, until_available};
use crate::storage::stored::fetch;
use crate::sync::Mutex;
use crate::tracer::Attempt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A claimed attempt in the hands of the host. Clones speak for the same attempt.
#[derive(Clone)]
#[doc(hidden)]
pub struct Ticket(Arc<Inner>);

struct Inner {
    core: Weak<Core>,
    org: OrgId,
    task: TaskId,
    attempt: u32,
    execution: ExecutionId,
    slot: Slot,
    /// The durable event behind which its previews stand.
    event: u64,
    /// Previews made. Locked while one is published: they come in their order.
    made: Mutex<u64>,
    alive: AtomicBool,
    cancelled: AtomicBool,
    over: AtomicBool,
    left: AtomicBool,
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

    /// The task's run.
    pub(super) fn execution(&self) -> ExecutionId {
        self.0.execution
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
        let report = crate::session::progress(fraction, message);
        self.stream(ChunkKind::Progress, &report);
        if let Some(core) = self.0.core.upgrade() {
            super::progress::tell(&core, self.0.task, self.0.attempt, report);
        }
    }

    /// Streams a preview to the run's watchers: nothing once the attempt is over or shall stop. The tokens of a model call
    /// are kept as well: its result, if it is cut short.
    pub fn stream(&self, kind: ChunkKind, data: &str) {
        let this = &self.0;
        if this.over.load(Ordering::Acquire) || self.is_cancelled() {
            return;
        }
        if let (ChunkKind::Token, Some(said)) = (kind, &mut *this.said.lock()) {
            said.push_str(data);
        }
        let Some(core) = this.core.upgrade() else { return };
        let mut made = this.made.lock();
        *made += 1;
        let chunk = Chunk {
            execution: this.execution,
            segment: this.slot.segment,
            sequence: this.slot.sequence,
            epoch: Chunk::OF_A_QUEUE,
            attempt: this.attempt,
            seq: *made,
            kind,
            data: data.into(),
        };
        core.chunks.publish(this.event, this.org, chunk);
    }

    /// The durable entries from the root to one of the run's; contents in memory.
    pub async fn branch_to(&self, leaf: Option<EntryId>) -> Result<Vec<Entry>> {
        let Some(leaf) = leaf else { return Ok(Vec::new()) };
        let core = self.0.core.upgrade().ok_or_else(|| {
            Error::new(Code::StorageUnavailable, "the attempt's worker is closed, so the conversation cannot be read")
        })?;
        let (outage, is_wanted) = (core.storage.hints().outage(), || !self.is_cancelled());
        let read = || core.conversations.branch(self.0.execution, leaf);
        let mut entries = until_available(outage, &self.0.task, is_wanted, read).await?;
        for entry in &mut entries {
            let content = &entry.new.content;
            entry.new.content =
                until_available(outage, &self.0.task, is_wanted, || fetch(&core.storage, self.0.org, content)).await?;
        }
        Ok(entries)
    }

    /// Whether the run wants it to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Whether it was told to stop because its worker ends, not because nobody wants its result.
    pub fn is_left(&self) -> bool {
        self.0.left.load(Ordering::Acquire)
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
        let outage = core.storage.hints().outage();
        match until_available(outage, &self.0.task, || true, || core.storage.report_task(report.clone())).await {
            Err(error) if error.code() == Code::LeaseLost => {
                tracing::debug!(task = %self.0.task, "a late result was refused");
            }
            Err(error) => tracing::warn!(task = %self.0.task, %error, "a task's end could not be recorded"),
            Ok(()) => {}
        }
        {
            // Another attempt of it may have been claimed here meanwhile.
            let mut tickets = core.tickets.lock();
            if tickets.get(&self.0.task).is_some_and(|ticket| ticket.0.attempt == self.0.attempt) {
                tickets.remove(&self.0.task);
            }
        }
        core.freed_place();
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

    /// A later attempt was claimed here: this one counts no more, and is told to stop.
    fn overtaken(&self) {
        self.0.over.store(true, Ordering::Release);
        self.cancel();
    }

    /// The worker ends before the task did: nothing is reported, the store gives the attempt to another worker.
    pub(super) fn stop(&self) {
        self.0.over.store(true, Ordering::Release);
        self.0.left.store(true, Ordering::Release);
        self.cancel();
    }
}

pub(super) async fn run(core: Arc<Core>) {
    let mut ready = core.storage.hints().tasks();
    while !core.is_closing() {
        let kinds = core.host.task_kinds();
        let free = if kinds.is_empty() { 0 } else { core.reserve_tasks(usize::MAX) };
        let claimed = match free {
            0 => Ok(Vec::new()),
            _ => core.storage.claim_tasks(core.claim_of(kinds, free)).await,
        };
        match claimed {
            Ok(tasks) if tasks.is_empty() => {
                release(&core, free);
                tokio::select! {
                    () = ready.changed() => {}
                    () = core.freed_task.notified(), if free == 0 => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = core.closed.notified() => return,
                }
            }
            Ok(tasks) => take_on(&core, free, tasks),
            Err(error) => {
                release(&core, free);
                troubled(core.storage.hints().outage(), "tasks could not be claimed", &error);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Gives places back that were reserved.
fn release(core: &Core, reserved: usize) {
    {
        let _tickets = core.tickets.lock();
        core.reserved_tasks.fetch_sub(reserved, Ordering::Relaxed);
    }
    core.fill_soon();
}

/// Starts claimed tasks, for which `reserved` places were kept.
pub(super) fn take_on(core: &Arc<Core>, reserved: usize, tasks: Vec<ClaimedTask>) {
    let tickets: Vec<_> = tasks.iter().map(|claimed| admit(core, claimed)).collect();
    release(core, reserved);
    if tasks.len() < reserved {
        core.freed_place();
    }
    for (claimed, ticket) in tasks.into_iter().zip(tickets) {
        core.runtime.spawn(start(core.clone(), claimed, ticket));
    }
}

/// An attempt's ticket; it has a place from now on.
fn admit(core: &Arc<Core>, claimed: &ClaimedTask) -> Ticket {
    let task = &claimed.task;
    let trace = Attempt::begin(core.options.tracer.clone(), task, core.storage.clock().now());
    let ticket = Ticket(Arc::new(Inner {
        core: Arc::downgrade(core),
        org: task.org,
        task: task.new.id,
        attempt: task.attempt,
        execution: task.execution,
        slot: task.slot,
        event: claimed.event,
        made: Mutex::default(),
        alive: AtomicBool::new(true),
        cancelled: AtomicBool::new(false),
        over: AtomicBool::new(false),
        left: AtomicBool::new(false),
        on_cancel: Mutex::new(None),
        said: Mutex::new(task.new.options.interruptible.then(String::new)),
        trace,
    }));
    let earlier = core.tickets.lock().insert(task.new.id, ticket.clone());
    if let Some(earlier) = earlier {
        earlier.overtaken();
    }
    ticket
}

async fn start(core: Arc<Core>, mut claimed: ClaimedTask, ticket: Ticket) {
    let task = &mut claimed.task;
    match fetch(&core.storage, task.org, &task.new.input).await {
        Ok(input) => task.new.input = input,
        Err(error) => {
            let failure = crate::model::Failure::new(error.code(), error.code().as_str(), error.message());
            return ticket.finish(AttemptResult::Failed { failure, retryable: error.is_retryable(), pause: None });
        }
    }
    core.host.start_task(claimed, ticket);
}
