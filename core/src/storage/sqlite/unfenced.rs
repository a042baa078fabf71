//! What callers need whose calls name no claim.

use super::signal::{select_signal, signal};
use super::task::TaskRow;
use super::tx::Log;
use super::values::{blob, json_opt, micros, text_of};
use super::{SqliteStorage, claims};
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
use rusqlite::params;
use std::time::Duration;

#[async_trait]
impl Unfenced for SqliteStorage {
    async fn enroll(&self, org: OrgId, worker: WorkerId, serves: Serves) -> Result<()> {
        serves.check()?;
        self.write_alone("enroll a worker", move |tx| {
            let forgotten = tx.now.0.saturating_sub(micros(REMEMBERED));
            tx.execute("DELETE FROM enrolled_worker WHERE seen_at < ?1", [forgotten])?;
            tx.execute(
                "INSERT INTO enrolled_worker (org_id, id, serves, seen_at) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (org_id, id) DO UPDATE SET serves = excluded.serves, seen_at = excluded.seen_at",
                params![blob(&org.0), blob(&worker.0), text_of(&serves)?, tx.now.0],
            )?;
            Ok(())
        })
        .await
    }

    async fn enrolled(&self, org: OrgId, worker: WorkerId) -> Result<Option<Serves>> {
        self.read_all("look an enrolled worker up", move |tx| {
            let sql = "SELECT serves FROM enrolled_worker WHERE org_id = ?1 AND id = ?2";
            Ok(tx.first(sql, [blob(&org.0), blob(&worker.0)], |row| json_opt(row, 0))?.flatten())
        })
        .await
    }

    async fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work) -> Result<Vec<String>> {
        let (queue, now) = (queue.to_owned(), self.now());
        let sql = match of {
            Work::Agents => {
                "SELECT DISTINCT kind FROM agent_execution WHERE ready = 1 AND org_id = ?1 AND queue = ?2 AND ?3 > 0"
            }
            Work::Tasks => {
                "SELECT DISTINCT kind FROM task_execution WHERE status = 0 AND org_id = ?1 AND queue = ?2 \
                 AND visible_at <= ?3"
            }
        };
        self.read_all("look for work", move |tx| tx.all(sql, params![blob(&org.0), queue, now.0], |row| row.get(0)))
            .await
    }

    async fn keep_leases(&self, org: OrgId, worker: WorkerId, ttl: Duration, runs: SignOf) -> Result<()> {
        self.write_alone("extend the leases of a worker", move |tx| {
            let expires = tx.now.after(ttl).0;
            tx.execute(
                "UPDATE worker SET alive_until = max(alive_until, ?3), seen_at = ?4 WHERE org_id = ?1 AND id = ?2",
                params![blob(&org.0), blob(&worker.0), expires, tx.now.0],
            )?;
            tx.execute(
                "UPDATE enrolled_worker SET seen_at = ?3 WHERE org_id = ?1 AND id = ?2",
                params![blob(&org.0), blob(&worker.0), tx.now.0],
            )?;
            let held = claims::held_runs(tx, org, worker)?;
            for mut run in held.into_iter().filter(|run| runs.is_of(run.id)) {
                run.lease_expires = run.lease_expires.max(Some(expires));
                run.save(tx)?;
            }
            for mut row in claims::held_tasks(tx, org, worker)? {
                row.lease_expires = row.lease_expires.max(Some(expires));
                row.sign_at = Some(tx.now.0);
                row.save(tx)?;
            }
            Ok(())
        })
        .await
    }

    async fn open_task(&self, org: OrgId, task: TaskId) -> Result<Option<Task>> {
        self.read_all("read an open task", move |tx| Ok(TaskRow::find(tx, org, task)?.map(|row| row.task))).await
    }

    async fn cancel_task(&self, org: OrgId, execution: ExecutionId, task: TaskId) -> Result<(Task, bool)> {
        self.write_alone("cancel a task", move |tx| {
            let mut row = TaskRow::of(tx, org, execution, task)?.ok_or_else(|| unknown("task", task))?;
            if row.task.status.is_terminal() {
                return Ok((row.task, false));
            }
            let mut run = tx.find_run(org, execution)?;
            let mut log = Log::open(tx, &run)?;
            row.cancel(&mut run, &mut log)?;
            run.save(tx)?;
            Ok((row.task, true))
        })
        .await
    }

    async fn mailbox(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<Signal>> {
        self.read_all("read a mailbox", move |tx| {
            let run = tx.find_run(org, execution)?.home.run;
            let sql = concat!(select_signal!(), "WHERE run = ?1 AND consumed_segment IS NULL ORDER BY key");
            tx.all(sql, [run], signal)
        })
        .await
    }

    async fn spawn(&self, parent: ExecutionId, mut new: NewExecution) -> Result<Created> {
        new.check()?;
        self.settle(new.org, &mut new.input).await?;
        self.write_alone("start a child", move |tx| {
            let above = tx.find_run(new.org, parent)?;
            let root = tx.execution(above.home.run)?.root;
            let mut created = create(tx, &new)?;
            if !created.existing {
                tx.execute(
                    "UPDATE agent_execution SET parent_id = ?3, root_id = ?4 WHERE org_id = ?1 AND id = ?2",
                    params![blob(&new.org.0), blob(&new.id.0), blob(&parent.0), blob(&root.0)],
                )?;
                (created.execution.parent, created.execution.root) = (Some(parent), root);
            }
            Ok(created)
        })
        .await
    }
}
