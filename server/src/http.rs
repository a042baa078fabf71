//! HTTP: the listener, its routes, and what holds for every request.

use crate::request_id;
use crate::rest::{self, MAX_BODY, Problem, openapi};
use crate::service::Service;
use crate::sse;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use tokio::net::TcpListener;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Serves until told to stop.
pub(crate) async fn serve(service: Service, listener: TcpListener) -> Result<()> {
    let broke = |error| Error::new(Code::StorageUnavailable, format!("the HTTP listener broke: {error}"));
    let loopback = listener.local_addr().map_err(broke)?.ip().is_loopback();
    let stopped = service.stopped();
    let mut app = routes()
        .split_for_parts()
        .0
        .fallback(|uri: Uri| async move { no_route(&uri) })
        .method_not_allowed_fallback(|uri: Uri| async move { wrong_method(&uri) })
        .layer(DefaultBodyLimit::max(MAX_BODY));
    if loopback {
        app = app.layer(from_fn(of_this_machine));
    }
    app = app.layer(from_fn(request_id::mark));
    // An event is not to wait for the acknowledgement of the one before.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    axum::serve(listener, app.with_state(service)).with_graceful_shutdown(stopped).await.map_err(broke)
}

/// Every route, with its part of the document.
pub(crate) fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::default()
        .nest("/api/orgs/{org}", rest::of_org().merge(sse::of_run()))
        .routes(routes!(health))
        .routes(routes!(ready))
        .routes(routes!(openapi::openapi))
        .routes(routes!(openapi::docs))
}

/// The server lives.
#[utoipa::path(get, path = "/_/health", tag = "server", responses((status = 200, content_type = "text/plain")))]
async fn health() -> &'static str {
    "ok"
}

/// The server is ready: its backend answers.
#[utoipa::path(
    get, path = "/_/ready", tag = "server",
    responses((status = 200, content_type = "text/plain"), (status = 503, content_type = "text/plain"))
)]
async fn ready(State(service): State<Service>) -> (StatusCode, String) {
    match service.storage.unserved(OrgId::DEFAULT).await {
        Ok(_) => (StatusCode::OK, "ready".into()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.message().to_owned()),
    }
}

fn no_route(uri: &Uri) -> Problem {
    let detail = format!("there is no route {}; /openapi.json has those there are", uri.path());
    Problem::new(StatusCode::NOT_FOUND, Code::InvalidArgument, detail)
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
        Some(detail) => Problem::new(StatusCode::FORBIDDEN, Code::InvalidArgument, detail).into_response(),
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
    let own = origin.strip_prefix("http://").is_some_and(|origin| origin == host);
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
        for other in ["null", "http://localhost:3000", "https://localhost:8080", "http://evil.example"] {
            assert!(foreign(&headers(other), &Uri::default()).is_some(), "{other}");
        }
    }
}
