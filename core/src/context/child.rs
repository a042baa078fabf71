//! A run that an agent has started, as a future.

use super::{Step, StepOf};
use crate::error::Result;
use crate::id::ExecutionId;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

/// A run of another agent that this one has started. Await it for its output, a `T`.
///
/// Errors of the await: `ChildFailed`, and `ChildCancelled` where it was asked to stop.
pub struct Child<T> {
    id: ExecutionId,
    step: StepOf<T>,
}

impl<T> Child<T> {
    pub(super) fn new(id: ExecutionId, step: Step) -> Self {
        Self { id, step: StepOf::new(step) }
    }

    /// The id of its run.
    pub fn id(&self) -> ExecutionId {
        self.id
    }
}

impl<T> From<&Child<T>> for ExecutionId {
    fn from(child: &Child<T>) -> Self {
        child.id
    }
}

impl<T: DeserializeOwned> Future for Child<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.step).poll(cx)
    }
}
