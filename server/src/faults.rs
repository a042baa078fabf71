//! Panics and internal errors: a panic ends only its own call, with the code `Internal`; the details go to the log.

use crate::request_id::RequestId;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use flovyn_core::error::{Code, Error};
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use tracing::{error, warn};

/// Runs a call; one whose code panics is answered with the error `Internal`, as its transport writes it.
pub(crate) async fn contained(request: Request, next: Next, respond: fn(Error) -> Response) -> Response {
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
pub(crate) mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::extract::Request;
    use axum::response::Response;
    use axum::routing::get;
    use tower::ServiceExt;

    async fn broken() -> &'static str {
        panic!("the state is /secret/path")
    }

    /// The answer of a server with a layer to a call whose code panics.
    pub(crate) async fn answer_to_a_panic(layered: impl FnOnce(Router) -> Router) -> Response {
        let app = layered(Router::new().route("/", get(broken)));
        app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap()
    }
}
