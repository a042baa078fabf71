//! Health, readiness and metrics over HTTP.

use crate::access::bearer;
use crate::listen::Peer;
use crate::metrics;
use crate::policy::Need;
use crate::rest::{Problem, refused};
use crate::service::{Refusal, Service};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use flovyn_core::id::OrgId;

/// The server lives.
#[utoipa::path(get, path = "/_/health", tag = "server", responses((status = 200, content_type = "text/plain")))]
pub(super) async fn health() -> &'static str {
    "ok"
}

/// The server is ready: it was not told to end, and its backend answers and takes what is written.
#[utoipa::path(
    get, path = "/_/ready", tag = "server",
    responses((status = 200, content_type = "text/plain"), (status = 503, content_type = "text/plain"))
)]
pub(super) async fn ready(State(service): State<Service>) -> (StatusCode, String) {
    if *service.draining.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the server was told to end".into());
    }
    match service.check_storage().await {
        Ok(()) => (StatusCode::OK, "ready".into()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.message().to_owned()),
    }
}

/// What the server has counted, of every org; for a token of the org `default` with the scope `audit:read`.
#[utoipa::path(
    get, path = "/metrics", tag = "server", security(("bearer" = [])),
    responses(
        (status = 200, content_type = "application/openmetrics-text", body = String),
        (status = 401, content_type = "application/problem+json", body = inline(serde_json::Value)),
        (status = 403, content_type = "application/problem+json", body = inline(serde_json::Value)),
        (status = 429, content_type = "application/problem+json", body = inline(serde_json::Value)),
        (status = 503, content_type = "application/problem+json", body = inline(serde_json::Value)),
    )
)]
pub(super) async fn metrics(
    State(service): State<Service>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let denied =
        || Problem::denied("this tells of every org: it needs a token of the org default with the scope audit:read");
    let from = peer.and_then(|Extension(peer)| peer.0);
    let admitted = service.admit(bearer(&headers), from, Some(Need::Audit), "/metrics").await;
    let identity = admitted.map_err(|refusal| match refusal {
        Refusal::NotAllowed { .. } => denied(),
        refusal => refused(refusal),
    })?;
    // The numbers are of the whole installation, whose own org is the first one.
    if identity.org(Some(OrgId::DEFAULT)).is_none() {
        return Err(denied());
    }
    Ok(metrics::answer(&service.metrics, &*service.storage).await?)
}
