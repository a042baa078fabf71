//! What a dialect does for the algorithms here: one trait for each sort of row, all implemented by its open
//! transaction.
//!
//! A method stands for one statement. A dialect may save statements by remembering: PostgreSQL reads a run's last event
//! together with its lock, and collects written rows until the next statement that needs an answer.

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
    OnParentEnd, OpKind, Purse, Signal, StartLimits, TaskStatus, UsageTotals,
};
use crate::payload::{ContentHash, Payload, RowOf};
use crate::storage::Standing;
use crate::storage::allowance::Allowance;
use crate::storage::ledger::Account;
use crate::streaming::Change;
use bytes::Bytes;
use std::cell::RefCell;

/// Why a statement or a command failed: it was refused, or the database failed.
pub(in crate::storage) trait Failing: From<Error> {
    /// The error of a refusal. `Err` with the fault if the database failed.
    fn answer(self) -> Result<Error, Self>;
    /// The error to answer a command with, if nothing was changed and the transaction can go on. `Err` with the fault
    /// if the transaction has to be undone.
    fn refusal(self, asked: &str) -> Result<Error, Self>;
    /// Whether a stored row could not be read.
    fn is_unreadable(&self) -> bool;
}

/// Turns a refusal, such as "not found", into none. Faults of the database stay.
pub(in crate::storage) fn if_there<T, F: Failing>(found: Result<T, F>) -> Result<Option<T>, F> {
    match found.map_err(Failing::answer) {
        Ok(found) => Ok(Some(found)),
        Err(Ok(_)) => Ok(None),
        Err(Err(fault)) => Err(fault),
    }
}

/// An open transaction: how it names rows, its time, and what it will announce.
pub(in crate::storage) trait Dialect: Sized {
    type Fault: Failing;
    /// Where a run's rows are, with what only this dialect knows of a run.
    type Home;
    /// The key of a run's rows.
    type Key: Copy;
    /// The key of an op's row.
    type Place: Copy;

    /// The home of a new run of an org. It is completed when the run gets its number.
    fn home(org: OrgId) -> Self::Home;
    /// The org of a run.
    fn org(home: &Self::Home) -> OrgId;
    /// The key of a run's rows.
    fn key(home: &Self::Home) -> Self::Key;
    /// The store's time, the same for the whole transaction.
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
    /// Announces that housekeeping has to look at this time.
    fn due(&self, at: i64) {
        self.news().borrow_mut().due(at);
    }
}

/// The rows of runs.
pub(in crate::storage) trait Runs: Dialect {
    /// The run of an org with an id, or `ExecutionNotFound`. A transaction that writes locks it: nobody else changes it
    /// before the transaction ends.
    fn find_run(&self, org: OrgId, id: ExecutionId) -> Result<RunOf<Self>, Self::Fault>;
    /// Takes back a run that a command has saved, with the number of its last event: the next command of the transaction
    /// that asks for it need not read it again. Where a read is cheap there is nothing to do.
    fn put_back(&self, _run: RunOf<Self>, _high: u64) {}
    /// The run of a key, without a lock.
    fn peek_run(&self, key: Self::Key) -> Result<Option<RunOf<Self>>, Self::Fault>;
    /// The whole run of a key.
    fn execution(&self, key: Self::Key) -> Result<Execution, Self::Fault>;
    /// The whole run of an id, or `ExecutionNotFound`.
    fn execution_of(&self, org: OrgId, id: ExecutionId) -> Result<Execution, Self::Fault>;
    /// The last event and the status of some runs of an org.
    fn standings(&self, org: OrgId, ids: &[ExecutionId]) -> Result<Vec<Standing>, Self::Fault>;
    /// Writes a new run and gives it its number. False if its id is taken.
    fn insert_run(
        &self,
        run: &mut RunOf<Self>,
        new: &NewExecution,
        limits: &StartLimits,
        origin: Option<&Origin<Self::Key>>,
    ) -> Result<bool, Self::Fault>;
    /// Writes several new runs before they are written one by one, by [`insert_run`](Self::insert_run). Where a write is
    /// cheap there is nothing to do.
    fn insert_together(&self, _runs: &[(RunOf<Self>, NewExecution, StartLimits)]) -> Result<(), Self::Fault> {
        Ok(())
    }
    /// Where a fork comes from. None for a run that is no fork.
    fn origin(&self, key: Self::Key) -> Result<Option<Origin<Self::Key>>, Self::Fault>;
    /// A fork that was made of the run since its end. `end` is the number of the event of the end.
    fn forked_since(&self, run: &RunOf<Self>, end: u64) -> Result<Option<ExecutionId>, Self::Fault>;
    /// The children of a run that have not ended, in the order in which they were started, each with what becomes of it
    /// when the run ends.
    fn open_children(&self, run: &RunOf<Self>) -> Result<Vec<(ExecutionId, OnParentEnd)>, Self::Fault>;
    /// Reads the runs below a run that have not ended, down to those that go on without their parent, with what a request
    /// to stop them needs: locked from the top downwards, before the command reads them one by one. Where a read is cheap
    /// there is nothing to do.
    fn gather_below(&self, _run: &RunOf<Self>) -> Result<(), Self::Fault> {
        Ok(())
    }
    /// The accounts of a run and of all runs above it, from itself upwards. A transaction that writes locks them.
    fn accounts(&self, org: OrgId, id: ExecutionId) -> Result<Vec<Account>, Self::Fault>;
    /// Writes what a run has of the budgets of its family.
    fn put_purse(&self, org: OrgId, id: ExecutionId, purse: &Purse) -> Result<(), Self::Fault>;
    /// Writes to which run a run has handed off.
    fn put_handed_to(&self, run: &RunOf<Self>, to: ExecutionId) -> Result<(), Self::Fault>;
    /// Writes all columns that may have changed.
    fn save_run(&self, run: &RunOf<Self>) -> Result<(), Self::Fault>;
    /// Writes only the columns that change with a commit that changes no status.
    fn save_progress(&self, run: &RunOf<Self>) -> Result<(), Self::Fault>;
    /// Takes a place among the RUNNING runs of its concurrency key. False if the key is at its limit.
    fn take_slot(&self, run: &mut RunOf<Self>) -> Result<bool, Self::Fault>;
    /// Writes the output or the failure of a run that has ended.
    fn put_end(
        &self,
        run: &RunOf<Self>,
        output: Option<&Payload>,
        failure: Option<&Failure>,
    ) -> Result<(), Self::Fault>;
    /// Writes why a run is paused. None if it is not paused any more.
    fn put_failure(&self, run: &RunOf<Self>, failure: Option<&Failure>) -> Result<(), Self::Fault>;
    /// What the run has used so far.
    fn usage(&self, run: &RunOf<Self>) -> Result<UsageTotals, Self::Fault>;
    /// Writes what the run has used so far.
    fn put_usage(&self, run: &RunOf<Self>, totals: &UsageTotals) -> Result<(), Self::Fault>;
    /// Writes its limits.
    fn put_limits(&self, run: &RunOf<Self>, limits: &StartLimits) -> Result<(), Self::Fault>;
    /// Whether this request has resumed it before.
    fn has_resumed(&self, run: &RunOf<Self>, request: RequestId) -> Result<bool, Self::Fault>;
    /// Notes that this request has resumed it.
    fn put_resume(&self, run: &RunOf<Self>, request: RequestId) -> Result<(), Self::Fault>;
}

/// The events of runs and the commits that are recorded on them.
pub(in crate::storage) trait Events: Dialect {
    /// The number of a run's last event; 0 before the first.
    fn high(&self, run: &RunOf<Self>) -> Result<u64, Self::Fault>;
    /// The time of an event of a run.
    fn event_time(&self, run: &RunOf<Self>, number: u64) -> Result<Option<Timestamp>, Self::Fault>;
    /// Writes an event, with the commit that is recorded on it.
    fn put_event(&self, key: Self::Key, event: Numbered, commit: Option<&Request>) -> Result<(), Self::Fault>;
    /// Records a commit on a run's last event, which is stored already. If that event has the record of the commit
    /// `before`, that record moves to the table `commit_request`.
    fn attach(&self, key: Self::Key, commit: &Request, before: Option<&Request>) -> Result<(), Self::Fault>;
    /// The number of a run's last event and the last commit of its epoch.
    fn last_request(&self, run: &RunOf<Self>) -> Result<(u64, Option<Request>), Self::Fault>;
    /// A commit of a run's epoch by its id.
    fn request_of(&self, run: &RunOf<Self>, id: RequestId) -> Result<Option<Request>, Self::Fault>;
    /// Deletes the records of a run's commits in `commit_request`.
    fn forget_aside(&self, run: &RunOf<Self>) -> Result<(), Self::Fault>;
    /// Facts with a number above `after` and up to `until`, in order. With `from`, only those that matter from that
    /// segment on.
    fn facts(&self, run: &RunOf<Self>, after: u64, until: u64, from: Option<u32>) -> Result<Vec<Fact>, Self::Fault>;
}

/// The columns of an op that has no other row, such as that of a task or an entry.
pub(in crate::storage) struct OpRow<'a> {
    pub kind: OpKind,
    /// When its timer fires.
    pub due: Option<Timestamp>,
    /// Of a read: how often it gave its answer. Of an `abandon`: the sequence of the abandoned op.
    pub count: Option<u32>,
    /// Of a usage: the model and the usage, as JSON.
    pub data: Option<String>,
    /// Of an attach: the task. Of a spawn: the child. Of a `once`: the digest of its input.
    pub target: Option<&'a [u8]>,
    /// Of a read: the answer. Of a `once`: the result.
    pub value: Option<&'a Payload>,
}

/// The rows of ops that are neither tasks nor entries.
pub(in crate::storage) trait Ops: Dialect {
    /// The place of an op of the run's current segment.
    fn place(run: &RunOf<Self>, sequence: u32) -> Result<Self::Place, Self::Fault>;
    /// The label of the op at a place, of whatever kind. None if the place is free. A fork's inherited ops are not
    /// looked at.
    fn label_at(&self, place: Self::Place) -> Result<Option<Label>, Self::Fault>;
    /// The child, not ended yet, that the op at a place started.
    fn child_at(&self, place: Self::Place) -> Result<Option<ExecutionId>, Self::Fault>;
    /// Writes an op that has no other row.
    fn put_op(&self, run: &RunOf<Self>, slot: Slot, op: &NewOp, row: OpRow<'_>) -> Result<(), Self::Fault>;
    /// Writes how often a read has given its answer.
    fn count_reads(&self, place: Self::Place, count: u32) -> Result<(), Self::Fault>;
    /// Disarms the timer of an op. The time for which it was set is kept.
    fn disarm(&self, place: Self::Place) -> Result<(), Self::Fault>;
    /// Disarms all timers of a run. The times for which they were set are kept.
    fn disarm_all(&self, run: &RunOf<Self>) -> Result<(), Self::Fault>;
    /// Arms a disarmed timer of an op again, for the time that was kept.
    fn rearm(&self, run: &RunOf<Self>, slot: Slot) -> Result<(), Self::Fault>;
    /// Marks an `abandon` op as one that counts no more.
    fn undo(&self, run: &RunOf<Self>, slot: Slot) -> Result<(), Self::Fault>;
    /// A run's own ops from a segment on, in order.
    fn ops_from(&self, run: &RunOf<Self>, segment: u32) -> Result<Vec<Recorded>, Self::Fault>;
    /// A run's own ops up to one of them, in order.
    fn ops_until(&self, run: &RunOf<Self>, last: Slot) -> Result<Vec<Recorded>, Self::Fault>;
    /// A run's own ops that are inside a `once`, in order.
    fn ops_of_onces(&self, run: &RunOf<Self>) -> Result<Vec<Recorded>, Self::Fault>;
    /// The sequence of the last op of its own of a run without checkpoints.
    fn last_sequence(&self, run: &RunOf<Self>) -> Result<Option<u32>, Self::Fault>;
    /// The sequence of the first op, in a run without checkpoints, whose code knew of a request to stop.
    fn told_to_stop(&self, run: &RunOf<Self>) -> Result<Option<u32>, Self::Fault>;
}

/// The rows of entries.
pub(in crate::storage) trait Entries: Dialect {
    /// The depth of the parent of a new entry.
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
    /// The entries from the root to a leaf, or only those after one of them.
    fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>, Self::Fault>;
}

/// The rows of tasks.
pub(in crate::storage) trait Tasks: Dialect {
    /// The task at a place.
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
    /// The ended detached tasks of a run from the segments before one.
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
    /// The task of an id, if it has not ended.
    fn open_task(&self, org: OrgId, id: TaskId) -> Result<Option<TaskOf<Self>>, Self::Fault>;
    /// The task of an id, of a run.
    fn task_by_id(&self, run: &RunOf<Self>, id: TaskId) -> Result<Option<TaskOf<Self>>, Self::Fault>;
    /// The results of some tasks of an org, in the order asked.
    fn outputs(&self, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>, Self::Fault>;
    /// Writes a new task. `due` is when housekeeping must look at it. `options` is none for the default options.
    fn put_task(
        &self,
        task: &TaskOf<Self>,
        op: &NewOp,
        due: Option<i64>,
        options: Option<String>,
    ) -> Result<(), Self::Fault>;
    /// Writes all columns of a task that may have changed.
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

    /// Open tasks that end with their run: all that are not detached, and detached ones that would need another
    /// attempt.
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
    /// The stored signal with the id or the idempotency key of a new one, with its name and its value.
    fn known_signal(
        &self,
        run: &RunOf<Self>,
        new: &NewSignal,
    ) -> Result<Option<(SignalId, String, Payload)>, Self::Fault>;
    /// Whether the number of a run's pending signals is at its limit.
    fn has_full_mailbox(&self, run: &RunOf<Self>) -> Result<bool, Self::Fault>;
    /// Writes a signal. `number` is that of its event.
    fn put_signal(&self, run: &RunOf<Self>, number: u64, new: &NewSignal) -> Result<(), Self::Fault>;
    /// Signals of a run that nothing has consumed, oldest first.
    fn pending_signals(&self, run: &RunOf<Self>) -> Result<Vec<Signal>, Self::Fault>;
    /// Signals of a run that are pending, and those consumed from a segment on.
    fn signals_since(&self, run: &RunOf<Self>, segment: u32) -> Result<Vec<Signal>, Self::Fault>;
    /// Signals that a fork's parent had consumed when the fork was made.
    fn consumed_until(&self, parent: &RunOf<Self>, point: &Point) -> Result<Vec<Signal>, Self::Fault>;
    /// Who consumed a signal: none if the run has no such signal, `Some(None)` if it is pending, else the op.
    fn consumer(&self, run: &RunOf<Self>, signal: SignalId) -> Result<Option<Option<Slot>>, Self::Fault>;
    /// Notes that an op has consumed a signal, in the commit of this number.
    fn consume(&self, run: &RunOf<Self>, signal: SignalId, by: Slot, commit: u64) -> Result<(), Self::Fault>;
    /// Makes the signals pending again that an op has consumed, in the commit of this number. Forks that were made before
    /// it keep them.
    fn give_back(&self, run: &RunOf<Self>, by: Slot, commit: u64) -> Result<(), Self::Fault>;
}

/// The columns of a checkpoint.
pub(in crate::storage) struct CheckpointRow<'a> {
    pub sequence: u32,
    /// The number of ops in the segment that it ends.
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
    /// Notes in a run's home that a segment of so many ops has ended.
    fn advance(home: &mut Self::Home, ops: u32);
}

/// Large values.
pub(in crate::storage) trait Payloads: Dialect {
    /// Notes that a run's rows refer to a payload, so that it is not collected. Fails if a named payload is not stored.
    fn refer(&self, run: &RunOf<Self>, payload: &Payload) -> Result<(), Self::Fault>;
    /// The bytes of a stored payload, checked against their hash.
    fn payload(&self, org: OrgId, hash: &ContentHash, size: u64) -> Result<Bytes, Self::Fault>;
    /// A part of a stored payload. Its hash is not checked, since that needs the whole.
    fn payload_part(&self, org: OrgId, hash: &ContentHash, offset: u64, length: usize) -> Result<Bytes, Self::Fault>;
    /// The hash of a value's bytes. None if a stored value is damaged.
    fn content_hash(&self, org: OrgId, payload: &Payload) -> Result<Option<[u8; 32]>, Self::Fault>;
}

/// All statements of a dialect.
pub(in crate::storage) trait Statements:
    Runs + Events + Ops + Entries + Tasks + Signals + Checkpoints + Payloads
{
}

impl<T: Runs + Events + Ops + Entries + Tasks + Signals + Checkpoints + Payloads> Statements for T {}

/// A run of a dialect.
pub(in crate::storage) type RunOf<T> = Run<<T as Dialect>::Home>;
/// A task of a dialect.
pub(in crate::storage) type TaskOf<T> = TaskRow<<T as Dialect>::Place>;
