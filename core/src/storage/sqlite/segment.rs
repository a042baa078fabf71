//! What recovery reads: the last good checkpoint, the tail since it, and its facts; what a fork has of its parent; and the
//! branch above a leaf.

use super::executions::unknown;
use super::facts::{select_signal, signal, start_of};
use super::fault::{Done, Fault};
use super::op::{Recorded, between, entry, of_onces, select_entry};
use super::run::{Run, execution_at};
use super::task::{TaskRow, open, select_task};
use super::tx::{Log, Tx, all, first, high};
use super::values::{blob, json, key, number_of, payload, span};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId};
use crate::model::{
    Checkpoint, Entry, Fact, FactKind, Failure, Lease, NewCheckpoint, OnceResult, RecordedBody, Segment, SideEffects,
    Signal, Status, WaitReason,
};
use crate::storage::allowance::Allowance;
use crate::storage::sql::run::Ending;
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
pub(super) fn checkpoints(conn: &Connection, run: i64) -> Done<Vec<Checkpoint>> {
    let (low, high) = span(run);
    all(
        conn,
        concat!(select_checkpoint!(), "WHERE c.key BETWEEN ?1 AND ?2 ORDER BY c.key DESC"),
        [low, high],
        checkpoint,
    )
}

/// What a load finds: the segment, or that something must be written before it can be read.
pub(super) enum Loaded {
    Segment(Box<Segment>),
    /// Inline attempts of earlier claims must be judged, or no checkpoint is good.
    NeedsWriting,
}

/// Reads what the holder of a lease starts from.
pub(super) fn load(
    conn: &Connection,
    org: OrgId,
    execution: ExecutionId,
    lease: Lease,
    now: Timestamp,
) -> Done<Loaded> {
    let run = Run::find(conn, org, execution)?;
    run.check_lease(lease)?;
    if !lost_inline(conn, &run, lease.epoch)?.is_empty() {
        return Ok(Loaded::NeedsWriting);
    }
    let mut checkpoint = None;
    let mut sequence = run.segment;
    while sequence > 0 && checkpoint.is_none() {
        let found = first(
            conn,
            concat!(select_checkpoint!(), "WHERE c.key = ?1"),
            [key(run.home.run, i64::from(sequence))?],
            self::checkpoint,
        );
        checkpoint = match found {
            Ok(found) => found.filter(|found| is_good(conn, org, found).unwrap_or(false)),
            Err(Fault::Sql(rusqlite::Error::FromSqlConversionFailure(..))) => None,
            Err(fault) => return Err(fault),
        };
        sequence -= 1;
    }
    if checkpoint.is_none() && run.segment > 0 {
        return Ok(Loaded::NeedsWriting);
    }
    let from = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.sequence);
    let tail = tail(conn, &run, from)?;
    Ok(Loaded::Segment(Box::new(Segment {
        execution: execution_at(conn, run.home.run)?,
        checkpoint,
        tail: tail.ops.into_iter().map(|op| op.op).collect(),
        facts: tail.facts,
        once: tail.once.into_values().collect(),
        high: high(conn, run.home.run)?,
        now,
    })))
}

/// Settles what a load found: attempts that went with their worker, or a run without a good checkpoint.
pub(super) fn prepare(tx: &Tx, org: OrgId, execution: ExecutionId, lease: Lease) -> Done<Result<(), Error>> {
    let mut run = Run::find(tx.conn, org, execution)?;
    run.check_lease(lease)?;
    let lost = lost_inline(tx.conn, &run, lease.epoch)?;
    let mut log = Log::open(tx, &run)?;
    if !lost.is_empty() {
        for mut row in lost {
            row.lose_attempt(&mut run, &mut log)?;
        }
        run.save(tx)?;
        return Ok(Ok(()));
    }
    let tried: Vec<_> = checkpoint_numbers(tx.conn, run.home.run)?.iter().map(u64::to_string).collect();
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

fn checkpoint_numbers(conn: &Connection, run: i64) -> Done<Vec<u64>> {
    let (low, high) = span(run);
    all(conn, "SELECT key FROM agent_checkpoint WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC", [low, high], |row| {
        row.get(0).map(number_of)
    })
}

/// Inline attempts of earlier claims that must not simply run again.
fn lost_inline(conn: &Connection, run: &Run, epoch: u64) -> Done<Vec<TaskRow>> {
    let lost = |row: &TaskRow| {
        let careful = row.task.new.options.side_effects != SideEffects::Idempotent;
        row.runs_inline() && row.epoch < epoch && careful
    };
    Ok(open(conn, run)?.into_iter().filter(lost).collect())
}

fn is_good(conn: &Connection, org: OrgId, checkpoint: &Checkpoint) -> Done<bool> {
    let Some(state) = super::payloads::content_hash(conn, org, &checkpoint.saved.state)? else { return Ok(false) };
    let leaves = &checkpoint.saved.leaves;
    Ok(checkpoint.hash == Checkpoint::content_hash(checkpoint.sequence, &state, leaves, &checkpoint.usage))
}

/// A tail with its facts, or what a fork has of its parent.
#[derive(Debug, Default)]
pub(super) struct Tail {
    pub ops: Vec<Recorded>,
    pub facts: Vec<Fact>,
    pub once: BTreeMap<Arc<str>, OnceResult>,
}

/// Ops from a segment on and of unfinished `once`s before it, with their facts; the parent's first, for a fork.
fn tail(conn: &Connection, run: &Run, from: u32) -> Done<Tail> {
    let mut tail = if run.forked.is_some() { inherited(conn, run.home.run)? } else { Tail::default() };
    let mut ops = between(conn, key(run.home.run, start_of(conn, run, from)?)?, span(run.home.run).1)?;
    let onces = of_onces(conn, run.home.run)?;
    tail.once.extend(results(&onces));
    if from > 0 {
        ops.splice(0..0, onces.into_iter().filter(|op| op.op.segment < from));
    }
    let counts = |op: &Recorded| op.op.segment >= from || in_unfinished(&tail.once, op);
    ops.retain(counts);
    tail.ops.retain(|op| op.op.segment >= from || in_unfinished(&tail.once, op));

    let mut allowance = Allowance::default();
    let mut facts: Vec<Fact> = ops.iter().filter_map(Recorded::timer).collect();
    for op in ops.iter().filter(|op| op.fact.is_some() && matches!(op.op.body, RecordedBody::Task { .. })) {
        facts.extend(task_at(conn, op.place, &mut allowance)?.and_then(|row| row.fact()));
    }
    let (low, high) = span(run.home.run);
    let detached = all(
        conn,
        concat!(
            select_task!(),
            "WHERE t.place BETWEEN ?1 AND ?2 AND t.detached = 1 AND t.segment < ?3 AND t.ended_number IS NOT NULL"
        ),
        params![low, high, from],
        |row| task(row, &mut allowance),
    )?;
    facts.extend(detached.iter().filter(|row| !ops.iter().any(|op| op.place == row.place)).filter_map(TaskRow::fact));
    let slots: BTreeSet<Slot> = ops.iter().map(slot_of).collect();
    let mailbox = |signal: &Signal| signal.consumed_by.is_none_or(|by| by.segment >= from || slots.contains(&by));
    facts.extend(signals(conn, run.home.run, from)?.into_iter().filter(mailbox).map(fact_of_signal));
    if let Some(stop) = run.stop.filter(|stop| stop.number > 0) {
        let at = first(conn, "SELECT at FROM event WHERE key = ?1", [key(run.home.run, stop.number as i64)?], |row| {
            row.get(0)
        })?;
        let at = Timestamp(at.unwrap_or_default());
        facts.push(Fact { number: stop.number, at, kind: FactKind::Cancel(stop.cancellation) });
    }
    facts.sort_by_key(|fact| fact.number);
    tail.facts.extend(facts);
    tail.ops.extend(ops);
    tail.ops.sort_by_key(|op| (op.op.segment, op.op.sequence));
    Ok(tail)
}

fn task(row: &Row<'_>, allowance: &mut Allowance) -> rusqlite::Result<TaskRow> {
    let mut read = TaskRow::read(row)?;
    allowance.task(&mut read.task);
    Ok(read)
}

fn task_at(conn: &Connection, place: i64, allowance: &mut Allowance) -> Done<Option<TaskRow>> {
    first(conn, concat!(select_task!(), "WHERE t.place = ?1"), [place], |row| task(row, allowance))
}

/// Unconsumed signals and those consumed from a segment on, or by an unfinished `once` before it.
fn signals(conn: &Connection, run: i64, from: u32) -> Done<Vec<Signal>> {
    let mut found = all(conn, concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment IS NULL"), [run], signal)?;
    let since = if from > 0 && !of_onces(conn, run)?.is_empty() { 0 } else { from };
    found.extend(all(
        conn,
        concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment >= ?2"),
        params![run, since],
        signal,
    )?);
    Ok(found)
}

fn fact_of_signal(signal: Signal) -> Fact {
    Fact { number: signal.number, at: signal.created_at, kind: FactKind::Signal(signal) }
}

fn slot_of(op: &Recorded) -> Slot {
    Slot { segment: op.op.segment, sequence: op.op.sequence }
}

fn results(ops: &[Recorded]) -> BTreeMap<Arc<str>, OnceResult> {
    ops.iter().filter_map(|op| op.once.clone()).map(|once| (once.name.clone(), once)).collect()
}

fn in_unfinished(finished: &BTreeMap<Arc<str>, OnceResult>, op: &Recorded) -> bool {
    op.op.once.as_ref().is_some_and(|once| !finished.contains_key(&once.name))
}

/// What a fork has of its parent, as it was when the fork was made; nothing for a run that is no fork.
pub(super) fn inherited(conn: &Connection, fork: i64) -> Done<Tail> {
    type Origin = (Option<i64>, u32, Option<u32>, u64, u64);
    let origin: Option<Origin> = first(
        conn,
        "SELECT forked_run, forked_segment, forked_sequence, forked_high, forked_base FROM agent_execution \
         WHERE run = ?1 AND forked_run IS NOT NULL",
        [fork],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
    )?;
    let Some((Some(parent), segment, sequence, high, base)) = origin else { return Ok(Tail::default()) };
    let Some(parent) = Run::at(conn, parent)? else { return Ok(Tail::default()) };
    let point = Point { segment, sequence, high, base };
    inheritance(conn, &parent, &point)
}

/// Where a fork starts, and how far its parent had come.
pub(super) struct Point {
    pub segment: u32,
    /// The last op that counts; none for a fork at a checkpoint.
    pub sequence: Option<u32>,
    /// The parent's last event and commit.
    pub high: u64,
    pub base: u64,
}

/// What a fork of a run has at a point: settled ops with their outcomes, and finished `once`s.
pub(super) fn inheritance(conn: &Connection, parent: &Run, point: &Point) -> Done<Tail> {
    let above = if parent.forked.is_some() { inherited(conn, parent.home.run)? } else { Tail::default() };
    let own = match point.sequence {
        Some(sequence) => {
            let last = key(parent.home.run, start_of(conn, parent, point.segment)? + i64::from(sequence))?;
            between(conn, span(parent.home.run).0, last)?
        }
        None => of_onces(conn, parent.home.run)?,
    };
    let reached = |op: &Recorded| match point.sequence {
        Some(sequence) => slot_of(op) <= Slot { segment: point.segment, sequence },
        None => op.op.segment < point.segment,
    };
    let own: Vec<Recorded> = own.into_iter().filter(reached).collect();
    let before: Vec<Recorded> = above.ops.into_iter().filter(reached).collect();

    let mut once = results(&own);
    for op in before.iter().filter(|op| matches!(op.op.body, RecordedBody::Once { .. })) {
        let name = op.op.once.as_ref().map_or(&op.op.label.name, |once| &once.name);
        once.extend(above.once.get(name).map(|result| (name.clone(), result.clone())));
    }
    if point.sequence.is_none() {
        once.extend(above.once);
    }
    let kept = |op: &Recorded| point.sequence.is_some() || in_unfinished(&once, op);

    let mut allowance = Allowance::default();
    let consumed = consumed(conn, parent, point)?;
    let tasks = parent_tasks(conn, parent, point, &own, &mut allowance)?;
    let mut ops: Vec<Recorded> = before.into_iter().filter(kept).collect();
    ops.extend(own.into_iter().filter(|op| kept(op) && settled(op, point, &consumed, &tasks)));
    ops.sort_by_key(slot_of);
    let there: BTreeSet<Slot> = ops.iter().map(slot_of).collect();
    ops.retain(|op| match op.op.body {
        RecordedBody::Abandon { target } => there.contains(&Slot { sequence: target, ..slot_of(op) }),
        _ => true,
    });

    let mut awaited: BTreeSet<TaskId> = ops
        .iter()
        .filter_map(|op| match op.op.body {
            RecordedBody::Task { id, .. } | RecordedBody::Attach { task: id } => Some(id),
            _ => None,
        })
        .collect();
    if point.sequence.is_none() {
        let old = tasks.values().filter(|row| row.task.slot.segment < point.segment);
        awaited.extend(old.filter(|row| row.task.new.options.detached).map(|row| row.task.new.id));
    }
    let ended = |row: &&TaskRow| row.ended_number.is_some_and(|number| number <= point.high);
    let mut facts: Vec<Fact> = tasks
        .values()
        .filter(ended)
        .filter(|row| awaited.contains(&row.task.new.id))
        .filter_map(TaskRow::fact)
        .collect();
    if point.sequence.is_some() {
        facts
            .extend(ops.iter().filter_map(Recorded::timer).filter(|fact| fact.number > 0 && fact.number <= point.high));
    }
    let own_signals = consumed.into_iter().filter(|signal| signal.consumed_by.is_some_and(|by| there.contains(&by)));
    facts.extend(own_signals.map(fact_of_signal));
    facts.sort_by_key(|fact| fact.number);
    let of_above = above.facts.into_iter().filter(|fact| match &fact.kind {
        FactKind::Task { task, .. } => awaited.contains(task),
        FactKind::Timer { slot } => there.contains(slot),
        FactKind::Signal(signal) => signal.consumed_by.is_some_and(|by| there.contains(&by)),
        FactKind::Cancel(_) => false,
    });
    let facts = of_above.chain(facts).map(|fact| Fact { number: 0, ..fact }).collect();
    // Numbers of the parent mean nothing in the fork.
    ops.iter_mut().for_each(|op| op.fact = op.fact.map(|_| 0));
    Ok(Tail { ops, facts, once })
}

/// Signals of the parent that were consumed when the fork was made.
fn consumed(conn: &Connection, parent: &Run, point: &Point) -> Done<Vec<Signal>> {
    all(
        conn,
        concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment <= ?2 AND consumed_commit <= ?3 ORDER BY key"),
        params![parent.home.run, point.segment, point.base],
        signal,
    )
}

/// Tasks of the parent that a fork may refer to, by place.
fn parent_tasks(
    conn: &Connection,
    parent: &Run,
    point: &Point,
    own: &[Recorded],
    allowance: &mut Allowance,
) -> Done<BTreeMap<i64, TaskRow>> {
    let mut tasks = BTreeMap::new();
    for op in own.iter().filter(|op| matches!(op.op.body, RecordedBody::Task { .. })) {
        tasks.extend(task_at(conn, op.place, allowance)?.map(|row| (op.place, row)));
    }
    let (low, high) = span(parent.home.run);
    let detached = all(
        conn,
        concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 AND t.detached = 1 AND t.segment <= ?3"),
        params![low, high, point.segment],
        |row| task(row, allowance),
    )?;
    tasks.extend(detached.into_iter().map(|row| (row.place, row)));
    Ok(tasks)
}

/// Whether an op of the parent had its outcome, or needs none.
fn settled(op: &Recorded, point: &Point, consumed: &[Signal], tasks: &BTreeMap<i64, TaskRow>) -> bool {
    let fired = op.fact.is_some_and(|number| number <= point.high);
    match &op.op.body {
        RecordedBody::Task { .. } | RecordedBody::Timer => fired,
        RecordedBody::Signal => fired || consumed.iter().any(|signal| signal.consumed_by == Some(slot_of(op))),
        RecordedBody::Attach { task } => tasks
            .values()
            .find(|row| row.task.new.id == *task)
            .is_none_or(|row| row.ended_number.is_some_and(|number| number <= point.high)),
        _ => true,
    }
}

/// One entry.
pub(super) fn one_entry(conn: &Connection, org: OrgId, id: EntryId) -> Done<Entry> {
    let sql = concat!(select_entry!(), "WHERE e.id = ?1 AND x.org_id = ?2");
    Ok(first(conn, sql, [blob(&id.0), blob(&org.0)], entry)?.ok_or_else(|| unknown("entry", id))?)
}

/// The entries from the root to a leaf.
pub(super) fn branch(conn: &Connection, org: OrgId, leaf: EntryId) -> Done<Vec<Entry>> {
    let mut branch: Vec<Entry> = Vec::new();
    let mut next = Some(leaf);
    while let Some(id) = next {
        let found = one_entry(conn, org, id)?;
        next = found.new.parent;
        branch.push(found);
    }
    branch.reverse();
    Ok(branch)
}
