//! The transports of a connection: the pipes of a process, or streamable HTTP.

use super::lenient_http::LenientHttpClient;
use super::lines::MAX_LENGTH;
use super::tool_list::Outdated;
use crate::provider::client_builder;
use flovyn_core::error::{Code, Error, Result};
use reqwest::Url;
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a server's machine may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How many redirects to other addresses of the server are followed.
const REDIRECTS: usize = 5;
/// How often a broken stream is resumed, and how long the first attempt waits unless the server sets the time.
const RESUMPTIONS: usize = 4;
const RESUME: Duration = Duration::from_millis(250);

/// A transport that offers nothing in the older handshake for which a person would be asked, and notes when the server says that
/// its tools have changed.
///
/// With the handshake, questions come while a call runs and would be lost with the process. In the stateless protocol they are
/// results, which are durable. The change of tools is noted here, for here it is known before the answers behind it: a call
/// that changes the tools has changed them when it ends.
pub(super) struct ClientTransport<T> {
    pub transport: T,
    /// Whether a person is asked before the server may ask a model.
    pub asks: bool,
    pub outdated: Outdated,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for ClientTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &mut message
            && let ClientRequest::InitializeRequest(initialize) = &mut request.request
        {
            initialize.params.capabilities.elicitation = None;
            // Tasks of the handshake are others.
            initialize.params.capabilities.extensions = None;
            if self.asks {
                initialize.params.capabilities.sampling = None;
            }
        }
        self.transport.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        let (received, outdated) = (self.transport.receive(), self.outdated.clone());
        async move {
            let message = received.await;
            if let Some(JsonRpcMessage::Notification(said)) = &message
                && matches!(said.notification, ServerNotification::ToolListChangedNotification(_))
            {
                outdated.set();
            }
            message
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
