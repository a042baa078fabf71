//! Forks. A fork is a new row that points at a place in its parent, so it costs the same however long the parent is.
//! The parent's rows are read when the fork is loaded, limited to what had happened when the fork was made.

use super::commit::store_checkpoint;
use super::database_error::unknown;
use super::executions::insert;
use super::log::Log;
use super::request::position;
use super::run::Origin;
use super::segment::{inheritance, inherited};
use super::tail::Point;
use super::{CheckpointRow, RunOf, Statements, if_there};
use crate::error::{Code, Error};
use crate::id::{EntryId, OrgId, Slot};
use crate::model::{Checkpoint, EventKind, Execution, ForkFrom, ForkPoint, ForkRequest, RecordedBody};
use crate::payload::Digest;
use serde_json::json;
use std::collections::BTreeSet;

/// Starts a run that shares another one's conversation and journal up to a point. `digest` is that of the new input, if
/// there is one.
pub(in crate::storage) fn fork<T: Statements>(
    tx: &T,
    request: &ForkRequest,
    digest: Option<Digest>,
) -> Result<Execution, T::Fault> {
    let parent = tx.find_run(request.org, request.execution)?;
    let at = fork_point(tx, &parent, request)?;
    let knew_at = if parent.stop.is_some() { tx.told_to_stop(&parent)? } else { None };
    let at = request.before_stop(at, knew_at)?;
    match if_there(tx.execution_of(request.org, request.id))? {
        Some(there) if there.forked_from == Some(at) => return Ok(there),
        Some(there) => return Err(there.is_in_the_way().into()),
        None => {}
    }
    let (_, base) = position(tx, &parent)?;
    let point = Point { segment: at.segment, sequence: at.sequence, high: tx.high(&parent)?, base };
    let copied = if at.segment > 0 { tx.checkpoint_at(T::key(&parent.home), at.segment)? } else { None };
    if request.state.is_some() && copied.is_none() {
        return Err(invalid(format!("the run {} has no state to replace; fork it without one", request.execution)));
    }
    if request.input.is_some() && copied.is_none() {
        let kept = inheritance(tx, &parent, &point)?.ops.len();
        if kept > 0 {
            return Err(invalid(format!(
                "the input of a fork can only be replaced before the first op; this one keeps {kept} ops"
            )));
        }
    }
    let original = tx.execution(T::key(&parent.home))?;
    let mut new = original.new.clone();
    new.id = request.id;
    new.key = request.key.clone();
    new.delay = None;
    new.traceparent = None;
    if let Some(input) = &request.input {
        new.input_digest = digest.unwrap_or(new.input_digest);
        new.input = input.clone();
    }
    let origin = Origin { parent: T::key(&parent.home), id: parent.id, point };
    let Some(mut run) = insert(tx, &new, Some(&origin), None)? else {
        return Err(tx.execution_of(request.org, request.id)?.is_in_the_way().into());
    };
    run.segment = at.segment;
    run.top = at.sequence.map_or(0, |sequence| sequence.saturating_add(1));
    run.code = original.code.filter(|_| copied.is_none());
    run.leaf = match &copied {
        Some(checkpoint) => checkpoint.saved.leaves.get("").copied(),
        None => leaf_at(tx, &parent, &origin.point)?,
    };
    if let Some(mut copy) = copied {
        if let Some(state) = &request.state {
            copy.hash = Checkpoint::content_hash(copy.sequence, &state.settled_hash(), &copy.saved.leaves, &copy.usage);
            copy.saved.state = state.clone();
        }
        let Checkpoint { saved, usage, hash, created_at, sequence, .. } = &copy;
        let row = CheckpointRow { sequence: *sequence, ops: 0, saved, usage, hash, created_at: *created_at };
        store_checkpoint(tx, &run, row)?;
    }
    let mut log = Log::open(tx, &run)?;
    let data = json!({ "execution": at.execution.to_string(), "segment": at.segment, "sequence": at.sequence });
    log.event(EventKind::Forked, &data)?;
    run.save(tx)?;
    tx.execution(T::key(&run.home))
}

fn fork_point<T: Statements>(tx: &T, run: &RunOf<T>, request: &ForkRequest) -> Result<ForkPoint, T::Fault> {
    let execution = request.execution;
    let at_op = |slot: Slot| ForkPoint { execution, segment: slot.segment, sequence: Some(slot.sequence) };
    let at_checkpoint = |segment| ForkPoint { execution, segment, sequence: None };
    let newest = tx.newest_checkpoint(run)?;
    let with_state = newest.is_some();
    match request.from {
        ForkFrom::Checkpoint(sequence) => match tx.has_checkpoint(run, sequence)? {
            true => Ok(at_checkpoint(sequence)),
            false => Err(invalid(format!("the run {execution} has no checkpoint {sequence}"))),
        },
        ForkFrom::Op(_) if with_state => {
            Err(invalid(format!("the run {execution} has state: fork it at a checkpoint or an entry")))
        }
        ForkFrom::Op(slot) if has_op(tx, run, slot)? => Ok(at_op(slot)),
        ForkFrom::Op(slot) => Err(invalid(format!("the run {execution} has no op {slot}"))),
        ForkFrom::Entry(entry) if with_state => checkpoint_above(tx, request.org, run, entry)?
            .map(at_checkpoint)
            .ok_or_else(|| invalid(format!("no checkpoint of the run {execution} is at or above {entry}"))),
        ForkFrom::Entry(entry) => {
            if tx.depth_of(request.org, entry)?.is_none() {
                return Err(unknown("entry", entry).into());
            }
            let slot = match tx.slot_of_entry(run, entry)? {
                Some(slot) => Some(slot),
                None => inherited(tx, T::key(&run.home))?.ops.into_iter().find_map(|op| match op.op.body {
                    RecordedBody::Entry { id, .. } if id == entry => {
                        Some(Slot { segment: op.op.segment, sequence: op.op.sequence })
                    }
                    _ => None,
                }),
            };
            slot.map(at_op).ok_or_else(|| invalid(format!("the entry {entry} is not on the run {execution}")))
        }
        ForkFrom::Latest => match newest {
            Some(newest) => Ok(at_checkpoint(newest)),
            None => Ok(last_op(tx, run)?.map_or_else(|| at_checkpoint(0), at_op)),
        },
    }
}

fn has_op<T: Statements>(tx: &T, run: &RunOf<T>, slot: Slot) -> Result<bool, T::Fault> {
    let inherits = |slot: Slot| -> Result<bool, T::Fault> {
        let ops = inherited(tx, T::key(&run.home))?.ops;
        Ok(ops.iter().any(|op| op.op.segment == slot.segment && op.op.sequence == slot.sequence))
    };
    if slot.segment != run.segment {
        return Ok(false);
    }
    Ok(tx.label_at(T::place(run, slot.sequence)?)?.is_some() || inherits(slot)?)
}

/// The last entry of the main thread up to a point of a run without checkpoints.
fn leaf_at<T: Statements>(tx: &T, parent: &RunOf<T>, point: &Point) -> Result<Option<EntryId>, T::Fault> {
    let Some(sequence) = point.sequence else { return Ok(None) };
    let own = tx.last_entry(parent, Slot { segment: point.segment, sequence })?;
    if own.is_some() || !parent.forked {
        return Ok(own);
    }
    let above = inherited(tx, T::key(&parent.home))?.ops;
    Ok(above.iter().rev().filter(|op| op.op.sequence <= sequence).find_map(|op| match &op.op.body {
        RecordedBody::Entry { id, thread, .. } if thread.is_empty() => Some(*id),
        _ => None,
    }))
}

/// The last op of a run without checkpoints.
fn last_op<T: Statements>(tx: &T, run: &RunOf<T>) -> Result<Option<Slot>, T::Fault> {
    if let Some(sequence) = tx.last_sequence(run)? {
        return Ok(Some(Slot { segment: run.segment, sequence }));
    }
    let ops = inherited(tx, T::key(&run.home))?.ops;
    Ok(ops.last().map(|op| Slot { segment: op.op.segment, sequence: op.op.sequence }))
}

/// The last checkpoint whose leaf of the main thread is the entry or one above it.
fn checkpoint_above<T: Statements>(
    tx: &T,
    org: OrgId,
    run: &RunOf<T>,
    entry: EntryId,
) -> Result<Option<u32>, T::Fault> {
    let branch = tx.branch(org, entry, None)?;
    let above: BTreeSet<EntryId> = branch.iter().map(|entry| entry.new.id).collect();
    let counts = |checkpoint: &Checkpoint| checkpoint.saved.leaves.get("").is_some_and(|leaf| above.contains(leaf));
    Ok(tx.checkpoints(run)?.into_iter().find(counts).map(|checkpoint| checkpoint.sequence))
}

fn invalid<F: From<Error>>(message: String) -> F {
    Error::new(Code::InvalidArgument, message).into()
}
