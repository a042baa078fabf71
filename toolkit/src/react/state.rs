//! The state that the agent's checkpoints save. It holds no messages, so it stays small however long the conversation
//! gets.

use super::{AgentInput, AnswerLimits, AskedByChild, Ledger, ModelChoice, OutputSpec, UserMessage};
use crate::provider::ThinkingLevel;
use crate::tools::approval::Rule;
use crate::tools::{FilesSeen, TodoList};
use flovyn_core::agent::AgentState;
use flovyn_core::model::UsageTotals;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// What a person has allowed for the rest of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<Rule>,
    /// The list of steps that the model has written last.
    #[serde(skip_serializing_if = "TodoList::is_empty")]
    pub todos: TodoList,
    /// Whether a result was too long to be shown whole. The tool that reads the rest is offered from then on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub results_kept: bool,
    /// In how many turns after the last message of the user delegates were given work.
    #[serde(skip_serializing_if = "is_zero")]
    pub rounds: u32,
    /// Whether a delegate has asked something. The tool that answers it is offered from then on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub was_asked: bool,
    /// The questions of delegates that have no answer yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asking: Vec<AskedByChild>,
    /// The window of the model that has answered last, in tokens, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How many tokens of the window the conversation fills: the number that the provider gave with the last answer,
    /// and an estimate for what has come since.
    pub context_tokens: u64,
    /// How much of the budget was used.
    pub ledger: Ledger,
    /// The form of the answer to the last message of the user, where that has chosen one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_form: Option<OutputSpec>,
    /// The answer, if it has to have a form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// How many answers since the last message of the user did not have that form.
    pub output_faults: u32,
    /// What the answer to the last message of the user may use.
    #[serde(skip_serializing_if = "AnswerLimits::is_none")]
    pub limits: AnswerLimits,
    /// The cost in the ledger when that message came, in millionths of a US dollar.
    pub cost_before: u64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
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
        (self.since_user, self.rounds, self.output, self.output_faults) = (0, 0, None, 0);
        self.limits = message.limits;
        self.output_form.clone_from(&message.output);
        self.cost_before = self.ledger.cost_micros;
        self.choose(message);
    }

    /// Whether the limits of the last message leave no room for another model call.
    pub(super) fn is_at_limit(&self) -> bool {
        self.limits.is_used_up(self.ledger.cost_micros.saturating_sub(self.cost_before))
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
