//! What the agent may use to answer one message of the user, as the message says it.

use serde::{Deserialize, Serialize};

/// What the agent may use before it has answered a message. They hold until the next message of the user, beside the
/// configuration and the budget of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnswerLimits {
    /// How many model calls it makes, in place of the configured number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// How many millionths of a US dollar its model calls may cost before no further one is made. A call whose price is
    /// not known costs nothing here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_micros: Option<u64>,
}

impl AnswerLimits {
    /// Whether it limits nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether calls that have cost so much leave no room for another one.
    pub(super) fn is_used_up(&self, cost_micros: u64) -> bool {
        self.max_cost_micros.is_some_and(|limit| cost_micros >= limit)
    }
}
