//! What happens to a run or a task when a time is reached: a lease, a time limit, a deadline or a grace ends. Also how
//! often housekeeping looks for rarer things.

use super::Statements;
use super::log::Log;
use super::run::{Ending, Run};
use super::task::TaskRow;
use crate::clock::Timestamp;
use crate::error::Code;
use crate::model::{Failure, Persistence, Status, TaskStatus};
use crate::storage::NO_WORKER_EVERY;
use crate::storage::limits::{not_begun, worker_lost};
use std::time::Duration;

/// How often housekeeping looks for unreferenced payloads.
pub(in crate::storage) const COLLECT: Duration = Duration::from_secs(3600);
/// The most rows of a kind that one pass of housekeeping handles.
pub(in crate::storage) const SHARE: i64 = 512;

impl<H> Run<H> {
    /// Does what is due by now, if anything is.
    pub(in crate::storage) fn meet_time<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        if self.status.is_terminal() {
            return Ok(());
        }
        let now = log.tx.now().0;
        let reached = |at: Option<i64>| at.is_some_and(|at| at <= now);
        if reached(self.ends_at) {
            let message = "the run did not end within its timeout".to_owned();
            self.epoch += 1;
            self.finish(log, Ending::Failed(&Failure::new(Code::Timeout, "Timeout", message)))?;
        } else if self.status == Status::Pending && reached(self.starts_by) {
            let lost = self.persistence == Persistence::Local && self.epoch > 0;
            self.finish(log, Ending::Failed(&if lost { worker_lost() } else { not_begun() }))?;
        } else if self.status == Status::Cancelling && reached(self.stop.map(|stop| stop.until)) {
            self.epoch += 1;
            self.finish(log, Ending::Cancelled(None, "grace"))?;
        } else if self.worker.is_some() && reached(self.lease_expires) {
            self.lose_holder(log)?;
        }
        Ok(())
    }
}

impl<P> TaskRow<P> {
    /// Does what is due by now, if anything is. The caller saves the run.
    pub(in crate::storage) fn meet_time<T: Statements<Place = P>>(
        &mut self,
        run: &mut Run<T::Home>,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        let now = log.tx.now();
        let passed = |limit: Option<Duration>, since: Option<Timestamp>| {
            limit.zip(since).filter(|(limit, since)| since.after(*limit) <= now).map(|(limit, _)| limit)
        };
        let options = &self.task.new.options;
        let deadline = passed(options.deadline, Some(self.task.created_at));
        let timeout = passed(options.timeout, self.task.started_at);
        let silence = passed(options.heartbeat_timeout, self.sign_at.map(Timestamp));
        let lost = self.lease_expires.is_some_and(|expires| expires <= now.0);
        match (self.task.status, deadline, timeout, silence) {
            (TaskStatus::Pending | TaskStatus::Running, Some(limit), ..) => self.time_out(run, log, "deadline", limit),
            (TaskStatus::Running, _, Some(limit), _) => self.time_out(run, log, "timeout", limit),
            (TaskStatus::Running, _, _, Some(limit)) => self.time_out(run, log, "heartbeat timeout", limit),
            (TaskStatus::Running, ..) if lost => self.lose_attempt(run, log),
            // The pause before a retry is over. Saving announces that the task can be claimed.
            _ => self.save(log.tx),
        }
    }
}

/// When passes of housekeeping last did what they do not do each time.
#[derive(Debug, Default)]
pub(in crate::storage) struct Pulse {
    collected: Option<Timestamp>,
    unserved: Option<Timestamp>,
}

impl Pulse {
    /// Whether it is time to look for work that no worker serves.
    pub(crate) fn looks_for_unserved(&mut self, now: Timestamp) -> bool {
        let due = self.unserved.is_none_or(|last| now.since(last) >= NO_WORKER_EVERY);
        if due {
            self.unserved = Some(now);
        }
        due
    }

    /// Whether it is time to look for payloads that nobody refers to. Never in the first hour of a process.
    pub(crate) fn collects(&mut self, now: Timestamp) -> bool {
        let due = self.collected.is_some_and(|last| now.since(last) >= COLLECT);
        if due || self.collected.is_none() {
            self.collected = Some(now);
        }
        due
    }
}
