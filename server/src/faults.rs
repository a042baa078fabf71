//! Panics and internal errors: a panic ends only its own call, with the code `Internal`; the details go to the log.

use crate::request_id::RequestId;
use crate::rest::Problem;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flovyn_core::error::{Code, Error};
use flovyn_core::wire::status_of_error;
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use tracing::{error, warn};

/// Answers a call of HTTP whose code panics.
pub(crate) async fn contain_http(request: Request, next: Next) -> Response {
    contained(request, next, |fault| Problem::from(fault).into_response()).await
}

/// Answers a call of gRPC whose code panics.
pub(crate) async fn contain_grpc(request: Request, next: Next) -> Response {
    contained(request, next, |fault| status_of_error(&fault).into_http()).await
}

async fn contained(request: Request, next: Next, respond: fn(Error) -> Response) -> Response {
    let (path, id) = (request.uri().path().to_owned(), RequestId::of(request.extensions()));
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            error!(%path, request = %id, panic = panic_message(&*panic), "a call met a bug of the server");
            let message = format!(
                "the server met a bug; whether the call did anything is unknown; its log tells more of the request {id}"
            );
            respond(Error::new(Code::Internal, message))
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

/// Logs the details of an error that callers must not see.
pub(crate) fn log_hidden(error: &Error) {
    if error.tells_inside() {
        warn!(%error, "a call failed; the caller is told less");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt;

    async fn broken() -> &'static str {
        panic!("the state is /secret/path")
    }

    #[tokio::test]
    async fn a_panic_ends_one_call_and_tells_nothing() {
        let ask = |router: Router| router.oneshot(Request::get("/").body(Body::empty()).unwrap());
        let routes = || Router::new().route("/", get(broken));
        let response = ask(routes().layer(from_fn(contain_http))).await.unwrap();
        assert_eq!(response.status(), 500);
        let body = String::from_utf8(to_bytes(response.into_body(), 10_000).await.unwrap().to_vec()).unwrap();
        assert!(body.contains("\"code\":\"Internal\"") && !body.contains("secret"), "{body}");
        let response = ask(routes().layer(from_fn(contain_grpc))).await.unwrap();
        let status = tonic::Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::Internal);
        assert!(!status.message().contains("secret"), "{status}");
    }
}
