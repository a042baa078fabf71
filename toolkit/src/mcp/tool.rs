//! Makes a [`Tool`] of a server's tool. The schemas stay as they are, and the effect comes from the server's
//! annotations.

use super::call::{CallEnvironment, ToolRequest, call};
use super::connection::Connection;
use super::input::{CallOrigin, InputRequired};
use super::outcome::{CallIdentity, clean, outcome};
use crate::tools::excerpt::{self, size};
use crate::tools::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome};
use async_trait::async_trait;
use flovyn_core::error;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// The longest description that a model is given, in bytes.
const MAX_DESCRIPTION: usize = 8 * 1024;
/// The longest schema of arguments, in bytes. It is a part of every request to a model.
const MAX_SCHEMA: usize = 128 * 1024;

/// A tool of an MCP server. Cheap to clone. The connection is made when it is called.
///
/// Its effect comes from the server's annotations: with `readOnlyHint` it reads, with `idempotentHint` it writes, and
/// both are run again if the worker dies. Every other tool counts as one that executes, and a call of it is run at most
/// once. Annotations are only hints of the server. For a server that is not trusted, use a policy that asks about
/// `mcp__server__*` whatever the effect.
#[derive(Clone)]
pub struct McpTool {
    name: String,
    tool: String,
    description: String,
    input_schema: Value,
    output_schema: Option<Value>,
    effect: Effect,
    connection: Arc<Connection>,
}

impl McpTool {
    /// A tool as its server lists it. The error says why no model can be offered it.
    pub(super) fn new(name: String, listed: rmcp::model::Tool, connection: Arc<Connection>) -> Result<Self, String> {
        let server = &connection.name;
        let annotations = listed.annotations.unwrap_or_default();
        let effect = match (annotations.read_only_hint, annotations.idempotent_hint) {
            (Some(true), _) => Effect::Read,
            (_, Some(true)) => Effect::Write,
            _ => Effect::Exec,
        };
        let described = listed.description.map(|text| text.into_owned()).or(listed.title).unwrap_or_default();
        let described = clean(excerpt::prefix(described.trim(), MAX_DESCRIPTION)).into_owned();
        let description = match described.is_empty() {
            true => format!("The tool {} of the MCP server {server}.", listed.name),
            false => described,
        };
        let mut input_schema = Value::Object((*listed.input_schema).clone());
        // A provider refuses the whole request for one tool whose arguments are no object.
        let is_object = match input_schema.get("type") {
            None => true,
            Some(Value::String(kind)) => kind == "object",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            Some(_) => false,
        };
        if !is_object {
            return Err(format!("its input schema is of the type {}, not of an object", input_schema["type"]));
        }
        input_schema["type"] = Value::from("object");
        let bytes = input_schema.to_string().len();
        if bytes > MAX_SCHEMA {
            return Err(format!(
                "its input schema has {}, and {} is the most",
                size(bytes as u64),
                size(MAX_SCHEMA as u64)
            ));
        }
        let output_schema = listed.output_schema.map(|schema| {
            let mut schema = (*schema).clone();
            // With an id of its own, the references inside a schema still point into it when it becomes a part of
            // another schema.
            schema.entry("$id").or_insert_with(|| Value::from(format!("urn:flovyn:mcp:{name}")));
            json!({ "type": "object", "properties": { "structuredContent": schema } })
        });
        let tool = listed.name.into_owned();
        Ok(Self { name, tool, description, input_schema, output_schema, effect, connection })
    }

    /// The server's name in the configuration.
    pub fn server(&self) -> &str {
        &self.connection.name
    }

    fn not_there(&self) -> ToolOutcome {
        let (server, tool) = (&self.connection.name, &self.tool);
        let now = self.connection.tool_list.now().tools;
        let now: Vec<_> = now.iter().map(|tool| clean(&tool.name)).collect();
        let message = format!(
            "The MCP server {server:?} does not have its tool {tool:?} any more, so the call was not made. It has: {}.",
            if now.is_empty() { "none".into() } else { now.join(", ") }
        );
        ToolOutcome::error("unknown_tool", message).with_details(json!({ "server": server, "tool": tool }))
    }

    /// The tool's name at its server.
    pub fn server_tool(&self) -> &str {
        &self.tool
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool").field("name", &self.name).field("effect", &self.effect).finish_non_exhaustive()
    }
}

#[async_trait]
impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> Value {
        self.input_schema.clone()
    }

    fn output_schema(&self) -> Option<Value> {
        self.output_schema.clone()
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn recovery(&self) -> Recovery {
        match self.effect {
            Effect::Read | Effect::Write => Recovery::Again,
            Effect::Exec => Recovery::Report,
        }
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> error::Result<ToolOutcome> {
        // A run that goes on with the tools that it began with may call one that is gone.
        if self.connection.tool_list.is_past(&self.tool) {
            return Ok(self.not_there());
        }
        let may_repeat = self.recovery() == Recovery::Again;
        let request = ToolRequest {
            tool: self.tool.clone(),
            arguments: arguments.as_object().cloned().unwrap_or_default(),
            responses: None,
            state: None,
            task: None,
            may_repeat,
        };
        let ended = call(&self.connection, request, &CallEnvironment::of(environment), None).await;
        let (server, tool, name) = (self.connection.name.clone(), self.tool.clone(), self.name.clone());
        let origin =
            CallOrigin { server, tool, name, arguments, may_repeat, sampler: self.connection.sampler().cloned() };
        let sampler = self.connection.sampler();
        let called = CallIdentity {
            server: &self.connection.name,
            tool: &self.tool,
            sampler: sampler.map(|sampler| &**sampler),
        };
        outcome(ended, &called, |asked| InputRequired::new(origin, asked)).await
    }
}
