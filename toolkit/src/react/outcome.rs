//! The result of a run.

use super::ModelChoice;
use flovyn_core::Payload;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::UsageTotals;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// The answer as a value of the form that the run was given; none if it was given none, or has stopped before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

impl RunOutcome {
    /// Reads the answer of a run with an [`OutputSpec`](super::OutputSpec).
    ///
    /// # Errors
    ///
    /// The run has stopped without such an answer, or it is no `T`.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T> {
        let Some(output) = &self.output else {
            let message = format!("the run has no structured output; it stopped with {:?}", self.stop_reason);
            return Err(Error::new(Code::InvalidArgument, message));
        };
        Payload::of(output)?.parse()
    }
}

/// The content of an `answer_end` entry: why the answer to a message of a chat stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerEnd {
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// How many model calls answered since the user's message.
    pub turns: u32,
    /// The answer as a value of the form that it has to have; none if it has none, or has stopped before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
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
    /// The model gave no answer of the form that it has to have, however often it was asked. This happens only in a chat; a
    /// one-shot run fails instead.
    InvalidOutput,
    /// No model could be asked. This happens only in a chat; a one-shot run fails instead.
    Error,
}
