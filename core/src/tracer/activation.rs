//! The traces of one activation: turns what the session reports into records and spans.

use super::{Trace, Traced, Tracer};
use crate::clock::Timestamp;
use crate::id::{ExecutionId, TaskId};
use crate::model::{AttemptResult, Execution, Failure, Status, Usage};
use crate::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::Span;

/// A call, in words for people.
pub(crate) enum Named {
    /// A call with an outcome that the code may await. Its span stays open until then.
    Step(String),
    /// A call without such an outcome.
    Instant(String),
    /// A record of what a call of this model has used.
    Usage(String, Usage),
}

/// Something that a session notes while it holds its lock, and reports after it has released the lock.
pub(crate) enum Noted {
    /// The outcome of an op was handed over.
    Handed(u32),
    /// A checkpoint is durable; it starts this segment.
    Checkpoint(u32),
    /// An attempt is to be started.
    Started { op: u32, task: TaskId, kind: Arc<str>, attempt: u32 },
    /// The run waits.
    Parked,
}

/// Traces one activation of a run.
pub(crate) struct Activation {
    tracer: Tracer,
    execution: ExecutionId,
    agent: Arc<str>,
    key: Option<String>,
    traceparent: Option<String>,
    parent: Option<ExecutionId>,
    /// Whether some subscriber wants the spans.
    spanned: AtomicBool,
    /// Why the run fails, kept for the record of its end.
    failure: Mutex<Option<String>>,
    spans: Mutex<Spans>,
}

struct Spans {
    epoch: u64,
    segment: u32,
    activation: Span,
    current: Span,
    /// The spans of open ops and attempts, by the op's number in the machine. Empty when nobody wants spans.
    ops: HashMap<u32, Span>,
    attempts: HashMap<u32, Span>,
}

impl Activation {
    pub(crate) fn begin(
        tracer: Tracer,
        run: &Execution,
        epoch: u64,
        segment: u32,
        tail: usize,
        now: Timestamp,
    ) -> Self {
        let this = Self {
            tracer,
            execution: run.new.id,
            agent: run.new.kind.as_str().into(),
            key: run.new.key.clone(),
            traceparent: run.new.traceparent.clone(),
            parent: run.parent,
            spanned: AtomicBool::new(false),
            failure: Mutex::default(),
            spans: Mutex::new(Spans {
                epoch,
                segment,
                activation: Span::none(),
                current: Span::none(),
                ops: HashMap::new(),
                attempts: HashMap::new(),
            }),
        };
        this.open(epoch, tail);
        this.record(now, Traced::Activated { tail });
        this
    }

    /// Whether describing a call is worth it.
    pub(crate) fn is_on(&self) -> bool {
        self.tracer.is_on() || self.spanned.load(Ordering::Relaxed)
    }

    /// The span in which the agent's code runs.
    pub(crate) fn span(&self) -> Span {
        if !self.spanned.load(Ordering::Relaxed) {
            return Span::none();
        }
        self.spans.lock().current.clone()
    }

    /// The span of a running attempt.
    pub(crate) fn attempt_span(&self, op: u32) -> Span {
        if !self.spanned.load(Ordering::Relaxed) {
            return Span::none();
        }
        self.spans.lock().attempts.get(&op).cloned().unwrap_or_else(Span::none)
    }

    pub(crate) fn called(&self, now: Timestamp, op: u32, id: impl FnOnce() -> String, named: Named, replayed: bool) {
        let (label, waits) = match named {
            Named::Step(label) => (label, true),
            Named::Instant(label) => (label, false),
            Named::Usage(model, usage) => return self.record(now, Traced::Usage { model, usage, replayed }),
        };
        let id = id();
        {
            let mut spans = self.spans.lock();
            let span = tracing::debug_span!(parent: &spans.current, "flovyn.op", op = %id, label = %label, replayed);
            if waits && !span.is_disabled() {
                spans.ops.insert(op, span);
            }
        }
        self.record(now, Traced::Op { op: id, label, replayed });
    }

    pub(crate) fn tell(&self, now: Timestamp, noted: Noted) {
        match noted {
            Noted::Handed(op) => {
                self.spans.lock().ops.remove(&op);
            }
            Noted::Checkpoint(segment) => self.checkpointed(now, segment),
            Noted::Started { op, task, kind, attempt } => self.task_started(now, op, task, &kind, attempt),
            Noted::Parked => {
                self.close();
                self.record(now, Traced::Parked);
            }
        }
    }

    fn task_started(&self, now: Timestamp, op: u32, task: TaskId, kind: &Arc<str>, attempt: u32) {
        {
            let mut spans = self.spans.lock();
            let span = tracing::info_span!(parent: &spans.current, "flovyn.task", %task, %kind, attempt);
            if !span.is_disabled() {
                spans.attempts.insert(op, span);
            }
        }
        self.record(now, Traced::TaskStarted { task, kind: kind.clone(), attempt });
    }

    pub(crate) fn task_ended(
        &self,
        now: Timestamp,
        op: u32,
        task: (TaskId, &Arc<str>, u32),
        duration: Duration,
        result: &AttemptResult,
    ) {
        self.spans.lock().attempts.remove(&op);
        self.record(now, Traced::task_ended(task, duration, result));
    }

    fn checkpointed(&self, now: Timestamp, segment: u32) {
        {
            let mut spans = self.spans.lock();
            spans.segment = segment;
            spans.ops.clear();
            spans.current = tracing::info_span!(parent: &spans.activation, "flovyn.segment", segment, tail = 0);
        }
        self.record(now, Traced::Checkpoint);
    }

    pub(crate) fn resumed(&self, now: Timestamp, epoch: u64) {
        self.open(epoch, 0);
        self.record(now, Traced::Resumed);
    }

    /// Takes note of the failure with which the run is about to end.
    pub(crate) fn failing(&self, failure: &Failure) {
        *self.failure.lock() = Some(format!("{}: {}", failure.error_type, failure.message));
    }

    /// The run ended or paused.
    pub(crate) fn ended(&self, now: Timestamp, status: Status) {
        self.close();
        let error = self.failure.lock().take().filter(|_| matches!(status, Status::Failed | Status::Paused));
        self.record(now, Traced::Ended { status, error });
    }

    /// The copy was dropped before the run ended.
    pub(crate) fn dropped(&self, now: Timestamp, reason: &str) {
        self.close();
        self.record(now, Traced::Dropped { reason: reason.to_owned() });
    }

    fn open(&self, epoch: u64, tail: usize) {
        let (execution, agent) = (self.execution, &self.agent);
        let (key, traceparent) = (self.key.as_deref(), self.traceparent.as_deref());
        let mut spans = self.spans.lock();
        let segment = spans.segment;
        spans.epoch = epoch;
        let parent_run = self.parent.map(tracing::field::display);
        spans.activation = tracing::info_span!(parent: None, "flovyn.execution", %execution, %agent, key, epoch, traceparent, parent_run);
        spans.current = tracing::info_span!(parent: &spans.activation, "flovyn.segment", segment, tail);
        self.spanned.store(!spans.current.is_disabled(), Ordering::Relaxed);
    }

    fn close(&self) {
        let mut spans = self.spans.lock();
        spans.ops.clear();
        spans.attempts.clear();
        spans.current = Span::none();
        spans.activation = Span::none();
    }

    fn record(&self, at: Timestamp, what: Traced) {
        self.tracer.trace(|| {
            let spans = self.spans.lock();
            Trace {
                at,
                execution: self.execution,
                agent: Some(self.agent.clone()),
                epoch: spans.epoch,
                segment: spans.segment,
                what,
            }
        });
    }
}
