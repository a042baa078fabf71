//! What a run ends with.

use super::ModelChoice;
use flovyn_core::model::UsageTotals;
use serde::{Deserialize, Serialize};

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunOutcome {
    /// The model's last words.
    pub text: String,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// Model calls that got an answer, without those of compactions.
    pub turns: u32,
    /// The model that spoke last.
    pub model: ModelChoice,
    /// Tokens and cost by `provider/model`.
    pub usage: UsageTotals,
}

/// Why a run, or the answer to one message of a chat, stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model has said what it had to say.
    End,
    /// The answer reached the limit of tokens.
    Length,
    /// The model or its provider refused.
    Refusal,
    /// The agent has made as many model calls as it may.
    MaxTurns,
    /// What the run may use is used up.
    Budget,
    /// The user ended it, and said nothing more.
    Interrupted,
    /// The model could not be asked; only in a chat, a one-shot run fails.
    Error,
}
