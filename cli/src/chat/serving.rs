//! What runs agents in this process: the built-in agent, its model calls and the host tools, for `chat` and `worker`.

use super::models::Models;
use super::options::Confinement;
use crate::Result;
use flovyn_core::agent::NativeHost;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::react::{LlmGenerate, ReactAgent};
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use flovyn_toolkit::tools::{CallRecords, Sandbox, ToolEnvironment, ToolHost, ToolTask, Toolbox};
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

/// Makes the host of the kind `react-agent`.
pub fn host(place: Place<'_>, models: &Models, approvals: ApprovalPolicy) -> Result<Arc<NativeHost>> {
    let sandbox = if place.confinement.unsandboxed { Sandbox::Off } else { Sandbox::Required };
    let environment =
        ToolEnvironment::open(place.directory)?.with_sandbox(sandbox).with_network(place.confinement.network);
    let tools = ToolHost::new(environment, CallRecords::open(records(place.store)?)?).with_roots(place.roots)?;
    let toolbox = Toolbox::host()?;
    let agent = ReactAgent::new().with_approvals(approvals).with_toolbox(&toolbox)?;
    let host = NativeHost::default().agent(agent)?.task(LlmGenerate::new(models.registry()))?;
    let host = ToolTask::all(&toolbox, &tools).into_iter().try_fold(host, NativeHost::task)?;
    Ok(Arc::new(host))
}

/// Flovyn's folder of this user: `FLOVYN_HOME`, else `~/.flovyn`.
pub fn home() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("FLOVYN_HOME").or_else(|| variable("HOME").map(|home| home.join(".flovyn")));
    Ok(home.ok_or_else(|| {
        Error::new(Code::InvalidArgument, "neither FLOVYN_HOME nor HOME is set; set FLOVYN_HOME to a folder for Flovyn")
    })?)
}

/// The folder for records of calls that belongs to a store.
fn records(store: &str) -> Result<PathBuf> {
    let name = blake3::hash(store.as_bytes()).to_hex();
    Ok(home()?.join("records").join(&name[..16]))
}
