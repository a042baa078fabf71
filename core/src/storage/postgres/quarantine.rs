//! Finds rows that cannot be read, and sets them aside: commands over many rows then go on without them.

use super::event::high;
use super::fault::{Done, Fault};
use super::run::{Run, execution, select_execution};
use super::sets::row;
use super::task::{TaskRow, select_task};
use super::tx::{Log, Tx};
use super::values::{Key, Row, text_of};
use crate::id::{ExecutionId, OrgId, TaskId};
use crate::model::{Status, TaskStatus, WaitReason};
use crate::storage::sql::quarantine::{Aside, PAGE, PUT_OFF, over_bounds, wait};
use uuid::Uuid;

const RUNS: &str = concat!(
    select_execution!(),
    "WHERE x.ended_at IS NULL AND (x.org_id, x.run) > ($1, $2) ORDER BY x.org_id, x.run LIMIT $3"
);

const TASKS: &str = concat!(
    select_task!(),
    "WHERE t.status <= 1 AND (t.org_id, t.run, t.segment, t.sequence) > ($1, $2, $3, $4) \
     ORDER BY t.org_id, t.run, t.segment, t.sequence LIMIT $5"
);

/// Sets aside all rows that cannot be read.
pub(super) fn set_aside(tx: &Tx) -> Done<Vec<Aside>> {
    let mut aside = runs(tx)?;
    tasks(tx, &mut aside)?;
    Ok(aside)
}

fn runs(tx: &Tx) -> Done<Vec<Aside>> {
    let (mut aside, mut after) = (Vec::new(), (Uuid::nil(), i64::MIN));
    loop {
        let rows = tx.ask(RUNS, row![after.0, after.1, PAGE as i64])?;
        for row in &rows {
            after = (row.get(0)?, row.get(1)?);
            let Some(why) = wrong(row) else { continue };
            let key = Key { org: OrgId(after.0), run: after.1 };
            let run = Aside { org: key.org, run: ExecutionId(row.get(2)?), task: None, why };
            pause(tx, key, &run)?;
            if row.get::<u8>(3).ok() != Some(Status::Paused as u8) {
                run.put_event(tx, key, high(tx, key)?)?;
            }
            aside.push(run);
        }
        if rows.len() < PAGE {
            return Ok(aside);
        }
    }
}

/// Why a run's row cannot be used. None if it can.
fn wrong(row: &Row) -> Option<String> {
    match (Run::read(row), execution(row)) {
        (Ok(run), Ok(_)) => over_bounds(&run),
        (Err(fault), _) | (_, Err(fault)) => Some(words(fault)),
    }
}

fn words(fault: Fault) -> String {
    match fault {
        Fault::Unreadable(what) => what,
        Fault::Domain(error) => error.message().to_owned(),
        Fault::Sql(error) => error.to_string(),
    }
}

/// Pauses a run by plain statements, since its row cannot be read, and puts off all that is due for it. The person who
/// repairs the row decides what comes of it.
fn pause(tx: &Tx, key: Key, run: &Aside) -> Done<()> {
    let later = tx.now.after(PUT_OFF);
    for (sql, params) in [
        (
            "UPDATE agent_execution SET status = $3, ready = FALSE, epoch = epoch + 1, worker = NULL, last_worker = NULL, \
             lease_expires = NULL, prefer_until = NULL, due_at = NULL, host_timer = FALSE, wait = $4, failure = $5, \
             updated_at = $6 WHERE org_id = $1 AND run = $2",
            row![key.org.0, key.run, Status::Paused as u8, wait()?, text_of(&run.failure())?, tx.now],
        ),
        (
            "UPDATE task_execution SET status = $3, worker = NULL, lease_expires = NULL, due_at = NULL \
             WHERE org_id = $1 AND run = $2 AND status <= 1",
            row![key.org.0, key.run, TaskStatus::Quarantined as u8],
        ),
        (
            "UPDATE agent_op SET due_at = $3 WHERE org_id = $1 AND run = $2 AND due_at < $3",
            row![key.org.0, key.run, later],
        ),
    ] {
        tx.execute(sql, params)?;
    }
    Ok(())
}

fn tasks(tx: &Tx, aside: &mut Vec<Aside>) -> Done<()> {
    let mut after = (Uuid::nil(), i64::MIN, 0u32, 0u32);
    loop {
        let rows = tx.ask(TASKS, row![after.0, after.1, after.2, after.3, PAGE as i64])?;
        for row in &rows {
            after = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let Err(fault) = TaskRow::read(row) else { continue };
            let key = Key { org: OrgId(after.0), run: after.1 };
            let (run, task) = (ExecutionId(row.get(29)?), Some(TaskId(row.get(4)?)));
            let task = Aside { org: key.org, run, task, why: words(fault) };
            tx.execute(
                "UPDATE task_execution SET status = $5, worker = NULL, lease_expires = NULL, due_at = NULL \
                 WHERE org_id = $1 AND run = $2 AND segment = $3 AND sequence = $4",
                row![after.0, after.1, after.2, after.3, TaskStatus::Quarantined as u8],
            )?;
            if let Some(mut run) = Run::at(tx, key)?
                && !run.status.is_terminal()
            {
                run.quarantined = true;
                let mut log = Log::open(tx, &run)?;
                run.pause(&mut log, WaitReason::Quarantined, Some(&task.failure()))?;
                run.save(tx)?;
            }
            aside.push(task);
        }
        if rows.len() < PAGE {
            return Ok(());
        }
    }
}
