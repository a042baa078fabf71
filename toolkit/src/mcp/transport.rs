//! The transports of a connection: the pipes of a process, or streamable HTTP.

use super::lenient_http::LenientHttpClient;
use super::lines::MAX_LENGTH;
use super::open_calls::OpenCalls;
use super::tool_list::Outdated;
use crate::provider::client_builder;
use flovyn_core::error::{Code, Error, Result};
use reqwest::Url;
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use rmcp::ErrorData;
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ErrorCode, JsonRpcMessage, RequestId, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long a server's machine may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How many redirects to other addresses of the server are followed.
const REDIRECTS: usize = 5;
/// How long a server on pipes may take to answer `server/discover`.
const QUIET: Duration = Duration::from_secs(2);
/// How often a broken stream is resumed, and how long the first attempt waits unless the server sets the time.
const RESUMPTIONS: usize = 4;
const RESUME: Duration = Duration::from_millis(250);

/// A transport that notes when the server says that its tools or prompts have changed, and when nothing more comes from it.
///
/// The change of tools is noted here, for here it is known before the answers behind it: a call that changes the tools has
/// changed them when it ends. The end is noted here, for the library waits for the answers to the server's questions before it
/// ends, and a person answers when they like.
pub(super) struct ClientTransport<T> {
    pub transport: T,
    pub calls: Arc<OpenCalls>,
    pub tools: Outdated,
    pub prompts: Outdated,
    pub discovery: Discovery,
}

/// The request that tells the two protocols apart, which servers of the handshake do not know. Most answer with an error. One
/// that answers nothing is taken for such a server after a moment, instead of after the ten seconds of the library.
pub(super) struct Discovery {
    is_watched: bool,
    /// Whether it was answered after all: then the server speaks the stateless protocol, and was slow to start.
    was_late: Arc<AtomicBool>,
    open: Option<(RequestId, Instant)>,
    given_up: Option<RequestId>,
}

impl Discovery {
    /// `is_watched` says whether an answer is missed: over HTTP each request has one.
    pub(super) fn new(is_watched: bool, was_late: &Arc<AtomicBool>) -> Self {
        Self { is_watched, was_late: was_late.clone(), open: None, given_up: None }
    }

    fn sent(&mut self, id: &RequestId) {
        if self.is_watched {
            self.open = Some((id.clone(), Instant::now() + QUIET));
        }
    }

    /// The answer in place of one that has not come.
    fn give_up(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let (id, _) = self.open.take()?;
        self.given_up = Some(id.clone());
        let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "the server does not answer server/discover", None);
        Some(JsonRpcMessage::error(unknown, Some(id)))
    }

    /// Whether a message is of use: a late answer is none.
    fn goes_on(&mut self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        let id = match message {
            JsonRpcMessage::Response(answer) => Some(&answer.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let Some(id) = id else { return true };
        self.open.take_if(|(open, _)| open == id);
        let is_late = self.given_up.as_ref() == Some(id);
        if is_late && matches!(message, JsonRpcMessage::Response(_)) {
            self.was_late.store(true, Ordering::Release);
        }
        !is_late
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for ClientTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            self.discovery.sent(&request.id);
        }
        if let JsonRpcMessage::Request(request) = &mut message
            && let ClientRequest::InitializeRequest(initialize) = &mut request.request
        {
            // Tasks of the handshake are others.
            initialize.params.capabilities.extensions = None;
        }
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = match self.discovery.open.as_ref().map(|(_, due)| *due) {
                None => self.transport.receive().await,
                Some(due) => tokio::select! {
                    biased;
                    message = self.transport.receive() => message,
                    () = sleep_until(due) => return self.discovery.give_up(),
                },
            };
            let Some(message) = message else {
                self.calls.end();
                return None;
            };
            if let JsonRpcMessage::Notification(said) = &message {
                match said.notification {
                    ServerNotification::ToolListChangedNotification(_) => self.tools.set(),
                    ServerNotification::PromptListChangedNotification(_) => self.prompts.set(),
                    _ => {}
                }
            }
            if self.discovery.goes_on(&message) {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.transport.close()
    }
}

/// When a broken stream is resumed: soon, or not at all, because a call waits for it and the server may be gone.
#[derive(Debug)]
struct Resumption;

impl SseRetryPolicy for Resumption {
    fn retry(&self, times: usize) -> Option<Duration> {
        (times < RESUMPTIONS).then(|| RESUME * 2_u32.saturating_pow(u32::try_from(times).unwrap_or(u32::MAX)))
    }
}

/// Prepares a connection over streamable HTTP. Nothing is sent yet.
pub(super) fn http(url: &Url, headers: &HeaderMap) -> Result<StreamableHttpClientTransport<LenientHttpClient>> {
    let failed =
        |why: String| Error::new(Code::TaskFailed, format!("the client for MCP over HTTP cannot be made: {why}"));
    // The configured headers may contain keys for this server, so a redirect to another server is not followed.
    let policy = Policy::custom(|attempt| {
        let from = attempt.previous().last().map(Url::origin);
        match from == Some(attempt.url().origin()) && attempt.previous().len() <= REDIRECTS {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    });
    let builder = client_builder().map_err(|error| failed(error.to_string()))?;
    let client =
        builder.connect_timeout(CONNECT).redirect(policy).build().map_err(|error| failed(error.to_string()))?;
    let headers: HashMap<_, _> = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str()).custom_headers(headers);
    config.retry_config = Arc::new(Resumption);
    config.max_sse_event_size = MAX_LENGTH;
    Ok(StreamableHttpClientTransport::with_client(LenientHttpClient(client), config))
}
