//! What callers need whose calls name no claim.

use super::PostgresStorage;
use super::claims::{held_runs, held_tasks, lock_held};
use super::committer::Before;
use super::sets::row;
use super::signal::{select_signal, signal};
use super::task::TaskRow;
use super::tx::Log;
use super::values::{json_opt, micros, text_of};
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, TaskId, WorkerId};
use crate::model::{Created, NewExecution, Signal, Task};
use crate::storage::Unfenced;
use crate::storage::sql::Backend;
use crate::storage::sql::Runs;
use crate::storage::sql::executions::create;
use crate::storage::sql::trouble::unknown;
use crate::storage::unfenced::{REMEMBERED, Serves, SignOf, Work};
use async_trait::async_trait;
use std::time::Duration;

/// The kinds of a condition one after the other, each found by one look at the index, however many rows wait.
macro_rules! kinds {
    ($table:literal, $condition:literal) => {
        concat!(
            "WITH RECURSIVE found(kind) AS (SELECT (SELECT min(kind) FROM ",
            $table,
            " WHERE ",
            $condition,
            ") UNION ALL SELECT (SELECT min(kind) FROM ",
            $table,
            " WHERE ",
            $condition,
            " AND kind > found.kind) FROM found WHERE found.kind IS NOT NULL) \
             SELECT kind FROM found WHERE kind IS NOT NULL AND $3::bigint > 0"
        )
    };
}

const WAITING_AGENTS: &str = kinds!("agent_execution", "ready AND org_id = $1 AND queue = $2");
const WAITING_TASKS: &str =
    kinds!("task_execution", "status = 0 AND org_id = $1 AND queue = $2 AND visible_at <= $3::bigint");

#[async_trait]
impl Unfenced for PostgresStorage {
    async fn enroll(&self, org: OrgId, worker: WorkerId, serves: Serves) -> Result<()> {
        serves.check()?;
        self.write_alone("enroll a worker", move |tx| {
            let forgotten = tx.now.0.saturating_sub(micros(REMEMBERED));
            tx.execute("DELETE FROM enrolled_worker WHERE seen_at < $1", row![forgotten])?;
            tx.execute(
                "INSERT INTO enrolled_worker (org_id, id, serves, seen_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (org_id, id) DO UPDATE SET serves = excluded.serves, seen_at = excluded.seen_at",
                row![org.0, worker.0, text_of(&serves)?, tx.now.0],
            )
        })
        .await
    }

    async fn enrolled(&self, org: OrgId, worker: WorkerId) -> Result<Option<Serves>> {
        self.read("look an enrolled worker up", org, move |tx| {
            let sql = "SELECT serves FROM enrolled_worker WHERE org_id = $1 AND id = $2";
            Ok(tx.first(sql, row![org.0, worker.0], |row| json_opt(row, 0))?.flatten())
        })
        .await
    }

    async fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work) -> Result<Vec<String>> {
        let (queue, now) = (queue.to_owned(), self.now());
        let sql = match of {
            Work::Agents => WAITING_AGENTS,
            Work::Tasks => WAITING_TASKS,
        };
        self.read("look for work", org, move |tx| tx.all(sql, row![org.0, queue.as_str(), now.0], |row| row.get(0)))
            .await
    }

    async fn keep_leases(&self, org: OrgId, worker: WorkerId, ttl: Duration, runs: SignOf) -> Result<()> {
        self.write_alone("extend the leases of a worker", move |tx| {
            let expires = tx.now.after(ttl).0;
            tx.execute(
                "UPDATE worker SET alive_until = greatest(alive_until, $3), seen_at = $4 WHERE org_id = $1 AND id = $2",
                row![org.0, worker.0, expires, tx.now],
            )?;
            tx.execute(
                "UPDATE enrolled_worker SET seen_at = $3 WHERE org_id = $1 AND id = $2",
                row![org.0, worker.0, tx.now],
            )?;
            lock_held(tx, org, worker)?;
            let held = held_runs(tx, org, worker)?;
            for mut run in held.into_iter().filter(|run| runs.is_of(run.id)) {
                run.lease_expires = run.lease_expires.max(Some(expires));
                run.save(tx)?;
            }
            for mut row in held_tasks(tx, org, worker)? {
                row.lease_expires = row.lease_expires.max(Some(expires));
                row.sign_at = Some(tx.now.0);
                row.save(tx)?;
            }
            Ok(())
        })
        .await
    }

    async fn open_task(&self, org: OrgId, task: TaskId) -> Result<Option<Task>> {
        self.read("read an open task", org, move |tx| {
            Ok(TaskRow::find(tx, org, task)?.map(|row| row.task).filter(|task| !task.status.is_terminal()))
        })
        .await
    }

    async fn cancel_task(&self, org: OrgId, execution: ExecutionId, task: TaskId) -> Result<(Task, bool)> {
        self.write("cancel a task", org, execution, move |tx| {
            let mut run = tx.find_run(org, execution)?;
            let row = TaskRow::find(tx, org, task)?.filter(|row| row.task.execution == execution);
            let mut row = row.ok_or_else(|| unknown("task", task))?;
            if row.task.status.is_terminal() {
                return Ok((row.task, false));
            }
            let mut log = Log::open(tx, &run)?;
            row.cancel(&mut run, &mut log)?;
            run.save(tx)?;
            Ok((row.task, true))
        })
        .await
    }

    async fn mailbox(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<Signal>> {
        self.read("read a mailbox", org, move |tx| {
            let run = tx.find_run(org, execution)?.home.key.run;
            let sql = concat!(
                select_signal!(),
                "WHERE org_id = $1 AND run = $2 AND consumed_segment IS NULL ORDER BY number"
            );
            tx.all(sql, row![org.0, run], signal)
        })
        .await
    }

    async fn spawn(&self, parent: ExecutionId, mut new: NewExecution) -> Result<Created> {
        new.check()?;
        self.settle(new.org, &mut new.input).await?;
        self.write_after("start a child", new.id, Before::default(), move |tx| {
            let above = tx.find_run(new.org, parent)?;
            let root = tx.execution(above.home.key)?.root;
            let mut created = create(tx, &new)?;
            if !created.existing {
                tx.execute(
                    "UPDATE agent_execution SET parent_id = $3, root_id = $4 WHERE org_id = $1 AND id = $2",
                    row![new.org.0, new.id.0, parent.0, root.0],
                )?;
                (created.execution.parent, created.execution.root) = (Some(parent), root);
            }
            Ok(created)
        })
        .await
    }
}
