//! The tool that stands for all tools of a server that could not be used when they were listed, and whose tools are not known.
//! The model learns from it what is wrong, and whether the server works again.
//!
//! It calls no tool of the server: policies and hooks go by the names of tools, and the call of one tool by another would
//! pass them by.

use super::call::CallEnvironment;
use super::connection::Connection;
use super::listing::tools_of;
use super::names::tool_name;
use super::outcome::clean;
use crate::tools::fault::Fault;
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
             to try the server again and to learn what is wrong with it."
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
                    format!("- {}: {described}", clean(&tool.name))
                };
                let lines: Vec<_> = tools.iter().map(tool).chain(problems).collect();
                let when = match self.connection.tool_list.is_followed() {
                    true => "Its tools can be called from your next answer on.",
                    false => "Its tools can be called when the worker is started again; tell the user so.",
                };
                let text = format!("The MCP server {server:?} works again. {when} They are:\n{}", lines.join("\n"));
                ToolOutcome::text(text)
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
        json!({ "type": "object", "additionalProperties": false, "properties": {} })
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    async fn call(&self, _: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let environment = CallEnvironment::of(environment);
        let listed = tokio::select! {
            listed = self.list() => Ok(listed),
            () = environment.stopped() => Err(Fault::stopped()),
        };
        Ok(Fault::into_outcome(listed)?.with_details(json!({ "server": self.connection.name })))
    }
}
