//! Resuming a run after an error: what the agent's code has not acted upon is tried again in place (see
//! [`Unheard`](crate::journal::retry::Unheard)).

use super::Statements;
use super::log::Log;
use super::run::Run;
use super::segment::own;
use super::tail::Tail;
use crate::journal::retry::{after_error, unheard};
use crate::model::{StartLimits, Status, TaskStatus};
use crate::storage::allowance::Allowance;
use std::time::Duration;

impl<H> Run<H> {
    /// Opens a failed run again. The caller writes the event that it goes on.
    pub(in crate::storage) fn reopen(&mut self, limits: &StartLimits, now: i64) {
        self.status = Status::Pending;
        self.last_worker = None;
        // Its timeouts start anew.
        let after = |limit: Duration| now.saturating_add(super::values::micros(limit));
        (self.ends_at, self.starts_by) = (limits.timeout.map(after), limits.start_timeout.map(after));
    }

    /// Opens the tasks again that failed before the error or were cancelled by it, arms the timers that it disarmed,
    /// takes back the awaits that were given up while the error ended the code, and hears of children that ended
    /// meanwhile. The run must be open.
    pub(in crate::storage) fn retry_unheard<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        let tail = own(log.tx, self, self.segment, &mut Tail::default())?;
        let unheard = unheard(&tail.iter().map(|op| &op.op).collect::<Vec<_>>());
        for slot in unheard.undone {
            log.tx.undo(self, slot)?;
        }
        for slot in unheard.timers {
            log.tx.rearm(self, slot)?;
        }
        for mut row in log.tx.tasks_at(self, &unheard.tasks, &mut Allowance::default())? {
            let Some(verdict) = after_error(&row.task) else { continue };
            let task = &mut row.task;
            (task.status, task.ended_at, task.output) = (TaskStatus::Running, None, None);
            (task.failed_attempts, task.losses) = (0, 0);
            (row.ended_number, row.stop) = (None, false);
            row.carry_out(self, log, verdict, None)?;
            row.save(log.tx)?;
        }
        self.meet_children(log, &tail)?;
        log.tx.due(log.tx.now().0);
        Ok(())
    }
}
