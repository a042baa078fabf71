//! Schedules: runs that time starts.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, Json, QueryParams};
use super::value::present;
use axum::http::StatusCode;
use flovyn_core::model::{Schedule, ScheduleSpec};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// What to start, and when.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewSchedule {
    /// Any string up to 200 characters, unique in the org; a fresh one without it.
    id: Option<String>,
    /// The agent.
    kind: String,
    /// The argument of every run; null without one.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<Box<RawValue>>,
    /// Minute, hour, day of month, month, day of week; seconds may come first, a year last. Or `@daily` and the like.
    #[schema(example = "0 8 * * MON-FRI")]
    cron: String,
    /// The IANA time zone whose clock counts; UTC without one.
    #[schema(example = "Europe/Paris")]
    timezone: Option<String>,
    /// The queue of the runs; `default` without one.
    queue: Option<String>,
    /// Metadata of the runs, beside `schedule` and `scheduledAt`.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// Priority of the runs.
    #[serde(default)]
    priority: i32,
    /// Concurrency key of the runs.
    concurrency_key: Option<String>,
    /// How many runs of the key there may be at a time; 1 without one.
    #[schema(minimum = 1)]
    concurrency_limit: Option<u32>,
    /// It starts nothing until it is put again without this.
    #[serde(default)]
    paused: bool,
}

/// A schedule.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Schedule)]
pub(super) struct ScheduleView {
    id: String,
    kind: String,
    #[schema(value_type = serde_json::Value)]
    input: Option<Box<RawValue>>,
    cron: String,
    timezone: Option<String>,
    queue: String,
    metadata: BTreeMap<String, String>,
    priority: i32,
    concurrency_key: Option<String>,
    concurrency_limit: Option<u32>,
    paused: bool,
    /// When the next run starts; null if never again, and while it is paused.
    next_at: Option<String>,
    /// When it was made, or last replaced.
    created_at: String,
}

fn view(schedule: Schedule) -> axum::Json<ScheduleView> {
    axum::Json(to_view(schedule))
}

fn to_view(Schedule { spec, next_at, created_at, .. }: Schedule) -> ScheduleView {
    ScheduleView {
        id: spec.id,
        kind: spec.kind,
        input: RawValue::from_string(spec.input).ok(),
        cron: spec.cron,
        timezone: spec.timezone,
        queue: spec.queue,
        metadata: spec.metadata,
        priority: spec.priority,
        concurrency_key: spec.concurrency_key,
        concurrency_limit: spec.concurrency_limit,
        paused: spec.paused,
        next_at: next_at.map(|at| at.to_string()),
        created_at: created_at.to_string(),
    }
}

/// Makes a schedule, or replaces the one of its id.
#[utoipa::path(
    operation_id = "put_schedule",
    post, path = "/schedules", tag = "schedules", request_body = NewSchedule,
    responses((status = 200, body = ScheduleView))
)]
pub(super) async fn put(caller: Caller, Json(body): Json<NewSchedule>) -> Result<axum::Json<ScheduleView>, Problem> {
    let spec = ScheduleSpec {
        id: body.id.unwrap_or_else(|| Uuid::now_v7().to_string()),
        kind: body.kind,
        queue: body.queue.unwrap_or_else(|| "default".into()),
        input: body.input.map_or_else(|| "null".to_owned(), |input| Box::<str>::from(input).into_string()),
        cron: body.cron,
        timezone: body.timezone,
        metadata: body.metadata,
        priority: body.priority,
        concurrency_key: body.concurrency_key,
        concurrency_limit: body.concurrency_limit,
        paused: body.paused,
    };
    Ok(view(caller.service.put_schedule(&caller.by, spec).await?))
}

/// Lists schedules, by id.
#[utoipa::path(
    operation_id = "list_schedules",
    get, path = "/schedules", tag = "schedules",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Items<ScheduleView>))
)]
pub(super) async fn list(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Items<ScheduleView>>, Problem> {
    let page = query.page()?;
    query.reject_unknown()?;
    let page = caller.service.storage.schedules(caller.org(), page).await?;
    let items = page.items.into_iter().map(to_view).collect();
    Ok(axum::Json(Items { items, next_cursor: page.next.map(|cursor| cursor.0) }))
}

/// One schedule.
#[utoipa::path(
    operation_id = "get_schedule",
    get, path = "/schedules/{schedule}", tag = "schedules",
    responses((status = 200, body = ScheduleView))
)]
pub(super) async fn detail(caller: Caller) -> Result<axum::Json<ScheduleView>, Problem> {
    Ok(view(caller.service.storage.schedule(caller.org(), caller.named("schedule")).await?))
}

/// Removes a schedule; the runs that it started stay.
#[utoipa::path(
    operation_id = "delete_schedule",
    delete, path = "/schedules/{schedule}", tag = "schedules",
    responses((status = 204))
)]
pub(super) async fn delete(caller: Caller) -> Result<StatusCode, Problem> {
    caller.service.delete_schedule(&caller.by, caller.named("schedule")).await?;
    Ok(StatusCode::NO_CONTENT)
}
