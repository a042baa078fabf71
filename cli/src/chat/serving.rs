//! What runs agents in this process: the built-in agent, its model calls and the host tools, for `chat` and `worker`.

use super::models::Models;
use super::options::Confinement;
use crate::Result;
use flovyn_core::agent::NativeHost;
use flovyn_toolkit::kit::{Approval, Kit, KitAgent, KitDescription, KitTool};
use flovyn_toolkit::tools::Toolbox;
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
}

/// Makes the host of the kind `react-agent`, with all host tools.
pub async fn host(place: Place<'_>, models: &Models, approvals: ApprovalPolicy) -> Result<Arc<NativeHost>> {
    let tools = Toolbox::host()?.names().map(|name| KitTool::Named(name.to_owned())).collect();
    let description = KitDescription {
        agents: vec![KitAgent { tools, approvals: Approval(approvals), ..KitAgent::default() }],
        working_directory: Some(place.directory.to_owned()),
        roots: place.roots,
        sandbox: Some(!place.confinement.unsandboxed),
        network: Some(place.confinement.network),
        ..KitDescription::default()
    };
    Ok(Kit::open_with(description, place.store, models.registry()).await?.host())
}
