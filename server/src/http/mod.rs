//! HTTP: the listener, its routes, and what holds for every request.

mod cached;
mod connections;
mod hosts;
mod outside;

pub(crate) use cached::Version;
pub(crate) use hosts::Hosts;
pub(crate) use outside::answers;

use self::connections::Connections;
use self::hosts::of_this_machine;
use crate::faults::contain_http;
use crate::listen::Latch;
use crate::metrics::http_calls;
use crate::request_id;
use crate::rest::{self, MAX_BODY, Problem, openapi};
use crate::service::Service;
use crate::sse;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::Response;
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

/// How long the headers of a request may take, and how long a connection may be deaf.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the headers of a request.
const HEADERS: usize = 64 << 10;
/// Requests at a time on one connection of HTTP/2.
const STREAMS: u32 = 256;

/// Bytes of an answer that are worth to be compressed.
const WORTH: u16 = 1_024;
const RAW: &str = "application/octet-stream";

/// How long the last who have connected may take to be encrypted.
const LAST: Duration = Duration::from_secs(1);

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) Option<IpAddr>);

/// Serves until told to stop, and then until the calls in flight have ended, here and where `calls_ended` waits for them. Whoever
/// comes meanwhile is answered; then the latch falls. With `of_machine` only calls of this machine are taken.
pub(crate) async fn serve<C>(
    service: Service,
    mut guests: impl Stream<Item = (C, Option<IpAddr>)> + Unpin,
    of_machine: Option<Hosts>,
    latch: Latch,
    calls_ended: impl Future<Output = ()>,
) -> Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (app, protocol) = (app(service.clone(), of_machine), protocol());
    let (mut early, mut late) = (Connections::new(), Connections::new());
    let mut stopped = pin!(service.stopped());
    loop {
        tokio::select! {
            guest = guests.next() => match guest {
                Some(guest) => early.take(guest, &app, &service, &protocol),
                None => break,
            },
            () = &mut stopped => break,
        }
    }
    let mut guests = guests.fuse();
    let mut ended = pin!(join(early.end(), calls_ended));
    loop {
        tokio::select! {
            Some(guest) = guests.next() => late.take(guest, &app, &service, &protocol),
            _ = &mut ended => break,
        }
    }
    latch.fall();
    // Those who stand in the door.
    let mut last = pin!(tokio::time::sleep(LAST));
    loop {
        tokio::select! {
            guest = guests.next() => match guest {
                Some(guest) => late.take(guest, &app, &service, &protocol),
                None => break,
            },
            () = &mut last => break,
        }
    }
    late.end().await;
    Ok(())
}

/// What answers requests.
fn app(service: Service, of_machine: Option<Hosts>) -> Router {
    let mut app = routes()
        .split_for_parts()
        .0
        .fallback(|uri: Uri| async move { no_route(&uri) })
        .method_not_allowed_fallback(|uri: Uri| async move { wrong_method(&uri) })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(cached::revalidate))
        .layer(from_fn(contain_http))
        .layer(from_fn_with_state(service.metrics.clone(), http_calls));
    if let Some(hosts) = of_machine {
        app = app.layer(from_fn_with_state(hosts, of_this_machine));
    }
    app.layer(compression())
        .layer(from_fn(request_id::mark))
        .layer(map_response(as_declared))
        .layer(from_fn_with_state(service.clone(), connections::say))
        .with_state(service)
}

/// Compresses what is worth it for whoever takes it: texts of some length. Never events, each of which is to arrive at once, nor
/// payloads, which are read piece by piece and have a length.
fn compression() -> CompressionLayer<impl Predicate> {
    let worth = SizeAbove::new(WORTH).and(NotForContentType::SSE).and(NotForContentType::const_new(RAW));
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(worth)
}

/// Lets no browser take an answer for something else than it says it is.
async fn as_declared(mut response: Response) -> Response {
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// What every connection is held to.
fn protocol() -> auto::Builder<TokioExecutor> {
    let mut protocol = auto::Builder::new(TokioExecutor::new());
    protocol.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEADERS);
    let http2 = &mut protocol.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(PATIENCE).keep_alive_timeout(PATIENCE);
    http2.max_header_list_size(HEADERS as u32).max_concurrent_streams(STREAMS);
    protocol
}

/// Every route, with its part of the document.
pub(crate) fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::default()
        .nest("/api/orgs/{org}", rest::of_org().merge(sse::of_run()))
        .routes(routes!(outside::health))
        .routes(routes!(outside::ready))
        .routes(routes!(outside::metrics))
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
