//! Models of all providers, behind one trait.
//!
//! A [`Provider`] makes one model call: it sends a [`ModelRequest`] in the form of its wire protocol, streams the
//! answer as [`StreamEvent`]s, and returns the whole [`Message`]. Three things hold for every protocol:
//!
//! * A message exists only after the provider's last event. A stream that ends earlier is [`ErrorKind::Interrupted`],
//!   and no caller has got a message with one of its tool calls.
//! * The arguments of tool calls are parsed strictly.
//! * Dropping the future, or cancelling its token, closes the connection.

mod aliases;
mod assembly;
mod endpoint;
mod event;
mod halves;
mod http;
mod output_format;
mod quirks;
mod registry;
mod request;
mod retry;
mod retry_after;
mod wires;

pub use crate::message::{ErrorKind, ModelError};
pub use aliases::{ModelAlias, key_variables};
pub use endpoint::{Api, ApiKey, Endpoint, Timeouts};
pub use event::StreamEvent;
pub use http::HttpProvider;
pub(crate) use http::client_builder;
pub use output_format::{OutputFormat, enforceable, without_nulls};
pub use quirks::{Quirks, ThinkingField};
pub(crate) use registry::prices;
pub use registry::{Model, Registry, catalogued};
pub use request::{CacheHint, ModelInfo, ModelRequest, ThinkingLevel, ThinkingSupport, ToolChoice, ToolSpec};
pub use retry::{Fallback, RetryPolicy, Retrying};
pub use tokio_util::sync::CancellationToken;

use crate::message::Message;
use async_trait::async_trait;

/// Takes the events of a stream, in order, on the task that polls it. It must not block.
pub type OnEvent<'a> = &'a mut (dyn FnMut(StreamEvent) + Send);

/// A provider of models.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The provider's name, as in `anthropic/claude-sonnet-4-5`.
    fn name(&self) -> &str;

    /// The name of its wire protocol in an [`Origin`](crate::message::Origin).
    fn api(&self) -> &str;

    /// Makes one model call, and returns the message of the model with its usage and cost.
    ///
    /// # Errors
    ///
    /// The kind of the error says what to do. Events that `on` got before the error are void.
    async fn stream(
        &self,
        request: &ModelRequest,
        on: OnEvent<'_>,
        cancel: &CancellationToken,
    ) -> Result<Message, ModelError>;

    /// Makes one model call without looking at its events.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    async fn generate(&self, request: &ModelRequest) -> Result<Message, ModelError> {
        self.stream(request, &mut |_| {}, &CancellationToken::new()).await
    }

    /// Lists the models that the provider says it has.
    ///
    /// # Errors
    ///
    /// Those of the request. A provider without such a list returns an empty one.
    async fn models(&self) -> Result<Vec<ModelInfo>, ModelError>;
}
