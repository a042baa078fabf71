//! Why a model call failed, in a form that a message can carry.

use super::Usage;
use serde::{Deserialize, Serialize};

/// Why a model call failed. It never contains a key. It is stored together with the message that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct ModelError {
    /// What a caller can do about it.
    pub kind: ErrorKind,
    /// What was asked, what was found and what to do.
    pub message: String,
    /// The HTTP status, if there was a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asked to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The tokens that were used before it failed, as far as the provider has said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
}

/// What a caller can do about a failed model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorKind {
    /// The caller cancelled it.
    Aborted,
    /// The stream ended before its last event, or nothing more came. Nothing of it counts; ask again.
    Interrupted,
    /// No response came: the address does not resolve, nobody listens there, or the connection broke. Ask again.
    Network,
    /// There were too many requests or tokens. Ask again after the time that the error names.
    RateLimited,
    /// The provider is overloaded or failed; ask again.
    Unavailable,
    /// The provider broke its own protocol, for instance with malformed events or arguments that are not a JSON object.
    /// Ask again.
    Protocol,
    /// The conversation does not fit the model's window; compact it.
    ContextOverflow,
    /// The key is missing or wrong, or is not allowed to do this.
    Unauthorized,
    /// The account has no credit left.
    QuotaExceeded,
    /// There is no such provider or model.
    UnknownModel,
    /// The provider refuses the request as it is.
    InvalidRequest,
}

impl ErrorKind {
    /// Whether the same request may succeed later without any change.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Interrupted | Self::Network | Self::RateLimited | Self::Unavailable | Self::Protocol)
    }
}

impl ModelError {
    /// Makes an error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after_ms: None, usage: None }
    }

    /// Whether the same request may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}
