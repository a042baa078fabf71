//! What a token of one run or of one user reaches: that run, the runs of that user, and all below them.

use super::Service;
use crate::access::Identity;
use crate::policy::{Need, speaks};
use flovyn_core::error::{Error, Kind, Result};
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{Execution, Scope, USER};

impl Service {
    /// Whether a caller that was let in may do to this run what its call needs. Whoever has the scope for all runs reaches each;
    /// else a run that is not there is out of reach, as a foreign one is.
    pub(crate) async fn reaches(&self, org: OrgId, who: &Identity, need: Need, run: ExecutionId) -> Result<bool> {
        if need.of_all_runs().is_met(who.scopes()) {
            return Ok(true);
        }
        let counts = |scope: &&Scope| need != Need::SignalRun || speaks(scope);
        let scopes: Vec<&Scope> = who.scopes().narrow().filter(counts).collect();
        // Families are a few runs deep.
        let mut next = Some(run);
        while let Some(id) = next {
            let run = match self.storage.execution(org, id).await {
                Err(error) if is_missing(&error) => return Ok(false),
                found => found?,
            };
            if scopes.iter().any(|scope| is_of(scope, &run)) {
                return Ok(true);
            }
            next = run.parent;
        }
        Ok(false)
    }
}

fn is_missing(error: &Error) -> bool {
    error.kind() == Kind::NotFound
}

fn is_of(scope: &Scope, run: &Execution) -> bool {
    match scope {
        Scope::Run { run: own, .. } => *own == run.new.id,
        Scope::User { user, .. } => run.new.metadata.get(USER) == Some(user),
        _ => false,
    }
}
