//! Removes runs that ended long ago.

use super::rows::Run;
use super::state::{RunKey, State};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::model::SharedContext;
use crate::storage::directory::{RETENTION, check_removable, removals};
use std::collections::BTreeSet;
use std::time::Duration;

/// The most runs that one call removes.
const SHARE: usize = 256;

impl State {
    /// Removes runs that ended at least `keep` ago. Runs that have forks, children or open tasks stay, and those of whose
    /// conversation a parent that has not ended sees a thread.
    pub(super) fn remove_ended(&mut self, keep: Duration, now: Timestamp) -> usize {
        let refers = |((org, _), run): (&RunKey, &Run)| {
            let origin = run.exec.forked_from.map(|point| point.execution);
            origin.into_iter().chain(run.exec.parent).map(|id| (*org, id)).collect::<Vec<_>>()
        };
        let origins: BTreeSet<RunKey> = self.runs.iter().flat_map(refers).collect();
        let ended = self.runs.iter().filter_map(|(key, run)| {
            let ended = run.exec.ended_at.filter(|at| at.after(keep) <= now)?;
            (run.open.is_empty() && !origins.contains(key) && !self.is_seen(key.0, run)).then_some((ended, *key))
        });
        let mut ended: Vec<_> = ended.collect();
        ended.sort_unstable();
        ended.truncate(SHARE);
        for (_, key) in &ended {
            self.remove(*key);
        }
        for (org, told) in removals(ended.iter().map(|(_, key)| key.0)) {
            self.callers.record(org, RETENTION.0, RETENTION.1, &told, now);
        }
        ended.len()
    }

    /// Whether a parent that has not ended sees a run's conversation.
    fn is_seen(&self, org: OrgId, run: &Run) -> bool {
        let parent = run.exec.parent.and_then(|parent| self.runs.get(&(org, parent)));
        run.exec.new.shared_context.as_ref().is_some_and(SharedContext::is_seen)
            && parent.is_some_and(|parent| !parent.exec.status.is_terminal())
    }

    /// Removes a run. Refused if it has not ended, or has forks, children or open tasks.
    pub(super) fn remove_one(&mut self, org: OrgId, id: ExecutionId) -> Result<()> {
        let run = self.run(org, id)?;
        let forked = self.runs.iter().any(|((of, _), other)| {
            *of == org && other.exec.forked_from.as_ref().is_some_and(|point| point.execution == id)
        });
        let parent = self.offspring.contains_key(&(org, id));
        check_removable(id, run.exec.status, forked, parent, !run.open.is_empty())?;
        self.remove((org, id));
        Ok(())
    }

    /// Removes all that an organization has, except its keys and its audit.
    pub(super) fn remove_org(&mut self, org: OrgId) {
        let runs: Vec<RunKey> = self.runs.keys().filter(|key| key.0 == org).copied().collect();
        runs.into_iter().for_each(|run| self.remove(run));
        self.workers.retain(|(of, _), _| *of != org);
        self.definitions.retain(|(of, _), _| *of != org);
        self.schedules.retain(|(of, _), _| *of != org);
        self.limited.retain(|(of, _), _| *of != org);
    }

    fn remove(&mut self, key: RunKey) {
        let Some(run) = self.runs.remove(&key) else { return };
        self.ages.remove(&(key.0, run.exec.created_at, key.1));
        let parent = run.exec.parent.map(|parent| (key.0, parent));
        if let Some((parent, siblings)) = parent.and_then(|parent| Some((parent, self.offspring.get_mut(&parent)?))) {
            siblings.remove(&run.born);
            if siblings.is_empty() {
                self.offspring.remove(&parent);
            }
        }
        self.entries.retain(|(org, _), (execution, _)| (*org, *execution) != key);
        self.tasks.retain(|(org, _), (execution, _)| (*org, *execution) != key);
        if let Some(due) = run.due {
            self.due.remove(&(due, key));
        }
    }
}
