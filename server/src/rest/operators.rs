//! What operators look at and set: work that nobody serves, limits of queues.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Asked, Caller, Json};
use axum::http::StatusCode;
use flovyn_core::model::{QueueLimit, Rate};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// Work of one kind in a queue that no live worker serves.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unserved {
    queue: String,
    /// The agent or the task.
    kind: String,
    /// How many wait.
    waiting: u64,
}

/// Lists the kinds with work that no live worker serves.
#[utoipa::path(get, path = "/queues/unserved", tag = "operators", responses((status = 200, body = Items<Unserved>)))]
pub(super) async fn queues(caller: Caller, asked: Asked) -> Result<axum::Json<Items<Unserved>>, Problem> {
    asked.nothing_else()?;
    let kinds = caller.service.storage.unserved(caller.org()).await?;
    let items = kinds.into_iter().map(|(kind, queue, waiting)| Unserved { queue, kind, waiting }).collect();
    Ok(axum::Json(Items { items, next_cursor: None }))
}

/// What a queue may do at most.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = QueueLimit)]
pub(super) struct LimitBody {
    /// Runs that workers hold at the same time; waiting ones do not count.
    concurrency: Option<u32>,
    /// How often runs are handed to workers, new ones and woken ones.
    rate: Option<RateBody>,
}

/// So many in a time, at once or spread over it.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Rate)]
pub(super) struct RateBody {
    runs: u32,
    seconds: f64,
}

/// A queue with its limit.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    queue: String,
    #[serde(flatten)]
    limit: LimitBody,
}

/// Lists the queues that have a limit.
#[utoipa::path(get, path = "/queues", tag = "operators", responses((status = 200, body = Items<Queue>)))]
pub(super) async fn limits(caller: Caller, asked: Asked) -> Result<axum::Json<Items<Queue>>, Problem> {
    asked.nothing_else()?;
    let limits = caller.service.storage.queue_limits(caller.org()).await?;
    let rate = |rate: Rate| RateBody { runs: rate.runs, seconds: rate.per.as_secs_f64() };
    let view = |limit: QueueLimit| LimitBody { concurrency: limit.concurrency, rate: limit.rate.map(rate) };
    let items = limits.into_iter().map(|(queue, limit)| Queue { queue, limit: view(limit) }).collect();
    Ok(axum::Json(Items { items, next_cursor: None }))
}

/// Limits a queue, in place of the limit it has.
#[utoipa::path(
    put, path = "/queues/{queue}", tag = "operators", request_body = LimitBody, responses((status = 204))
)]
pub(super) async fn limit(caller: Caller, Json(body): Json<LimitBody>) -> Result<StatusCode, Problem> {
    let rate = body.rate.map(|rate| match Duration::try_from_secs_f64(rate.seconds) {
        Ok(per) => Ok(Rate { runs: rate.runs, per }),
        Err(_) => Err(Problem::invalid(format!("{} seconds are no time of a rate; give more than 0", rate.seconds))),
    });
    let limit = QueueLimit { concurrency: body.concurrency, rate: rate.transpose()? };
    caller.service.storage.limit_queue(caller.org(), caller.named("queue"), limit).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Frees a queue of its limit.
#[utoipa::path(delete, path = "/queues/{queue}", tag = "operators", responses((status = 204)))]
pub(super) async fn free(caller: Caller) -> Result<StatusCode, Problem> {
    caller.service.storage.limit_queue(caller.org(), caller.named("queue"), QueueLimit::default()).await?;
    Ok(StatusCode::NO_CONTENT)
}
