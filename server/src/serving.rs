//! A running server: its listeners, what was joined to it, and its end.

use crate::access::Access;
use crate::certificate::{Certificate, CertificateResolver};
use crate::grpc;
use crate::http::{self, Hosts, Origins};
use crate::limits::Limits;
use crate::listen::{Listener, ListenerCloser};
use crate::metrics;
use crate::nats::NatsBridge;
use crate::oidc::Oidc;
use crate::options::{ServeOptions, ServerConfig};
use crate::otlp::Traces;
use crate::service::Service;
use crate::shutdown::Shutdown;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::storage::Storage;
use flovyn_core::streaming::Chunks;
use futures::future::try_join;
use futures::{FutureExt, Stream, StreamExt};
use std::future::ready;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::server::Connected;
use tracing::warn;

/// How long a server waits for its calls in flight when it stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server.
pub struct Serving {
    grpc: SocketAddr,
    http: SocketAddr,
    certificates: Option<Arc<CertificateResolver>>,
    shutdown: Shutdown,
    listening: Vec<JoinHandle<Result<()>>>,
    service: Service,
    nats_bridge: Option<NatsBridge>,
    traces: Option<Traces>,
}

impl Serving {
    /// Where gRPC listens.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Where HTTP listens.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The URL that SDKs connect to.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme(), self.grpc)
    }

    /// The URL of HTTP.
    pub fn http_url(&self) -> String {
        format!("{}://{}", self.scheme(), self.http)
    }

    /// The id of this server process in its metrics, traces and log.
    pub fn instance(&self) -> &str {
        self.service.metrics.instance()
    }

    /// The page of the console on which a browser is signed in as the owner of a token of this server, by a link that works once,
    /// within ten minutes; none for a token that is not known.
    pub async fn sign_in_link(&self, token: &str) -> Result<Option<String>> {
        let Some(who) = self.service.access.identify(token).await? else { return Ok(None) };
        Ok(Some(format!("{}/sign-in#code={}", self.http_url(), self.service.sign_in_code(&who))))
    }

    fn scheme(&self) -> &'static str {
        if self.certificates.is_some() { "https" } else { "http" }
    }

    /// Listens for `GET /metrics` at an address of its own, without a token; returns the address.
    ///
    /// Errors: `InvalidArgument` where the address cannot be listened on.
    pub async fn metrics_at(&mut self, address: SocketAddr) -> Result<SocketAddr> {
        let (listener, address) = bind(address).await?;
        let Service { metrics, storage, .. } = self.service.clone();
        let stopped = self.service.stopped();
        self.listening.push(tokio::spawn(metrics::serve(metrics, storage, listener, stopped)));
        Ok(address)
    }

    /// Shares hints and previews with the other servers of its database through NATS. NATS may be down: without it the servers
    /// poll the database. Its subjects begin with `prefix`.
    ///
    /// Errors: `InvalidArgument` for an invalid URL or prefix.
    pub async fn join_nats(&mut self, url: &str, prefix: &str) -> Result<()> {
        let Service { storage, chunks, .. } = &self.service;
        self.nats_bridge = Some(NatsBridge::join(url, prefix, storage.hints(), chunks).await?);
        Ok(())
    }

    /// Sends the trace of every run whose end this server commits to an OpenTelemetry collector, over OTLP and gRPC.
    ///
    /// Errors: `InvalidArgument` for an invalid endpoint.
    pub fn trace_to(&mut self, endpoint: &str) -> Result<()> {
        self.traces = Some(Traces::start(endpoint, self.service.storage.clone(), self.service.metrics.instance())?);
        Ok(())
    }

    /// Changes the certificate of new connections and the limits of callers; the limits of connections stay as they are.
    ///
    /// Errors: `InvalidArgument` for a certificate that cannot be used: then nothing changes.
    pub fn renew(&self, limits: Option<&Limits>, certificate: Option<&Certificate>) -> Result<()> {
        if let (Some(certificates), Some(certificate)) = (&self.certificates, certificate) {
            certificates.reload(certificate)?;
        }
        if let Some(limits) = limits {
            self.service.throttle.set(limits);
        }
        Ok(())
    }

    /// Starts to drain: `/_/ready` and health report that the server is not ready, and each answer asks its caller to connect
    /// elsewhere (`Connection: close`, GOAWAY). Calls are still served.
    pub fn drain(&self) {
        self.shutdown.drain();
    }

    /// Ends the streams, waits for the calls in flight, cuts those that take longer than 20 s, then sends the pending traces.
    /// Until the last call has ended HTTP still answers, and asks callers to connect elsewhere.
    pub async fn stop(self) -> Result<()> {
        self.shutdown.stop();
        let until = tokio::time::Instant::now() + STOP_TIMEOUT;
        let mut broken = None;
        for mut task in self.listening {
            match tokio::time::timeout_at(until, &mut task).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error))) => broken = Some(error),
                Ok(Err(error)) => {
                    broken = Some(Error::new(Code::StorageUnavailable, format!("the server broke: {error}")));
                }
                Err(_) => {
                    warn!(
                        "calls were in flight for {} s after the server was told to end; they are cut",
                        STOP_TIMEOUT.as_secs()
                    );
                    task.abort();
                }
            }
        }
        if let Some(traces) = self.traces {
            traces.finish().await;
        }
        broken.map_or(Ok(()), Err)
    }
}

/// Addresses that are bound but not served yet.
pub(crate) struct Bound {
    grpc: (TcpListener, SocketAddr),
    http: (TcpListener, SocketAddr),
}

impl Bound {
    /// Binds both.
    ///
    /// Errors: `InvalidArgument` where an address cannot be listened on.
    pub(crate) async fn at(grpc: SocketAddr, http: SocketAddr) -> Result<Self> {
        Ok(Self { grpc: bind(grpc).await?, http: bind(http).await? })
    }

    /// Where gRPC will listen.
    pub(crate) fn grpc(&self) -> SocketAddr {
        self.grpc.1
    }

    /// Serves a backend there.
    ///
    /// Errors: `InvalidArgument` for a certificate that cannot be used, for what is no origin and for an issuer that can be none.
    pub(crate) fn serve(
        self,
        storage: Arc<dyn Storage>,
        chunks: Chunks,
        access: Access,
        options: &ServeOptions,
    ) -> Result<Serving> {
        let Self { grpc: (grpc_socket, grpc), http: (http_socket, http) } = self;
        let certificates = options.certificate.as_ref().map(CertificateResolver::watch).transpose()?;
        let listen =
            |socket, protocols: &[&[u8]]| Listener::start(socket, &options.limits, certificates.as_ref(), protocols);
        let (grpc_listener, grpc_accepting) = listen(grpc_socket, &[b"h2"])?;
        let (http_listener, http_accepting) = listen(http_socket, &[b"h2", b"http/1.1"])?;
        let shutdown = Shutdown::default();
        let oidc = options.oidc.as_ref().map(Oidc::new).transpose()?.map(Arc::new);
        let service = Service { oidc, ..Service::over(storage, chunks, access, options, &shutdown) };
        let (calls_running, calls_ended) = oneshot::channel();
        let (grpc_closer, http_closer) = (grpc_listener.closer(), http_listener.closer());
        let grpc_server = grpc::serve(service.clone(), grpc_listener.connections(), grpc_closer);
        let incoming = http_listener.connections_with_peer();
        let origins = Origins::parse(&options.cors_origins)?;
        let loopback_hosts = http.ip().is_loopback().then(|| Hosts::public(&options.public_hosts, origins.clone()));
        let http_server =
            http::serve(service.clone(), incoming, loopback_hosts, origins, http_closer, calls_ended.map(drop));
        let listening = vec![
            tokio::spawn(async move {
                let _calls: oneshot::Sender<()> = calls_running;
                grpc_server.await
            }),
            tokio::spawn(http_server),
            tokio::spawn(grpc_accepting.map(|_| Ok(()))),
            tokio::spawn(http_accepting.map(|_| Ok(()))),
        ];
        Ok(Serving { grpc, http, certificates, shutdown, listening, service, nats_bridge: None, traces: None })
    }
}

/// Serves a backend and its previews. Housekeeping is up to the caller, who opened the backend.
///
/// Errors: `InvalidArgument` where an address cannot be listened on.
pub async fn serve(storage: Arc<dyn Storage>, chunks: Chunks, config: ServerConfig) -> Result<Serving> {
    serve_with(storage, chunks, config, ServeOptions::default()).await
}

/// As [`serve`], with limits and encryption.
///
/// Errors: also `InvalidArgument` for a certificate that cannot be used and for what is no origin.
pub async fn serve_with(
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    config: ServerConfig,
    options: ServeOptions,
) -> Result<Serving> {
    Bound::at(config.grpc, config.http).await?.serve(storage, chunks, config.access, &options)
}

/// Serves gRPC and HTTP, without limits, over connections that do not come from the machine's network (simulated ones), until
/// both streams end.
pub async fn serve_connections<C>(
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    access: Access,
    grpc: impl Stream<Item = std::io::Result<C>> + Send,
    http: impl Stream<Item = std::io::Result<C>>,
) -> Result<()>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let shutdown = Shutdown::default();
    let service = Service::over(storage, chunks, access, &ServeOptions::default(), &shutdown);
    let incoming = pin!(http.filter_map(|connection| async { Some((connection.ok()?, None)) }));
    let connections = pin!(grpc);
    let grpc = grpc::serve(service.clone(), connections, ListenerCloser::default());
    let http = http::serve(service, incoming, None, Origins::default(), ListenerCloser::default(), ready(()));
    try_join(grpc, http).await.map(drop)
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let wrong = |error: std::io::Error| {
        let message = format!("listen on {address}: {error}; choose another port, or stop what listens there");
        Error::new(Code::InvalidArgument, message)
    };
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let bound = listener.local_addr().map_err(wrong)?;
    Ok((listener, bound))
}
