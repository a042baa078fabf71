//! What recovery reads: the last good checkpoint, the tail since it, and its facts; what a fork has of its parent; and the
//! branch above a leaf.

use super::executions::unknown;
use super::facts::{select_signal, signal};
use super::fault::{Done, Fault};
use super::op::{between, entry, of_onces, select_entry};
use super::run::{Run, execution_at};
use super::sets::{Value, row};
use super::task::{TaskRow, open, select_task};
use super::tx::{Log, Tx, high};
use super::values::{Key, Row, json, payload};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OrgId, Slot};
use crate::model::{
    Checkpoint, Entry, Failure, Lease, NewCheckpoint, Segment, SideEffects, Signal, Status, WaitReason,
};
use crate::storage::PAGE;
use crate::storage::allowance::Allowance;
use crate::storage::sql::run::Ending;
use crate::storage::sql::tail::{Point, Recorded, Tail, Told};
use std::collections::BTreeMap;

/// The columns of [`checkpoint`], after which comes a condition.
macro_rules! select_checkpoint {
    () => {
        "SELECT c.sequence, c.leaves, c.metadata, c.usage, c.hash, c.created_at, c.state, x.id FROM agent_checkpoint c \
         JOIN agent_execution x ON x.org_id = c.org_id AND x.run = c.run "
    };
}
pub(super) use select_checkpoint;

/// Reads the columns of `select_checkpoint!`.
pub(super) fn checkpoint(row: &Row) -> Done<Checkpoint> {
    Ok(Checkpoint {
        execution: ExecutionId(row.get(7)?),
        sequence: row.get(0)?,
        saved: NewCheckpoint { state: payload(row, 6)?, leaves: json(row, 1)?, metadata: row.get(2)? },
        usage: json(row, 3)?,
        hash: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
    })
}

/// The checkpoints of a run, newest first.
pub(super) fn checkpoints(tx: &Tx, key: Key) -> Done<Vec<Checkpoint>> {
    let sql = concat!(select_checkpoint!(), "WHERE c.org_id = $1 AND c.run = $2 ORDER BY c.sequence DESC");
    tx.all(sql, row![key.org.0, key.run], checkpoint)
}

/// A checkpoint of a run.
pub(super) fn checkpoint_at(tx: &Tx, key: Key, sequence: u32) -> Done<Option<Checkpoint>> {
    let sql = concat!(select_checkpoint!(), "WHERE c.org_id = $1 AND c.run = $2 AND c.sequence = $3");
    tx.first(sql, row![key.org.0, key.run, sequence], checkpoint)
}

/// What a load finds: the segment, or that something must be written before it can be read.
pub(super) enum Loaded {
    Segment(Box<Segment>),
    /// Inline attempts of earlier claims must be judged, or no checkpoint is good.
    NeedsWriting,
}

/// Reads what the holder of a lease starts from.
pub(super) fn load(tx: &Tx, org: OrgId, execution: ExecutionId, lease: Lease, now: Timestamp) -> Done<Loaded> {
    let run = Run::find(tx, org, execution)?;
    run.check_lease(lease)?;
    if !lost_inline(tx, &run, lease.epoch)?.is_empty() {
        return Ok(Loaded::NeedsWriting);
    }
    let mut checkpoint = None;
    let mut sequence = run.segment;
    while sequence > 0 && checkpoint.is_none() {
        checkpoint = match checkpoint_at(tx, run.home.key, sequence) {
            Ok(found) => found.filter(|found| is_good(tx, org, found).unwrap_or(false)),
            Err(Fault::Unreadable(_)) => None,
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
        execution: execution_at(tx, run.home.key)?,
        checkpoint,
        tail: tail.ops.into_iter().map(|op| op.op).collect(),
        facts: tail.facts,
        once: tail.once.into_values().collect(),
        high: high(tx, run.home.key)?,
        now,
    })))
}

/// Settles what a load found: attempts that went with their worker, or a run without a good checkpoint.
pub(super) fn prepare(tx: &Tx, org: OrgId, execution: ExecutionId, lease: Lease) -> Done<Result<(), Error>> {
    let mut run = Run::find(tx, org, execution)?;
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
    let tried: Vec<_> = checkpoint_numbers(tx, run.home.key)?.iter().map(u32::to_string).collect();
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

fn checkpoint_numbers(tx: &Tx, key: Key) -> Done<Vec<u32>> {
    let sql = "SELECT sequence FROM agent_checkpoint WHERE org_id = $1 AND run = $2 ORDER BY sequence DESC";
    tx.all(sql, row![key.org.0, key.run], |row| row.get(0))
}

/// Inline attempts of earlier claims that must not simply run again.
fn lost_inline(tx: &Tx, run: &Run, epoch: u64) -> Done<Vec<TaskRow>> {
    let lost = |row: &TaskRow| {
        let careful = row.task.new.options.side_effects != SideEffects::Idempotent;
        row.runs_inline() && row.epoch < epoch && careful
    };
    Ok(open(tx, run)?.into_iter().filter(lost).collect())
}

fn is_good(tx: &Tx, org: OrgId, checkpoint: &Checkpoint) -> Done<bool> {
    let Some(state) = super::payloads::content_hash(tx, org, &checkpoint.saved.state)? else { return Ok(false) };
    let leaves = &checkpoint.saved.leaves;
    Ok(checkpoint.hash == Checkpoint::content_hash(checkpoint.sequence, &state, leaves, &checkpoint.usage))
}

/// Ops from a segment on and of unfinished `once`s before it, with their facts; the parent's first, for a fork.
fn tail(tx: &Tx, run: &Run, from: u32) -> Done<Tail> {
    let key = run.home.key;
    let mut tail = if run.forked.is_some() { inherited(tx, key)? } else { Tail::default() };
    let own = own(tx, key, from, &mut tail)?;
    let mut allowance = Allowance::default();
    let ended = own.iter().filter(|op| op.fact.is_some() && op.is_task());
    let tasks = tasks_at(tx, key, &ended.map(Recorded::slot).collect::<Vec<_>>(), &mut allowance)?;
    let detached = tx.all(
        concat!(
            select_task!(),
            "WHERE t.org_id = $1 AND t.run = $2 AND t.detached AND t.segment < $3 AND t.ended_number IS NOT NULL"
        ),
        row![key.org.0, key.run, from],
        |row| task(row, &mut allowance),
    )?;
    let mut told = Told { tasks, detached, signals: signals(tx, key, from)?, stop: None };
    if let Some(stop) = run.stop.filter(|stop| stop.number > 0) {
        let sql = "SELECT at FROM event WHERE org_id = $1 AND run = $2 AND number = $3";
        let at = tx.first(sql, row![key.org.0, key.run, stop.number], |row| row.get(0))?;
        told.stop = Some(stop.fact(Timestamp(at.unwrap_or_default())));
    }
    tail.add(own, told, from);
    Ok(tail)
}

/// A run's own ops from a segment on and of unfinished `once`s before it. What it inherited is held to the same.
pub(super) fn own(tx: &Tx, key: Key, from: u32, inherited: &mut Tail) -> Done<Vec<Recorded>> {
    let own = between(tx, key, Slot { segment: from, sequence: 0 }, LAST)?;
    Ok(inherited.choose(own, of_onces(tx, key)?, from))
}

/// The last place a run can have.
const LAST: Slot = Slot { segment: i32::MAX as u32, sequence: i32::MAX as u32 };

fn task(row: &Row, allowance: &mut Allowance) -> Done<TaskRow> {
    let mut read = TaskRow::read(row)?;
    allowance.task(&mut read.task);
    Ok(read)
}

/// The tasks of some places of a run, read in pages.
pub(super) fn tasks_at(tx: &Tx, key: Key, slots: &[Slot], allowance: &mut Allowance) -> Done<Vec<TaskRow>> {
    let mut found = Vec::with_capacity(slots.len());
    for page in slots.chunks(PAGE) {
        let (segments, sequences): (Vec<Value>, Vec<Value>) =
            page.iter().map(|slot| (Value::from(slot.segment), Value::from(slot.sequence))).unzip();
        found.extend(tx.all(
            concat!(
                select_task!(),
                "JOIN UNNEST($3::int[], $4::int[]) AS k(segment, sequence) \
                 ON t.segment = k.segment AND t.sequence = k.sequence WHERE t.org_id = $1 AND t.run = $2"
            ),
            row![key.org.0, key.run, segments, sequences],
            |row| task(row, allowance),
        )?);
    }
    Ok(found)
}

/// Unconsumed signals and those consumed from a segment on, or by an unfinished `once` before it.
fn signals(tx: &Tx, key: Key, from: u32) -> Done<Vec<Signal>> {
    let since = if from > 0 && !of_onces(tx, key)?.is_empty() { 0 } else { from };
    let unconsumed = concat!(select_signal!(), "WHERE org_id = $1 AND run = $2 AND consumed_segment IS NULL");
    let consumed = concat!(select_signal!(), "WHERE org_id = $1 AND run = $2 AND consumed_segment >= $3");
    let found = tx.ask_all(&[(unconsumed, row![key.org.0, key.run]), (consumed, row![key.org.0, key.run, since])])?;
    found.iter().flatten().map(signal).collect()
}

/// What a fork has of its parent, as it was when the fork was made; nothing for a run that is no fork.
pub(super) fn inherited(tx: &Tx, fork: Key) -> Done<Tail> {
    type Origin = (i64, u32, Option<u32>, u64, u64);
    let origin: Option<Origin> = tx.first(
        "SELECT forked_run, forked_segment, forked_sequence, forked_high, forked_base FROM agent_execution \
         WHERE org_id = $1 AND run = $2 AND forked_run IS NOT NULL",
        row![fork.org.0, fork.run],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
    )?;
    let Some((parent, segment, sequence, high, base)) = origin else { return Ok(Tail::default()) };
    let Some(parent) = Run::peek(tx, Key { run: parent, ..fork })? else { return Ok(Tail::default()) };
    let point = Point { segment, sequence, high, base };
    inheritance(tx, &parent, &point)
}

/// What a fork of a run has at a point: settled ops with their outcomes, and finished `once`s.
pub(super) fn inheritance(tx: &Tx, parent: &Run, point: &Point) -> Done<Tail> {
    let above = if parent.forked.is_some() { inherited(tx, parent.home.key)? } else { Tail::default() };
    let mut own = match point.sequence {
        Some(sequence) => between(tx, parent.home.key, Slot::default(), Slot { segment: point.segment, sequence })?,
        None => of_onces(tx, parent.home.key)?,
    };
    own.retain(|op| point.reaches(op));
    let consumed = consumed(tx, parent, point)?;
    let tasks = parent_tasks(tx, parent, point, &own)?;
    Ok(point.inherit(above, own, consumed, &tasks))
}

/// Signals of the parent that were consumed when the fork was made.
fn consumed(tx: &Tx, parent: &Run, point: &Point) -> Done<Vec<Signal>> {
    let sql = concat!(
        select_signal!(),
        "WHERE org_id = $1 AND run = $2 AND consumed_segment <= $3 AND consumed_commit <= $4 ORDER BY number"
    );
    tx.all(sql, row![parent.home.key.org.0, parent.home.key.run, point.segment, point.base], signal)
}

/// Tasks of the parent that a fork may refer to, by place.
fn parent_tasks(tx: &Tx, parent: &Run, point: &Point, own: &[Recorded]) -> Done<BTreeMap<Slot, TaskRow>> {
    let mut allowance = Allowance::default();
    let slots: Vec<Slot> = own.iter().filter(|op| op.is_task()).map(Recorded::slot).collect();
    let mut tasks = tasks_at(tx, parent.home.key, &slots, &mut allowance)?;
    let sql = concat!(select_task!(), "WHERE t.org_id = $1 AND t.run = $2 AND t.detached AND t.segment <= $3");
    let params = row![parent.home.key.org.0, parent.home.key.run, point.segment];
    tasks.extend(tx.all(sql, params, |row| task(row, &mut allowance))?);
    Ok(tasks.into_iter().map(|row| (row.task.slot, row)).collect())
}

/// One entry.
pub(super) fn one_entry(tx: &Tx, org: OrgId, id: EntryId) -> Done<Entry> {
    let sql = concat!(select_entry!(), "WHERE e.org_id = $1 AND e.id = $2");
    Ok(tx.first(sql, row![org.0, id.0], entry)?.ok_or_else(|| unknown("entry", id))?)
}

/// The entries from the root to a leaf, or those behind one of them.
pub(super) fn branch(tx: &Tx, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Done<Vec<Entry>> {
    const ABOVE: &str = concat!(
        "WITH RECURSIVE above AS (SELECT id, parent_id FROM agent_entry WHERE org_id = $1 AND id = $2 \
         UNION ALL SELECT p.id, p.parent_id FROM above JOIN agent_entry p ON p.org_id = $1 AND p.id = above.parent_id \
         WHERE above.parent_id IS DISTINCT FROM $3) ",
        select_entry!(),
        "JOIN above ON above.id = e.id WHERE e.org_id = $1 ORDER BY e.depth"
    );
    if after == Some(leaf) {
        return Ok(Vec::new());
    }
    let branch = tx.all(ABOVE, row![org.0, leaf.0, after.map(|id| id.0)], entry)?;
    if branch.is_empty() {
        return Err(unknown("entry", leaf).into());
    }
    Ok(branch)
}
