//! What a dialect does for the algorithms here: a trait for each sort of row, all of them on its open transaction.
//!
//! A method is one statement or what stands for it. What a dialect must not do again it may remember: PostgreSQL reads a run's
//! last event with its lock, and collects the rows that are written until the next statement that needs an answer.

use super::log::Numbered;
use super::news::News;
use super::request::Request;
use super::run::{Origin, Run};
use super::tail::{Point, Recorded};
use super::task::TaskRow;
use crate::clock::Timestamp;
use crate::error::Error;
use crate::id::{EntryId, ExecutionId, OpId, OrgId, RequestId, SignalId, Slot, TaskId};
use crate::model::{
    Checkpoint, Entry, Execution, Fact, Failure, Label, NewCheckpoint, NewEntry, NewExecution, NewOp, NewSignal,
    OpKind, Signal, StartLimits, TaskStatus, UsageTotals,
};
use crate::payload::{ContentHash, Payload, RowOf};
use crate::storage::Standing;
use crate::storage::allowance::Allowance;
use crate::streaming::Change;
use bytes::Bytes;
use std::cell::RefCell;

/// Why a statement did not do what it was asked.
pub(in crate::storage) trait Failing: From<Error> {
    /// The answer, where the database is fine; else the fault itself.
    fn answer(self) -> Result<Error, Self>;
    /// What a caller is told who is refused with nothing changed; the fault itself, where it undoes the transaction.
    fn refusal(self, asked: &str) -> Result<Error, Self>;
    /// Whether a stored row is not what it should be.
    fn is_unreadable(&self) -> bool;
}

/// What was found, if it was there.
pub(in crate::storage) fn if_there<T, F: Failing>(found: Result<T, F>) -> Result<Option<T>, F> {
    match found.map_err(Failing::answer) {
        Ok(found) => Ok(Some(found)),
        Err(Ok(_)) => Ok(None),
        Err(Err(fault)) => Err(fault),
    }
}

/// An open transaction: how it names rows, its moment, and what it will announce.
pub(in crate::storage) trait Dialect: Sized {
    type Fault: Failing;
    /// Where a run's rows are, with what only this dialect keeps of a run.
    type Home;
    /// How the rows of a run are named.
    type Key: Copy;
    /// Where the row of an op is.
    type Place: Copy;

    /// Where the rows of a new run of an org will be, once it has a number.
    fn home(org: OrgId) -> Self::Home;
    /// The org of a run.
    fn org(home: &Self::Home) -> OrgId;
    /// The name of a run's rows.
    fn key(home: &Self::Home) -> Self::Key;
    /// The store's time, one for the whole transaction.
    fn now(&self) -> Timestamp;
    /// What is announced once the transaction is durable.
    fn news(&self) -> &RefCell<News>;

    /// Announces that a run has events up to a number.
    fn changed(&self, change: Change) {
        self.news().borrow_mut().changed(change);
    }
    /// Announces that a run may be claimed.
    fn agents_ready(&self) {
        self.news().borrow_mut().agents = true;
    }
    /// Announces that a task may be claimed.
    fn tasks_ready(&self) {
        self.news().borrow_mut().tasks = true;
    }
    /// Announces that time will bring something.
    fn due(&self, at: i64) {
        self.news().borrow_mut().due(at);
    }
}

/// The rows of runs.
pub(in crate::storage) trait Runs: Dialect {
    /// The run of an org with an id, or `ExecutionNotFound`. Nobody else changes it before a transaction that writes ends.
    fn find_run(&self, org: OrgId, id: ExecutionId) -> Result<RunOf<Self>, Self::Fault>;
    /// The run of a name as it is: it may change meanwhile.
    fn peek_run(&self, key: Self::Key) -> Result<Option<RunOf<Self>>, Self::Fault>;
    /// The whole run of a name.
    fn execution(&self, key: Self::Key) -> Result<Execution, Self::Fault>;
    /// The whole run of an id, or `ExecutionNotFound`.
    fn execution_of(&self, org: OrgId, id: ExecutionId) -> Result<Execution, Self::Fault>;
    /// How far runs of an org have come: their last event, their status.
    fn standings(&self, org: OrgId, ids: &[ExecutionId]) -> Result<Vec<Standing>, Self::Fault>;
    /// Writes a new run and gives it its number; false where its id is taken.
    fn insert_run(
        &self,
        run: &mut RunOf<Self>,
        new: &NewExecution,
        limits: &StartLimits,
        origin: Option<&Origin<Self::Key>>,
    ) -> Result<bool, Self::Fault>;
    /// Where a fork comes from; none of a run that is no fork.
    fn origin(&self, key: Self::Key) -> Result<Option<Origin<Self::Key>>, Self::Fault>;
    /// A fork of the run that starts from its end, which is its event `end`.
    fn forked_since(&self, run: &RunOf<Self>, end: u64) -> Result<Option<ExecutionId>, Self::Fault>;
    /// The run that spawned it.
    fn parent(&self, run: &RunOf<Self>) -> Result<Option<ExecutionId>, Self::Fault>;
    /// Writes everything that may have changed.
    fn save_run(&self, run: &RunOf<Self>) -> Result<(), Self::Fault>;
    /// Writes what a commit changes without a transition.
    fn save_progress(&self, run: &RunOf<Self>) -> Result<(), Self::Fault>;
    /// Takes a place among the RUNNING runs of its concurrency key; false where as many run as may.
    fn take_slot(&self, run: &mut RunOf<Self>) -> Result<bool, Self::Fault>;
    /// Writes what a run that has ended leaves behind.
    fn put_end(
        &self,
        run: &RunOf<Self>,
        output: Option<&Payload>,
        failure: Option<&Failure>,
    ) -> Result<(), Self::Fault>;
    /// Writes why a run that has not ended is paused, or that it is not.
    fn put_failure(&self, run: &RunOf<Self>, failure: Option<&Failure>) -> Result<(), Self::Fault>;
    /// What the run has used so far.
    fn usage(&self, run: &RunOf<Self>) -> Result<UsageTotals, Self::Fault>;
    /// Writes what the run has used so far.
    fn put_usage(&self, run: &RunOf<Self>, totals: &UsageTotals) -> Result<(), Self::Fault>;
    /// Writes its limits.
    fn put_limits(&self, run: &RunOf<Self>, limits: &StartLimits) -> Result<(), Self::Fault>;
    /// Whether a request has made it go on.
    fn has_resumed(&self, run: &RunOf<Self>, request: RequestId) -> Result<bool, Self::Fault>;
    /// A request makes it go on.
    fn put_resume(&self, run: &RunOf<Self>, request: RequestId) -> Result<(), Self::Fault>;
}

/// The events of runs and the commits that are recorded on them.
pub(in crate::storage) trait Events: Dialect {
    /// The number of a run's last event; 0 before the first.
    fn high(&self, run: &RunOf<Self>) -> Result<u64, Self::Fault>;
    /// When an event of a run was.
    fn event_time(&self, run: &RunOf<Self>, number: u64) -> Result<Option<Timestamp>, Self::Fault>;
    /// Writes an event, with the commit that is recorded on it.
    fn put_event(&self, key: Self::Key, event: Numbered, commit: Option<&Request>) -> Result<(), Self::Fault>;
    /// Records a commit on a run's last event, which is there already; the record of the commit `before`, where that event
    /// has it, moves aside.
    fn attach(&self, key: Self::Key, commit: &Request, before: Option<&Request>) -> Result<(), Self::Fault>;
    /// The number of a run's last event and the last commit of its epoch.
    fn last_request(&self, run: &RunOf<Self>) -> Result<(u64, Option<Request>), Self::Fault>;
    /// A commit of a run's epoch by its id.
    fn request_of(&self, run: &RunOf<Self>, id: RequestId) -> Result<Option<Request>, Self::Fault>;
    /// Deletes the records of a run's commits that moved aside.
    fn forget_aside(&self, run: &RunOf<Self>) -> Result<(), Self::Fault>;
    /// Facts with a number above `after` and up to `until`, in order. With a segment: those that count from it on.
    fn facts(&self, run: &RunOf<Self>, after: u64, until: u64, from: Option<u32>) -> Result<Vec<Fact>, Self::Fault>;
}

/// What the row of an op that leaves no other row holds of its own.
pub(in crate::storage) struct OpRow<'a> {
    pub kind: OpKind,
    /// When its timer fires.
    pub due: Option<Timestamp>,
    /// A read's repetitions; an abandoned op's sequence.
    pub count: Option<u32>,
    /// What a call cost.
    pub data: Option<String>,
    /// An attached task; a once's digest.
    pub target: Option<&'a [u8]>,
    /// A read's answer, a once's result.
    pub value: Option<&'a Payload>,
}

/// The rows of ops that are no tasks.
pub(in crate::storage) trait Ops: Dialect {
    /// The place of an op of the run's current segment.
    fn place(run: &RunOf<Self>, sequence: u32) -> Result<Self::Place, Self::Fault>;
    /// What holds a place of a run itself.
    fn label_at(&self, place: Self::Place) -> Result<Option<Label>, Self::Fault>;
    /// Writes an op that leaves no other row.
    fn put_op(&self, run: &RunOf<Self>, slot: Slot, op: &NewOp, row: OpRow<'_>) -> Result<(), Self::Fault>;
    /// A shared read was answered so many times.
    fn count_reads(&self, place: Self::Place, count: u32) -> Result<(), Self::Fault>;
    /// The timer of an op does not fire any more; when it would have is kept.
    fn disarm(&self, place: Self::Place) -> Result<(), Self::Fault>;
    /// The timers of a run that are armed do not fire any more; their moments are kept.
    fn disarm_all(&self, run: &RunOf<Self>) -> Result<(), Self::Fault>;
    /// The timer of an op fires after all, if it was disarmed.
    fn rearm(&self, run: &RunOf<Self>, slot: Slot) -> Result<(), Self::Fault>;
    /// The op that gave an await up counts no more.
    fn undo(&self, run: &RunOf<Self>, slot: Slot) -> Result<(), Self::Fault>;
    /// A run's own ops from a segment on, in order.
    fn ops_from(&self, run: &RunOf<Self>, segment: u32) -> Result<Vec<Recorded>, Self::Fault>;
    /// A run's own ops up to one of them, in order.
    fn ops_until(&self, run: &RunOf<Self>, last: Slot) -> Result<Vec<Recorded>, Self::Fault>;
    /// A run's own ops that are inside a `once`, in order.
    fn ops_of_onces(&self, run: &RunOf<Self>) -> Result<Vec<Recorded>, Self::Fault>;
    /// The sequence of the last op that a run without checkpoints has itself.
    fn last_sequence(&self, run: &RunOf<Self>) -> Result<Option<u32>, Self::Fault>;
    /// The sequence of the first op of a run without checkpoints that knew of a request to stop.
    fn told_to_stop(&self, run: &RunOf<Self>) -> Result<Option<u32>, Self::Fault>;
}

/// The rows of entries.
pub(in crate::storage) trait Entries: Dialect {
    /// The depth of what a new entry of a run follows.
    fn depth_above(&self, run: &RunOf<Self>, parent: EntryId) -> Result<Option<u32>, Self::Fault>;
    /// Writes an entry.
    fn put_entry(
        &self,
        run: &RunOf<Self>,
        slot: Slot,
        op: &NewOp,
        new: &NewEntry,
        depth: u32,
    ) -> Result<(), Self::Fault>;
    /// The depth of an entry of an org.
    fn depth_of(&self, org: OrgId, entry: EntryId) -> Result<Option<u32>, Self::Fault>;
    /// The op of a run that appended an entry.
    fn slot_of_entry(&self, run: &RunOf<Self>, entry: EntryId) -> Result<Option<Slot>, Self::Fault>;
    /// The last entry of the main thread up to an op of a run without checkpoints.
    fn last_entry(&self, run: &RunOf<Self>, until: Slot) -> Result<Option<EntryId>, Self::Fault>;
    /// The entries from the root to a leaf, or those behind one of them.
    fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>, Self::Fault>;
}

/// The rows of tasks.
pub(in crate::storage) trait Tasks: Dialect {
    /// The task of a place.
    fn task_at(&self, place: Self::Place) -> Result<Option<TaskOf<Self>>, Self::Fault>;
    /// The tasks of some slots of a run.
    fn tasks_at(
        &self,
        run: &RunOf<Self>,
        slots: &[Slot],
        allowance: &mut Allowance,
    ) -> Result<Vec<TaskOf<Self>>, Self::Fault>;
    /// The task that an op of a run called.
    fn task_of(&self, run: &RunOf<Self>, op: &OpId) -> Result<Option<TaskOf<Self>>, Self::Fault>;
    /// Detached tasks of a run that have ended, of the segments before one.
    fn detached_ended(
        &self,
        run: &RunOf<Self>,
        before: u32,
        allowance: &mut Allowance,
    ) -> Result<Vec<TaskOf<Self>>, Self::Fault>;
    /// Detached tasks of a run up to a segment.
    fn detached_until(
        &self,
        run: &RunOf<Self>,
        segment: u32,
        allowance: &mut Allowance,
    ) -> Result<Vec<TaskOf<Self>>, Self::Fault>;
    /// The task of an id that has not ended.
    fn open_task(&self, org: OrgId, id: TaskId) -> Result<Option<TaskOf<Self>>, Self::Fault>;
    /// The task of an id, of a run.
    fn task_by_id(&self, run: &RunOf<Self>, id: TaskId) -> Result<Option<TaskOf<Self>>, Self::Fault>;
    /// The results of some tasks of an org, in the order asked.
    fn outputs(&self, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>, Self::Fault>;
    /// Writes a new task as it is now. `due`: when housekeeping must look at it; `options`: where they are not the usual ones.
    fn put_task(
        &self,
        task: &TaskOf<Self>,
        op: &NewOp,
        due: Option<i64>,
        options: Option<String>,
    ) -> Result<(), Self::Fault>;
    /// Writes what may have changed of a task.
    fn save_task(&self, task: &TaskOf<Self>, due: Option<i64>) -> Result<(), Self::Fault>;
    /// Open tasks of a run, in order of their place.
    fn open_tasks(&self, run: &RunOf<Self>) -> Result<Vec<TaskOf<Self>>, Self::Fault>;
    /// Whether an open task of a run has a status.
    fn has_open(&self, run: &RunOf<Self>, status: TaskStatus) -> Result<bool, Self::Fault>;
    /// Whether a run has more open tasks than so many.
    fn has_more_open(&self, run: &RunOf<Self>, most: usize) -> Result<bool, Self::Fault>;

    /// Open tasks of a status.
    fn open_with(&self, run: &RunOf<Self>, status: TaskStatus) -> Result<Vec<TaskOf<Self>>, Self::Fault> {
        Ok(self.open_tasks(run)?.into_iter().filter(|row| row.task.status == status).collect())
    }

    /// Open tasks that end with their run: of the detached ones those that would need another attempt.
    fn open_at_end(&self, run: &RunOf<Self>) -> Result<Vec<TaskOf<Self>>, Self::Fault> {
        Ok(self.open_tasks(run)?.into_iter().filter(|row| row.task.ends_with_run()).collect())
    }

    /// Open tasks that do not outlive their segment.
    fn open_attached(&self, run: &RunOf<Self>) -> Result<Vec<TaskOf<Self>>, Self::Fault> {
        Ok(self.open_tasks(run)?.into_iter().filter(|row| !row.task.new.options.detached).collect())
    }
}

/// The rows of signals.
pub(in crate::storage) trait Signals: Dialect {
    /// A signal of a run that is stored already: the same one, or one with its idempotency key; its name and its value.
    fn known_signal(
        &self,
        run: &RunOf<Self>,
        new: &NewSignal,
    ) -> Result<Option<(SignalId, String, Payload)>, Self::Fault>;
    /// Whether as many signals of a run are pending as may be.
    fn has_full_mailbox(&self, run: &RunOf<Self>) -> Result<bool, Self::Fault>;
    /// Writes a signal, whose event has a number.
    fn put_signal(&self, run: &RunOf<Self>, number: u64, new: &NewSignal) -> Result<(), Self::Fault>;
    /// Signals of a run that nothing has consumed, oldest first.
    fn pending_signals(&self, run: &RunOf<Self>) -> Result<Vec<Signal>, Self::Fault>;
    /// Signals of a run that are pending, and those consumed from a segment on.
    fn signals_since(&self, run: &RunOf<Self>, segment: u32) -> Result<Vec<Signal>, Self::Fault>;
    /// Signals that a fork's parent had consumed when the fork was made.
    fn consumed_until(&self, parent: &RunOf<Self>, point: &Point) -> Result<Vec<Signal>, Self::Fault>;
    /// The op that consumed a signal of a run, if one did; none where the run has no such signal.
    fn consumer(&self, run: &RunOf<Self>, signal: SignalId) -> Result<Option<Option<Slot>>, Self::Fault>;
    /// A signal is consumed by an op, in the commit of a number.
    fn consume(&self, run: &RunOf<Self>, signal: SignalId, by: Slot, commit: u64) -> Result<(), Self::Fault>;
    /// What an op consumed is pending again.
    fn give_back(&self, run: &RunOf<Self>, by: Slot) -> Result<(), Self::Fault>;
}

/// What the row of a checkpoint holds.
pub(in crate::storage) struct CheckpointRow<'a> {
    pub sequence: u32,
    /// How many ops the run has of the segment that it ends.
    pub ops: u32,
    pub saved: &'a NewCheckpoint,
    pub usage: &'a UsageTotals,
    pub hash: &'a [u8; 32],
    pub created_at: Timestamp,
}

/// The rows of checkpoints.
pub(in crate::storage) trait Checkpoints: Dialect {
    /// A checkpoint of a run.
    fn checkpoint_at(&self, key: Self::Key, sequence: u32) -> Result<Option<Checkpoint>, Self::Fault>;
    /// Whether a run has a checkpoint.
    fn has_checkpoint(&self, run: &RunOf<Self>, sequence: u32) -> Result<bool, Self::Fault>;
    /// The number of a run's newest checkpoint.
    fn newest_checkpoint(&self, run: &RunOf<Self>) -> Result<Option<u32>, Self::Fault>;
    /// The numbers of a run's checkpoints, newest first.
    fn checkpoint_numbers(&self, run: &RunOf<Self>) -> Result<Vec<u32>, Self::Fault>;
    /// The checkpoints of a run, newest first.
    fn checkpoints(&self, run: &RunOf<Self>) -> Result<Vec<Checkpoint>, Self::Fault>;
    /// Writes a checkpoint of a run.
    fn put_checkpoint(&self, run: &RunOf<Self>, row: CheckpointRow<'_>) -> Result<(), Self::Fault>;
    /// A segment of so many ops has ended.
    fn advance(home: &mut Self::Home, ops: u32);
}

/// Large values.
pub(in crate::storage) trait Payloads: Dialect {
    /// Lets a run's rows refer to a payload; one that is named must be there.
    fn refer(&self, run: &RunOf<Self>, payload: &Payload) -> Result<(), Self::Fault>;
    /// The bytes of a stored payload, checked against their hash.
    fn payload(&self, org: OrgId, hash: &ContentHash, size: u64) -> Result<Bytes, Self::Fault>;
    /// A part of a stored payload. Only reading the whole checks the hash.
    fn payload_part(&self, org: OrgId, hash: &ContentHash, offset: u64, length: usize) -> Result<Bytes, Self::Fault>;
    /// The hash of a value's bytes; `None` when a stored one is damaged.
    fn content_hash(&self, org: OrgId, payload: &Payload) -> Result<Option<[u8; 32]>, Self::Fault>;
}

/// All of a dialect.
pub(in crate::storage) trait Statements:
    Runs + Events + Ops + Entries + Tasks + Signals + Checkpoints + Payloads
{
}

impl<T: Runs + Events + Ops + Entries + Tasks + Signals + Checkpoints + Payloads> Statements for T {}

/// A run of a dialect.
pub(in crate::storage) type RunOf<T> = Run<<T as Dialect>::Home>;
/// A task of a dialect.
pub(in crate::storage) type TaskOf<T> = TaskRow<<T as Dialect>::Place>;
