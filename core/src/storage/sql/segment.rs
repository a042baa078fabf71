//! What recovery reads: the last undamaged checkpoint, the tail since it with its facts, and what a fork inherits from
//! its parent.

use super::log::Log;
use super::run::{Ending, Origin};
use super::tail::{Point, Recorded, SegmentFacts, Tail};
use super::{Failing, RunOf, Statements, TaskOf};
use crate::error::{Code, Error};
use crate::id::{ExecutionId, OrgId, Slot};
use crate::model::{Checkpoint, Failure, Lease, Segment, SideEffects, Signal, Status, WaitReason};
use crate::storage::allowance::Allowance;
use std::collections::BTreeMap;

/// What a load finds: the segment, or that something has to be written first. A load is a read, which cannot do that
/// itself.
pub(in crate::storage) enum Loaded {
    Segment(Box<Segment>),
    /// Inline attempts of earlier claims have to be judged, or all checkpoints are damaged.
    NeedsWriting,
}

/// Reads the segment that the holder of a lease starts from.
pub(in crate::storage) fn load<T: Statements>(
    tx: &T,
    org: OrgId,
    execution: ExecutionId,
    lease: Lease,
) -> Result<Loaded, T::Fault> {
    let run = tx.find_run(org, execution)?;
    run.check_lease(lease)?;
    if !lost_inline(tx, &run, lease.epoch)?.is_empty() {
        return Ok(Loaded::NeedsWriting);
    }
    let mut checkpoint = None;
    let mut sequence = run.segment;
    while sequence > 0 && checkpoint.is_none() {
        checkpoint = match tx.checkpoint_at(T::key(&run.home), sequence) {
            Ok(found) => found.filter(|found| is_good(tx, org, found).unwrap_or(false)),
            Err(fault) if fault.is_unreadable() => None,
            Err(fault) => return Err(fault),
        };
        sequence -= 1;
    }
    if checkpoint.is_none() && run.segment > 0 {
        return Ok(Loaded::NeedsWriting);
    }
    let from = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.sequence);
    let tail = tail(tx, &run, from)?;
    Ok(Loaded::Segment(Box::new(Segment {
        execution: tx.execution(T::key(&run.home))?,
        checkpoint,
        tail: tail.ops.into_iter().map(|op| op.op).collect(),
        facts: tail.facts,
        once: tail.once.into_values().collect(),
        high: tx.high(&run)?,
        now: tx.now(),
    })))
}

/// Writes what a load has found to be necessary: judges attempts that were lost with their worker, or pauses a run
/// whose checkpoints are all damaged.
pub(in crate::storage) fn prepare<T: Statements>(
    tx: &T,
    org: OrgId,
    execution: ExecutionId,
    lease: Lease,
) -> Result<Result<(), Error>, T::Fault> {
    let mut run = tx.find_run(org, execution)?;
    run.check_lease(lease)?;
    let lost = lost_inline(tx, &run, lease.epoch)?;
    let mut log = Log::open(tx, &run)?;
    if !lost.is_empty() {
        for mut row in lost {
            row.lose_attempt(&mut run, &mut log)?;
        }
        run.save(tx)?;
        return Ok(Ok(()));
    }
    let tried: Vec<_> = tx.checkpoint_numbers(&run)?.iter().map(u32::to_string).collect();
    let tried = tried.join(", ");
    let message = format!("no checkpoint of the run {execution} has its hash; tried {tried}");
    if run.status == Status::Cancelling {
        run.finish(&mut log, Ending::Cancelled(None, "graceful"))?;
    } else {
        let failure = Failure::new(Code::CorruptCheckpoint, "CorruptCheckpoint", message.clone());
        run.pause(&mut log, WaitReason::Quarantined, Some(&failure))?;
    }
    run.save(tx)?;
    Ok(Err(Error::new(Code::CorruptCheckpoint, message).with("tried", tried)))
}

/// Inline attempts of earlier claims that must not simply be started again, since they are not idempotent.
fn lost_inline<T: Statements>(tx: &T, run: &RunOf<T>, epoch: u64) -> Result<Vec<TaskOf<T>>, T::Fault> {
    let lost = |row: &TaskOf<T>| {
        let careful = row.task.new.options.side_effects != SideEffects::Idempotent;
        row.runs_inline() && row.epoch < epoch && careful
    };
    Ok(tx.open_tasks(run)?.into_iter().filter(lost).collect())
}

fn is_good<T: Statements>(tx: &T, org: OrgId, checkpoint: &Checkpoint) -> Result<bool, T::Fault> {
    let Some(state) = tx.content_hash(org, &checkpoint.saved.state)? else { return Ok(false) };
    let leaves = &checkpoint.saved.leaves;
    Ok(checkpoint.hash == Checkpoint::content_hash(checkpoint.sequence, &state, leaves, &checkpoint.usage))
}

/// The ops from a segment on and those of unfinished `once`s before it, with their facts. For a fork, the inherited
/// ones too.
fn tail<T: Statements>(tx: &T, run: &RunOf<T>, from: u32) -> Result<Tail, T::Fault> {
    let mut tail = if run.forked { inherited(tx, T::key(&run.home))? } else { Tail::default() };
    let own = own(tx, run, from, &mut tail)?;
    let mut allowance = Allowance::default();
    let ended = own.iter().filter(|op| op.fact.is_some() && op.is_task());
    let tasks = tx.tasks_at(run, &ended.map(Recorded::slot).collect::<Vec<_>>(), &mut allowance)?;
    let detached = tx.detached_ended(run, from, &mut allowance)?;
    let mut rows = SegmentFacts { tasks, detached, signals: signals(tx, run, from)?, stop: None };
    if let Some(stop) = run.stop.filter(|stop| stop.number > 0) {
        rows.stop = Some(stop.fact(tx.event_time(run, stop.number)?.unwrap_or_default()));
    }
    tail.add(own, rows, from);
    Ok(tail)
}

/// A run's own ops from a segment on and those of unfinished `once`s before it. Drops all others from `inherited`.
pub(super) fn own<T: Statements>(
    tx: &T,
    run: &RunOf<T>,
    from: u32,
    inherited: &mut Tail,
) -> Result<Vec<Recorded>, T::Fault> {
    Ok(inherited.choose(tx.ops_from(run, from)?, tx.ops_of_onces(run)?, from))
}

/// Pending signals, and those consumed from a segment on or by an unfinished `once` before it.
fn signals<T: Statements>(tx: &T, run: &RunOf<T>, from: u32) -> Result<Vec<Signal>, T::Fault> {
    let since = if from > 0 && !tx.ops_of_onces(run)?.is_empty() { 0 } else { from };
    tx.signals_since(run, since)
}

/// What a fork inherits from its parent, as the parent was when the fork was made. Nothing for a run that is no fork.
pub(super) fn inherited<T: Statements>(tx: &T, fork: T::Key) -> Result<Tail, T::Fault> {
    let Some(Origin { parent, point, .. }) = tx.origin(fork)? else { return Ok(Tail::default()) };
    let Some(parent) = tx.peek_run(parent)? else { return Ok(Tail::default()) };
    inheritance(tx, &parent, &point)
}

/// What a fork at a point of `parent` inherits: settled ops with their outcomes, and finished `once`s.
pub(super) fn inheritance<T: Statements>(tx: &T, parent: &RunOf<T>, point: &Point) -> Result<Tail, T::Fault> {
    let above = if parent.forked { inherited(tx, T::key(&parent.home))? } else { Tail::default() };
    let mut own = match point.sequence {
        Some(sequence) => tx.ops_until(parent, Slot { segment: point.segment, sequence })?,
        None => tx.ops_of_onces(parent)?,
    };
    own.retain(|op| point.reaches(op));
    let consumed = tx.consumed_until(parent, point)?;
    let tasks = parent_tasks(tx, parent, point, &own)?;
    Ok(point.inherit(above, own, consumed, &tasks))
}

/// Tasks of the parent that a fork may refer to, by place.
fn parent_tasks<T: Statements>(
    tx: &T,
    parent: &RunOf<T>,
    point: &Point,
    own: &[Recorded],
) -> Result<BTreeMap<Slot, TaskOf<T>>, T::Fault> {
    let mut allowance = Allowance::default();
    let slots: Vec<Slot> = own.iter().filter(|op| op.is_task()).map(Recorded::slot).collect();
    let mut tasks = tx.tasks_at(parent, &slots, &mut allowance)?;
    tasks.extend(tx.detached_until(parent, point.segment, &mut allowance)?);
    Ok(tasks.into_iter().map(|row| (row.task.slot, row)).collect())
}
