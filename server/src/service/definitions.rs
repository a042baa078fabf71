//! Predefined agents, and what a run of one starts with. Each change is in the audit before it is made.

use super::Service;
use super::audit::Act;
use super::requester::Requester;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{DefinitionId, OrgId};
use flovyn_core::model::{Definition, DefinitionSpec};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The metadata of a run that has the id of its predefined agent.
pub const DEFINITION: &str = "agentDefinition";

/// What a start says of an agent, beside or instead of a definition. Without one it is the input: what is not said is not in it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentInput {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_prompt: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) models: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<Map<String, Value>>,
}

impl AgentInput {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.user_prompt.is_none() && self.config.is_none() && !self.overrides_definition()
    }

    /// Whether it says what a definition has of its own.
    fn overrides_definition(&self) -> bool {
        self.system_prompt.is_some() || self.models.is_some() || self.tools.is_some()
    }
}

impl Service {
    /// One predefined agent, by its id or slug.
    pub(crate) async fn definition(&self, org: OrgId, name: &str) -> Result<Definition> {
        self.storage.server_side()?.definition(org, name).await
    }

    /// The id of a predefined agent that is named by its id or slug. An id is that of one also when it is no longer there.
    pub(crate) async fn definition_id(&self, org: OrgId, name: &str) -> Result<DefinitionId> {
        match name.parse() {
            Ok(id) => Ok(id),
            Err(_) => Ok(self.definition(org, name).await?.id),
        }
    }

    /// Makes a predefined agent.
    pub(crate) async fn create_definition(&self, by: &Requester, spec: DefinitionSpec) -> Result<Definition> {
        self.audit(by, Act::Define, &spec.slug).await?;
        self.storage.server_side()?.create_definition(by.org, spec).await
    }

    /// Replaces a predefined agent; runs that have started keep what they started with.
    pub(crate) async fn replace_definition(
        &self,
        by: &Requester,
        name: &str,
        spec: DefinitionSpec,
    ) -> Result<Definition> {
        let id = self.definition(by.org, name).await?.id;
        self.audit(by, Act::Define, id).await?;
        self.storage.server_side()?.replace_definition(by.org, id, spec).await
    }

    /// Removes a predefined agent; its runs stay.
    pub(crate) async fn delete_definition(&self, by: &Requester, name: &str) -> Result<()> {
        let id = self.definition(by.org, name).await?.id;
        self.audit(by, Act::Undefine, id).await?;
        self.storage.server_side()?.delete_definition(by.org, id).await
    }

    /// What a run of a predefined agent starts with: its kind, queue and metadata, and the input, which is all that its agent
    /// sees of the definition.
    ///
    /// Errors: `InvalidArgument` where the start says what the definition has of its own.
    pub(crate) async fn start_of_definition(
        &self,
        org: OrgId,
        name: &str,
        agent_input: AgentInput,
    ) -> Result<(DefinitionSpec, Value)> {
        if agent_input.overrides_definition() {
            return Err(Error::new(
                Code::InvalidArgument,
                "a definition has its own systemPrompt, models and tools; leave them out, or give a kind instead of agentDefinitionId",
            ));
        }
        let definition = self.definition(org, name).await?;
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
}
