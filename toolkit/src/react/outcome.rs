//! The result of a run.

use super::ModelChoice;
use flovyn_core::model::UsageTotals;
use serde::{Deserialize, Serialize};

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunOutcome {
    /// The text of the model's last answer.
    pub text: String,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// How many model calls got an answer. Those of compactions do not count.
    pub turns: u32,
    /// The model that has answered last; the chosen one if none has.
    pub model: ModelChoice,
    /// Tokens and cost by `provider/model`.
    pub usage: UsageTotals,
}

/// Why a run, or the answer to one message of a chat, stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model has finished.
    End,
    /// The answer reached the limit of tokens.
    Length,
    /// The model or its provider refused.
    Refusal,
    /// The agent has made as many model calls as it may.
    MaxTurns,
    /// The budget is used up.
    Budget,
    /// The user has interrupted it with a message without content.
    Interrupted,
    /// No model could be asked. This happens only in a chat; a one-shot run fails instead.
    Error,
}
