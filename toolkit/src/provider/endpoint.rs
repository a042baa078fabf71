//! The address of a provider, its settings, and its key, which is never shown.

use super::{ModelInfo, Quirks};
use crate::pricing::PriceTable;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The wires that this crate speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// Anthropic's `POST /v1/messages`.
    AnthropicMessages,
    /// OpenAI's `POST /v1/chat/completions`, which most others speak with quirks of their own.
    OpenaiChat,
    /// OpenAI's `POST /v1/responses`, without state at the provider.
    OpenaiResponses,
}

impl Api {
    /// Its name, as an [`Origin`](crate::message::Origin) has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
        }
    }
}

/// A secret. It is shown nowhere: not by `Debug`, not in errors, not in what providers echo.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes a key, without the white space around it.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into().trim().to_owned())
    }

    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// Text without the key in it.
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
    /// For the response's head, once the request is sent.
    pub response: Duration,
    /// For the next bytes of a stream, pings included.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { response: Duration::from_secs(300), idle: Duration::from_secs(300) }
    }
}

/// One provider as it is reached: address, key, quirks, models, prices.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The provider's name in the registry and in origins.
    pub provider: String,
    /// The address that paths are put behind. Anthropic's has no `/v1`, OpenAI's has, as their own clients take them.
    pub base_url: String,
    /// The key; none for servers that ask for none.
    pub key: Option<ApiKey>,
    /// More headers to send.
    pub headers: Vec<(String, String)>,
    /// How it differs from the wire's inventor.
    pub quirks: Quirks,
    /// The models known of it.
    pub models: Vec<ModelInfo>,
    /// What is taken for true of a model that is not known.
    pub unknown_model: ModelInfo,
    /// How long to wait for it.
    pub timeouts: Timeouts,
    /// What its models cost where it does not say so itself.
    pub prices: Arc<PriceTable>,
}

impl Endpoint {
    /// Makes an endpoint without a key.
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

    /// Sends a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(ApiKey::new(key));
        self
    }

    /// Takes it to differ from the wire's inventor in these ways.
    #[must_use]
    pub fn quirks(mut self, quirks: Quirks) -> Self {
        self.quirks = quirks;
        self
    }

    /// Knows these models.
    #[must_use]
    pub fn models(mut self, models: impl IntoIterator<Item = ModelInfo>) -> Self {
        self.models.extend(models);
        self
    }

    /// Waits as long as this.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// What is known of a model: an entry of its id, else what is taken for true of unknown ones.
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
