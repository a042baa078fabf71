//! Sets aside rows that cannot be read, so that commands over many rows go on without them. The run of such a row is
//! PAUSED and says why.

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

/// How far the timers of a run that is set aside are put off. After a repair they fire at most so much late.
pub(in crate::storage) const PUT_OFF: Duration = Duration::from_secs(86_400);
/// How many rows are read in one query.
pub(in crate::storage) const PAGE: usize = 2_000;

/// Whether an error may come from one broken row, and not from the database or the request.
pub(in crate::storage) fn is_of_a_row(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::Fault | Kind::Invalid | Kind::Conflict)
        && !matches!(error.code(), Code::ForkedProcess | Code::SchemaTooNew)
}

/// A row that was set aside.
#[derive(Debug)]
pub(in crate::storage) struct Aside {
    pub org: OrgId,
    pub run: ExecutionId,
    /// The task whose row it is. None for the row of the run itself.
    pub task: Option<TaskId>,
    pub why: String,
}

impl Aside {
    /// The failure that the paused run shows.
    pub(in crate::storage) fn failure(&self) -> Failure {
        let what = self.task.map_or("the row of the run".to_owned(), |task| format!("the row of the task {task}"));
        let message =
            format!("{what} is not as it was written ({}); mend it in the database, then resume the run", self.why);
        Failure::new(Code::CorruptCheckpoint, "CorruptCheckpoint", message)
    }

    /// Writes the event of the pause. It does not use [`Run::pause`], since the run's row may not be readable.
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

/// The value of the wait column of a run that is set aside.
pub(in crate::storage) fn wait() -> Result<String, Error> {
    text_of(&Wait { reason: Some(WaitReason::Quarantined), ..Wait::default() })
}

/// What is wrong with a run that can be read: an older version accepted names that are too long for an index.
pub(in crate::storage) fn over_bounds<H>(run: &Run<H>) -> Option<String> {
    let size = run.concurrency_key.as_ref()?.len();
    (size > MAX_NAME).then(|| format!("its concurrency key has {size} bytes, more than the {MAX_NAME} of a name"))
}

/// Counts what a backend of this process has set aside.
#[derive(Debug, Default)]
pub(in crate::storage) struct Counted(AtomicU64);

impl Counted {
    /// Counts and logs what was set aside. False if it was nothing.
    pub(in crate::storage) fn note(&self, aside: &[Aside]) -> bool {
        self.0.fetch_add(aside.len() as u64, Ordering::Relaxed);
        for Aside { org, run, task, why } in aside {
            let task = task.map(|task| task.to_string()).unwrap_or_default();
            tracing::error!(%org, %run, task, why, "a stored row cannot be used; its run is paused, all others go on");
        }
        !aside.is_empty()
    }

    /// The count so far.
    pub(in crate::storage) fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
