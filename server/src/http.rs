//! HTTP: whether the server lives and serves.

use crate::Service;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Serves until told to stop.
pub(crate) async fn serve(service: Service, listener: TcpListener, mut stopping: watch::Receiver<bool>) -> Result<()> {
    let routes =
        Router::new().route("/_/health", get(|| async { "ok" })).route("/_/ready", get(ready)).with_state(service);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        })
        .await
        .map_err(|error| Error::new(Code::StorageUnavailable, format!("the HTTP listener broke: {error}")))
}

/// Ready means that the backend answers.
async fn ready(State(service): State<Service>) -> (StatusCode, String) {
    match service.storage.unserved(OrgId::DEFAULT).await {
        Ok(_) => (StatusCode::OK, "ready".into()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.message().to_owned()),
    }
}
