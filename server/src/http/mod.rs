//! HTTP: the listener, its routes, and what holds for every request.

mod connections;
mod outside;

pub(crate) use outside::answers;

use self::connections::Connections;
use crate::faults::contain_http;
use crate::listen::Latch;
use crate::metrics::http_calls;
use crate::request_id;
use crate::rest::{self, MAX_BODY, Problem, openapi};
use crate::service::Service;
use crate::sse;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
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
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long the headers of a request may take, and how long a connection may be deaf.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the headers of a request.
const HEADERS: usize = 64 << 10;
/// Requests at a time on one connection of HTTP/2.
const STREAMS: u32 = 256;

/// How long the last who have connected may take to be encrypted.
const LAST: Duration = Duration::from_secs(1);

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) Option<IpAddr>);

/// Serves until told to stop, and then until the calls in flight have ended, here and where `calls_ended` waits for them. Whoever
/// comes meanwhile is answered; then the latch falls.
pub(crate) async fn serve<C>(
    service: Service,
    mut guests: impl Stream<Item = (C, Option<IpAddr>)> + Unpin,
    loopback: bool,
    latch: Latch,
    calls_ended: impl Future<Output = ()>,
) -> Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (app, protocol) = (app(service.clone(), loopback), protocol());
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
fn app(service: Service, loopback: bool) -> Router {
    let mut app = routes()
        .split_for_parts()
        .0
        .fallback(|uri: Uri| async move { no_route(&uri) })
        .method_not_allowed_fallback(|uri: Uri| async move { wrong_method(&uri) })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(contain_http))
        .layer(from_fn_with_state(service.metrics.clone(), http_calls));
    if loopback {
        app = app.layer(from_fn(of_this_machine));
    }
    app.layer(from_fn(request_id::mark))
        .layer(map_response(as_declared))
        .layer(from_fn_with_state(service.clone(), connections::say))
        .with_state(service)
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

/// On loopback, refuses what a page of somebody else's can make a browser send: a name that was rebound to this machine, or a
/// foreign origin.
async fn of_this_machine(request: Request, next: Next) -> Response {
    match foreign(request.headers(), request.uri()) {
        None => next.run(request).await,
        Some(detail) => Problem::denied(detail).into_response(),
    }
}

/// What about a request is not of this machine.
fn foreign(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let header = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let host = header(header::HOST).or_else(|| Some(uri.authority()?.to_string())).unwrap_or_default();
    if !is_loopback(&host) {
        return Some(format!("the host {host:?} is not this machine; call 127.0.0.1 or localhost"));
    }
    let origin = header(header::ORIGIN)?;
    let own =
        origin.split_once("://").is_some_and(|(scheme, origin)| matches!(scheme, "http" | "https") && origin == host);
    (!own).then(|| format!("the origin {origin:?} is not this server's; only its own pages may call it"))
}

/// Whether an authority names this machine.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    matches!(host, "127.0.0.1" | "[::1]") || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_foreign_page_can_send_is_told_apart() {
        for own in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]", "[::1]:8080"] {
            assert!(is_loopback(own), "{own}");
        }
        for other in ["", "evil.example", "localhost.evil.example:8080", "127.0.0.1.nip.io", "127.0.0.1@evil:80"] {
            assert!(!is_loopback(other), "{other}");
        }
        let headers = |origin: &str| {
            HeaderMap::from_iter([
                (header::HOST, "localhost:8080".parse().unwrap()),
                (header::ORIGIN, origin.parse().unwrap()),
            ])
        };
        assert_eq!(foreign(&headers("http://localhost:8080"), &Uri::default()), None);
        assert_eq!(foreign(&headers("https://localhost:8080"), &Uri::default()), None);
        for other in ["null", "http://localhost:3000", "ftp://localhost:8080", "http://evil.example"] {
            assert!(foreign(&headers(other), &Uri::default()).is_some(), "{other}");
        }
    }
}
