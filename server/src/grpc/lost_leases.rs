//! Counts and logs the leases that workers have lost.
//!
//! A heartbeat that is sent during a commit of the same worker reports runs as lost that the commit has ended or suspended. The
//! events of a run tell whether its lease was really lost.

use crate::metrics::Metrics;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::EventKind;
use flovyn_core::storage::{PAGE, Storage};
use std::sync::Arc;
use tracing::{debug, warn};

/// Runs that one line of the log names at most.
const MAX_LOGGED: usize = 20;

/// Reports which runs a worker has lost, of those it does not hold any more; each comes with the last event that it knew.
pub(super) async fn report(
    storage: Arc<dyn Storage>,
    metrics: Metrics,
    (org, worker): (OrgId, WorkerId),
    gone: Vec<(ExecutionId, u64)>,
) {
    let lost = match lost_leases(&*storage, org, gone).await {
        Ok(lost) => lost,
        Err(error) => return debug!(%worker, %error, "which runs a worker has lost could not be read"),
    };
    if lost.is_empty() {
        return;
    }
    metrics.lost(lost.len());
    let runs: Vec<_> = lost.iter().take(MAX_LOGGED).map(ToString::to_string).collect();
    warn!(
        %worker,
        count = lost.len() as u64,
        runs = runs.join(","),
        "a worker has lost its leases of runs: it gave no sign for too long, and others go on with them"
    );
}

async fn lost_leases(
    storage: &dyn Storage,
    org: OrgId,
    gone: Vec<(ExecutionId, u64)>,
) -> flovyn_core::Result<Vec<ExecutionId>> {
    let mut lost = Vec::new();
    for (run, known) in gone {
        let news = storage.events(org, run, known, PAGE).await?;
        if news.iter().any(|event| event.kind == EventKind::LeaseLost) {
            lost.push(run);
        }
    }
    Ok(lost)
}
