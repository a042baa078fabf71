//! What a machine tells its server of itself, for people and for whoever chooses a machine. It is told, not promised: what
//! the machine does is decided here, when it is asked.

use super::pairing::host_name;
use super::settings::Settings;
use serde_json::{Value, json};

/// Agents of others that are looked for.
const EXTERNAL: [&str; 5] = ["claude", "codex", "gemini", "opencode", "pi"];

/// What is offered under these settings.
pub(super) fn of(settings: &Settings, sandbox: &str) -> Value {
    json!({
        "host": host_name(),
        "os": std::env::consts::OS,
        "version": env!("CARGO_PKG_VERSION"),
        "kinds": settings.kinds,
        "workspaces": settings.workspaces,
        "sandbox": sandbox,
        "network": settings.network,
        "approve": settings.approve,
        "externalAgents": external(),
    })
}

/// The agents of others on PATH, by the names of their programs.
fn external() -> Vec<&'static str> {
    let Some(path) = std::env::var_os("PATH") else { return Vec::new() };
    let there = |name: &&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    EXTERNAL.into_iter().filter(there).collect()
}
