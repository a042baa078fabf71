//! The family of a run, as it is read: what its runs have used together, and who was born when.

use super::Statements;
use super::backend::Backend;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::model::{Execution, Relative, RollUp, Usage};
use crate::storage::Families;
use async_trait::async_trait;
use std::collections::HashMap;

/// Usage of one model, by a run and all below it.
pub(in crate::storage) type UsageBelow = (ExecutionId, String, Usage);

/// The queries over families.
pub(in crate::storage) trait Kinship: Statements {
    /// How many children and descendants each of these runs has: the run, its children, its descendants.
    fn counts_below(&self, org: OrgId, runs: &[ExecutionId]) -> Result<Vec<(ExecutionId, u64, u64)>, Self::Fault>;
    /// What each of these runs has used together with all below it, by model.
    fn usage_below(&self, org: OrgId, runs: &[ExecutionId]) -> Result<Vec<UsageBelow>, Self::Fault>;
    /// The first runs below a run, generation by generation.
    fn descendants(&self, org: OrgId, run: ExecutionId, most: usize) -> Result<Vec<Execution>, Self::Fault>;
    /// Children of these runs that were born after a number.
    fn children_after(
        &self,
        org: OrgId,
        parents: &[(ExecutionId, u64)],
        most: usize,
    ) -> Result<Vec<Relative>, Self::Fault>;
    /// The runs with these numbers that another run has started.
    fn born(&self, org: OrgId, births: &[u64]) -> Result<Vec<Relative>, Self::Fault>;
}

/// What runs have used together with all below them, in two queries for all of them.
pub(super) fn roll_ups<T: Kinship>(tx: &T, org: OrgId, runs: &[ExecutionId]) -> Result<Vec<RollUp>, T::Fault> {
    let counts = tx.counts_below(org, runs)?;
    let mut by_run: HashMap<_, _> = counts
        .into_iter()
        .map(|(execution, children, descendants)| {
            (execution, RollUp { execution, children, descendants, usage: Default::default() })
        })
        .collect();
    for (run, model, usage) in tx.usage_below(org, runs)? {
        if let Some(roll_up) = by_run.get_mut(&run) {
            roll_up.usage.add(&model, &usage);
        }
    }
    Ok(runs.iter().filter_map(|run| by_run.remove(run)).collect())
}

#[async_trait]
impl<B: Backend> Families for B {
    async fn children_after(&self, org: OrgId, parents: &[(ExecutionId, u64)], limit: usize) -> Result<Vec<Relative>> {
        let parents = parents.to_vec();
        self.read("look for children", org, move |tx| tx.children_after(org, &parents, limit)).await
    }

    async fn born(&self, org: OrgId, births: &[u64]) -> Result<Vec<Relative>> {
        let births = births.to_vec();
        self.read("look for runs of a family", org, move |tx| tx.born(org, &births)).await
    }
}
