//! The traces of one attempt that was claimed from a queue.

use super::{Trace, Traced, Tracer};
use crate::clock::Timestamp;
use crate::id::{ExecutionId, TaskId};
use crate::model::{AttemptResult, Task};
use std::sync::Arc;
use tracing::Span;

/// Traces one claimed attempt.
pub(crate) struct Attempt {
    tracer: Tracer,
    execution: ExecutionId,
    segment: u32,
    task: TaskId,
    kind: Arc<str>,
    attempt: u32,
    started: Timestamp,
    span: Span,
}

impl Attempt {
    pub(crate) fn begin(tracer: Tracer, task: &Task, now: Timestamp) -> Self {
        let span = tracing::info_span!(
            parent: None, "flovyn.task", task = %task.new.id, kind = %task.new.kind, attempt = task.attempt,
            execution = %task.execution
        );
        let this = Self {
            tracer,
            execution: task.execution,
            segment: task.slot.segment,
            task: task.new.id,
            kind: task.new.kind.as_str().into(),
            attempt: task.attempt,
            started: now,
            span,
        };
        this.record(now, || Traced::TaskStarted { task: this.task, kind: this.kind.clone(), attempt: this.attempt });
        this
    }

    /// The span in which it runs. The span ends when this value and all clones of the span are dropped.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(crate) fn ended(&self, now: Timestamp, result: &AttemptResult) {
        let task = (self.task, &self.kind, self.attempt);
        self.record(now, || Traced::task_ended(task, now.since(self.started), result));
    }

    fn record(&self, at: Timestamp, what: impl FnOnce() -> Traced) {
        self.tracer.trace(|| Trace {
            at,
            execution: self.execution,
            agent: None,
            epoch: 0,
            segment: self.segment,
            what: what(),
        });
    }
}
