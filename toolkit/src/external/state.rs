//! What the checkpoints of an external agent's run save.

use super::event::{Answer, TurnLog};
use super::protocol::Snapshot;
use crate::react::{Budget, UserMessage};
use flovyn_core::agent::AgentState;
use flovyn_core::model::{Usage, UsageTotals};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a run between two exchanges.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, AgentState)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalState {
    /// The agent's session, once it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Snapshot>,
    /// How many turns have ended.
    pub turns: u32,
    /// The turn that runs; none while the agent is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnState>,
    /// Messages that are delivered when a turn has ended.
    pub queue: Vec<UserMessage>,
    /// Whether the run waits for a message of the user.
    pub is_waiting: bool,
    /// The model that was heard of last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tokens and cost by `provider/model`.
    pub usage: UsageTotals,
    /// How many permissions people were asked for.
    pub asked: u32,
    /// Whether another run has started this one; unknown before the first turn has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_parent: Option<bool>,
}

/// A turn that runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TurnState {
    /// What was recorded of it.
    pub heard: TurnLog,
    /// The names of its tool calls that have not ended.
    pub open: BTreeMap<String, String>,
    /// The text of the agent's last message.
    pub text: String,
    /// What people have answered, by the hash of the call: after a crash the agent asks again.
    pub answers: BTreeMap<String, Answer>,
    /// Messages that the next turn begins with.
    pub pending: Vec<UserMessage>,
    /// Whether the agent was asked to end the turn.
    pub is_interrupted: bool,
    /// Whether the user has only stopped it.
    pub is_stopped: bool,
    /// Whether the budget is used up.
    pub is_over_budget: bool,
    /// How many processes in a row have died in it.
    pub deaths: u32,
}

impl ExternalState {
    /// Whether so much was used that no more may be.
    pub(super) fn is_over(&self, budget: Option<&Budget>) -> bool {
        let Some(budget) = budget else { return false };
        let mut total = Usage::default();
        self.usage.0.values().for_each(|usage| total.add(usage));
        let tokens = total.input_tokens + total.output_tokens + total.cache_read_tokens + total.cache_write_tokens;
        budget.max_tokens.is_some_and(|limit| tokens >= limit)
            || budget.max_calls.is_some_and(|limit| total.calls >= limit)
            || budget.max_cost_micros.is_some_and(|limit| total.cost_micros.is_some_and(|cost| cost >= limit))
    }
}
