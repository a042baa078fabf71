//! Connections of HTTP while they are served: each is told in its own way that its server ends, so that no request is lost.
//!
//! HTTP/1.1 knows one way to say so, `Connection: close` in an answer ([`say`]): whoever heard it sends nothing more. One that is
//! closed without may just be sending. HTTP/2 has GOAWAY, which names the last call that is answered.

use super::Peer;
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

/// How long a connection may be silent that is there when its server stops: whoever has just connected is about to ask.
const FIRST: Duration = Duration::from_secs(1);

/// What a connection has been asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
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

    /// Serves one more.
    pub(super) fn take<C>(
        &mut self,
        (connection, address): (C, Option<IpAddr>),
        app: &Router,
        service: &Service,
        protocol: &Builder<TokioExecutor>,
    ) where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Those that have ended.
        while let Some(Some(_)) = self.served.join_next().now_or_never() {}
        let (asked, mut heard) = watch::channel(Asked::Nothing);
        let from = MapRequestLayer::new(move |mut request: axum::http::Request<_>| {
            request.extensions_mut().insert(Peer(address));
            asked.send_replace(match request.version() {
                Version::HTTP_2 => Asked::Http2,
                _ => Asked::Http1,
            });
            request
        });
        let app = TowerToHyperService::new(from.layer(app.clone()));
        let served = protocol.serve_connection_with_upgrades(TokioIo::new(connection), app).into_owned();
        let (drained, mut close) = (service.drained(), self.close.subscribe());
        self.served.spawn(async move {
            let mut before = heard.clone();
            let leave = async move {
                drained.await;
                if before.wait_for(|asked| *asked == Asked::Http2).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let end = async move {
                let _ = close.wait_for(|close| *close).await;
                let _ = tokio::time::timeout(FIRST, heard.wait_for(|asked| *asked != Asked::Nothing)).await;
            };
            let (mut served, mut leave, mut end) = (pin!(served), pin!(leave.fuse()), pin!(end.fuse()));
            let ended = loop {
                tokio::select! {
                    ended = &mut served => break ended,
                    () = &mut leave => served.as_mut().graceful_shutdown(),
                    () = &mut end => served.as_mut().graceful_shutdown(),
                }
            };
            if let Err(error) = ended {
                debug!(%error, "a connection ended before its time");
            }
        });
    }

    /// Ends all once they have answered what they were asked.
    pub(super) async fn end(mut self) {
        self.close.send_replace(true);
        while self.served.join_next().await.is_some() {}
    }
}

/// Says with each answer of a server that will end that it is the last on its connection.
pub(super) async fn say(State(service): State<Service>, request: Request, next: Next) -> Response {
    let version = request.version();
    let mut answer = next.run(request).await;
    if *service.draining.borrow() && version <= Version::HTTP_11 {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}
