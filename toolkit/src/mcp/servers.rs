//! All configured servers: their tools under distinct names, and their problems.

use super::config::McpConfig;
use super::connection::{Connection, LiveConnection};
use super::names::{distinct, is_exact};
use super::tool::McpTool;
use crate::tools::Toolbox;
use futures::future::join_all;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
use rmcp::service::ServiceError;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use tokio::time::timeout;

/// How many tools one server may have.
const MAX_TOOLS: usize = 2_000;

/// MCP servers and the connections to them. Cheap to clone. When the last clone and the last of the tools are dropped,
/// the connections are closed and the processes that were started for them end.
#[derive(Clone, Default)]
pub struct McpServers(Arc<BTreeMap<String, Arc<Connection>>>);

/// What is wrong with a server or with one of its tools. The others can still be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpProblem {
    /// The server's name in the configuration.
    pub server: String,
    /// What is wrong, and what was done about it.
    pub message: String,
}

impl fmt::Display for McpProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the MCP server {:?}: {}", self.server, self.message)
    }
}

impl McpServers {
    /// The servers of a configuration. No connection is made yet.
    pub fn new(config: McpConfig) -> Self {
        let connect = |(name, server): (String, _)| (name.clone(), Arc::new(Connection::new(name, server)));
        Self(Arc::new(config.servers.into_iter().map(connect).collect()))
    }

    /// The servers' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Asks all servers at the same time which tools they have. The same servers and tools always get the same names.
    pub async fn tools(&self) -> (Vec<McpTool>, Vec<McpProblem>) {
        let lists =
            join_all(self.0.values().map(|connection| async move { (connection, list(connection).await) })).await;
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for (connection, listed) in lists {
            match listed {
                Ok((tools, messages)) => {
                    found.extend(tools.into_iter().map(|tool| (connection, tool)));
                    let listed_problems =
                        messages.into_iter().map(|message| McpProblem { server: connection.name.clone(), message });
                    problems.extend(listed_problems);
                }
                Err(message) => problems.push(McpProblem { server: connection.name.clone(), message }),
            }
        }
        // Tools whose names need no change come first, so that none of them loses its name to another.
        found.sort_by_key(|(connection, tool)| !is_exact(&connection.name, &tool.name));
        let mut taken = BTreeSet::new();
        let mut tools = Vec::with_capacity(found.len());
        for (connection, tool) in found {
            let server = connection.name.clone();
            let (name, is_renamed) = distinct(&mut taken, &server, &tool.name);
            if is_renamed {
                let message = format!("the name of its tool {:?} is taken by another, so it is {name}", tool.name);
                problems.push(McpProblem { server, message });
            }
            tools.push(McpTool::new(name, tool, connection.clone()));
        }
        tools.sort_by(|one, other| crate::tools::Tool::name(one).cmp(crate::tools::Tool::name(other)));
        (tools, problems)
    }

    /// Adds the tools of all servers to a toolbox. A tool that cannot be added is left out, and is one of the problems.
    pub async fn add_to(&self, mut toolbox: Toolbox) -> (Toolbox, Vec<McpProblem>) {
        let (tools, mut problems) = self.tools().await;
        for tool in tools {
            let server = tool.server().to_owned();
            match toolbox.clone().with(tool) {
                Ok(more) => toolbox = more,
                Err(error) => {
                    problems.push(McpProblem { server, message: format!("a tool is left out: {}", error.message()) });
                }
            }
        }
        (toolbox, problems)
    }

    /// Closes all connections, and waits until the servers that were started have ended. A later call starts them
    /// again.
    pub async fn close(&self) {
        join_all(self.0.values().map(|connection| connection.close())).await;
    }

    pub(super) fn connection(&self, name: &str) -> Option<Arc<Connection>> {
        self.0.get(name).cloned()
    }
}

/// All tools of a server, from all pages of its list, and the problems of tools that cannot be used.
async fn list(connection: &Connection) -> Result<(Vec<rmcp::model::Tool>, Vec<String>), String> {
    let live = connection.live().await.map_err(|unavailable| unavailable.why)?;
    let (mut tools, mut problems): (Vec<rmcp::model::Tool>, Vec<String>) = Default::default();
    let (mut names, mut cursors) = (BTreeSet::new(), BTreeSet::new());
    let mut cursor = None;
    loop {
        let page = match timeout(connection.config.timeout, page(&live, cursor)).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => {
                return Err(format!("it did not list its tools: {}", connection.describe_failure(&error, &live).await));
            }
            Err(_) => return Err(format!("it did not list its tools within {:?}", connection.config.timeout)),
        };
        problems.extend(page.problems.iter().map(|problem| connection.redact(problem)));
        // A tool that is listed twice is added once.
        tools.extend(page.tools.into_iter().filter(|tool| names.insert(tool.name.clone())));
        if tools.len() > MAX_TOOLS {
            return Err(format!("it lists more than {MAX_TOOLS} tools"));
        }
        cursor = page.next.filter(|next| !next.is_empty());
        match &cursor {
            None => return Ok((tools, problems)),
            Some(next) if !cursors.insert(next.clone()) => {
                problems.push(
                    "its list of tools does not end: a page comes again, and what is behind it is not known".into(),
                );
                return Ok((tools, problems));
            }
            Some(_) => {}
        }
    }
}

struct Page {
    tools: Vec<rmcp::model::Tool>,
    problems: Vec<String>,
    next: Option<String>,
}

async fn page(live: &LiveConnection, cursor: Option<String>) -> Result<Page, ServiceError> {
    let parameters = PaginatedRequestParams::default().with_cursor(cursor);
    match live.peer().list_tools(Some(parameters.clone())).await {
        Ok(page) => Ok(Page { tools: page.tools, problems: Vec::new(), next: page.next_cursor }),
        // One invalid tool makes the library reject the whole list; the other tools can still be used.
        Err(ServiceError::UnexpectedResponse) => {
            let request = ListToolsRequest::with_param(parameters);
            let answer = live.peer().send_request(ClientRequest::ListToolsRequest(request)).await?;
            let answer = serde_json::to_value(answer).unwrap_or_default();
            lenient_page(&answer).ok_or(ServiceError::UnexpectedResponse)
        }
        Err(error) => Err(error),
    }
}

fn lenient_page(answer: &Value) -> Option<Page> {
    let next = answer.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
    let mut page = Page { tools: Vec::new(), problems: Vec::new(), next };
    for listed in answer.get("tools")?.as_array()? {
        let mut repaired = listed.clone();
        // Some servers list tools without parameters like this.
        if let Some(fields) =
            repaired.as_object_mut().filter(|fields| fields.get("inputSchema").is_none_or(Value::is_null))
        {
            fields.insert("inputSchema".into(), json!({ "type": "object" }));
        }
        match serde_json::from_value(repaired) {
            Ok(tool) => page.tools.push(tool),
            Err(error) => {
                let name = listed.get("name").and_then(Value::as_str).unwrap_or_default();
                page.problems.push(format!("its tool {name:?} is left out, for it cannot be read: {error}"));
            }
        }
    }
    Some(page)
}
