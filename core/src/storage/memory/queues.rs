//! Limits of queues.

use super::MemoryStorage;
use super::state::State;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::OrgId;
use crate::model::QueueLimit;
use crate::storage::queues::{Gate, check};
use crate::storage::{ClaimRequest, Queues};
use async_trait::async_trait;

/// A queue with a limit.
#[derive(Default)]
pub(super) struct LimitedQueue {
    gate: Gate,
    /// When its limit allows more again, if it has kept work back.
    opens_at: Option<Timestamp>,
}

#[async_trait]
impl Queues for MemoryStorage {
    async fn limit_queue(&self, org: OrgId, queue: &str, limit: QueueLimit) -> Result<()> {
        let limits = check(queue, &limit)?;
        self.call(|state, _| {
            let key = (org, queue.to_owned());
            if limits {
                state.limited.entry(key).or_default().gate.limit = limit;
            } else {
                state.limited.remove(&key);
            }
            state.news.agents = true;
        });
        Ok(())
    }

    async fn queue_limits(&self, org: OrgId) -> Result<Vec<(String, QueueLimit)>> {
        Ok(self.call(|state, _| {
            let of_org = state.limited.iter().filter(|((of, _), _)| *of == org);
            of_org.map(|((_, queue), row)| (queue.clone(), row.gate.limit.clone())).collect()
        }))
    }
}

impl State {
    /// How many runs a claim may take under the limit of its queue.
    pub(super) fn room(&self, claim: &ClaimRequest, now: Timestamp) -> usize {
        let Some(row) = self.limited.get(&(claim.org, claim.queue.clone())) else { return claim.limit };
        let of_queue = |run: &&super::rows::Run| {
            run.exec.new.org == claim.org && run.exec.new.queue == claim.queue && run.exec.worker.is_some()
        };
        row.gate.room(claim.limit, self.runs.values().filter(of_queue).count(), now)
    }

    /// Notes that a claim has taken `runs` runs of a queue. `more` tells that others wait only because of its limit.
    pub(super) fn passed(&mut self, claim: &ClaimRequest, runs: usize, more: bool, now: Timestamp) {
        if let Some(row) = self.limited.get_mut(&(claim.org, claim.queue.clone())) {
            row.gate.pass(runs, now);
            row.opens_at = more.then(|| row.gate.opens_at(now));
            self.news.timers |= more;
        }
    }

    /// Announces work of queues whose limit allows more again.
    pub(super) fn open_queues(&mut self, now: Timestamp) {
        for row in self.limited.values_mut() {
            self.news.agents |= row.opens_at.take_if(|at| *at <= now).is_some();
        }
    }

    /// When the limit of a queue next allows more.
    pub(super) fn next_opening(&self) -> Option<Timestamp> {
        self.limited.values().filter_map(|row| row.opens_at).min()
    }
}
