//! All rows, and the indexes over them: which runs and tasks can be claimed, and which timers are due.
//!
//! The indexes are derived from the rows in one place, [`State::refresh`]. Every write to a run has to end with it: an
//! index that is not refreshed hides a run from claims.

use super::payloads::Payloads;
use super::rows::Run;
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{DefinitionId, EntryId, ExecutionId, OrgId, Slot, TaskId, WorkerId};
use crate::model::{Definition, KnownWorker, Machine, Placement, Schedule, Status, TaskStatus, runners};
use crate::storage::WorkerInfo;
use crate::streaming::{Change, Hints};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type RunKey = (OrgId, ExecutionId);

#[derive(Default)]
pub(super) struct State {
    pub runs: BTreeMap<RunKey, Run>,
    /// How many runs were ever started.
    pub born: u64,
    /// The runs that a run has started, by their number among all runs.
    pub offspring: BTreeMap<RunKey, BTreeMap<u64, ExecutionId>>,
    /// Runs by age.
    pub ages: BTreeSet<(OrgId, Timestamp, ExecutionId)>,
    pub entries: BTreeMap<(OrgId, EntryId), (ExecutionId, Slot)>,
    pub tasks: BTreeMap<(OrgId, TaskId), (ExecutionId, Slot)>,
    pub payloads: Payloads,
    pub workers: BTreeMap<(OrgId, WorkerId), WorkerRow>,
    /// Runs that can be claimed once their moment is reached.
    pub ready: BTreeSet<RunKey>,
    /// Tasks that can be claimed once they are visible.
    pub queued: BTreeSet<(RunKey, Slot)>,
    pub due: BTreeSet<(Timestamp, RunKey)>,
    /// The concurrency keys of RUNNING runs: they limit which others of the same key may be claimed.
    pub held_keys: BTreeSet<(OrgId, String, ExecutionId)>,
    /// Waiting runs that a timer inside a worker's process may wake. They have to be entered again when that worker
    /// dies.
    pub host_timed: BTreeSet<(WorkerId, RunKey)>,
    /// When the store last looked for work that no worker serves.
    pub looked_unserved: Option<Timestamp>,
    pub callers: super::directory::Callers,
    pub machines: Vec<Machine>,
    pub pairings: Vec<super::machines::Waiting>,
    pub enrolled: super::unfenced::Enrolled,
    pub definitions: BTreeMap<(OrgId, DefinitionId), Definition>,
    pub schedules: BTreeMap<(OrgId, String), Schedule>,
    pub limited: BTreeMap<(OrgId, String), super::queues::LimitedQueue>,
    pub news: News,
}

/// A worker as claims and heartbeats show it.
pub(super) struct WorkerRow {
    pub info: Option<WorkerInfo>,
    /// The last sign of life that was noted.
    pub seen_at: Timestamp,
    /// Until when it counts as alive.
    pub alive_until: Timestamp,
    /// The pairs of kind and queue that it asked for work of.
    pub serves: BTreeSet<(String, String)>,
}

impl WorkerRow {
    /// As the listing of workers shows it.
    pub(super) fn known(&self, id: WorkerId) -> KnownWorker {
        let (name, queues) = self.info.clone().map(|info| (info.name, info.queues)).unwrap_or_default();
        let serves = self.serves.iter().cloned().collect();
        KnownWorker { id, name, queues, serves, seen_at: self.seen_at, alive_until: self.alive_until }
    }
}

/// What the call in progress has to announce. It is announced after the call, so that whoever is told finds the new
/// rows.
#[derive(Default)]
pub(super) struct News {
    changed: BTreeMap<RunKey, Change>,
    pub agents: bool,
    tasks: bool,
    pub timers: bool,
}

impl News {
    pub(super) fn announce(self, hints: &Hints) {
        for change in self.changed.into_values() {
            hints.changed(change);
        }
        if self.agents {
            hints.agents_ready();
        }
        if self.tasks {
            hints.tasks_ready();
        }
        if self.timers {
            hints.timers_changed();
        }
    }
}

impl State {
    pub(super) fn run(&self, org: OrgId, id: ExecutionId) -> Result<&Run> {
        self.runs.get(&(org, id)).ok_or_else(|| not_found("run", id))
    }

    pub(super) fn run_mut(&mut self, org: OrgId, id: ExecutionId) -> Result<&mut Run> {
        self.runs.get_mut(&(org, id)).ok_or_else(|| not_found("run", id))
    }

    /// Whether the concurrency key of a run is at its limit: so many other runs of the key are RUNNING.
    pub(super) fn is_key_held(&self, run: &Run) -> bool {
        let Some(name) = &run.exec.new.concurrency_key else { return false };
        let org = run.exec.new.org;
        let all = (org, name.clone(), ExecutionId::default())..;
        let held = self.held_keys.range(all).take_while(|(of, key, _)| *of == org && key == name);
        let limit = runners(run.exec.new.concurrency_limit);
        held.filter(|(.., id)| *id != run.exec.new.id).take(limit).count() == limit
    }

    /// Adds a run to the rows and to all indexes.
    pub(super) fn add(&mut self, mut run: Run, now: Timestamp) {
        self.born += 1;
        run.born = self.born;
        let key = (run.exec.new.org, run.exec.new.id);
        self.ages.insert((key.0, run.exec.created_at, key.1));
        if let Some(parent) = run.exec.parent {
            self.offspring.entry((key.0, parent)).or_default().insert(run.born, key.1);
        }
        self.runs.insert(key, run);
        self.refresh(key, now);
    }

    /// Brings the indexes up to date after a write to a run, and notes whom the change concerns.
    pub(super) fn refresh(&mut self, key: RunKey, now: Timestamp) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        let ended = Some(run.exec.status.is_terminal());
        let change = Change { org: key.0, execution: key.1, high: run.high, ended, here: true };
        self.news.changed.entry(key).and_modify(|known| known.join(change)).or_insert(change);

        if run.is_claimable() {
            self.news.agents |= self.ready.insert(key) || run.visible_at <= now;
        } else {
            self.ready.remove(&key);
        }

        if let Some(name) = &run.exec.new.concurrency_key {
            let held = (key.0, name.clone(), key.1);
            if run.exec.status == Status::Running {
                self.held_keys.insert(held);
            } else {
                self.news.agents |= self.held_keys.remove(&held);
            }
        }

        let timed_by = run.parked.filter(|worker| run.last_held_by(*worker));
        if timed_by != run.timed_by {
            if let Some(old) = std::mem::replace(&mut run.timed_by, timed_by) {
                self.host_timed.remove(&(old, key));
            }
            self.host_timed.extend(timed_by.map(|worker| (worker, key)));
            self.news.timers = true;
        }

        let claimable = |slot: &Slot| {
            !run.exec.status.is_terminal()
                && run.tasks.get(slot).is_some_and(|row| {
                    row.task.status == TaskStatus::Pending && row.task.new.placement == Placement::Queue
                })
        };
        let queued: BTreeSet<_> = run.open.iter().filter(|slot| claimable(slot)).map(|slot| (key, *slot)).collect();
        let all = (key, Slot::default())..=(key, Slot { segment: u32::MAX, sequence: u32::MAX });
        let gone: Vec<_> = self.queued.range(all).filter(|entry| !queued.contains(entry)).copied().collect();
        for entry in gone {
            self.queued.remove(&entry);
        }
        self.news.tasks |= !queued.is_empty();
        self.queued.extend(queued);

        let due = run.next_due(now);
        if due != run.due {
            if let Some(old) = std::mem::replace(&mut run.due, due) {
                self.due.remove(&(old, key));
            }
            if let Some(due) = due {
                self.news.timers |= self.due.first().is_none_or(|(first, _)| due < *first);
                self.due.insert((due, key));
            }
        }
        self.settle_family(key, now);
    }
}

/// An error that names what does not exist.
pub(super) fn not_found(what: &str, id: impl std::fmt::Display) -> Error {
    let code = if what == "run" { Code::ExecutionNotFound } else { Code::NotFound };
    Error::new(code, format!("no {what} has the id {id}")).with("id", id)
}
