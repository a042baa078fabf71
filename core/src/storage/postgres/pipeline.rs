//! One Sync for all statements that are sent together.
//!
//! A Sync message of PostgreSQL's protocol ends a statement. The driver sends one after every statement, and at each
//! the database stops, flushes its answers and wakes the client. A transaction needs that once.
//!
//! [`Pipelined`] sits between the driver and its socket. Of the statements that are written before a flush, it sends
//! only the last Sync. The driver expects a ReadyForQuery for each Sync, so after the answer to each statement
//! [`Pipelined`] adds the one that the database does not send. After an error the database skips everything up to the
//! Sync. The driver expects an answer to the skipped statements too, so each gets an error. Nothing else is changed,
//! and nothing at all before the session is open.

use crate::sync::Mutex;
use futures::future::{BoxFuture, Ready, TryFutureExt, ready};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// How much is read from the socket at once.
const READ: usize = 16 * 1024;

/// The message Sync.
const SYNC: [u8; 5] = [b'S', 0, 0, 0, 4];
/// The message ReadyForQuery, in a transaction.
const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'T'];
/// The message ErrorResponse for a statement that the database has skipped.
const PASSED_OVER: &[u8] = b"E\0\0\0\x49SERROR\0VERROR\0C25P02\0Mpassed over after an earlier statement failed\0\0";

/// The key by which a session can be cancelled, which the database sends when the session opens. It names the process
/// that serves the session.
#[derive(Clone, Default)]
pub(super) struct Key(Arc<Mutex<Vec<u8>>>);

impl Key {
    /// The number of the process. None before the session is open.
    pub(super) fn process(&self) -> Option<i32> {
        Some(i32::from_be_bytes(*self.0.lock().first_chunk()?))
    }
}

/// Opens connections without encryption. It poses as a TLS connector, since only for those does the driver let others
/// make the stream.
#[derive(Clone)]
pub(super) struct Plain(pub Key);

/// Opens connections encrypted by another connector.
#[derive(Clone)]
pub(super) struct Over<T>(pub T, pub Key);

impl MakeTlsConnect<Socket> for Plain {
    type Stream = Pipelined<Socket>;
    type TlsConnect = Self;
    type Error = Infallible;

    fn make_tls_connect(&mut self, _: &str) -> Result<Self, Infallible> {
        Ok(self.clone())
    }
}

impl TlsConnect<Socket> for Plain {
    type Stream = Pipelined<Socket>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Stream, Infallible>>;

    fn connect(self, socket: Socket) -> Self::Future {
        ready(Ok(Pipelined::new(socket, |_| ChannelBinding::none(), self.0)))
    }
}

impl<T: MakeTlsConnect<Socket>> MakeTlsConnect<Socket> for Over<T>
where
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send + 'static,
    T::Stream: 'static,
{
    type Stream = Pipelined<T::Stream>;
    type TlsConnect = Over<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, T::Error> {
        self.0.make_tls_connect(host).map(|connect| Over(connect, self.1.clone()))
    }
}

impl<T: TlsConnect<Socket>> TlsConnect<Socket> for Over<T>
where
    T::Future: Send + 'static,
    T::Stream: 'static,
{
    type Stream = Pipelined<T::Stream>;
    type Error = T::Error;
    type Future = BoxFuture<'static, Result<Self::Stream, Self::Error>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let Self(connect, key) = self;
        let connected = connect.connect(socket);
        Box::pin(connected.map_ok(|stream| Pipelined::new(stream, TlsStream::channel_binding, key)))
    }
}

/// A group of messages for which the driver awaits a ReadyForQuery.
enum Unit {
    /// Its Sync was not sent. It ends with the answer to its last message, whose tag this is.
    Joined(u8),
    /// Its Sync was sent. It ends with the database's own ReadyForQuery.
    Sent,
}

impl Unit {
    /// Whether an answer is the last one to the message with the tag `last`.
    fn is_answered(last: u8, answer: u8) -> bool {
        match last {
            b'P' => answer == b'1',
            b'B' => answer == b'2',
            b'C' => answer == b'3',
            b'D' => matches!(answer, b'T' | b'n'),
            _ => matches!(answer, b'C' | b'I' | b's'),
        }
    }
}

/// Cuts a stream of bytes into messages. A message begins with a tag and its length.
#[derive(Default)]
struct Frames {
    /// Tag and length of the current message.
    head: [u8; 5],
    /// How many bytes of the head have come.
    have: usize,
    /// How many bytes of the body are to come.
    left: usize,
}

/// A part of a stream of messages.
enum Piece<'a> {
    Head([u8; 5]),
    Body(&'a [u8]),
}

impl Frames {
    /// The next part of what has arrived.
    fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Piece<'a>> {
        if self.left > 0 {
            let (body, rest) = bytes.split_at(self.left.min(bytes.len()));
            (*bytes, self.left) = (rest, self.left - body.len());
            return (!body.is_empty()).then_some(Piece::Body(body));
        }
        let (head, rest) = bytes.split_at((self.head.len() - self.have).min(bytes.len()));
        self.head[self.have..self.have + head.len()].copy_from_slice(head);
        (*bytes, self.have) = (rest, self.have + head.len());
        if self.have < self.head.len() {
            return None;
        }
        let [_, length @ ..] = self.head;
        (self.have, self.left) = (0, (u32::from_be_bytes(length) as usize).saturating_sub(length.len()));
        Some(Piece::Head(self.head))
    }

    /// The tag of the message that has just ended. None within a message.
    fn ended(&self) -> Option<u8> {
        (self.left == 0 && self.have == 0).then_some(self.head[0])
    }
}

/// A connection's stream, with one Sync for all that is flushed together.
pub(super) struct Pipelined<S> {
    stream: S,
    binding: fn(&S) -> ChannelBinding,
    /// Whether the session is open. Messages before that have another form and are passed on as they are.
    open: bool,
    key: Key,
    /// What the driver awaits, the oldest first.
    units: VecDeque<Unit>,
    /// The messages that the driver has written.
    said: Frames,
    /// The tag of the last message before a Sync.
    last: u8,
    /// Whether the driver's last message was a Sync, which is held back.
    held: bool,
    /// Bytes for the socket, and how many of them are written.
    outgoing: Vec<u8>,
    sent: usize,
    /// The messages that the database has sent.
    heard: Frames,
    /// Bytes for the driver, and how many of them it has read.
    incoming: Vec<u8>,
    taken: usize,
}

impl<S> Pipelined<S> {
    pub(super) fn new(stream: S, binding: fn(&S) -> ChannelBinding, key: Key) -> Self {
        Self {
            stream,
            binding,
            open: false,
            key,
            units: VecDeque::new(),
            said: Frames::default(),
            last: 0,
            held: false,
            outgoing: Vec::new(),
            sent: 0,
            heard: Frames::default(),
            incoming: Vec::new(),
            taken: 0,
        }
    }

    /// Takes bytes that the driver writes.
    fn say(&mut self, mut bytes: &[u8]) {
        if !self.open {
            return self.outgoing.extend_from_slice(bytes);
        }
        while let Some(piece) = self.said.next(&mut bytes) {
            match piece {
                Piece::Head(SYNC) => {
                    self.units.push_back(Unit::Joined(self.last));
                    self.held = true;
                }
                Piece::Head(head) => {
                    // Parse, Bind, Describe, Execute and Close may follow each other without a Sync.
                    let joins = |tag: u8| b"PBDEC".contains(&tag);
                    if !(joins(self.last) && joins(head[0])) {
                        self.release();
                    }
                    (self.held, self.last) = (false, head[0]);
                    if head[0] == b'Q' {
                        self.units.push_back(Unit::Sent);
                    }
                    self.outgoing.extend_from_slice(&head);
                }
                Piece::Body(body) => self.outgoing.extend_from_slice(body),
            }
        }
    }

    /// Sends the Sync that is held back.
    fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.outgoing.extend_from_slice(&SYNC);
            if let Some(unit) = self.units.back_mut() {
                *unit = Unit::Sent;
            }
        }
    }

    /// Takes bytes that the database sends.
    fn hear(&mut self, mut bytes: &[u8]) {
        while let Some(piece) = self.heard.next(&mut bytes) {
            match piece {
                Piece::Head(head) => self.incoming.extend_from_slice(&head),
                Piece::Body(body) => {
                    if !self.open && self.heard.head[0] == b'K' {
                        self.key.0.lock().extend_from_slice(body);
                    }
                    self.incoming.extend_from_slice(body);
                }
            }
            if let Some(answer) = self.heard.ended() {
                self.heard(answer);
            }
        }
    }

    /// Adds what the driver awaits after an answer and the database does not send.
    fn heard(&mut self, answer: u8) {
        self.open |= answer == b'Z';
        match self.units.front() {
            Some(Unit::Sent) if answer == b'Z' => drop(self.units.pop_front()),
            Some(Unit::Joined(_)) if answer == b'E' => {
                while let Some(Unit::Joined(_)) = self.units.front() {
                    self.units.pop_front();
                    self.incoming.extend_from_slice(&READY);
                    self.incoming.extend_from_slice(PASSED_OVER);
                }
            }
            Some(&Unit::Joined(last)) if Unit::is_answered(last, answer) => {
                self.units.pop_front();
                self.incoming.extend_from_slice(&READY);
            }
            _ => {}
        }
    }
}

impl<S: AsyncWrite + Unpin> Pipelined<S> {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.release();
        while self.sent < self.outgoing.len() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.outgoing[self.sent..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
        }
        self.outgoing.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pipelined<S> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().say(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pipelined<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.taken == this.incoming.len() {
            this.incoming.clear();
            this.taken = 0;
            let mut space = [MaybeUninit::uninit(); READ];
            let mut space = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut space))?;
            if space.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.hear(space.filled());
        }
        let end = this.incoming.len().min(this.taken + into.remaining());
        into.put_slice(&this.incoming[this.taken..end]);
        this.taken = end;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Pipelined<S> {
    fn channel_binding(&self) -> ChannelBinding {
        (self.binding)(&self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    fn message(tag: u8, body: &str) -> Vec<u8> {
        let length = (body.len() + 4) as u32;
        [&[tag], &length.to_be_bytes()[..], body.as_bytes()].concat()
    }

    /// An open session, and the database's end of it.
    fn session() -> (Pipelined<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(1 << 16);
        (Pipelined { open: true, ..Pipelined::new(ours, |_| ChannelBinding::none(), Key::default()) }, theirs)
    }

    fn query(name: &str) -> Vec<u8> {
        [message(b'B', name), message(b'E', ""), SYNC.to_vec()].concat()
    }

    fn answer(row: &str) -> Vec<u8> {
        [message(b'2', ""), message(b'D', row), message(b'C', "SELECT 1")].concat()
    }

    /// The kinds of the messages that are there, each of which is whole.
    async fn kinds(from: &mut (impl AsyncRead + Unpin), count: usize) -> String {
        let mut kinds = String::new();
        for _ in 0..count {
            kinds.push(from.read_u8().await.unwrap().into());
            let length = from.read_u32().await.unwrap() as usize;
            let mut body = vec![0; length - 4];
            from.read_exact(&mut body).await.unwrap();
        }
        kinds
    }

    #[tokio::test]
    async fn statements_that_are_flushed_together_share_a_sync() {
        for cut in [1, 3, 5, 7, 1_000] {
            let (mut ours, mut theirs) = session();
            let prepare = [message(b'P', "a"), message(b'D', "Sa"), SYNC.to_vec()].concat();
            let said = [prepare, query("a"), query("b")].concat();
            for part in said.chunks(cut) {
                ours.write_all(part).await.unwrap();
            }
            ours.flush().await.unwrap();
            assert_eq!(kinds(&mut theirs, 7).await, "PDBEBES");
            let prepared =
                [message(b'1', ""), message(b't', ""), message(b'N', "a notice"), message(b'T', "")].concat();
            let answers = [prepared, answer("first"), answer("second"), READY.to_vec()].concat();
            for part in answers.chunks(cut) {
                theirs.write_all(part).await.unwrap();
            }
            assert_eq!(kinds(&mut ours, 13).await, "1tNTZ2DCZ2DCZ");
            ours.write_all(&query("c")).await.unwrap();
            ours.flush().await.unwrap();
            assert_eq!(kinds(&mut theirs, 3).await, "BES", "the next ones have their own");
        }
    }

    #[tokio::test]
    async fn statements_passed_over_after_an_error_are_answered_with_one() {
        let (mut ours, mut theirs) = session();
        ours.write_all(&[query("a"), query("wrong"), query("c"), query("d")].concat()).await.unwrap();
        ours.flush().await.unwrap();
        assert_eq!(kinds(&mut theirs, 9).await, "BEBEBEBES");
        let failed = [message(b'2', ""), message(b'E', "")].concat();
        theirs.write_all(&[answer("a"), failed, READY.to_vec()].concat()).await.unwrap();
        assert_eq!(kinds(&mut ours, 10).await, "2DCZ2EZEZE");
        assert_eq!(kinds(&mut ours, 1).await, "Z", "what the database itself said");
    }

    #[tokio::test]
    async fn what_is_no_prepared_statement_is_left_as_it_is() {
        let (mut ours, mut theirs) = session();
        ours.write_all(&[query("a"), message(b'Q', "SET x = 1"), query("b")].concat()).await.unwrap();
        ours.flush().await.unwrap();
        assert_eq!(kinds(&mut theirs, 7).await, "BESQBES");
        let settings = [message(b'S', "x"), message(b'C', "SET"), READY.to_vec()].concat();
        let answers = [answer("a"), READY.to_vec(), settings, answer("b"), READY.to_vec()].concat();
        theirs.write_all(&answers).await.unwrap();
        assert_eq!(kinds(&mut ours, 11).await, "2DCZSCZ2DCZ");
    }

    #[tokio::test]
    async fn nothing_is_touched_before_the_session_is_open() {
        let (ours, mut theirs) = duplex(1 << 10);
        let mut ours = Pipelined::new(ours, |_| ChannelBinding::none(), Key::default());
        ours.write_all(b"\0\0\0\x08hello").await.unwrap();
        ours.flush().await.unwrap();
        let mut said = [0; 9];
        theirs.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"\0\0\0\x08hello");
        let key = message(b'K', "\0\0\x01\x02secret");
        theirs.write_all(&[message(b'R', "    "), key, READY.to_vec()].concat()).await.unwrap();
        assert_eq!(kinds(&mut ours, 3).await, "RKZ");
        assert_eq!(ours.key.process(), Some(0x102));
        ours.write_all(&[query("a"), query("b")].concat()).await.unwrap();
        ours.flush().await.unwrap();
        assert_eq!(kinds(&mut theirs, 5).await, "BEBES");
    }
}
