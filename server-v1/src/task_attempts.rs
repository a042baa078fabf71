//! The calls of workers that run tasks. They name a task and mean its running attempt.

use super::suspend::is_transport_failure;
use super::{Adapter, Caller, LEASE, V1, convert, previews};
use flovyn_core::error::{Code, Error};
use flovyn_core::id::TaskId;
use flovyn_core::model::{AttemptResult, ChunkKind, Failure, Task, TaskReport, TaskStatus};
use flovyn_core::storage::Heartbeat;
use flovyn_proto::v1;
use flovyn_proto::v1::task_execution_server::TaskExecution;
use flovyn_server::protocol::to_status;
use serde_json::json;
use tonic::{Request, Response, Status};

impl Adapter {
    /// A task that has not ended, of a queue that the caller may serve. Renews the leases of the worker that runs it.
    async fn open_task(&self, caller: &Caller, id: &str) -> Result<Task, Status> {
        let task = TaskId(convert::uuid(id, "task_execution_id")?);
        let task = self.unfenced()?.open_task(caller.org, task).await.map_err(to_status)?;
        let task = task.ok_or_else(|| not_running(id))?;
        caller.check_may_serve(&task.new.queue)?;
        if let Some(worker) = task.worker.filter(|_| task.status == TaskStatus::Running) {
            self.renew_if_due(caller.org, worker).await?;
        }
        Ok(task)
    }

    /// Ends the running attempt.
    async fn end_attempt(&self, caller: &Caller, id: &str, result: AttemptResult) -> Result<Response<()>, Status> {
        let task = self.open_task(caller, id).await?;
        if task.status != TaskStatus::Running {
            return Err(not_running(id));
        }
        let report = TaskReport {
            org: caller.org,
            task: task.new.id,
            attempt: task.attempt,
            worker: task.worker.unwrap_or_default(),
            result,
        };
        match self.storage().report_task(report).await {
            Ok(()) => Ok(Response::new(())),
            Err(error) if error.code() == Code::LeaseLost => Err(not_running(id)),
            Err(error) => Err(to_status(error)),
        }
    }

    /// Renews the lease of the running attempt, and stores its progress.
    async fn renew_task_lease(&self, task: &Task, progress: Option<String>) -> Result<(), Status> {
        let Some(worker) = task.worker.filter(|_| task.status == TaskStatus::Running) else { return Ok(()) };
        let (org, id, attempt) = (task.org, task.new.id, task.attempt);
        let progress = progress.into_iter().map(|report| (id, attempt, report)).collect();
        let tasks = vec![(id, attempt, true)];
        let heartbeat = Heartbeat { org, worker, ttl: LEASE, executions: Vec::new(), tasks, progress };
        self.storage().heartbeat(heartbeat).await.map_err(to_status)?;
        Ok(())
    }
}

/// The error of a call about a task that is not running.
fn not_running(id: &str) -> Status {
    let message =
        format!("no attempt of the task {id} runs: it has ended, was given to another worker, or is not here");
    to_status(Error::new(Code::InvalidTransition, message))
}

#[tonic::async_trait]
impl TaskExecution for V1 {
    async fn poll_task(&self, request: Request<v1::PollTaskRequest>) -> Result<Response<v1::PollTaskResponse>, Status> {
        let caller = self.caller_of(&request, &request.get_ref().org_id).await?;
        let peer = request.remote_addr();
        Ok(Response::new(Adapter::poll_task(self, &caller, peer, request.into_inner()).await?))
    }

    async fn complete_task(&self, request: Request<v1::CompleteTaskRequest>) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let result = AttemptResult::Completed(convert::value(wire.output));
        self.end_attempt(&caller, &wire.task_execution_id, result).await
    }

    async fn fail_task(&self, request: Request<v1::FailTaskRequest>) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let result = match is_transport_failure(None, &wire.error) {
            true => AttemptResult::Released,
            false => {
                let failure = Failure::new(Code::TaskFailed, "Error", wire.error);
                AttemptResult::Failed { failure, retryable: true, pause: None }
            }
        };
        self.end_attempt(&caller, &wire.task_execution_id, result).await
    }

    async fn report_progress(&self, request: Request<v1::ReportProgressRequest>) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let task = self.open_task(&caller, &wire.task_execution_id).await?;
        let report = json!({ "fraction": wire.progress, "message": wire.details }).to_string();
        self.renew_task_lease(&task, Some(report)).await?;
        Ok(Response::new(()))
    }

    async fn log_message(&self, request: Request<v1::LogMessageRequest>) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let task = self.open_task(&caller, &wire.task_execution_id).await?;
        let line = json!({ "type": "log", "level": wire.level, "message": wire.message }).to_string();
        self.publish_task_preview(&caller, &task, 0, (ChunkKind::Data, line)).await?;
        Ok(Response::new(()))
    }

    async fn stream_task_data(
        &self,
        request: Request<v1::StreamTaskDataRequest>,
    ) -> Result<Response<v1::StreamTaskDataResponse>, Status> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let task = self.open_task(&caller, &wire.task_execution_id).await?;
        self.publish_task_preview(&caller, &task, wire.sequence, previews::task_preview(wire.r#type(), &wire.payload))
            .await?;
        Ok(Response::new(v1::StreamTaskDataResponse { acknowledged: true }))
    }

    async fn heartbeat(&self, request: Request<v1::HeartbeatRequest>) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let task = self.open_task(&caller, &request.get_ref().task_execution_id).await?;
        self.renew_task_lease(&task, None).await?;
        Ok(Response::new(()))
    }

    async fn cancel_task(&self, request: Request<v1::CancelTaskRequest>) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let task = self.open_task(&caller, &request.get_ref().task_execution_id).await?;
        self.unfenced()?.cancel_task(caller.org, task.execution, task.new.id).await.map_err(to_status)?;
        Ok(Response::new(()))
    }
}
