//! The doors: connections are accepted, counted and, where there is a certificate, encrypted, for gRPC and HTTP alike.

use crate::addresses::{Entered, Neighbours};
use crate::certificate::Papers;
use crate::limits::Limits;
use flovyn_core::error::Result;
use futures::{FutureExt, Stream, stream};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::{debug, warn};

/// How long a handshake may take, and the first word of a connection.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long nothing is accepted after the system refused: too many files are open.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the other end of a connection that was ended may go on.
const LINGER: Duration = Duration::from_secs(1);
/// Handshakes at a time.
const SHAKING: usize = 256;

/// Where connections come in, ready to be served.
pub(crate) struct Door {
    comes: mpsc::Receiver<Connection>,
    latch: Latch,
}

/// What closes a door: who has come to it is let in, nobody else. Those who connect later are refused, so that whatever
/// distributes connections takes them to another server.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<Notify>);

impl Latch {
    pub(crate) fn fall(&self) {
        self.0.notify_one();
    }
}

impl Door {
    /// Opens a door at a listener. It closes by its latch, or when it is dropped; the address is free once the task that is told
    /// too has ended.
    pub(crate) fn open(
        listener: TcpListener,
        limits: &Limits,
        papers: Option<&Arc<Papers>>,
        protocols: &[&[u8]],
    ) -> Result<(Self, JoinHandle<()>)> {
        let tls = papers.map(|papers| papers.acceptor(protocols)).transpose()?;
        let room = match limits.connections {
            0 => Semaphore::MAX_PERMITS,
            connections => connections.min(Semaphore::MAX_PERMITS),
        };
        let (ready, comes) = mpsc::channel(1);
        let latch = Latch::default();
        let hall = Hall {
            tls,
            room: Arc::new(Semaphore::new(room)),
            neighbours: Neighbours::of(limits.connections_each),
            shaking: Arc::new(Semaphore::new(SHAKING)),
            ready,
        };
        let accepting = tokio::spawn(accept(listener, hall, latch.clone()));
        Ok((Self { comes, latch }, accepting))
    }

    /// What closes it.
    pub(crate) fn latch(&self) -> Latch {
        self.latch.clone()
    }

    /// All connections, until nobody listens any more.
    pub(crate) fn connections(self) -> impl Stream<Item = io::Result<Connection>> + Send + Unpin {
        Box::pin(stream::unfold(self.comes, |mut comes| async { Some((Ok(comes.recv().await?), comes)) }))
    }

    /// As [`connections`](Self::connections), each with where it comes from.
    pub(crate) fn guests(self) -> impl Stream<Item = (Connection, Option<IpAddr>)> + Send + Unpin {
        Box::pin(stream::unfold(self.comes, |mut comes| async {
            let connection = comes.recv().await?;
            let address = connection.address();
            Some(((connection, address), comes))
        }))
    }
}

/// Where whoever was accepted waits to be served.
struct Hall {
    tls: Option<TlsAcceptor>,
    room: Arc<Semaphore>,
    neighbours: Neighbours,
    shaking: Arc<Semaphore>,
    ready: mpsc::Sender<Connection>,
}

/// Accepts until the latch falls, or nobody takes connections any more.
async fn accept(listener: TcpListener, hall: Hall, latch: Latch) {
    loop {
        // Whoever comes when there is no room waits in the system's line.
        let accepted = async {
            let permit = hall.room.clone().acquire_owned().await.ok()?;
            Some((listener.accept().await, permit))
        };
        let (accepted, permit) = tokio::select! {
            () = hall.ready.closed() => return,
            () = latch.0.notified() => break,
            accepted = accepted => match accepted {
                Some(accepted) => accepted,
                None => return,
            },
        };
        match accepted {
            Ok(accepted) => hall.receive(accepted, permit).await,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // Those whom the system has let in already would be cut off with the listener.
    while let Ok(permit) = hall.room.clone().try_acquire_owned()
        && let Some(Ok(accepted)) = listener.accept().now_or_never()
    {
        hall.receive(accepted, permit).await;
    }
}

impl Hall {
    /// Takes a connection in. A handshake keeps nobody else waiting.
    async fn receive(&self, (tcp, peer): (TcpStream, SocketAddr), permit: OwnedSemaphorePermit) {
        let Some(entered) = self.neighbours.enter(peer.ip()) else {
            debug!(%peer, "an address has as many connections as it may");
            return;
        };
        let place = (permit, entered);
        // An event is not to wait for the acknowledgement of the one before.
        let _ = tcp.set_nodelay(true);
        let Some(tls) = self.tls.clone() else {
            let _ = self.ready.send(Connection::new(Wire::Plain(tcp), place)).await;
            return;
        };
        let Ok(turn) = self.shaking.clone().acquire_owned().await else { return };
        let ready = self.ready.clone();
        tokio::spawn(async move {
            let shaken = tokio::time::timeout(HANDSHAKE, tls.accept(tcp)).await;
            drop(turn);
            match shaken {
                Ok(Ok(stream)) => {
                    let _ = ready.send(Connection::new(Wire::Tls(Box::new(stream)), place)).await;
                }
                Ok(Err(error)) => debug!(%peer, %error, "a handshake failed"),
                Err(_) => debug!(%peer, "a handshake took too long"),
            }
        });
    }
}

/// A connection, counted while it lives. One that says nothing at first ends.
pub(crate) struct Connection {
    stream: Wire,
    /// Until it has said something.
    silence: Option<Pin<Box<Sleep>>>,
    /// Once it was told that nothing more comes.
    ending: Option<Pin<Box<Sleep>>>,
    _place: Place,
}

/// What a connection takes up of the room for all, and of that for its address.
type Place = (OwnedSemaphorePermit, Entered);

impl Connection {
    fn new(stream: Wire, place: Place) -> Self {
        Self { stream, silence: Some(Box::pin(tokio::time::sleep(HANDSHAKE))), ending: None, _place: place }
    }

    /// Where it comes from.
    fn address(&self) -> Option<IpAddr> {
        Some(self.connect_info().remote_addr()?.ip())
    }
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        let tcp = match &self.stream {
            Wire::Plain(tcp) => tcp,
            Wire::Tls(tls) => tls.get_ref().0,
        };
        tcp.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        let read = match &mut connection.stream {
            Wire::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Wire::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        };
        if let Some(silence) = &mut connection.silence {
            if read.is_ready() {
                connection.silence = None;
            } else if silence.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Wire::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Wire::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Wire::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Wire::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Wire::Plain(tcp) => tcp.is_write_vectored(),
            Wire::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Wire::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    /// Says that nothing more comes, then hears out what the other end still says. A connection that is closed over words that
    /// nobody has read is reset, and takes along what the other end has not read yet: the last answers.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        if connection.ending.is_none() {
            ready!(match &mut connection.stream {
                Wire::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
                Wire::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            })?;
        }
        let ending = connection.ending.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        let tcp = match &mut connection.stream {
            Wire::Plain(tcp) => tcp,
            Wire::Tls(tls) => tls.get_mut().0,
        };
        let mut unread = [0; 1024];
        loop {
            let mut unread = ReadBuf::new(&mut unread);
            match Pin::new(&mut *tcp).poll_read(cx, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() && !ending.is_elapsed() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return ending.as_mut().poll(cx).map(Ok),
            }
        }
    }
}
