//! What operators look at: work that nobody serves.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Asked, Caller};
use serde::Serialize;
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
