//! Forks: a new row that points at the place in its parent it starts from. What the parent had there is read when the
//! fork is loaded, limited to what had happened when the fork was made, so a fork costs the same however long the parent.

use super::commit::store_checkpoint;
use super::executions::{insert, unknown};
use super::fault::{Done, Fault};
use super::op::{depth_of, label_at, place};
use super::request::position;
use super::run::{Run, execution_at, execution_of};
use super::segment::{checkpoint_at, checkpoints, inheritance, inherited};
use super::sets::row;
use super::tx::{Log, Tx, none};
use super::values::seen_bytes;
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
    match none(execution_of(tx, request.org, request.id))? {
        Some(there) if there.forked_from == Some(at) => return Ok(there),
        Some(there) => return Err(there.is_in_the_way().into()),
        None => {}
    }
    let (_, base) = position(&parent);
    let high = parent.home.last.as_ref().map_or(0, |last| last.high);
    let point = Point { segment: at.segment, sequence: at.sequence, high, base };
    let copied = if at.segment > 0 { checkpoint_at(tx, parent.home.key, at.segment)? } else { None };
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
    let original = execution_at(tx, parent.home.key)?;
    let mut new = original.new.clone();
    new.id = request.id;
    new.key = request.key.clone();
    new.delay = None;
    new.traceparent = None;
    if let Some(input) = &request.input {
        new.input_digest = digest.unwrap_or(new.input_digest);
        new.input = input.clone();
    }
    let Some(mut run) = insert(tx, &new, Some((parent.home.key.run, at, point.high, point.base)))? else {
        return Err(execution_of(tx, request.org, request.id)?.is_in_the_way().into());
    };
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
        store_checkpoint(tx, &run, *sequence, saved, usage, hash, *created_at)?;
    }
    let mut log = Log::open(tx, &run)?;
    let data = json!({ "execution": at.execution.to_string(), "segment": at.segment, "sequence": at.sequence });
    log.event(EventKind::Forked, &data)?;
    run.save(tx)?;
    execution_at(tx, run.home.key)
}

fn fork_point(tx: &Tx, run: &Run, request: &ForkRequest) -> Done<ForkPoint> {
    let execution = request.execution;
    let at_op = |slot: Slot| ForkPoint { execution, segment: slot.segment, sequence: Some(slot.sequence) };
    let at_checkpoint = |segment| ForkPoint { execution, segment, sequence: None };
    let (org, row) = (run.home.key.org, run.home.key.run);
    let newest: Option<u32> = tx.first(
        "SELECT sequence FROM agent_checkpoint WHERE org_id = $1 AND run = $2 ORDER BY sequence DESC LIMIT 1",
        row![org.0, row],
        |row| row.get(0),
    )?;
    let with_state = newest.is_some();
    match request.from {
        ForkFrom::Checkpoint(sequence) => {
            let sql = "SELECT sequence FROM agent_checkpoint WHERE org_id = $1 AND run = $2 AND sequence = $3";
            match tx.first(sql, row![org.0, row, sequence], |row| row.get::<u32>(0))? {
                Some(_) => Ok(at_checkpoint(sequence)),
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
                "SELECT segment, sequence FROM agent_entry WHERE org_id = $1 AND id = $2 AND run = $3",
                row![org.0, entry.0, row],
                |row| Ok(Slot { segment: row.get(0)?, sequence: row.get(1)? }),
            )?;
            let slot = match own {
                Some(slot) => Some(slot),
                None => inherited(tx, run.home.key)?.ops.into_iter().find_map(|op| match op.op.body {
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

fn has_op(tx: &Tx, run: &Run, slot: Slot) -> Done<bool> {
    let inherits = |slot: Slot| -> Done<bool> {
        let ops = inherited(tx, run.home.key)?.ops;
        Ok(ops.iter().any(|op| op.op.segment == slot.segment && op.op.sequence == slot.sequence))
    };
    if slot.segment != run.segment {
        return Ok(false);
    }
    Ok(label_at(tx, place(run, slot.sequence))?.is_some() || inherits(slot)?)
}

/// The last entry of the main thread up to a point of a run without checkpoints; entries are always part of a fork.
fn leaf_at(tx: &Tx, parent: &Run, point: &Point) -> Done<Option<EntryId>> {
    let Some(sequence) = point.sequence else { return Ok(None) };
    let own = tx.first(
        "SELECT id FROM agent_entry WHERE org_id = $1 AND run = $2 AND segment = $3 AND sequence <= $4 AND thread = '' \
         ORDER BY segment DESC, sequence DESC LIMIT 1",
        row![parent.home.key.org.0, parent.home.key.run, point.segment, sequence],
        |row| row.get(0).map(EntryId),
    )?;
    if own.is_some() || parent.forked.is_none() {
        return Ok(own);
    }
    let above = inherited(tx, parent.home.key)?.ops;
    Ok(above.iter().rev().filter(|op| op.op.sequence <= sequence).find_map(|op| match &op.op.body {
        RecordedBody::Entry { id, thread, .. } if thread.is_empty() => Some(*id),
        _ => None,
    }))
}

/// The last op of a run without checkpoints.
fn last_op(tx: &Tx, run: &Run) -> Done<Option<Slot>> {
    let own: Option<u32> = tx
        .first(
            "SELECT max(sequence) FROM (SELECT max(sequence) AS sequence FROM agent_op WHERE org_id = $1 AND run = $2 \
             UNION ALL SELECT max(sequence) FROM agent_entry WHERE org_id = $1 AND run = $2 \
             UNION ALL SELECT max(sequence) FROM task_execution WHERE org_id = $1 AND run = $2) AS ops",
            row![run.home.key.org.0, run.home.key.run],
            |row| row.get(0),
        )?
        .flatten();
    if let Some(sequence) = own {
        return Ok(Some(Slot { segment: run.segment, sequence }));
    }
    let ops = inherited(tx, run.home.key)?.ops;
    Ok(ops.last().map(|op| Slot { segment: op.op.segment, sequence: op.op.sequence }))
}

/// The first op of a run without checkpoints that knew of a request to stop.
fn told_to_stop(tx: &Tx, run: &Run) -> Done<Option<u32>> {
    let told = tx.first(
        "SELECT min(sequence) FROM (SELECT sequence, seen FROM agent_op WHERE org_id = $1 AND run = $2 \
         UNION ALL SELECT sequence, seen FROM agent_entry WHERE org_id = $1 AND run = $2 \
         UNION ALL SELECT sequence, seen FROM task_execution WHERE org_id = $1 AND run = $2) AS ops \
         WHERE position($3 IN seen) > 0",
        row![run.home.key.org.0, run.home.key.run, seen_bytes(&[Seen::CANCEL])],
        |row| row.get(0),
    )?;
    Ok(told.flatten())
}

/// The last checkpoint whose main leaf is the entry or one above it.
fn checkpoint_above(tx: &Tx, org: OrgId, run: &Run, entry: EntryId) -> Done<Option<u32>> {
    let branch = super::segment::branch(tx, org, entry, None)?;
    let above: BTreeSet<EntryId> = branch.iter().map(|entry| entry.new.id).collect();
    let counts = |checkpoint: &Checkpoint| checkpoint.saved.leaves.get("").is_some_and(|leaf| above.contains(leaf));
    Ok(checkpoints(tx, run.home.key)?.into_iter().find(counts).map(|checkpoint| checkpoint.sequence))
}

fn invalid(message: String) -> Fault {
    Error::new(Code::InvalidArgument, message).into()
}
