//! HTTP: the server, its routes, and the layers of every request.

mod bounds;
mod cached;
mod connections;
mod console;
mod health;
mod hosts;
mod openapi;
mod origins;

pub(crate) use console::is_built as console_is_built;
pub(crate) use hosts::Hosts;
pub(crate) use origins::Origins;

use self::connections::Connections;
use self::hosts::loopback_only;
use crate::listen::ListenerCloser;
use crate::metrics::http_calls;
use crate::request_id;
use crate::rest::{self, MAX_BODY, Problem, contain_http};
use crate::service::Service;
use crate::sse;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use flovyn_core::error::{Code, Error, Result};
use futures::future::join;
use futures::{Stream, StreamExt};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long the headers of a request may take, and the answer to a keep-alive ping.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the headers of a request.
const HEADERS: usize = 64 << 10;
/// Requests at a time on one connection of HTTP/2.
const STREAMS: u32 = 256;

/// Bytes from which on an answer is compressed.
const MIN_COMPRESSED: u16 = 1_024;
const RAW: &str = "application/octet-stream";

/// How long the handshakes of the last connections may take.
const LAST_HANDSHAKES: Duration = Duration::from_secs(1);

/// Serves until the server stops, and then until the calls in flight have ended, here and where `calls_ended` waits for them.
/// Connections that come meanwhile are answered; then the listener is closed. With `loopback_hosts` only calls to names of this
/// machine are answered. Pages of `origins` may call it from a browser.
pub(crate) async fn serve<C>(
    service: Service,
    incoming: impl Stream<Item = (C, Option<IpAddr>)> + Unpin,
    loopback_hosts: Option<Hosts>,
    origins: Origins,
    closer: ListenerCloser,
    calls_ended: impl Future<Output = ()>,
) -> Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (app, protocol) = (app(service.clone(), loopback_hosts, &origins), protocol());
    let mut incoming = incoming.fuse();
    let (mut before_stop, mut after_stop) = (Connections::new(), Connections::new());
    let mut stopped = pin!(service.stopped());
    loop {
        tokio::select! {
            connection = incoming.next() => match connection {
                Some(connection) => before_stop.serve_connection(connection, &app, &service, &protocol),
                None => break,
            },
            () = &mut stopped => break,
        }
    }
    let mut ended = pin!(join(before_stop.end(), calls_ended));
    loop {
        tokio::select! {
            Some(connection) = incoming.next() => after_stop.serve_connection(connection, &app, &service, &protocol),
            _ = &mut ended => break,
        }
    }
    closer.close();
    // Connections that were accepted before the listener was closed.
    let mut last = pin!(tokio::time::sleep(LAST_HANDSHAKES));
    loop {
        tokio::select! {
            connection = incoming.next() => match connection {
                Some(connection) => after_stop.serve_connection(connection, &app, &service, &protocol),
                None => break,
            },
            () = &mut last => break,
        }
    }
    after_stop.end().await;
    Ok(())
}

/// The routes with all their layers.
fn app(service: Service, loopback_hosts: Option<Hosts>, origins: &Origins) -> Router {
    let mut app = routes()
        .split_for_parts()
        .0
        .fallback(|method: Method, uri: Uri, headers: HeaderMap| async move {
            console::page(&method, &uri, &headers).unwrap_or_else(|| no_route(&uri).into_response())
        })
        .method_not_allowed_fallback(|uri: Uri| async move { wrong_method(&uri) })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(cached::revalidate))
        .layer(from_fn(contain_http))
        .layer(from_fn_with_state(service.metrics.clone(), http_calls));
    if let Some(cors) = origins.layer() {
        app = app.layer(cors);
    }
    if let Some(hosts) = loopback_hosts {
        app = app.layer(from_fn_with_state(hosts, loopback_only));
    }
    app.layer(compression())
        .layer(from_fn(request_id::mark))
        .layer(map_response(as_declared))
        .layer(from_fn_with_state(service.clone(), connections::announce_close))
        .with_state(service)
}

/// Compresses texts of some length. Never events, since each is to arrive at once, nor payloads, which are read piece by piece and
/// declare their length.
fn compression() -> CompressionLayer<impl Predicate> {
    let worth = SizeAbove::new(MIN_COMPRESSED).and(NotForContentType::SSE).and(NotForContentType::const_new(RAW));
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(worth)
}

/// Forbids browsers to guess the content type of an answer.
async fn as_declared(mut response: Response) -> Response {
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The limits of every connection.
fn protocol() -> auto::Builder<TokioExecutor> {
    let mut protocol = auto::Builder::new(TokioExecutor::new());
    protocol.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(HEADERS);
    let http2 = &mut protocol.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(HEADER_TIMEOUT).keep_alive_timeout(HEADER_TIMEOUT);
    http2.max_header_list_size(HEADERS as u32).max_concurrent_streams(STREAMS);
    protocol
}

/// Every route, with its part of the OpenAPI document.
pub(crate) fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::default()
        .nest("/api/orgs/{org}", rest::of_org().merge(sse::of_run()))
        .merge(rest::of_strangers())
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi::openapi))
        .routes(routes!(openapi::docs))
}

fn no_route(uri: &Uri) -> Problem {
    let detail = format!("there is no route {}; /openapi.json has those there are", uri.path());
    Problem::from(Error::new(Code::NotFound, detail))
}

fn wrong_method(uri: &Uri) -> Problem {
    let detail = format!("{} does not take this method; the header Allow names those it takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, Code::InvalidArgument, detail)
}
