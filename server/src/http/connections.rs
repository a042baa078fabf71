//! HTTP connections, and how they end without the loss of a request when the server stops.
//!
//! HTTP/1.1 has `Connection: close` in an answer ([`announce_close`]): a client that has read it sends no further request. On a
//! connection that is closed without it a request may be on its way. HTTP/2 has GOAWAY, which names the last call that is answered.

use crate::listen::Peer;
use crate::service::Service;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use futures::FutureExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::Layer;
use tower::util::MapRequestLayer;
use tracing::debug;

/// How long a connection that is open when its server stops may take to send its first request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The protocol of the first request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstRequest {
    None,
    Http1,
    Http2,
}

/// Connections that are served.
pub(super) struct Connections {
    served: JoinSet<()>,
    close: watch::Sender<bool>,
}

impl Connections {
    pub(super) fn new() -> Self {
        Self { served: JoinSet::new(), close: watch::Sender::new(false) }
    }

    /// Serves a connection in a task of its own.
    pub(super) fn serve_connection<C>(
        &mut self,
        (connection, address): (C, Option<IpAddr>),
        app: &Router,
        service: &Service,
        protocol: &Builder<TokioExecutor>,
    ) where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Drops the tasks of connections that have ended.
        while let Some(Some(_)) = self.served.join_next().now_or_never() {}
        let (first_request, mut first_seen) = watch::channel(FirstRequest::None);
        let from = MapRequestLayer::new(move |mut request: axum::http::Request<_>| {
            request.extensions_mut().insert(Peer(address));
            first_request.send_replace(match request.version() {
                Version::HTTP_2 => FirstRequest::Http2,
                _ => FirstRequest::Http1,
            });
            request
        });
        let app = TowerToHyperService::new(from.layer(app.clone()));
        let served = protocol.serve_connection_with_upgrades(TokioIo::new(connection), app).into_owned();
        let (drained, mut close) = (service.drained(), self.close.subscribe());
        self.served.spawn(async move {
            let mut before = first_seen.clone();
            let drain = async move {
                drained.await;
                if before.wait_for(|first_request| *first_request == FirstRequest::Http2).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let end = async move {
                let _ = close.wait_for(|close| *close).await;
                let _ = tokio::time::timeout(
                    FIRST_REQUEST_TIMEOUT,
                    first_seen.wait_for(|first_request| *first_request != FirstRequest::None),
                )
                .await;
            };
            let (mut served, mut drain, mut end) = (pin!(served), pin!(drain.fuse()), pin!(end.fuse()));
            let ended = loop {
                tokio::select! {
                    ended = &mut served => break ended,
                    () = &mut drain => served.as_mut().graceful_shutdown(),
                    () = &mut end => served.as_mut().graceful_shutdown(),
                }
            };
            if let Err(error) = ended {
                debug!(%error, "a connection ended before its time");
            }
        });
    }

    /// Ends all connections once their requests are answered.
    pub(super) async fn end(mut self) {
        self.close.send_replace(true);
        while self.served.join_next().await.is_some() {}
    }
}

/// Marks each HTTP/1.1 answer of a draining server as the last on its connection.
pub(super) async fn announce_close(State(service): State<Service>, request: Request, next: Next) -> Response {
    let version = request.version();
    let mut answer = next.run(request).await;
    if *service.draining.borrow() && version <= Version::HTTP_11 {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}
