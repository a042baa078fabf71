//! The catalogue for pickers: models and host tools.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, QueryParams};
use crate::catalog::{Model, Tool};
use axum::http::StatusCode;
use flovyn_core::error::Error;

/// An error of the server's environment is not the caller's fault.
fn misconfigured(error: Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.code(), error.message())
}

fn all<T>(items: Vec<T>) -> axum::Json<Items<T>> {
    axum::Json(Items { items, next_cursor: None })
}

/// Lists the models to pick, by reference, all on one page; no provider is asked.
#[utoipa::path(get, path = "/models", tag = "definitions", responses((status = 200, body = Items<Model>)))]
pub(super) async fn models(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<Model>>, Problem> {
    query.reject_unknown()?;
    let now = caller.service.storage.clock().now();
    caller.service.catalog.models(now).map(all).map_err(misconfigured)
}

/// Lists the host tools to pick, by name, all on one page.
#[utoipa::path(get, path = "/tools", tag = "definitions", responses((status = 200, body = Items<Tool>)))]
pub(super) async fn tools(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<Tool>>, Problem> {
    query.reject_unknown()?;
    caller.service.catalog.tools().map(all).map_err(misconfigured)
}
