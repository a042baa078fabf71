//! Steering a run: signal, cancel, resume, fork, and decisions about tasks in doubt and divergences.

use super::budget::BudgetRequest;
use super::executions::{ExecutionView, seconds, view};
use super::problem::Problem;
use super::request::{Caller, Json, idempotency_key};
use super::tasks::{self, TaskView};
use super::value::{IN_PLACE, PayloadRef, payload_from, present};
use axum::http::{HeaderMap, StatusCode};
use flovyn_core::Payload;
use flovyn_core::error::Code;
use flovyn_core::id::{EntryId, ExecutionId, OpId, RequestId, SignalId, Slot};
use flovyn_core::model::{
    CancelMode, Cancellation, Delivery, Divergence, Execution, Failure, ForkFrom, ForkRequest, NewSignal, Resolution,
    ResumeRequest,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

type RunResponse = Result<axum::Json<ExecutionView>, Problem>;

async fn to_response(caller: &Caller, run: &Execution) -> RunResponse {
    Ok(axum::Json(view(caller, run, IN_PLACE).await?))
}

/// A message to a run.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Signal {
    /// The name it is awaited under; `name` is the same.
    #[serde(alias = "name")]
    signal_name: String,
    /// The value; null without one. `payload` is the same.
    #[serde(default, alias = "payload", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    signal_value: Option<Box<RawValue>>,
    /// The value, where it was uploaded.
    signal_value_ref: Option<PayloadRef>,
    /// `next_step` (default), `next_turn` or `now`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    delivery: Delivery,
    /// Makes a retried send one signal; the header Idempotency-Key does the same.
    idempotency_key: Option<String>,
}

/// What became of a signal; it is durable.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Signaled {
    signaled: bool,
    /// Whether it made a waiting run go on.
    agent_resumed: bool,
    signal_id: Uuid,
    /// Whether an earlier send with the same key had stored it.
    repeated: bool,
}

/// Sends a signal; it may come before the run waits for it.
#[utoipa::path(
    post, path = "/agent-executions/{id}/signal", tag = "steering", request_body = Signal,
    responses((status = 200, body = Signaled))
)]
pub(super) async fn signal(
    caller: Caller,
    headers: HeaderMap,
    Json(body): Json<Signal>,
) -> Result<axum::Json<Signaled>, Problem> {
    let value = payload_from("signalValue", body.signal_value, body.signal_value_ref)?.unwrap_or_else(Payload::null);
    let signal = NewSignal {
        org: caller.org(),
        execution: caller.execution(),
        id: SignalId::fresh(),
        name: body.signal_name,
        payload: value,
        delivery: body.delivery,
        idempotency_key: body.idempotency_key.or(idempotency_key(&headers)?),
    };
    let stored = caller.service.signal(&caller.by, signal).await.map_err(|error| caller.about_run(error))?;
    Ok(axum::Json(Signaled {
        signaled: true,
        agent_resumed: stored.resumed,
        signal_id: stored.id.0,
        repeated: stored.repeated,
    }))
}

/// How to stop.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Cancel {
    /// `graceful` (default): the run may tidy up. `hard`: it ends at once.
    #[schema(value_type = Option<String>)]
    mode: Option<CancelMode>,
    /// How long a graceful stop may take; 30 without it.
    timeout_seconds: Option<f64>,
}

/// Asks a run to stop. One that has ended stays as it is.
#[utoipa::path(
    post, path = "/agent-executions/{id}/cancel", tag = "steering", request_body = Cancel,
    responses((status = 200, body = ExecutionView))
)]
pub(super) async fn cancel(caller: Caller, Json(body): Json<Cancel>) -> RunResponse {
    let grace = seconds("timeoutSeconds", body.timeout_seconds)?.unwrap_or(Cancellation::USUAL_GRACE);
    stop(&caller, Cancellation { mode: body.mode.unwrap_or(CancelMode::Graceful), grace }).await
}

/// Asks a run to stop gracefully. It stays listed.
#[utoipa::path(
    operation_id = "delete_run",
    delete, path = "/agent-executions/{id}", tag = "steering",
    responses((status = 200, body = ExecutionView))
)]
pub(super) async fn delete(caller: Caller) -> RunResponse {
    stop(&caller, Cancellation::USUAL).await
}

async fn stop(caller: &Caller, how: Cancellation) -> RunResponse {
    let run = caller.service.cancel(&caller.by, caller.execution(), how).await;
    to_response(caller, &run.map_err(|error| caller.about_run(error))?).await
}

/// Removes a run that has ended, with its conversation, results and events. Its forks have to go first.
#[utoipa::path(
    operation_id = "remove_run",
    post, path = "/agent-executions/{id}/delete", tag = "steering",
    responses((status = 204))
)]
pub(super) async fn remove(caller: Caller) -> Result<StatusCode, Problem> {
    caller.service.remove(&caller.by, caller.execution()).await.map_err(|error| caller.about_run(error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// How a paused run, or one that has failed, goes on.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Resume {
    /// Steps from now on.
    max_steps: Option<u32>,
    /// A new limit of the tail.
    max_tail: Option<u32>,
    /// A new budget, from now on.
    budget: Option<BudgetRequest>,
    /// A user entry to append first.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    message: Option<Box<RawValue>>,
}

/// Continues a paused run. With an Idempotency-Key a retried request is one resume.
#[utoipa::path(
    post, path = "/agent-executions/{id}/resume", tag = "steering", request_body = Resume,
    params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = ExecutionView))
)]
pub(super) async fn resume(caller: Caller, headers: HeaderMap, Json(body): Json<Resume>) -> RunResponse {
    go_on(caller, &headers, body, false).await
}

/// Goes on with a run that has failed, or is paused, from its last commit: what failed is tried again, what is done stays
/// done. With an Idempotency-Key a retried request is one retry.
#[utoipa::path(
    post, path = "/agent-executions/{id}/retry", tag = "steering", request_body = Resume,
    params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = ExecutionView))
)]
pub(super) async fn retry(caller: Caller, headers: HeaderMap, Json(body): Json<Resume>) -> RunResponse {
    go_on(caller, &headers, body, true).await
}

async fn go_on(caller: Caller, headers: &HeaderMap, body: Resume, retry: bool) -> RunResponse {
    let (run, key) = (caller.execution(), idempotency_key(headers)?);
    let request = ResumeRequest {
        retry,
        max_steps: body.max_steps,
        max_tail: body.max_tail,
        budget: body.budget.map(|budget| budget.0),
        message: payload_from("message", body.message, None)?,
        request_id: key.map(|key| RequestId(Uuid::new_v5(&run.0, format!("resume\0{key}").as_bytes()))),
    };
    let run = caller.service.resume(&caller.by, run, request).await.map_err(|error| caller.about_run(error))?;
    to_response(&caller, &run).await
}

/// An answer for a task in doubt or quarantined: one of `result`, `error` and `retry`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Resolve {
    /// The op of the task.
    op_id: String,
    /// It took effect, and this is its result.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// It took effect, and its result was uploaded.
    result_ref: Option<PayloadRef>,
    /// It failed, with this message.
    error: Option<String>,
    /// Run it again.
    #[serde(default)]
    retry: bool,
}

/// Answers for a task that may or may not have taken effect; the first answer wins.
#[utoipa::path(
    post, path = "/agent-executions/{id}/resolve", tag = "steering", request_body = Resolve,
    responses((status = 200, body = TaskView))
)]
pub(super) async fn resolve(caller: Caller, Json(body): Json<Resolve>) -> Result<axum::Json<TaskView>, Problem> {
    let op = OpId::parse(&body.op_id).filter(|op| op.execution == caller.execution());
    let op = op.ok_or_else(|| {
        Problem::invalid(format!("{:?} is no op of this run; GET …/tasks gives each task's opId", body.op_id))
    })?;
    let result = payload_from("result", body.result, body.result_ref)?;
    let resolution = match (result, body.error, body.retry) {
        (Some(result), None, false) => Resolution::Result(result),
        (None, Some(message), false) => Resolution::Error(Failure::new(Code::TaskFailed, "Resolved", message)),
        (None, None, true) => Resolution::Retry,
        _ => return Err(Problem::invalid("give one answer: result, error, or retry: true")),
    };
    let task = caller.service.resolve_task(&caller.by, op, resolution).await;
    let task = task.map_err(|error| caller.about_run(error))?;
    Ok(axum::Json(tasks::view(&caller, &task, IN_PLACE).await?))
}

/// A decision about a run whose code no longer matches.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Decision {
    /// `continue` with the new code, `fork`, or `stay` paused.
    #[schema(value_type = String)]
    decision: Divergence,
}

/// Decides a divergence. `fork` answers with the fork, else the run itself.
#[utoipa::path(
    post, path = "/agent-executions/{id}/divergence", tag = "steering", request_body = Decision,
    responses((status = 200, body = ExecutionView))
)]
pub(super) async fn divergence(caller: Caller, Json(body): Json<Decision>) -> RunResponse {
    let decided = caller.service.decide(&caller.by, caller.execution(), body.decision).await;
    to_response(&caller, &decided.map_err(|error| caller.about_run(error))?).await
}

/// Where to fork: one of `checkpoint`, `entryId` and `opId`, else the last point possible.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = ForkPoint)]
pub(super) struct Fork {
    /// A checkpoint, by its sequence.
    checkpoint: Option<u32>,
    /// An entry.
    entry_id: Option<Uuid>,
    /// An op, by its id or its place, such as 0-7.
    op_id: Option<String>,
    /// The id of the fork: the same id and point give the same fork.
    id: Option<String>,
    /// Another state to start with.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    state: Option<Box<RawValue>>,
    /// Another input.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<Box<RawValue>>,
}

impl Fork {
    fn from(&self, caller: &Caller) -> Result<ForkFrom, Problem> {
        match (self.checkpoint, self.entry_id, &self.op_id) {
            (None, None, None) => Ok(ForkFrom::Latest),
            (Some(sequence), None, None) => Ok(ForkFrom::Checkpoint(sequence)),
            (None, Some(entry), None) => Ok(ForkFrom::Entry(EntryId(entry))),
            (None, None, Some(op)) => {
                let whole = || OpId::parse(&format!("{}-{op}", caller.execution()));
                match OpId::parse(op).or_else(whole) {
                    Some(OpId { slot: Slot { segment, sequence }, once: None, .. }) => {
                        Ok(ForkFrom::Op(Slot { segment, sequence }))
                    }
                    _ => Err(Problem::invalid(format!("{op:?} is no op; give an opId or its place, such as 0-7"))),
                }
            }
            _ => Err(Problem::invalid("give one point to fork at: checkpoint, entryId or opId")),
        }
    }
}

/// Starts a run that shares this one's history up to a point.
#[utoipa::path(
    post, path = "/agent-executions/{id}/fork", tag = "steering", request_body = Fork,
    responses((status = 201, body = ExecutionView))
)]
pub(super) async fn fork(
    caller: Caller,
    Json(body): Json<Fork>,
) -> Result<(StatusCode, axum::Json<ExecutionView>), Problem> {
    let from = body.from(&caller)?;
    let (state, input) = (payload_from("state", body.state, None)?, payload_from("input", body.input, None)?);
    let (id, key) = match body.id {
        Some(id) => (ExecutionId::of_key(caller.org(), &id), Uuid::parse_str(&id).is_err().then_some(id)),
        None => (ExecutionId::fresh(), None),
    };
    let request = ForkRequest { org: caller.org(), execution: caller.execution(), id, key, from, state, input };
    let fork = caller.service.fork(&caller.by, request).await.map_err(|error| caller.about_run(error))?;
    Ok((StatusCode::CREATED, to_response(&caller, &fork).await?))
}
