//! The doors: connections are accepted, counted and, where there is a certificate, encrypted, for gRPC and HTTP alike.

use crate::Doors;
use crate::addresses::{Entered, Neighbours};
use flovyn_core::error::{Code, Error, Result};
use futures::{Stream, stream};
use serde::Deserialize;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::{debug, warn};

/// How long a handshake may take, and the first word of a connection.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long nothing is accepted after the system refused: too many files are open.
const PAUSE: Duration = Duration::from_millis(50);
/// Handshakes at a time.
const SHAKING: usize = 256;

/// The table `[tls]` of a server's file: what it shows and how it proves it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// A file in PEM: the server's certificate, then those between it and what clients trust.
    pub cert: PathBuf,
    /// A file in PEM: the private key.
    pub key: PathBuf,
}

impl Certificate {
    /// How connections are encrypted that speak one of these protocols.
    fn acceptor(&self, protocols: &[&[u8]]) -> Result<TlsAcceptor> {
        let wrong = |file: &Path, why: String| {
            let message = format!("the file {} cannot be used for TLS: {why}; give one in PEM", file.display());
            Error::new(Code::InvalidArgument, message)
        };
        let of_cert = |error: &dyn std::fmt::Display| wrong(&self.cert, error.to_string());
        let chain = CertificateDer::pem_file_iter(&self.cert).map_err(|error| of_cert(&error))?;
        let chain = chain.collect::<std::result::Result<Vec<_>, _>>().map_err(|error| of_cert(&error))?;
        if chain.is_empty() {
            return Err(of_cert(&"it has no certificate"));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| wrong(&self.key, error.to_string()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(|error| of_cert(&error))?;
        let config = config.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(|error| wrong(&self.key, error.to_string()))?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Where connections come in, ready to be served.
pub(crate) struct Door(mpsc::Receiver<Connection>);

impl Door {
    /// Opens a door at a listener. It closes when it is dropped; the address is free once the task that is told too has ended.
    pub(crate) fn open(listener: TcpListener, doors: &Doors, protocols: &[&[u8]]) -> Result<(Self, JoinHandle<()>)> {
        let tls = doors.certificate.as_ref().map(|certificate| certificate.acceptor(protocols)).transpose()?;
        let room = match doors.limits.connections {
            0 => Semaphore::MAX_PERMITS,
            connections => connections.min(Semaphore::MAX_PERMITS),
        };
        let neighbours = Neighbours::of(doors.limits.connections_each);
        let (ready, comes) = mpsc::channel(1);
        let accepting = tokio::spawn(accept(listener, tls, Arc::new(Semaphore::new(room)), neighbours, ready));
        Ok((Self(comes), accepting))
    }

    /// All connections, until nobody listens any more.
    pub(crate) fn connections(self) -> impl Stream<Item = io::Result<Connection>> {
        stream::unfold(self.0, |mut door| async { Some((Ok(door.recv().await?), door)) })
    }

    /// As [`connections`](Self::connections), each with where it comes from.
    pub(crate) fn guests(self) -> impl Stream<Item = (Connection, Option<IpAddr>)> + Send + Unpin {
        Box::pin(stream::unfold(self.0, |mut door| async {
            let connection = door.recv().await?;
            let address = connection.address();
            Some(((connection, address), door))
        }))
    }
}

/// Accepts until nobody takes connections any more. A handshake keeps nobody else waiting.
async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    room: Arc<Semaphore>,
    neighbours: Neighbours,
    ready: mpsc::Sender<Connection>,
) {
    let shaking = Arc::new(Semaphore::new(SHAKING));
    loop {
        // Whoever comes when there is no room waits in the system's line.
        let accepted = async {
            let permit = room.clone().acquire_owned().await.ok()?;
            Some((listener.accept().await, permit))
        };
        let (accepted, permit) = tokio::select! {
            () = ready.closed() => return,
            accepted = accepted => match accepted {
                Some(accepted) => accepted,
                None => return,
            },
        };
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(entered) = neighbours.enter(peer.ip()) else {
            debug!(%peer, "an address has as many connections as it may");
            continue;
        };
        let place = (permit, entered);
        // An event is not to wait for the acknowledgement of the one before.
        let _ = tcp.set_nodelay(true);
        let Some(tls) = tls.clone() else {
            let _ = ready.send(Connection::new(Wire::Plain(tcp), place)).await;
            continue;
        };
        let Ok(turn) = shaking.clone().acquire_owned().await else { return };
        let ready = ready.clone();
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
    _place: Place,
}

/// What a connection takes up of the room for all, and of that for its address.
type Place = (OwnedSemaphorePermit, Entered);

impl Connection {
    fn new(stream: Wire, place: Place) -> Self {
        Self { stream, silence: Some(Box::pin(tokio::time::sleep(HANDSHAKE))), _place: place }
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

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Wire::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
