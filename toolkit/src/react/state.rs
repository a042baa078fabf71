//! What the agent's checkpoints save: small and of constant size, however long the conversation.

use super::{AgentInput, Ledger, ModelChoice, UserMessage};
use crate::provider::ThinkingLevel;
use crate::tools::FilesSeen;
use flovyn_core::agent::AgentState;
use flovyn_core::model::UsageTotals;
use serde::{Deserialize, Serialize};

/// Where a run stands between two turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, AgentState)]
#[serde(rename_all = "camelCase", default)]
pub struct ReactState {
    /// What comes next.
    pub phase: Phase,
    /// Model calls that got an answer.
    pub turn: u32,
    /// Of them, those since the user's last word.
    pub since_user: u32,
    /// The model that is asked.
    pub model: ModelChoice,
    /// How long it thinks.
    pub thinking: ThinkingLevel,
    /// The digest of the tools that the model was told of last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<String>,
    /// Tokens and cost by `provider/model`.
    pub usage: UsageTotals,
    /// Messages that wait until the model has nothing left to do.
    pub queue: Vec<UserMessage>,
    /// The content of the files that the model has seen.
    pub seen: FilesSeen,
    /// The window of the model that answered last, in tokens, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How much of the window the conversation fills, in tokens: as the provider said after the last answer, and an estimate
    /// of what has come since.
    pub context_tokens: u64,
    /// What was used of the budget.
    pub ledger: Ledger,
}

/// What comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing was done yet.
    #[default]
    New,
    /// The model is to be asked.
    Working,
    /// The user is to speak.
    WaitingForInput,
}

impl ReactState {
    /// Takes over what a run was started with.
    pub(super) fn begin(&mut self, input: &AgentInput) {
        self.model = input.model.clone();
        self.thinking = input.config.thinking;
    }

    /// Takes a message of the user.
    pub(super) fn add_user_message(&mut self, message: &UserMessage) {
        self.since_user = 0;
        self.choose(message);
    }

    /// Takes what a message chooses: the model, and how long that thinks from here on.
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
