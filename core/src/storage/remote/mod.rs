//! The storage of a server: the same contract, over gRPC.
//!
//! One HTTP/2 connection carries all calls. A commit is one round trip. The server announces changes on a stream of
//! hints, so nothing here polls. If the connection breaks during a call, the call fails as `StorageUnavailable`: its
//! outcome is unknown.

mod agents;
mod catalog;
mod channel;
mod events;
mod hints;
mod line;
mod machines;
mod previews;
mod queues;
mod schedules;
mod tokens;
mod work;

#[doc(hidden)]
pub use self::machines::PairingClient;
pub use self::tokens::Tokens;

use self::line::Line;
use self::previews::Outbox;
use self::tokens::Credentials;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{EventId, Rows};
use crate::payload::{Body, MAX_PAYLOAD, Payload};
use crate::storage::{
    EventStream, Families, FamilyStream, Housekeeping, Load, Previews, ServerSide, Storage, no_backup, tls_roots,
};
use crate::streaming::{Chunks, Hints};
use crate::wire::v2::agents_client::AgentsClient;
use crate::wire::v2::worker_client::WorkerClient;
use crate::wire::{error_of_status, v2};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::codegen::http::Uri;
use tonic::codegen::{Service, StdError};
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use uuid::Uuid;

/// The metadata that names the org of a call. With a token of one org it is not needed.
pub const ORG_HEADER: &str = "flovyn-org";

/// Inline payloads over this size are uploaded by a call of their own, so that other calls on the connection do not
/// wait behind them.
const UPLOAD_FROM: usize = 1 << 20;

/// How to reach a server.
#[derive(Debug, Clone, Default)]
pub struct RemoteOptions {
    /// The bearer token.
    pub token: Option<String>,
}

/// The storage of a server.
#[derive(Clone)]
pub struct RemoteStorage(Arc<Shared>);

struct Shared {
    url: String,
    /// The id of this process's link. The server takes our workers for dead when the link's stream of hints breaks.
    link: Uuid,
    org: OrgId,
    channel: Line,
    hints: Hints,
    chunks: Chunks,
    outbox: Outbox,
    clock: Arc<dyn Clock>,
    /// The server's limit.
    max_payload: u64,
    /// The machine whose key the token is.
    machine: Option<String>,
    tasks: Vec<tokio::task::AbortHandle>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl std::fmt::Debug for RemoteStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

impl RemoteStorage {
    /// Connects to a server. Must be called inside a tokio runtime. Over `https://` the server's certificate has to be
    /// signed by one in the file that `FLOVYN_CA` names, or without that by one that the system trusts.
    ///
    /// Errors: `InvalidArgument` (the URL, the token, the file), `StorageUnavailable` (nobody answers, or the server is
    /// not trusted).
    pub async fn connect(url: &str, options: RemoteOptions) -> Result<Self> {
        Self::connect_trusting(url, options, tls_roots::named().as_deref()).await
    }

    /// As [`connect`](Self::connect), trusting the certificates of a file instead of `FLOVYN_CA`'s.
    pub async fn connect_trusting(url: &str, options: RemoteOptions, ca: Option<&Path>) -> Result<Self> {
        Self::over(url, channel::connect(url, ca).await?, Box::new(options)).await
    }

    /// As [`connect`](Self::connect), with a token that may change. When a call is refused, `tokens` is asked again,
    /// and if it has another token now, the call is made again.
    pub async fn connect_by(url: &str, tokens: Box<dyn Tokens>) -> Result<Self> {
        Self::over(url, channel::connect(url, tls_roots::named().as_deref()).await?, tokens).await
    }

    /// Connects to a server by connections that `connector` makes, such as over another network than the machine's.
    pub async fn connect_through<C>(url: &str, options: RemoteOptions, connector: C) -> Result<Self>
    where
        C: Service<Uri> + Send + 'static,
        C::Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin,
        C::Future: Send,
        StdError: From<C::Error> + Send,
    {
        Self::over(url, channel::connect_through(url, connector).await?, Box::new(options)).await
    }

    async fn over(url: &str, channel: Channel, tokens: Box<dyn Tokens>) -> Result<Self> {
        let channel = Line::over(channel, Credentials::of(url, tokens)?);
        let (hints, link) = (Hints::default(), crate::id::random());
        let caller = Caller { channel: channel.clone() };
        // A wrong token makes this fail, rather than the first call that matters.
        let Identity { org, max_payload, machine } = caller.identify(url).await?;
        let (outbox, sending) = Outbox::open(caller.clone());
        let chunks = Chunks::relayed(outbox.clone());
        let following = crate::spawn::task(hints::follow(caller, org, hints.clone(), link)).abort_handle();
        Ok(Self(Arc::new(Shared {
            url: url.to_owned(),
            org,
            link,
            channel,
            hints,
            chunks,
            outbox,
            clock: Arc::new(SystemClock::default()),
            max_payload,
            machine,
            tasks: vec![following, sending],
        })))
    }

    /// The machine whose key the token is, as the server said when it was connected to; none for any other token.
    #[doc(hidden)]
    pub fn machine(&self) -> Option<&str> {
        self.0.machine.as_deref()
    }

    fn caller(&self) -> Caller {
        Caller { channel: self.0.channel.clone() }
    }

    fn agents(&self) -> AgentsClient<Line> {
        self.caller().agents()
    }

    fn worker(&self) -> WorkerClient<Line> {
        self.caller().worker()
    }

    /// Makes a request about an org.
    fn ask<T>(&self, org: OrgId, message: T) -> Request<T> {
        self.caller().ask(Some(org), message)
    }

    /// Uploads a payload that is too large for its call or that is streamed.
    async fn settle(&self, org: OrgId, payload: &mut Payload) -> Result<()> {
        payload.check_size(self.0.max_payload)?;
        payload.body = match &payload.body {
            Body::Inline(bytes) if bytes.len() > UPLOAD_FROM => self.upload(org, payload).await?,
            Body::Source(source) if source.size() > UPLOAD_FROM as u64 => self.upload(org, payload).await?,
            Body::Source(source) => {
                let source = source.clone();
                let read = tokio::task::spawn_blocking(move || {
                    let mut bytes = vec![0; source.size() as usize];
                    source.read_at(0, &mut bytes).map(|()| bytes)
                });
                let unreadable = |error: String| {
                    Error::new(Code::InvalidArgument, format!("a streamed payload could not be read: {error}"))
                };
                let bytes = read.await.map_err(|error| unreadable(error.to_string()))?;
                Body::Inline(bytes.map_err(|error| unreadable(error.to_string()))?.into())
            }
            Body::Row { .. } => return Err(payload.not_read()),
            Body::Stored { .. } | Body::Kept { .. } | Body::Inline(_) => return Ok(()),
        };
        Ok(())
    }
}

/// Makes calls on the line, which knows the token.
#[derive(Clone)]
struct Caller {
    channel: Line,
}

impl Caller {
    fn agents(&self) -> AgentsClient<Line> {
        AgentsClient::new(self.channel.clone()).max_decoding_message_size(channel::MAX_ANSWER)
    }

    fn worker(&self) -> WorkerClient<Line> {
        WorkerClient::new(self.channel.clone()).max_decoding_message_size(channel::MAX_ANSWER)
    }

    fn ask<T>(&self, org: Option<OrgId>, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(Ok(org)) = org.map(|org| org.to_string().parse()) {
            request.metadata_mut().insert(ORG_HEADER, org);
        }
        request
    }

    async fn identify(&self, url: &str) -> Result<Identity> {
        let answer = self.agents().identify(self.ask(None, v2::Empty {})).await;
        let answer = answer.map_err(|status| match is_of_another_program(&status) {
            true => Error::new(
                Code::InvalidArgument,
                format!(
                    "what answers at {url} is no Flovyn server, or not its gRPC port; give the address that it prints as \
                     grpc"
                ),
            ),
            false => error_of_status("connect to the server", &status),
        });
        let answer = answer?.into_inner();
        Ok(Identity {
            org: OrgId(crate::wire::id(&answer.org, "org")?),
            max_payload: answer.max_payload.unwrap_or(MAX_PAYLOAD),
            machine: answer.machine,
        })
    }
}

/// Whether an answer comes from a program that does not know the calls of a server, and not from a proxy whose server is away.
fn is_of_another_program(status: &tonic::Status) -> bool {
    let message = status.message();
    let is_no_message = message.contains("invalid compression flag") && !message.contains("status: 5");
    status.code() == tonic::Code::Unimplemented || (status.code() == tonic::Code::Internal && is_no_message)
}

/// What a server knows of a caller.
struct Identity {
    org: OrgId,
    max_payload: u64,
    machine: Option<String>,
}

/// Collects all items of a stream, each converted by `read`.
async fn collect<W, T>(asked: &str, mut stream: Streaming<W>, read: impl Fn(W) -> Result<T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(item) = stream.next().await {
        all.push(read(item.map_err(|status| error_of_status(asked, &status))?)?);
    }
    Ok(all)
}

#[async_trait]
impl Housekeeping for RemoteStorage {
    /// Does nothing: the server does the housekeeping.
    async fn pass(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    async fn cut_leases(&self, _org: OrgId, _worker: WorkerId, _left: Duration) -> Result<()> {
        Ok(())
    }

    async fn load(&self) -> Result<Load> {
        Ok(Load::default())
    }

    async fn remove_ended(&self, keep: Duration) -> Result<usize> {
        let message =
            format!("a server keeps its runs by its own rule; it removes none that ended {keep:?} ago for a client");
        Err(Error::new(Code::InvalidArgument, message))
    }

    async fn backup(&self, to: &Path) -> Result<u64> {
        no_backup(to)
    }
}

impl Storage for RemoteStorage {
    fn hints(&self) -> &Hints {
        &self.0.hints
    }

    fn chunks(&self) -> Chunks {
        self.0.chunks.clone()
    }

    fn event_stream(&self, org: OrgId, run: ExecutionId, after: EventId, content_up_to: u64) -> Option<EventStream> {
        Some(self.watch(org, run, after, content_up_to))
    }

    fn families(&self) -> Option<&dyn Families> {
        None
    }

    fn family_stream(&self, org: OrgId, run: ExecutionId, after: &str, content_up_to: u64) -> Option<FamilyStream> {
        Some(self.watch_family(org, run, after, content_up_to))
    }

    fn previews(&self) -> Option<&dyn Previews> {
        None
    }

    /// The server itself keeps organizations and predefined agents, and serves callers without leases.
    fn server_side(&self) -> Result<&dyn ServerSide> {
        let message = format!(
            "{} tells nobody who may call it; give the URL of its database (postgres://… or sqlite:FILE)",
            self.describe()
        );
        Err(Error::new(Code::InvalidArgument, message))
    }

    fn org(&self) -> OrgId {
        self.0.org
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    fn rows(&self) -> Rows {
        Rows::Elsewhere
    }

    fn describe(&self) -> String {
        self.0.url.clone()
    }

    fn close(&self) {
        self.0.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// The content of a payload to be sent. A streamed one is read later, on a thread that may block.
fn pieces(payload: &Payload) -> Result<Pieces> {
    match &payload.body {
        Body::Inline(bytes) => Ok(Pieces::Memory(bytes.clone())),
        Body::Source(source) => Ok(Pieces::Source(source.clone())),
        Body::Stored { .. } | Body::Kept { .. } | Body::Row { .. } => {
            Err(Error::new(Code::InvalidArgument, "a payload that is stored is not uploaded again"))
        }
    }
}

enum Pieces {
    Memory(Bytes),
    Source(Arc<dyn crate::payload::ByteSource>),
}
