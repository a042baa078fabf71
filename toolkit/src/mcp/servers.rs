//! All configured servers: their tools under distinct names, and their problems.

use super::config::McpConfig;
use super::connection::Connection;
use super::listing::tools_of;
use super::names::{distinct, is_exact, tool_name};
use super::resources::ResourceTool;
use super::stand_in::StandIn;
use super::tool::McpTool;
use crate::provider::Registry;
use crate::tools::Toolbox;
use futures::future::join_all;
use rmcp::model::JsonObject;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
        let (tools, problems, _) = self.list().await;
        (tools, problems)
    }

    /// The tools, the problems, and the servers that could not be used.
    async fn list(&self) -> (Vec<McpTool>, Vec<McpProblem>, Vec<Arc<Connection>>) {
        let lists =
            join_all(self.0.values().map(|connection| async move { (connection, tools_of(connection).await) })).await;
        let (mut found, mut problems, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (connection, listed) in lists {
            match listed {
                Ok((tools, messages)) => {
                    connection.remember(&tools);
                    found.extend(tools.into_iter().map(|tool| (connection, tool)));
                    let listed_problems =
                        messages.into_iter().map(|message| McpProblem { server: connection.name.clone(), message });
                    problems.extend(listed_problems);
                }
                Err(mut message) => {
                    let known = connection.remembered();
                    if known.is_empty() {
                        failed.push(connection.clone());
                    } else {
                        message.push_str(". Its tools are those that it had the last time");
                    }
                    found.extend(known.into_iter().map(|tool| (connection, tool)));
                    problems.push(McpProblem { server: connection.name.clone(), message });
                }
            }
        }
        // Tools whose names need no change come first, so that none of them loses its name to another.
        found.sort_by_key(|(connection, tool)| !is_exact(&connection.name, &tool.name));
        let mut taken = BTreeSet::new();
        let mut tools = Vec::with_capacity(found.len());
        for (connection, tool) in found {
            let server = connection.name.clone();
            let (name, is_renamed) = distinct(&mut taken, &server, &tool.name);
            let mut report = |message| problems.push(McpProblem { server: server.clone(), message });
            if is_renamed {
                report(format!("the name of its tool {:?} is taken by another, so it is {name}", tool.name));
            }
            let called = tool.name.clone();
            match McpTool::new(name, tool, connection.clone()) {
                Ok(tool) => tools.push(tool),
                Err(why) => report(format!("its tool {called:?} is left out, for {why}")),
            }
        }
        tools.sort_by(|one, other| crate::tools::Tool::name(one).cmp(crate::tools::Tool::name(other)));
        (tools, problems, failed)
    }

    /// Adds the tools of all servers to a toolbox. A tool that cannot be added is left out, and is one of the problems.
    /// A server that cannot be used has the tools that are [remembered](Self::remember_in); without any there is one tool, `mcp__server__try_again`, which tries it again. A server with
    /// resources also gets `mcp__server__list_resources` and `mcp__server__read_resource`.
    pub async fn add_to(&self, mut toolbox: Toolbox) -> (Toolbox, Vec<McpProblem>) {
        let (tools, mut problems, failed) = self.list().await;
        for connection in failed {
            let server = connection.name.clone();
            match toolbox.clone().with(StandIn::new(connection)) {
                Ok(more) => toolbox = more,
                Err(error) => {
                    problems.push(McpProblem { server, message: format!("it is left out: {}", error.message()) });
                }
            }
        }
        for tool in tools {
            let server = tool.server().to_owned();
            match toolbox.clone().with(tool) {
                Ok(more) => toolbox = more,
                Err(error) => {
                    problems.push(McpProblem { server, message: format!("a tool is left out: {}", error.message()) });
                }
            }
        }
        for connection in self.0.values().filter(|connection| connection.about().has_resources) {
            // A server that has tools of these names has its own way to its resources.
            for tool in ResourceTool::all(connection) {
                toolbox = toolbox.clone().with(tool).unwrap_or(toolbox);
            }
        }
        (toolbox, problems)
    }

    /// A tool that was asked for by its name, of a server that could not be used when the tools were listed. A call of it
    /// tries the server again. None for a name of no such server.
    pub(crate) fn unlisted(&self, name: &str) -> Option<McpTool> {
        let unlisted = self.0.values().filter(|connection| !connection.is_listed.load(Ordering::Relaxed));
        unlisted.into_iter().find_map(|connection| {
            let tool = name.strip_prefix(&tool_name(&connection.name, "")).filter(|tool| !tool.is_empty())?;
            let listed = rmcp::model::Tool::new(tool.to_owned(), "", JsonObject::new());
            McpTool::new(name.to_owned(), listed, connection.clone()).ok()
        })
    }

    /// What the servers say about the use of their tools, by the servers' names. A server says it when it is connected, so
    /// this is known after [`add_to`](Self::add_to).
    pub fn instructions(&self) -> BTreeMap<String, String> {
        let said =
            |(name, connection): (&String, &Arc<Connection>)| Some((name.clone(), connection.about().instructions?));
        self.0.iter().filter_map(said).collect()
    }

    /// Sets the directories that servers are told of when they ask: those where the tools of runs work. Servers that are
    /// connected learn that they have changed. A server that is connected while there are none is not told that it may ask.
    pub async fn set_roots(&self, roots: &[PathBuf]) {
        join_all(self.0.values().map(|connection| connection.set_roots(roots))).await;
    }

    /// Remembers the tools of servers in a folder. A server that cannot be used has those that it had the last time.
    pub fn remember_in(&self, folder: &Path) {
        self.0.values().for_each(|connection| connection.remember_in(folder));
    }

    /// Sets the models that servers may ask, as far as their configuration allows it.
    pub fn set_models(&self, models: &Arc<Registry>) {
        self.0.values().filter_map(|connection| connection.sampler()).for_each(|sampler| sampler.set_models(models));
    }

    /// Closes all connections, and waits until the servers that were started have ended. A later call starts them
    /// again.
    pub async fn close(&self) {
        join_all(self.0.values().map(|connection| connection.close())).await;
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.0.values()
    }

    pub(super) fn connection(&self, name: &str) -> Option<Arc<Connection>> {
        self.0.get(name).cloned()
    }
}
