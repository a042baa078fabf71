//! The client for streamable HTTP, which parses events leniently, like the lines of a process: an answer that breaks the rules still
//! reaches its call.
//!
//! The library skips an event that it cannot parse, and the call would wait for its timeout.

use super::parsing::{Message, Parsed, is_addressed, parse, unreadable};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId};
use rmcp::transport::streamable_http_client::{StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use sse_stream_of_rmcp::{Error as SseError, Sse};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct LenientHttpClient(pub Client);

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;
type Failed = StreamableHttpError<reqwest::Error>;

impl StreamableHttpClient for LenientHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let open = waiting(&message);
        Ok(repaired_response(self.0.post_message(uri, message, session, auth, headers).await?, open))
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let open = waiting(&message);
        let client = &self.0;
        let answer = client.post_message_with_max_sse_event_size(uri, message, session, auth, headers, most).await?;
        Ok(repaired_response(answer, open))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<(), Failed> {
        self.0.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failed> {
        Ok(repaired(self.0.get_stream(uri, session, last, auth, headers).await?, Vec::new()))
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<Events, Failed> {
        let client = &self.0;
        let events = client.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, most).await?;
        Ok(repaired(events, Vec::new()))
    }
}

/// The request that waits for the response to a message.
fn waiting(message: &ClientJsonRpcMessage) -> Vec<RequestId> {
    match message {
        JsonRpcMessage::Request(request) => vec![request.id.clone()],
        _ => Vec::new(),
    }
}

fn repaired_response(answer: StreamableHttpPostResponse, open: Vec<RequestId>) -> StreamableHttpPostResponse {
    match answer {
        StreamableHttpPostResponse::Sse(events, session) => {
            StreamableHttpPostResponse::Sse(repaired(events, open), session)
        }
        // The error of a server that could not read the id answers the request that it came in response to.
        StreamableHttpPostResponse::Json(JsonRpcMessage::Error(mut error), session) if error.id.is_none() => {
            error.id = open.into_iter().next();
            StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session)
        }
        other => other,
    }
}

fn repaired(events: Events, open: Vec<RequestId>) -> Events {
    let repaired = events.flat_map(move |event| match event {
        Ok(event) => stream::iter(of_event(event, &open)).map(Ok).left_stream(),
        Err(error) => stream::iter([Err(error)]).right_stream(),
    });
    repaired.boxed()
}

/// An event in the form that the library parses; a batch becomes one event for each of its messages.
fn of_event(event: Sse, open: &[RequestId]) -> Vec<Sse> {
    let Some(data) = event.data.as_deref() else { return vec![event] };
    if serde_json::from_str::<Message>(data).is_ok_and(|message| open.is_empty() || is_addressed(&message, open)) {
        return vec![event];
    }
    let messages = match (parse(data.as_bytes(), open), open) {
        (Parsed::Messages(messages), _) => messages,
        // An event is complete, so it cannot be continued.
        (Parsed::Unfinished, [only]) => vec![unreadable(only.clone(), "it is no whole JSON")],
        (Parsed::Unfinished, _) => Vec::new(),
    };
    let events: Vec<_> = messages
        .into_iter()
        .filter_map(|message| Some(Sse { data: Some(serde_json::to_string(&message).ok()?), ..event.clone() }))
        .collect();
    if events.is_empty() { vec![event] } else { events }
}
