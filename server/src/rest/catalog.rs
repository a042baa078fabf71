//! The catalogue for pickers: models and host tools.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, QueryParams};
use axum::http::StatusCode;
use flovyn_core::error::Error;
use flovyn_toolkit::catalog::{ListPrices, ModelEntry, ToolEntry, ToolSource};
use flovyn_toolkit::provider::{ModelInfo, ThinkingSupport};
use flovyn_toolkit::tools::Effect;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A model to pick.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Model)]
pub(super) struct ModelView {
    /// `provider/model`.
    #[schema(example = "openrouter/z-ai/glm-4.7")]
    reference: String,
    /// The provider's name.
    provider: String,
    /// The model's id at its provider.
    id: String,
    /// Its name for people.
    name: String,
    /// Tokens that prompt and answer may have together; null where unknown.
    context_window: Option<u64>,
    /// The most tokens it generates; null where unknown.
    max_output: Option<u64>,
    /// How it can be made to think: `none`, `toggle`, `effort`, `budget`, `adaptive` or `always`.
    #[schema(value_type = String)]
    thinking: ThinkingSupport,
    /// Whether it takes images.
    images: bool,
    /// Whether it calls tools.
    tools: bool,
    /// Whether it takes a temperature.
    temperature: bool,
    /// Whether this server's environment has a key for its provider, or an address of its own that wants none.
    is_available: bool,
    /// List prices; null where unknown, which is not free.
    prices: Option<PricesView>,
}

/// List prices in millionths of a US dollar per million tokens, for prompts of ordinary length.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ListPrices)]
pub(super) struct PricesView {
    /// Of tokens sent.
    input: u64,
    /// Of tokens sent that the provider had cached.
    cache_read: u64,
    /// Of tokens generated.
    output: u64,
    /// The date or name of the table.
    table_version: String,
}

/// A tool to pick.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Tool)]
pub(super) struct ToolView {
    /// Its name, which definitions and runs take.
    name: String,
    /// What it does, as models are told.
    description: String,
    /// The JSON Schema of its arguments.
    input_schema: Value,
    /// What a call does to the world: `read`, `write` or `exec`; approvals go by it.
    #[schema(value_type = String)]
    effect: Effect,
    /// Where it runs: `host`, in the worker, or `mcp`, at an MCP server.
    #[schema(value_type = String)]
    source: ToolSource,
}

impl From<ModelEntry> for ModelView {
    fn from(ModelEntry { reference, info, is_available, prices }: ModelEntry) -> Self {
        let ModelInfo { provider, id, name, context_window, max_output, thinking, images, tools, temperature } = info;
        let prices = prices.map(|ListPrices { input, cache_read, output, table_version }| PricesView {
            input,
            cache_read,
            output,
            table_version,
        });
        Self {
            reference,
            provider,
            id,
            name,
            context_window,
            max_output,
            thinking,
            images,
            tools,
            temperature,
            is_available,
            prices,
        }
    }
}

impl From<ToolEntry> for ToolView {
    fn from(ToolEntry { definition, source }: ToolEntry) -> Self {
        Self {
            name: definition.name,
            description: definition.description,
            input_schema: definition.input_schema,
            effect: definition.effect,
            source,
        }
    }
}

/// An error of the server's environment is not the caller's fault.
fn misconfigured(error: Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.code(), error.message())
}

fn all<M, V: From<M>>(entries: Vec<M>) -> axum::Json<Items<V>> {
    axum::Json(Items { items: entries.into_iter().map(Into::into).collect(), next_cursor: None })
}

/// Lists the models to pick, by reference, all on one page; no provider is asked.
#[utoipa::path(get, path = "/models", tag = "definitions", responses((status = 200, body = Items<ModelView>)))]
pub(super) async fn models(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<ModelView>>, Problem> {
    query.reject_unknown()?;
    let now = caller.service.storage.clock().now();
    caller.service.catalog.models(now).map(all).map_err(misconfigured)
}

/// Lists the host tools to pick, by name, all on one page.
#[utoipa::path(get, path = "/tools", tag = "definitions", responses((status = 200, body = Items<ToolView>)))]
pub(super) async fn tools(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<ToolView>>, Problem> {
    query.reject_unknown()?;
    caller.service.catalog.tools().map(all).map_err(misconfigured)
}
