//! What whoever starts a server has to offer to pickers: models and tools. The server lists it and knows nothing of providers.

use flovyn_core::clock::Timestamp;
use flovyn_core::error::Result;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;
use utoipa::ToSchema;

/// A source of models and tools. The program that starts a server implements it; the server asks it at each request.
pub trait Catalog: Debug + Send + Sync {
    /// All models, by reference, with the list prices of a moment.
    ///
    /// Errors: where the environment of the server is wrong; the message says what to mend.
    fn models(&self, at: Timestamp) -> Result<Vec<Model>>;

    /// All tools, by name.
    ///
    /// Errors: as of [`models`](Self::models).
    fn tools(&self) -> Result<Vec<Tool>>;
}

/// A model to pick.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// `provider/model`.
    #[schema(example = "openrouter/z-ai/glm-4.7")]
    pub reference: String,
    /// The provider's name.
    pub provider: String,
    /// The model's id at its provider.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Tokens that prompt and answer may have together; null where unknown.
    pub context_window: Option<u64>,
    /// The most tokens it generates; null where unknown.
    pub max_output: Option<u64>,
    /// How it can be made to think: `none`, `toggle`, `effort`, `budget`, `adaptive` or `always`.
    pub thinking: String,
    /// Whether it takes images.
    pub images: bool,
    /// Whether it calls tools.
    pub tools: bool,
    /// Whether its provider can force its answers into the form of a JSON Schema.
    pub structured: bool,
    /// Whether it takes a temperature.
    pub temperature: bool,
    /// Whether this server's environment has a key for its provider, or an address of its own that wants none.
    pub is_available: bool,
    /// List prices; null where unknown, which is not free.
    pub prices: Option<ListPrices>,
}

/// List prices in millionths of a US dollar per million tokens, for prompts of ordinary length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListPrices {
    /// Of tokens sent.
    pub input: u64,
    /// Of tokens sent that the provider had cached.
    pub cache_read: u64,
    /// Of tokens generated.
    pub output: u64,
    /// The date or name of the table.
    pub table_version: String,
}

/// A tool to pick.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Its name, which definitions and runs take.
    pub name: String,
    /// What it does, as models are told.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// What a call does to the world: `read`, `write` or `exec`; approvals go by it.
    pub effect: String,
    /// Where it runs: `host`, in the worker, or `mcp`, at an MCP server.
    pub source: String,
}

/// The catalogue of a server that was given none.
#[derive(Debug)]
struct Empty;

impl Catalog for Empty {
    fn models(&self, _at: Timestamp) -> Result<Vec<Model>> {
        Ok(Vec::new())
    }

    fn tools(&self) -> Result<Vec<Tool>> {
        Ok(Vec::new())
    }
}

/// A catalogue that lists nothing.
pub(crate) fn empty() -> Arc<dyn Catalog> {
    Arc::new(Empty)
}
