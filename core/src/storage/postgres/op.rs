//! The statements about ops, and how the journal of a segment is put together from the rows of ops, entries and tasks.

use super::fault::Done;
use super::run::Run;
use super::sets::{Set, Value, row};
use super::task::{recorded as recorded_task, select_task_op};
use super::tx::Tx;
use super::values::{
    Key, Place, Row, cell, label_key, payload, read_label_key, read_once, read_seen, seen_bytes, unreadable,
};
use crate::id::{EntryId, ExecutionId, Slot, TaskId};
use crate::model::{Label, LabelKey, NewOp, OnceResult, OpKind, RecordedBody, RecordedOp, Seen, UNDONE};
use crate::payload::Digest;
use crate::storage::sql::tail::Recorded;
use crate::storage::sql::{OpRow, Ops};
use uuid::Uuid;

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

/// The queries for the rows of a run's ops in its three tables, with the same condition.
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

impl Ops for Tx<'_> {
    fn place(run: &Run, sequence: u32) -> Done<Place> {
        Ok(place_of(run, Slot { segment: run.segment, sequence }))
    }

    fn label_at(&self, place: Place) -> Done<Option<Label>> {
        Ok(between(self, place.key, place.slot, place.slot)?.into_iter().next().map(|op| op.op.label))
    }

    fn child_at(&self, place: Place) -> Done<Option<ExecutionId>> {
        self.first(
            "SELECT c.id FROM agent_op o JOIN agent_execution c ON c.org_id = o.org_id AND c.id = encode(o.target, 'hex')::uuid \
             WHERE o.org_id = $1 AND o.run = $2 AND o.segment = $3 AND o.sequence = $4 AND o.kind = 12 AND c.ended_at IS NULL",
            op_row(place, Vec::new()),
            |row| Ok(ExecutionId(row.get(0)?)),
        )
    }

    fn put_op(&self, run: &Run, slot: Slot, op: &NewOp, own: OpRow<'_>) -> Done<()> {
        self.put(
            &OP,
            row![
                run.home.key.org.0,
                run.home.key.run,
                slot.segment,
                slot.sequence,
                own.kind as u8,
                &*op.label.name,
                label_key(&op.label.key),
                seen_bytes(&op.seen),
                op.once.as_ref().map(|once| &*once.name),
                op.once.as_ref().map(|once| once.n),
                own.due,
                own.count,
                own.data,
                own.target,
                own.value.map(cell).transpose()?,
            ],
        );
        Ok(())
    }

    fn count_reads(&self, place: Place, count: u32) -> Done<()> {
        self.put(&COUNTED, op_row(place, row![OpKind::Read as u8, count]));
        Ok(())
    }

    fn disarm(&self, place: Place) -> Done<()> {
        self.put(&DISARMED, op_row(place, row![None::<i64>]));
        Ok(())
    }

    fn disarm_all(&self, run: &Run) -> Done<()> {
        self.put(&ALL_DISARMED, row![run.home.key.org.0, run.home.key.run, None::<i64>]);
        Ok(())
    }

    fn rearm(&self, run: &Run, slot: Slot) -> Done<()> {
        self.put(&REARMED, op_row(place_of(run, slot), row![None::<i64>]));
        Ok(())
    }

    fn undo(&self, run: &Run, slot: Slot) -> Done<()> {
        let undone = label_key(&LabelKey::Key(UNDONE.into()));
        self.put(&UNDONE_OP, op_row(place_of(run, slot), row![undone]));
        Ok(())
    }

    fn ops_from(&self, run: &Run, segment: u32) -> Done<Vec<Recorded>> {
        between(self, run.home.key, Slot { segment, sequence: 0 }, LAST)
    }

    fn ops_until(&self, run: &Run, last: Slot) -> Done<Vec<Recorded>> {
        between(self, run.home.key, Slot::default(), last)
    }

    fn ops_of_onces(&self, run: &Run) -> Done<Vec<Recorded>> {
        let condition = select_ops!("WHERE org_id = $1 AND run = $2 AND once_name IS NOT NULL");
        query(self, condition, row![run.home.key.org.0, run.home.key.run])
    }

    fn last_sequence(&self, run: &Run) -> Done<Option<u32>> {
        let last = self.first(
            "SELECT max(sequence) FROM (SELECT max(sequence) AS sequence FROM agent_op WHERE org_id = $1 AND run = $2 \
             UNION ALL SELECT max(sequence) FROM agent_entry WHERE org_id = $1 AND run = $2 \
             UNION ALL SELECT max(sequence) FROM task_execution WHERE org_id = $1 AND run = $2) AS ops",
            row![run.home.key.org.0, run.home.key.run],
            |row| row.get(0),
        )?;
        Ok(last.flatten())
    }

    fn told_to_stop(&self, run: &Run) -> Done<Option<u32>> {
        let told = self.first(
            "SELECT min(sequence) FROM (SELECT sequence, seen FROM agent_op WHERE org_id = $1 AND run = $2 \
             UNION ALL SELECT sequence, seen FROM agent_entry WHERE org_id = $1 AND run = $2 \
             UNION ALL SELECT sequence, seen FROM task_execution WHERE org_id = $1 AND run = $2) AS ops \
             WHERE position($3 IN seen) > 0",
            row![run.home.key.org.0, run.home.key.run, seen_bytes(&[Seen::CANCEL])],
            |row| row.get(0),
        )?;
        Ok(told.flatten())
    }
}

/// The last place that a row of a run can have.
const LAST: Slot = Slot { segment: i32::MAX as u32, sequence: i32::MAX as u32 };

/// The place of an op of a run.
fn place_of(run: &Run, slot: Slot) -> Place {
    Place { key: run.home.key, slot }
}

/// The parameters for an op's row: its place, then more.
fn op_row(place: Place, more: Vec<Value>) -> Vec<Value> {
    let Place { key, slot } = place;
    let mut row = row![key.org.0, key.run, slot.segment, slot.sequence];
    row.extend(more);
    row
}

/// The ops of a run from a slot to another, in order.
pub(super) fn between(tx: &Tx, key: Key, low: Slot, high: Slot) -> Done<Vec<Recorded>> {
    let condition = select_ops!(
        "WHERE org_id = $1 AND run = $2 AND (segment, sequence) >= ($3, $4) AND (segment, sequence) <= ($5, $6)"
    );
    query(tx, condition, row![key.org.0, key.run, low.segment, low.sequence, high.segment, high.sequence])
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
        OpKind::Child => RecordedBody::Child { id: ExecutionId(Uuid::from_bytes(row.get(11)?)) },
        OpKind::Usage => RecordedBody::Usage,
        OpKind::Send => RecordedBody::Send(payload(row, 12)?.parse().map_err(|_| unreadable(12, "message"))?),
        OpKind::StepMark => RecordedBody::StepMark,
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
