//! The address of a provider, its settings, and its key, which is never shown.

use super::{ModelInfo, Quirks};
use crate::pricing::PriceTable;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The wire protocols that this crate speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// Anthropic's `POST /v1/messages`.
    AnthropicMessages,
    /// OpenAI's `POST /v1/chat/completions`. Most other providers speak it too, each with deviations of its own.
    OpenaiChat,
    /// OpenAI's `POST /v1/responses`. It is told to keep no state at the provider.
    OpenaiResponses,
}

impl Api {
    /// Its name in an [`Origin`](crate::message::Origin).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
        }
    }
}

/// The key of a provider. It is shown nowhere: not by `Debug`, not in errors, and not in messages of providers that
/// repeat it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Makes a key of a text. White space around it is removed.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into().trim().to_owned())
    }

    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// Replaces the key in a text.
    pub(super) fn scrub(&self, text: String) -> String {
        if self.0.is_empty() || !text.contains(&self.0) { text } else { text.replace(&self.0, "[key]") }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// How long to wait for a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// How long to wait for the head of the response after the request was sent.
    pub response: Duration,
    /// How long to wait for the next bytes of a stream. Pings count as bytes.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { response: Duration::from_secs(300), idle: Duration::from_secs(300) }
    }
}

/// How one provider is reached, and what is known of it: its address, key, quirks, models and prices.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The provider's name in the registry and in origins.
    pub provider: String,
    /// The address to which paths are appended. As in the providers' own clients, the one of Anthropic is without
    /// `/v1`, and the one of OpenAI is with it.
    pub base_url: String,
    /// The key; none for a server that wants none.
    pub key: Option<ApiKey>,
    /// More headers to send.
    pub headers: Vec<(String, String)>,
    /// How it differs from the provider that has invented the wire protocol.
    pub quirks: Quirks,
    /// The models of it that are known.
    pub models: Vec<ModelInfo>,
    /// The properties that a model is taken to have if it is not known.
    pub unknown_model: ModelInfo,
    /// How long to wait for it.
    pub timeouts: Timeouts,
    /// The prices of its models. They are used if the provider does not say itself what a call cost.
    pub prices: Arc<PriceTable>,
}

impl Endpoint {
    /// An endpoint without a key.
    pub fn new(provider: impl Into<String>, base_url: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            base_url: base_url.into().trim_end_matches('/').to_owned(),
            key: None,
            headers: Vec::new(),
            quirks: Quirks::default(),
            models: Vec::new(),
            unknown_model: ModelInfo::default(),
            timeouts: Timeouts::default(),
            prices: PriceTable::builtin(),
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(ApiKey::new(key));
        self
    }

    /// Sets how it differs from the provider that has invented the wire protocol.
    #[must_use]
    pub fn quirks(mut self, quirks: Quirks) -> Self {
        self.quirks = quirks;
        self
    }

    /// Sets the models that are known.
    #[must_use]
    pub fn models(mut self, models: impl IntoIterator<Item = ModelInfo>) -> Self {
        self.models.extend(models);
        self
    }

    /// Sets how long to wait.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// The properties of a model: those of the known model with its id, or else those that unknown models are taken to
    /// have.
    pub fn model(&self, id: &str) -> ModelInfo {
        let known = self.models.iter().find(|model| model.id == id);
        let mut info = known.cloned().unwrap_or_else(|| ModelInfo { id: id.to_owned(), ..self.unknown_model.clone() });
        info.provider.clone_from(&self.provider);
        if info.name.is_empty() {
            info.name.clone_from(&info.id);
        }
        info
    }
}
