//! The family of a run, as it is read.

use super::state::State;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::model::{Execution, Relative, RollUp, UsageTotals};
use std::ops::Bound;

impl State {
    pub(super) fn roll_ups(&self, org: OrgId, runs: &[ExecutionId]) -> Vec<RollUp> {
        runs.iter().filter(|run| self.runs.contains_key(&(org, **run))).map(|run| self.roll_up(org, *run)).collect()
    }

    fn roll_up(&self, org: OrgId, run: ExecutionId) -> RollUp {
        let below = self.below(org, run);
        let mut usage = UsageTotals::default();
        let all = std::iter::once(&run).chain(&below).filter_map(|id| self.runs.get(&(org, *id)));
        for (model, used) in all.flat_map(|run| &run.exec.usage.0) {
            usage.add(model, used);
        }
        let children = self.offspring.get(&(org, run)).map_or(0, |children| children.len() as u64);
        RollUp { execution: run, children, descendants: below.len() as u64, usage }
    }

    pub(super) fn descendants(&self, org: OrgId, run: ExecutionId, limit: usize) -> Result<Vec<Execution>> {
        self.run(org, run)?;
        let mut found: Vec<_> = self.below(org, run).into_iter().filter_map(|id| self.runs.get(&(org, id))).collect();
        found.sort_by_key(|run| (run.exec.depth, run.born));
        Ok(found.into_iter().take(limit).map(|run| run.exec.clone()).collect())
    }

    fn below(&self, org: OrgId, run: ExecutionId) -> Vec<ExecutionId> {
        let mut found = vec![run];
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            found.extend(self.offspring.get(&(org, parent)).into_iter().flat_map(|children| children.values()));
            next += 1;
        }
        found.remove(0);
        found
    }

    pub(super) fn children_after(&self, org: OrgId, parents: &[(ExecutionId, u64)], limit: usize) -> Vec<Relative> {
        let of_parent = parents.iter().flat_map(|(parent, after)| {
            let children = self.offspring.get(&(org, *parent)).into_iter();
            children.flat_map(|children| children.range((Bound::Excluded(*after), Bound::Unbounded)))
        });
        let mut found: Vec<_> = of_parent.filter_map(|(_, id)| self.relative(org, *id)).collect();
        found.sort_by_key(|run| run.birth);
        found.truncate(limit);
        found
    }

    pub(super) fn born_as(&self, org: OrgId, births: &[u64]) -> Vec<Relative> {
        let runs = self.runs.range((org, ExecutionId(uuid::Uuid::nil()))..=(org, ExecutionId(uuid::Uuid::max())));
        let wanted = runs.filter(|(_, run)| births.contains(&run.born));
        wanted.filter_map(|((_, id), _)| self.relative(org, *id)).collect()
    }

    fn relative(&self, org: OrgId, id: ExecutionId) -> Option<Relative> {
        let run = self.runs.get(&(org, id))?;
        Some(Relative { id, parent: run.exec.parent?, depth: run.exec.depth, birth: run.born })
    }
}
