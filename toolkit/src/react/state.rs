//! The state that the agent's checkpoints save. It holds no messages, so it stays small however long the conversation
//! gets.

use super::{AgentInput, Ledger, ModelChoice, UserMessage};
use crate::provider::ThinkingLevel;
use crate::tools::FilesSeen;
use flovyn_core::agent::AgentState;
use flovyn_core::model::UsageTotals;
use serde::{Deserialize, Serialize};

/// The state of a run between two turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, AgentState)]
#[serde(rename_all = "camelCase", default)]
pub struct ReactState {
    /// What the run does next.
    pub phase: Phase,
    /// How many model calls got an answer.
    pub turn: u32,
    /// How many of them came after the last message of the user.
    pub since_user: u32,
    /// The model that is asked.
    pub model: ModelChoice,
    /// The model that has answered last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<ModelChoice>,
    /// How long the model thinks.
    pub thinking: ThinkingLevel,
    /// The digest of the tools that were offered to the model last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<String>,
    /// Tokens and cost by `provider/model`.
    pub usage: UsageTotals,
    /// Messages that are delivered when the model has finished.
    pub queue: Vec<UserMessage>,
    /// Which contents of files the model has seen.
    pub seen: FilesSeen,
    /// The window of the model that has answered last, in tokens, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How many tokens of the window the conversation fills: the number that the provider gave with the last answer,
    /// and an estimate for what has come since.
    pub context_tokens: u64,
    /// How much of the budget was used.
    pub ledger: Ledger,
}

/// What a run does next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It begins: nothing was done yet.
    #[default]
    New,
    /// It asks the model.
    Working,
    /// It waits for a message of the user.
    WaitingForInput,
}

impl ReactState {
    /// Takes over the input of a run.
    pub(super) fn begin(&mut self, input: &AgentInput) {
        self.model = input.model.clone();
        self.thinking = input.config.thinking;
    }

    /// Takes note of a message of the user.
    pub(super) fn add_user_message(&mut self, message: &UserMessage) {
        self.since_user = 0;
        self.choose(message);
    }

    /// Takes over the model and the level of thinking that a message chooses.
    pub(super) fn choose(&mut self, message: &UserMessage) {
        if let Some(model) = &message.model {
            self.model = model.clone();
            self.window = None;
        }
        if let Some(thinking) = message.thinking {
            self.thinking = thinking;
        }
    }
}
