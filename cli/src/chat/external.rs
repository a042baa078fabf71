//! Sessions with agents of others: what `--agent` names, and how such an agent is served here.

use super::options::Chat;
use crate::{Failed, Result};
use flovyn_toolkit::config::{Approval, Driver, ExternalAgentConfig};
use flovyn_toolkit::react::{AgentInput, Mode, ModelChoice};
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use std::path::Path;

/// The beginning of the kinds of such agents.
const KIND: &str = "external-";
/// The names that need no command, with their kinds.
const NAMES: [(&str, Driver, &[&str]); 3] =
    [("claude", Driver::Claude, &[]), ("codex", Driver::Acp, &["codex-acp"]), ("pi", Driver::Pi, &[])];
/// The kind of a command.
const COMMAND: &str = "external-acp";

/// An agent of others, by the text of `--agent`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExternalAgent(String);

impl ExternalAgent {
    /// What was named.
    pub(super) fn named(text: &str) -> Result<Self> {
        match text.split_whitespace().next() {
            Some(_) => Ok(Self(text.trim().to_owned())),
            None => Err(Failed::Usage("--agent is empty; write pi, claude, codex or a command that speaks ACP".into())),
        }
    }

    /// The text of `--agent`.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// The kind of its runs.
    pub(super) fn kind(&self) -> String {
        let known = NAMES.iter().find(|(name, ..)| *name == self.0);
        known.map_or_else(|| COMMAND.to_owned(), |(name, ..)| format!("{KIND}{name}"))
    }

    /// How it is shown in place of a model.
    pub(super) fn shown(&self, chat: &Chat) -> ModelChoice {
        let model = chat.model.clone().unwrap_or_else(|| "its own model".to_owned());
        ModelChoice { provider: self.0.clone(), model_id: model }
    }

    /// The agent that this process serves.
    pub(super) fn config(&self, directory: &Path, chat: &Chat, approvals: ApprovalPolicy) -> ExternalAgentConfig {
        let known = NAMES.iter().find(|(name, ..)| *name == self.0);
        let (driver, command) = match known {
            Some((_, driver, command)) => (*driver, command.iter().map(|&word| word.to_owned()).collect()),
            None => (Driver::Acp, self.0.split_whitespace().map(str::to_owned).collect()),
        };
        ExternalAgentConfig {
            kind: Some(self.kind()),
            driver,
            command,
            working_directory: Some(directory.to_owned()),
            model: chat.model.clone(),
            approvals: Approval(approvals),
            variables: chat.confinement.variables.iter().cloned().collect(),
            mode: Mode::Chat,
            ..ExternalAgentConfig::default()
        }
    }

    /// The input of its sessions: what such an agent cannot be given is left out.
    pub(super) fn input(input: AgentInput) -> AgentInput {
        AgentInput {
            user_prompt: input.user_prompt,
            user_parts: input.user_parts,
            working_directory: input.working_directory,
            approvals: input.approvals,
            ..AgentInput::default()
        }
    }
}

/// Whether runs of a kind are sessions with agents of others.
pub(super) fn is_external(kind: &str) -> bool {
    kind.starts_with(KIND)
}

/// The kinds of sessions with agents of others.
pub(super) fn kinds() -> impl Iterator<Item = String> {
    NAMES.iter().map(|(name, ..)| format!("{KIND}{name}")).chain([COMMAND.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_command_is_an_agent() {
        let kind = |text: &str| ExternalAgent::named(text).expect("a name").kind();
        assert_eq!(
            (kind("pi"), kind(" claude "), kind("codex")),
            ("external-pi".into(), "external-claude".into(), "external-codex".into())
        );
        assert_eq!(kind("gemini --experimental-acp"), "external-acp");
        assert!(ExternalAgent::named(" ").is_err());
        assert!(kinds().all(|kind| is_external(&kind)) && !is_external("react-agent"));
    }
}
