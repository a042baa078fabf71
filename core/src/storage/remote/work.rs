//! Claims, reports and heartbeats, as calls of a server.

use super::RemoteStorage;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, TaskId, WorkerId};
use crate::model::{AttemptResult, Claim, ClaimedTask, Lease, TaskReport};
use crate::storage::{ClaimRequest, Heartbeat, HeartbeatAnswer, Only, WorkSource, WorkerInfo};
use crate::wire::{OfOrg, error_of_status, id, micros, raw, v2};
use async_trait::async_trait;
use bytes::Bytes;

fn poll(claim: &ClaimRequest) -> v2::PollRequest {
    v2::PollRequest {
        worker: raw(claim.worker.0),
        queue: claim.queue.clone(),
        kinds: claim.kinds.to_vec(),
        limit: claim.limit.try_into().unwrap_or(u32::MAX),
        ttl: micros(claim.ttl),
        only: claim.only.map(|only| raw(only.run().0)).unwrap_or_default(),
        family: claim.only.is_some_and(Only::is_family),
        wait: 0,
    }
}

fn ids<T>(wire: &[Bytes], field: &str, make: impl Fn(uuid::Uuid) -> T) -> Result<Vec<T>> {
    wire.iter().map(|bytes| id(bytes, field).map(&make)).collect()
}

#[async_trait]
impl WorkSource for RemoteStorage {
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        let org = worker.org;
        let request = v2::RegisterRequest { worker: raw(worker.id.0), name: worker.name, queues: worker.queues };
        let answer = self.worker().register(self.ask(org, request)).await;
        answer.map(|_| ()).map_err(|status| error_of_status("register a worker", &status))
    }

    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>> {
        let answer = self.worker().poll_agents(self.ask(claim.org, poll(&claim))).await;
        let answer = answer.map_err(|status| error_of_status("claim runs", &status))?;
        answer.into_inner().claims.into_iter().map(|wire| wire.into_model(claim.org)).collect()
    }

    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>> {
        let answer = self.worker().poll_tasks(self.ask(claim.org, poll(&claim))).await;
        let answer = answer.map_err(|status| error_of_status("claim tasks", &status))?;
        answer.into_inner().tasks.into_iter().map(|wire| wire.into_model(claim.org)).collect()
    }

    async fn report_task(&self, mut report: TaskReport) -> Result<()> {
        if let AttemptResult::Completed(output) = &mut report.result {
            self.settle(report.org, output).await?;
        }
        self.0.outbox.sent(None).await;
        let request = v2::ReportTaskRequest {
            task: raw(report.task.0),
            attempt: report.attempt,
            worker: raw(report.worker.0),
            result: Some((&report.result).into()),
        };
        let answer = self.worker().report_task(self.ask(report.org, request)).await;
        answer.map(|_| ()).map_err(|status| error_of_status("report a task", &status))
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        let executions = |(execution, epoch, known): &(ExecutionId, u64, u64)| v2::HeldExecution {
            execution: raw(execution.0),
            epoch: *epoch,
            known: *known,
        };
        let tasks = |(task, attempt, signed): &(TaskId, u32, bool)| v2::HeldTask {
            task: raw(task.0),
            attempt: *attempt,
            signed: *signed,
        };
        let progress =
            |(task, attempt, report): (TaskId, u32, String)| v2::TaskProgress { task: raw(task.0), attempt, report };
        let request = v2::HeartbeatRequest {
            worker: raw(beat.worker.0),
            ttl: micros(beat.ttl),
            executions: beat.executions.iter().map(executions).collect(),
            tasks: beat.tasks.iter().map(tasks).collect(),
            progress: beat.progress.into_iter().map(progress).collect(),
            link: raw(self.0.link),
        };
        let answer = self.worker().heartbeat(self.ask(beat.org, request)).await;
        let answer = answer.map_err(|status| error_of_status("renew leases", &status))?.into_inner();
        Ok(HeartbeatAnswer {
            lost_executions: ids(&answer.lost_executions, "lost_executions", ExecutionId)?,
            stale_executions: ids(&answer.stale_executions, "stale_executions", ExecutionId)?,
            cancelled_tasks: ids(&answer.cancelled_tasks, "cancelled_tasks", TaskId)?,
        })
    }

    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()> {
        let request = v2::ReleaseRequest { execution: raw(execution.0), lease: Some(lease.into()) };
        let answer = self.worker().release(self.ask(org, request)).await;
        answer.map(|_| ()).map_err(|status| error_of_status("give a run back", &status))
    }

    async fn unregister_worker(&self, org: OrgId, worker: WorkerId) -> Result<()> {
        let request = v2::UnregisterRequest { worker: raw(worker.0) };
        let answer = self.worker().unregister(self.ask(org, request)).await;
        answer.map(|_| ()).map_err(|status| error_of_status("remove a worker", &status))
    }
}
