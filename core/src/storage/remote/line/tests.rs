//! Calls that are sent again: what a body still has, and what a server did not take.

use super::*;
use crate::storage::remote::RemoteOptions;
use hyper::body::Body as _;
use std::collections::VecDeque;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A body in pieces, which waits for more where one is missing.
struct Pieces(VecDeque<Option<Bytes>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        match self.0.pop_front() {
            Some(Some(piece)) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            Some(None) => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

fn lent(pieces: &[Option<usize>]) -> Lent {
    let pieces = pieces.iter().enumerate().map(|(n, piece)| piece.map(|size| vec![n as u8; size].into()));
    Lent::of(Body::new(Pieces(pieces.collect())))
}

/// What a copy gives until it ends or waits.
fn read(copy: &mut Lent) -> Vec<Bytes> {
    let mut context = Context::from_waker(Waker::noop());
    let next = || match Pin::new(&mut *copy).poll_frame(&mut context) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn a_call_is_given_again_as_it_was() {
    let body = lent(&[Some(5), Some(7)]);
    let mut first = body.lend();
    assert!(body.is_untouched());
    let said = read(&mut first);
    assert_eq!(said.iter().map(Bytes::len).collect::<Vec<_>>(), [5, 7]);
    assert!(!body.is_untouched() && body.is_whole());
    let mut second = body.lend();
    assert!(body.is_untouched());
    assert_eq!(read(&mut second), said);
    let half = lent(&[Some(5), Some(7)]);
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut half.lend()).poll_frame(&mut context), Poll::Ready(Some(Ok(_)))));
    let mut rest = half.lend();
    assert!(half.is_whole() && read(&mut rest) == said && rest.is_end_stream());
}

#[test]
fn what_is_large_or_has_more_to_say_is_not_whole() {
    let large = lent(&[Some(KEPT), Some(1)]);
    assert_eq!(read(&mut large.lend()).len(), 2);
    assert!(!large.is_whole());
    large.lend();
    assert!(!large.is_untouched(), "what was read is not there any more");
    assert!(!lent(&[Some(1), None]).is_whole());
}

#[test]
fn an_attempt_that_was_taken_back_reads_nothing() {
    let body = lent(&[Some(5), Some(7)]);
    let mut late = body.lend();
    assert!(body.take_back());
    let mut next = body.lend();
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut late).poll_frame(&mut context), Poll::Ready(Some(Err(_)))));
    assert!(body.is_untouched() && read(&mut next).len() == 2);
    assert!(!body.take_back(), "it is being sent");
}

/// The payload of the next frame of a kind on a connection that a client has opened; other frames are passed over.
async fn frame(client: &mut TcpStream, kind: u8, flag: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await.expect("a frame");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        client.read_exact(&mut payload).await.expect("its payload");
        if head[3] == kind && head[4] & flag == flag {
            return payload;
        }
    }
}

/// Accepts a client that speaks HTTP/2, whose call may be on its way.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut client, _) = listener.accept().await.expect("a client");
    client.read_exact(&mut [0; 24]).await.expect("the preface");
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("settings");
    client
}

/// Accepts a client and reads its first call to the end.
async fn accept_call(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let mut client = accept(listener).await;
    frame(&mut client, 4, 0).await;
    client.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await.expect("they are taken");
    let mut said = frame(&mut client, 0, 0).await;
    while said.len() < 12 {
        said.extend(frame(&mut client, 0, 0).await);
    }
    (client, said)
}

/// Announces that the server leaves and takes no call.
async fn leave(client: &mut TcpStream) {
    client.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.expect("GOAWAY");
}

async fn answer(client: &mut TcpStream) {
    let mut answer = vec![0x88];
    for (name, value) in [("content-type", "application/grpc"), ("grpc-status", "0")] {
        answer.extend([0, name.len() as u8]);
        answer.extend(name.as_bytes());
        answer.push(value.len() as u8);
        answer.extend(value.as_bytes());
    }
    client.write_all(&[0, 0, answer.len() as u8, 1, 5, 0, 0, 0, 1]).await.expect("a head");
    client.write_all(&answer).await.expect("an answer");
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    (listener, address)
}

/// Makes a call, and says with which status it was answered.
async fn call(address: &str) -> Option<HeaderValue> {
    let channel = Channel::from_shared(address.to_owned()).expect("a URL").connect_lazy();
    let credentials = Credentials::of(address, Box::new(RemoteOptions { token: None })).expect("none");
    let mut line = Line::over(channel, credentials);
    let body = Body::new(Pieces([Some(Bytes::from_static(b"a whole call"))].into()));
    let request = Request::post("/a/call").body(body).expect("a request");
    poll_fn(|cx| line.poll_ready(cx)).await.expect("a line");
    let answer = line.call(request).await.expect("an answer");
    answer.headers().get("grpc-status").cloned()
}

#[tokio::test]
async fn what_a_leaving_server_did_not_take_is_sent_again() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        // The whole call has arrived, but it is not among those that this server still takes.
        let (mut leaving, first) = accept_call(&listener).await;
        leave(&mut leaving).await;
        let (mut next, second) = accept_call(&listener).await;
        answer(&mut next).await;
        (leaving, next, first, second)
    });
    assert_eq!(call(&address).await, Some(HeaderValue::from_static("0")));
    let (_leaving, _next, first, second) = server.await.expect("it serves");
    assert_eq!((first.as_slice(), &first), (&b"a whole call"[..], &second));
}

/// The call is taken back from one server while it is there, and from the next ones before it is or while it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_outlasts_servers_that_leave_one_after_the_other() {
    for round in 0..50 {
        let (listener, address) = listen().await;
        let server = tokio::spawn(async move {
            let (mut first, said) = accept_call(&listener).await;
            leave(&mut first).await;
            let mut leaving = Vec::new();
            for _ in 0..3 {
                let mut next = accept(&listener).await;
                leave(&mut next).await;
                leaving.push(next);
            }
            let (mut last, again) = accept_call(&listener).await;
            answer(&mut last).await;
            (first, leaving, last, said, again)
        });
        assert_eq!(call(&address).await, Some(HeaderValue::from_static("0")), "round {round}");
        let (.., said, again) = server.await.expect("it serves");
        assert_eq!(said, again);
    }
}
