//! The client for streamable HTTP, which parses events leniently, like the lines of a process: an answer that breaks the rules still
//! reaches its call.
//!
//! The library skips an event that it cannot parse, and the call would wait for its timeout.

use super::lines::MAX_LENGTH;
use super::parsing::{
    Message, Parsed, introduced, is_addressed, lists_task_support, parse, stray, too_long, unreadable,
    with_task_support,
};
use super::post::{Events, Failed, Headers, NO_MESSAGE, TOO_LONG, post};
use futures::StreamExt;
use futures::stream;
use reqwest::Client;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId};
use rmcp::transport::streamable_http_client::{StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use sse_stream_of_rmcp::{Error as SseError, Sse};
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct LenientHttpClient(pub Client);

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
        let is_first = is_first(&message);
        repaired_response(self.0.post_message(uri, message, session, auth, headers).await, is_first, open)
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
        let (client, is_first) = (&self.0, is_first(&message));
        let answer = match is_first || open.is_empty() {
            true => client.post_message_with_max_sse_event_size(uri, message, session, auth, headers, most).await,
            false => post(client, &uri, &message, session.as_deref(), auth, headers).await,
        };
        repaired_response(answer, is_first, open)
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

/// The response to a message. An answer that is too long or no message at all is the answer of its call all the same.
/// The first request of a connection is left alone, for the library goes on by what is wrong with its answer.
fn repaired_response(
    answered: Result<StreamableHttpPostResponse, Failed>,
    message_is_first: bool,
    open: Vec<RequestId>,
) -> Result<StreamableHttpPostResponse, Failed> {
    let json = |message| Ok(StreamableHttpPostResponse::Json(message, None));
    match (answered, open.first().cloned()) {
        (Ok(StreamableHttpPostResponse::Sse(events, session)), _) => {
            Ok(StreamableHttpPostResponse::Sse(repaired(events, open), session))
        }
        (Ok(StreamableHttpPostResponse::Json(message, session)), Some(id)) => {
            let message = match is_addressed(&message, &open) {
                true => introduced(message),
                false => addressed(message, id, &open),
            };
            Ok(StreamableHttpPostResponse::Json(message, session))
        }
        (Err(StreamableHttpError::ResponseBodyTooLarge { max_size }), Some(id)) if !message_is_first => {
            json(unreadable(id, &too_long(max_size)))
        }
        (Err(StreamableHttpError::UnexpectedServerResponse(why)), Some(id))
            if !message_is_first && why.starts_with(NO_MESSAGE) =>
        {
            json(unreadable(id, &why))
        }
        (other, _) => other,
    }
}

fn is_first(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Request(request) = message else { return false };
    matches!(request.request, ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_))
}

/// An answer to a request under the id of this request: written otherwise, or missing, or another's.
fn addressed(message: Message, id: RequestId, open: &[RequestId]) -> Message {
    // The error of a server that could not read the id answers the request that it came in response to.
    if let JsonRpcMessage::Error(mut error) = message {
        error.id = Some(id);
        return JsonRpcMessage::Error(error);
    }
    let written = serde_json::to_vec(&message).unwrap_or_default();
    match parse(&written, open) {
        Parsed::Messages(messages) => messages.into_iter().find(|message| is_addressed(message, open)),
        Parsed::Unfinished => None,
    }
    .unwrap_or_else(|| unreadable(id, &stray(&message)))
}

/// The events of a response, until its end.
struct Repair {
    events: Events,
    /// The request that the response is for.
    open: Vec<RequestId>,
    is_answered: bool,
    /// Whether the library can go on with the stream when it has ended.
    is_resumable: bool,
    /// What is wrong with an answer that came under another id.
    stray: Option<String>,
}

fn repaired(events: Events, open: Vec<RequestId>) -> Events {
    let is_answered = open.is_empty();
    let repair = Repair { events, open, is_answered, is_resumable: false, stray: None };
    stream::unfold(Some(repair), |repair| async { repair?.next().await }).flat_map(stream::iter).boxed()
}

impl Repair {
    async fn next(mut self) -> Option<(Vec<Result<Sse, SseError>>, Option<Self>)> {
        match self.events.next().await {
            Some(Ok(event)) => {
                self.is_resumable |= event.id.is_some();
                let events = self.of_event(event).into_iter().map(Ok).collect();
                Some((events, Some(self)))
            }
            Some(Err(error)) if error.to_string().contains(TOO_LONG) && !self.is_answered => {
                Some((self.ended_with(&too_long(MAX_LENGTH)), None))
            }
            Some(Err(error)) => Some((vec![Err(error)], Some(self))),
            None => {
                let why = self.stray.take().filter(|_| !self.is_answered && !self.is_resumable)?;
                Some((self.ended_with(&why), None))
            }
        }
    }

    /// The answer for a request whose own answer will not come.
    fn ended_with(&self, why: &str) -> Vec<Result<Sse, SseError>> {
        let answers = self.open.iter().map(|id| unreadable(id.clone(), why));
        answers.filter_map(|answer| written(&answer, Sse::default())).map(Ok).collect()
    }

    /// An event in the form that the library parses; a batch becomes one event for each of its messages.
    fn of_event(&mut self, event: Sse) -> Vec<Sse> {
        let Some(data) = event.data.as_deref() else { return vec![event] };
        let whole = serde_json::from_str::<Message>(data);
        if let Ok(message) = whole
            && (self.open.is_empty() || is_addressed(&message, &self.open))
        {
            self.is_answered |= is_answer(&message);
            if !lists_task_support(&message, data.as_bytes()) {
                return vec![event];
            }
            let message = with_task_support(message, data.as_bytes());
            return written(&message, event).into_iter().collect();
        }
        let messages = match (parse(data.as_bytes(), &self.open), &*self.open) {
            (Parsed::Messages(messages), _) => messages,
            // An event is complete, so it cannot be continued.
            (Parsed::Unfinished, [only]) => vec![unreadable(only.clone(), "it is no whole JSON")],
            (Parsed::Unfinished, _) => Vec::new(),
        };
        // The library takes any answer for the last message of the stream, so one under another id is held back.
        let (addressed, others): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| self.open.is_empty() || is_addressed(message, &self.open));
        self.is_answered |= addressed.iter().any(is_answer);
        if let Some(other) = others.first() {
            self.stray = Some(stray(other));
        }
        let events: Vec<_> = addressed.into_iter().filter_map(|message| written(&message, event.clone())).collect();
        if events.is_empty() && others.is_empty() { vec![event] } else { events }
    }
}

fn written(message: &Message, event: Sse) -> Option<Sse> {
    Some(Sse { data: Some(serde_json::to_string(message).ok()?), ..event })
}

fn is_answer(message: &Message) -> bool {
    matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
}
