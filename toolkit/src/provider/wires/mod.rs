//! The three wire protocols: they encode requests and decode events.
//!
//! Nothing here does I/O. Each protocol has an encoder and a [`Decoder`]. The decoder keeps the message until the
//! provider's last event, and gives it to nobody before.

mod anthropic;
mod anthropic_stream;
mod cache;
mod chat;
mod chat_stream;
mod responses;
mod responses_stream;

use super::{Api, ErrorKind, ModelError, ModelInfo, ModelRequest, Quirks, ThinkingLevel, ThinkingSupport, ToolChoice};
use crate::message::call_ids::CallIds;
use crate::message::transform::{ForeignThinking, Target, for_model};
use crate::message::{Media, MediaSource, Message, Origin};
use serde_json::{Map, Value};

/// Reads the events of one response.
pub(super) trait Decoder: Send {
    /// Takes the data of one event. Returns true when the message is complete and nothing more has to be read.
    fn event(&mut self, data: &str, on: &mut (dyn FnMut(super::StreamEvent) + Send)) -> Result<bool, ModelError>;

    /// Reads the JSON object of an event, or of a response that came whole.
    fn read(&self, data: &str) -> Result<Value, ModelError>;

    /// Returns the message, or an error if the stream ended too early.
    fn finish(self: Box<Self>) -> Result<Message, ModelError>;
}

/// The path of a model call, which is appended to the base URL.
pub(super) fn path(api: Api, base: &str) -> &'static str {
    match api {
        Api::AnthropicMessages if base.ends_with("/v1") => "/messages",
        Api::AnthropicMessages => "/v1/messages",
        Api::OpenaiChat => "/chat/completions",
        Api::OpenaiResponses => "/responses",
    }
}

/// The path of the list of models, which is appended to the base URL.
pub(super) fn models_path(api: Api, base: &str) -> &'static str {
    match api {
        Api::AnthropicMessages if !base.ends_with("/v1") => "/v1/models?limit=1000",
        Api::AnthropicMessages => "/models?limit=1000",
        Api::OpenaiChat | Api::OpenaiResponses => "/models",
    }
}

/// The body of a request.
pub(super) fn encode(
    api: Api,
    request: &ModelRequest,
    info: &ModelInfo,
    origin: &Origin,
    quirks: &Quirks,
) -> Result<Map<String, Value>, ModelError> {
    let target = Target { origin: origin.clone(), thinking: ForeignThinking::AsText, media: info.images };
    let call = Call { request, messages: for_model(&request.messages, &target), info, origin, quirks };
    match api {
        Api::AnthropicMessages => anthropic::encode(&call),
        Api::OpenaiChat => chat::encode(&call),
        Api::OpenaiResponses => responses::encode(&call),
    }
}

/// The decoder for the response to a request.
pub(super) fn decoder(api: Api, request: &ModelRequest, origin: &Origin) -> Box<dyn Decoder> {
    let ids = CallIds::of(&request.messages);
    match api {
        Api::AnthropicMessages => Box::new(anthropic_stream::Stream::new(origin, ids)),
        Api::OpenaiChat => Box::new(chat_stream::Stream::new(origin, ids)),
        Api::OpenaiResponses => Box::new(responses_stream::Stream::new(origin, ids)),
    }
}

/// The events of a response that came whole, from a server that does not stream.
pub(super) fn events_of_whole(api: Api, body: Value) -> Vec<Value> {
    match api {
        _ if body.get("error").is_some_and(|error| !error.is_null()) => vec![body],
        Api::AnthropicMessages => anthropic_stream::events_of_whole(&body),
        Api::OpenaiChat => chat_stream::events_of_whole(body),
        Api::OpenaiResponses => responses_stream::events_of_whole(&body),
    }
}

/// One model call that is to be encoded.
struct Call<'a> {
    request: &'a ModelRequest,
    /// The conversation, adapted to the model.
    messages: Vec<Message>,
    info: &'a ModelInfo,
    origin: &'a Origin,
    quirks: &'a Quirks,
}

impl Call<'_> {
    /// How hard to think; none if thinking is off or the model cannot think.
    fn effort(&self) -> Option<ThinkingLevel> {
        let level = self.request.thinking;
        let off = level == ThinkingLevel::Off || self.info.thinking == ThinkingSupport::None;
        (!off).then_some(level)
    }

    /// The temperature, if the model takes one.
    fn temperature(&self) -> Option<f64> {
        self.request.temperature.filter(|_| self.info.temperature && self.effort().is_none())
    }
}

/// The URL of a file: its own address, or a `data:` URL with its bytes.
fn address(media: &Media) -> Result<String, ModelError> {
    match &media.source {
        MediaSource::Base64(bytes) => Ok(format!("data:{};base64,{bytes}", media.mime)),
        MediaSource::Url(url) => Ok(url.clone()),
        MediaSource::ProviderFile(id) => Err(unsendable(media, &format!("is the file {id:?} of a provider"))),
    }
}

fn unsendable(media: &Media, why: &str) -> ModelError {
    let message =
        format!("a part of {} {why}, which this wire does not take; leave it out or send its bytes", media.mime);
    ModelError::new(ErrorKind::InvalidRequest, message)
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str)
}

/// The text, or else the thinking, at a place where a text is usual. Some servers give a list of parts instead.
fn said(value: &Value, thinking: bool) -> String {
    match value {
        Value::String(text) if !thinking => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| said(part, thinking)).collect(),
        Value::Object(part) => {
            let is_thought = part.get("type").and_then(Value::as_str).is_some_and(|kind| kind.contains("thinking"));
            let inner = ["thinking", "text", "refusal"].iter().find_map(|name| part.get(*name));
            inner.filter(|_| is_thought == thinking).map_or_else(String::new, |inner| said(inner, false))
        }
        _ => String::new(),
    }
}

/// A text of an event, such as an id. Some servers write it as a number.
fn word(value: &Value, path: &str) -> Option<String> {
    match value.pointer(path)? {
        Value::String(word) => Some(word.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn number(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path).and_then(Value::as_u64)
}

/// The error for a refusal. The status decides the kind; where it says too little, words of the message do.
pub(super) fn refused(status: u16, code: &str, message: &str) -> ModelError {
    let words = format!("{code} {message}").to_lowercase();
    let says = |any: &[&str]| any.iter().any(|word| words.contains(word));
    let too_long = says(&[
        "context_length",
        "context length",
        "context window",
        "prompt is too long",
        "maximum context",
        "input is too long",
        "too many tokens",
        "exceed context limit",
    ]);
    let kind = match status {
        400 | 413 | 422 if too_long => ErrorKind::ContextOverflow,
        413 => ErrorKind::ContextOverflow,
        401 | 403 => ErrorKind::Unauthorized,
        402 => ErrorKind::QuotaExceeded,
        404 => ErrorKind::UnknownModel,
        408 | 425 => ErrorKind::Network,
        429 if says(&["insufficient_quota", "credit balance", "exceeded your current quota"]) => {
            ErrorKind::QuotaExceeded
        }
        429 => ErrorKind::RateLimited,
        409 | 500.. => ErrorKind::Unavailable,
        // Anthropic answers like this when the account has no credit left.
        400 if says(&["credit balance"]) => ErrorKind::QuotaExceeded,
        _ => ErrorKind::InvalidRequest,
    };
    let message = if message.is_empty() { "no reason was given" } else { message };
    ModelError { status: Some(status), ..ModelError::new(kind, message) }
}

/// The error for an error event in the middle of a stream, which has no status.
fn failed(code: &str, message: &str) -> ModelError {
    let status = match code {
        "overloaded_error" | "overloaded" => 529,
        "api_error" | "server_error" | "internal_server_error" | "timeout_error" => 500,
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "authentication_error" | "invalid_api_key" | "permission_error" => 401,
        "billing_error" | "insufficient_quota" => 402,
        "not_found_error" | "model_not_found" => 404,
        "invalid_request_error" | "context_length_exceeded" | "invalid_prompt" => 400,
        // For any other reason, the provider can be asked again.
        _ => 500,
    };
    let kind = refused(status, code, message).kind;
    ModelError::new(kind, format!("the provider broke off: {} {message}", code).trim_end().to_owned())
}

#[cfg(test)]
mod mutations;
#[cfg(test)]
mod tests;
