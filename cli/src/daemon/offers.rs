//! What a machine tells its server of itself, for people and for whoever chooses a machine. It is told, not promised: what
//! the machine does is decided here, when it is asked.

use super::pairing::host_name;
use super::settings::Settings;
use crate::Result;
use serde_json::{Value, json};

/// What is offered under these settings.
///
/// # Errors
///
/// The program of an agent of others is not there.
pub(super) async fn of(settings: &Settings, sandbox: &str) -> Result<Value> {
    let mut external = Vec::with_capacity(settings.external.len());
    for agent in &settings.external {
        external.push(agent.offered().await?);
    }
    Ok(json!({
        "host": host_name(),
        "os": std::env::consts::OS,
        "version": env!("CARGO_PKG_VERSION"),
        "kinds": settings.all_kinds(),
        "workspaces": settings.workspaces,
        "sandbox": sandbox,
        "network": settings.network,
        "approve": settings.approve,
        "externalAgents": external,
    }))
}
