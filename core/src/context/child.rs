//! A run that an agent has started, as a future.

use super::ext::value_of;
use super::{Step, StepOf};
use crate::error::{Code, Error, Result};
use crate::id::ExecutionId;
use crate::journal::Outcome;
use crate::model::ChildEvent;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

/// A run of another agent that this one has started. Await it for its output, a `T`.
///
/// Errors of the await: `ChildFailed`, `ChildCancelled` where it was asked to stop, and `BudgetExceeded` where its budget had
/// no room for what it wanted to do, or less was left than it was to get.
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

/// What is heard next of a child, as a future.
///
/// Errors of the await: `SignalTimeout`, and why there is no child where it could not be started.
pub struct ChildNews(Step);

impl ChildNews {
    pub(super) fn new(step: Step) -> Self {
        Self(step)
    }
}

impl Future for ChildNews {
    type Output = Result<ChildEvent>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|outcome| match outcome? {
            Outcome::Event(event) => Ok(*event),
            other => Err(value_of(other).err().unwrap_or_else(|| {
                Error::new(Code::Internal, "a wait for news of a child ended with something else; please report it")
            })),
        })
    }
}
