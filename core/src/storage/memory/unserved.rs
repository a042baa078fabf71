//! Work whose kind no live worker serves. Callers can ask for it, and a run that waits too long gets one event for each
//! wait.

use super::rows::Run;
use super::state::State;
use crate::clock::Timestamp;
use crate::id::{OrgId, Slot};
use crate::model::{EventKind, Placement, QueueLoad, Status, Task};
use crate::storage::{NO_WORKER_AFTER, NO_WORKER_EVERY};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Org, kind and queue.
type Kind = (OrgId, String, String);

impl State {
    /// How much work of each kind each queue has.
    pub(super) fn queues(&self, org: OrgId, now: Timestamp) -> Vec<QueueLoad> {
        let served = self.served(now);
        let polled = served.iter().filter(|kind| kind.0 == org);
        let mut loads: BTreeMap<Kind, (u64, u64)> = polled.map(|kind| (kind.clone(), (0, 0))).collect();
        let runs = self.ready.iter().filter(|key| key.0 == org).filter_map(|key| self.runs.get(key));
        for run in runs.filter(|run| run.visible_at <= now) {
            loads.entry(run.kind()).or_default().0 += 1;
        }
        let of_task = |task: &Task| (org, task.new.kind.clone(), task.new.queue.clone());
        let queued = self.queued.iter().filter(|(key, _)| key.0 == org);
        let tasks = queued.filter_map(|(key, slot)| self.runs.get(key)?.tasks.get(slot));
        for task in tasks.map(|row| &row.task).filter(|task| task.visible_at <= now) {
            loads.entry(of_task(task)).or_default().0 += 1;
        }
        for run in self.keys_of(org).iter().filter_map(|key| self.runs.get(key)) {
            if run.exec.worker.is_some() {
                loads.entry(run.kind()).or_default().1 += 1;
            }
            let held = run.tasks.values().filter(|row| row.lease_expires.is_some());
            for row in held.filter(|row| row.task.new.placement == Placement::Queue) {
                loads.entry(of_task(&row.task)).or_default().1 += 1;
            }
        }
        let load = |(kind, (queued, running)): (Kind, (u64, u64))| {
            let served = served.contains(&kind);
            QueueLoad { kind: kind.1, queue: kind.2, queued, running, served }
        };
        loads.into_iter().map(load).collect()
    }

    fn served(&self, now: Timestamp) -> BTreeSet<Kind> {
        let alive = self.workers.iter().filter(|(_, worker)| worker.alive_until > now);
        let served = alive.flat_map(|((org, _), worker)| worker.serves.iter().map(|kind| (*org, kind)));
        served.map(|(org, (kind, queue))| (org, kind.clone(), queue.clone())).collect()
    }

    /// Writes an event for work that has waited too long, once for each wait.
    pub(super) fn tell_unserved(&mut self, now: Timestamp) {
        if self.looked_unserved.is_some_and(|last| now.since(last) < NO_WORKER_EVERY) {
            return;
        }
        self.looked_unserved = Some(now);
        let served = self.served(now);
        let waits = |run: &&Run| !served.contains(&run.kind()) && run.has_waited(now);
        let runs: Vec<_> =
            self.ready.iter().filter(|key| self.runs.get(*key).is_some_and(|run| waits(&run))).copied().collect();
        for key in runs {
            if let Some(run) = self.runs.get_mut(&key) {
                run.tell_no_worker(now);
                self.refresh(key, now);
            }
        }
        let queued: Vec<_> = self.queued.iter().copied().collect();
        for (key, slot) in queued {
            let Some(run) = self.runs.get_mut(&key) else { continue };
            let Some(row) = run.tasks.get(&slot) else { continue };
            let new = &row.task.new;
            let waits = row.no_worker != Some(row.task.visible_at)
                && row.task.visible_at.after(NO_WORKER_AFTER) <= now
                && !served.contains(&(key.0, new.kind.clone(), new.queue.clone()));
            if waits {
                run.tell_no_worker_for(slot, now);
                self.refresh(key, now);
            }
        }
    }
}

impl Run {
    fn kind(&self) -> Kind {
        (self.exec.new.org, self.exec.new.kind.clone(), self.exec.new.queue.clone())
    }

    /// Whether it has waited too long for a worker and has no event for this wait.
    fn has_waited(&self, now: Timestamp) -> bool {
        use EventKind::{Continued, Created, Forked, LeaseLost, Woken};
        let began =
            |event: &&crate::model::Event| matches!(event.kind, Created | Woken | LeaseLost | Forked | Continued);
        let since = self.events.iter().rev().find(began).map_or(self.exec.created_at, |event| event.at);
        self.exec.status == Status::Pending
            && self.no_worker != Some(self.exec.epoch)
            && since.max(self.visible_at).after(NO_WORKER_AFTER) <= now
    }

    fn tell_no_worker(&mut self, now: Timestamp) {
        self.no_worker = Some(self.exec.epoch);
        let data = json!({ "kind": self.exec.new.kind, "queue": self.exec.new.queue });
        self.emit(now, EventKind::NoWorker, None, data);
    }

    fn tell_no_worker_for(&mut self, slot: Slot, now: Timestamp) {
        let Some(row) = self.tasks.get_mut(&slot) else { return };
        row.no_worker = Some(row.task.visible_at);
        let (queue, born_inline) = (row.task.new.queue.clone(), row.born_inline);
        self.emit_task(slot, EventKind::NoWorker, json!({ "queue": queue }), now);
        // A task that was scheduled inline and is on a queue now. Its kind is served by workers that run the agent, so
        // the run is woken: whoever claims it can run the task too.
        let awaited = self.exec.wait.as_ref().is_some_and(|wait| wait.tasks);
        if born_inline && awaited && self.exec.status == Status::Waiting {
            self.exec.wait = None;
            self.exec.status = Status::Pending;
            self.emit(now, EventKind::Woken, None, json!({ "reason": "no_worker" }));
        }
    }
}
