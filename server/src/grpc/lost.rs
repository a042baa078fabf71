//! Workers that have lost runs: counted, and said in the log.
//!
//! A worker that beats while a commit of its own is on its way learns that it does not hold a run any more that it has ended or
//! put to sleep itself. The run's events tell those apart from one that was taken from it.

use crate::metrics::Metrics;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::EventKind;
use flovyn_core::storage::{PAGE, Storage};
use std::sync::Arc;
use tracing::{debug, warn};

/// Runs that one line of the log names.
const NAMED: usize = 20;

/// Looks which of the runs that a worker does not hold any more were taken from it; each with the last event that it knew.
pub(super) async fn tell(
    storage: Arc<dyn Storage>,
    metrics: Metrics,
    (org, worker): (OrgId, WorkerId),
    gone: Vec<(ExecutionId, u64)>,
) {
    let lost = match taken(&*storage, org, gone).await {
        Ok(lost) => lost,
        Err(error) => return debug!(%worker, %error, "which runs a worker has lost could not be read"),
    };
    if lost.is_empty() {
        return;
    }
    metrics.lost(lost.len());
    let runs: Vec<_> = lost.iter().take(NAMED).map(ToString::to_string).collect();
    warn!(
        %worker,
        count = lost.len() as u64,
        runs = runs.join(","),
        "a worker has lost its leases of runs: it gave no sign for too long, and others go on with them"
    );
}

async fn taken(
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
