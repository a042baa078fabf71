//! Workers and the runs they hold: registration, claims, heartbeats, and runs that are given back.

use super::rows::Run;
use super::state::{RunKey, State, WorkerRow};
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{Claim, EventKind, Lease, Status, TaskStatus};
use crate::storage::{ClaimRequest, Heartbeat, HeartbeatAnswer, WorkerInfo, fair_claims};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a worker counts as alive after it has registered.
const REGISTERED_TTL: Duration = Duration::from_secs(30);

impl State {
    pub(super) fn register_worker(&mut self, info: WorkerInfo, now: Timestamp) {
        let row = self.worker(info.org, info.id);
        row.info = Some(info);
        row.seen_at = now;
        row.alive_until = row.alive_until.max(now.after(REGISTERED_TTL));
    }

    fn worker(&mut self, org: OrgId, id: WorkerId) -> &mut WorkerRow {
        self.workers.entry((org, id)).or_insert_with(|| WorkerRow {
            info: None,
            seen_at: Timestamp::default(),
            alive_until: Timestamp::default(),
            serves: BTreeSet::new(),
        })
    }

    /// Notes that the worker of a claim lives, and what it serves. Only if it serves something new, or every few
    /// seconds, as the other backends do it to save writes.
    pub(super) fn saw_worker(&mut self, claim: &ClaimRequest, now: Timestamp) {
        let row = self.worker(claim.org, claim.worker);
        let (before, until) = (row.serves.len(), now.after(claim.ttl));
        for kind in &*claim.kinds {
            row.serves.insert((kind.clone(), claim.queue.clone()));
        }
        if row.serves.len() > before || until.since(row.alive_until) >= claim.ttl / 8 {
            row.alive_until = row.alive_until.max(until);
            row.seen_at = now;
        }
    }

    pub(super) fn claim_agents(&mut self, claim: &ClaimRequest, now: Timestamp) -> Vec<Claim> {
        self.saw_worker(claim, now);
        if claim.limit == 0 {
            self.give_up_preference(claim.org, claim.worker);
        }
        let kinds = fair_claims::kinds(claim);
        let mut found = Vec::new();
        for key in &self.ready {
            let Some(run) = self.runs.get(key) else { continue };
            let new = &run.exec.new;
            let asked = key.0 == claim.org && claim.only.is_none_or(|only| only.covers(key.1, run.exec.root));
            let Some(kind) = kinds.iter().position(|kind| *kind == new.kind) else { continue };
            let served = new.queue == claim.queue;
            let left_to_another = run.prefer_until.is_some_and(|at| at > now)
                && run.parked.is_some_and(|worker| worker != claim.worker && self.is_alive(claim.org, worker, now));
            if asked && served && run.visible_at <= now && !left_to_another {
                found.push((new.priority, kind, (run.exec.created_at, key.1)));
            }
        }
        let room = self.room(claim, now);
        let mut claims = Vec::new();
        let mut more = false;
        for (_, id) in fair_claims::in_turn(found) {
            let key = (claim.org, id);
            // A CANCELLING run needs no place of its key: it tidies up, whatever else runs.
            let blocked = |run: &Run| run.exec.status == Status::Pending && self.is_key_held(run);
            if self.runs.get(&key).is_some_and(blocked) {
                continue;
            }
            if claims.len() == room {
                more = room < claim.limit;
                break;
            }
            if let Some(run) = self.runs.get_mut(&key) {
                claims.push(run.claim(claim, now));
                self.refresh(key, now);
            }
        }
        self.passed(claim, claims.len(), more, now);
        claims
    }

    /// Whether a worker of an org counts as alive.
    pub(super) fn is_alive(&self, org: OrgId, worker: WorkerId, now: Timestamp) -> bool {
        self.workers.get(&(org, worker)).is_some_and(|row| row.alive_until > now)
    }

    /// Lets others claim at once the runs that a worker has parked and that were reserved for it for a moment.
    fn give_up_preference(&mut self, org: OrgId, worker: WorkerId) {
        for key in self.ready.iter().filter(|key| key.0 == org) {
            let Some(run) = self.runs.get_mut(key) else { continue };
            if run.parked == Some(worker) && run.prefer_until.take().is_some() {
                self.news.agents = true;
            }
        }
    }

    pub(super) fn heartbeat(&mut self, beat: &Heartbeat, now: Timestamp) -> HeartbeatAnswer {
        let org = beat.org;
        if let Some(worker) = self.workers.get_mut(&(org, beat.worker)) {
            worker.alive_until = worker.alive_until.max(now.after(beat.ttl));
            worker.seen_at = now;
        }
        let expires = now.after(beat.ttl);
        let mut answer = HeartbeatAnswer::default();
        for &(id, epoch, known) in &beat.executions {
            let lease = Lease { worker: beat.worker, epoch };
            match self.runs.get_mut(&(org, id)).filter(|run| run.check_lease(lease).is_ok()) {
                Some(run) => {
                    run.exec.lease_expires = Some(expires);
                    run.ttl = beat.ttl;
                    if run.facts.last_key_value().is_some_and(|(last, _)| *last > known) {
                        answer.stale_executions.push(id);
                    }
                    self.reschedule((org, id), now);
                }
                None => answer.lost_executions.push(id),
            }
        }
        for &(id, attempt, signed) in &beat.tasks {
            let place = self.tasks.get(&(org, id)).copied();
            let row = place.and_then(|(run, slot)| self.runs.get_mut(&(org, run))?.tasks.get_mut(&slot));
            let held = row.filter(|row| {
                let running = row.task.status == TaskStatus::Running && row.task.attempt == attempt;
                running && row.task.worker == Some(beat.worker) && row.lease_expires.is_some()
            });
            let Some(row) = held else {
                answer.cancelled_tasks.push(id);
                continue;
            };
            row.lease_expires = Some(expires);
            if signed {
                row.sign_at = now;
            }
            if row.stop {
                answer.cancelled_tasks.push(id);
            }
            if let Some((run, _)) = place {
                self.reschedule((org, run), now);
            }
        }
        for (id, attempt, report) in &beat.progress {
            let place = self.tasks.get(&(org, *id)).copied();
            let row = place.and_then(|(run, slot)| self.runs.get_mut(&(org, run))?.tasks.get_mut(&slot));
            if let Some(row) = row.filter(|row| row.task.is_running(*attempt)) {
                row.task.progress = Some(report.clone());
            }
        }
        answer
    }

    pub(super) fn release(&mut self, org: OrgId, id: ExecutionId, lease: Lease, now: Timestamp) -> Result<()> {
        let run = self.run_mut(org, id)?;
        if run.last_held_by(lease.worker) && run.exec.epoch == lease.epoch {
            run.lose_host_timer(now);
        } else {
            run.check_lease(lease)?;
            run.give_back(now);
        }
        self.refresh((org, id), now);
        Ok(())
    }

    /// The runs of an org.
    pub(super) fn keys_of(&self, org: OrgId) -> Vec<RunKey> {
        let from = (org, ExecutionId(uuid::Uuid::nil()));
        self.runs.range(from..).take_while(|(key, _)| key.0 == org).map(|(key, _)| *key).collect()
    }

    pub(super) fn cut_leases(&mut self, org: OrgId, worker: WorkerId, left: Duration, now: Timestamp) {
        let cut = now.after(left);
        let sooner = |expires: &mut Option<Timestamp>| *expires = expires.map(|at| at.min(cut));
        for key in self.keys_of(org) {
            let Some(run) = self.runs.get_mut(&key) else { continue };
            if run.exec.worker == Some(worker) {
                sooner(&mut run.exec.lease_expires);
            }
            for row in run.tasks.values_mut().filter(|row| row.task.worker == Some(worker)) {
                sooner(&mut row.lease_expires);
            }
            self.refresh(key, now);
        }
    }

    pub(super) fn unregister_worker(&mut self, org: OrgId, worker: WorkerId, now: Timestamp) {
        self.workers.remove(&(org, worker));
        self.give_up_preference(org, worker);
        for key in self.keys_of(org) {
            let Some(run) = self.runs.get_mut(&key) else { continue };
            let mut touched = false;
            if run.exec.worker == Some(worker) {
                run.give_back(now);
                touched = true;
            } else if run.last_held_by(worker) {
                run.lose_host_timer(now);
                touched = true;
            }
            for slot in run.open.clone() {
                let row = run.tasks.get(&slot);
                if row.is_some_and(|row| row.lease_expires.is_some() && row.task.worker == Some(worker)) {
                    run.lose_attempt(slot, now);
                    touched = true;
                }
            }
            if touched {
                self.refresh(key, now);
            }
        }
    }
}

impl Run {
    fn claim(&mut self, claim: &ClaimRequest, now: Timestamp) -> Claim {
        self.exec.epoch += 1;
        self.starts_by = None;
        self.exec.worker = Some(claim.worker);
        self.exec.lease_expires = Some(now.after(claim.ttl));
        self.ttl = claim.ttl;
        let parked = self.parked.take() == Some(claim.worker);
        self.prefer_until = None;
        if self.exec.status == Status::Pending {
            self.exec.status = Status::Running;
        }
        let epoch = self.exec.epoch;
        let last = self.requests.values().filter(|row| row.epoch + 1 == epoch).max_by_key(|row| row.answer.number);
        let known = last.map(|row| row.answer.high).filter(|_| parked);
        self.requests.retain(|_, row| row.epoch >= epoch);
        self.emit_resumed(now);
        Claim {
            execution: self.exec.clone(),
            lease: Lease { worker: claim.worker, epoch },
            high: self.high,
            news: known.map(|known| self.facts_after(known, Some(self.exec.segment))),
        }
    }

    /// Writes the event that a worker holds the run from now on.
    pub(super) fn emit_resumed(&mut self, now: Timestamp) {
        let worker = self.exec.worker.map(|worker| worker.to_string());
        self.emit(now, EventKind::Resumed, None, json!({ "epoch": self.exec.epoch, "worker": worker }));
    }

    /// Refuses a worker that does not hold the run under this epoch.
    pub(super) fn check_lease(&self, lease: Lease) -> Result<()> {
        let held = matches!(self.exec.status, Status::Running | Status::Cancelling);
        if held && self.exec.epoch == lease.epoch && self.exec.worker == Some(lease.worker) {
            return Ok(());
        }
        Err(Error::new(
            Code::LeaseLost,
            format!(
                "the worker {} at epoch {} no longer holds the run {}: it is {} at epoch {}; drop the work",
                lease.worker, lease.epoch, self.exec.new.id, self.exec.status, self.exec.epoch
            ),
        )
        .with("epoch", self.exec.epoch)
        .with("status", self.exec.status))
    }

    /// Whether it waits for a timer that exists only in this worker's process.
    pub(super) fn last_held_by(&self, worker: WorkerId) -> bool {
        let by_host = self.exec.wait.as_ref().is_some_and(|wait| wait.host_timer);
        by_host && self.exec.status == Status::Waiting && self.parked == Some(worker)
    }

    /// The process with the timer that it waits for is gone. It is entered again, and its code starts the timer anew.
    pub(super) fn lose_host_timer(&mut self, now: Timestamp) {
        self.parked = None;
        self.exec.wait = None;
        self.await_machine(now);
        self.emit(now, EventKind::Woken, None, json!({ "reason": "host_timer" }));
    }

    fn give_back(&mut self, now: Timestamp) {
        self.clear_holder();
        if self.exec.status == Status::Running {
            self.await_machine(now);
            self.emit(now, EventKind::Woken, None, json!({ "reason": "released" }));
            if self.has_open(TaskStatus::Quarantined) {
                self.quarantine(now);
            }
        }
    }
}
