//! The resources of a server, as two tools: one lists them, and one reads one of them.

use super::call::CallEnvironment;
use super::connection::Connection;
use super::names::tool_name;
use super::outcome::{clean, of_resource};
use super::request::{entries, request};
use crate::tools::fault::Fault;
use crate::tools::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome, excerpt};
use async_trait::async_trait;
use flovyn_core::error::Result;
use rmcp::model::{
    ClientRequest, ListResourceTemplatesRequest, ListResourcesRequest, ReadResourceRequest, ReadResourceRequestParams,
    Resource, ResourceTemplate,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// How many characters of a description are listed.
const MAX_DESCRIPTION: usize = 200;

/// A tool for the resources of a server.
pub(super) struct ResourceTool {
    name: String,
    description: String,
    action: Action,
    connection: Arc<Connection>,
}

#[derive(Clone, Copy)]
enum Action {
    List,
    Read,
}

impl ResourceTool {
    /// The tools for the resources of a server.
    pub(super) fn all(connection: &Arc<Connection>) -> [Self; 2] {
        let server = &connection.name;
        let tool = |tool, action, description| {
            let (name, connection) = (tool_name(server, tool), connection.clone());
            Self { name, description, action, connection }
        };
        let list = format!("Lists the resources of the MCP server {server}, and the templates of their addresses.");
        let reads = format!("Reads a resource of the MCP server {server} by its address.");
        [tool("list_resources", Action::List, list), tool("read_resource", Action::Read, reads)]
    }

    async fn list(&self, words: &str, environment: &CallEnvironment) -> std::result::Result<ToolOutcome, Fault> {
        let resources = |page| ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(page));
        let templates =
            |page| ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest::with_param(page));
        let listed = entries::<Resource>(&self.connection, "resources", resources, environment).await;
        let listed_templates =
            entries::<ResourceTemplate>(&self.connection, "resourceTemplates", templates, environment).await;
        // A server may have only one of the two lists.
        let ((resources, mut problems), (templates, more)) = match (listed, listed_templates) {
            (Ok(resources), templates) => (resources, templates.unwrap_or_default()),
            (Err(fault), Err(_)) => return Err(fault),
            (Err(_), Ok(templates)) => (<(Vec<Resource>, Vec<String>)>::default(), templates),
        };
        problems.extend(more);
        let line = |address: &str, name: &str, mime: Option<&str>, about: Option<&str>| {
            let mime = mime.map(|mime| format!(" ({mime})")).unwrap_or_default();
            let about = excerpt::line(about.unwrap_or_default().trim(), MAX_DESCRIPTION).into_owned();
            let about = if about.is_empty() { about } else { format!(": {about}") };
            clean(&format!("- {address} {name}{mime}{about}")).into_owned()
        };
        let fits = |line: &String| words.is_empty() || line.to_lowercase().contains(&words.to_lowercase());
        let resources = resources
            .iter()
            .map(|found| line(&found.uri, &found.name, found.mime_type.as_deref(), found.description.as_deref()));
        let templates = templates.iter().map(|found| {
            line(&found.uri_template, &found.name, found.mime_type.as_deref(), found.description.as_deref())
        });
        let resources: Vec<_> = resources.filter(fits).collect();
        let templates: Vec<_> = templates.filter(fits).collect();
        let mut text = match resources.is_empty() {
            true => "No resources.".to_owned(),
            false => format!("Resources:\n{}", resources.join("\n")),
        };
        if !templates.is_empty() {
            text.push_str(&format!("\n\nTemplates, whose {{braces}} are to be filled in:\n{}", templates.join("\n")));
        }
        problems.iter().for_each(|problem| text.push_str(&format!("\n\n[{}]", self.connection.redact(problem))));
        Ok(ToolOutcome::text(text))
    }

    async fn read(&self, address: &str, environment: &CallEnvironment) -> std::result::Result<ToolOutcome, Fault> {
        let parameters = ReadResourceRequestParams::new(address);
        let read = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(parameters));
        let answer = request(&self.connection, read, environment).await?;
        match answer.get("contents").and_then(Value::as_array) {
            Some(contents) => Ok(of_resource(contents).await),
            None => {
                let server = &self.connection.name;
                let message = format!("The MCP server {server:?} answered with something that is no resource.");
                Err(Fault::for_model("mcp_error", message))
            }
        }
    }
}

#[async_trait]
impl Tool for ResourceTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> Value {
        match self.action {
            Action::List => json!({ "type": "object", "additionalProperties": false, "properties": {
                "query": { "type": "string", "description": "Only those whose address, name or description has these words." },
            } }),
            Action::Read => {
                json!({ "type": "object", "additionalProperties": false, "required": ["uri"], "properties": {
                "uri": { "type": "string", "description": "The address, as the list has it or made from a template." },
            } })
            }
        }
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let environment = CallEnvironment::of(environment);
        let text = |name: &str| arguments[name].as_str().unwrap_or_default();
        let ended = match self.action {
            Action::List => self.list(text("query").trim(), &environment).await,
            Action::Read => self.read(text("uri"), &environment).await,
        };
        Ok(Fault::into_outcome(ended)?.with_details(json!({ "server": self.connection.name })))
    }
}
