//! A model whose answers do not say how long they took, so that two runs can be compared.

use async_trait::async_trait;
use flovyn_toolkit::message::Message;
use flovyn_toolkit::provider::{
    CancellationToken, Model, ModelError, ModelInfo, ModelRequest, OnEvent, Provider, Registry,
};
use std::sync::Arc;

/// A registry of this model alone.
pub(crate) fn timeless(model: Model) -> Registry {
    let mut models = Registry::new();
    models.add_provider(Arc::new(Timeless(model.provider)), vec![model.info]);
    models
}

struct Timeless(Arc<dyn Provider>);

#[async_trait]
impl Provider for Timeless {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn api(&self) -> &str {
        self.0.api()
    }

    async fn stream(
        &self,
        request: &ModelRequest,
        on: OnEvent<'_>,
        cancel: &CancellationToken,
    ) -> Result<Message, ModelError> {
        let mut message = self.0.stream(request, on, cancel).await?;
        if let Some(meta) = &mut message.assistant {
            (meta.duration_ms, meta.first_token_ms) = (1, Some(1));
        }
        Ok(message)
    }

    async fn models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        self.0.models().await
    }
}
