//! The rows of ops: entries, and the ops that leave no other row; the journal of a segment put together again.

use super::fault::Done;
use super::run::Run;
use super::task::{recorded as recorded_task, select_task_op};
use super::tx::{Log, Tx};
use super::values::{
    Cell, blob, id, id_opt, key, label_key, payload, read_label_key, read_once, read_seen, seen_bytes, span, text_of,
};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId};
use crate::model::{
    Entry, EventKind, Label, NewEntry, NewOp, OnceResult, OpBody, OpKind, RecordedBody, RecordedOp, UNDONE,
};
use crate::payload::{Body, Digest};
use crate::storage::sql::Statements;
use crate::storage::sql::tail::Recorded;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Row, ToSql, params};
use serde_json::value::RawValue;

/// Content from this size on is not stored again where a task's output has it.
const REPEATED_FROM: usize = 256;
/// How many ops back such a task is looked for.
const REPEATED_WITHIN: i64 = 64;

/// The columns of an [`Entry`], after which comes a condition on `e`.
macro_rules! select_entry {
    () => {
        "SELECT e.place, e.segment, e.sequence, e.id, e.parent_id, e.depth, e.thread, e.role, e.entry_type, e.turn_id, \
         e.metadata, e.created_at, coalesce(e.content, o.output), x.id FROM agent_entry e \
         JOIN agent_execution x ON x.run = e.place >> 31 LEFT JOIN task_execution o ON o.place = e.output_of "
    };
}
pub(super) use select_entry;

/// Reads the columns of `select_entry!`.
pub(super) fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        new: NewEntry {
            id: EntryId(id(row, 3)?),
            parent: id_opt(row, 4)?.map(EntryId),
            thread: row.get(6)?,
            role: row.get(7)?,
            entry_type: row.get(8)?,
            content: payload(row, 12)?,
            turn_id: row.get(9)?,
            metadata: row.get(10)?,
        },
        execution: ExecutionId(id(row, 13)?),
        slot: Slot { segment: row.get(1)?, sequence: row.get(2)? },
        depth: row.get(5)?,
        created_at: Timestamp(row.get(11)?),
    })
}

/// The depth of an entry of an org.
pub(super) fn depth_of(tx: &Tx, org: OrgId, entry: EntryId) -> Done<Option<u32>> {
    tx.first(
        "SELECT e.depth FROM agent_entry e JOIN agent_execution x ON x.run = e.place >> 31 \
         WHERE e.id = ?1 AND x.org_id = ?2",
        [blob(&entry.0), blob(&org.0)],
        |row| row.get(0),
    )
}

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
        Some(parent) => depth_of(tx, run.home.org, parent)?.map(|depth| depth + 1).ok_or_else(|| {
            Error::new(
                Code::InvalidArgument,
                format!("{} follows the entry {parent}, which does not exist; append that first", op.label),
            )
        })?,
    };
    super::payloads::refer(tx, run, &new.content)?;
    let place = place(run, slot.sequence)?;
    let cell = Cell(&new.content);
    let content = cell.to_sql()?;
    let output_of = match &new.content.body {
        Body::Inline(bytes) if bytes.len() >= REPEATED_FROM => task_with(tx, run, place, &content)?,
        _ => None,
    };
    tx.execute(
        "INSERT INTO agent_entry (place, segment, sequence, id, parent_id, depth, thread, role, entry_type, turn_id, \
         metadata, label_name, label_key, seen, once_name, once_n, created_at, output_of, content) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
        params![
            place,
            slot.segment,
            slot.sequence,
            blob(&new.id.0),
            new.parent.as_ref().map(|parent| blob(&parent.0)),
            depth,
            new.thread,
            new.role,
            new.entry_type,
            new.turn_id,
            new.metadata,
            (*op.label.name != *new.role).then_some(&*op.label.name),
            label_key(&op.label.key),
            seen_bytes(&op.seen),
            op.once.as_ref().map(|once| &*once.name),
            op.once.as_ref().map(|once| once.n),
            tx.now.0,
            output_of,
            output_of.is_none().then_some(content),
        ],
    )?;
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

/// The task among the run's last ops whose output is a content: what a model or a tool answered is stored once.
fn task_with(tx: &Tx, run: &Run, place: i64, content: &ToSqlOutput<'_>) -> Done<Option<i64>> {
    let low = span(run.home.run).0.max(place - REPEATED_WITHIN);
    tx.first(
        "SELECT place FROM task_execution WHERE place BETWEEN ?1 AND ?2 \
         AND octet_length(output) = octet_length(?3) AND output = ?3 ORDER BY place DESC LIMIT 1",
        params![low, place, content],
        |row| row.get(0),
    )
}

/// Stores an op that leaves no other row.
pub(super) fn insert(tx: &Tx, run: &Run, slot: Slot, op: &NewOp) -> Done<()> {
    let mut due: Option<Timestamp> = None;
    let mut count = None;
    let mut data = None;
    let mut id: Option<&[u8]> = None;
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
            id = Some(blob(&task.0));
            OpKind::Attach
        }
        OpBody::Usage { model, usage } => {
            data = Some(text_of(&(model, usage))?);
            OpKind::Usage
        }
        OpBody::Once { digest, value: result } => {
            (id, value) = (Some(&digest.0[..]), Some(result));
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
    tx.execute(
        "INSERT INTO agent_op (place, segment, sequence, kind, label_name, label_key, seen, once_name, once_n, due_at, \
         count, data, task_id, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        params![
            place(run, slot.sequence)?,
            slot.segment,
            slot.sequence,
            kind as u8,
            &*op.label.name,
            label_key(&op.label.key),
            seen_bytes(&op.seen),
            op.once.as_ref().map(|once| &*once.name),
            op.once.as_ref().map(|once| once.n),
            due.map(|due| due.0),
            count,
            data,
            id,
            value.map(Cell),
        ],
    )?;
    Ok(())
}

/// The place of an op of the run's current segment.
pub(super) fn place(run: &Run, sequence: u32) -> Done<i64> {
    key(run.home.run, run.home.start + i64::from(sequence))
}

/// What holds a slot of the run's own current segment.
pub(super) fn label_at(tx: &Tx, place: i64) -> Done<Option<Label>> {
    Ok(between(tx, place, place)?.into_iter().next().map(|op| op.op.label))
}

/// The timers of a run that are armed do not fire any more; when they would have is kept.
pub(super) fn disarm_all(tx: &Tx, run: &Run) -> Done<()> {
    let (low, high) = span(run.home.run);
    tx.execute(
        "UPDATE agent_op SET due_at = NULL, fired_at = due_at WHERE place BETWEEN ?1 AND ?2 AND due_at IS NOT NULL",
        [low, high],
    )?;
    Ok(())
}

/// The timer of an op does not fire any more; when it would have is kept.
pub(super) fn disarm(tx: &Tx, place: i64) -> Done<()> {
    tx.execute(
        "UPDATE agent_op SET due_at = NULL, fired_at = due_at WHERE place = ?1 AND due_at IS NOT NULL",
        [place],
    )?;
    Ok(())
}

/// The timer of an op fires after all, if it was disarmed.
pub(super) fn rearm(tx: &Tx, place: i64) -> Done<()> {
    tx.execute(
        "UPDATE agent_op SET due_at = fired_at, fired_at = NULL \
         WHERE place = ?1 AND fired IS NULL AND due_at IS NULL AND fired_at IS NOT NULL",
        [place],
    )?;
    Ok(())
}

/// The op that gave an await up counts no more.
pub(super) fn undo(tx: &Tx, place: i64) -> Done<()> {
    tx.execute("UPDATE agent_op SET label_key = ?2 WHERE place = ?1", params![place, UNDONE])?;
    Ok(())
}

const SELECT_OP: &str = "SELECT place, segment, sequence, kind, label_name, label_key, seen, once_name, once_n, fired, \
                         fired_at, count, task_id, value FROM agent_op ";
const SELECT_ENTRY_OP: &str = "SELECT place, segment, sequence, id, parent_id, thread, role, label_name, label_key, seen, \
                               once_name, once_n FROM agent_entry ";

/// The ops of a range of places, in order.
pub(super) fn between(tx: &Tx, low: i64, high: i64) -> Done<Vec<Recorded>> {
    query(tx, "WHERE place BETWEEN ?1 AND ?2", &[&low, &high])
}

/// The ops of a run that are inside a `once`, in order.
pub(super) fn of_onces(tx: &Tx, run: i64) -> Done<Vec<Recorded>> {
    query(tx, "WHERE run = ?1 AND once_name IS NOT NULL", &[&run])
}

fn query(tx: &Tx, condition: &str, params: &[&dyn ToSql]) -> Done<Vec<Recorded>> {
    let mut ops = tx.all(&format!("{SELECT_OP}{condition}"), params, read_op)?;
    ops.extend(tx.all(&format!("{SELECT_ENTRY_OP}{condition}"), params, read_entry_op)?);
    ops.extend(tx.all(&format!("{}{condition}", select_task_op!()), params, |row| {
        let (op, fact) = recorded_task(row)?;
        Ok(Recorded { op, fact, fired_at: None, once: None })
    })?);
    ops.sort_unstable_by_key(Recorded::slot);
    Ok(ops)
}

fn read_op(row: &Row<'_>) -> rusqlite::Result<Recorded> {
    let number: u8 = row.get(3)?;
    let kind = OpKind::from_number(number).unwrap_or(OpKind::Flush);
    let once = read_once(row, 7)?;
    let name: String = row.get(4)?;
    let body = match kind {
        OpKind::Signal => RecordedBody::Signal,
        OpKind::Timer => RecordedBody::Timer,
        OpKind::Read => RecordedBody::Read { answer: payload(row, 13)?, count: row.get(11)? },
        OpKind::Abandon => RecordedBody::Abandon { target: row.get(11)? },
        OpKind::Attach => RecordedBody::Attach { task: TaskId(id(row, 12)?) },
        OpKind::Usage => RecordedBody::Usage,
        OpKind::Step => RecordedBody::Step,
        OpKind::Once => RecordedBody::Once { value: payload(row, 13)? },
        OpKind::Flush | OpKind::Entry | OpKind::Task => RecordedBody::Flush,
    };
    let result = match &body {
        RecordedBody::Once { value } => {
            let digest = match row.get_ref(12)? {
                ValueRef::Blob(bytes) => bytes.try_into().map(Digest).unwrap_or_default(),
                _ => Digest::default(),
            };
            let name = once.as_ref().map_or_else(|| name.as_str().into(), |once| once.name.clone());
            Some(OnceResult { name, digest, value: value.clone() })
        }
        _ => None,
    };
    Ok(Recorded {
        op: RecordedOp {
            segment: row.get(1)?,
            sequence: row.get(2)?,
            once,
            label: Label { kind, name: name.into(), key: read_label_key(row, 5)? },
            seen: read_seen(row, 6)?,
            body,
        },
        fact: row.get(9)?,
        fired_at: row.get(10)?,
        once: result,
    })
}

fn read_entry_op(row: &Row<'_>) -> rusqlite::Result<Recorded> {
    let role: String = row.get(6)?;
    Ok(Recorded {
        op: RecordedOp {
            segment: row.get(1)?,
            sequence: row.get(2)?,
            once: read_once(row, 10)?,
            label: Label {
                kind: OpKind::Entry,
                name: row.get::<_, Option<String>>(7)?.unwrap_or(role).into(),
                key: read_label_key(row, 8)?,
            },
            seen: read_seen(row, 9)?,
            body: RecordedBody::Entry {
                id: EntryId(id(row, 3)?),
                parent: id_opt(row, 4)?.map(EntryId),
                thread: row.get(5)?,
            },
        },
        fact: None,
        fired_at: None,
        once: None,
    })
}
