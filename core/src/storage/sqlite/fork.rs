//! Forks: a new row that points at the place in its parent it starts from. What the parent had there is read when the
//! fork is loaded, limited to what had happened when the fork was made, so a fork costs the same however long the parent.

use super::commit::store_checkpoint;
use super::executions::{insert, unknown};
use super::fault::{Done, Fault};
use super::op::depth_of;
use super::request::position;
use super::run::{Run, execution_at, execution_of};
use super::segment::{checkpoint, checkpoints, inheritance, inherited, select_checkpoint};
use super::tx::{Log, Tx, high};
use super::values::{blob, key, seen_bytes, span};
use crate::error::{Code, Error};
use crate::id::{EntryId, OrgId, Slot};
use crate::model::{Checkpoint, EventKind, Execution, ForkFrom, ForkPoint, ForkRequest, RecordedBody, Seen};
use crate::payload::Digest;
use crate::storage::sql::tail::Point;
use serde_json::json;
use std::collections::BTreeSet;

/// Starts a run that shares another's tree up to a point. `digest` is that of another input, as it was given.
pub(super) fn fork(tx: &Tx, request: &ForkRequest, digest: Option<Digest>) -> Done<Execution> {
    let parent = Run::find(tx, request.org, request.execution)?;
    let at = fork_point(tx, &parent, request)?;
    let told = if parent.stop.is_some() { told_to_stop(tx, &parent)? } else { None };
    let at = request.before_stop(at, told)?;
    match execution_of(tx, request.org, request.id) {
        Ok(there) if there.forked_from == Some(at) => return Ok(there),
        Ok(there) => return Err(there.is_in_the_way().into()),
        Err(Fault::Domain(_)) => {}
        Err(fault) => return Err(fault),
    }
    let (_, base) = position(tx, &parent)?;
    let point = Point { segment: at.segment, sequence: at.sequence, high: high(tx, parent.home.run)?, base };
    let copied = tx
        .first(
            concat!(select_checkpoint!(), "WHERE c.key = ?1"),
            [key(parent.home.run, i64::from(at.segment))?],
            checkpoint,
        )?
        .filter(|_| at.segment > 0);
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
    let original = execution_at(tx, parent.home.run)?;
    let mut new = original.new.clone();
    new.id = request.id;
    new.key = request.key.clone();
    new.delay = None;
    new.traceparent = None;
    if let Some(input) = &request.input {
        new.input_digest = digest.unwrap_or(new.input_digest);
        new.input = input.clone();
    }
    let mut run = insert(tx, &new, Some((parent.home.run, at, point.high, point.base)))?;
    run.segment = at.segment;
    run.top = at.sequence.map_or(0, |sequence| sequence.saturating_add(1));
    run.code = original.code.filter(|_| copied.is_none());
    run.leaf = match &copied {
        Some(checkpoint) => checkpoint.saved.leaves.get("").copied(),
        None => leaf_at(tx, &parent, &point)?,
    };
    if let Some(mut copy) = copied {
        if let Some(state) = &request.state {
            copy.hash = Checkpoint::content_hash(copy.sequence, &state.settled_hash(), &copy.saved.leaves, &copy.usage);
            copy.saved.state = state.clone();
        }
        let Checkpoint { saved, usage, hash, created_at, sequence, .. } = &copy;
        store_checkpoint(tx, &run, 0, *sequence, saved, usage, hash, *created_at)?;
    }
    let mut log = Log::open(tx, &run)?;
    let data = json!({ "execution": at.execution.to_string(), "segment": at.segment, "sequence": at.sequence });
    log.event(EventKind::Forked, &data)?;
    run.save(tx)?;
    execution_at(tx, run.home.run)
}

fn fork_point(tx: &Tx, run: &Run, request: &ForkRequest) -> Done<ForkPoint> {
    let execution = request.execution;
    let at_op = |slot: Slot| ForkPoint { execution, segment: slot.segment, sequence: Some(slot.sequence) };
    let at_checkpoint = |segment| ForkPoint { execution, segment, sequence: None };
    let newest = tx.first(
        concat!(select_checkpoint!(), "WHERE c.key BETWEEN ?1 AND ?2 ORDER BY c.key DESC LIMIT 1"),
        [span(run.home.run).0, span(run.home.run).1],
        |row| row.get::<_, i64>(0),
    )?;
    let with_state = newest.is_some();
    match request.from {
        ForkFrom::Checkpoint(sequence) => {
            let row = key(run.home.run, i64::from(sequence))?;
            let there = tx.first("SELECT 1 FROM agent_checkpoint WHERE key = ?1", [row], |_| Ok(()))?;
            match there {
                Some(()) => Ok(at_checkpoint(sequence)),
                None => Err(invalid(format!("the run {execution} has no checkpoint {sequence}"))),
            }
        }
        ForkFrom::Op(_) if with_state => {
            Err(invalid(format!("the run {execution} has state: fork it at a checkpoint or an entry")))
        }
        ForkFrom::Op(slot) if has_op(tx, run, slot)? => Ok(at_op(slot)),
        ForkFrom::Op(slot) => Err(invalid(format!("the run {execution} has no op {slot}"))),
        ForkFrom::Entry(entry) if with_state => checkpoint_above(tx, request.org, run, entry)?
            .map(at_checkpoint)
            .ok_or_else(|| invalid(format!("no checkpoint of the run {execution} is at or above {entry}"))),
        ForkFrom::Entry(entry) => {
            if depth_of(tx, request.org, entry)?.is_none() {
                return Err(unknown("entry", entry).into());
            }
            let own: Option<Slot> = tx.first(
                "SELECT segment, sequence FROM agent_entry WHERE id = ?1 AND run = ?2",
                rusqlite::params![blob(&entry.0), run.home.run],
                |row| Ok(Slot { segment: row.get(0)?, sequence: row.get(1)? }),
            )?;
            let slot = match own {
                Some(slot) => Some(slot),
                None => inherited(tx, run.home.run)?.ops.into_iter().find_map(|op| match op.op.body {
                    RecordedBody::Entry { id, .. } if id == entry => {
                        Some(Slot { segment: op.op.segment, sequence: op.op.sequence })
                    }
                    _ => None,
                }),
            };
            slot.map(at_op).ok_or_else(|| invalid(format!("the entry {entry} is not on the run {execution}")))
        }
        ForkFrom::Latest => match newest {
            Some(newest) => Ok(at_checkpoint(super::values::number_of(newest) as u32)),
            None => Ok(last_op(tx, run)?.map_or_else(|| at_checkpoint(0), at_op)),
        },
    }
}

fn has_op(tx: &Tx, run: &Run, slot: Slot) -> Done<bool> {
    let inherits = |slot: Slot| -> Done<bool> {
        let ops = inherited(tx, run.home.run)?.ops;
        Ok(ops.iter().any(|op| op.op.segment == slot.segment && op.op.sequence == slot.sequence))
    };
    if slot.segment != run.segment {
        return Ok(false);
    }
    Ok(super::op::label_at(tx, super::op::place(run, slot.sequence)?)?.is_some() || inherits(slot)?)
}

/// The last entry of the main thread up to a point of a run without checkpoints; entries are always part of a fork.
fn leaf_at(tx: &Tx, parent: &Run, point: &Point) -> Done<Option<EntryId>> {
    let Some(sequence) = point.sequence else { return Ok(None) };
    let (low, high) = (span(parent.home.run).0, super::op::place(parent, sequence)?);
    let own = tx.first(
        "SELECT id FROM agent_entry WHERE place BETWEEN ?1 AND ?2 AND thread = '' ORDER BY place DESC LIMIT 1",
        [low, high],
        |row| super::values::id(row, 0).map(EntryId),
    )?;
    if own.is_some() || parent.forked.is_none() {
        return Ok(own);
    }
    let above = inherited(tx, parent.home.run)?.ops;
    Ok(above.iter().rev().filter(|op| op.op.sequence <= sequence).find_map(|op| match &op.op.body {
        RecordedBody::Entry { id, thread, .. } if thread.is_empty() => Some(*id),
        _ => None,
    }))
}

/// The last op of a run without checkpoints.
fn last_op(tx: &Tx, run: &Run) -> Done<Option<Slot>> {
    let (low, high) = span(run.home.run);
    let own: Option<u32> = tx
        .first(
            "SELECT max(sequence) FROM (SELECT max(sequence) AS sequence FROM agent_op WHERE place BETWEEN ?1 AND ?2 \
         UNION ALL SELECT max(sequence) FROM agent_entry WHERE place BETWEEN ?1 AND ?2 \
         UNION ALL SELECT max(sequence) FROM task_execution WHERE place BETWEEN ?1 AND ?2)",
            [low, high],
            |row| row.get::<_, Option<u32>>(0),
        )?
        .flatten();
    if let Some(sequence) = own {
        return Ok(Some(Slot { segment: run.segment, sequence }));
    }
    let ops = inherited(tx, run.home.run)?.ops;
    Ok(ops.last().map(|op| Slot { segment: op.op.segment, sequence: op.op.sequence }))
}

/// The first op of a run without checkpoints that knew of a request to stop.
fn told_to_stop(tx: &Tx, run: &Run) -> Done<Option<u32>> {
    let (low, high) = span(run.home.run);
    let told = tx.first(
        "SELECT min(sequence) FROM (SELECT sequence, seen FROM agent_op WHERE place BETWEEN ?1 AND ?2 \
         UNION ALL SELECT sequence, seen FROM agent_entry WHERE place BETWEEN ?1 AND ?2 \
         UNION ALL SELECT sequence, seen FROM task_execution WHERE place BETWEEN ?1 AND ?2) WHERE instr(seen, ?3) > 0",
        rusqlite::params![low, high, seen_bytes(&[Seen::CANCEL])],
        |row| row.get(0),
    )?;
    Ok(told.flatten())
}

/// The last checkpoint whose main leaf is the entry or one above it.
fn checkpoint_above(tx: &Tx, org: OrgId, run: &Run, entry: EntryId) -> Done<Option<u32>> {
    let branch = super::segment::branch(tx, org, entry, None)?;
    let above: BTreeSet<EntryId> = branch.iter().map(|entry| entry.new.id).collect();
    let counts = |checkpoint: &Checkpoint| checkpoint.saved.leaves.get("").is_some_and(|leaf| above.contains(leaf));
    Ok(checkpoints(tx, run.home.run)?.into_iter().find(counts).map(|checkpoint| checkpoint.sequence))
}

fn invalid(message: String) -> Fault {
    Error::new(Code::InvalidArgument, message).into()
}
