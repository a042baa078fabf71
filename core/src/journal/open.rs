//! Tasks of a run that have not ended, and how many there may be.
//!
//! A task counts from its call to the outcome that is handed over after its end was stored: what a call is answered depends on
//! what the code has been told, so it is the same on replay (rule 5). The store has the same limit for all tasks of a run,
//! those of a `once` and of earlier segments included.

use super::machine::Machine;
use crate::error::{Code, Error, Result};
use crate::model::Batch;
use std::sync::Arc;

/// The limit of open tasks. How many there are is part of the segment.
#[derive(Debug)]
pub(super) struct Open {
    /// The most there may be.
    most: usize,
    /// The place of the latest fact that the code was told.
    told: u64,
}

impl Default for Open {
    fn default() -> Self {
        Self { most: Batch::MOST_OPEN, told: 0 }
    }
}

impl Open {
    /// None of so many there may be.
    #[cfg(test)]
    pub fn at_most(most: usize) -> Self {
        Self { most, ..Self::default() }
    }
}

impl Machine {
    /// The code has called a task.
    pub(super) fn count_open(&mut self, index: usize) {
        // What a `once` does is not called again after its end.
        let counted = self.segment.ops[index].once.is_none();
        if let Some(task) = self.segment.ops[index].task_mut() {
            task.is_open = counted;
            self.segment.open += usize::from(counted);
        }
    }

    /// An outcome is handed over. What replay cannot tell the place of does not count: that an op is durable is no fact, and
    /// what a `once` was told it is not told again.
    pub(super) fn told_open(&mut self, index: usize, order: u64) {
        let op = &self.segment.ops[index];
        if op.once.is_none() && !op.label.kind.is_mark() {
            self.run.open.told = self.run.open.told.max(order);
        }
    }

    /// The op's outcome was handed over, or never will be.
    pub(super) fn settle_op(&mut self, index: usize) {
        let op = &mut self.segment.ops[index];
        op.settle();
        if op.task_mut().is_some_and(|task| std::mem::take(&mut task.is_open)) {
            self.segment.open -= 1;
        }
    }

    /// Whether there is room for another open task.
    ///
    /// Errors: `LimitReached` for a task of a run that has as many open ones as it may.
    pub(super) fn check_open_tasks(&mut self, kind: &str, once: Option<&Arc<str>>) -> Result<()> {
        if self.segment.open < self.run.open.most || once.is_some() {
            return Ok(());
        }
        let told = self.run.open.told;
        for op in &mut self.segment.ops {
            let was_told = op.outcome.as_ref().is_some_and(|(order, _)| *order <= told);
            if was_told && op.task_mut().is_some_and(|task| std::mem::take(&mut task.is_open)) {
                self.segment.open -= 1;
            }
        }
        let most = self.run.open.most;
        if self.segment.open < most {
            return Ok(());
        }
        let message = format!(
            "the task {kind} was not scheduled: the run has {most} tasks that have not ended, and may have no more; await some \
             of them first, or let a semaphore start a few at a time"
        );
        Err(Error::new(Code::LimitReached, message).with("limit", most))
    }
}
