//! Tasks of a run: scheduled under the id that the worker derives from its key, looked at, cancelled.

use super::held::{Step, TRIES, crowded};
use super::{Adapter, Caller, convert};
use crate::grpc::told;
use crate::service::{IDLE, Upload, check_size};
use bytes::BytesMut;
use flovyn_core::Payload;
use flovyn_core::error::Kind;
use flovyn_core::id::TaskId;
use flovyn_core::model::{
    Execution, NewTask, OpBody, OpKind, PageRequest, Placement, RetryPolicy, Task, TaskOptions, TaskStatus,
};
use flovyn_core::payload::{Body, Encoding};
use flovyn_proto::v1;
use flovyn_proto::v1::schedule_agent_task_chunk::Chunk;
use std::time::Duration;
use tonic::{Status, Streaming};
use uuid::Uuid;

/// Attempts after the first, where a task does not say.
const RETRIES: i32 = 3;
/// What is larger is spooled to a file while it comes.
const IN_MEMORY: usize = 1 << 20;
/// Tasks that are listed at once.
const PAGE: usize = 1_000;

impl Adapter {
    /// Schedules a task. The same key once more finds the task that is there, whatever became of it.
    pub(super) async fn schedule(
        &self,
        caller: &Caller,
        chunks: Streaming<v1::ScheduleAgentTaskChunk>,
    ) -> Result<v1::ScheduleAgentTaskResponse, Status> {
        let (header, input) = self.asked(caller, chunks).await?;
        let key = header.idempotency_key.as_deref().filter(|key| !key.is_empty());
        let derived = |key: &str| TaskId(Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()));
        let id = key.map_or_else(TaskId::fresh, derived);
        let scheduled = |new| v1::ScheduleAgentTaskResponse {
            task_execution_id: id.to_string(),
            idempotency_key_used: key.is_some(),
            idempotency_key_new: key.is_some() && new,
        };
        for _ in 0..TRIES {
            let held = self.held(caller, &header.agent_execution_id).await?;
            if key.is_some() && self.find(&held.run, id).await?.is_some() {
                return Ok(scheduled(false));
            }
            let task = NewTask {
                id,
                kind: header.task_kind.clone(),
                queue: header.queue.clone().filter(|queue| !queue.is_empty()).unwrap_or(held.run.new.queue.clone()),
                input: input.clone(),
                options: options(&header),
                placement: Placement::Queue,
                entry: held.run.leaf,
            };
            let step = Step::of(OpKind::Task, &header.task_kind, &id.to_string(), OpBody::Task(task));
            if self.commit(&held, step).await?.is_some() {
                return Ok(scheduled(true));
            }
        }
        Err(crowded(&header.agent_execution_id))
    }

    /// The header of a task and its whole input.
    async fn asked(
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
                    Some(upload) => upload.take(&part).map_err(told)?,
                    None => {
                        start.extend_from_slice(&part);
                        check_size(start.len() as u64, ceiling).map_err(told)?;
                        if start.len() > IN_MEMORY {
                            let mut upload = Upload::new(ceiling).map_err(told)?;
                            upload.take(&start.split()).map_err(told)?;
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
        let upload = upload.check_json().map_err(told)?;
        let (hash, size) = upload.store(&**self.storage(), caller.org, Encoding::Json).await.map_err(told)?;
        Ok((header, Payload { encoding: Encoding::Json, body: Body::Stored { hash, size } }))
    }

    /// A task of a run, if there is one of this id.
    pub(super) async fn find(&self, run: &Execution, id: TaskId) -> Result<Option<Task>, Status> {
        match self.storage().task(run.new.org, run.new.id, id).await {
            Ok(task) => Ok(Some(task)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(told(error)),
        }
    }

    /// Where tasks stand: one answer for each id, in the order asked.
    pub(super) async fn results(
        &self,
        caller: &Caller,
        wire: v1::GetAgentTaskResultsRequest,
    ) -> Result<v1::GetAgentTaskResultsResponse, Status> {
        let run = self.run(caller, &wire.agent_execution_id).await?;
        let mut results = Vec::with_capacity(wire.task_execution_ids.len());
        let mut size = 0;
        for asked in wire.task_execution_ids {
            let result = self.result(&run, asked).await?;
            size += result.output.as_ref().map_or(0, |output| output.len() as u64);
            if !convert::fits(size) {
                return Err(told(convert::too_large("what the tasks answered together", size)));
            }
            results.push(result);
        }
        Ok(v1::GetAgentTaskResultsResponse { results })
    }

    /// Where a task stands. One that is not there will never end otherwise.
    pub(super) async fn result(&self, run: &Execution, asked: String) -> Result<v1::TaskResultEntry, Status> {
        let id = TaskId(convert::uuid(&asked, "task_execution_id")?);
        let Some(task) = self.find(run, id).await? else {
            let error = Some(format!("the run {} has no task {id}", run.new.id));
            return Ok(v1::TaskResultEntry { task_execution_id: asked, status: "FAILED".into(), output: None, error });
        };
        let output = task.output.as_ref().filter(|_| task.status == TaskStatus::Completed);
        let output = match output {
            Some(output) if !convert::fits(output.size()) => {
                return Err(told(convert::too_large("the task's output", output.size())));
            }
            Some(output) => Some(self.bytes(run.new.org, output).await?),
            None => None,
        };
        let failed = matches!(task.status, TaskStatus::Failed | TaskStatus::Cancelled);
        Ok(v1::TaskResultEntry {
            task_execution_id: asked,
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
            let page = self.storage().tasks(run.new.org, run.new.id, page).await.map_err(told)?;
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
        let (task, cancelled) = self.unfenced()?.cancel_task(caller.org, run.new.id, id).await.map_err(told)?;
        Ok(v1::CancelAgentTaskResponse { cancelled, status: convert::task_status(task.status).into() })
    }
}

/// How a task is run: again at once when it fails, and never after its time.
fn options(header: &v1::ScheduleAgentTaskHeader) -> TaskOptions {
    let retries = u32::try_from(header.max_retries.unwrap_or(RETRIES)).unwrap_or(0);
    let limit = header.timeout_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
    TaskOptions {
        retry: RetryPolicy { retries, initial: Duration::ZERO, ..RetryPolicy::default() },
        deadline: limit.map(Duration::from_millis),
        // It outlives the checkpoint that its run makes before it waits for it.
        detached: true,
        ..TaskOptions::default()
    }
}
