//! The statements about tasks; their transitions are in `sql::task`.

use super::facts::place_of;
use super::fault::Done;
use super::run::Run;
use super::tx::Tx;
use super::values::{
    Cell, blob, id, id_opt, json_opt, label_key, one_of, payload, payload_opt, read_label_key, read_once, read_seen,
    seen_bytes, span, text_of,
};
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OnceSlot, OpId, OrgId, Slot, TaskId, WorkerId};
use crate::model::{
    Label, NewOp, NewTask, OpKind, Placement, RecordedBody, RecordedOp, SideEffects, Task, TaskOptions, TaskStatus,
};
use crate::payload::RowOf;
use crate::storage::allowance::Allowance;
use crate::storage::sql::task::TASK_STATUS;
use crate::storage::sql::{self, Runs, Tasks, if_there};
use bytes::Bytes;
use rusqlite::{Row, params};

/// A SELECT of the columns of [`TaskRow`], without its WHERE clause. `t` is its table.
macro_rules! select_task {
    () => {
        "SELECT t.place, t.segment, t.sequence, t.id, t.status, t.placement, t.attempt, t.failed_attempts, t.losses, \
         t.reconcile, t.epoch, t.ended_number, t.kind, t.queue, t.entry_id, t.visible_at, t.worker, t.lease_expires, \
         t.sign_at, t.stop, t.created_at, t.started_at, t.ended_at, t.options, t.progress, t.failure, t.input, t.output, \
         x.org_id, x.id FROM task_execution t JOIN agent_execution x ON x.run = t.place >> 31 "
    };
}
pub(super) use select_task;

/// A task as stored.
pub(super) type TaskRow = sql::task::TaskRow<i64>;

impl TaskRow {
    /// Reads the columns of `select_task!`.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            place: row.get(0)?,
            task: Task {
                new: NewTask {
                    id: TaskId(id(row, 3)?),
                    kind: row.get(12)?,
                    queue: row.get(13)?,
                    input: payload(row, 26)?,
                    options: json_opt(row, 23)?.unwrap_or_default(),
                    placement: one_of(&[Placement::Inline, Placement::Queue, Placement::Queue], 5, row)?,
                    entry: id_opt(row, 14)?.map(EntryId),
                },
                org: OrgId(id(row, 28)?),
                execution: ExecutionId(id(row, 29)?),
                slot: Slot { segment: row.get(1)?, sequence: row.get(2)? },
                status: one_of(&TASK_STATUS, 4, row)?,
                attempt: row.get(6)?,
                failed_attempts: row.get(7)?,
                losses: row.get(8)?,
                output: payload_opt(row, 27)?,
                failure: json_opt(row, 25)?,
                progress: row.get(24)?,
                visible_at: Timestamp(row.get(15)?),
                worker: id_opt(row, 16)?.map(WorkerId),
                created_at: Timestamp(row.get(20)?),
                started_at: row.get::<_, Option<i64>>(21)?.map(Timestamp),
                ended_at: row.get::<_, Option<i64>>(22)?.map(Timestamp),
            },
            born_inline: row.get::<_, u8>(5)? != 1,
            reconcile: row.get::<_, Option<bool>>(9)?.unwrap_or(false),
            epoch: row.get::<_, Option<u64>>(10)?.unwrap_or(0),
            ended_number: row.get(11)?,
            lease_expires: row.get(17)?,
            sign_at: row.get(18)?,
            stop: row.get::<_, Option<bool>>(19)?.unwrap_or(false),
        })
    }

    /// The task of a run with this id. The run's rows are searched: only open tasks are in an index of ids, so that a
    /// step writes one row and no index.
    pub(super) fn of(tx: &Tx, org: OrgId, execution: ExecutionId, task: TaskId) -> Done<Option<Self>> {
        tx.task_by_id(&tx.find_run(org, execution)?, task)
    }

    /// The open task of an id.
    pub(super) fn find(tx: &Tx, org: OrgId, task: TaskId) -> Done<Option<Self>> {
        tx.first(
            concat!(select_task!(), "WHERE t.id = ?1 AND t.ended_at IS NULL AND x.org_id = ?2"),
            [blob(&task.0), blob(&org.0)],
            Self::read,
        )
    }
}

/// Reads a task. Its result stays in its row if the allowance has no room for it.
fn within(row: &Row<'_>, allowance: &mut Allowance) -> rusqlite::Result<TaskRow> {
    let mut read = TaskRow::read(row)?;
    allowance.task(&mut read.task);
    Ok(read)
}

impl Tasks for Tx<'_> {
    fn task_at(&self, place: i64) -> Done<Option<TaskRow>> {
        self.first(concat!(select_task!(), "WHERE t.place = ?1"), [place], TaskRow::read)
    }

    fn tasks_at(&self, run: &Run, slots: &[Slot], allowance: &mut Allowance) -> Done<Vec<TaskRow>> {
        let mut found = Vec::new();
        for &slot in slots {
            let place = place_of(self, run, slot)?;
            let sql = concat!(select_task!(), "WHERE t.place = ?1");
            found.extend(self.first(sql, [place], |row| within(row, allowance))?);
        }
        Ok(found)
    }

    fn task_of(&self, run: &Run, op: &OpId) -> Done<Option<TaskRow>> {
        let Some(once) = &op.once else {
            let Some(place) = if_there(place_of(self, run, op.slot))? else { return Ok(None) };
            // A sequence beyond the end of its segment would be the place of an op of the next segment.
            return Ok(self.task_at(place)?.filter(|row| row.task.slot == op.slot));
        };
        let place = self.first(
            "SELECT place FROM task_execution WHERE run = ?1 AND once_name = ?2 AND once_n = ?3",
            params![run.home.run, &*once.name, once.n],
            |row| row.get(0),
        )?;
        place.map_or(Ok(None), |place| self.task_at(place))
    }

    fn open_task(&self, org: OrgId, id: TaskId) -> Done<Option<TaskRow>> {
        TaskRow::find(self, org, id)
    }

    fn task_by_id(&self, run: &Run, id: TaskId) -> Done<Option<TaskRow>> {
        let (low, high) = span(run.home.run);
        let sql = concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 AND t.id = ?3");
        self.first(sql, params![low, high, blob(&id.0)], TaskRow::read)
    }

    fn outputs(&self, org: OrgId, of: &[RowOf]) -> Done<Vec<Bytes>> {
        super::result_pages::read(self, org, of)
    }

    fn detached_ended(&self, run: &Run, before: u32, allowance: &mut Allowance) -> Done<Vec<TaskRow>> {
        let (low, high) = span(run.home.run);
        self.all(
            concat!(
                select_task!(),
                "WHERE t.place BETWEEN ?1 AND ?2 AND t.detached = 1 AND t.segment < ?3 AND t.ended_number IS NOT NULL"
            ),
            params![low, high, before],
            |row| within(row, allowance),
        )
    }

    fn detached_until(&self, run: &Run, segment: u32, allowance: &mut Allowance) -> Done<Vec<TaskRow>> {
        let (low, high) = span(run.home.run);
        self.all(
            concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 AND t.detached = 1 AND t.segment <= ?3"),
            params![low, high, segment],
            |row| within(row, allowance),
        )
    }

    fn put_task(&self, row: &TaskRow, op: &NewOp, due: Option<i64>, options: Option<String>) -> Done<()> {
        let (task, label) = (&row.task, &op.label);
        self.execute(
            "INSERT INTO task_execution (place, segment, sequence, id, status, placement, attempt, failed_attempts, \
             losses, reconcile, epoch, ended_number, detached, kind, queue, org_id, entry_id, visible_at, worker, \
             due_at, created_at, started_at, ended_at, label_name, label_key, seen, once_name, once_n, options, failure, \
             input, output) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
             ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32)",
            params![
                row.place,
                task.slot.segment,
                task.slot.sequence,
                blob(&task.new.id.0),
                task.status as u8,
                row.placement(),
                task.attempt,
                task.failed_attempts,
                task.losses,
                row.reconcile.then_some(true),
                row.epoch,
                row.ended_number,
                task.new.options.detached.then_some(true),
                task.new.kind,
                task.new.queue,
                (task.new.placement == Placement::Queue).then(|| blob(&task.org.0)),
                task.new.entry.as_ref().map(|entry| blob(&entry.0)),
                task.visible_at.0,
                task.worker.as_ref().map(|worker| blob(&worker.0)),
                due,
                task.created_at.0,
                task.started_at.map(|at| at.0),
                task.ended_at.map(|at| at.0),
                (*label.name != *task.new.kind).then_some(&*label.name),
                label_key(&label.key),
                seen_bytes(&op.seen),
                op.once.as_ref().map(|once| &*once.name),
                op.once.as_ref().map(|once| once.n),
                options,
                task.failure.as_ref().map(text_of).transpose()?,
                Cell(&task.new.input),
                task.output.as_ref().map(Cell),
            ],
        )?;
        Ok(())
    }

    fn save_task(&self, row: &TaskRow, due: Option<i64>) -> Done<()> {
        let task = &row.task;
        self.execute(
            "UPDATE task_execution SET status = ?2, placement = ?3, attempt = ?4, failed_attempts = ?5, losses = ?6, \
             reconcile = ?7, epoch = ?8, ended_number = ?9, org_id = ?10, visible_at = ?11, worker = ?12, \
             lease_expires = ?13, sign_at = ?14, stop = ?15, due_at = ?16, started_at = ?17, ended_at = ?18, \
             failure = ?19, output = ?20 WHERE place = ?1",
            params![
                row.place,
                task.status as u8,
                row.placement(),
                task.attempt,
                task.failed_attempts,
                task.losses,
                row.reconcile.then_some(true),
                row.epoch,
                row.ended_number,
                (task.new.placement == Placement::Queue).then(|| blob(&task.org.0)),
                task.visible_at.0,
                task.worker.as_ref().map(|worker| blob(&worker.0)),
                row.lease_expires,
                row.sign_at,
                row.stop.then_some(true),
                due,
                task.started_at.map(|at| at.0),
                task.ended_at.map(|at| at.0),
                task.failure.as_ref().map(text_of).transpose()?,
                task.output.as_ref().map(Cell),
            ],
        )?;
        Ok(())
    }

    fn open_tasks(&self, run: &Run) -> Done<Vec<TaskRow>> {
        let (low, high) = span(run.home.run);
        self.all(
            concat!(select_task!(), "WHERE t.place BETWEEN ?1 AND ?2 AND t.ended_at IS NULL ORDER BY t.place"),
            [low, high],
            TaskRow::read,
        )
    }

    fn has_open(&self, run: &Run, status: TaskStatus) -> Done<bool> {
        let (low, high) = span(run.home.run);
        let found = self.first(
            "SELECT 1 FROM task_execution WHERE place BETWEEN ?1 AND ?2 AND ended_at IS NULL AND status = ?3 LIMIT 1",
            params![low, high, status as u8],
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }

    fn has_more_open(&self, run: &Run, most: usize) -> Done<bool> {
        let (low, high) = span(run.home.run);
        let one = "SELECT 1 FROM task_execution WHERE place BETWEEN ?1 AND ?2 AND ended_at IS NULL LIMIT 1 OFFSET ?3";
        Ok(self.first(one, params![low, high, most as i64], |_| Ok(()))?.is_some())
    }
}

/// A SELECT of the columns of [`recorded`], without its WHERE clause.
macro_rules! select_task_op {
    () => {
        "SELECT place, segment, sequence, id, status, placement, attempt, kind, options, label_name, label_key, seen, \
         once_name, once_n, ended_number FROM task_execution "
    };
}
pub(super) use select_task_op;

/// A task as the journal has it, with its fact number.
pub(super) fn recorded(row: &Row<'_>) -> rusqlite::Result<(RecordedOp, Option<u64>)> {
    let kind: String = row.get(7)?;
    let options: TaskOptions = json_opt(row, 8)?.unwrap_or_default();
    let once: Option<OnceSlot> = read_once(row, 12)?;
    let op = RecordedOp {
        segment: row.get(1)?,
        sequence: row.get(2)?,
        once,
        label: Label {
            kind: OpKind::Task,
            name: row.get::<_, Option<String>>(9)?.unwrap_or(kind).into(),
            key: read_label_key(row, 10)?,
        },
        seen: read_seen(row, 11)?,
        body: RecordedBody::Task {
            id: TaskId(id(row, 3)?),
            status: one_of(&TASK_STATUS, 4, row)?,
            attempt: row.get(6)?,
            inline: row.get::<_, u8>(5)? == 0,
            at_most_once: options.side_effects == SideEffects::AtMostOnce,
            detached: options.detached,
            max_losses: options.max_losses,
        },
    };
    Ok((op, row.get(14)?))
}
