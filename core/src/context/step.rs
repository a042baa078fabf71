//! The future of one op. Dropping it before its end tells the session that nobody waits for the op any more (rule 13).

use super::Shared;
use crate::error::{Code, Error, Result};
use crate::id::{OpId, TaskId};
use crate::journal::{OpRef, Outcome};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

/// One op of the journal as a future. It works with `join_all`, `select` and `tokio::select!`.
pub struct Step {
    shared: Arc<Shared>,
    op: OpRef,
    task: Option<TaskId>,
    registered: bool,
    done: bool,
}

impl Step {
    pub(super) fn new(shared: Arc<Shared>, op: OpRef) -> Self {
        Self { shared, op, task: None, registered: false, done: false }
    }

    pub(super) fn checkpoint(shared: Arc<Shared>) -> Self {
        Self { shared, op: OpRef::CHECKPOINT, task: None, registered: true, done: false }
    }

    pub(super) fn op(&self) -> OpRef {
        self.op
    }

    pub(super) fn with_task(mut self, task: Option<TaskId>) -> Self {
        self.task = task;
        self
    }

    /// The task's id, for steps that are tasks: keep it in the state to [`attach`](super::AgentContext::attach) later.
    pub fn task(&self) -> Option<TaskId> {
        self.task
    }

    /// The op's name in the journal.
    pub fn op_id(&self) -> Option<OpId> {
        self.shared.session.op_id(self.op)
    }
}

impl Future for Step {
    type Output = Result<Outcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if self.done {
            return Poll::Ready(Err(polled_again()));
        }
        let handed = {
            let mut slots = self.shared.slots.lock();
            let handed = slots.outcomes.remove(&self.op);
            if handed.is_none() {
                slots.wakers.insert(self.op, cx.waker().clone());
            }
            handed
        };
        if let Some(outcome) = handed {
            self.done = true;
            return Poll::Ready(match outcome {
                Outcome::Cancelled => Err(Error::new(Code::Cancelled, "the run was asked to stop")),
                outcome => Ok(outcome),
            });
        }
        // After the session's end nobody polls the agent's own future again; a branch that another task polls is told.
        let open = match self.registered {
            true if self.shared.is_polled_here() => Ok(()),
            true => self.shared.session.still_open(),
            false => self.shared.session.await_op(self.op),
        };
        if let Err(error) = open {
            self.shared.slots.lock().wakers.remove(&self.op);
            self.done = true;
            return Poll::Ready(Err(error));
        }
        if !std::mem::replace(&mut self.registered, true) {
            self.shared.ring_from_elsewhere();
        }
        Poll::Pending
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.done {
            self.shared.slots.lock().wakers.remove(&self.op);
        }
        if self.registered && !self.done && self.op != OpRef::CHECKPOINT {
            self.shared.slots.lock().outcomes.remove(&self.op);
            self.shared.session.abandon(self.op);
            self.shared.ring_from_elsewhere();
        }
    }
}

pub(super) fn polled_again() -> Error {
    Error::new(Code::InvalidArgument, "a step was polled again after its end")
}
