//! A run and those below it as a tree, each with what it and all below it have used.

use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::model::{Execution, RollUp};
use crate::storage::Storage;
use std::collections::HashMap;

/// A run with the runs below it, as far as they are shown.
#[derive(Debug, Clone)]
pub struct Tree {
    /// The run.
    pub run: Execution,
    /// What it and all below it come to, shown or not.
    pub sum: RollUp,
    /// Its children, in the order of birth.
    pub children: Vec<Tree>,
}

impl Tree {
    /// The tree below a run: at most `limit` runs, whole generations first. Three queries, however large it is.
    pub async fn below(storage: &dyn Storage, org: OrgId, run: Execution, limit: usize) -> Result<Self> {
        let top = run.new.id;
        let mut runs = vec![run];
        runs.extend(storage.descendants(org, top, limit).await?);
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        let mut root = None;
        for (run, sum) in with_roll_ups(storage, org, runs).await? {
            let parent = run.parent.filter(|_| run.new.id != top);
            let tree = Self { run, sum, children: Vec::new() };
            match parent {
                Some(parent) => children.entry(parent).or_default().push(tree),
                None => root = Some(tree),
            }
        }
        let mut root = root.ok_or_else(|| super::handle::gone(top))?;
        root.adopt(&mut children);
        Ok(root)
    }

    /// How many runs below this one are not in the tree.
    pub fn left_off(&self) -> u64 {
        self.sum.descendants.saturating_sub(self.shown_below())
    }

    fn shown_below(&self) -> u64 {
        self.children.iter().map(|child| 1 + child.shown_below()).sum()
    }

    /// Families are no deeper than the store allows.
    fn adopt(&mut self, children: &mut HashMap<ExecutionId, Vec<Tree>>) {
        self.children = children.remove(&self.run.new.id).unwrap_or_default();
        self.children.iter_mut().for_each(|child| child.adopt(children));
    }
}

/// Runs, each with what it and all below it come to: one question for all of them. One that was removed meanwhile is left
/// out.
pub async fn with_roll_ups(
    storage: &dyn Storage,
    org: OrgId,
    runs: Vec<Execution>,
) -> Result<Vec<(Execution, RollUp)>> {
    let ids: Vec<_> = runs.iter().map(|run| run.new.id).collect();
    let sums = storage.roll_ups(org, &ids).await?;
    let mut sums: HashMap<_, _> = sums.into_iter().map(|sum| (sum.execution, sum)).collect();
    Ok(runs.into_iter().filter_map(|run| sums.remove(&run.new.id).map(|sum| (run, sum))).collect())
}
