//! The agents of this process, for `chat` and `worker`: the built-in agent with its model calls, host tools and tools
//! of MCP servers.

use super::models::Models;
use super::options::Confinement;
use crate::Result;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::config::{
    Approval, Caches, ExternalAgentConfig, ReactAgentConfig, ToolConfig, ToolHooks, Toolkit, ToolkitConfig,
};
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;

/// The name that stands for all tools: those of the host, and those of the MCP servers that could be started.
const EVERY_TOOL: &str = "*";

/// Where the tools of a process work, and with what rights.
pub(crate) struct WorkerSetup<'a> {
    /// The working directory of tools, unless a run names another.
    pub directory: &'a Path,
    /// Other directories that runs may name.
    pub roots: Vec<PathBuf>,
    /// The URL of the store. The tools keep local records of calls for each store.
    pub store: &'a str,
    /// How commands run.
    pub confinement: Confinement,
    /// MCP servers by their names.
    pub servers: Map<String, Value>,
    /// What a user's own settings say of the tools.
    pub tools: ToolSettings,
    /// The kinds under which the built-in agent is served; its own without any.
    pub kinds: Vec<String>,
    /// What confined commands see of the machine beside programs and where they work; all of it but keys where nothing is said.
    pub readable: Option<Vec<PathBuf>>,
    /// Agents of others.
    pub external: Vec<ExternalAgentConfig>,
}

/// What settings say of tools.
#[derive(Debug, Default)]
pub(crate) struct ToolSettings {
    /// The names and patterns of tools that models are not offered.
    pub without: BTreeSet<String>,
    /// Variables of commands.
    pub env: BTreeMap<String, String>,
    /// Commands around calls.
    pub hooks: ToolHooks,
}

/// The agents that a process serves. They open in the background, since MCP servers may take a while to start.
pub(crate) struct LocalAgents {
    has_servers: bool,
    sandbox: &'static str,
    opening: Option<JoinHandle<flovyn_core::error::Result<Toolkit>>>,
    toolkit: Option<Toolkit>,
}

impl LocalAgents {
    /// Starts to open the agent `react-agent` with all tools of the host and of the servers.
    pub(crate) fn open(setup: WorkerSetup<'_>, models: &Models, approvals: ApprovalPolicy) -> Self {
        let (store, registry) = (setup.store.to_owned(), models.registry());
        let (has_servers, sandbox) = (!setup.servers.is_empty(), setup.confinement.word());
        let description = setup.description(approvals);
        let opening = tokio::spawn(async move { Toolkit::open_with(description, &store, registry).await });
        Self { has_servers, sandbox, opening: Some(opening), toolkit: None }
    }

    /// Waits until it is open. Cancel-safe. It resolves once. A later call waits for ever, so that as a branch of
    /// `select!` it is never chosen again.
    pub(crate) async fn wait_open(&mut self) -> Result<&Toolkit> {
        let Some(opening) = &mut self.opening else { return std::future::pending().await };
        let opened = opening.await;
        self.opening = None;
        let toolkit = opened.map_err(|error| {
            Error::new(Code::AgentFailed, format!("the tools of this process could not be opened: {error}"))
        })??;
        Ok(self.toolkit.insert(toolkit))
    }

    /// Whether there are MCP servers to start.
    pub(crate) fn has_servers(&self) -> bool {
        self.has_servers
    }

    /// What confines commands, for people: a program, `off`, or `none` where commands are refused.
    pub(crate) fn sandbox(&self) -> &'static str {
        self.sandbox
    }

    /// The toolkit, once it is open.
    pub(crate) fn toolkit(&self) -> Option<&Toolkit> {
        self.toolkit.as_ref()
    }

    /// Stops the MCP servers. Close the worker first, since its tasks use them.
    pub(crate) async fn close(self) {
        if let Some(opening) = self.opening {
            opening.abort();
        }
        if let Some(toolkit) = self.toolkit {
            toolkit.close().await;
        }
    }
}

impl WorkerSetup<'_> {
    fn description(self, approvals: ApprovalPolicy) -> ToolkitConfig {
        let usual = ReactAgentConfig {
            tools: vec![ToolConfig::Named(EVERY_TOOL.to_owned())],
            without_tools: self.tools.without,
            approvals: Approval(approvals),
            ..ReactAgentConfig::default()
        };
        let agents = match &self.kinds[..] {
            [] => vec![usual],
            kinds => kinds.iter().map(|kind| ReactAgentConfig { kind: kind.clone(), ..usual.clone() }).collect(),
        };
        ToolkitConfig {
            agents,
            readable: self.readable,
            external_agents: self.external,
            working_directory: Some(self.directory.to_owned()),
            roots: self.roots,
            sandbox: Some(!self.confinement.unsandboxed),
            network: Some(self.confinement.network),
            env: self.tools.env,
            hooks: self.tools.hooks,
            add_dirs: self.confinement.add_dirs,
            variables: self.confinement.variables.into_iter().collect(),
            caches: self.confinement.user_caches.then_some(Caches::User),
            mcp_servers: self.servers,
            ..ToolkitConfig::default()
        }
    }
}
