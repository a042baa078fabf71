//! What the SQL backends share: rows and their transitions, whatever the dialect.
//!
//! A transition decides here, on rows in memory, and asks the dialect for statements alone ([`Statements`]). Both dialects'
//! transactions are synchronous for their commands, so the shared code is too.

pub(super) mod aside;
pub(super) mod log;
pub(super) mod payloads;
pub(super) mod reopen;
pub(super) mod run;
pub(super) mod tail;
pub(super) mod task;
pub(super) mod trouble;
pub(super) mod values;

use crate::clock::Timestamp;
use crate::error::Error;
use crate::id::{OrgId, Slot};
use crate::model::{Failure, TaskStatus};
use crate::payload::Payload;
use crate::streaming::Change;
use log::Numbered;
use run::Run;
use tail::Recorded;
use task::TaskRow;

/// What an open transaction of a dialect does for the transitions.
pub(in crate::storage) trait Statements: Sized {
    /// Why a statement did not do what it was asked; an answer that is an error is one too.
    type Fault: From<Error>;
    /// Where a run's rows are, with what only this dialect keeps of a run.
    type Home;
    /// How the rows of a run are named.
    type Key: Copy;
    /// Where the row of an op is.
    type Place;

    /// The store's time, one for the whole transaction.
    fn now(&self) -> Timestamp;
    /// Announces that a run has events up to a number.
    fn changed(&self, change: Change);
    /// Announces that a run may be claimed.
    fn agents_ready(&self);
    /// Announces that a task may be claimed.
    fn tasks_ready(&self);
    /// Announces that time will bring something.
    fn due(&self, at: i64);

    /// The org of a run.
    fn org(home: &Self::Home) -> OrgId;
    /// The name of a run's rows.
    fn key(home: &Self::Home) -> Self::Key;
    /// The number of a run's last event; 0 before the first.
    fn high(&self, run: &Run<Self::Home>) -> Result<u64, Self::Fault>;
    /// Writes an event.
    fn put_event(&self, key: Self::Key, event: Numbered) -> Result<(), Self::Fault>;

    /// Lets a run's rows refer to a payload; one that is named must be there.
    fn refer(&self, run: &Run<Self::Home>, payload: &Payload) -> Result<(), Self::Fault>;
    /// Writes what a run that has ended leaves behind.
    fn put_end(
        &self,
        run: &Run<Self::Home>,
        output: Option<&Payload>,
        failure: Option<&Failure>,
    ) -> Result<(), Self::Fault>;
    /// Writes why a run that has not ended is paused, or that it is not.
    fn put_failure(&self, run: &Run<Self::Home>, failure: Option<&Failure>) -> Result<(), Self::Fault>;
    /// The timers of a run that are armed do not fire any more; their moments are kept.
    fn disarm_all(&self, run: &Run<Self::Home>) -> Result<(), Self::Fault>;
    /// The timer of an op fires after all, if it was disarmed.
    fn rearm(&self, run: &Run<Self::Home>, slot: Slot) -> Result<(), Self::Fault>;
    /// The op that gave an await up counts no more.
    fn undo(&self, run: &Run<Self::Home>, slot: Slot) -> Result<(), Self::Fault>;
    /// The run's own ops that its next claim starts from.
    fn tail(&self, run: &Run<Self::Home>) -> Result<Vec<Recorded>, Self::Fault>;
    /// The tasks of some slots of a run.
    fn tasks_at(&self, run: &Run<Self::Home>, slots: &[Slot]) -> Result<Vec<TaskRow<Self::Place>>, Self::Fault>;

    /// Writes what may have changed of a task.
    fn save_task(&self, task: &TaskRow<Self::Place>) -> Result<(), Self::Fault>;
    /// Open tasks of a run, in order of their place.
    fn open_tasks(&self, run: &Run<Self::Home>) -> Result<Vec<TaskRow<Self::Place>>, Self::Fault>;
    /// Whether an open task of a run has a status.
    fn has_open(&self, run: &Run<Self::Home>, status: TaskStatus) -> Result<bool, Self::Fault>;

    /// Open tasks of a status.
    fn open_with(&self, run: &Run<Self::Home>, status: TaskStatus) -> Result<Vec<TaskRow<Self::Place>>, Self::Fault> {
        Ok(self.open_tasks(run)?.into_iter().filter(|row| row.task.status == status).collect())
    }

    /// Open tasks that end with their run: of the detached ones those that would need another attempt.
    fn open_at_end(&self, run: &Run<Self::Home>) -> Result<Vec<TaskRow<Self::Place>>, Self::Fault> {
        Ok(self.open_tasks(run)?.into_iter().filter(|row| row.task.ends_with_run()).collect())
    }

    /// Open tasks that do not outlive their segment.
    fn open_attached(&self, run: &Run<Self::Home>) -> Result<Vec<TaskRow<Self::Place>>, Self::Fault> {
        Ok(self.open_tasks(run)?.into_iter().filter(|row| !row.task.new.options.detached).collect())
    }
}
