//! Predefined agents, and the input of their runs.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, Json, QueryParams};
use crate::service::{Act, DEFINITION};
use axum::http::StatusCode;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::DefinitionId;
use flovyn_core::model::{Definition, DefinitionSpec};
use flovyn_core::storage::Definitions;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
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

fn definition_store(caller: &Caller) -> Result<&dyn Definitions, Problem> {
    let unable = || Error::new(Code::InvalidArgument, "the database of this server keeps no definitions");
    Ok(caller.service.storage.definitions().ok_or_else(unable)?)
}

async fn named(caller: &Caller) -> Result<Definition, Problem> {
    Ok(definition_store(caller)?.definition(caller.org(), caller.named("definition")).await?)
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
    let spec: DefinitionSpec = body.into();
    caller.audit(Act::Define, &spec.slug).await?;
    let created = definition_store(&caller)?.create_definition(caller.org(), spec).await?;
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
    let page = definition_store(&caller)?.definitions(caller.org(), page).await?;
    let items = page.items.into_iter().map(Into::into).collect();
    Ok(axum::Json(Items { items, next_cursor: page.next.map(|cursor| cursor.0) }))
}

/// One predefined agent, by its id or slug.
#[utoipa::path(
    operation_id = "get_definition",
    get, path = "/agent-definitions/{definition}", tag = "definitions", responses((status = 200, body = DefinitionView))
)]
pub(super) async fn detail(caller: Caller) -> Result<axum::Json<DefinitionView>, Problem> {
    Ok(axum::Json(named(&caller).await?.into()))
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
    let id = named(&caller).await?.id;
    caller.audit(Act::Define, id).await?;
    let replaced = definition_store(&caller)?.replace_definition(caller.org(), id, body.into()).await?;
    Ok(axum::Json(replaced.into()))
}

/// Removes a predefined agent; its runs stay.
#[utoipa::path(
    operation_id = "delete_definition",
    delete, path = "/agent-definitions/{definition}", tag = "definitions", responses((status = 204))
)]
pub(super) async fn delete(caller: Caller) -> Result<StatusCode, Problem> {
    let id = named(&caller).await?.id;
    caller.audit(Act::Undefine, id).await?;
    definition_store(&caller)?.delete_definition(caller.org(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a start says of an agent, beside or instead of a definition. Without one it is the input: what is not said is not in it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentInput {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_prompt: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) models: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<Map<String, Value>>,
}

impl AgentInput {
    /// Whether it says nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.user_prompt.is_none() && self.config.is_none() && !self.overrides_definition()
    }

    /// Whether it says what a definition has of its own.
    fn overrides_definition(&self) -> bool {
        self.system_prompt.is_some() || self.models.is_some() || self.tools.is_some()
    }
}

/// The id of a predefined agent that is named by its id or slug. An id is that of one also when it is no longer there.
pub(super) async fn id_of(caller: &Caller, name: &str) -> Result<String, Problem> {
    if let Ok(id) = name.parse::<DefinitionId>() {
        return Ok(id.to_string());
    }
    Ok(definition_store(caller)?.definition(caller.org(), name).await?.id.to_string())
}

/// What a run of a predefined agent starts with: its kind, queue and metadata, and the input, which is all that its agent
/// sees of the definition.
pub(super) async fn resolve_start(
    caller: &Caller,
    name: &str,
    agent_input: AgentInput,
) -> Result<(DefinitionSpec, Value), Problem> {
    if agent_input.overrides_definition() {
        return Err(Problem::invalid(
            "a definition has its own systemPrompt, models and tools; leave them out, or give a kind instead of agentDefinitionId",
        ));
    }
    let definition = definition_store(caller)?.definition(caller.org(), name).await?;
    let mut spec = definition.spec;
    spec.config.extend(agent_input.config.unwrap_or_default());
    spec.metadata.insert(DEFINITION.into(), definition.id.to_string());
    let mut input = json!({
        "systemPrompt": spec.system_prompt,
        "models": spec.models,
        "tools": spec.tools,
        "config": spec.config,
    });
    if let Some(prompt) = agent_input.user_prompt {
        input["userPrompt"] = prompt;
    }
    Ok((spec, input))
}
