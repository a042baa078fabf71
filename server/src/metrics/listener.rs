//! `GET /metrics` on a port of its own, without a token: anybody who can reach the port may read it.

use super::Metrics;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::storage::Storage;
use std::sync::Arc;
use tokio::net::TcpListener;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the server stops.
pub(crate) async fn serve(
    metrics: Metrics,
    storage: Arc<dyn Storage>,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let app = Router::new().route("/metrics", get(text)).with_state((metrics, storage));
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped)
        .await
        .map_err(|error| Error::new(Code::StorageUnavailable, format!("the listener of metrics broke: {error}")))
}

async fn text(State((metrics, storage)): State<(Metrics, Arc<dyn Storage>)>) -> Response {
    match answer(&metrics, &*storage).await {
        Ok(text) => text,
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.message().to_owned()).into_response(),
    }
}

/// The numbers in the text form of OpenMetrics.
pub(crate) async fn answer(metrics: &Metrics, storage: &dyn Storage) -> Result<Response> {
    let text = metrics.text(storage).await?;
    Ok(([(header::CONTENT_TYPE, TEXT)], text).into_response())
}
