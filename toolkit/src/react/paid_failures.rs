//! Failures of model calls that cost: how many of each kind there may be before a call is given up.
//!
//! Each kind counts by itself. An answer that nobody can read is the first of its kind also where the provider was
//! overloaded or broke off before.

use crate::message::ErrorKind;
use flovyn_core::id::TaskId;
use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How many calls may break off in the middle of their answers. Such a call is paid in part.
const BROKEN_ANSWERS: u32 = 5;
/// How many answers may be ones that nobody can read. Such a call is paid like any other.
const UNREADABLE_ANSWERS: u32 = 2;
/// How many tasks are remembered. A task that is cancelled between two attempts is not told of here, so there may be some
/// that are over.
const MOST_TASKS: usize = 4_096;

/// The failures of one call so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PaidFailures {
    broken: u32,
    unreadable: u32,
}

impl PaidFailures {
    /// Counts a failure. Returns how many more of its kind there may be; none if it costs nothing.
    pub(super) fn count(&mut self, kind: ErrorKind) -> Option<u32> {
        let (failed, most) = match kind {
            ErrorKind::Protocol => (&mut self.unreadable, UNREADABLE_ANSWERS),
            ErrorKind::Interrupted => (&mut self.broken, BROKEN_ANSWERS),
            _ => return None,
        };
        *failed += 1;
        Some(most.saturating_sub(*failed))
    }
}

/// The failures of the calls that the engine retries, by their tasks. They are those of this process: an attempt is told its
/// number and not what became of those before it. Where a process dies, the count begins anew in the next one, which makes
/// a few more calls at most.
#[derive(Clone, Default)]
pub(super) struct FailuresByTask(Arc<Mutex<HashMap<TaskId, PaidFailures>>>);

impl FailuresByTask {
    /// Counts a failure. Returns whether there may be no more of its kind.
    pub(super) fn is_last(&self, task: TaskId, kind: ErrorKind) -> bool {
        let mut tasks = self.0.lock();
        if tasks.len() >= MOST_TASKS && !tasks.contains_key(&task) {
            tasks.clear();
        }
        tasks.entry(task).or_default().count(kind) == Some(0)
    }

    /// Forgets a task that has ended.
    pub(super) fn forget(&self, task: TaskId) {
        self.0.lock().remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_counts_by_itself_and_each_task_too() {
        let failures = FailuresByTask::default();
        let [one, other] = [1, 2].map(|number| TaskId(uuid::Uuid::from_u128(number)));
        for _ in 0..50 {
            assert!(!failures.is_last(one, ErrorKind::Unavailable), "what costs nothing is not counted");
        }
        let broken: Vec<_> = (0..5).map(|_| failures.is_last(one, ErrorKind::Interrupted)).collect();
        assert_eq!(broken, [false, false, false, false, true]);
        assert!(!failures.is_last(one, ErrorKind::Protocol) && !failures.is_last(other, ErrorKind::Protocol));
        failures.forget(other);
        assert!(failures.is_last(one, ErrorKind::Protocol) && !failures.is_last(other, ErrorKind::Protocol));
    }

    #[test]
    fn memory_is_bounded() {
        let failures = FailuresByTask::default();
        for number in 0..MOST_TASKS as u128 * 2 {
            failures.is_last(TaskId(uuid::Uuid::from_u128(number)), ErrorKind::Protocol);
        }
        assert!(failures.0.lock().len() <= MOST_TASKS);
    }
}
