//! What a session reports to its tracer.

use super::{Closed, Session};
use crate::journal::{Call, Called, Handed, OpRef, StartTask};
use crate::tracer::{Activation, Named, Noted};
use tracing::Span;

/// A call as people read it.
pub(super) fn named(call: &Call) -> Named {
    match call {
        Call::Entry { role, .. } => Named::Instant(format!("entry {role}")),
        Call::Task { kind, .. } => Named::Step(format!("task {kind}")),
        Call::Signal { name, .. } => Named::Step(format!("signal {name}")),
        Call::Timer { duration } => Named::Step(format!("sleep {duration:?}")),
        Call::Attach { task } => Named::Step(format!("attach {task}")),
        Call::Usage { model, usage } => Named::Usage(model.clone(), usage.clone()),
        Call::Send(body) => Named::Step(format!("send {}", body.name())),
        Call::Child(call) => Named::Step(format!("child {}", call.kind)),
        Call::StepMark => Named::Step("step".to_owned()),
        Call::Flush => Named::Step("flush".to_owned()),
    }
}

/// What is noted of outcomes that are handed over. `segment` is the current one.
pub(super) fn handed(handed: &[Handed], segment: u32) -> impl Iterator<Item = Noted> {
    handed.iter().map(move |one| match one.op {
        OpRef::CHECKPOINT => Noted::Checkpoint(segment),
        OpRef(op) => Noted::Handed(op),
    })
}

/// What is noted of an attempt that is to be started.
pub(super) fn started(start: &StartTask) -> Noted {
    Noted::Started { op: start.op.0, task: start.task, kind: start.kind.clone(), attempt: start.attempt }
}

impl Session {
    /// The span in which the agent's code runs.
    pub fn span(&self) -> Span {
        self.trace.span()
    }

    /// The span of a running inline attempt.
    pub fn attempt_span(&self, op: OpRef) -> Span {
        self.trace.attempt_span(op.0)
    }

    pub(super) fn trace(&self) -> &Activation {
        &self.trace
    }

    pub(super) fn trace_call(&self, called: &Called, named: Named) {
        let id = || self.op_id(called.op).map(|id| id.to_string()).unwrap_or_default();
        self.trace.called(self.storage.clock().now(), called.op.0, id, named, called.recorded);
    }

    pub(super) fn tell(&self, noted: Vec<Noted>) {
        if noted.is_empty() {
            return;
        }
        let now = self.storage.clock().now();
        for one in noted {
            self.trace.tell(now, one);
        }
    }

    pub(super) fn trace_close(&self, why: &Closed) {
        if !self.trace.is_on() {
            return;
        }
        let now = self.storage.clock().now();
        match why {
            Closed::Finished(status) => self.trace.ended(now, *status),
            Closed::Evicted => self.trace.dropped(now, "put away"),
            Closed::Lost(error) => self.trace.dropped(now, &error.to_string()),
        }
    }
}
