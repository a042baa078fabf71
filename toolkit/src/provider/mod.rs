//! Models, behind one trait.
//!
//! A [`Provider`] makes one model call: it turns a [`ModelRequest`] into its wire, streams what comes back as
//! [`StreamEvent`]s and ends with the whole [`Message`]. Whatever the wire, three things hold. A message exists only after
//! the provider's terminal event: a stream that ends before is [`ErrorKind::Interrupted`], and no tool call of it was ever
//! seen. Arguments of tool calls are parsed strictly. Dropping the future, or cancelling its token, closes the connection.

mod assembly;
mod endpoint;
mod event;
mod http;
mod quirks;
mod registry;
mod request;
mod retry;
mod wires;

pub use crate::message::{ErrorKind, ModelError};
pub use endpoint::{Api, ApiKey, Endpoint, Timeouts};
pub use event::StreamEvent;
pub use http::HttpProvider;
pub(crate) use http::client_builder;
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

/// Something that answers model requests.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The provider's name, as in `anthropic/claude-sonnet-4-5`.
    fn name(&self) -> &str;

    /// The wire that it speaks, as an [`Origin`](crate::message::Origin) names it.
    fn api(&self) -> &str;

    /// Makes one model call and gives the assistant's message with its usage and cost.
    ///
    /// # Errors
    ///
    /// An error of a kind that says what to do. Events that were handed to `on` before it are void.
    async fn stream(
        &self,
        request: &ModelRequest,
        on: OnEvent<'_>,
        cancel: &CancellationToken,
    ) -> Result<Message, ModelError>;

    /// Makes one model call for its message alone.
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
    /// Those of the request; a provider without such a list gives an empty one.
    async fn models(&self) -> Result<Vec<ModelInfo>, ModelError>;
}
