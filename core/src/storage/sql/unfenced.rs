//! The port [`Unfenced`], written once for all SQL backends: for callers whose calls carry no lease.

use super::backend::Backend;
use super::database_error::unknown;
use super::executions::create_below;
use super::log::Log;
use super::tables::json_opt;
use super::values::{micros, row, text_of};
use super::{Dialect, Runs, Signals, Tables, Tasks, Workers};
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, TaskId, WorkerId};
use crate::model::{Created, NewExecution, Signal, Task};
use crate::storage::Unfenced;
use crate::storage::unfenced::{REMEMBERED, Serves, SignOf, Work};
use async_trait::async_trait;
use std::time::Duration;

#[async_trait]
impl<B: Backend> Unfenced for B {
    async fn enroll(&self, org: OrgId, worker: WorkerId, serves: Serves) -> Result<()> {
        serves.check()?;
        self.write_alone("enroll a worker", move |tx| {
            let forgotten = tx.now().0.saturating_sub(micros(REMEMBERED));
            tx.apply("DELETE FROM enrolled_worker WHERE seen_at < $1", row![forgotten])?;
            tx.apply(
                "INSERT INTO enrolled_worker (org_id, id, serves, seen_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (org_id, id) DO UPDATE SET serves = excluded.serves, seen_at = excluded.seen_at",
                row![org.0, worker.0, text_of(&serves)?, tx.now()],
            )
        })
        .await
    }

    async fn enrolled(&self, org: OrgId, worker: WorkerId) -> Result<Option<Serves>> {
        self.read("look an enrolled worker up", org, move |tx| {
            let sql = "SELECT serves FROM enrolled_worker WHERE org_id = $1 AND id = $2";
            Ok(tx.one(sql, row![org.0, worker.0], |row| json_opt(row, 0))?.flatten())
        })
        .await
    }

    async fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work) -> Result<Vec<String>> {
        let (queue, now) = (queue.to_owned(), self.now());
        self.read("look for work", org, move |tx| tx.waiting_kinds(org, &queue, of, now)).await
    }

    async fn keep_leases(&self, org: OrgId, worker: WorkerId, ttl: Duration, runs: SignOf) -> Result<()> {
        self.write_alone("extend the leases of a worker", move |tx| {
            let expires = tx.now().after(ttl).0;
            tx.apply(
                "UPDATE worker SET alive_until = CASE WHEN alive_until > $1 THEN alive_until ELSE $1 END, seen_at = $2 \
                 WHERE org_id = $3 AND id = $4",
                row![expires, tx.now(), org.0, worker.0],
            )?;
            tx.apply(
                "UPDATE enrolled_worker SET seen_at = $1 WHERE org_id = $2 AND id = $3",
                row![tx.now(), org.0, worker.0],
            )?;
            tx.lock_held(org, worker)?;
            for mut run in tx.held_runs(org, worker)?.into_iter().filter(|run| runs.is_of(run.id)) {
                run.lease_expires = run.lease_expires.max(Some(expires));
                run.save(tx)?;
            }
            for mut row in tx.held_tasks(org, worker)? {
                row.lease_expires = row.lease_expires.max(Some(expires));
                row.sign_at = Some(tx.now().0);
                row.save(tx)?;
            }
            Ok(())
        })
        .await
    }

    async fn open_task(&self, org: OrgId, task: TaskId) -> Result<Option<Task>> {
        self.read("read an open task", org, move |tx| Ok(tx.open_task(org, task)?.map(|row| row.task))).await
    }

    async fn cancel_task(&self, org: OrgId, execution: ExecutionId, task: TaskId) -> Result<(Task, bool)> {
        self.write("cancel a task", org, execution, move |tx| {
            let mut run = tx.find_run(org, execution)?;
            let mut row = tx.task_by_id(&run, task)?.ok_or_else(|| unknown("task", task))?;
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
        self.read("read a mailbox", org, move |tx| tx.pending_signals(&tx.find_run(org, execution)?)).await
    }

    async fn spawn(&self, parent: ExecutionId, mut new: NewExecution) -> Result<Created> {
        new.check()?;
        self.settle(new.org, &mut new.input).await?;
        self.write_new("start a child", new.id, move |tx| {
            let above = tx.find_run(new.org, parent)?;
            create_below(tx, &new, Some(&above))
        })
        .await
    }
}
