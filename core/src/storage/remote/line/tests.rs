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
    assert!(!body.has_begun());
    let first = read(&mut body.clone());
    assert_eq!(first.iter().map(Bytes::len).collect::<Vec<_>>(), [5, 7]);
    assert!(body.has_begun() && body.is_whole());
    assert_eq!(read(&mut body.clone()), first);
    let mut half = lent(&[Some(5), Some(7)]);
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut half.clone()).poll_frame(&mut context), Poll::Ready(Some(Ok(_)))));
    assert!(half.is_whole() && read(&mut half) == first && half.is_end_stream());
}

#[test]
fn what_is_large_or_has_more_to_say_is_not_whole() {
    let large = lent(&[Some(KEPT), Some(1)]);
    assert_eq!(read(&mut large.clone()).len(), 2);
    assert!(!large.is_whole());
    assert!(!lent(&[Some(1), None]).is_whole());
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

/// Accepts a client that speaks HTTP/2, and reads its first call to the end.
async fn accept_call(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut client, _) = listener.accept().await.expect("a client");
    client.read_exact(&mut [0; 24]).await.expect("the preface");
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("settings");
    frame(&mut client, 4, 0).await;
    client.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await.expect("they are taken");
    let mut said = frame(&mut client, 0, 0).await;
    while said.len() < 12 {
        said.extend(frame(&mut client, 0, 0).await);
    }
    (client, said)
}

#[tokio::test]
async fn what_a_leaving_server_did_not_take_is_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let server = tokio::spawn(async move {
        // The whole call has arrived, but it is not among those that this server still takes.
        let (mut leaving, first) = accept_call(&listener).await;
        leaving.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.expect("GOAWAY");
        let (mut next, second) = accept_call(&listener).await;
        let mut answer = vec![0x88];
        for (name, value) in [("content-type", "application/grpc"), ("grpc-status", "0")] {
            answer.extend([0, name.len() as u8]);
            answer.extend(name.as_bytes());
            answer.push(value.len() as u8);
            answer.extend(value.as_bytes());
        }
        next.write_all(&[0, 0, answer.len() as u8, 1, 5, 0, 0, 0, 1]).await.expect("a head");
        next.write_all(&answer).await.expect("an answer");
        (leaving, next, first, second)
    });
    let channel = Channel::from_shared(address.clone()).expect("a URL").connect_lazy();
    let credentials = Credentials::of(&address, Box::new(RemoteOptions { token: None })).expect("none");
    let mut line = Line::over(channel, credentials);
    let body = Body::new(Pieces([Some(Bytes::from_static(b"a whole call"))].into()));
    let request = Request::post("/a/call").body(body).expect("a request");
    poll_fn(|cx| line.poll_ready(cx)).await.expect("a line");
    let answer = line.call(request).await.expect("an answer");
    assert_eq!(answer.headers().get("grpc-status").map(HeaderValue::as_bytes), Some(&b"0"[..]));
    let (_leaving, _next, first, second) = server.await.expect("it serves");
    assert_eq!((first.as_slice(), &first), (&b"a whole call"[..], &second));
}
