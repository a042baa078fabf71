//! Hooks of the user's prompt and of the agent's end, for both kinds of chat.

use crate::project::{Hooks, MAX_CONTINUATIONS, PromptVerdict};
use flovyn_toolkit::react::StopReason;
use serde_json::json;
use std::path::PathBuf;

/// The hooks of a chat, and where its turn stands.
pub(super) struct TurnHooks {
    hooks: Hooks,
    directory: PathBuf,
    /// How often hooks have let the agent go on since the user's message.
    continued: u32,
    end: Option<StopReason>,
}

impl TurnHooks {
    /// The hooks of a directory.
    pub(super) fn new(hooks: Hooks, directory: PathBuf) -> Self {
        Self { hooks, directory, continued: 0, end: None }
    }

    /// Asks whether a prompt may be sent: as what, or why not. What fails is told to `note`.
    pub(super) async fn prompt(&mut self, text: &str, note: &mut dyn FnMut(&str)) -> Result<String, String> {
        self.continued = 0;
        match self.hooks.on_prompt(text, &self.directory, note).await {
            PromptVerdict::Send(more) if more.trim().is_empty() => Ok(text.to_owned()),
            PromptVerdict::Send(more) => Ok(format!("{text}\n\n{}", more.trim_end())),
            PromptVerdict::Blocked(why) => Err(format!("a hook does not allow this prompt: {why}")),
        }
    }

    /// Why the agent has stopped.
    pub(super) fn ended(&mut self, reason: StopReason) {
        self.end = Some(reason);
    }

    /// The agent waits: what it is told where a hook wants it to go on.
    pub(super) async fn idle(&mut self, session: &str, note: &mut dyn FnMut(&str)) -> Option<String> {
        // Whoever was stopped by a limit or a person does not go on by a hook.
        if self.end.take() != Some(StopReason::End) || !self.hooks.has_stop() || self.continued >= MAX_CONTINUATIONS {
            return None;
        }
        let input = json!({
            "hook_event_name": "Stop", "session_id": session, "cwd": self.directory,
            "stop_hook_active": self.continued > 0,
        });
        let why = self.hooks.on_stop(&input, &self.directory, note).await?;
        self.continued += 1;
        Some(format!("A hook of the user's says: {why}"))
    }
}
