//! The statements about ops, and how the journal of a segment is put together from the rows of ops, entries and tasks.

use super::facts::{place_of, start_of};
use super::fault::Done;
use super::run::Run;
use super::task::{recorded as recorded_task, select_task_op};
use super::tx::Tx;
use super::values::{
    Cell, id, id_opt, key, label_key, payload, read_label_key, read_once, read_seen, seen_bytes, span, unreadable,
};
use crate::id::{EntryId, ExecutionId, Slot, TaskId};
use crate::model::{Label, NewOp, OnceResult, OpKind, RecordedBody, RecordedOp, Seen, UNDONE};
use crate::payload::Digest;
use crate::storage::sql::tail::Recorded;
use crate::storage::sql::{OpRow, Ops};
use rusqlite::types::ValueRef;
use rusqlite::{Row, ToSql, params};

impl Ops for Tx<'_> {
    fn place(run: &Run, sequence: u32) -> Done<i64> {
        key(run.home.run, run.home.start + i64::from(sequence))
    }

    fn label_at(&self, place: i64) -> Done<Option<Label>> {
        Ok(between(self, place, place)?.into_iter().next().map(|op| op.op.label))
    }

    fn child_at(&self, place: i64) -> Done<Option<ExecutionId>> {
        self.first(
            "SELECT o.task_id FROM agent_op o JOIN agent_execution p ON p.run = o.run \
             JOIN agent_execution c ON c.org_id = p.org_id AND c.id = o.task_id \
             WHERE o.place = ?1 AND o.kind = 12 AND c.ended_at IS NULL",
            [place],
            |row| id(row, 0).map(ExecutionId),
        )
    }

    fn put_op(&self, run: &Run, slot: Slot, op: &NewOp, row: OpRow<'_>) -> Done<()> {
        self.execute(
            "INSERT INTO agent_op (place, segment, sequence, kind, label_name, label_key, seen, once_name, once_n, due_at, \
             count, data, task_id, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            params![
                Self::place(run, slot.sequence)?,
                slot.segment,
                slot.sequence,
                row.kind as u8,
                &*op.label.name,
                label_key(&op.label.key),
                seen_bytes(&op.seen),
                op.once.as_ref().map(|once| &*once.name),
                op.once.as_ref().map(|once| once.n),
                row.due.map(|due| due.0),
                row.count,
                row.data,
                row.target,
                row.value.map(Cell),
            ],
        )?;
        Ok(())
    }

    fn count_reads(&self, place: i64, count: u32) -> Done<()> {
        self.execute("UPDATE agent_op SET count = ?2 WHERE place = ?1 AND kind = 5", params![place, count])?;
        Ok(())
    }

    fn disarm(&self, place: i64) -> Done<()> {
        let sql = "UPDATE agent_op SET due_at = NULL, fired_at = due_at WHERE place = ?1 AND due_at IS NOT NULL";
        self.execute(sql, [place])?;
        Ok(())
    }

    fn disarm_all(&self, run: &Run) -> Done<()> {
        let (low, high) = span(run.home.run);
        self.execute(
            "UPDATE agent_op SET due_at = NULL, fired_at = due_at WHERE place BETWEEN ?1 AND ?2 AND due_at IS NOT NULL",
            [low, high],
        )?;
        Ok(())
    }

    fn rearm(&self, run: &Run, slot: Slot) -> Done<()> {
        self.execute(
            "UPDATE agent_op SET due_at = fired_at, fired_at = NULL \
             WHERE place = ?1 AND fired IS NULL AND due_at IS NULL AND fired_at IS NOT NULL",
            [place_of(self, run, slot)?],
        )?;
        Ok(())
    }

    fn undo(&self, run: &Run, slot: Slot) -> Done<()> {
        let sql = "UPDATE agent_op SET label_key = ?2 WHERE place = ?1";
        self.execute(sql, params![place_of(self, run, slot)?, UNDONE])?;
        Ok(())
    }

    fn ops_from(&self, run: &Run, segment: u32) -> Done<Vec<Recorded>> {
        between(self, key(run.home.run, start_of(self, run, segment)?)?, span(run.home.run).1)
    }

    fn ops_until(&self, run: &Run, last: Slot) -> Done<Vec<Recorded>> {
        between(self, span(run.home.run).0, place_of(self, run, last)?)
    }

    fn ops_of_onces(&self, run: &Run) -> Done<Vec<Recorded>> {
        query(self, "WHERE run = ?1 AND once_name IS NOT NULL", &[&run.home.run])
    }

    fn last_sequence(&self, run: &Run) -> Done<Option<u32>> {
        let (low, high) = span(run.home.run);
        let last = self.first(
            "SELECT max(sequence) FROM (SELECT max(sequence) AS sequence FROM agent_op WHERE place BETWEEN ?1 AND ?2 \
             UNION ALL SELECT max(sequence) FROM agent_entry WHERE place BETWEEN ?1 AND ?2 \
             UNION ALL SELECT max(sequence) FROM task_execution WHERE place BETWEEN ?1 AND ?2)",
            [low, high],
            |row| row.get(0),
        )?;
        Ok(last.flatten())
    }

    fn told_to_stop(&self, run: &Run) -> Done<Option<u32>> {
        let (low, high) = span(run.home.run);
        let told = self.first(
            "SELECT min(sequence) FROM (SELECT sequence, seen FROM agent_op WHERE place BETWEEN ?1 AND ?2 \
             UNION ALL SELECT sequence, seen FROM agent_entry WHERE place BETWEEN ?1 AND ?2 \
             UNION ALL SELECT sequence, seen FROM task_execution WHERE place BETWEEN ?1 AND ?2) WHERE instr(seen, ?3) > 0",
            params![low, high, seen_bytes(&[Seen::CANCEL])],
            |row| row.get(0),
        )?;
        Ok(told.flatten())
    }
}

const SELECT_OP: &str = "SELECT place, segment, sequence, kind, label_name, label_key, seen, once_name, once_n, fired, \
                         fired_at, count, task_id, value FROM agent_op ";
const SELECT_ENTRY_OP: &str = "SELECT place, segment, sequence, id, parent_id, thread, role, label_name, label_key, seen, \
                               once_name, once_n FROM agent_entry ";

/// The ops of a range of places, in order.
pub(super) fn between(tx: &Tx, low: i64, high: i64) -> Done<Vec<Recorded>> {
    query(tx, "WHERE place BETWEEN ?1 AND ?2", &[&low, &high])
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
        OpKind::Child => RecordedBody::Child { id: ExecutionId(id(row, 12)?) },
        OpKind::Usage => RecordedBody::Usage,
        OpKind::Send => RecordedBody::Send(payload(row, 13)?.parse().map_err(|_| unreadable(13, "message"))?),
        OpKind::StepMark => RecordedBody::StepMark,
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
