//! The connection to one server: made when it is first needed, made again when it has ended.

use super::config::{McpServerConfig, McpTransport};
use super::handler::Handler;
use super::secrets::Secrets;
use super::stdio::{LastWords, StdioTransport};
use super::transport::{Told, http};
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

/// How long a server may take until it can be asked; some fetch their own program first.
const READY: Duration = Duration::from_secs(60);
/// The most of an error that is told, in characters.
const MOST_SAID: usize = 1_000;

/// A server and the connection to it, where there is one.
pub(super) struct Connection {
    pub name: String,
    pub config: McpServerConfig,
    secrets: Secrets,
    live: Mutex<Option<Arc<Live>>>,
    // Known from the last time, so that it is not probed anew.
    speaks_handshake: AtomicBool,
}

/// A connection that stands, or did when it was last used.
pub(super) struct Live {
    service: RunningService<RoleClient, Handler>,
    words: Option<LastWords>,
}

/// Why there is no connection; no request was sent.
#[derive(Debug, Clone)]
pub(super) struct Unavailable {
    pub why: String,
    pub kind: Absence,
}

/// What an attempt to connect ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// Nobody accepts connections there, perhaps not yet.
    Unreachable,
    /// It cannot be started, wants authorization, or takes too long.
    Closed,
    /// It is there and did not agree on a protocol.
    Refused,
}

impl Connection {
    pub fn new(name: String, config: McpServerConfig) -> Self {
        let secrets = config.secrets();
        Self { name, config, secrets, live: Mutex::default(), speaks_handshake: AtomicBool::new(false) }
    }

    /// The connection; one is made where there is none or it has ended.
    pub async fn live(&self) -> Result<Arc<Live>, Unavailable> {
        let mut slot = self.live.lock().await;
        if let Some(live) = slot.as_ref().filter(|live| !live.has_ended()) {
            return Ok(live.clone());
        }
        *slot = None;
        let made = match timeout(READY, self.connect()).await {
            Ok(made) => Arc::new(made?),
            Err(_) => {
                let why = format!("it was not ready within {} seconds", READY.as_secs());
                return Err(Unavailable { why, kind: Absence::Closed });
            }
        };
        *slot = Some(made.clone());
        Ok(made)
    }

    /// Makes sure that a connection is not used again.
    pub async fn forget(&self, live: &Arc<Live>) {
        let mut slot = self.live.lock().await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            *slot = None;
        }
    }

    /// Ends the connection and waits for the server's end.
    pub async fn close(&self) {
        if let Some(live) = self.live.lock().await.take() {
            match Arc::try_unwrap(live) {
                Ok(Live { mut service, .. }) => {
                    let _ = service.close().await;
                }
                // A call still has it, and ends with it.
                Err(live) => live.service.cancellation_token().cancel(),
            }
        }
    }

    /// What may be told of a message from the server or its transport: short and without secrets.
    pub fn tell(&self, message: &str) -> String {
        excerpt::line(self.secrets.hide(message).trim(), MOST_SAID).into_owned()
    }

    /// The stateless protocol first, then the handshake of before; the other way about where the handshake worked last time.
    async fn connect(&self) -> Result<Live, Unavailable> {
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
            // Servers of old may end, or answer with a status alone, when they are asked what they do not know.
            Err(refused) if refused.kind == Absence::Refused => self.connect_as(second).await.map_err(|_| refused)?,
            made => made?,
        };
        let version = live.service.peer_info().map(|info| info.protocol_version.clone());
        self.speaks_handshake.store(version.is_some_and(|version| version.has_initialize()), Ordering::Relaxed);
        Ok(live)
    }

    async fn connect_as(&self, mode: ClientLifecycleMode) -> Result<Live, Unavailable> {
        let closed = |error: Error| Unavailable { why: self.tell(error.message()), kind: Absence::Closed };
        let handler = Handler::new();
        let (served, words) = match &self.config.transport {
            McpTransport::Stdio { command, args, env, cwd } => {
                let started = StdioTransport::start(command, args, env, cwd.as_deref(), &self.secrets);
                let (transport, words) = started.map_err(closed)?;
                (serve_client_with_lifecycle(handler, Told(transport), mode).await, Some(words))
            }
            McpTransport::Http { url, headers } => {
                let transport = http(url, headers).map_err(closed)?;
                (serve_client_with_lifecycle(handler, Told(transport), mode).await, None)
            }
        };
        match served {
            Ok(service) => Ok(Live { service, words }),
            Err(error) => Err(self.refused(&error, words).await),
        }
    }

    async fn refused(&self, error: &ClientInitializeError, words: Option<LastWords>) -> Unavailable {
        if error.is_authorization_required() {
            let why = "it wants authorization; give it a header, such as \"Authorization\", in its configuration";
            return Unavailable { why: why.to_owned(), kind: Absence::Closed };
        }
        let (kind, why) = match error {
            ClientInitializeError::TransportError { error, .. } if is_unsent(error) => {
                (Absence::Unreachable, chain(&*error.error))
            }
            ClientInitializeError::TransportError { error, .. } => (Absence::Refused, chain(&*error.error)),
            _ => (Absence::Refused, chain(error)),
        };
        Unavailable { why: self.tell_with(&why, words.as_ref()).await, kind }
    }

    async fn tell_with(&self, message: &str, words: Option<&LastWords>) -> String {
        let told = self.tell(message);
        match words {
            None => told,
            Some(words) => match words.get().await {
                Some(said) => format!("{told}. The last it said: {}", self.tell(&said)),
                None => told,
            },
        }
    }

    /// What may be told of a request that has no answer.
    pub async fn tell_failure(&self, error: &ServiceError, live: &Live) -> String {
        match error {
            ServiceError::TransportSend(error) => self.tell_with(&chain(&*error.error), live.words.as_ref()).await,
            error => self.tell_with(&chain(error), live.words.as_ref()).await,
        }
    }
}

impl Live {
    pub fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    pub fn handler(&self) -> &Handler {
        self.service.service()
    }

    fn has_ended(&self) -> bool {
        self.service.is_closed() || self.peer().is_transport_closed()
    }
}

/// An error with all its causes, which its own message may leave out.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !said.contains(&text) {
            said.push_str(": ");
            said.push_str(&text);
        }
        source = cause.source();
    }
    said
}

/// Whether a transport failed before it sent anything: there was no connection to the server's machine.
pub(super) fn is_unsent(error: &DynamicTransportError) -> bool {
    // The library's error names its cause in its message alone.
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(cause)) => cause.is_connect(),
        _ => false,
    }
}
