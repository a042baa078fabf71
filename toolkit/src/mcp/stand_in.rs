//! The tool that stands for all tools of a server that could not be used when they were listed. The model learns of the
//! failure from it, and can use the server as soon as it works again.

use super::call::{CallEnvironment, ToolRequest, call};
use super::connection::Connection;
use super::input::{CallOrigin, InputRequired};
use super::listing::tools_of;
use super::names::tool_name;
use super::outcome::{CallIdentity, clean, outcome};
use crate::tools::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome, excerpt};
use async_trait::async_trait;
use flovyn_core::error::Result;
use serde_json::{Value, json};
use std::sync::Arc;

/// The last part of the name of the tool that stands for a server that cannot be used.
pub const TRY_AGAIN: &str = "try_again";
/// How much of a description is listed, in bytes.
const MAX_DESCRIPTION: usize = 500;

pub(super) struct StandIn {
    name: String,
    description: String,
    connection: Arc<Connection>,
}

impl StandIn {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        let server = &connection.name;
        let description = format!(
            "The tools of the MCP server {server:?}, which could not be used when its tools were listed. Call this \
             without arguments to try the server again and to see its tools. Call it with \"tool\" and \"arguments\" to use \
             one of them."
        );
        Self { name: tool_name(server, TRY_AGAIN), description, connection }
    }

    async fn list(&self) -> ToolOutcome {
        let server = &self.connection.name;
        match tools_of(&self.connection).await {
            Err(why) => {
                let message = format!("The MCP server {server:?} cannot be used: {}.", why.trim_end_matches('.'));
                ToolOutcome::error("unavailable", message)
            }
            Ok((tools, problems)) => {
                let tool = |tool: &rmcp::model::Tool| {
                    let described = tool.description.as_deref().unwrap_or_default();
                    let described = clean(excerpt::prefix(described.trim(), MAX_DESCRIPTION)).replace('\n', " ");
                    let schema = Value::Object((*tool.input_schema).clone());
                    format!("- {}: {described}\n  arguments: {schema}", clean(&tool.name))
                };
                let lines: Vec<_> = tools.iter().map(tool).chain(problems).collect();
                let text = format!("The MCP server {server:?} works again. Its tools:\n{}", lines.join("\n"));
                let (shown, is_cut) = excerpt::head(&text, excerpt::MAX_LINES, excerpt::MAX_BYTES);
                let note = if is_cut { "\n[Cut: it has more tools.]" } else { "" };
                ToolOutcome::text(format!("{shown}{note}"))
            }
        }
    }
}

#[async_trait]
impl Tool for StandIn {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object", "additionalProperties": false, "properties": {
            "tool": { "type": "string", "description": "The name of a tool, as the list of tools has it." },
            "arguments": { "type": "object", "description": "The arguments of the tool." },
        } })
    }

    fn effect(&self) -> Effect {
        Effect::Exec
    }

    fn recovery(&self) -> Recovery {
        Recovery::Report
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let Some(tool) = arguments["tool"].as_str().filter(|tool| !tool.is_empty()) else {
            return Ok(self.list().await.with_details(json!({ "server": self.connection.name })));
        };
        let (server, given) = (self.connection.name.clone(), arguments["arguments"].clone());
        let request = ToolRequest {
            tool: tool.to_owned(),
            arguments: given.as_object().cloned().unwrap_or_default(),
            responses: None,
            state: None,
            task: None,
            may_repeat: false,
        };
        let ended = call(&self.connection, request, &CallEnvironment::of(environment)).await;
        let (tool, name) = (tool.to_owned(), self.name.clone());
        let origin = CallOrigin {
            server,
            tool: tool.clone(),
            name,
            arguments: given,
            may_repeat: false,
            sampler: self.connection.sampler().cloned(),
        };
        let sampler = self.connection.sampler();
        let called =
            CallIdentity { server: &self.connection.name, tool: &tool, sampler: sampler.map(|sampler| &**sampler) };
        outcome(ended, &called, |asked| InputRequired::new(origin, asked)).await
    }
}
