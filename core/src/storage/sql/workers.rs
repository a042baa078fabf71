//! What workers hold: reports of attempts, runs that are given back, and leases that are cut short.

use super::log::Log;
use super::quarantine::Aside;
use super::{RunOf, Statements, TaskOf};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{AttemptResult, Lease, TaskReport};
use crate::storage::unfenced::Work;
use crate::streaming::OpKey;
use std::time::Duration;

/// The queries for what workers hold, and for what waits for them.
pub(in crate::storage) trait Workers: Statements {
    /// Locks the runs of all that a worker holds, on a database with several writers.
    fn lock_held(&self, org: OrgId, worker: WorkerId) -> Result<(), Self::Fault>;
    /// Runs that a worker holds.
    fn held_runs(&self, org: OrgId, worker: WorkerId) -> Result<Vec<RunOf<Self>>, Self::Fault>;
    /// The tasks of queues whose attempt a worker has under a lease.
    fn held_tasks(&self, org: OrgId, worker: WorkerId) -> Result<Vec<TaskOf<Self>>, Self::Fault>;
    /// Finds rows that cannot be read and sets them aside.
    fn set_aside(&self) -> Result<Vec<Aside>, Self::Fault>;
    /// The kinds of work that can be claimed in a queue.
    fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work, now: Timestamp) -> Result<Vec<String>, Self::Fault>;
}

/// The error for a report of an attempt that is no longer the current one.
pub(in crate::storage) fn superseded(report: &TaskReport) -> Error {
    let message = format!("attempt {} of task {} is no longer the one that counts", report.attempt, report.task);
    Error::new(Code::LeaseLost, message)
}

/// Records the end of a claimed attempt, and returns the task's op.
pub(in crate::storage) fn report_task<T: Statements>(
    tx: &T,
    run: &mut RunOf<T>,
    mut row: TaskOf<T>,
    report: &TaskReport,
) -> Result<OpKey, T::Fault> {
    if !row.can_end() || row.task.attempt != report.attempt {
        return Err(superseded(report).into());
    }
    let mut log = Log::open(tx, run)?;
    if let AttemptResult::Completed(output) = &report.result {
        tx.refer(run, output)?;
    }
    let before = (run.status, run.wait.clone());
    row.end_attempt(run, &mut log, report.result.clone())?;
    row.save(tx)?;
    if before != (run.status, run.wait.clone()) {
        run.save(tx)?;
    }
    Ok((row.task.slot.segment, row.task.slot.sequence))
}

/// Gives a run back unfinished. A run that waits for a timer of the sender's process may be given back without a lease.
pub(in crate::storage) fn release<T: Statements>(
    tx: &T,
    org: OrgId,
    execution: ExecutionId,
    lease: Lease,
) -> Result<(), T::Fault> {
    let mut run = tx.find_run(org, execution)?;
    let timed = run.epoch == lease.epoch && run.is_timed_by(lease.worker);
    if !timed {
        run.check_lease(lease)?;
    }
    let mut log = Log::open(tx, &run)?;
    if timed {
        run.lose_host_timer(&mut log)?;
    } else {
        run.give_back(&mut log)?;
    }
    run.save(tx)
}

/// Shortens the leases of a worker to at most `left`: its connection broke, so it is probably dead.
pub(in crate::storage) fn cut_leases<T: Workers>(
    tx: &T,
    org: OrgId,
    worker: WorkerId,
    left: Duration,
) -> Result<(), T::Fault> {
    let cut = tx.now().after(left).0;
    tx.lock_held(org, worker)?;
    for mut run in tx.held_runs(org, worker)? {
        run.lease_expires = run.lease_expires.map(|at| at.min(cut));
        run.save(tx)?;
    }
    for mut row in tx.held_tasks(org, worker)? {
        row.lease_expires = row.lease_expires.map(|at| at.min(cut));
        row.save(tx)?;
    }
    Ok(())
}
