//! Runs: start, list, look at, with their checkpoints.

use super::budget::{BudgetRequest, BudgetView};
use super::problem::Problem;
use super::request::{Caller, Json, QueryParams, idempotency_key};
use super::summary::SummaryView;
use super::value::{IN_PLACE, IN_ROW, PayloadRef, payload_from, present, to_optional_value, to_value};
use super::version::Version;
use crate::policy::Need;
use crate::service::{AgentInput, DEFINITION, checkpoint_id};
use axum::Extension;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use flovyn_core::Payload;
use flovyn_core::client::{StartOptions, with_roll_ups};
use flovyn_core::clock::Timestamp;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{
    Checkpoint, Cursor, Execution, ExecutionFilter, PageRequest, Persistence, RollUp, StartLimits, Status, USER,
};
use flovyn_core::storage::machines::{machine_of, machine_queue};
use flovyn_core::view;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

/// A part of a listing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Items<T> {
    /// What is listed.
    pub(super) items: Vec<T>,
    /// Pass it as `cursor` for the next part; null at the end.
    pub(super) next_cursor: Option<String>,
}

/// What to run.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Start {
    /// The agent; a definition has its own.
    kind: Option<String>,
    /// The id or slug of a predefined agent, instead of `kind` and `input`: the run starts with what it says now.
    agent_definition_id: Option<String>,
    /// How the agent is to behave, instead of an input.
    system_prompt: Option<String>,
    /// What the user says to it.
    user_prompt: Option<serde_json::Value>,
    /// Models, as the agent takes them, such as `{"provider": "anthropic", "modelId": "claude-haiku-4-5"}`.
    models: Option<Vec<serde_json::Value>>,
    /// Tools, as the agent takes them.
    tools: Option<Vec<serde_json::Value>>,
    /// Settings by name; of a predefined agent, beside and instead of its own.
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    config: Option<serde_json::Map<String, serde_json::Value>>,
    /// Its argument; null without one.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<Box<RawValue>>,
    /// Its argument, where it was uploaded.
    input_ref: Option<PayloadRef>,
    /// Any string up to 200 characters, unique in the org: the same id with the same request is the same run.
    id: Option<String>,
    /// The queue; `default` without one.
    queue: Option<String>,
    /// The machine that runs it, instead of a queue; empty for the only one there is.
    machine: Option<String>,
    /// For filters.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// Steps after which the run pauses.
    max_steps: Option<u32>,
    /// Steps in all after which resuming is refused; 500 for a run with `maxSteps` that says nothing else.
    max_total_steps: Option<u32>,
    /// Recorded calls since the last checkpoint after which the run pauses.
    max_tail: Option<u32>,
    /// What it may use of models: it pauses before what does not fit.
    budget: Option<BudgetRequest>,
    /// The longest the run may take.
    timeout_seconds: Option<f64>,
    /// The longest it may wait for a worker to begin it.
    start_timeout_seconds: Option<f64>,
    /// Whether its journal is kept: `full`, or `minimal` (`ephemeral`), which keeps its end, its usage and its signals until
    /// somebody else depends on more; `local` leaves its values on the machine that runs it.
    persistence: Option<String>,
    /// Higher is claimed first.
    #[serde(default)]
    priority: i32,
    /// Of the runs of one key few are RUNNING at a time.
    concurrency_key: Option<String>,
    /// It begins to run where fewer runs of its key do; 1 without one.
    #[schema(minimum = 1)]
    concurrency_limit: Option<u32>,
    /// Not to be claimed before this has passed.
    delay_seconds: Option<f64>,
}

/// A run: the view that all show, what only REST shows, and older names that go on to be shown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AgentExecution)]
pub(super) struct ExecutionView {
    #[serde(flatten)]
    shown: view::Run,
    org_id: Uuid,
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
    /// The last checkpoint, as `segment` says, but -1 before the first.
    current_checkpoint_seq: i64,
    /// An older name of `leaf`.
    leaf_entry_id: Option<Uuid>,
    /// An older name of `worker`.
    worker_id: Option<Uuid>,
    /// What it may use of models, since it was started or last resumed with one.
    budget: Option<BudgetView>,
    /// An older name of `parent`.
    parent_id: Option<Uuid>,
    /// An older name of `root`.
    root_id: Uuid,
    /// The run it goes on from, where it is a fork: the `execution` of `forkedFrom`.
    resumed_from: Option<Uuid>,
    /// The id of the predefined agent it is one of.
    agent_id: Option<String>,
    /// The same as `createdAt`. When a worker first took it, its events say.
    started_at: String,
    /// An older name of `endedAt`.
    completed_at: Option<String>,
    /// Seconds from its start to its end, or until now.
    duration: f64,
    summary: SummaryView,
    /// What its model calls and those of all runs below it have cost; in lists of all runs with `totals` alone, as what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_usage: Option<view::Usage>,
    /// The runs that it has started itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    child_count: Option<u64>,
    /// All runs below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    descendant_count: Option<u64>,
    /// The machine that it is for; null for a run of any other queue. Not in lists of all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<Option<view::RunMachine>>,
}

impl ExecutionView {
    /// The same with what it and all below it come to.
    pub(super) fn with(mut self, sum: &RollUp) -> Self {
        let view::RollUp { total_usage, child_count, descendant_count } = view::RollUp::of(sum);
        (self.total_usage, self.child_count, self.descendant_count) =
            (Some(total_usage), Some(child_count), Some(descendant_count));
        self
    }
}

/// A run as it is shown; stored values are fetched up to a size.
pub(super) async fn view(caller: &Caller, run: &Execution, fetch: u64) -> Result<ExecutionView, Problem> {
    let (input, input_ref) = to_value(caller, &run.new.input, fetch).await?;
    let (output, output_ref) = to_optional_value(caller, run.output.as_ref(), fetch).await?;
    let clock = caller.service.storage.clock();
    let shown = view::Run::of(run);
    Ok(ExecutionView {
        org_id: run.new.org.0,
        input,
        input_ref,
        output,
        output_ref,
        error: run.failure.as_ref().map(|failure| failure.message.clone()),
        current_checkpoint_seq: if run.segment == 0 { -1 } else { i64::from(run.segment) },
        leaf_entry_id: shown.leaf,
        worker_id: shown.worker,
        budget: run.new.limits.budget.as_deref().and_then(BudgetView::of),
        parent_id: shown.parent,
        root_id: shown.root,
        resumed_from: shown.forked_from.as_ref().map(|from| from.execution),
        agent_id: run.new.metadata.get(DEFINITION).cloned(),
        started_at: run.created_at.to_string(),
        completed_at: run.ended_at.map(|at| at.to_string()),
        duration: run.ended_at.unwrap_or_else(|| clock.now()).since(run.created_at).as_secs_f64(),
        summary: SummaryView::of(run),
        total_usage: None,
        child_count: None,
        descendant_count: None,
        machine: None,
        shown,
    })
}

/// Starts a run; it is durable when this answers. 201, or 200 where the same request had started it before.
#[utoipa::path(
    operation_id = "start_run",
    post, path = "/agent-executions", tag = "runs", request_body = Start,
    params(("Idempotency-Key" = Option<String>, Header, description = "Names the run where the body has no id")),
    responses((status = 201, description = "Started; `Location` names the run", body = ExecutionView), (status = 200, description = "Had been started", body = ExecutionView))
)]
pub(super) async fn start(
    caller: Caller,
    headers: HeaderMap,
    Json(body): Json<Start>,
) -> Result<(StatusCode, [(HeaderName, String); 1], axum::Json<ExecutionView>), Problem> {
    let input = payload_from("input", body.input, body.input_ref)?;
    let given_queue = body.queue.is_some();
    let agent_input = AgentInput {
        system_prompt: body.system_prompt,
        user_prompt: body.user_prompt,
        models: body.models,
        tools: body.tools,
        config: body.config,
    };
    let (kind, queue, metadata, input) = match body.agent_definition_id {
        None => {
            let kind = body.kind.filter(|kind| !kind.is_empty());
            let kind = kind.ok_or_else(|| Problem::invalid("kind is missing or empty; name the agent to run"))?;
            let input = match (input, agent_input.is_empty()) {
                (input, true) => input.unwrap_or_else(Payload::null),
                (None, false) => Payload::of(&agent_input)?,
                (Some(_), false) => {
                    return Err(Problem::invalid(
                        "systemPrompt, userPrompt, models, tools and config make the input; give them or an input, not both",
                    ));
                }
            };
            (kind, body.queue, body.metadata, input)
        }
        Some(_) if body.kind.is_some() || input.is_some() => {
            return Err(Problem::invalid("a definition has its kind and makes the input; leave out kind and input"));
        }
        Some(name) => {
            let (spec, input) = caller.service.start_of_definition(caller.org(), &name, agent_input).await?;
            let metadata = spec.metadata.into_iter().chain(body.metadata).collect();
            (spec.kind, body.queue.or(Some(spec.queue)), metadata, Payload::of(&input)?)
        }
    };
    let queue = match (body.machine, given_queue) {
        (None, _) => queue,
        (Some(name), false) => Some(machine_queue(&name)),
        (Some(_), true) => {
            return Err(Problem::invalid("a machine has a queue of its own; give machine or queue, not both"));
        }
    };
    let named = idempotency_key(&headers)?;
    // A key of the request is no name of the run: the id that follows from it has a place of its own.
    let named = named.map(|key| Uuid::new_v5(&caller.org().0, format!("start\0{key}").as_bytes()).to_string());
    let limits = StartLimits {
        max_steps: body.max_steps,
        max_total_steps: body.max_total_steps,
        max_tail: body.max_tail,
        budget: body.budget.map(|budget| budget.0),
        timeout: seconds("timeoutSeconds", body.timeout_seconds)?,
        start_timeout: seconds("startTimeoutSeconds", body.start_timeout_seconds)?,
    };
    let options = StartOptions {
        id: body.id.or(named),
        queue,
        metadata,
        limits,
        priority: body.priority,
        concurrency_key: body.concurrency_key,
        concurrency_limit: body.concurrency_limit,
        delay: seconds("delaySeconds", body.delay_seconds)?,
        persistence: body.persistence.as_deref().map(Persistence::parse).transpose()?,
        traceparent: headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned),
    };
    let new = options.execution(caller.org(), &kind, input)?;
    let created = caller.service.start_exactly(new).await?;
    let status = if created.existing { StatusCode::OK } else { StatusCode::CREATED };
    let at = format!("/api/orgs/{}/agent-executions/{}", caller.named("org"), created.execution.new.id);
    Ok((status, [(header::LOCATION, at)], axum::Json(view(&caller, &created.execution, IN_PLACE).await?)))
}

/// A duration of a request.
pub(super) fn seconds(name: &str, value: Option<f64>) -> Result<Option<Duration>, Problem> {
    let read = |seconds| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| Problem::invalid(format!("{name} is {seconds}; give a number of seconds from 0")))
    };
    value.map(read).transpose()
}

/// Lists runs, newest first. `metadata.NAME=VALUE` filters by metadata.
#[utoipa::path(
    operation_id = "list_runs",
    get, path = "/agent-executions", tag = "runs",
    params(
        ("status" = Option<Vec<String>>, Query, description = "Any of these, repeated or with commas between"),
        ("kind" = Option<String>, Query), ("queue" = Option<String>, Query),
        ("createdFrom" = Option<String>, Query, description = "RFC 3339: started then or later"),
        ("createdUntil" = Option<String>, Query, description = "RFC 3339: started before"),
        ("definition" = Option<String>, Query, description = "Runs of this predefined agent: its id or slug"),
        ("agent_id" = Option<String>, Query, description = "The same as `definition`"),
        ("parent" = Option<String>, Query, description = "Children of this run: its UUID or the id it was started with"),
        ("parent_run_id" = Option<String>, Query, description = "The same as `parent`"),
        ("root" = Option<String>, Query, description = "All below this run in its family"),
        ("roots" = Option<bool>, Query, description = "`true`: only runs that no other run has started"),
        ("search" = Option<String>, Query, description = "Words that are somewhere in the id, key, kind, queue, metadata or small input; a page looks at 10,000 runs at most"),
        ("totals" = Option<bool>, Query, description = "`true`: with what each and all below it come to"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000; 100 without one"), ("cursor" = Option<String>, Query),
    ),
    responses((status = 200, body = Items<ExecutionView>))
)]
pub(super) async fn list(caller: Caller, mut query: QueryParams) -> Result<Versioned<Items<ExecutionView>>, Problem> {
    let mut statuses = Vec::new();
    for word in query.get_all("status").iter().flat_map(|statuses| statuses.split(',')) {
        let all = || Status::ALL.map(Status::as_str).join(", ");
        let unknown = || Problem::invalid(format!("{word:?} is no status; there are {}", all()));
        statuses.push(Status::parse(word).ok_or_else(unknown)?);
    }
    let mut metadata: BTreeMap<_, _> = query.prefixed("metadata.").into_iter().collect();
    if let Some(name) = query.get_either("definition", "agent_id")? {
        let id = caller.service.definition_id(caller.org(), &name).await?;
        metadata.insert(DEFINITION.into(), id.to_string());
    }
    own_runs(&caller, &mut metadata)?;
    let moment = "a moment as RFC 3339 writes it, such as 2026-01-31T12:00:00Z";
    let filter = ExecutionFilter {
        statuses,
        kind: query.get("kind")?,
        queue: query.get("queue")?,
        metadata,
        created_from: query.parse::<Timestamp>("createdFrom", moment)?,
        created_until: query.parse::<Timestamp>("createdUntil", moment)?,
        parent: query.get_either("parent", "parent_run_id")?.map(|id| ExecutionId::of_key(caller.org(), &id)),
        root: query.get("root")?.map(|id| ExecutionId::of_key(caller.org(), &id)),
        roots: query.parse("roots", "true or false")?.unwrap_or(false),
        search: query.get("search")?,
    };
    listed(&caller, query, filter).await
}

/// Leaves a token of a user the runs of that user.
fn own_runs(caller: &Caller, metadata: &mut BTreeMap<String, String>) -> Result<(), Problem> {
    let scopes = caller.by.who.scopes();
    if Need::Read.is_met(scopes) {
        return Ok(());
    }
    let users: Vec<&str> = scopes.users().collect();
    match (metadata.get(USER), &users[..]) {
        (Some(user), users) if users.contains(&user.as_str()) => {}
        (None, [user]) => drop(metadata.insert(USER.to_owned(), (*user).to_owned())),
        _ => {
            let users = users.join(", ");
            return Err(Problem::denied(format!("this token lists the runs of {users}; name one as metadata.{USER}")));
        }
    }
    Ok(())
}

/// A page of runs.
async fn listed(
    caller: &Caller,
    mut query: QueryParams,
    filter: ExecutionFilter,
) -> Result<Versioned<Items<ExecutionView>>, Problem> {
    let page = query.page()?;
    let totals = query.parse("totals", "true or false")?.unwrap_or(false);
    query.reject_unknown()?;
    let storage = &caller.service.storage;
    let page = storage.executions(caller.org(), filter, page).await?;
    let mut items = Vec::with_capacity(page.items.len());
    if totals {
        for (run, sum) in with_roll_ups(&**storage, caller.org(), page.items).await? {
            items.push(view(caller, &run, IN_ROW).await?.with(&sum));
        }
    } else {
        for run in &page.items {
            items.push(view(caller, run, IN_ROW).await?);
        }
    }
    let next_cursor = page.next.map(|cursor| cursor.0);
    let version = version(&mut items, next_cursor.as_deref())?;
    Ok((version, axum::Json(Items { items, next_cursor })))
}

/// An answer about runs, of which only that of a run that goes on says something new by itself.
pub(super) type Versioned<T> = (Extension<Version>, axum::Json<T>);

/// What these runs say, but for how long those that go on have taken until now.
pub(super) fn version(runs: &mut [ExecutionView], next: Option<&str>) -> Result<Extension<Version>, Problem> {
    let is_open = |run: &ExecutionView| run.completed_at.is_none();
    let durations: Vec<_> = runs.iter().map(|run| run.duration).collect();
    runs.iter_mut().filter(|run| is_open(run)).for_each(|run| run.duration = 0.0);
    let text = serde_json::to_vec(&(&*runs, next)).map_err(|error| Error::new(Code::Internal, error.to_string()))?;
    runs.iter_mut().zip(durations).for_each(|(run, duration)| run.duration = duration);
    Ok(Extension(Version::of(&text)))
}

/// Everything about a run. `id` is its UUID or the id it was started with.
#[utoipa::path(
    operation_id = "get_run",
    get, path = "/agent-executions/{id}", tag = "runs",
    responses((status = 200, body = ExecutionView))
)]
pub(super) async fn detail(caller: Caller) -> Result<Versioned<ExecutionView>, Problem> {
    let run = caller.run().await?;
    let mut view = view(&caller, &run, IN_PLACE).await?;
    if let Some(sum) = caller.service.storage.roll_ups(caller.org(), &[run.new.id]).await?.first() {
        view = view.with(sum);
    }
    let machines = match machine_of(&run.new.queue) {
        Some(_) => caller.service.storage.machines(caller.org()).await?,
        None => Vec::new(),
    };
    view.machine = Some(view::RunMachine::of(&run.new.queue, &machines, caller.service.storage.clock().now()));
    Ok((version(std::slice::from_mut(&mut view), None)?, axum::Json(view)))
}

/// Where a run with state starts again.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Checkpoint)]
pub(super) struct CheckpointView {
    #[serde(flatten)]
    shown: view::Checkpoint,
    id: Uuid,
    agent_execution_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    state: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_ref: Option<PayloadRef>,
    /// An older name of `leaf`.
    leaf_entry_id: Option<Uuid>,
}

/// The checkpoints of a run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Checkpoints {
    checkpoints: Vec<CheckpointView>,
    /// Pass it as `cursor` for the next part; null at the end.
    next_cursor: Option<String>,
}

async fn checkpoint_view(caller: &Caller, checkpoint: &Checkpoint, fetch: u64) -> Result<CheckpointView, Problem> {
    let (state, state_ref) = to_value(caller, &checkpoint.saved.state, fetch).await?;
    let shown = view::Checkpoint::of(checkpoint);
    Ok(CheckpointView {
        id: checkpoint_id(checkpoint.execution, checkpoint.sequence),
        agent_execution_id: checkpoint.execution.0,
        state,
        state_ref,
        leaf_entry_id: shown.leaf,
        shown,
    })
}

/// Lists the checkpoints of a run, oldest first.
#[utoipa::path(
    get, path = "/agent-executions/{id}/checkpoints", tag = "runs",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Checkpoints))
)]
pub(super) async fn checkpoints(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Checkpoints>, Problem> {
    let page = query.page()?;
    query.reject_unknown()?;
    let run = caller.run().await?;
    run.check_kept()?;
    let id = run.new.id;
    let page = caller.service.storage.checkpoints(caller.org(), id, page).await?;
    let mut checkpoints = Vec::with_capacity(page.items.len());
    for checkpoint in &page.items {
        checkpoints.push(checkpoint_view(&caller, checkpoint, IN_ROW).await?);
    }
    Ok(axum::Json(Checkpoints { checkpoints, next_cursor: page.next.map(|cursor| cursor.0) }))
}

/// The last checkpoint of a run.
#[utoipa::path(
    get, path = "/agent-executions/{id}/checkpoints/latest", tag = "runs",
    responses((status = 200, body = CheckpointView))
)]
pub(super) async fn latest_checkpoint(caller: Caller) -> Result<axum::Json<CheckpointView>, Problem> {
    let run = caller.run().await?;
    run.check_kept()?;
    checkpoint_response(&caller, run.new.id, run.segment).await
}

/// One checkpoint of a run.
#[utoipa::path(
    get, path = "/agent-executions/{id}/checkpoints/{seq}", tag = "runs",
    responses((status = 200, body = CheckpointView))
)]
pub(super) async fn checkpoint(caller: Caller) -> Result<axum::Json<CheckpointView>, Problem> {
    let sequence = caller.parsed("seq", "checkpoint")?;
    let run = caller.run().await?;
    run.check_kept()?;
    checkpoint_response(&caller, run.new.id, sequence).await
}

async fn checkpoint_response(
    caller: &Caller,
    id: ExecutionId,
    sequence: u32,
) -> Result<axum::Json<CheckpointView>, Problem> {
    match find_checkpoint(caller, id, sequence).await? {
        Some(checkpoint) => Ok(axum::Json(checkpoint_view(caller, &checkpoint, IN_PLACE).await?)),
        None => Err(Problem::not_found(format!("the run has no checkpoint {sequence}; GET …/checkpoints lists them"))),
    }
}

/// A checkpoint, if the run has it.
pub(super) async fn find_checkpoint(
    caller: &Caller,
    id: ExecutionId,
    sequence: u32,
) -> Result<Option<Checkpoint>, Problem> {
    // A cursor of checkpoints is the sequence of the one before, on every backend.
    let after = sequence.checked_sub(2).map(|before| Cursor((before + 1).to_string()));
    let page = caller.service.storage.checkpoints(caller.org(), id, PageRequest { limit: 1, after }).await?;
    Ok(page.items.into_iter().next().filter(|checkpoint| checkpoint.sequence == sequence))
}
