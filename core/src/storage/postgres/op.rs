//! The rows of ops: entries, and the ops that leave no other row; the journal of a segment put together again.

use super::fault::Done;
use super::run::Run;
use super::sets::{Set, Value, row};
use super::task::{recorded as recorded_task, select_task_op};
use super::tx::{Log, Tx};
use super::values::{
    Key, Place, Row, cell, label_key, payload, read_label_key, read_once, read_seen, seen_bytes, text_of,
};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId};
use crate::model::{
    Entry, EventKind, Label, LabelKey, NewEntry, NewOp, OnceResult, OpBody, OpKind, RecordedBody, RecordedOp, UNDONE,
};
use crate::payload::Digest;
use crate::storage::sql::Statements;
use crate::storage::sql::tail::Recorded;
use serde_json::value::RawValue;
use uuid::Uuid;

/// The columns of an [`Entry`], after which comes a condition on `e`.
macro_rules! select_entry {
    () => {
        "SELECT e.segment, e.sequence, e.id, e.parent_id, e.depth, e.thread, e.role, e.entry_type, e.turn_id, e.metadata, \
         e.created_at, e.content, x.id FROM agent_entry e \
         JOIN agent_execution x ON x.org_id = e.org_id AND x.run = e.run "
    };
}
pub(super) use select_entry;

/// Reads the columns of `select_entry!`.
pub(super) fn entry(row: &Row) -> Done<Entry> {
    Ok(Entry {
        new: NewEntry {
            id: EntryId(row.get(2)?),
            parent: row.get::<Option<Uuid>>(3)?.map(EntryId),
            thread: row.get(5)?,
            role: row.get(6)?,
            entry_type: row.get(7)?,
            content: payload(row, 11)?,
            turn_id: row.get(8)?,
            metadata: row.get(9)?,
        },
        execution: ExecutionId(row.get(12)?),
        slot: Slot { segment: row.get(0)?, sequence: row.get(1)? },
        depth: row.get(4)?,
        created_at: Timestamp(row.get(10)?),
    })
}

/// The depth of an entry of an org.
pub(super) fn depth_of(tx: &Tx, org: OrgId, entry: EntryId) -> Done<Option<u32>> {
    tx.first("SELECT depth FROM agent_entry WHERE org_id = $1 AND id = $2", row![org.0, entry.0], |row| row.get(0))
}

/// The depth of what a new entry follows: known from the transaction or the run's lock, or looked up.
fn depth_above(tx: &Tx, run: &Run, parent: EntryId) -> Done<Option<u32>> {
    if let Some(depth) = tx.depths.borrow().get(&parent) {
        return Ok(Some(*depth));
    }
    match run.home.last.as_ref().and_then(|last| last.leaf) {
        Some((leaf, depth)) if leaf == parent => Ok(Some(depth)),
        _ => depth_of(tx, run.home.key.org, parent),
    }
}

static ENTRY: Set = Set::insert(
    "agent_entry",
    "org_id uuid, run bigint, segment int, sequence int, id uuid, parent_id uuid, depth int, thread text, role text, \
     entry_type text, turn_id text, metadata text, label_name text, label_key bytea, seen bytea, once_name text, \
     once_n int, created_at bigint, content bytea",
);

/// Stores an entry with its event; the main thread's moves the run's leaf.
pub(super) fn append(
    tx: &Tx,
    run: &mut Run,
    log: &mut Log<'_, '_>,
    slot: Slot,
    op: &NewOp,
    new: &NewEntry,
) -> Done<()> {
    let depth = match new.parent {
        None => 0,
        Some(parent) => depth_above(tx, run, parent)?.map(|depth| depth + 1).ok_or_else(|| {
            Error::new(
                Code::InvalidArgument,
                format!("{} follows the entry {parent}, which does not exist; append that first", op.label),
            )
        })?,
    };
    super::payloads::refer(tx, run, &new.content)?;
    tx.put(
        &ENTRY,
        row![
            run.home.key.org.0,
            run.home.key.run,
            slot.segment,
            slot.sequence,
            new.id.0,
            new.parent.map(|parent| parent.0),
            depth,
            &new.thread,
            &new.role,
            &new.entry_type,
            new.turn_id.as_deref(),
            new.metadata.as_deref(),
            (*op.label.name != *new.role).then_some(&*op.label.name),
            label_key(&op.label.key),
            seen_bytes(&op.seen),
            op.once.as_ref().map(|once| &*once.name),
            op.once.as_ref().map(|once| once.n),
            tx.now,
            cell(&new.content)?,
        ],
    );
    tx.depths.borrow_mut().insert(new.id, depth);
    if new.thread.is_empty() {
        run.leaf = Some(new.id);
    }
    let metadata = new.metadata.as_deref().filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    let data = format!(
        r#"{{"entry":"{}","role":{},"entry_type":{}{}{}}}"#,
        new.id,
        text_of(&new.role)?,
        text_of(&new.entry_type)?,
        if metadata.is_some() { r#","metadata":"# } else { "" },
        metadata.unwrap_or_default(),
    );
    log.about(EventKind::Entry, slot, data)?;
    Ok(())
}

/// Stores an op that leaves no other row.
pub(super) fn insert(tx: &Tx, run: &Run, slot: Slot, op: &NewOp) -> Done<()> {
    let mut due: Option<Timestamp> = None;
    let mut count = None;
    let mut data = None;
    let mut id: Option<Vec<u8>> = None;
    let mut value = None;
    let kind = match &op.body {
        OpBody::Signal { timeout } => {
            due = timeout.map(|timeout| tx.now.after(timeout));
            OpKind::Signal
        }
        OpBody::Timer { duration } => {
            due = Some(tx.now.after(*duration));
            OpKind::Timer
        }
        OpBody::Read { answer, count: times } => {
            (value, count) = (Some(answer), Some(*times));
            OpKind::Read
        }
        OpBody::Abandon { target } => {
            count = Some(*target);
            OpKind::Abandon
        }
        OpBody::Attach { task } => {
            id = Some(task.0.as_bytes().to_vec());
            OpKind::Attach
        }
        OpBody::Usage { model, usage } => {
            data = Some(text_of(&(model, usage))?);
            OpKind::Usage
        }
        OpBody::Once { digest, value: result } => {
            (id, value) = (Some(digest.0.to_vec()), Some(result));
            OpKind::Once
        }
        OpBody::Step => OpKind::Step,
        OpBody::Flush | OpBody::Entry(_) | OpBody::Task(_) => OpKind::Flush,
    };
    if let Some(value) = value {
        super::payloads::refer(tx, run, value)?;
    }
    if let Some(due) = due {
        tx.due(due.0);
    }
    tx.put(
        &OP,
        row![
            run.home.key.org.0,
            run.home.key.run,
            slot.segment,
            slot.sequence,
            kind as u8,
            &*op.label.name,
            label_key(&op.label.key),
            seen_bytes(&op.seen),
            op.once.as_ref().map(|once| &*once.name),
            op.once.as_ref().map(|once| once.n),
            due,
            count,
            data,
            id,
            value.map(cell).transpose()?,
        ],
    );
    Ok(())
}

static OP: Set = Set::insert(
    "agent_op",
    "org_id uuid, run bigint, segment int, sequence int, kind smallint, label_name text, label_key bytea, seen bytea, \
     once_name text, once_n int, due_at bigint, count int, data text, target bytea, value bytea",
);
static DISARMED: Set = Set::update("agent_op", 4, "org_id uuid, run bigint, segment int, sequence int, due_at bigint")
    .changing("fired_at = t.due_at")
    .only("t.due_at IS NOT NULL");
static ALL_DISARMED: Set = Set::update("agent_op", 2, "org_id uuid, run bigint, due_at bigint")
    .changing("fired_at = t.due_at")
    .only("t.due_at IS NOT NULL");
static REARMED: Set = Set::update("agent_op", 4, "org_id uuid, run bigint, segment int, sequence int, fired_at bigint")
    .changing("due_at = t.fired_at")
    .only("t.fired IS NULL AND t.due_at IS NULL AND t.fired_at IS NOT NULL");
static UNDONE_OP: Set =
    Set::update("agent_op", 4, "org_id uuid, run bigint, segment int, sequence int, label_key bytea");
static COUNTED: Set =
    Set::update("agent_op", 5, "org_id uuid, run bigint, segment int, sequence int, kind smallint, count int");

/// The place of an op of the run's current segment.
pub(super) fn place(run: &Run, sequence: u32) -> Place {
    Place { key: run.home.key, slot: Slot { segment: run.segment, sequence } }
}

/// What holds a slot of the run's own current segment.
pub(super) fn label_at(tx: &Tx, place: Place) -> Done<Option<Label>> {
    Ok(between(tx, place.key, place.slot, place.slot)?.into_iter().next().map(|op| op.op.label))
}

/// The timers of a run that are armed do not fire any more; when they would have is kept.
pub(super) fn disarm_all(tx: &Tx, run: &Run) {
    tx.put(&ALL_DISARMED, row![run.home.key.org.0, run.home.key.run, None::<i64>]);
}

/// The timer of an op does not fire any more; when it would have is kept.
pub(super) fn disarm(tx: &Tx, place: Place) {
    let Place { key, slot } = place;
    tx.put(&DISARMED, row![key.org.0, key.run, slot.segment, slot.sequence, None::<i64>]);
}

/// The timer of an op fires after all, if it was disarmed.
pub(super) fn rearm(tx: &Tx, place: Place) {
    let Place { key, slot } = place;
    tx.put(&REARMED, row![key.org.0, key.run, slot.segment, slot.sequence, None::<i64>]);
}

/// The op that gave an await up counts no more.
pub(super) fn undo(tx: &Tx, place: Place) {
    let Place { key, slot } = place;
    let undone = label_key(&LabelKey::Key(UNDONE.into()));
    tx.put(&UNDONE_OP, row![key.org.0, key.run, slot.segment, slot.sequence, undone]);
}

/// A shared read was answered so many times.
pub(super) fn count_reads(tx: &Tx, place: Place, count: u32) {
    let Place { key, slot } = place;
    tx.put(&COUNTED, row![key.org.0, key.run, slot.segment, slot.sequence, OpKind::Read as u8, count]);
}

/// The three selections of the ops of a run, by the same condition.
macro_rules! select_ops {
    ($condition:literal) => {
        [
            concat!(
                "SELECT segment, sequence, kind, label_name, label_key, seen, once_name, once_n, fired, fired_at, count, \
                 target, value FROM agent_op ",
                $condition
            ),
            concat!(
                "SELECT segment, sequence, id, parent_id, thread, role, label_name, label_key, seen, once_name, once_n \
                 FROM agent_entry ",
                $condition
            ),
            concat!(select_task_op!(), $condition),
        ]
    };
}

/// The ops of a run from a slot to another, in order.
pub(super) fn between(tx: &Tx, key: Key, low: Slot, high: Slot) -> Done<Vec<Recorded>> {
    let condition = select_ops!(
        "WHERE org_id = $1 AND run = $2 AND (segment, sequence) >= ($3, $4) AND (segment, sequence) <= ($5, $6)"
    );
    query(tx, condition, row![key.org.0, key.run, low.segment, low.sequence, high.segment, high.sequence])
}

/// The ops of a run that are inside a `once`, in order.
pub(super) fn of_onces(tx: &Tx, key: Key) -> Done<Vec<Recorded>> {
    let condition = select_ops!("WHERE org_id = $1 AND run = $2 AND once_name IS NOT NULL");
    query(tx, condition, row![key.org.0, key.run])
}

fn query(tx: &Tx, selections: [&'static str; 3], params: Vec<Value>) -> Done<Vec<Recorded>> {
    let found = tx.ask_all(&selections.map(|sql| (sql, params.clone())))?;
    let mut ops = Vec::with_capacity(found.iter().map(Vec::len).sum());
    for (rows, read) in found.iter().zip([read_op, read_entry_op, read_task_op]) {
        for row in rows {
            ops.push(read(row)?);
        }
    }
    ops.sort_unstable_by_key(|op| op.slot());
    Ok(ops)
}

fn read_task_op(row: &Row) -> Done<Recorded> {
    let (op, fact) = recorded_task(row)?;
    Ok(Recorded { op, fact, fired_at: None, once: None })
}

fn read_op(row: &Row) -> Done<Recorded> {
    let number: u8 = row.get(2)?;
    let kind = OpKind::from_number(number).unwrap_or(OpKind::Flush);
    let once = read_once(row, 6)?;
    let name: String = row.get(3)?;
    let body = match kind {
        OpKind::Signal => RecordedBody::Signal,
        OpKind::Timer => RecordedBody::Timer,
        OpKind::Read => RecordedBody::Read { answer: payload(row, 12)?, count: row.get(10)? },
        OpKind::Abandon => RecordedBody::Abandon { target: row.get(10)? },
        OpKind::Attach => RecordedBody::Attach { task: TaskId(Uuid::from_bytes(row.get(11)?)) },
        OpKind::Usage => RecordedBody::Usage,
        OpKind::Step => RecordedBody::Step,
        OpKind::Once => RecordedBody::Once { value: payload(row, 12)? },
        OpKind::Flush | OpKind::Entry | OpKind::Task => RecordedBody::Flush,
    };
    let result = match &body {
        RecordedBody::Once { value } => {
            let digest = Digest(row.get::<Option<[u8; 16]>>(11)?.unwrap_or_default());
            let name = once.as_ref().map_or_else(|| name.as_str().into(), |once| once.name.clone());
            Some(OnceResult { name, digest, value: value.clone() })
        }
        _ => None,
    };
    Ok(Recorded {
        op: RecordedOp {
            segment: row.get(0)?,
            sequence: row.get(1)?,
            once,
            label: Label { kind, name: name.into(), key: read_label_key(row, 4)? },
            seen: read_seen(row, 5)?,
            body,
        },
        fact: row.get(8)?,
        fired_at: row.get(9)?,
        once: result,
    })
}

fn read_entry_op(row: &Row) -> Done<Recorded> {
    let role: String = row.get(5)?;
    Ok(Recorded {
        op: RecordedOp {
            segment: row.get(0)?,
            sequence: row.get(1)?,
            once: read_once(row, 9)?,
            label: Label {
                kind: OpKind::Entry,
                name: row.get::<Option<String>>(6)?.unwrap_or(role).into(),
                key: read_label_key(row, 7)?,
            },
            seen: read_seen(row, 8)?,
            body: RecordedBody::Entry {
                id: EntryId(row.get(2)?),
                parent: row.get::<Option<Uuid>>(3)?.map(EntryId),
                thread: row.get(4)?,
            },
        },
        fact: None,
        fired_at: None,
        once: None,
    })
}
