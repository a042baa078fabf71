//! The line to a server. It lives longer than a connection, and sends some calls again without their caller noticing.
//!
//! A server that is about to end announces on each connection that it takes no more calls there (GOAWAY). A call that
//! was about to leave at that moment was never sent, and one that is not among those that the server still takes was
//! not carried out. Both are sent again on the next connection. A call whose token was refused is sent again too, if the
//! token has changed meanwhile. And a call may get into the line of a connection at the very moment in which that is taken
//! down: nobody looks there any more, and nobody says so. Such a call is taken back after a while.

use super::tokens::Credentials;
use crate::sync::Mutex;
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Frame, SizeHint};
use std::error::Error as _;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::transport::{Channel, Error};

/// How often a call is tried that was not sent. The next connection may be to a server that is about to end too, and each such
/// server may cost two tries: the call that it does not take, and one that gets in line before the connection is closed.
const TRIES: u32 = 10;

/// How long a call may wait until a connection begins to send it, before it gets in line anew. Each time it waits twice as long, for
/// it may be that there are many before it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes of a call's body that are kept until its answer begins, so that it can be sent again with another
/// token.
const KEPT: usize = 1 << 20;

/// The gRPC status of a refused token.
const UNAUTHENTICATED: &[u8] = b"16";
/// The gRPC status after which callers repeat the call.
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// The channel of calls, with the token that they are sent with.
#[derive(Clone)]
pub(super) struct Line {
    channel: Channel,
    credentials: Arc<Credentials>,
}

impl Line {
    pub(super) fn over(channel: Channel, credentials: Credentials) -> Self {
        Self { channel, credentials: Arc::new(credentials) }
    }
}

impl Service<Request<Body>> for Line {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // `poll_ready` has made this very channel ready. A clone is not ready, so the call gets the original, and the
        // clone stays here.
        let next = self.channel.clone();
        let mut channel = std::mem::replace(&mut self.channel, next);
        let credentials = self.credentials.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let body = Lent::of(body);
            let mut header = credentials.header();
            let (mut tries, mut is_renewed, mut patience) = (1, false, PATIENCE);
            loop {
                Credentials::sign(&mut head.headers, header.as_ref());
                let sent = channel.call(Request::from_parts(head.clone(), Body::new(body.lend())));
                let Some(answer) = answer(sent, &body, patience).await else {
                    patience *= 2;
                    poll_fn(|cx| channel.poll_ready(cx)).await?;
                    continue;
                };
                match answer {
                    Err(error) if tries < TRIES && was_not_sent(&error) && body.is_untouched() => tries += 1,
                    Err(error) if tries < TRIES && was_not_taken(&error) && body.is_whole() => tries += 1,
                    Ok(mut refusal) if is_refused(&refusal) => {
                        let renewed = credentials.renewed(header.as_ref());
                        if renewed.is_none() || is_renewed {
                            credentials.tell(&mut refusal);
                            return Ok(refusal);
                        }
                        if !body.is_whole() {
                            ask_again(&mut refusal);
                            return Ok(refusal);
                        }
                        (header, is_renewed) = (renewed, true);
                    }
                    answer => return answer,
                }
                poll_fn(|cx| channel.poll_ready(cx)).await?;
            }
        })
    }
}

/// The answer of an attempt; none where no connection has begun to send it in all this time, and it was taken back.
async fn answer<A>(sent: impl Future<Output = A>, body: &Lent, patience: Duration) -> Option<A> {
    let mut sent = pin!(sent);
    match tokio::time::timeout(patience, sent.as_mut()).await {
        Ok(answer) => Some(answer),
        Err(_) if body.take_back() => None,
        Err(_) => Some(sent.await),
    }
}

/// Whether an existing connection has failed, and not the attempt to connect. If this attempt has not begun to read the
/// call's body by then, the call was not carried out: a server runs no method before it has the message.
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

/// Whether the server is about to end and has named the last call that it takes, which came before this one: it does
/// nothing of this one, however much of it has arrived.
fn was_not_taken(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
        }
        cause = error.source();
    }
    false
}

/// Whether a server did not take the token.
fn is_refused(answer: &Response<Body>) -> bool {
    answer.headers().get("grpc-status").is_some_and(|status| status.as_bytes() == UNAUTHENTICATED)
}

/// Turns a refusal into an error after which the caller repeats the call. It is then sent with the new token.
fn ask_again(refusal: &mut Response<Body>) {
    let headers = refusal.headers_mut();
    headers.remove("grpc-status-details-bin");
    headers.insert("grpc-status", UNAVAILABLE);
    headers.insert("grpc-message", HeaderValue::from_static("the server has another token by now, which was read"));
}

/// The body of a call. It can be sent again if the last attempt has not begun to read it and earlier ones left all they
/// read, or if all of it was kept. All copies read the same body, and only that of the last attempt may.
struct Lent {
    body: Arc<Mutex<Read>>,
    /// The attempt that this copy is for.
    attempt: u32,
    /// How many of the pieces that were read this copy has returned.
    given: usize,
}

/// A body and what was read of it.
struct Read {
    body: Body,
    pieces: Vec<Bytes>,
    bytes: usize,
    /// Whether the body has ended after the pieces.
    ended: bool,
    /// Whether something was read that was not kept.
    spilled: bool,
    /// The last attempt.
    attempt: u32,
    /// Whether the last attempt has begun to read.
    begun: bool,
}

impl Lent {
    fn of(body: Body) -> Self {
        let body = Read { body, pieces: Vec::new(), bytes: 0, ended: false, spilled: false, attempt: 0, begun: false };
        Self { body: Arc::new(Mutex::new(body)), attempt: 0, given: 0 }
    }

    /// The copy for a further attempt to send it.
    fn lend(&self) -> Self {
        let mut read = self.body.lock();
        read.next();
        Self { body: self.body.clone(), attempt: read.attempt, given: 0 }
    }

    /// Whether the last attempt has read none of it, so that another one finds it as this one did.
    fn is_untouched(&self) -> bool {
        self.body.lock().is_untouched()
    }

    /// Ends the last attempt if it has read nothing, which is then true: it will read nothing any more.
    fn take_back(&self) -> bool {
        let mut read = self.body.lock();
        let untouched = read.is_untouched();
        if untouched {
            read.next();
        }
        untouched
    }

    /// Whether all of it is kept and can be sent again. What nobody has read yet is read now, but a stream whose next
    /// piece is not there yet is not waited for.
    fn is_whole(&self) -> bool {
        let mut read = self.body.lock();
        let mut context = Context::from_waker(Waker::noop());
        while !read.ended && !read.spilled {
            if !matches!(read.poll(&mut context), Poll::Ready(Some(Ok(_)) | None)) {
                return false;
            }
        }
        !read.spilled
    }
}

impl Read {
    /// Begins an attempt.
    fn next(&mut self) {
        self.attempt += 1;
        self.begun = false;
    }

    fn is_untouched(&self) -> bool {
        !self.begun && !self.spilled
    }

    /// Reads the next frame, and keeps it while there is room.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let polled = hyper::body::Body::poll_frame(Pin::new(&mut self.body), cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                Some(piece) if !self.spilled && self.bytes + piece.len() <= KEPT => {
                    self.bytes += piece.len();
                    self.pieces.push(piece.clone());
                }
                _ => {
                    self.spilled = true;
                    self.pieces.clear();
                }
            },
            Poll::Ready(Some(Err(_))) => self.spilled = true,
            Poll::Ready(None) => self.ended = true,
            Poll::Pending => {}
        }
        polled
    }
}

impl hyper::body::Body for Lent {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let body = self.body.clone();
        let mut read = body.lock();
        if self.attempt != read.attempt {
            return Poll::Ready(Some(Err(tonic::Status::cancelled("this attempt was given up; another one goes on"))));
        }
        read.begun = true;
        if let Some(piece) = read.pieces.get(self.given) {
            self.given += 1;
            return Poll::Ready(Some(Ok(Frame::data(piece.clone()))));
        }
        if read.ended {
            return Poll::Ready(None);
        }
        let polled = read.poll(cx);
        self.given = read.pieces.len();
        polled
    }

    fn is_end_stream(&self) -> bool {
        let read = self.body.lock();
        self.given >= read.pieces.len() && (read.ended || read.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.body.lock();
        if read.bytes == 0 && !read.spilled { read.body.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests;
