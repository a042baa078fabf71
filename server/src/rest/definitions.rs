//! Predefined agents.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, Json, QueryParams};
use axum::http::StatusCode;
use flovyn_core::model::{Definition, DefinitionSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// What a predefined agent is.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DefinitionBody {
    /// Its name in URLs: lower-case letters, digits and `-`, unique in the org.
    #[schema(example = "otters")]
    slug: String,
    /// Its name for people; the slug without one.
    name: Option<String>,
    description: Option<String>,
    /// The agent whose code runs it.
    kind: String,
    /// The queue of its runs; `default` without one.
    queue: Option<String>,
    system_prompt: Option<String>,
    /// As its agent takes them.
    #[serde(default)]
    models: Vec<Value>,
    /// As its agent takes them.
    #[serde(default)]
    tools: Vec<Value>,
    /// Settings by name, such as `maxTurns`, `maxTokens`, `temperature`.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Value>)]
    config: Map<String, Value>,
    /// Metadata of its runs, for filters.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

impl From<DefinitionBody> for DefinitionSpec {
    fn from(body: DefinitionBody) -> Self {
        Self {
            name: body.name.unwrap_or_else(|| body.slug.clone()),
            slug: body.slug,
            description: body.description,
            kind: body.kind,
            queue: body.queue.unwrap_or_else(|| "default".into()),
            system_prompt: body.system_prompt,
            models: body.models.into(),
            tools: body.tools.into(),
            config: body.config,
            metadata: body.metadata,
        }
    }
}

/// A predefined agent.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AgentDefinition)]
pub(super) struct DefinitionView {
    id: Uuid,
    org_id: Uuid,
    slug: String,
    name: String,
    description: Option<String>,
    kind: String,
    queue: String,
    system_prompt: Option<String>,
    #[schema(value_type = Vec<Value>)]
    models: Value,
    #[schema(value_type = Vec<Value>)]
    tools: Value,
    #[schema(value_type = BTreeMap<String, Value>)]
    config: Map<String, Value>,
    metadata: BTreeMap<String, String>,
    created_at: String,
    updated_at: String,
}

impl From<Definition> for DefinitionView {
    fn from(Definition { org, id, spec, created_at, updated_at }: Definition) -> Self {
        Self {
            id: id.0,
            org_id: org.0,
            slug: spec.slug,
            name: spec.name,
            description: spec.description,
            kind: spec.kind,
            queue: spec.queue,
            system_prompt: spec.system_prompt,
            models: spec.models,
            tools: spec.tools,
            config: spec.config,
            metadata: spec.metadata,
            created_at: created_at.to_string(),
            updated_at: updated_at.to_string(),
        }
    }
}

/// Makes a predefined agent.
#[utoipa::path(
    operation_id = "create_definition",
    post, path = "/agent-definitions", tag = "definitions", request_body = DefinitionBody,
    responses((status = 201, body = DefinitionView))
)]
pub(super) async fn create(
    caller: Caller,
    Json(body): Json<DefinitionBody>,
) -> Result<(StatusCode, axum::Json<DefinitionView>), Problem> {
    let created = caller.service.create_definition(&caller.by, body.into()).await?;
    Ok((StatusCode::CREATED, axum::Json(created.into())))
}

/// Lists predefined agents, by slug.
#[utoipa::path(
    operation_id = "list_definitions",
    get, path = "/agent-definitions", tag = "definitions",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Items<DefinitionView>))
)]
pub(super) async fn list(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Items<DefinitionView>>, Problem> {
    let page = query.page()?;
    query.reject_unknown()?;
    let page = caller.service.storage.server_side()?.definitions(caller.org(), page).await?;
    let items = page.items.into_iter().map(Into::into).collect();
    Ok(axum::Json(Items { items, next_cursor: page.next.map(|cursor| cursor.0) }))
}

/// One predefined agent, by its id or slug.
#[utoipa::path(
    operation_id = "get_definition",
    get, path = "/agent-definitions/{definition}", tag = "definitions", responses((status = 200, body = DefinitionView))
)]
pub(super) async fn detail(caller: Caller) -> Result<axum::Json<DefinitionView>, Problem> {
    Ok(axum::Json(caller.service.definition(caller.org(), caller.named("definition")).await?.into()))
}

/// Replaces a predefined agent; runs that have started keep what they started with.
#[utoipa::path(
    operation_id = "replace_definition",
    put, path = "/agent-definitions/{definition}", tag = "definitions", request_body = DefinitionBody,
    responses((status = 200, body = DefinitionView))
)]
pub(super) async fn replace(
    caller: Caller,
    Json(body): Json<DefinitionBody>,
) -> Result<axum::Json<DefinitionView>, Problem> {
    let replaced = caller.service.replace_definition(&caller.by, caller.named("definition"), body.into()).await?;
    Ok(axum::Json(replaced.into()))
}

/// Removes a predefined agent; its runs stay.
#[utoipa::path(
    operation_id = "delete_definition",
    delete, path = "/agent-definitions/{definition}", tag = "definitions", responses((status = 204))
)]
pub(super) async fn delete(caller: Caller) -> Result<StatusCode, Problem> {
    caller.service.delete_definition(&caller.by, caller.named("definition")).await?;
    Ok(StatusCode::NO_CONTENT)
}
