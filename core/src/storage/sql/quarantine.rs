//! Work that cannot be read is set aside alone, so that the work beside it goes on: its run is PAUSED and says why.

use super::Events;
use super::log::Numbered;
use super::run::Run;
use crate::error::{Code, Error, Kind};
use crate::id::{ExecutionId, OrgId, TaskId};
use crate::model::{EventKind, Failure, MAX_NAME, Wait, WaitReason};
use crate::storage::sql::values::text_of;
use crate::streaming::Change;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How late the timers and deadlines of a run that is set aside come at most, once it goes on.
pub(in crate::storage) const PUT_OFF: Duration = Duration::from_secs(86_400);
/// Rows that are looked at in one go.
pub(in crate::storage) const PAGE: usize = 2_000;

/// Whether an error may be that of one row among others, and not of the database or of who asks.
pub(in crate::storage) fn is_of_a_row(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::Fault | Kind::Invalid | Kind::Conflict)
        && !matches!(error.code(), Code::ForkedProcess | Code::SchemaTooNew)
}

/// What was set aside.
#[derive(Debug)]
pub(in crate::storage) struct Aside {
    pub org: OrgId,
    pub run: ExecutionId,
    /// The task whose row it is; none where it is the run's own.
    pub task: Option<TaskId>,
    pub why: String,
}

impl Aside {
    /// What the paused run says.
    pub(in crate::storage) fn failure(&self) -> Failure {
        let what = self.task.map_or("the row of the run".to_owned(), |task| format!("the row of the task {task}"));
        let message =
            format!("{what} is not as it was written ({}); mend it in the database, then resume the run", self.why);
        Failure::new(Code::CorruptCheckpoint, "CorruptCheckpoint", message)
    }

    /// Writes the event of the pause, by hand: the run itself may not be readable.
    pub(in crate::storage) fn put_event<T: Events>(&self, tx: &T, key: T::Key, high: u64) -> Result<(), T::Fault> {
        let data = json!({ "reason": WaitReason::Quarantined, "error": self.failure() }).to_string();
        let number = high + 1;
        tx.put_event(
            key,
            Numbered { number, kind: EventKind::Paused, segment: 0, sequence: None, data: Some(data) },
            None,
        )?;
        tx.changed(Change { org: self.org, execution: self.run, high: number, ended: Some(false), here: true });
        Ok(())
    }
}

/// What a run that is set aside waits for, as its column has it.
pub(in crate::storage) fn wait() -> Result<String, Error> {
    text_of(&Wait { reason: Some(WaitReason::Quarantined), ..Wait::default() })
}

/// What is wrong with a run that can be read: an older version let names in that no index holds.
pub(in crate::storage) fn over_bounds<H>(run: &Run<H>) -> Option<String> {
    let size = run.concurrency_key.as_ref()?.len();
    (size > MAX_NAME).then(|| format!("its concurrency key has {size} bytes, more than the {MAX_NAME} of a name"))
}

/// How much a backend of this process has set aside.
#[derive(Debug, Default)]
pub(in crate::storage) struct Counted(AtomicU64);

impl Counted {
    /// Counts and logs what was set aside; tells whether it was anything.
    pub(in crate::storage) fn note(&self, aside: &[Aside]) -> bool {
        self.0.fetch_add(aside.len() as u64, Ordering::Relaxed);
        for Aside { org, run, task, why } in aside {
            let task = task.map(|task| task.to_string()).unwrap_or_default();
            tracing::error!(%org, %run, task, why, "a stored row cannot be used; its run is paused, all others go on");
        }
        !aside.is_empty()
    }

    /// How much so far.
    pub(in crate::storage) fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
