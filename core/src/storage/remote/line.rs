//! The line to a server, which outlives its connections.
//!
//! A server that is about to end says on each connection that it takes no more calls there (GOAWAY). A call that was about to
//! leave at that moment was never sent: it goes out again by the next connection, and its caller hears nothing of it.

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::error::Error as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::transport::{Channel, Error};

/// How often a call is tried that was not sent: the next connection may be to a server that is about to end, too.
const TRIES: u32 = 5;

/// What calls are made on.
#[derive(Clone)]
pub(super) struct Line(Channel);

impl Line {
    pub(super) fn over(channel: Channel) -> Self {
        Self(channel)
    }
}

impl Service<Request<Body>> for Line {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that is ready is the one that was asked.
        let next = self.0.clone();
        let mut channel = std::mem::replace(&mut self.0, next);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = Lent { body: Arc::new(Mutex::new(body)), begun: Arc::default() };
            let mut tries = 1;
            loop {
                let sent = channel.call(Request::from_parts(head.clone(), Body::new(body.clone())));
                match sent.await {
                    Err(error) if tries < TRIES && was_not_sent(&error) && !body.begun.load(Ordering::Acquire) => {
                        tries += 1;
                        poll_fn(|cx| channel.poll_ready(cx)).await?;
                    }
                    answer => return answer,
                }
            }
        })
    }
}

/// Whether it was a connection that failed, not the way to one. A call whose body nobody has begun to read was then not carried
/// out: no method runs before its message is there.
fn was_not_sent(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<hyper::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The body of a call, which can be given again as long as nobody has begun to read it.
#[derive(Clone)]
struct Lent {
    body: Arc<Mutex<Body>>,
    begun: Arc<AtomicBool>,
}

impl hyper::body::Body for Lent {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        self.begun.store(true, Ordering::Release);
        Pin::new(&mut *self.body.lock()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.lock().size_hint()
    }
}
