//! Housekeeping: fires timers, and ends leases, attempts, deadlines and graces whose time is reached.

use super::rows::{Cause, FactOf, Run};
use super::state::State;
use crate::clock::Timestamp;
use crate::error::Code;
use crate::id::Slot;
use crate::journal::retry::{MAX_LOSSES, run_quarantined};
use crate::model::{EventKind, Failure, Persistence, Placement, Status, TaskStatus, WaitReason};
use crate::storage::limits::{not_begun, worker_lost};
use serde_json::json;

impl State {
    /// Does what is due, and returns when something is due next.
    pub(super) fn pass(&mut self, now: Timestamp) -> Option<Timestamp> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| *key);
        let mut due: Vec<_> = due.filter_map(|key| Some((self.runs.get(&key)?.born, key))).collect();
        // A parent comes before its children.
        due.sort_unstable();
        for keep in [Run::keep_run, Run::keep_ops] {
            for (_, key) in &due {
                if let Some(run) = self.runs.get_mut(key) {
                    keep(run, now);
                    self.refresh(*key, now);
                }
            }
        }
        self.wake_host_timed(now);
        self.tell_unserved(now);
        self.open_queues(now);
        let timed = self.host_timed.iter().filter_map(|(worker, run)| self.workers.get(&(run.0, *worker)));
        let due = self.due.first().map(|(at, _)| *at);
        timed.map(|worker| worker.alive_until).chain(due).chain(self.next_tick()).chain(self.next_opening()).min()
    }

    /// Makes runs claimable that wait for a timer inside a process that is gone.
    fn wake_host_timed(&mut self, now: Timestamp) {
        let lost = self.host_timed.iter().filter(|(worker, run)| !self.is_alive(run.0, *worker, now));
        let lost: Vec<_> = lost.map(|(_, key)| *key).collect();
        for key in lost {
            if let Some(run) = self.runs.get_mut(&key) {
                run.lose_host_timer(now);
                self.refresh(key, now);
            }
        }
    }

    /// Brings a run's due time up to date, if nothing else of it has changed.
    pub(super) fn reschedule(&mut self, key: super::state::RunKey, now: Timestamp) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        let due = run.next_due(now);
        if let Some(old) = std::mem::replace(&mut run.due, due) {
            self.due.remove(&(old, key));
        }
        self.due.extend(due.map(|due| (due, key)));
    }
}

impl Run {
    fn keep_ops(&mut self, now: Timestamp) {
        if !self.exec.status.is_terminal() {
            self.fire_timers(now);
        }
        for slot in self.open.clone() {
            self.keep_task(slot, now);
        }
    }

    fn keep_run(&mut self, now: Timestamp) {
        let exec = &self.exec;
        if exec.status.is_terminal() {
            return;
        }
        if let Some(timeout) = exec.new.limits.timeout.filter(|timeout| self.opened_at.after(*timeout) <= now) {
            let message = format!("the run did not end within its timeout of {timeout:?}");
            self.exec.epoch += 1;
            return self.fail(now, Failure::new(Code::Timeout, "Timeout", message));
        }
        if exec.status == Status::Pending && self.starts_by.is_some_and(|by| by <= now) {
            let lost = exec.new.persistence == Persistence::Local && exec.epoch > 0;
            return self.fail(now, if lost { worker_lost() } else { not_begun() });
        }
        if exec.status == Status::Cancelling && exec.cancel.is_some_and(|(_, grace_ends)| grace_ends <= now) {
            self.exec.epoch += 1;
            return self.cancelled(now, None, "grace");
        }
        if exec.worker.is_some() && exec.lease_expires.is_some_and(|expires| expires <= now) {
            self.lose_holder(now);
        }
    }

    fn lose_holder(&mut self, now: Timestamp) {
        self.clear_holder();
        self.exec.losses += 1;
        let losses = self.exec.losses;
        let running = self.exec.status == Status::Running;
        if running {
            self.await_machine(now);
        }
        self.emit(now, EventKind::LeaseLost, None, json!({ "epoch": self.exec.epoch, "losses": losses }));
        if running && losses >= MAX_LOSSES {
            self.pause(now, WaitReason::Quarantined, Some(run_quarantined(losses)));
        } else if running && self.has_open(TaskStatus::Quarantined) {
            self.quarantine(now);
        }
    }

    fn fire_timers(&mut self, now: Timestamp) {
        let mut due: Vec<_> = self.timers.iter().filter(|(_, at)| **at <= now).map(|(slot, at)| (*at, *slot)).collect();
        due.sort_unstable();
        for (_, slot) in due {
            self.timers.remove(&slot);
            let number = self.emit(now, EventKind::Timer, Some(slot), json!({}));
            self.fact(number, now, FactOf::Timer(slot));
            self.wake(now, Cause::Timer);
        }
    }

    fn keep_task(&mut self, slot: Slot, now: Timestamp) {
        let Some(row) = self.tasks.get(&slot) else { return };
        let options = &row.task.new.options;
        let passed = |limit: Option<std::time::Duration>, since: Option<Timestamp>| {
            limit.zip(since).filter(|(limit, since)| since.after(*limit) <= now).map(|(limit, _)| limit)
        };
        let deadline = passed(options.deadline, Some(row.task.created_at));
        let timeout = passed(options.timeout, row.task.started_at);
        let silence = passed(options.heartbeat_timeout, Some(row.sign_at));
        match row.task.status {
            TaskStatus::Pending => {
                if let Some(limit) = deadline {
                    self.time_out(slot, "deadline", limit, false, now);
                }
            }
            // An inline attempt has no lease of its own. The session that runs it watches its limits.
            TaskStatus::Running if row.lease_expires.is_some() => {
                if let Some(limit) = deadline {
                    self.time_out(slot, "deadline", limit, false, now);
                } else if let Some(limit) = timeout {
                    self.time_out(slot, "timeout", limit, true, now);
                } else if let Some(limit) = silence {
                    self.time_out(slot, "heartbeat timeout", limit, true, now);
                } else if row.lease_expires.is_some_and(|expires| expires <= now) {
                    self.lose_attempt(slot, now);
                }
            }
            _ => {}
        }
    }

    /// The earliest time at which something becomes due.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let exec = &self.exec;
        let mut due: Vec<Timestamp> = Vec::new();
        if !exec.status.is_terminal() {
            due.extend(self.timers.values());
            due.extend(exec.lease_expires);
            due.extend(exec.cancel.filter(|_| exec.status == Status::Cancelling).map(|(_, grace_ends)| grace_ends));
            due.extend(exec.new.limits.timeout.map(|timeout| self.opened_at.after(timeout)));
            due.extend(self.starts_by.filter(|_| exec.status == Status::Pending));
            due.extend(Some(self.visible_at).filter(|at| exec.status == Status::Pending && *at > now));
        }
        for row in self.open.iter().filter_map(|slot| self.tasks.get(slot)) {
            let options = &row.task.new.options;
            let deadline = options.deadline.map(|limit| row.task.created_at.after(limit));
            if row.task.status == TaskStatus::Pending && row.task.new.placement == Placement::Queue {
                due.extend(deadline);
                due.extend(Some(row.task.visible_at).filter(|at| *at > now));
            }
            if row.task.status == TaskStatus::Running && row.lease_expires.is_some() {
                due.extend(deadline);
                due.extend(row.lease_expires);
                due.extend(options.timeout.zip(row.task.started_at).map(|(limit, since)| since.after(limit)));
                due.extend(options.heartbeat_timeout.map(|limit| row.sign_at.after(limit)));
            }
        }
        due.into_iter().min()
    }
}
