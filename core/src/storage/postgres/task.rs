//! The statements about tasks; their transitions are in `sql::task`.

use super::fault::Done;
use super::run::Run;
use super::sets::{Set, Value, row};
use super::tx::Tx;
use super::values::{
    Key, Place, Row, cell, json_opt, label_key, one_of, payload, payload_opt, read_label_key, read_once, read_seen,
    seen_bytes, text_of,
};
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OnceSlot, OpId, OrgId, Slot, TaskId, WorkerId};
use crate::model::{
    Label, NewOp, NewTask, OpKind, Placement, RecordedBody, RecordedOp, SideEffects, Task, TaskOptions, TaskStatus,
};
use crate::payload::RowOf;
use crate::storage::PAGE;
use crate::storage::allowance::Allowance;
use crate::storage::sql::task::TASK_STATUS;
use crate::storage::sql::{self, Tasks};
use bytes::Bytes;
use uuid::Uuid;

/// A SELECT of the columns of [`TaskRow`], without its WHERE clause. `t` is its table.
macro_rules! select_task {
    () => {
        "SELECT t.org_id, t.run, t.segment, t.sequence, t.id, t.status, t.placement, t.attempt, t.failed_attempts, t.losses, \
         t.reconcile, t.epoch, t.ended_number, t.kind, t.queue, t.entry_id, t.visible_at, t.worker, t.lease_expires, \
         t.sign_at, t.stop, t.created_at, t.started_at, t.ended_at, t.options, t.progress, t.failure, t.input, t.output, \
         x.id FROM task_execution t JOIN agent_execution x ON x.org_id = t.org_id AND x.run = t.run "
    };
}
pub(super) use select_task;

static SCHEDULED: Set = Set::insert(
    "task_execution",
    "org_id uuid, run bigint, segment int, sequence int, id uuid, status smallint, placement smallint, attempt int, \
     failed_attempts int, losses int, reconcile boolean, epoch bigint, ended_number bigint, detached boolean, kind text, \
     queue text, entry_id uuid, visible_at bigint, worker uuid, due_at bigint, created_at bigint, started_at bigint, \
     ended_at bigint, label_name text, label_key bytea, seen bytea, once_name text, once_n int, options text, \
     failure text, input bytea, output bytea",
);
static SAVED: Set = Set::update(
    "task_execution",
    4,
    "org_id uuid, run bigint, segment int, sequence int, status smallint, placement smallint, attempt int, \
     failed_attempts int, losses int, reconcile boolean, epoch bigint, ended_number bigint, visible_at bigint, \
     worker uuid, lease_expires bigint, sign_at bigint, stop boolean, due_at bigint, started_at bigint, ended_at bigint, \
     failure text, output bytea",
);

/// A task as stored.
pub(super) type TaskRow = sql::task::TaskRow<Place>;

impl TaskRow {
    /// Reads the columns of `select_task!`.
    pub(super) fn read(row: &Row) -> Done<Self> {
        let key = Key { org: OrgId(row.get(0)?), run: row.get(1)? };
        let slot = Slot { segment: row.get(2)?, sequence: row.get(3)? };
        Ok(Self {
            place: Place { key, slot },
            task: Task {
                new: NewTask {
                    id: TaskId(row.get(4)?),
                    kind: row.get(13)?,
                    queue: row.get(14)?,
                    input: payload(row, 27)?,
                    options: json_opt(row, 24)?.unwrap_or_default(),
                    placement: one_of(&[Placement::Inline, Placement::Queue, Placement::Queue], 6, row)?,
                    entry: row.get::<Option<Uuid>>(15)?.map(EntryId),
                },
                org: key.org,
                execution: ExecutionId(row.get(29)?),
                slot,
                status: one_of(&TASK_STATUS, 5, row)?,
                attempt: row.get(7)?,
                failed_attempts: row.get(8)?,
                losses: row.get(9)?,
                output: payload_opt(row, 28)?,
                failure: json_opt(row, 26)?,
                progress: row.get(25)?,
                visible_at: Timestamp(row.get(16)?),
                worker: row.get::<Option<Uuid>>(17)?.map(WorkerId),
                created_at: Timestamp(row.get(21)?),
                started_at: row.get::<Option<i64>>(22)?.map(Timestamp),
                ended_at: row.get::<Option<i64>>(23)?.map(Timestamp),
            },
            born_inline: row.get::<u8>(6)? != 1,
            reconcile: row.get::<Option<bool>>(10)?.unwrap_or(false),
            epoch: row.get::<Option<u64>>(11)?.unwrap_or(0),
            ended_number: row.get(12)?,
            lease_expires: row.get(18)?,
            sign_at: row.get(19)?,
            stop: row.get::<Option<bool>>(20)?.unwrap_or(false),
        })
    }

    /// The task of an id.
    pub(super) fn find(tx: &Tx, org: OrgId, task: TaskId) -> Done<Option<Self>> {
        tx.first(concat!(select_task!(), "WHERE t.org_id = $1 AND t.id = $2"), row![org.0, task.0], Self::read)
    }
}

/// Reads a task. Its result stays in its row if the allowance has no room for it.
fn within(row: &Row, allowance: &mut Allowance) -> Done<TaskRow> {
    let mut read = TaskRow::read(row)?;
    allowance.task(&mut read.task);
    Ok(read)
}

impl Tasks for Tx<'_> {
    fn task_at(&self, place: Place) -> Done<Option<TaskRow>> {
        let Place { key, slot } = place;
        self.first(
            concat!(select_task!(), "WHERE t.org_id = $1 AND t.run = $2 AND t.segment = $3 AND t.sequence = $4"),
            row![key.org.0, key.run, slot.segment, slot.sequence],
            TaskRow::read,
        )
    }

    /// In pages.
    fn tasks_at(&self, run: &Run, slots: &[Slot], allowance: &mut Allowance) -> Done<Vec<TaskRow>> {
        let key = run.home.key;
        let mut found = Vec::with_capacity(slots.len());
        for page in slots.chunks(PAGE) {
            let (segments, sequences): (Vec<Value>, Vec<Value>) =
                page.iter().map(|slot| (Value::from(slot.segment), Value::from(slot.sequence))).unzip();
            found.extend(self.all(
                concat!(
                    select_task!(),
                    "JOIN UNNEST($3::int[], $4::int[]) AS k(segment, sequence) \
                     ON t.segment = k.segment AND t.sequence = k.sequence WHERE t.org_id = $1 AND t.run = $2"
                ),
                row![key.org.0, key.run, segments, sequences],
                |row| within(row, allowance),
            )?);
        }
        Ok(found)
    }

    fn task_of(&self, run: &Run, op: &OpId) -> Done<Option<TaskRow>> {
        let slot = match &op.once {
            None => Some(op.slot),
            Some(once) => self.first(
                "SELECT segment, sequence FROM task_execution WHERE org_id = $1 AND run = $2 AND once_name = $3 \
                 AND once_n = $4",
                row![run.home.key.org.0, run.home.key.run, &*once.name, once.n],
                |row| Ok(Slot { segment: row.get(0)?, sequence: row.get(1)? }),
            )?,
        };
        slot.map_or(Ok(None), |slot| self.task_at(Place { key: run.home.key, slot }))
    }

    fn open_task(&self, org: OrgId, id: TaskId) -> Done<Option<TaskRow>> {
        Ok(TaskRow::find(self, org, id)?.filter(|row| !row.task.status.is_terminal()))
    }

    fn task_by_id(&self, run: &Run, id: TaskId) -> Done<Option<TaskRow>> {
        Ok(TaskRow::find(self, run.home.key.org, id)?.filter(|row| row.task.execution == run.id))
    }

    fn outputs(&self, org: OrgId, of: &[RowOf]) -> Done<Vec<Bytes>> {
        super::result_pages::read(self, org, of)
    }

    fn detached_ended(&self, run: &Run, before: u32, allowance: &mut Allowance) -> Done<Vec<TaskRow>> {
        self.all(
            concat!(
                select_task!(),
                "WHERE t.org_id = $1 AND t.run = $2 AND t.detached AND t.segment < $3 AND t.ended_number IS NOT NULL"
            ),
            row![run.home.key.org.0, run.home.key.run, before],
            |row| within(row, allowance),
        )
    }

    fn detached_until(&self, run: &Run, segment: u32, allowance: &mut Allowance) -> Done<Vec<TaskRow>> {
        let sql = concat!(select_task!(), "WHERE t.org_id = $1 AND t.run = $2 AND t.detached AND t.segment <= $3");
        self.all(sql, row![run.home.key.org.0, run.home.key.run, segment], |row| within(row, allowance))
    }

    fn put_task(&self, stored: &TaskRow, op: &NewOp, due: Option<i64>, options: Option<String>) -> Done<()> {
        let (task, label) = (&stored.task, &op.label);
        self.put(
            &SCHEDULED,
            row![
                stored.place.key.org.0,
                stored.place.key.run,
                task.slot.segment,
                task.slot.sequence,
                task.new.id.0,
                task.status as u8,
                stored.placement(),
                task.attempt,
                task.failed_attempts,
                task.losses,
                stored.reconcile.then_some(true),
                stored.epoch,
                stored.ended_number,
                task.new.options.detached.then_some(true),
                &task.new.kind,
                &task.new.queue,
                task.new.entry.map(|entry| entry.0),
                task.visible_at,
                task.worker.map(|worker| worker.0),
                due,
                task.created_at,
                task.started_at,
                task.ended_at,
                (*label.name != *task.new.kind).then_some(&*label.name),
                label_key(&label.key),
                seen_bytes(&op.seen),
                op.once.as_ref().map(|once| &*once.name),
                op.once.as_ref().map(|once| once.n),
                options,
                task.failure.as_ref().map(text_of).transpose()?,
                cell(&task.new.input)?,
                task.output.as_ref().map(cell).transpose()?,
            ],
        );
        Ok(())
    }

    fn save_task(&self, stored: &TaskRow, due: Option<i64>) -> Done<()> {
        let task = &stored.task;
        self.put(
            &SAVED,
            row![
                stored.place.key.org.0,
                stored.place.key.run,
                task.slot.segment,
                task.slot.sequence,
                task.status as u8,
                stored.placement(),
                task.attempt,
                task.failed_attempts,
                task.losses,
                stored.reconcile.then_some(true),
                stored.epoch,
                stored.ended_number,
                task.visible_at,
                task.worker.map(|worker| worker.0),
                stored.lease_expires,
                stored.sign_at,
                stored.stop.then_some(true),
                due,
                task.started_at,
                task.ended_at,
                task.failure.as_ref().map(text_of).transpose()?,
                task.output.as_ref().map(cell).transpose()?,
            ],
        );
        Ok(())
    }

    fn open_tasks(&self, run: &Run) -> Done<Vec<TaskRow>> {
        if let Some(gathered) = self.gathered.borrow_mut().take_tasks(run.home.key) {
            return Ok(gathered);
        }
        if let Some(asked) = self.ahead.borrow_mut().take_tasks(run.home.key.org, run.id) {
            return asked.iter().map(TaskRow::read).collect();
        }
        let sql = concat!(
            select_task!(),
            "WHERE t.org_id = $1 AND t.run = $2 AND t.ended_at IS NULL ORDER BY t.segment, t.sequence"
        );
        self.all(sql, row![run.home.key.org.0, run.home.key.run], TaskRow::read)
    }

    fn has_open(&self, run: &Run, status: TaskStatus) -> Done<bool> {
        let found = self.first(
            "SELECT TRUE FROM task_execution WHERE org_id = $1 AND run = $2 AND ended_at IS NULL AND status = $3 LIMIT 1",
            row![run.home.key.org.0, run.home.key.run, status as u8],
            |row| row.get::<bool>(0),
        )?;
        Ok(found.is_some())
    }

    fn has_more_open(&self, run: &Run, most: usize) -> Done<bool> {
        let one =
            "SELECT TRUE FROM task_execution WHERE org_id = $1 AND run = $2 AND ended_at IS NULL LIMIT 1 OFFSET $3";
        Ok(!self.ask(one, row![run.home.key.org.0, run.home.key.run, most as i64])?.is_empty())
    }
}

/// A SELECT of the columns of [`recorded`], without its WHERE clause.
macro_rules! select_task_op {
    () => {
        "SELECT segment, sequence, id, status, placement, attempt, kind, options, label_name, label_key, seen, once_name, \
         once_n, ended_number FROM task_execution "
    };
}
pub(super) use select_task_op;

/// A task as the journal has it, with its fact number.
pub(super) fn recorded(row: &Row) -> Done<(RecordedOp, Option<u64>)> {
    let kind: String = row.get(6)?;
    let options: TaskOptions = json_opt(row, 7)?.unwrap_or_default();
    let once: Option<OnceSlot> = read_once(row, 11)?;
    let op = RecordedOp {
        segment: row.get(0)?,
        sequence: row.get(1)?,
        once,
        label: Label {
            kind: OpKind::Task,
            name: row.get::<Option<String>>(8)?.unwrap_or(kind).into(),
            key: read_label_key(row, 9)?,
        },
        seen: read_seen(row, 10)?,
        body: RecordedBody::Task {
            id: TaskId(row.get(2)?),
            status: one_of(&TASK_STATUS, 3, row)?,
            attempt: row.get(5)?,
            inline: row.get::<u8>(4)? == 0,
            at_most_once: options.side_effects == SideEffects::AtMostOnce,
            detached: options.detached,
            max_losses: options.max_losses,
        },
    };
    Ok((op, row.get(13)?))
}
