//! ETags: an answer that the client has already is not sent again (304).

use crate::rest::Version;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Answers up to this size get a tag. Larger ones are pages of values, which hardly ever stay the same.
const MAX_TAGGED_BYTES: u64 = 8 << 20;
/// The client may cache the answer, and has to revalidate it each time.
const REVALIDATE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// Adds a tag to answers of `GET`, and answers 304 where the client has the same version.
pub(super) async fn revalidate(request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    let client_tags = IfNoneMatch::of(request.headers());
    let (mut parts, mut body) = next.run(request).await.into_parts();
    if parts.status != StatusCode::OK {
        return Response::from_parts(parts, body);
    }
    if !parts.headers.contains_key(header::ETAG) && is_complete(&parts, &body) {
        let Ok(bytes) = to_bytes(body, MAX_TAGGED_BYTES as usize).await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let hash = parts.extensions.get::<Version>().map_or_else(|| blake3::hash(&bytes), |version| version.hash());
        // Weak: what is sent may be compressed.
        let tag = format!("W/\"{}\"", &hash.to_hex()[..32]);
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            parts.headers.insert(header::ETAG, tag);
        }
        parts.headers.entry(header::CACHE_CONTROL).or_insert(REVALIDATE);
        body = bytes.into();
    }
    match parts.headers.get(header::ETAG) {
        Some(tag) if client_tags.has(tag) => {
            parts.status = StatusCode::NOT_MODIFIED;
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.remove(header::CONTENT_TYPE);
            Response::from_parts(parts, Body::empty())
        }
        _ => Response::from_parts(parts, body),
    }
}

/// Whether an answer is complete in memory. A stream is not, and must not be collected here.
fn is_complete(parts: &Parts, body: &Body) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_text = kind.starts_with(b"application/json") || kind.starts_with(b"text/html");
    is_text && body.size_hint().exact().is_some_and(|size| size <= MAX_TAGGED_BYTES)
}

/// The tags that a client has.
struct IfNoneMatch(Vec<String>);

impl IfNoneMatch {
    fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        Self(values.flat_map(|tags| tags.split(',')).map(|tag| opaque(tag.trim()).to_owned()).collect())
    }

    /// Weak and strong tags of the same name are the same here (RFC 9110, 13.1.2).
    fn has(&self, tag: &HeaderValue) -> bool {
        let Ok(tag) = tag.to_str() else { return false };
        self.0.iter().any(|client_tags| client_tags == "*" || client_tags == opaque(tag))
    }
}

fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}
