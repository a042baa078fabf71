//! Errors over HTTP: `application/problem+json` (RFC 9457) with our codes, and the one mapping of codes to statuses.

use crate::faults;
use crate::limits::retry_after;
use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flovyn_core::error::{Code, Error, Kind};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A refusal or a failure.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    error: Error,
}

/// The body of an error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Names the code for programs that know problem+json.
    #[schema(example = "urn:flovyn:error:NotFound")]
    r#type: String,
    /// What the code means.
    title: String,
    /// The status of the response.
    status: u16,
    /// What was asked, what was found, what to do.
    detail: String,
    /// The word for it in every language; `docs/errors` has a page for each.
    code: String,
    /// Whether the same request may succeed later without any change.
    retryable: bool,
    /// Named facts: ids, sizes, limits.
    context: BTreeMap<String, String>,
}

impl Problem {
    /// A problem of HTTP itself, where the code alone does not tell the status.
    pub(crate) fn new(status: StatusCode, code: Code, detail: impl Into<String>) -> Self {
        Self { status, error: Error::new(code, detail) }
    }

    /// A request that is wrong.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::from(Error::new(Code::InvalidArgument, detail))
    }

    /// Something that is named and not there.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::from(Error::new(Code::NotFound, detail))
    }

    /// Something that the caller may not do.
    pub(crate) fn denied(detail: impl Into<String>) -> Self {
        Self::from(Error::new(Code::PermissionDenied, detail))
    }

    /// What its answer says.
    pub(crate) fn body(&self) -> ProblemBody {
        let error = &self.error;
        ProblemBody {
            r#type: format!("urn:flovyn:error:{}", error.code()),
            title: error.code().title().into(),
            status: self.status.as_u16(),
            detail: error.message_outside().into(),
            code: error.code().as_str().into(),
            retryable: error.is_retryable(),
            context: error.context().iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
        }
    }

    /// A body over its limit.
    pub(super) fn too_large(detail: impl Into<String>) -> Self {
        Self::from(Error::new(Code::PayloadTooLarge, detail))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self { status: status_of(error.code()), error }
    }
}

/// The status of a code.
fn status_of(code: Code) -> StatusCode {
    match (code, code.kind()) {
        (Code::PayloadTooLarge, _) => StatusCode::PAYLOAD_TOO_LARGE,
        (Code::StepLimitReached, _) => StatusCode::CONFLICT,
        (Code::Unauthenticated, _) => StatusCode::UNAUTHORIZED,
        (_, Kind::Denied) => StatusCode::FORBIDDEN,
        (_, Kind::Invalid) => StatusCode::BAD_REQUEST,
        (_, Kind::NotFound) => StatusCode::NOT_FOUND,
        (_, Kind::Conflict | Kind::Failed | Kind::Lost) => StatusCode::CONFLICT,
        (_, Kind::Limit) => StatusCode::TOO_MANY_REQUESTS,
        (_, Kind::Unavailable) => StatusCode::SERVICE_UNAVAILABLE,
        (_, Kind::Corrupt | Kind::Fault) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let error = &self.error;
        faults::log_hidden(error);
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"flovyn\""));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(seconds) = retry_after(error) {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Answers a call whose code panics.
pub(crate) async fn contain_http(request: Request, next: Next) -> Response {
    faults::contained(request, next, |fault| Problem::from(fault).into_response()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use axum::middleware::from_fn;

    #[tokio::test]
    async fn a_panic_ends_one_call_and_tells_nothing() {
        let response = faults::tests::answer_to_a_panic(|app| app.layer(from_fn(contain_http))).await;
        assert_eq!(response.status(), 500);
        let body = String::from_utf8(to_bytes(response.into_body(), 10_000).await.unwrap().to_vec()).unwrap();
        assert!(body.contains("\"code\":\"Internal\"") && !body.contains("secret"), "{body}");
    }

    #[test]
    fn every_code_has_a_status_that_says_who_has_to_act() {
        for code in Code::ALL {
            let status = status_of(*code);
            let ours = matches!(code.kind(), Kind::Unavailable | Kind::Corrupt | Kind::Fault);
            assert_eq!((status.is_client_error(), status.is_server_error()), (!ours, ours), "{code}: {status}");
        }
    }
}
