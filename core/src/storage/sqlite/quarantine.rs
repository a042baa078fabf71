//! Finds rows that cannot be read, and sets them aside: commands over many rows then go on without them.

use super::event::high;
use super::fault::Done;
use super::run::{Run, execution, select_execution};
use super::task::{TaskRow, select_task};
use super::tx::{Log, Tx};
use super::values::{SHIFT, id, span, text_of};
use crate::id::{ExecutionId, OrgId, TaskId};
use crate::model::{Status, TaskStatus, WaitReason};
use crate::storage::sql::quarantine::{Aside, PAGE, PUT_OFF, over_bounds, wait};
use rusqlite::{Row, params};

const RUNS: &str = concat!(select_execution!(), "WHERE x.ended_at IS NULL AND x.run > ?1 ORDER BY x.run LIMIT ?2");

const TASKS: &str = concat!(select_task!(), "WHERE t.status <= 1 AND t.place > ?1 ORDER BY t.place LIMIT ?2");

/// Sets aside all rows that cannot be read.
pub(super) fn set_aside(tx: &Tx) -> Done<Vec<Aside>> {
    let mut aside = runs(tx)?;
    tasks(tx, &mut aside)?;
    Ok(aside)
}

fn runs(tx: &Tx) -> Done<Vec<Aside>> {
    let (mut aside, mut after) = (Vec::new(), i64::MIN);
    loop {
        let rows = tx.all(RUNS, [after, PAGE as i64], |row| {
            let wrong = wrong(row).map(|why| {
                let (org, run) = (OrgId(id(row, 1)?), ExecutionId(id(row, 2)?));
                let is_paused = row.get::<_, i64>(3).is_ok_and(|status| status == Status::Paused as i64);
                Ok::<_, rusqlite::Error>((Aside { org, run, task: None, why }, is_paused))
            });
            Ok((row.get(0)?, wrong.transpose()?))
        })?;
        let more = rows.len() == PAGE;
        for (run, wrong) in rows {
            after = run;
            let Some((bad, is_paused)) = wrong else { continue };
            pause(tx, run, &bad)?;
            if !is_paused {
                bad.put_event(tx, run, high(tx, run)?)?;
            }
            aside.push(bad);
        }
        if !more {
            return Ok(aside);
        }
    }
}

/// Why a run's row cannot be used. None if it can.
fn wrong(row: &Row<'_>) -> Option<String> {
    match (Run::read(row), execution(row)) {
        (Ok(run), Ok(_)) => over_bounds(&run),
        (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
    }
}

/// Pauses a run by plain statements, since its row cannot be read, and puts off all that is due for it. The person who
/// repairs the row decides what comes of it.
fn pause(tx: &Tx, run: i64, aside: &Aside) -> Done<()> {
    let (first, last) = span(run);
    tx.execute(
        "UPDATE agent_execution SET status = ?2, ready = 0, epoch = epoch + 1, worker = NULL, last_worker = NULL, \
         lease_expires = NULL, prefer_until = NULL, due_at = NULL, wait = ?3, failure = ?4, updated_at = ?5 \
         WHERE run = ?1",
        params![run, Status::Paused as u8, wait()?, text_of(&aside.failure())?, tx.now.0],
    )?;
    tx.execute(
        "UPDATE task_execution SET status = ?3, worker = NULL, lease_expires = NULL, due_at = NULL \
         WHERE place BETWEEN ?1 AND ?2 AND status <= 1",
        params![first, last, TaskStatus::Quarantined as u8],
    )?;
    tx.execute(
        "UPDATE agent_op SET due_at = ?3 WHERE place BETWEEN ?1 AND ?2 AND due_at < ?3",
        [first, last, tx.now.after(PUT_OFF).0],
    )?;
    Ok(())
}

fn tasks(tx: &Tx, aside: &mut Vec<Aside>) -> Done<()> {
    let mut after = i64::MIN;
    loop {
        let rows = tx.all(TASKS, [after, PAGE as i64], |row| {
            let wrong = TaskRow::read(row).err().map(|error| error.to_string());
            let place: i64 = row.get(0)?;
            let wrong = wrong.map(|why| {
                let (org, run) = (OrgId(id(row, 28)?), ExecutionId(id(row, 29)?));
                Ok::<_, rusqlite::Error>(Aside { org, run, task: Some(TaskId(id(row, 3)?)), why })
            });
            Ok((place, wrong.transpose()?))
        })?;
        let more = rows.len() == PAGE;
        for (place, wrong) in rows {
            after = place;
            let Some(task) = wrong else { continue };
            tx.execute(
                "UPDATE task_execution SET status = ?2, worker = NULL, lease_expires = NULL, due_at = NULL WHERE place = ?1",
                params![place, TaskStatus::Quarantined as u8],
            )?;
            if let Some(mut run) = Run::at(tx, place >> SHIFT)?
                && !run.status.is_terminal()
            {
                run.quarantined = true;
                let mut log = Log::open(tx, &run)?;
                run.pause(&mut log, WaitReason::Quarantined, Some(&task.failure()))?;
                run.save(tx)?;
            }
            aside.push(task);
        }
        if !more {
            return Ok(());
        }
    }
}
