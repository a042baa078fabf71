//! Tasks of a run: scheduled under an id that is derived from their key, read, cancelled.

use super::leased_run::{CommitPlan, MAX_CONFLICTS, too_many_conflicts};
use super::{Adapter, Caller, convert};
use bytes::BytesMut;
use flovyn_core::Payload;
use flovyn_core::error::Kind;
use flovyn_core::id::TaskId;
use flovyn_core::model::{
    Execution, NewTask, OpBody, OpKind, PageRequest, Placement, RetryPolicy, Task, TaskOptions, TaskStatus,
};
use flovyn_core::payload::{Body, Encoding};
use flovyn_core::storage::machines::check_task;
use flovyn_proto::v1;
use flovyn_proto::v1::schedule_agent_task_chunk::Chunk;
use flovyn_server::protocol::to_status;
use flovyn_server::protocol::{IDLE, Upload, check_size};
use std::time::Duration;
use tonic::{Status, Streaming};
use uuid::Uuid;

/// The default number of retries.
const RETRIES: i32 = 3;
/// Larger inputs are spooled to a file while they are received.
const IN_MEMORY: usize = 1 << 20;
/// Tasks that are listed at once.
const PAGE: usize = 1_000;

impl Adapter {
    /// Schedules a task. If there is a task with the same key, returns it, whatever its status.
    pub(super) async fn schedule(
        &self,
        caller: &Caller,
        chunks: Streaming<v1::ScheduleAgentTaskChunk>,
    ) -> Result<v1::ScheduleAgentTaskResponse, Status> {
        let (header, input) = self.receive_request(caller, chunks).await?;
        let key = header.idempotency_key.as_deref().filter(|key| !key.is_empty());
        let derived = |key: &str| TaskId(Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()));
        let id = key.map_or_else(TaskId::fresh, derived);
        let scheduled = |new| v1::ScheduleAgentTaskResponse {
            task_execution_id: id.to_string(),
            idempotency_key_used: key.is_some(),
            idempotency_key_new: key.is_some() && new,
        };
        for _ in 0..MAX_CONFLICTS {
            let leased = self.leased_run(caller, &header.agent_execution_id).await?;
            if key.is_some() && self.find(&leased.run, id).await?.is_some() {
                return Ok(scheduled(false));
            }
            let own = &leased.run.new.queue;
            let queue = header.queue.clone().filter(|queue| !queue.is_empty()).unwrap_or(own.clone());
            check_task(own, &queue).map_err(to_status)?;
            let task = NewTask {
                id,
                kind: header.task_kind.clone(),
                queue,
                input: input.clone(),
                options: options(&header),
                placement: Placement::Queue,
                entry: leased.run.leaf,
            };
            let plan = CommitPlan::op(OpKind::Task, &header.task_kind, &id.to_string(), OpBody::Task(task));
            if self.commit(&leased, plan).await?.is_some() {
                return Ok(scheduled(true));
            }
        }
        Err(too_many_conflicts(&header.agent_execution_id))
    }

    /// The header of a task and its whole input.
    async fn receive_request(
        &self,
        caller: &Caller,
        mut chunks: Streaming<v1::ScheduleAgentTaskChunk>,
    ) -> Result<(v1::ScheduleAgentTaskHeader, Payload), Status> {
        let (mut header, mut start, mut spooled) = (None, BytesMut::new(), None::<Upload>);
        let ceiling = self.storage().max_payload();
        loop {
            let next = tokio::time::timeout(IDLE, chunks.message()).await;
            let next =
                next.map_err(|_| Status::deadline_exceeded(format!("no part of the input came for {IDLE:?}")))?;
            match next?.and_then(|message| message.chunk) {
                None => break,
                Some(Chunk::Header(_)) if header.is_some() => {
                    return Err(Status::invalid_argument("a second header came; a stream schedules one task"));
                }
                Some(Chunk::Header(first)) => header = Some(first),
                Some(Chunk::InputChunk(_)) if header.is_none() => {
                    return Err(Status::invalid_argument("a part of the input came before the header"));
                }
                Some(Chunk::InputChunk(part)) => match &mut spooled {
                    Some(upload) => upload.take(&part).map_err(to_status)?,
                    None => {
                        start.extend_from_slice(&part);
                        check_size(start.len() as u64, ceiling).map_err(to_status)?;
                        if start.len() > IN_MEMORY {
                            let mut upload = Upload::new(ceiling).map_err(to_status)?;
                            upload.take(&start.split()).map_err(to_status)?;
                            spooled = Some(upload);
                        }
                    }
                },
            }
        }
        let header: v1::ScheduleAgentTaskHeader =
            header.ok_or_else(|| Status::invalid_argument("no header came; send it before the input"))?;
        if header.task_kind.is_empty() {
            return Err(Status::invalid_argument("task_kind is empty; name the task to run"));
        }
        let Some(upload) = spooled else { return Ok((header, convert::value(start.freeze()))) };
        let upload = upload.check_json().map_err(to_status)?;
        let (hash, size) = upload.store(&**self.storage(), caller.org, Encoding::Json).await.map_err(to_status)?;
        Ok((header, Payload { encoding: Encoding::Json, body: Body::Stored { hash, size } }))
    }

    /// A task of a run, if there is one of this id.
    pub(super) async fn find(&self, run: &Execution, id: TaskId) -> Result<Option<Task>, Status> {
        match self.storage().task(run.new.org, run.new.id, id).await {
            Ok(task) => Ok(Some(task)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(to_status(error)),
        }
    }

    /// The results of tasks: one for each id, in the same order.
    pub(super) async fn results(
        &self,
        caller: &Caller,
        wire: v1::GetAgentTaskResultsRequest,
    ) -> Result<v1::GetAgentTaskResultsResponse, Status> {
        let run = self.run(caller, &wire.agent_execution_id).await?;
        let mut results = Vec::with_capacity(wire.task_execution_ids.len());
        let mut size = 0;
        for task_id in wire.task_execution_ids {
            let result = self.result(&run, task_id).await?;
            size += result.output.as_ref().map_or(0, |output| output.len() as u64);
            if !convert::fits(size) {
                return Err(to_status(convert::too_large("what the tasks answered together", size)));
            }
            results.push(result);
        }
        Ok(v1::GetAgentTaskResultsResponse { results })
    }

    /// The result of a task. A missing one is reported as failed, since its worker would wait for it for ever.
    pub(super) async fn result(&self, run: &Execution, task_id: String) -> Result<v1::TaskResultEntry, Status> {
        let id = TaskId(convert::uuid(&task_id, "task_execution_id")?);
        let Some(task) = self.find(run, id).await? else {
            let error = Some(format!("the run {} has no task {id}", run.new.id));
            return Ok(v1::TaskResultEntry {
                task_execution_id: task_id,
                status: "FAILED".into(),
                output: None,
                error,
            });
        };
        let output = task.output.as_ref().filter(|_| task.status == TaskStatus::Completed);
        let output = match output {
            Some(output) if !convert::fits(output.size()) => {
                return Err(to_status(convert::too_large("the task's output", output.size())));
            }
            Some(output) => Some(self.bytes(run.new.org, output).await?),
            None => None,
        };
        let failed = matches!(task.status, TaskStatus::Failed | TaskStatus::Cancelled);
        Ok(v1::TaskResultEntry {
            task_execution_id: task_id,
            status: convert::task_status(task.status).into(),
            output,
            error: failed.then(|| convert::message(task.failure.as_ref())),
        })
    }

    /// Every task that a run has scheduled, with whether it is open.
    pub(super) async fn scheduled(&self, run: &Execution) -> Result<Vec<(TaskId, bool)>, Status> {
        let (mut scheduled, mut after) = (Vec::new(), None);
        loop {
            let page = PageRequest { limit: PAGE, after };
            let page = self.storage().tasks(run.new.org, run.new.id, page).await.map_err(to_status)?;
            scheduled.extend(page.items.iter().map(|task| (task.new.id, !task.status.is_terminal())));
            after = page.next;
            if after.is_none() {
                return Ok(scheduled);
            }
        }
    }

    /// Cancels a task of a run; one that has ended stays as it is.
    pub(super) async fn cancel(
        &self,
        caller: &Caller,
        wire: v1::CancelAgentTaskRequest,
    ) -> Result<v1::CancelAgentTaskResponse, Status> {
        let run = self.run(caller, &wire.agent_execution_id).await?;
        let id = TaskId(convert::uuid(&wire.task_execution_id, "task_execution_id")?);
        let (task, cancelled) = self.unfenced()?.cancel_task(caller.org, run.new.id, id).await.map_err(to_status)?;
        Ok(v1::CancelAgentTaskResponse { cancelled, status: convert::task_status(task.status).into() })
    }
}

/// The options of a task: retries without delay, and its deadline.
fn options(header: &v1::ScheduleAgentTaskHeader) -> TaskOptions {
    let retries = u32::try_from(header.max_retries.unwrap_or(RETRIES)).unwrap_or(0);
    let limit = header.timeout_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
    TaskOptions {
        retry: RetryPolicy { retries, initial: Duration::ZERO, ..RetryPolicy::default() },
        deadline: limit.map(Duration::from_millis),
        // Detached, because the run makes a checkpoint before it waits for the task.
        detached: true,
        ..TaskOptions::default()
    }
}
