//! What runs agents in this process: the built-in agent, its model calls, the host tools and those of MCP servers, for
//! `chat` and `worker`.

use super::models::Models;
use super::options::Confinement;
use crate::Result;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::kit::{Approval, Kit, KitAgent, KitDescription, KitTool};
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;

/// All tools there are: those of the host, and of the servers that could be asked.
const EVERY_TOOL: &str = "*";

/// Where a process works, and with what rights.
pub struct Place<'a> {
    /// Where tools work unless a run says otherwise.
    pub directory: &'a Path,
    /// Other directories that runs may name.
    pub roots: Vec<PathBuf>,
    /// The URL of the store, to which the records of calls belong.
    pub store: &'a str,
    /// How commands run.
    pub confinement: Confinement,
    /// MCP servers by their names.
    pub servers: Map<String, Value>,
}

/// What a process serves, opened beside a conversation: MCP servers may take a while to start.
pub struct Serving {
    has_servers: bool,
    opening: Option<JoinHandle<flovyn_core::error::Result<Kit>>>,
    kit: Option<Kit>,
}

impl Serving {
    /// Begins to open what serves the kind `react-agent`, with all tools of the host and of the servers.
    pub fn open(place: Place<'_>, models: &Models, approvals: ApprovalPolicy) -> Self {
        let (store, registry) = (place.store.to_owned(), models.registry());
        let has_servers = !place.servers.is_empty();
        let description = place.description(approvals);
        let opening = tokio::spawn(async move { Kit::open_with(description, &store, registry).await });
        Self { has_servers, opening: Some(opening), kit: None }
    }

    /// Waits until it is open, once: never ends where it was known to be open before. Whoever drops the future loses nothing.
    pub async fn opened(&mut self) -> Result<&Kit> {
        let Some(opening) = &mut self.opening else { return std::future::pending().await };
        let opened = opening.await;
        self.opening = None;
        let kit = opened.map_err(|error| {
            Error::new(Code::AgentFailed, format!("the tools of this process could not be opened: {error}"))
        })??;
        Ok(self.kit.insert(kit))
    }

    /// Whether there are MCP servers to start.
    pub fn has_servers(&self) -> bool {
        self.has_servers
    }

    /// What is served, once it is open.
    pub fn kit(&self) -> Option<&Kit> {
        self.kit.as_ref()
    }

    /// Ends the servers that were started. Whoever works with them has ended before.
    pub async fn close(self) {
        if let Some(opening) = self.opening {
            opening.abort();
        }
        if let Some(kit) = self.kit {
            kit.close().await;
        }
    }
}

impl Place<'_> {
    fn description(self, approvals: ApprovalPolicy) -> KitDescription {
        let tools = vec![KitTool::Named(EVERY_TOOL.to_owned())];
        KitDescription {
            agents: vec![KitAgent { tools, approvals: Approval(approvals), ..KitAgent::default() }],
            working_directory: Some(self.directory.to_owned()),
            roots: self.roots,
            sandbox: Some(!self.confinement.unsandboxed),
            network: Some(self.confinement.network),
            mcp_servers: self.servers,
            ..KitDescription::default()
        }
    }
}
