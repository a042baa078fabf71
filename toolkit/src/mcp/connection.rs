//! The connection to one server. It is made when it is first needed, and made again when it has ended.

use super::config::{McpServerConfig, McpTransport};
use super::handler::Handler;
use super::known_tools::KnownTools;
use super::open_calls::OpenCalls;
use super::outcome::clean;
use super::parked::Parked;
use super::roots::Roots;
use super::sampling::Sampler;
use super::secrets::Secrets;
use super::stdio::StdioTransport;
use super::tool_list::{Outdated, ToolList};
use super::transport::{ClientTransport, Discovery, http};
use crate::tools::excerpt;
use crate::tools::process::StderrTail;
use flovyn_core::error::Error;
use rmcp::model::{ProtocolVersion, SubscriptionFilter, Tool};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, RoleClient, RunningService, ServiceError,
    serve_client_with_lifecycle,
};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

/// The pause after the first attempt that failed. Each further attempt that fails doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How much of a pause a call waits for. If more is left, the call is told at once why the last attempt failed.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many characters of an error are reported at most.
const MAX_ERROR_LENGTH: usize = 1_000;
/// The longest instructions of a server that a model is given, in bytes.
const MAX_INSTRUCTIONS: usize = 4 * 1024;

/// A server, and the connection to it if there is one.
pub(super) struct Connection {
    pub name: String,
    pub config: McpServerConfig,
    secrets: Secrets,
    slot: Mutex<Slot>,
    // Whether the last connection used the handshake. The next one tries that first.
    speaks_handshake: AtomicBool,
    /// What is known of the server's tools.
    pub(super) tool_list: ToolList,
    /// Whether the list of its prompts is not what it was.
    pub(super) prompts_outdated: Outdated,
    about: flovyn_core::sync::Mutex<About>,
    roots: Arc<Roots>,
    sampler: Option<Arc<Sampler>>,
    /// The calls that wait for a person.
    pub(super) parked: Parked,
    /// Where its tools are remembered.
    memory: flovyn_core::sync::Mutex<Option<PathBuf>>,
}

/// What a server said about itself when it was last connected.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    /// The version of the protocol that is spoken with it.
    pub version: Option<String>,
    /// How its tools are meant.
    pub instructions: Option<String>,
    pub has_resources: bool,
    pub has_prompts: bool,
    /// Whether it says so when its tools change.
    pub tells_of_tools: bool,
}

#[derive(Default)]
struct Slot {
    live: Option<Arc<LiveConnection>>,
    failed: Option<FailedAttempt>,
}

/// The last attempt to connect, which failed, as did those before it.
struct FailedAttempt {
    unavailable: Unavailable,
    times: u32,
    ended: Instant,
    /// The pause until the next attempt.
    pause: Duration,
}

/// An open connection. It may have ended since it was last used.
pub(super) struct LiveConnection {
    service: RunningService<RoleClient, Handler>,
    stderr_tail: Option<StderrTail>,
    subscription: Option<Subscribed>,
}

/// What keeps a server of the stateless protocol telling that its tools or prompts have changed. The transport notes it; the
/// rest of a notification is of no use.
struct Subscribed(AbortHandle);

impl Subscribed {
    fn to(lists: SubscriptionFilter, peer: Peer<RoleClient>) -> Self {
        let reads = tokio::spawn(async move {
            // A server that refuses is one that does not tell.
            let Ok(mut subscription) = peer.listen(lists).await else { return };
            while let Ok(Some(_)) = subscription.next().await {}
        });
        Self(reads.abort_handle())
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.0.abort();
    }
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
        let sampler = config.sampling.clone().map(|sampling| Arc::new(Sampler::new(sampling)));
        Self {
            name,
            config,
            secrets,
            slot: Mutex::default(),
            speaks_handshake: AtomicBool::default(),
            tool_list: ToolList::default(),
            prompts_outdated: Outdated::default(),
            about: flovyn_core::sync::Mutex::default(),
            roots: Arc::default(),
            sampler,
            parked: Parked::default(),
            memory: flovyn_core::sync::Mutex::default(),
        }
    }

    /// The open connection. If there is none or it has ended, a new one is made. After an attempt that failed there is a
    /// pause: a server that cannot be used is not started again for each call.
    pub(super) async fn live(&self) -> Result<Arc<LiveConnection>, Unavailable> {
        let asked = Instant::now();
        let mut slot = self.slot.lock().await;
        if let Some(live) = slot.live.as_ref().filter(|live| !live.has_ended()) {
            return Ok(live.clone());
        }
        slot.live = None;
        if let Some(failed) = &slot.failed {
            // An attempt that failed while this one waited for its turn is the answer to both.
            if asked < failed.ended {
                return Err(failed.unavailable.clone());
            }
            let rest = failed.pause.saturating_sub(failed.ended.elapsed());
            if rest > PATIENCE {
                let why = format!("{}; it is tried again in {} seconds", failed.unavailable.why, rest.as_secs().max(1));
                return Err(Unavailable { why, kind: ConnectFailure::Closed });
            }
            sleep(rest).await;
        }
        let ready = self.config.startup_timeout;
        let connected = timeout(ready, self.connect()).await.unwrap_or_else(|_| {
            let why = format!("it was not ready within {} seconds", ready.as_secs_f64());
            Err(Unavailable { why, kind: ConnectFailure::Closed })
        });
        match connected {
            Ok(live) => {
                let live = Arc::new(live);
                // A server that was started again may have other tools.
                if self.tool_list.is_listed() {
                    self.tool_list.outdated().set();
                }
                *slot = Slot { live: Some(live.clone()), failed: None };
                Ok(live)
            }
            Err(unavailable) => {
                let before = slot.failed.as_ref().map_or(0, |failed| failed.times);
                let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(before)).min(LONGEST_PAUSE);
                let (times, ended) = (before.saturating_add(1), Instant::now());
                slot.failed = Some(FailedAttempt { unavailable: unavailable.clone(), times, ended, pause });
                Err(unavailable)
            }
        }
    }

    /// What the server said about itself when it was last connected.
    pub(super) fn about(&self) -> About {
        self.about.lock().clone()
    }

    /// Sets the folder in which its tools are remembered.
    pub(super) fn remember_in(&self, folder: &Path) {
        *self.memory.lock() = Some(folder.to_owned());
    }

    /// Remembers the tools that it has listed, and those that it had once.
    pub(super) fn remember(&self, tools: &[Tool]) {
        let Some(folder) = self.memory.lock().clone() else { return };
        let (past, has_resources) = (self.tool_list.past(), self.about().has_resources);
        KnownTools { tools: tools.to_vec(), past, has_resources }.store(&folder, self);
    }

    /// What is known of the server from earlier processes.
    pub(super) fn remembered(&self) -> KnownTools {
        let folder = self.memory.lock().clone();
        let known = folder.and_then(|folder| KnownTools::load(&folder, self)).unwrap_or_default();
        self.about.lock().has_resources |= known.has_resources;
        known
    }

    /// What the server may ask of models, if it may.
    pub(super) fn sampler(&self) -> Option<&Arc<Sampler>> {
        self.sampler.as_ref()
    }

    /// The directories that the server is told of.
    pub(super) fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Sets the directories that the server is told of. A server that is connected learns that they have changed.
    pub(super) async fn set_roots(&self, roots: &[PathBuf]) {
        let is_new = self.roots.set(roots);
        let live = self.slot.lock().await.live.clone();
        if let Some(live) = live.filter(|live| is_new && !live.has_ended()) {
            live.announce_roots().await;
        }
    }

    /// Makes sure that a connection is not used again.
    pub(super) async fn forget(&self, live: &Arc<LiveConnection>) {
        let mut slot = self.slot.lock().await;
        slot.live.take_if(|current| Arc::ptr_eq(current, live));
    }

    /// Closes the connection and waits until the server has ended.
    pub(super) async fn close(&self) {
        self.parked.end().await;
        if let Some(live) = self.slot.lock().await.live.take() {
            live.handler().open_calls().end();
            match Arc::try_unwrap(live) {
                Ok(LiveConnection { mut service, subscription: _subscription, .. }) => {
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
        let was_late = Arc::<AtomicBool>::default();
        let mut connected = self.connect_as(first, &was_late).await;
        if was_late.load(Ordering::Acquire) {
            // It was slow to start, and has said that it speaks the stateless protocol when the handshake had begun.
            if let Ok(mut live) = connected {
                let _ = live.service.close().await;
            }
            let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
            connected = self.connect_as(ClientLifecycleMode::Discover { preferred_versions }, &was_late).await;
        }
        let mut live = match connected {
            // Older servers may exit, or answer with a bare status, when they get a request they do not know.
            Err(refused) if refused.kind == ConnectFailure::Refused => {
                self.connect_as(second, &was_late).await.map_err(|_| refused)?
            }
            other => other?,
        };
        let info = live.service.peer_info();
        let speaks_handshake = live.speaks_handshake();
        self.speaks_handshake.store(speaks_handshake, Ordering::Relaxed);
        let tools = info.as_ref().and_then(|info| info.capabilities.tools.as_ref());
        let tells_of_tools = tools.is_some_and(|tools| tools.list_changed == Some(true));
        let prompts = info.as_ref().and_then(|info| info.capabilities.prompts.as_ref());
        let tells_of_prompts = prompts.is_some_and(|prompts| prompts.list_changed == Some(true));
        if !speaks_handshake && (tells_of_tools || tells_of_prompts) {
            let lists = SubscriptionFilter::builder();
            let lists = if tells_of_tools { lists.tools_list_changed() } else { lists };
            let lists = if tells_of_prompts { lists.prompts_list_changed() } else { lists };
            live.subscription = Some(Subscribed::to(lists.build(), live.peer().clone()));
        }
        *self.about.lock() = info.map_or_else(About::default, |info| {
            let said = info.instructions.as_deref().unwrap_or_default().trim();
            let said = clean(excerpt::prefix(said, MAX_INSTRUCTIONS)).into_owned();
            About {
                version: Some(info.protocol_version.to_string()),
                instructions: (!said.is_empty()).then_some(said),
                has_resources: info.capabilities.resources.is_some(),
                has_prompts: info.capabilities.prompts.is_some(),
                tells_of_tools,
            }
        });
        Ok(live)
    }

    async fn connect_as(
        &self,
        mode: ClientLifecycleMode,
        was_late: &Arc<AtomicBool>,
    ) -> Result<LiveConnection, Unavailable> {
        let closed = |error: Error| Unavailable { why: self.redact(error.message()), kind: ConnectFailure::Closed };
        let calls = Arc::<OpenCalls>::default();
        let handler = Handler::new(self.roots.clone(), self.sampler.clone(), calls.clone());
        let (tools, prompts) = (self.tool_list.outdated().clone(), self.prompts_outdated.clone());
        let is_watched = matches!(&self.config.transport, McpTransport::Stdio { .. })
            && matches!(mode, ClientLifecycleMode::Auto { .. });
        let discovery = Discovery::new(is_watched, was_late);
        let (served, stderr_tail) = match &self.config.transport {
            McpTransport::Stdio { command, args, env, cwd } => {
                let started = StdioTransport::start(command, args, env, cwd.as_deref(), &self.secrets);
                let (transport, stderr_tail) = started.map_err(closed)?;
                let transport = ClientTransport { transport, calls, tools, prompts, discovery };
                (serve_client_with_lifecycle(handler, transport, mode).await, Some(stderr_tail))
            }
            McpTransport::Http { url, headers } => {
                let transport = http(url, headers).map_err(closed)?;
                let transport = ClientTransport { transport, calls, tools, prompts, discovery };
                (serve_client_with_lifecycle(handler, transport, mode).await, None)
            }
        };
        match served {
            Ok(service) => Ok(LiveConnection { service, stderr_tail, subscription: None }),
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

    /// Tells the server that the directories have changed. One that has ended does not need to know.
    async fn announce_roots(&self) {
        let _ = self.peer().notify_roots_list_changed().await;
    }

    /// Whether the protocol is the one with a handshake.
    pub(super) fn speaks_handshake(&self) -> bool {
        self.service.peer_info().is_some_and(|info| info.protocol_version.has_initialize())
    }

    pub(super) fn has_ended(&self) -> bool {
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
