//! What those who look after a server ask it: whether it lives and whether it is ready.

use crate::rest::Problem;
use crate::service::Service;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::model::{ExecutionFilter, PageRequest};
use std::time::Duration;

/// A backend that has not answered after so long does not answer.
const SILENT: Duration = Duration::from_secs(5);

/// Whether the backend answers.
pub(crate) async fn answers(service: &Service) -> Result<()> {
    let look = PageRequest { limit: 1, after: None };
    let looked = service.storage.executions(OrgId::DEFAULT, ExecutionFilter::default(), look);
    let silent = |_| Error::new(Code::StorageUnavailable, "the storage has not answered within 5 s; ask again later");
    tokio::time::timeout(SILENT, looked).await.map_err(silent)?.map(drop)
}

/// The server lives.
#[utoipa::path(get, path = "/_/health", tag = "server", responses((status = 200, content_type = "text/plain")))]
pub(super) async fn health() -> &'static str {
    "ok"
}

/// The server is ready: it was not told to end, and its backend answers.
#[utoipa::path(
    get, path = "/_/ready", tag = "server",
    responses((status = 200, content_type = "text/plain"), (status = 503, content_type = "text/plain"))
)]
pub(super) async fn ready(State(service): State<Service>) -> (StatusCode, String) {
    if *service.stopping.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the server was told to end".into());
    }
    match answers(&service).await {
        Ok(()) => (StatusCode::OK, "ready".into()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.message().to_owned()),
    }
}

/// Once the server is told to end, answers only those who look after it.
pub(super) async fn unless_ending(State(service): State<Service>, request: Request, next: Next) -> Response {
    let ends = *service.stopping.borrow();
    if ends && request.uri().path().starts_with("/api/") {
        let detail = "this server was told to end; ask again: another one answers, or this one once it is back";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::StorageUnavailable, detail).into_response();
    }
    next.run(request).await
}
