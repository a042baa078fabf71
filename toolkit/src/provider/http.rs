//! One model call over HTTP: it sends the request, reads the stream, and returns the message or the error.
//!
//! This file has the HTTP client (TLS through ring, the certificates of the machine), the timers, and the meaning of a
//! status. The files in `wires` say which bytes are sent and what the events mean.

use super::retry_after::asked_wait;
use super::{
    Api, CancellationToken, Endpoint, ErrorKind, ModelError, ModelInfo, ModelRequest, OnEvent, Provider, halves, wires,
};
use crate::message::{Cost, Message, Origin, Usage};
use async_trait::async_trait;
use flovyn_core::clock::{Clock, SystemClock};
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use sse_stream::SseByteStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The most bytes of one response. That is far more than any model sends, and little enough that a broken server does
/// no harm.
const MOST_BYTES: usize = 256 << 20;
/// The most characters of a provider's message that an error repeats.
const ERROR_TEXT: usize = 2_000;

/// How long to wait for the end of a response after its message is complete.
const LINGER: Duration = Duration::from_millis(25);

/// A provider that is called over HTTP. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct HttpProvider {
    api: Api,
    endpoint: Arc<Endpoint>,
    client: reqwest::Client,
}

impl HttpProvider {
    /// A provider with this wire protocol at this endpoint. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// The address is not a URL, or TLS cannot be set up.
    pub fn new(api: Api, endpoint: Endpoint) -> Result<Self, ModelError> {
        let invalid = |what: String| ModelError::new(ErrorKind::InvalidRequest, what);
        let url = reqwest::Url::parse(&endpoint.base_url).map_err(|error| {
            invalid(format!("{:?} is no address of {:?}: {error}", endpoint.base_url, endpoint.provider))
        })?;
        let mut client = client_builder()
            .map_err(|error| invalid(format!("TLS cannot be set up: {error}")))?
            .connect_timeout(Duration::from_secs(15))
            .redirect(reqwest::redirect::Policy::none());
        // A proxy from the environment is for other machines. A server on this machine is called directly.
        if matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]")) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| invalid(format!("no HTTP client can be made: {error}")))?;
        Ok(Self { api, endpoint: Arc::new(endpoint), client })
    }

    /// How it is reached.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn headers(&self) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        let mut put = |name: &str, value: String, secret: bool| {
            let name = HeaderName::try_from(name);
            let value = HeaderValue::try_from(value);
            let (Ok(name), Ok(mut value)) = (name, value) else {
                let message = format!(
                    "a header or the key for {:?} has characters that no header may have",
                    self.endpoint.provider
                );
                return Err(ModelError::new(ErrorKind::Unauthorized, message));
            };
            value.set_sensitive(secret);
            headers.insert(name, value);
            Ok(())
        };
        if self.api == Api::AnthropicMessages {
            put("anthropic-version", "2023-06-01".to_owned(), false)?;
        }
        if let Some(key) = &self.endpoint.key {
            match self.api {
                Api::AnthropicMessages => put("x-api-key", key.secret().to_owned(), true)?,
                Api::OpenaiChat | Api::OpenaiResponses => {
                    put("authorization", format!("Bearer {}", key.secret()), true)?
                }
            }
        }
        for (name, value) in &self.endpoint.headers {
            put(name, value.clone(), false)?;
        }
        Ok(headers)
    }

    async fn attempt(&self, request: &ModelRequest, on: OnEvent<'_>) -> Result<Message, ModelError> {
        let began = Instant::now();
        let info = self.endpoint.model(&request.model);
        let origin = Origin::new(self.api.as_str(), &self.endpoint.provider, &request.model);
        let mut body = wires::encode(self.api, request, &info, &origin, &self.endpoint.quirks)?;
        for (name, value) in &request.extra {
            body.insert(name.clone(), value.clone());
        }
        let url = format!("{}{}", self.endpoint.base_url, wires::path(self.api, &self.endpoint.base_url));
        let body = Value::Object(body).to_string();
        let sent_bytes = body.len();
        let sent = self.client.post(&url).headers(self.headers()?).header(CONTENT_TYPE, "application/json").body(body);
        let sent = sent.send();
        let response = self.answered(timeout(self.endpoint.timeouts.response, sent).await, &url).await?;

        let (mut first, mut shown) = (None, 0);
        let mut decoder = wires::decoder(self.api, request, &origin);
        let mut seen = |event: super::StreamEvent| {
            if super::StreamEvent::is_content(&event) {
                first.get_or_insert_with(|| began.elapsed());
                shown += event.length();
            }
            on(event);
        };
        let decoded = match self.decode(response, &mut *decoder, &mut seen).await {
            Ok(why) => decoder.finish().map_err(|mut error| {
                if let Some(why) = why {
                    error.message = format!("{} ({why})", error.message);
                }
                error
            }),
            Err(error) => Err(error),
        };
        let mut message = match decoded {
            Ok(message) => message,
            Err(mut error) => {
                error.usage = self.used_until(&error, &request.model, sent_bytes, shown).map(Box::new);
                return Err(self.scrubbed(error));
            }
        };
        if let Some(meta) = &mut message.assistant {
            let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
            meta.first_token_ms = first.map(millis);
            meta.duration_ms = millis(began.elapsed());
            if meta.usage.cost.is_none() {
                meta.usage.cost = self.cost(&request.model, &meta.usage, meta.response_model.as_deref());
            }
        }
        Ok(message)
    }

    /// Reads a response to its end. Returns what broke it off, if anything did.
    async fn decode(
        &self,
        response: reqwest::Response,
        decoder: &mut dyn wires::Decoder,
        on: OnEvent<'_>,
    ) -> Result<Option<String>, ModelError> {
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_whole = kind.starts_with("application/json");
        let mut budget = MOST_BYTES;
        let bytes = response.bytes_stream().map_err(std::io::Error::other).map(move |piece| {
            let piece = piece?;
            budget = budget.checked_sub(piece.len()).ok_or_else(|| std::io::Error::other("the response has no end"))?;
            Ok::<_, std::io::Error>(piece)
        });
        // The timer starts again with each piece of bytes and not with each event, so that comments and pings count
        // too.
        let text = halves::as_text(while_alive(bytes, self.endpoint.timeouts.idle));
        if is_whole {
            return whole(self.api, Box::pin(text), decoder, on).await;
        }
        let mut events = SseByteStream::new(Box::pin(text));
        loop {
            match events.next().await {
                Some(Ok(event)) => {
                    let Some(data) = event.data else { continue };
                    if decoder.event(data.trim_end(), on)? {
                        break;
                    }
                }
                Some(Err(error)) => return Ok(Some(error.to_string())),
                None => return Ok(None),
            }
        }
        // Only the end of the response is left. A connection can be used again only if its response was read to the
        // end.
        let rest = async { while events.next().await.is_some() {} };
        let _still_sending = timeout(LINGER, rest).await;
        Ok(None)
    }

    /// The tokens of a call that failed in the middle of its answer: those that the provider has told of, and else about
    /// as many as were sent and shown. None if nothing was told and nothing shown: then nothing was charged.
    fn used_until(&self, error: &ModelError, model: &str, sent: usize, shown: usize) -> Option<Usage> {
        let mut usage = error.usage.as_deref().cloned().unwrap_or_default();
        if usage.total() == 0 && shown == 0 {
            return None;
        }
        let tokens = |length: usize| length as u64 / 4 + 1;
        if usage.prompt() == 0 {
            usage.input = tokens(sent);
        }
        usage.output = usage.output.max(if shown == 0 { 0 } else { tokens(shown) });
        usage.is_estimate = true;
        usage.cost = usage.cost.take().or_else(|| self.cost(model, &usage, None));
        Some(usage)
    }

    /// The cost at list price, by the id of the model that was asked for, or else by that of the model that answered.
    fn cost(&self, requested_model: &str, usage: &Usage, response_model: Option<&str>) -> Option<Cost> {
        if usage.total() == 0 {
            return None;
        }
        let now = SystemClock::default().now();
        let price = |model: &str| self.endpoint.prices.cost(&self.endpoint.provider, model, usage, now);
        price(requested_model).or_else(|| price(response_model?))
    }

    async fn answered(
        &self,
        sent: Result<reqwest::Result<reqwest::Response>, tokio::time::error::Elapsed>,
        url: &str,
    ) -> Result<reqwest::Response, ModelError> {
        let response = match sent {
            Err(_) => {
                let message = format!("{url} did not answer within {:?}; ask again", self.endpoint.timeouts.response);
                return Err(ModelError::new(ErrorKind::Network, message));
            }
            Ok(Err(error)) => {
                let message = format!("{url} cannot be reached: {}; ask again", causes(&error));
                return Err(self.scrubbed(ModelError::new(ErrorKind::Network, message)));
            }
            Ok(Ok(response)) => response,
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after_ms = asked_wait(response.headers());
        let text = timeout(Duration::from_secs(10), limited(response, 64 << 10)).await.unwrap_or_default();
        let error_body = parse_error_body(&text);
        let mut error = wires::refused(status.as_u16(), &error_body.code, &error_body.message);
        error.message = format!("{} answered {status}: {}", self.endpoint.provider, error.message);
        error.retry_after_ms = retry_after_ms;
        Err(self.scrubbed(error))
    }

    fn scrubbed(&self, mut error: ModelError) -> ModelError {
        if let Some(key) = &self.endpoint.key {
            error.message = key.scrub(error.message);
        }
        error
    }
}

#[async_trait]
impl Provider for HttpProvider {
    fn name(&self) -> &str {
        &self.endpoint.provider
    }

    fn api(&self) -> &str {
        self.api.as_str()
    }

    async fn stream(
        &self,
        request: &ModelRequest,
        on: OnEvent<'_>,
        cancel: &CancellationToken,
    ) -> Result<Message, ModelError> {
        // The attempt owns the response. Dropping it on cancellation closes the connection.
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ModelError::new(ErrorKind::Aborted, "the model call was cancelled")),
            done = self.attempt(request, on) => done,
        }
    }

    async fn models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        let url = format!("{}{}", self.endpoint.base_url, wires::models_path(self.api, &self.endpoint.base_url));
        let sent = self.client.get(&url).headers(self.headers()?).send();
        let response = self.answered(timeout(self.endpoint.timeouts.response, sent).await, &url).await?;
        let text = timeout(self.endpoint.timeouts.idle, limited(response, 16 << 20)).await.unwrap_or_default();
        let listed: Option<Vec<String>> = serde_json::from_str::<Value>(&text).ok().and_then(|body| {
            let models = body.get("data")?.as_array()?;
            models.iter().map(|model| Some(model.get("id")?.as_str()?.to_owned())).collect()
        });
        let Some(ids) = listed else {
            let message = format!("{url} gave no list of models; is its address right?");
            return Err(ModelError::new(ErrorKind::Protocol, message));
        };
        Ok(ids.iter().map(|id| self.endpoint.model(id)).collect())
    }
}

/// A builder of an HTTP client that uses ring for TLS and trusts the certificates that the machine trusts. Every client
/// of this crate has to be built from it: the library panics if no cryptography was chosen.
pub(crate) fn client_builder() -> Result<reqwest::ClientBuilder, tokio_rustls::rustls::Error> {
    static TRUSTED: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = TRUSTED.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let _counts = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    Ok(reqwest::Client::builder().tls_backend_preconfigured(tls))
}

/// Reads a response that came in one piece, from a server that does not stream.
async fn whole(
    api: Api,
    mut pieces: impl futures::Stream<Item = std::io::Result<bytes::Bytes>> + Unpin,
    decoder: &mut dyn wires::Decoder,
    on: OnEvent<'_>,
) -> Result<Option<String>, ModelError> {
    let mut text = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => text.extend_from_slice(&piece),
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
    let text = String::from_utf8_lossy(&text);
    for event in wires::events_of_whole(api, decoder.read(&text)?) {
        if decoder.event(&event.to_string(), on)? {
            break;
        }
    }
    Ok(None)
}

/// The pieces of a stream. If a piece does not come within `idle`, the stream gives an error and ends.
fn while_alive<S, T>(pieces: S, idle: Duration) -> impl futures::Stream<Item = std::io::Result<T>>
where
    S: futures::Stream<Item = std::io::Result<T>>,
{
    futures::stream::unfold((Box::pin(pieces), false), move |(mut pieces, silent)| async move {
        if silent {
            return None;
        }
        match timeout(idle, pieces.next()).await {
            Ok(piece) => piece.map(|piece| (piece, (pieces, false))),
            Err(_) => {
                let error = std::io::Error::new(std::io::ErrorKind::TimedOut, format!("nothing came for {idle:?}"));
                Some((Err(error), (pieces, true)))
            }
        }
    })
}

/// The first `most` bytes of a body, as text.
async fn limited(response: reqwest::Response, most: usize) -> String {
    let mut bytes = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        bytes.extend_from_slice(&piece[..piece.len().min(most - bytes.len())]);
        if bytes.len() == most {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The error that a provider has sent.
pub(super) struct ErrorBody {
    pub(super) code: String,
    pub(super) message: String,
}

/// Reads an error in the form of any of the wire protocols. A text in another form becomes the message as it is.
pub(super) fn parse_error_body(text: &str) -> ErrorBody {
    let body: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(&body);
    let word = |name: &str| error.get(name).and_then(Value::as_str);
    let code = word("code").or(word("type")).unwrap_or_default().to_owned();
    let message = word("message").or(error.as_str()).unwrap_or(text).trim();
    ErrorBody { code, message: message.chars().take(ERROR_TEXT).collect() }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_every_wire_are_read() {
        for (text, code, message) in [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "overloaded_error",
                "Overloaded",
            ),
            (r#"{"error":{"message":"No","type":"t","code":"insufficient_quota"}}"#, "insufficient_quota", "No"),
            (r#"{"error":{"message":"No","type":"t","code":429}}"#, "t", "No"),
            (r#"{"error":"plain"}"#, "", "plain"),
            ("<html>bad gateway</html>", "", "<html>bad gateway</html>"),
        ] {
            let error_body = parse_error_body(text);
            assert_eq!((error_body.code.as_str(), error_body.message.as_str()), (code, message), "{text}");
        }
    }

    #[test]
    fn a_key_is_shown_nowhere() {
        let endpoint = Endpoint::new("p", "http://127.0.0.1:1").key("sk-very-secret");
        let provider = HttpProvider::new(Api::OpenaiChat, endpoint).expect("a provider");
        let debug = format!("{provider:?} {:?}", provider.headers().expect("headers"));
        assert!(!debug.contains("very-secret"), "{debug}");
        let error = ModelError::new(ErrorKind::Unauthorized, "Incorrect API key provided: sk-very-secret");
        assert_eq!(provider.scrubbed(error).message, "Incorrect API key provided: [key]");
    }
}
