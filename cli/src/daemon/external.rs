//! Agents of others on this computer: what `[[external]]` of the file says of each, and the agent that is served.

use super::invalid;
use super::settings::FILE;
use crate::Result;
use flovyn_toolkit::config::{Approval, Driver, ExternalAgentConfig};
use flovyn_toolkit::external::Launch;
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

/// An agent of others. It runs with all rights of the daemon's user; what it asks permission for is decided as for tools.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct External {
    /// How its protocol is spoken: `pi`, `claude` or `acp`.
    pub driver: Driver,
    /// The program and its arguments; `acp` needs them, the others have a program of their own.
    #[serde(default)]
    pub command: Vec<String>,
    /// The kind of its runs; `external-DRIVER` unless given.
    pub kind: Option<String>,
    /// The model that it asks, in its own words.
    pub model: Option<String>,
    /// Variables of the daemon that it sees beside the usual ones; `NAME*` for several.
    #[serde(default)]
    pub env: Vec<String>,
}

impl External {
    /// The kind of its runs.
    pub(super) fn kind(&self) -> String {
        self.kind.clone().unwrap_or_else(|| format!("external-{}", self.driver.name()))
    }

    fn program(&self) -> &str {
        self.command.first().map_or(self.driver.name(), String::as_str)
    }

    /// What the worker serves.
    pub(super) fn config(&self, directory: &Path, approvals: &ApprovalPolicy) -> ExternalAgentConfig {
        ExternalAgentConfig {
            kind: Some(self.kind()),
            driver: self.driver,
            command: self.command.clone(),
            working_directory: Some(directory.to_owned()),
            model: self.model.clone(),
            approvals: Approval(approvals.clone()),
            variables: self.env.iter().cloned().collect(),
            ..ExternalAgentConfig::default()
        }
    }

    /// What the server is told of it, where it works in this directory.
    ///
    /// # Errors
    ///
    /// Its program is not there.
    pub(super) async fn offered(&self, directory: &Path) -> Result<Value> {
        let (program, directory) = (self.program().to_owned(), directory.to_owned());
        let launch = Launch { program, directory, ..Launch::default() };
        launch.find().map_err(|error| invalid(format!("external in {FILE}: {}", error.message())))?;
        // What follows the name of an interpreter would be left out, and its version is not the agent's.
        let version = if self.command.len() > 1 { None } else { launch.version().await };
        Ok(json!({ "kind": self.kind(), "program": self.program(), "version": version }))
    }
}
