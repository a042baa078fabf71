//! All configured servers: what tools they list, under names that stay apart, and what is wrong with which.

use super::config::McpConfig;
use super::connection::Connection;
use super::names::{distinct, is_exact};
use super::tool::McpTool;
use crate::tools::Toolbox;
use futures::future::join_all;
use rmcp::model::PaginatedRequestParams;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use tokio::time::timeout;

/// The most tools of one server.
const MOST_TOOLS: usize = 2_000;

/// MCP servers, and the connections to them. Cheap to clone; when the last clone and the last of its tools are gone, the
/// connections end, and with them the processes that were started.
#[derive(Clone, Default)]
pub struct McpServers(Arc<BTreeMap<String, Arc<Connection>>>);

/// What is wrong with a server, or with one of its tools; the others are not concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpProblem {
    /// The server's name in the configuration.
    pub server: String,
    /// What is wrong, and what became of it.
    pub message: String,
}

impl fmt::Display for McpProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the MCP server {:?}: {}", self.server, self.message)
    }
}

impl McpServers {
    /// The servers of a configuration. None is connected to yet.
    pub fn new(config: McpConfig) -> Self {
        let connect = |(name, server): (String, _)| (name.clone(), Arc::new(Connection::new(name, server)));
        Self(Arc::new(config.servers.into_iter().map(connect).collect()))
    }

    /// The servers' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Asks all servers, side by side, what tools they have. The names are the same for the same servers and tools.
    pub async fn tools(&self) -> (Vec<McpTool>, Vec<McpProblem>) {
        let lists =
            join_all(self.0.values().map(|connection| async move { (connection, list(connection).await) })).await;
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for (connection, listed) in lists {
            match listed {
                Ok(tools) => found.extend(tools.into_iter().map(|tool| (connection, tool))),
                Err(message) => problems.push(McpProblem { server: connection.name.clone(), message }),
            }
        }
        // Those whose names fit as they are come first, so that none of them loses its name to another.
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

    /// Adds the tools of all servers to a toolbox. What cannot be added is left out and told.
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

    /// Ends all connections and waits for the servers that were started. A later call starts them again.
    pub async fn close(&self) {
        join_all(self.0.values().map(|connection| connection.close())).await;
    }

    pub(super) fn connection(&self, name: &str) -> Option<Arc<Connection>> {
        self.0.get(name).cloned()
    }
}

/// All tools of a server, page after page.
async fn list(connection: &Connection) -> Result<Vec<rmcp::model::Tool>, String> {
    let live = connection.live().await.map_err(|unavailable| unavailable.why)?;
    let (mut tools, mut cursors) = (Vec::new(), BTreeSet::new());
    let mut cursor = None;
    loop {
        let asked = live.peer().list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor)));
        let page = match timeout(connection.config.timeout, asked).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => {
                return Err(format!("it did not list its tools: {}", connection.tell_failure(&error, &live).await));
            }
            Err(_) => return Err(format!("it did not list its tools within {:?}", connection.config.timeout)),
        };
        tools.extend(page.tools);
        if tools.len() > MOST_TOOLS {
            return Err(format!("it lists more than {MOST_TOOLS} tools"));
        }
        cursor = page.next_cursor;
        match &cursor {
            None => return Ok(tools),
            Some(next) if !cursors.insert(next.clone()) => {
                return Err("its list of tools does not end: a page comes again".into());
            }
            Some(_) => {}
        }
    }
}
