//! What a machine tells its server of itself, for people and for whoever chooses a machine. It is told, not promised: what
//! the machine does is decided here, when it is asked.

use super::settings::Settings;
use crate::Result;
use flovyn_core::runtime::daemon;
use serde_json::{Value, json};
use std::path::Path;

/// What is offered under these settings, where agents of others work in this directory.
///
/// # Errors
///
/// The program of an agent of others is not there.
pub(super) async fn of(settings: &Settings, directory: &Path, sandbox: &str) -> Result<Value> {
    let mut external = Vec::with_capacity(settings.external.len());
    for agent in &settings.external {
        external.push(agent.offered(directory).await?);
    }
    let mut offers = daemon::offers(env!("CARGO_PKG_VERSION"), &settings.all_kinds(), &settings.workspaces);
    offers["sandbox"] = json!(sandbox);
    offers["network"] = json!(settings.network);
    offers["approve"] = json!(settings.approve);
    offers["externalAgents"] = json!(external);
    Ok(offers)
}
