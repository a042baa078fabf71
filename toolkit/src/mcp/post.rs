//! A request over streamable HTTP, and its response: one message as JSON, or events. Both may be as long as a line of a process.
//!
//! The library's own client reads no more than 16 MB of JSON, and skips what is no message. It is used for everything but
//! requests, and for the first request of a connection: what it makes of its refusal decides which protocol is spoken.

use super::lines::MAX_LENGTH;
use super::parsing::{Message, Parsed, is_addressed, parse, with_task_support};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream_of_rmcp::{Error as SseError, Sse, SseStream};
use std::collections::HashMap;
use std::io;

pub(super) type Headers = HashMap<HeaderName, HeaderValue>;
pub(super) type Events = BoxStream<'static, Result<Sse, SseError>>;
pub(super) type Failed = StreamableHttpError<reqwest::Error>;

/// The beginning of the error for a body that is no message.
pub(super) const NO_MESSAGE: &str = "could not parse JSON response";
/// The part of the error for an event that is longer than the limit, here and in the library.
pub(super) const TOO_LONG: &str = "exceeded the maximum size";

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How much of a body is read that is no answer, and how much of one is shown that is no message.
const MAX_ERROR_LENGTH: usize = 64 << 10;
const MAX_SHOWN: usize = 256;

/// Sends a request.
pub(super) async fn post(
    client: &Client,
    uri: &str,
    message: &ClientJsonRpcMessage,
    session: Option<&str>,
    auth: Option<String>,
    headers: Headers,
) -> Result<StreamableHttpPostResponse, Failed> {
    let mut request = client.post(uri).header(ACCEPT, format!("{EVENTS}, {JSON}"));
    if let Some(auth) = auth {
        request = request.bearer_auth(auth);
    }
    request = request.headers(HeaderMap::from_iter(headers));
    if let Some(session) = session {
        request = request.header(SESSION, session);
    }
    let response = request.json(message).send().await.map_err(Failed::Client)?;
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if status == StatusCode::UNAUTHORIZED
        && let Some(challenge) = header(WWW_AUTHENTICATE)
    {
        return Err(Failed::AuthRequired(AuthRequiredError::new(challenge)));
    }
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if status == StatusCode::NOT_FOUND && session.is_some() {
        return Err(Failed::SessionExpired);
    }
    let kind = header(CONTENT_TYPE);
    let is = |wanted: &str| kind.as_deref().is_some_and(|kind| kind.starts_with(wanted));
    let new_session = header(SESSION);
    if !status.is_success() {
        let status_error = (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error())
            .then(|| HttpStatusError::new(status.as_u16(), header(RETRY_AFTER)));
        let is_json = is(JSON);
        let body = body(response, MAX_ERROR_LENGTH).await.unwrap_or_default();
        let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if is_json
            && !refused
            && let Ok(error @ JsonRpcMessage::Error(_)) = serde_json::from_slice::<Message>(&body)
        {
            return Ok(StreamableHttpPostResponse::Json(error, new_session));
        }
        let shown = String::from_utf8_lossy(&body).into_owned();
        let other = || Failed::UnexpectedServerResponse(format!("HTTP {status}: {shown}").into());
        return Err(status_error.map_or_else(other, Failed::from));
    }
    if is(EVENTS) {
        let events = SseStream::from_bytes_stream(bounded(response.bytes_stream(), MAX_LENGTH)).boxed();
        return Ok(StreamableHttpPostResponse::Sse(events, new_session));
    }
    if !is(JSON) {
        return Err(Failed::UnexpectedContentType(kind));
    }
    let body = body(response, MAX_LENGTH).await?;
    Ok(StreamableHttpPostResponse::Json(answer(&body, message)?, new_session))
}

/// The body of a response, unless it is too long.
async fn body(mut response: Response, most: usize) -> Result<Vec<u8>, Failed> {
    let too_long = || Failed::ResponseBodyTooLarge { max_size: most };
    if response.content_length().is_some_and(|length| length > most as u64) {
        return Err(too_long());
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(Failed::Client)? {
        if piece.len() > most - body.len() {
            return Err(too_long());
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// The message of a body.
fn answer(body: &[u8], request: &ClientJsonRpcMessage) -> Result<Message, Failed> {
    let error = match serde_json::from_slice::<Message>(body) {
        Ok(message) => return Ok(with_task_support(message, body)),
        Err(error) => error,
    };
    let open: Vec<RequestId> = match request {
        JsonRpcMessage::Request(request) => vec![request.id.clone()],
        _ => Vec::new(),
    };
    if let Parsed::Messages(mut messages) = parse(body, &open) {
        let is_answer = |message: &Message| {
            matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) && is_addressed(message, &open)
        };
        let place = messages.iter().position(is_answer).or((!messages.is_empty()).then_some(0));
        if let Some(place) = place {
            return Ok(messages.swap_remove(place));
        }
    }
    let shown = String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN)]).into_owned();
    Err(Failed::UnexpectedServerResponse(format!("{NO_MESSAGE}: {error}: {shown}").into()))
}

/// The bytes of events, up to the first event that is too long.
fn bounded(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    most: usize,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let state = (bytes.boxed(), EventLength::default());
    stream::unfold(Some(state), move |state| async move {
        let (mut bytes, mut length) = state?;
        match bytes.next().await? {
            Ok(piece) if length.longest_with(&piece) > most => {
                Some((Err(io::Error::other(format!("an event {TOO_LONG} of {most} bytes"))), None))
            }
            Ok(piece) => Some((Ok(piece), Some((bytes, length)))),
            Err(error) => Some((Err(io::Error::other(error)), Some((bytes, length)))),
        }
    })
}

/// How long an event is until now. Events are separated by empty lines.
#[derive(Default)]
struct EventLength {
    length: usize,
    line_has_bytes: bool,
    last: u8,
}

impl EventLength {
    /// The length of the longest event of the next bytes, with what came before them.
    fn longest_with(&mut self, piece: &[u8]) -> usize {
        let Some(&last) = piece.last() else { return self.length };
        if !piece.contains(&b'\n') && !piece.contains(&b'\r') {
            self.length += piece.len();
            (self.line_has_bytes, self.last) = (true, last);
            return self.length;
        }
        let mut longest = 0;
        for &byte in piece {
            self.length += 1;
            longest = longest.max(self.length);
            match byte {
                b'\n' if self.last == b'\r' => {}
                b'\n' | b'\r' if !self.line_has_bytes => self.length = 0,
                b'\n' | b'\r' => self.line_has_bytes = false,
                _ => self.line_has_bytes = true,
            }
            self.last = byte;
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(pieces: &[&str]) -> Vec<usize> {
        let mut length = EventLength::default();
        pieces.iter().map(|piece| length.longest_with(piece.as_bytes())).collect()
    }

    #[test]
    fn an_event_ends_with_an_empty_line_however_lines_end() {
        assert_eq!(longest(&["data: a", "bc", "\n\n", "data"]), [7, 9, 11, 4]);
        assert_eq!(longest(&["data: a\r", "\n\r\ndata: b"]), [8, 10]);
        assert_eq!(longest(&["a\r\r", "b"]), [3, 1]);
        assert_eq!(longest(&["a\nb\nc\n", "d"]), [6, 7], "one event of several lines");
        assert_eq!(longest(&[": ping\n\n: ping\n\n"]), [8]);
    }

    #[tokio::test]
    async fn nothing_is_read_behind_an_event_that_is_too_long() {
        let pieces = ["data: a\n\n", "data: bbbb", "bbbbbbbbbb", "data: c\n\n"].map(|piece| Ok(Bytes::from(piece)));
        let read: Vec<_> = bounded(stream::iter(pieces), 12).collect().await;
        assert_eq!(read.len(), 3);
        let error = read[2].as_ref().expect_err("it is too long");
        assert!(error.to_string().contains(TOO_LONG), "{error}");
    }
}
