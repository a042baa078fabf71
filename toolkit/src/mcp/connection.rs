//! The connection to one server. It is made when it is first needed, and made again when it has ended.

use super::config::{McpServerConfig, McpTransport};
use super::handler::Handler;
use super::secrets::Secrets;
use super::stdio::{StderrTail, StdioTransport};
use super::transport::{NoElicitation, http};
use crate::tools::excerpt;
use flovyn_core::error::Error;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, RoleClient, RunningService, ServiceError,
    serve_client_with_lifecycle,
};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a server may take to become ready; some download their own program first.
const READY: Duration = Duration::from_secs(60);
/// How many characters of an error are reported at most.
const MAX_ERROR_LENGTH: usize = 1_000;

/// A server, and the connection to it if there is one.
pub(super) struct Connection {
    pub name: String,
    pub config: McpServerConfig,
    secrets: Secrets,
    live: Mutex<Option<Arc<LiveConnection>>>,
    // Whether the last connection used the handshake. The next one tries that first.
    speaks_handshake: AtomicBool,
}

/// An open connection. It may have ended since it was last used.
pub(super) struct LiveConnection {
    service: RunningService<RoleClient, Handler>,
    stderr_tail: Option<StderrTail>,
}

/// Why there is no connection. In this case no request was sent.
#[derive(Debug, Clone)]
pub(super) struct Unavailable {
    pub why: String,
    pub kind: ConnectFailure,
}

/// Why an attempt to connect failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectFailure {
    /// No server accepts connections at the address. It may do so later.
    Unreachable,
    /// It cannot be started, wants authorization, or takes too long.
    Closed,
    /// The server and the client could not agree on a protocol.
    Refused,
}

impl Connection {
    pub(super) fn new(name: String, config: McpServerConfig) -> Self {
        let secrets = config.secrets();
        Self { name, config, secrets, live: Mutex::default(), speaks_handshake: AtomicBool::new(false) }
    }

    /// The open connection. If there is none or it has ended, a new one is made.
    pub(super) async fn live(&self) -> Result<Arc<LiveConnection>, Unavailable> {
        let mut slot = self.live.lock().await;
        if let Some(live) = slot.as_ref().filter(|live| !live.has_ended()) {
            return Ok(live.clone());
        }
        *slot = None;
        let live = match timeout(READY, self.connect()).await {
            Ok(live) => Arc::new(live?),
            Err(_) => {
                let why = format!("it was not ready within {} seconds", READY.as_secs());
                return Err(Unavailable { why, kind: ConnectFailure::Closed });
            }
        };
        *slot = Some(live.clone());
        Ok(live)
    }

    /// Makes sure that a connection is not used again.
    pub(super) async fn forget(&self, live: &Arc<LiveConnection>) {
        let mut slot = self.live.lock().await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            *slot = None;
        }
    }

    /// Closes the connection and waits until the server has ended.
    pub(super) async fn close(&self) {
        if let Some(live) = self.live.lock().await.take() {
            match Arc::try_unwrap(live) {
                Ok(LiveConnection { mut service, .. }) => {
                    let _ = service.close().await;
                }
                // A call still uses the connection. Cancelling the connection also ends the call.
                Err(live) => live.service.cancellation_token().cancel(),
            }
        }
    }

    /// A message of the server or its transport, shortened and without secrets.
    pub(super) fn redact(&self, message: &str) -> String {
        excerpt::line(self.secrets.hide(message).trim(), MAX_ERROR_LENGTH).into_owned()
    }

    /// Tries the stateless protocol first and then the older handshake. If the handshake worked last time, the order is
    /// reversed.
    async fn connect(&self) -> Result<LiveConnection, Unavailable> {
        let auto = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let mut modes = [auto, ClientLifecycleMode::Initialize];
        if self.speaks_handshake.load(Ordering::Relaxed) {
            modes.reverse();
        }
        let [first, second] = modes;
        let live = match self.connect_as(first).await {
            // Older servers may exit, or answer with a bare status, when they get a request they do not know.
            Err(refused) if refused.kind == ConnectFailure::Refused => {
                self.connect_as(second).await.map_err(|_| refused)?
            }
            other => other?,
        };
        let version = live.service.peer_info().map(|info| info.protocol_version.clone());
        self.speaks_handshake.store(version.is_some_and(|version| version.has_initialize()), Ordering::Relaxed);
        Ok(live)
    }

    async fn connect_as(&self, mode: ClientLifecycleMode) -> Result<LiveConnection, Unavailable> {
        let closed = |error: Error| Unavailable { why: self.redact(error.message()), kind: ConnectFailure::Closed };
        let handler = Handler::new();
        let (served, stderr_tail) = match &self.config.transport {
            McpTransport::Stdio { command, args, env, cwd } => {
                let started = StdioTransport::start(command, args, env, cwd.as_deref(), &self.secrets);
                let (transport, stderr_tail) = started.map_err(closed)?;
                (serve_client_with_lifecycle(handler, NoElicitation(transport), mode).await, Some(stderr_tail))
            }
            McpTransport::Http { url, headers } => {
                let transport = http(url, headers).map_err(closed)?;
                (serve_client_with_lifecycle(handler, NoElicitation(transport), mode).await, None)
            }
        };
        match served {
            Ok(service) => Ok(LiveConnection { service, stderr_tail }),
            Err(error) => Err(self.refused(&error, stderr_tail).await),
        }
    }

    async fn refused(&self, error: &ClientInitializeError, stderr_tail: Option<StderrTail>) -> Unavailable {
        if error.is_authorization_required() {
            let why = "it wants authorization; give it a header, such as \"Authorization\", in its configuration";
            return Unavailable { why: why.to_owned(), kind: ConnectFailure::Closed };
        }
        let (kind, why) = match error {
            ClientInitializeError::TransportError { error, .. } if is_unsent(error) => {
                (ConnectFailure::Unreachable, chain(&*error.error))
            }
            ClientInitializeError::TransportError { error, .. } => (ConnectFailure::Refused, chain(&*error.error)),
            _ => (ConnectFailure::Refused, chain(error)),
        };
        Unavailable { why: self.describe(&why, stderr_tail.as_ref()).await, kind }
    }

    async fn describe(&self, message: &str, stderr_tail: Option<&StderrTail>) -> String {
        let message = self.redact(message);
        match stderr_tail {
            None => message,
            Some(stderr_tail) => match stderr_tail.get().await {
                Some(said) => format!("{message}. The last it said: {}", self.redact(&said)),
                None => message,
            },
        }
    }

    /// The description of a request that has no answer, with the last lines of the server's standard error.
    pub(super) async fn describe_failure(&self, error: &ServiceError, live: &LiveConnection) -> String {
        match error {
            ServiceError::TransportSend(error) => self.describe(&chain(&*error.error), live.stderr_tail.as_ref()).await,
            error => self.describe(&chain(error), live.stderr_tail.as_ref()).await,
        }
    }
}

impl LiveConnection {
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    pub(super) fn handler(&self) -> &Handler {
        self.service.service()
    }

    fn has_ended(&self) -> bool {
        self.service.is_closed() || self.peer().is_transport_closed()
    }
}

/// The message of an error with those of all its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        source = cause.source();
    }
    message
}

/// Whether a transport failed before it sent anything: there was no connection to the server's machine.
pub(super) fn is_unsent(error: &DynamicTransportError) -> bool {
    // The library's error names its cause only in its message.
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(cause)) => cause.is_connect(),
        _ => false,
    }
}
