//! External agents of a configuration.

use super::schema::{Approval, ToolkitConfig};
use crate::external::{Acp, Claude, ExternalAgent, Pi};
use crate::react::{Budget, Mode};
use flovyn_core::error::{Code, Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// An external agent, which is served with its task. Its `Debug` form shows no values of variables.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExternalAgentConfig {
    /// The name under which runs are recorded; `external-DRIVER` unless given.
    pub kind: Option<String>,
    /// How its protocol is spoken.
    pub driver: Driver,
    /// The program and its arguments. `acp` needs them; the others have a program of their own.
    pub command: Vec<String>,
    /// Where it works; where the tools of the kit do unless given.
    pub working_directory: Option<PathBuf>,
    /// The model that it asks, in its own words.
    pub model: Option<String>,
    /// What answers what it asks permission for.
    pub approvals: Approval,
    /// Variables that it gets.
    pub env: BTreeMap<String, String>,
    /// Variables of this process that it sees beside the usual ones; `NAME*` stands for all that begin so.
    pub variables: BTreeSet<String>,
    /// What happens after a turn.
    pub mode: Mode,
    /// What a run may use.
    pub budget: Option<Budget>,
    /// How many seconds it may be silent while it works; 600 unless given.
    pub inactivity: Option<f64>,
    /// How many seconds it may take until it speaks its protocol; 60 unless given.
    pub start_timeout: Option<f64>,
}

/// How the protocol of an external agent is spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// The Agent Client Protocol.
    #[default]
    Acp,
    /// Claude Code's stream of JSON messages.
    Claude,
    /// Pi's RPC mode.
    Pi,
}

impl Driver {
    /// Its name in configurations, which is the usual program's as well.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acp => "acp",
            Self::Claude => "claude",
            Self::Pi => "pi",
        }
    }
}

impl fmt::Debug for ExternalAgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAgentConfig")
            .field("kind", &self.kind)
            .field("driver", &self.driver)
            .field("command", &self.command)
            .field("working_directory", &self.working_directory)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl ExternalAgentConfig {
    /// The agent that it describes.
    pub(super) fn agent(&self, toolkit: &ToolkitConfig) -> Result<ExternalAgent> {
        let refuse =
            |why: String| Error::new(Code::InvalidArgument, format!("an external agent cannot be used: {why}"));
        let directory = self.working_directory.clone().unwrap_or_else(|| toolkit.directory());
        let environment = toolkit.environment(&directory)?;
        self.approvals.0.compile()?;
        let (program, args) = match (self.command.split_first(), self.driver) {
            (Some((program, args)), _) => (program.clone(), args.to_vec()),
            (None, Driver::Acp) => {
                return Err(refuse("the driver \"acp\" needs a command, such as [\"codex-acp\"]".to_owned()));
            }
            (None, driver) => (driver.name().to_owned(), Vec::new()),
        };
        let mut agent = match self.driver {
            Driver::Acp => ExternalAgent::custom(Acp::new(program, args), directory),
            Driver::Claude => ExternalAgent::custom(Claude::new(program, args), directory),
            Driver::Pi => ExternalAgent::custom(Pi::new(program, args), directory),
        };
        agent = agent.with_environment(environment).with_approvals(self.approvals.0.clone()).with_mode(self.mode);
        if let Some(kind) = &self.kind {
            agent = agent.named(kind);
        }
        if let Some(model) = &self.model {
            agent = agent.with_model(model);
        }
        if let Some(budget) = &self.budget {
            agent = agent.with_budget(budget.clone());
        }
        let seconds = |name: &str, given: f64| {
            let limit = Duration::try_from_secs_f64(given).ok().filter(|limit| !limit.is_zero());
            limit.ok_or_else(|| refuse(format!("{name} is {given}; give a number of seconds above 0")))
        };
        if let Some(given) = self.inactivity {
            agent = agent.with_inactivity(seconds("inactivity", given)?);
        }
        if let Some(given) = self.start_timeout {
            agent = agent.with_start_timeout(seconds("startTimeout", given)?);
        }
        let agent = self.variables.iter().fold(agent, ExternalAgent::with_variable);
        Ok(self.env.iter().fold(agent, |agent, (name, value)| agent.with_value(name, value)))
    }
}
