//! What recovery reads: the last good checkpoint, the tail since it, and its facts; what a fork has of its parent; and the
//! branch above a leaf.

use super::executions::unknown;
use super::facts::{place_of, select_signal, signal, start_of};
use super::fault::{Done, Fault};
use super::op::{between, entry, of_onces, select_entry};
use super::run::{Run, execution_at};
use super::task::{TaskRow, open, select_task};
use super::tx::{Log, Tx, high};
use super::values::{blob, json, key, number_of, payload, span};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OrgId, Slot};
use crate::model::{
    Checkpoint, Entry, Failure, Lease, NewCheckpoint, Segment, SideEffects, Signal, Status, WaitReason,
};
use crate::storage::allowance::Allowance;
use crate::storage::sql::run::Ending;
use crate::storage::sql::tail::{Point, Recorded, Tail, Told};
use rusqlite::{Row, params};
use std::collections::BTreeMap;

/// The columns of [`checkpoint`], after which comes a condition.
macro_rules! select_checkpoint {
    () => {
        "SELECT c.key, c.leaves, c.metadata, c.usage, c.hash, c.created_at, c.state, x.id FROM agent_checkpoint c \
         JOIN agent_execution x ON x.run = c.key >> 31 "
    };
}
pub(super) use select_checkpoint;

/// Reads the columns of `select_checkpoint!`.
pub(super) fn checkpoint(row: &Row<'_>) -> rusqlite::Result<Checkpoint> {
    Ok(Checkpoint {
        execution: ExecutionId(super::values::id(row, 7)?),
        sequence: number_of(row.get(0)?) as u32,
        saved: NewCheckpoint { state: payload(row, 6)?, leaves: json(row, 1)?, metadata: row.get(2)? },
        usage: json(row, 3)?,
        hash: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
    })
}

/// The checkpoints of a run, newest first.
pub(super) fn checkpoints(tx: &Tx, run: i64) -> Done<Vec<Checkpoint>> {
    let (low, high) = span(run);
    tx.all(concat!(select_checkpoint!(), "WHERE c.key BETWEEN ?1 AND ?2 ORDER BY c.key DESC"), [low, high], checkpoint)
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
        let found = tx.first(
            concat!(select_checkpoint!(), "WHERE c.key = ?1"),
            [key(run.home.run, i64::from(sequence))?],
            self::checkpoint,
        );
        checkpoint = match found {
            Ok(found) => found.filter(|found| is_good(tx, org, found).unwrap_or(false)),
            Err(Fault::Sql(rusqlite::Error::FromSqlConversionFailure(..))) => None,
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
        execution: execution_at(tx, run.home.run)?,
        checkpoint,
        tail: tail.ops.into_iter().map(|op| op.op).collect(),
        facts: tail.facts,
        once: tail.once.into_values().collect(),
        high: high(tx, run.home.run)?,
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
    let tried: Vec<_> = checkpoint_numbers(tx, run.home.run)?.iter().map(u64::to_string).collect();
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

fn checkpoint_numbers(tx: &Tx, run: i64) -> Done<Vec<u64>> {
    let (low, high) = span(run);
    tx.all("SELECT key FROM agent_checkpoint WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC", [low, high], |row| {
        row.get(0).map(number_of)
    })
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
    let mut tail = if run.forked.is_some() { inherited(tx, run.home.run)? } else { Tail::default() };
    let (low, high) = span(run.home.run);
    let own = own(tx, run, from, &mut tail)?;
    let mut allowance = Allowance::default();
    let ended = own.iter().filter(|op| op.fact.is_some() && op.is_task()).map(Recorded::slot);
    let tasks = tasks_at(tx, run, ended, &mut allowance)?;
    let detached = tx.all(
        concat!(
            select_task!(),
            "WHERE t.place BETWEEN ?1 AND ?2 AND t.detached = 1 AND t.segment < ?3 AND t.ended_number IS NOT NULL"
        ),
        params![low, high, from],
        |row| task(row, &mut allowance),
    )?;
    let mut told = Told { tasks, detached, signals: signals(tx, run.home.run, from)?, stop: None };
    if let Some(stop) = run.stop.filter(|stop| stop.number > 0) {
        let event = key(run.home.run, stop.number as i64)?;
        let at = tx.first("SELECT at FROM event WHERE key = ?1", [event], |row| row.get(0))?;
        told.stop = Some(stop.fact(Timestamp(at.unwrap_or_default())));
    }
    tail.add(own, told, from);
    Ok(tail)
}

/// A run's own ops from a segment on and of unfinished `once`s before it. What it inherited is held to the same.
pub(super) fn own(tx: &Tx, run: &Run, from: u32, inherited: &mut Tail) -> Done<Vec<Recorded>> {
    let own = between(tx, key(run.home.run, start_of(tx, run, from)?)?, span(run.home.run).1)?;
    Ok(inherited.choose(own, of_onces(tx, run.home.run)?, from))
}

/// The tasks of some slots of a run.
pub(super) fn tasks_at(
    tx: &Tx,
    run: &Run,
    slots: impl Iterator<Item = Slot>,
    allowance: &mut Allowance,
) -> Done<Vec<TaskRow>> {
    let mut found = Vec::new();
    for slot in slots {
        found.extend(task_at(tx, place_of(tx, run, slot)?, allowance)?);
    }
    Ok(found)
}

fn task(row: &Row<'_>, allowance: &mut Allowance) -> rusqlite::Result<TaskRow> {
    let mut read = TaskRow::read(row)?;
    allowance.task(&mut read.task);
    Ok(read)
}

fn task_at(tx: &Tx, place: i64, allowance: &mut Allowance) -> Done<Option<TaskRow>> {
    tx.first(concat!(select_task!(), "WHERE t.place = ?1"), [place], |row| task(row, allowance))
}

/// Unconsumed signals and those consumed from a segment on, or by an unfinished `once` before it.
fn signals(tx: &Tx, run: i64, from: u32) -> Done<Vec<Signal>> {
    let mut found = tx.all(concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment IS NULL"), [run], signal)?;
    let since = if from > 0 && !of_onces(tx, run)?.is_empty() { 0 } else { from };
    found.extend(tx.all(
        concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment >= ?2"),
        params![run, since],
        signal,
    )?);
    Ok(found)
}

/// What a fork has of its parent, as it was when the fork was made; nothing for a run that is no fork.
pub(super) fn inherited(tx: &Tx, fork: i64) -> Done<Tail> {
    type Origin = (Option<i64>, u32, Option<u32>, u64, u64);
    let origin: Option<Origin> = tx.first(
        "SELECT forked_run, forked_segment, forked_sequence, forked_high, forked_base FROM agent_execution \
         WHERE run = ?1 AND forked_run IS NOT NULL",
        [fork],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
    )?;
    let Some((Some(parent), segment, sequence, high, base)) = origin else { return Ok(Tail::default()) };
    let Some(parent) = Run::at(tx, parent)? else { return Ok(Tail::default()) };
    let point = Point { segment, sequence, high, base };
    inheritance(tx, &parent, &point)
}

/// What a fork of a run has at a point: settled ops with their outcomes, and finished `once`s.
pub(super) fn inheritance(tx: &Tx, parent: &Run, point: &Point) -> Done<Tail> {
    let above = if parent.forked.is_some() { inherited(tx, parent.home.run)? } else { Tail::default() };
    let mut own = match point.sequence {
        Some(sequence) => {
            let last = place_of(tx, parent, Slot { segment: point.segment, sequence })?;
            between(tx, span(parent.home.run).0, last)?
        }
        None => of_onces(tx, parent.home.run)?,
    };
    own.retain(|op| point.reaches(op));
    let consumed = consumed(tx, parent, point)?;
    let tasks = parent_tasks(tx, parent, point, &own)?;
    Ok(point.inherit(above, own, consumed, &tasks))
}

/// Signals of the parent that were consumed when the fork was made.
fn consumed(tx: &Tx, parent: &Run, point: &Point) -> Done<Vec<Signal>> {
    tx.all(
        concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment <= ?2 AND consumed_commit <= ?3 ORDER BY key"),
        params![parent.home.run, point.segment, point.base],
        signal,
    )
}

/// Tasks of the parent that a fork may refer to, by place.
fn parent_tasks(tx: &Tx, parent: &Run, point: &Point, own: &[Recorded]) -> Done<BTreeMap<Slot, TaskRow>> {
    let mut allowance = Allowance::default();
    let slots = own.iter().filter(|op| op.is_task()).map(Recorded::slot);
    let mut tasks = tasks_at(tx, parent, slots, &mut allowance)?;
    let (low, high) = span(parent.home.run);
    tasks.extend(tx.all(
        concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 AND t.detached = 1 AND t.segment <= ?3"),
        params![low, high, point.segment],
        |row| task(row, &mut allowance),
    )?);
    Ok(tasks.into_iter().map(|row| (row.task.slot, row)).collect())
}

/// One entry.
pub(super) fn one_entry(tx: &Tx, org: OrgId, id: EntryId) -> Done<Entry> {
    let sql = concat!(select_entry!(), "WHERE e.id = ?1 AND x.org_id = ?2");
    Ok(tx.first(sql, [blob(&id.0), blob(&org.0)], entry)?.ok_or_else(|| unknown("entry", id))?)
}

/// The entries from the root to a leaf, or those behind one of them.
pub(super) fn branch(tx: &Tx, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Done<Vec<Entry>> {
    let mut branch: Vec<Entry> = Vec::new();
    let mut next = Some(leaf);
    while let Some(id) = next.filter(|id| Some(*id) != after) {
        let found = one_entry(tx, org, id)?;
        next = found.new.parent;
        branch.push(found);
    }
    branch.reverse();
    Ok(branch)
}
