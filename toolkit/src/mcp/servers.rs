//! All configured servers: their tools under distinct names, and their problems.

use super::config::McpConfig;
use super::connection::Connection;
use super::listing::tools_of;
use super::names::{distinct, is_exact, tool_name};
use super::resources::ResourceTool;
use super::stand_in::StandIn;
use super::tool::McpTool;
use crate::provider::Registry;
use crate::tools::{Tool, Toolbox};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use rmcp::model::JsonObject;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The shortest time between two lists of a server that says again and again that its tools have changed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// How long after an answer of a server it may come to be heard that its tools have changed: a server may send both at the same
/// time, over different streams.
const LAST_NEWS: Duration = Duration::from_millis(50);

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

/// What is known of the tools of all servers at one moment.
#[derive(Default)]
struct KnownNow {
    tools: Vec<McpTool>,
    /// The tools that servers had once.
    past: Vec<McpTool>,
    problems: Vec<McpProblem>,
    /// The servers that cannot be used and whose tools are not known.
    unknown: Vec<Arc<Connection>>,
    /// Those of which this was so before.
    found_again: Vec<Arc<Connection>>,
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
        self.list().await;
        let KnownNow { tools, problems, .. } = self.known();
        (tools, problems)
    }

    /// Asks all servers at the same time which tools they have.
    pub(crate) async fn list(&self) {
        join_all(self.0.values().map(|connection| tools_of(connection))).await;
    }

    /// What is known of the tools of all servers.
    fn known(&self) -> KnownNow {
        let mut known = KnownNow::default();
        let (mut found, mut past) = (Vec::new(), Vec::new());
        for connection in self.0.values() {
            let now = connection.tool_list.now();
            let problem = |message| McpProblem { server: connection.name.clone(), message };
            known.problems.extend(now.problems.into_iter().map(problem));
            found.extend(now.tools.into_iter().map(|tool| (connection, tool)));
            past.extend(now.past.into_iter().map(|tool| (connection, tool)));
            match now.is_unknown {
                true => known.unknown.push(connection.clone()),
                false if now.had_stand_in => known.found_again.push(connection.clone()),
                false => {}
            }
        }
        // Tools whose names need no change come first, so that none of them loses its name to another.
        found.sort_by_key(|(connection, tool)| !is_exact(&connection.name, &tool.name));
        let mut taken = BTreeSet::new();
        for (connection, tool) in found {
            let server = connection.name.clone();
            let (name, is_renamed) = distinct(&mut taken, &server, &tool.name);
            let mut report = |message| known.problems.push(McpProblem { server: server.clone(), message });
            if is_renamed {
                report(format!("the name of its tool {:?} is taken by another, so it is {name}", tool.name));
            }
            let called = tool.name.clone();
            match McpTool::new(name, tool, connection.clone()) {
                Ok(tool) => known.tools.push(tool),
                Err(why) => report(format!("its tool {called:?} is left out, for {why}")),
            }
        }
        for (connection, tool) in past {
            let name = tool_name(&connection.name, &tool.name);
            if taken.insert(name.clone()) {
                known.past.extend(McpTool::new(name, tool, connection.clone()).ok());
            }
        }
        known.tools.sort_by(|one, other| one.name().cmp(other.name()));
        known
    }

    /// Adds the tools of all servers to a toolbox. A tool that cannot be added is left out, and is one of the problems.
    /// A server that cannot be used has the tools that are [remembered](Self::remember_in); without any there is one
    /// tool, `mcp__server__try_again`, which tries it again. A server with resources also gets
    /// `mcp__server__list_resources` and `mcp__server__read_resource`.
    pub async fn add_to(&self, toolbox: Toolbox) -> (Toolbox, Vec<McpProblem>) {
        self.list().await;
        let (toolbox, problems, _) = self.add(toolbox, self.known());
        (toolbox, problems)
    }

    /// Adds the tools that are known without asking the servers. The names are those of tools that are only there for calls
    /// that were made before: tools that a server does not have any more, and what stood for the tools of one that can be
    /// used again.
    pub(crate) fn add_known_to(&self, toolbox: Toolbox) -> (Toolbox, Vec<McpProblem>, BTreeSet<String>) {
        let mut known = self.known();
        let (past, again) = (std::mem::take(&mut known.past), std::mem::take(&mut known.found_again));
        let (mut toolbox, problems, mut is_taken) = self.add(toolbox, known);
        let mut hidden = BTreeSet::new();
        let again = again.into_iter().map(|connection| Arc::new(StandIn::new(connection)) as Arc<dyn Tool>);
        for tool in past.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).chain(again) {
            let name = tool.name().to_owned();
            if is_taken.insert(name.clone())
                && let Ok(more) = toolbox.clone().with_shared(tool)
            {
                toolbox = more;
                hidden.insert(name);
            }
        }
        (toolbox, problems, hidden)
    }

    fn add(&self, mut toolbox: Toolbox, known: KnownNow) -> (Toolbox, Vec<McpProblem>, BTreeSet<String>) {
        let KnownNow { tools, mut problems, unknown, .. } = known;
        for connection in unknown {
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
        let names = toolbox.names().map(str::to_owned).collect();
        (toolbox, problems, names)
    }

    /// A tool that was asked for by its name, of a server that could not be used when the tools were listed. A call of it
    /// tries the server again. None for a name of no such server; `is_any` takes those of servers that can be used, too.
    pub(crate) fn unlisted(&self, name: &str, is_any: bool) -> Option<McpTool> {
        let unlisted = self.0.values().filter(|connection| is_any || !connection.tool_list.is_listed());
        unlisted.into_iter().find_map(|connection| {
            let tool = name.strip_prefix(&tool_name(&connection.name, "")).filter(|tool| !tool.is_empty())?;
            let listed = rmcp::model::Tool::new(tool.to_owned(), "", JsonObject::new());
            McpTool::new(name.to_owned(), listed, connection.clone()).ok()
        })
    }

    /// Futures that never end: each lists one server again when its tools have changed, and tries it again when it could not
    /// be used. After each list `on_list` is called.
    pub(crate) fn follow(&self, on_list: impl Fn() + Clone + Send + 'static) -> Vec<BoxFuture<'static, ()>> {
        let follow = |connection: &Arc<Connection>| {
            let (connection, on_list) = (connection.clone(), on_list.clone());
            connection.tool_list.set_followed();
            let followed = async move {
                loop {
                    connection.tool_list.is_due().await;
                    let next = Instant::now() + SHORTEST_PAUSE;
                    // What is wrong is one of the problems.
                    let _ = tools_of(&connection).await;
                    on_list();
                    sleep_until(next).await;
                }
            };
            followed.boxed()
        };
        self.0.values().map(follow).collect()
    }

    /// How often the tools of servers have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.0.values().map(|connection| connection.tool_list.changes()).sum()
    }

    /// Resolves when what servers say together with their last answers has arrived.
    pub(crate) async fn said(&self) {
        let last = self.0.values().filter_map(|connection| connection.tool_list.last_answer()).max();
        if let Some(last) = last {
            sleep_until(last + LAST_NEWS).await;
        }
    }

    /// Whether a server has said that its tools have changed, and they are not known yet.
    pub(crate) fn are_coming(&self) -> bool {
        self.0.values().any(|connection| connection.tool_list.is_coming())
    }

    /// What the servers say about the use of their tools, by the servers' names. A server says it when it is connected, so
    /// this is known after [`add_to`](Self::add_to).
    pub fn instructions(&self) -> BTreeMap<String, String> {
        let said =
            |(name, connection): (&String, &Arc<Connection>)| Some((name.clone(), connection.about().instructions?));
        self.0.iter().filter_map(said).collect()
    }

    /// The version of the protocol that is spoken with each server that was connected, by the servers' names.
    pub fn protocol_versions(&self) -> BTreeMap<String, String> {
        let spoken =
            |(name, connection): (&String, &Arc<Connection>)| Some((name.clone(), connection.about().version?));
        self.0.iter().filter_map(spoken).collect()
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
