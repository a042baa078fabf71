//! The console: the pages that `make web` has built, held by the binary. A server that was built without them says so.

use crate::rest::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use flovyn_core::error::{Code, Error};
use rust_embed::{Embed, EmbeddedFile};

/// What `make web` writes.
#[derive(Embed)]
#[folder = "console/"]
#[allow_missing = true]
struct Built;

/// The page that shows every address which is no file; it reads the address itself.
const INDEX: &str = "index.html";
/// Files whose names say what is in them.
const HASHED: &str = "assets/";
/// What the pages may do: run their own scripts, and call this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; connect-src 'self'; \
                      img-src 'self' data: blob:; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";

/// Whether this server was built with its console.
pub(crate) fn is_built() -> bool {
    Built::get(INDEX).is_some()
}

/// The file or the page at an address; none where a program asks for what is no file.
pub(super) fn page(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
    if !matches!(*method, Method::GET | Method::HEAD) || is_of_programs(uri.path()) {
        return None;
    }
    let path = uri.path().trim_start_matches('/');
    if let Some(file) = Built::get(path).filter(|_| path != INDEX) {
        return Some(answer(file, path));
    }
    let wants_page = headers.get(header::ACCEPT).is_some_and(|kinds| {
        kinds.to_str().is_ok_and(|kinds| kinds.split(',').any(|kind| kind.trim().starts_with("text/html")))
    });
    if !wants_page || path.starts_with(HASHED) {
        return None;
    }
    Some(Built::get(INDEX).map_or_else(|| missing().into_response(), |file| answer(file, INDEX)))
}

/// Whether a path is one that programs ask for: pages are nowhere below it.
fn is_of_programs(path: &str) -> bool {
    path.starts_with("/api/") || path.starts_with("/_/")
}

fn answer(file: EmbeddedFile, path: &str) -> Response {
    let kind = HeaderValue::from_str(file.metadata.mimetype());
    let mut response = Response::new(Body::from(file.data));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    let caching = if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    response
}

fn missing() -> Problem {
    let detail = "this server was built without its console; `make web` builds that, then build the server again. \
                  /docs has the routes of REST";
    Problem::from(Error::new(Code::NotFound, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &Method, path: &str, accept: &str) -> Option<Response> {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
        page(method, &path.parse().unwrap(), &headers)
    }

    const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";

    #[test]
    fn a_page_is_shown_to_browsers_alone() {
        for path in ["/", "/runs/1", "/sign-in", "/..%2f..%2fetc/passwd"] {
            let response = asked(&Method::GET, path, BROWSER).expect(path);
            assert_eq!(response.status(), if is_built() { 200 } else { 404 }, "{path}");
            if is_built() {
                assert!(
                    response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("script-src 'self'")
                );
                assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html");
            }
        }
        for (method, path, accept) in [
            (Method::GET, "/runs/1", "application/json"),
            (Method::GET, "/runs/1", "*/*"),
            (Method::POST, "/runs/1", BROWSER),
            (Method::GET, "/api/orgs/default/nothing", BROWSER),
            (Method::GET, "/_/nothing", BROWSER),
            (Method::GET, "/assets/gone-1234.js", BROWSER),
        ] {
            assert!(asked(&method, path, accept).is_none(), "{method} {path} {accept}");
        }
    }
}
