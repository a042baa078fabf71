//! The calls for callers without leases.

use super::MemoryStorage;
use super::state::State;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, TaskId, WorkerId};
use crate::model::{Created, NewExecution, Signal, Task, TaskStatus};
use crate::storage::Unfenced;
use crate::storage::unfenced::{REMEMBERED, Serves, SignOf, Work};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What workers have said that they can run, and when each last gave a sign of life.
pub(super) type Enrolled = BTreeMap<(OrgId, WorkerId), (Serves, Timestamp)>;

#[async_trait]
impl Unfenced for MemoryStorage {
    async fn enroll(&self, org: OrgId, worker: WorkerId, serves: Serves) -> Result<()> {
        serves.check()?;
        self.call(|state, now| {
            state.enrolled.retain(|_, (_, seen)| now.since(*seen) <= REMEMBERED);
            state.enrolled.insert((org, worker), (serves, now));
        });
        Ok(())
    }

    async fn enrolled(&self, org: OrgId, worker: WorkerId) -> Result<Option<Serves>> {
        Ok(self.call(|state, _| state.enrolled.get(&(org, worker)).map(|(serves, _)| serves.clone())))
    }

    async fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work) -> Result<Vec<String>> {
        Ok(self.call(|state, now| state.waiting_kinds(org, queue, of, now)))
    }

    async fn keep_leases(&self, org: OrgId, worker: WorkerId, ttl: Duration, runs: SignOf) -> Result<()> {
        self.call(|state, now| state.keep_leases(org, worker, ttl, &runs, now));
        Ok(())
    }

    async fn open_task(&self, org: OrgId, task: TaskId) -> Result<Option<Task>> {
        Ok(self.call(|state, _| {
            let (execution, _) = state.task_place(org, task).ok()?;
            state.task(org, execution, task).ok().filter(|task| !task.status.is_terminal())
        }))
    }

    async fn cancel_task(&self, org: OrgId, execution: ExecutionId, task: TaskId) -> Result<(Task, bool)> {
        self.call(|state, now| {
            let there = state.task(org, execution, task)?;
            if there.status.is_terminal() {
                return Ok((there, false));
            }
            state.run_mut(org, execution)?.cancel_task(there.slot, now);
            state.refresh((org, execution), now);
            Ok((state.task(org, execution, task)?, true))
        })
    }

    async fn mailbox(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<Signal>> {
        self.call(|state, _| {
            let signals = state.run(org, execution)?.signals.values();
            Ok(signals.filter(|signal| signal.consumed_by.is_none()).cloned().collect())
        })
    }

    async fn spawn(&self, parent: ExecutionId, new: NewExecution) -> Result<Created> {
        new.check()?;
        self.call(|state, now| state.create_below(new, Some(parent), now))
    }
}

impl State {
    fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work, now: Timestamp) -> Vec<String> {
        let kinds: BTreeSet<&String> = match of {
            Work::Agents => {
                let runs = self.ready.iter().filter(|key| key.0 == org).filter_map(|key| self.runs.get(key));
                let ready = runs.filter(|run| run.exec.new.queue == queue && run.visible_at <= now);
                ready.map(|run| &run.exec.new.kind).collect()
            }
            Work::Tasks => {
                let queued = self.queued.iter().filter(|(key, _)| key.0 == org);
                let tasks = queued.filter_map(|(key, slot)| Some(&self.runs.get(key)?.tasks.get(slot)?.task));
                let visible = tasks.filter(|task| task.new.queue == queue && task.visible_at <= now);
                visible.map(|task| &task.new.kind).collect()
            }
        };
        kinds.into_iter().cloned().collect()
    }

    fn keep_leases(&mut self, org: OrgId, worker: WorkerId, ttl: Duration, runs: &SignOf, now: Timestamp) {
        let expires = Some(now.after(ttl));
        if let Some((_, seen)) = self.enrolled.get_mut(&(org, worker)) {
            *seen = now;
        }
        if let Some(row) = self.workers.get_mut(&(org, worker)) {
            row.alive_until = row.alive_until.max(now.after(ttl));
            row.seen_at = now;
        }
        for key in self.keys_of(org) {
            let Some(run) = self.runs.get_mut(&key) else { continue };
            if run.exec.worker == Some(worker) && runs.is_of(key.1) {
                run.exec.lease_expires = run.exec.lease_expires.max(expires);
            }
            let held = run.tasks.values_mut().filter(|row| {
                let running = row.task.status == TaskStatus::Running && row.lease_expires.is_some();
                running && row.task.worker == Some(worker)
            });
            for row in held {
                row.lease_expires = row.lease_expires.max(expires);
                row.sign_at = now;
            }
            self.refresh(key, now);
        }
    }
}
