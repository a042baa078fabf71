//! The limit of tasks of a run that have not ended.
//!
//! A task counts from its call until the code is handed an outcome at or after the place of the task's end. So whether
//! a call is refused depends only on what the code was told, and is the same on replay (rule 5). The store has the same
//! limit, but for all tasks of the run, those inside a `once` and those of earlier segments included.

use super::machine::Machine;
use crate::error::{Code, Error, Result};
use crate::model::Batch;
use std::sync::Arc;

/// The limit of open tasks. Their number is in the segment's state.
#[derive(Debug)]
pub(super) struct Open {
    /// The most there may be.
    most: usize,
    /// The latest place among the facts of an outcome that the code was told.
    told: u64,
}

impl Default for Open {
    fn default() -> Self {
        Self { most: Batch::MOST_OPEN, told: 0 }
    }
}

impl Open {
    /// A limit of so many.
    #[cfg(test)]
    pub(super) fn at_most(most: usize) -> Self {
        Self { most, ..Self::default() }
    }
}

impl Machine {
    /// Counts a task that the code has called.
    pub(super) fn count_open(&mut self, index: usize) {
        // Tasks inside a `once` do not count here: a replay after its end would not call them, and would count
        // otherwise.
        let counted = self.segment.ops[index].once.is_none();
        if let Some(task) = self.segment.ops[index].task_mut() {
            task.is_open = counted;
            self.segment.open += usize::from(counted);
        }
    }

    /// Notes that an outcome is handed over. Marks are left out, since their place is no fact and may differ on replay.
    /// So are ops inside a `once`, which a replay does not hand over again.
    pub(super) fn told_open(&mut self, index: usize, order: u64) {
        let op = &self.segment.ops[index];
        if op.once.is_none() && !op.label.kind.is_mark() {
            self.run.open.told = self.run.open.told.max(order);
        }
    }

    /// Settles an op: its outcome was handed over, or never will be. If it is an open task, it counts no more.
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
            let was_told = op.outcome.as_deref().is_some_and(|(order, _)| *order <= told);
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
