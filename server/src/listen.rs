//! Listeners of gRPC and HTTP: they accept connections, count them and encrypt them where there is a certificate.

use crate::addresses::{ConnectionLimiter, ConnectionPermit};
use crate::certificate::CertificateResolver;
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

/// How long a handshake may take, and the first bytes of a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long accepting pauses after the system refused a connection: too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the peer of a connection that was shut down may go on sending.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Handshakes at a time.
const MAX_HANDSHAKES: usize = 256;

/// The address that a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) Option<IpAddr>);

/// A listener, and its connections that are ready to be served.
pub(crate) struct Listener {
    accepted: mpsc::Receiver<Connection>,
    closer: ListenerCloser,
}

/// Closes a listener. Connections that the system has accepted are still served; later ones are refused, so that a load balancer
/// sends them to another server.
#[derive(Clone, Default)]
pub(crate) struct ListenerCloser(Arc<Notify>);

impl ListenerCloser {
    pub(crate) fn close(&self) {
        self.0.notify_one();
    }
}

impl Listener {
    /// Starts to accept connections until the closer closes it, or until it is dropped. The address is free once the task that is
    /// returned with it has ended.
    pub(crate) fn start(
        socket: TcpListener,
        limits: &Limits,
        certificates: Option<&Arc<CertificateResolver>>,
        protocols: &[&[u8]],
    ) -> Result<(Self, JoinHandle<()>)> {
        let tls = certificates.map(|certificates| certificates.acceptor(protocols)).transpose()?;
        let room = match limits.connections {
            0 => Semaphore::MAX_PERMITS,
            connections => connections.min(Semaphore::MAX_PERMITS),
        };
        let (ready, accepted) = mpsc::channel(1);
        let closer = ListenerCloser::default();
        let acceptor = Acceptor {
            tls,
            room: Arc::new(Semaphore::new(room)),
            limiter: ConnectionLimiter::of(limits.connections_each),
            handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
            ready,
        };
        let accepting = tokio::spawn(accept(socket, acceptor, closer.clone()));
        Ok((Self { accepted, closer }, accepting))
    }

    /// The handle that closes it.
    pub(crate) fn closer(&self) -> ListenerCloser {
        self.closer.clone()
    }

    /// All connections, until the listener is closed.
    pub(crate) fn connections(self) -> impl Stream<Item = io::Result<Connection>> + Send + Unpin {
        Box::pin(stream::unfold(self.accepted, |mut accepted| async { Some((Ok(accepted.recv().await?), accepted)) }))
    }

    /// As [`connections`](Self::connections), each with the address of its peer.
    pub(crate) fn connections_with_peer(self) -> impl Stream<Item = (Connection, Option<IpAddr>)> + Send + Unpin {
        Box::pin(stream::unfold(self.accepted, |mut accepted| async {
            let connection = accepted.recv().await?;
            let address = connection.address();
            Some(((connection, address), accepted))
        }))
    }
}

/// Prepares accepted connections: counts them and does their handshakes.
struct Acceptor {
    tls: Option<TlsAcceptor>,
    room: Arc<Semaphore>,
    limiter: ConnectionLimiter,
    handshakes: Arc<Semaphore>,
    ready: mpsc::Sender<Connection>,
}

/// Accepts until the listener is closed, or its connections are no longer read.
async fn accept(socket: TcpListener, acceptor: Acceptor, closer: ListenerCloser) {
    loop {
        // The permit comes before accept: connections beyond the limit wait in the backlog of the system.
        let accepted = async {
            let permit = acceptor.room.clone().acquire_owned().await.ok()?;
            Some((socket.accept().await, permit))
        };
        let (accepted, permit) = tokio::select! {
            () = acceptor.ready.closed() => return,
            () = closer.0.notified() => break,
            accepted = accepted => match accepted {
                Some(accepted) => accepted,
                None => return,
            },
        };
        match accepted {
            Ok(accepted) => acceptor.admit(accepted, permit).await,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Connections in the backlog would be reset when the socket is closed.
    while let Ok(permit) = acceptor.room.clone().try_acquire_owned()
        && let Some(Ok(accepted)) = socket.accept().now_or_never()
    {
        acceptor.admit(accepted, permit).await;
    }
}

impl Acceptor {
    /// Makes a connection ready. Its handshake runs in a task of its own, so that others need not wait for it.
    async fn admit(&self, (tcp, peer): (TcpStream, SocketAddr), permit: OwnedSemaphorePermit) {
        let Some(address_permit) = self.limiter.acquire(peer.ip()) else {
            debug!(%peer, "an address has as many connections as it may");
            return;
        };
        let permits = (permit, address_permit);
        // Nagle's algorithm would hold an event back until the one before it is acknowledged.
        let _ = tcp.set_nodelay(true);
        let Some(tls) = self.tls.clone() else {
            let _ = self.ready.send(Connection::new(Wire::Plain(tcp), permits)).await;
            return;
        };
        let Ok(handshake_permit) = self.handshakes.clone().acquire_owned().await else { return };
        let ready = self.ready.clone();
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(tcp)).await;
            drop(handshake_permit);
            match handshake {
                Ok(Ok(stream)) => {
                    let _ = ready.send(Connection::new(Wire::Tls(Box::new(stream)), permits)).await;
                }
                Ok(Err(error)) => debug!(%peer, %error, "a handshake failed"),
                Err(_) => debug!(%peer, "a handshake took too long"),
            }
        });
    }
}

/// A connection, counted while it lives. It ends when its peer sends nothing at first.
pub(crate) struct Connection {
    stream: Wire,
    /// Runs until the first bytes arrive.
    first_read_timeout: Option<Pin<Box<Sleep>>>,
    /// Runs from the shutdown of the connection.
    linger: Option<Pin<Box<Sleep>>>,
    _permits: Permits,
}

/// The share of a connection in the limit of the listener, and in that of its address.
type Permits = (OwnedSemaphorePermit, ConnectionPermit);

impl Connection {
    fn new(stream: Wire, permits: Permits) -> Self {
        Self {
            stream,
            first_read_timeout: Some(Box::pin(tokio::time::sleep(HANDSHAKE_TIMEOUT))),
            linger: None,
            _permits: permits,
        }
    }

    /// The address of its peer.
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
        if let Some(first_read_timeout) = &mut connection.first_read_timeout {
            if read.is_ready() {
                connection.first_read_timeout = None;
            } else if first_read_timeout.as_mut().poll(cx).is_ready() {
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

    /// Shuts the write side down, then reads and drops what the peer still sends. Closing a socket with unread bytes resets it,
    /// and the peer would lose the answers that it has not read yet.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        if connection.linger.is_none() {
            ready!(match &mut connection.stream {
                Wire::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
                Wire::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            })?;
        }
        let linger = connection.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER_TIMEOUT)));
        let tcp = match &mut connection.stream {
            Wire::Plain(tcp) => tcp,
            Wire::Tls(tls) => tls.get_mut().0,
        };
        let mut unread = [0; 1024];
        loop {
            let mut unread = ReadBuf::new(&mut unread);
            match Pin::new(&mut *tcp).poll_read(cx, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() && !linger.is_elapsed() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return linger.as_mut().poll(cx).map(Ok),
            }
        }
    }
}
