//! The tools that servers had when they could last be used. With them a server that cannot be used now keeps its tools: models
//! see the same ones, and a run that was in the middle of a call is told what became of it.

use super::config::McpTransport;
use super::connection::Connection;
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What is known of a server.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct KnownTools {
    pub tools: Vec<Tool>,
    /// The tools that the server had once. A run that was in the middle of a call of one goes on with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<Tool>,
    pub has_resources: bool,
}

impl KnownTools {
    /// What is known of a server in a folder.
    pub(super) fn load(folder: &Path, connection: &Connection) -> Option<Self> {
        let text = fs::read(file(folder, connection)).ok()?;
        serde_json::from_slice(&text).ok().filter(|known: &Self| !known.tools.is_empty() || !known.past.is_empty())
    }

    /// Keeps it in a folder. It is only a convenience: where it cannot be written, it is not there the next time.
    pub(super) fn store(&self, folder: &Path, connection: &Connection) {
        let file = file(folder, connection);
        let kept = fs::create_dir_all(folder)
            .and_then(|()| tempfile::NamedTempFile::new_in(folder))
            .and_then(|new| fs::write(new.path(), serde_json::to_vec(self).unwrap_or_default()).map(|()| new))
            .and_then(|new| new.persist(&file).map_err(|error| error.error));
        if let Err(error) = kept {
            tracing::debug!("the tools of the MCP server {:?} are not remembered: {error}", connection.name);
        }
    }
}

/// The file of a server. A server that is configured otherwise is another one. Only a digest of the configuration is in the
/// name, for it may have keys in it.
fn file(folder: &Path, connection: &Connection) -> PathBuf {
    let identity = match &connection.config.transport {
        McpTransport::Stdio { command, args, cwd, .. } => serde_json::json!([connection.name, command, args, cwd]),
        McpTransport::Http { url, .. } => serde_json::json!([connection.name, url.as_str()]),
    };
    let digest = blake3::hash(identity.to_string().as_bytes()).to_hex();
    folder.join(format!("mcp-{}.json", &digest[..16]))
}
