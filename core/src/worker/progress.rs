//! Progress reports of task attempts on their way to the store: the latest of each attempt, at most once a second.

use super::{Core, LEASE_TTL};
use crate::id::TaskId;
use crate::storage::Heartbeat;
use crate::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long reports are gathered before one write stores the latest ones.
const GATHER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Reports(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    latest: HashMap<TaskId, (u32, String)>,
    /// A write is scheduled and will take them.
    scheduled: bool,
}

/// Keeps the latest report of an attempt for the next write, and schedules one if there is none.
pub(super) fn tell(core: &Arc<Core>, task: TaskId, attempt: u32, report: String) {
    let mut gathered = core.reports.0.lock();
    gathered.latest.insert(task, (attempt, report));
    if !std::mem::replace(&mut gathered.scheduled, true) {
        core.runtime.spawn(write(core.clone()));
    }
}

async fn write(core: Arc<Core>) {
    tokio::time::sleep(GATHER).await;
    // Taking the whole also clears `scheduled`: a report that comes while this one is stored schedules the next write.
    let latest = std::mem::take(&mut *core.reports.0.lock()).latest;
    let progress = latest.into_iter().map(|(task, (attempt, report))| (task, attempt, report)).collect();
    let (org, worker) = (core.options.org, core.id);
    let beat = Heartbeat { org, worker, ttl: LEASE_TTL, executions: Vec::new(), tasks: Vec::new(), progress };
    if let Err(error) = core.storage.heartbeat(beat).await {
        tracing::debug!(%error, "progress was not stored; the next report will be");
    }
}
