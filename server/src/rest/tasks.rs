//! Tasks of a run, as they are and as tool calls.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, QueryParams};
use super::value::{IN_PLACE, IN_ROW, PayloadRef, to_optional_value, to_value};
use flovyn_core::id::{EntryId, ExecutionId, TaskId};
use flovyn_core::model::{Entry, Page, PageRequest, Task, TaskStatus};
use flovyn_core::view;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// Pages looked through for one that holds what a filter asks for.
const MAX_FILTER_PAGES: usize = 10;
/// The role of what a model says.
const ASSISTANT: &str = "assistant";

/// A unit of work of a run: the view that all show, its values, and older names that go on to be shown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Task)]
pub(super) struct TaskView {
    #[serde(flatten)]
    shown: view::Task,
    org_id: Uuid,
    /// An older name of `execution`.
    agent_execution_id: Uuid,
    /// An older name of `op`.
    op_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_ref: Option<PayloadRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_ref: Option<PayloadRef>,
    /// The message of `failure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// An older name of `entry`.
    entry_id: Option<Uuid>,
    /// An older name of `endedAt`.
    completed_at: Option<String>,
}

/// The tasks of a run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tasks {
    tasks: Vec<TaskView>,
    /// Pass it as `cursor` for the next part; null at the end.
    next_cursor: Option<String>,
}

pub(super) async fn view(caller: &Caller, task: &Task, fetch: u64) -> Result<TaskView, Problem> {
    let (input, input_ref) = to_value(caller, &task.new.input, fetch).await?;
    let (output, output_ref) = to_optional_value(caller, task.output.as_ref(), fetch).await?;
    let shown = view::Task::of(task);
    Ok(TaskView {
        org_id: task.org.0,
        agent_execution_id: shown.execution,
        op_id: shown.op.clone(),
        input,
        input_ref,
        output,
        output_ref,
        error: task.failure.as_ref().map(|failure| failure.message.clone()),
        entry_id: shown.entry,
        completed_at: task.ended_at.map(|at| at.to_string()),
        shown,
    })
}

/// Lists the tasks of a run, in the order they were scheduled.
#[utoipa::path(
    get, path = "/agent-executions/{id}/tasks", tag = "tasks",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Tasks))
)]
pub(super) async fn tasks(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Tasks>, Problem> {
    let page = query.page()?;
    query.reject_unknown()?;
    let run = caller.run().await?;
    run.check_kept()?;
    let page = tasks_of(&caller, run.new.id, page).await?;
    let mut tasks = Vec::with_capacity(page.items.len());
    for task in &page.items {
        tasks.push(view(&caller, task, IN_ROW).await?);
    }
    Ok(axum::Json(Tasks { tasks, next_cursor: page.next.map(|cursor| cursor.0) }))
}

/// A task as the call of a tool.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCall {
    /// The task.
    id: Uuid,
    op_id: String,
    tool_name: String,
    #[schema(value_type = String, example = "COMPLETED")]
    status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    arguments: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_ref: Option<PayloadRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_ref: Option<PayloadRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The assistant message that asked for it; null where there was none.
    message_id: Option<Uuid>,
    /// The step of the run in which it was asked for, from 1; null where the agent counts no steps.
    step_number: Option<u32>,
    attempt: u32,
    /// How long its last attempt ran.
    duration_ms: Option<f64>,
    created_at: String,
    completed_at: Option<String>,
}

/// The assistant messages that asked for tasks. A task was asked for where the conversation stood: the results of other calls may
/// have come behind the message meanwhile.
async fn requesting_messages(caller: &Caller, tasks: &[Task]) -> Result<Vec<Option<EntryId>>, Problem> {
    let (storage, org) = (&*caller.service.storage, caller.org());
    // The last one stands behind most of the others.
    let entries = match tasks.iter().rev().find_map(|task| task.new.entry) {
        Some(last) => storage.branch(org, last, None).await?,
        None => Vec::new(),
    };
    let parent_and_role = |entry: Entry| (entry.new.id, (entry.new.parent, entry.new.role == ASSISTANT));
    let mut entries: HashMap<_, _> = entries.into_iter().map(parent_and_role).collect();
    let mut messages = Vec::with_capacity(tasks.len());
    for task in tasks {
        let mut at = task.new.entry;
        while let Some(id) = at {
            let (parent, is_assistant) = match entries.get(&id) {
                Some(found) => *found,
                None => {
                    entries.extend(storage.branch(org, id, None).await?.into_iter().map(parent_and_role));
                    entries.get(&id).copied().unwrap_or((None, false))
                }
            };
            if is_assistant {
                break;
            }
            at = parent;
        }
        messages.push(at);
    }
    Ok(messages)
}

/// A task with the step it was asked for in, and the message.
async fn tool_call_view(
    caller: &Caller,
    task: &Task,
    (step, message): (u32, Option<EntryId>),
    fetch: u64,
) -> Result<ToolCall, Problem> {
    let view = view(caller, task, fetch).await?;
    let ran = task.started_at.zip(task.ended_at).map(|(from, to)| to.since(from).as_secs_f64() * 1e3);
    Ok(ToolCall {
        id: view.shown.id,
        op_id: view.op_id,
        tool_name: view.shown.kind,
        status: task.status,
        arguments: view.input,
        arguments_ref: view.input_ref,
        result: view.output,
        result_ref: view.output_ref,
        error: view.error,
        message_id: message.map(|entry| entry.0),
        step_number: (step > 0).then_some(step),
        attempt: view.shown.attempt,
        duration_ms: ran,
        created_at: task.created_at.to_string(),
        completed_at: view.completed_at,
    })
}

/// Lists the tool calls of a run. With a filter a part may have fewer than `limit`, even none, and still a next one.
#[utoipa::path(
    get, path = "/agent-executions/{id}/tool-calls", tag = "tasks",
    params(
        ("toolName" = Option<String>, Query),
        ("tool_name" = Option<String>, Query, description = "The same as `toolName`"), ("status" = Option<String>, Query),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query),
    ),
    responses((status = 200, body = Items<ToolCall>))
)]
pub(super) async fn tool_calls(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Items<ToolCall>>, Problem> {
    let name = query.get_either("toolName", "tool_name")?;
    let status = query.get("status")?.map(|word| {
        serde_json::from_value::<TaskStatus>(word.to_ascii_uppercase().into())
            .map_err(|_| Problem::invalid(format!("{word:?} is no status of a task, such as COMPLETED or FAILED")))
    });
    let status = status.transpose()?;
    let page = query.page()?;
    query.reject_unknown()?;
    let run = caller.run().await?;
    run.check_kept()?;
    let run = run.new.id;
    let wanted = |task: &Task| {
        name.as_ref().is_none_or(|name| task.new.kind == *name) && status.is_none_or(|status| task.status == status)
    };
    let found = filtered_page(&caller, run, page, wanted).await?;
    let slots: Vec<_> = found.items.iter().map(|task| task.slot).collect();
    let steps = caller.service.steps.at(&*caller.service.storage, caller.org(), run, &slots).await?;
    let messages = requesting_messages(&caller, &found.items).await?;
    let mut items = Vec::with_capacity(found.items.len());
    for ((task, step), message) in found.items.iter().zip(steps).zip(messages) {
        items.push(tool_call_view(&caller, task, (step, message), IN_ROW).await?);
    }
    Ok(axum::Json(Items { items, next_cursor: found.next.map(|cursor| cursor.0) }))
}

async fn tasks_of(caller: &Caller, run: ExecutionId, page: PageRequest) -> Result<Page<Task>, Problem> {
    Ok(caller.service.storage.tasks(caller.org(), run, page).await?)
}

/// The first page that holds something wanted, among a bounded number.
async fn filtered_page(
    caller: &Caller,
    run: ExecutionId,
    mut page: PageRequest,
    wanted: impl Fn(&Task) -> bool,
) -> Result<Page<Task>, Problem> {
    for _ in 1..MAX_FILTER_PAGES {
        let mut found = tasks_of(caller, run, page.clone()).await?;
        found.items.retain(&wanted);
        match (&found.next, found.items.is_empty()) {
            (Some(next), true) => page.after = Some(next.clone()),
            _ => return Ok(found),
        }
    }
    let mut last = tasks_of(caller, run, page).await?;
    last.items.retain(wanted);
    Ok(last)
}

/// One tool call of a run.
#[utoipa::path(
    get, path = "/agent-executions/{id}/tool-calls/{taskId}", tag = "tasks",
    responses((status = 200, body = ToolCall))
)]
pub(super) async fn tool_call(caller: Caller) -> Result<axum::Json<ToolCall>, Problem> {
    let id: TaskId = caller.parsed("taskId", "task")?;
    let run = caller.run().await?;
    run.check_kept()?;
    let run = run.new.id;
    let missing = || Problem::not_found(format!("the run has no task {id}; GET …/tool-calls lists them"));
    let storage = &*caller.service.storage;
    let task = storage.task(caller.org(), run, id).await.map_err(|error| match error.kind() {
        flovyn_core::error::Kind::NotFound => missing(),
        _ => error.into(),
    })?;
    let step = caller.service.steps.at(storage, caller.org(), run, &[task.slot]).await?.into_iter().sum();
    let message = requesting_messages(&caller, std::slice::from_ref(&task)).await?.into_iter().flatten().next();
    Ok(axum::Json(tool_call_view(&caller, &task, (step, message), IN_PLACE).await?))
}
