//! The storage contract of Flovyn, served.
//!
//! [`serve`] opens the listeners over a backend; the server never runs agent code. `grpc/` speaks `flovyn.v2`; `http/`
//! listens for `rest/` and `sse/`; `metrics/` counts; `nats/` tells other servers; `otlp/`
//! sends traces; `service/` is what they share; `access.rs` says who may call; `dev.rs` is the server of
//! one developer.

mod access;
mod addresses;
mod certificate;
mod config;
mod dev;
mod disk;
mod ending;
mod faults;
mod grpc;
mod http;
mod limits;
mod listen;
mod metrics;
mod nats;
mod orgs;
mod otlp;
mod policy;
mod refusals;
mod replica;
mod request_id;
mod rest;
mod said;
mod service;
mod sse;
mod throttle;

pub use access::{Access, Identity};
pub use certificate::Certificate;
pub use config::{Config, LogFormat};
pub use dev::{Dev, DevOptions, dev};
pub use limits::Limits;
pub use replica::Replica;

use crate::certificate::Papers;
use crate::ending::Ending;
use crate::http::Hosts;
use crate::listen::{Door, Latch};
use crate::metrics::{Measured, Metrics};
use crate::nats::Bus;
use crate::orgs::Orgs;
use crate::otlp::Traces;
use crate::refusals::Refusals;
use crate::service::{Catalog, Service, Steps};
use crate::throttle::Throttle;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::storage::Storage;
use flovyn_core::storage::guarded::Guarded;
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

/// What a server needs to start.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where gRPC listens; port 0 picks one.
    pub grpc: SocketAddr,
    /// Where HTTP listens; port 0 picks one.
    pub http: SocketAddr,
    /// Who may call.
    pub access: Access,
}

/// What a server for others than its developer sets at its doors.
#[derive(Debug, Clone)]
pub struct Doors {
    /// How much a key may ask for.
    pub limits: Limits,
    /// Encrypts every connection.
    pub certificate: Option<Certificate>,
    /// A call of the storage that takes longer is named in the log.
    pub slow_call: Duration,
    /// Names that a proxy on this machine is called by: a server on loopback answers those who call it so, too.
    pub public_hosts: Vec<String>,
}

impl Default for Doors {
    /// No limits, in clear.
    fn default() -> Self {
        Self { limits: Limits::none(), certificate: None, slow_call: SLOW, public_hosts: Vec::new() }
    }
}

/// What a call of the storage may take before the log names it.
const SLOW: Duration = Duration::from_secs(1);

/// How long the calls in flight of a server that is told to end may take.
const GRACE: Duration = Duration::from_secs(20);

/// A running server.
pub struct Serving {
    grpc: SocketAddr,
    http: SocketAddr,
    papers: Option<Arc<Papers>>,
    ending: Ending,
    listening: Vec<JoinHandle<Result<()>>>,
    service: Service,
    bus: Option<Bus>,
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

    /// The id of this server for as long as it runs, by which its metrics, traces and log can be told from another's.
    pub fn instance(&self) -> &str {
        self.service.metrics.instance()
    }

    fn scheme(&self) -> &'static str {
        if self.papers.is_some() { "https" } else { "http" }
    }

    /// Listens for `GET /metrics` at an address of its own, without a token; tells where.
    ///
    /// Errors: `InvalidArgument` where the address cannot be listened on.
    pub async fn metrics_at(&mut self, address: SocketAddr) -> Result<SocketAddr> {
        let (listener, address) = bind(address).await?;
        let Service { metrics, storage, .. } = self.service.clone();
        let stopped = self.service.stopped();
        self.listening.push(tokio::spawn(metrics::serve(metrics, storage, listener, stopped)));
        Ok(address)
    }

    /// Shares hints and previews with the other servers of its database through a NATS, which need not be there: without it
    /// they come by looking at the database. `prefix` is what its subjects begin with.
    ///
    /// Errors: `InvalidArgument` for a URL or a prefix that can be none.
    pub async fn join_nats(&mut self, url: &str, prefix: &str) -> Result<()> {
        let Service { storage, chunks, .. } = &self.service;
        self.bus = Some(Bus::join(url, prefix, storage.hints(), chunks).await?);
        Ok(())
    }

    /// Sends the trace of every run whose end this server commits to an OpenTelemetry collector, over OTLP and gRPC.
    ///
    /// Errors: `InvalidArgument` for an endpoint that can be none.
    pub fn trace_to(&mut self, endpoint: &str) -> Result<()> {
        self.traces = Some(Traces::start(endpoint, self.service.storage.clone(), self.service.metrics.instance())?);
        Ok(())
    }

    /// Shows another certificate to those who connect from now on, and holds callers to other limits; the limits of connections
    /// stay as they are.
    ///
    /// Errors: `InvalidArgument` for a certificate that cannot be used: then all is as it was.
    pub fn renew(&self, limits: Option<&Limits>, certificate: Option<&Certificate>) -> Result<()> {
        if let (Some(papers), Some(certificate)) = (&self.papers, certificate) {
            papers.read(certificate)?;
        }
        if let Some(limits) = limits {
            self.service.gauges.set(limits);
        }
        Ok(())
    }

    /// Says that this server will end: `/_/ready` and health do, and each answer asks its caller to go elsewhere
    /// (`Connection: close`, GOAWAY). All calls are taken as before.
    pub fn drain(&self) {
        self.ending.drain();
    }

    /// Ends the streams, lets the calls in flight end, and cuts those that take longer than 20 s; then sends the traces that wait.
    /// Until the last call has ended HTTP answers whoever comes, and says that this server is not to be called.
    pub async fn stop(self) -> Result<()> {
        self.ending.stop();
        let until = tokio::time::Instant::now() + GRACE;
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
                        GRACE.as_secs()
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

/// Addresses that are taken, and where nobody is answered yet.
pub(crate) struct Bound {
    grpc: (TcpListener, SocketAddr),
    http: (TcpListener, SocketAddr),
}

impl Bound {
    /// Takes both.
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
    pub(crate) fn serve(
        self,
        storage: Arc<dyn Storage>,
        chunks: Chunks,
        access: Access,
        doors: &Doors,
    ) -> Result<Serving> {
        let Self { grpc: (grpc_listener, grpc), http: (http_listener, http) } = self;
        let papers = doors.certificate.as_ref().map(Papers::of).transpose()?;
        let open = |listener, protocols: &[&[u8]]| Door::open(listener, &doors.limits, papers.as_ref(), protocols);
        let (grpc_door, grpc_address) = open(grpc_listener, &[b"h2"])?;
        let (http_door, http_address) = open(http_listener, &[b"h2", b"http/1.1"])?;
        let ending = Ending::default();
        let service = service(storage, chunks, access, doors, &ending);
        let (calls, called) = oneshot::channel();
        let (grpc_latch, http_latch) = (grpc_door.latch(), http_door.latch());
        let of_grpc = grpc::serve(service.clone(), grpc_door.connections(), grpc_latch);
        let guests = http_door.guests();
        let of_machine = http.ip().is_loopback().then(|| Hosts::public(&doors.public_hosts));
        let listening = vec![
            tokio::spawn(async move {
                let _calls: oneshot::Sender<()> = calls;
                of_grpc.await
            }),
            tokio::spawn(http::serve(service.clone(), guests, of_machine, http_latch, called.map(drop))),
            tokio::spawn(grpc_address.map(|_| Ok(()))),
            tokio::spawn(http_address.map(|_| Ok(()))),
        ];
        Ok(Serving { grpc, http, papers, ending, listening, service, bus: None, traces: None })
    }
}

/// Serves a backend and the board of its previews. Whoever opened the backend keeps its house.
///
/// Errors: `InvalidArgument` where an address cannot be listened on.
pub async fn serve(storage: Arc<dyn Storage>, chunks: Chunks, config: ServerConfig) -> Result<Serving> {
    serve_behind(storage, chunks, config, Doors::default()).await
}

/// As [`serve`], with limits and encryption.
///
/// Errors: also `InvalidArgument` for a certificate that cannot be used.
pub async fn serve_behind(
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    config: ServerConfig,
    doors: Doors,
) -> Result<Serving> {
    Bound::at(config.grpc, config.http).await?.serve(storage, chunks, config.access, &doors)
}

/// Serves gRPC and HTTP, without limits, to connections that come from other networks than the machine's, for as long as
/// they come.
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
    let ending = Ending::default();
    let service = service(storage, chunks, access, &Doors::default(), &ending);
    let guests = pin!(http.filter_map(|connection| async { Some((connection.ok()?, None)) }));
    let connections = pin!(grpc);
    let grpc = grpc::serve(service.clone(), connections, Latch::default());
    try_join(grpc, http::serve(service, guests, None, Latch::default(), ready(()))).await.map(drop)
}

fn service(storage: Arc<dyn Storage>, chunks: Chunks, access: Access, doors: &Doors, ending: &Ending) -> Service {
    let metrics = Metrics::default();
    let storage: Arc<dyn Storage> = Arc::new(Guarded::over(storage, Measured::new(metrics.clone(), doors.slow_call)));
    let (draining, stopping) = ending.heard();
    let (gauges, orgs) = (Throttle::of(&doors.limits), Orgs::default());
    let (catalog, refusals, steps) = (Catalog::default(), Refusals::default(), Steps::default());
    Service { storage, chunks, access, gauges, orgs, metrics, catalog, refusals, steps, draining, stopping }
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
