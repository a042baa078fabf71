//! The id of a request: the caller's own or a fresh one. It comes back with the answer and stands in the audit.

use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

const HEADER: &str = "x-request-id";
/// The longest id that is taken over.
const LONGEST: usize = 128;

/// The id of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// The id of the request with these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_else(Self::fresh)
    }

    fn fresh() -> Self {
        Self(Uuid::new_v4().to_string().into())
    }

    /// The id that a caller gave, where it is a word.
    fn from_header(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(HEADER)?.to_str().ok()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        ((1..=LONGEST).contains(&text.len()) && text.bytes().all(plain)).then(|| Self(text.into()))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Gives every request an id and every answer that of its request.
pub(crate) async fn mark(mut request: Request, next: Next) -> Response {
    let id = RequestId::from_header(request.headers()).unwrap_or_else(RequestId::fresh);
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_are_taken_over() {
        let from_header = |text: &str| {
            let headers = HeaderMap::from_iter([(HEADER.parse().unwrap(), HeaderValue::from_str(text).unwrap())]);
            RequestId::from_header(&headers).map(|id| id.to_string())
        };
        assert_eq!(from_header("build-7.2:ab").as_deref(), Some("build-7.2:ab"));
        for wrong in ["", "a b", "x\ty", "\"quoted\"", &"x".repeat(129)] {
            assert_eq!(from_header(wrong), None, "{wrong:?}");
        }
    }
}
