//! Agents that an agent may give work to, as tools of its models: what a model is shown of them, what a run of one is
//! started with, and how its end becomes the result of a call.

use super::agent_tool::{TaskArguments, outcome_of};
use super::{AgentInput, Mode, ModelChoice, ReactAgent, RunOutcome, StopReason};
use crate::message::Part;
use crate::tools::{Effect, ToolOutcome};
use flovyn_core::Payload;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::ExecutionId;
use flovyn_core::journal::ChildOptions;
use flovyn_core::model::{Budget, ChildEvent, SharedContext, Spent, StartLimits};
use serde_json::{Value, json};
use std::time::Duration;

/// An agent that another one may give work to: as a delegate, whose answer is the result of a call, or by a handoff, after
/// which it goes on with the conversation.
#[derive(Debug, Clone)]
pub struct Delegate {
    /// The agent. Some worker of the queue has to serve it.
    pub kind: String,
    /// The name that models use: letters, digits, `_` and `-`. That of a handoff is `transfer_to_NAME`.
    pub name: String,
    /// When to give it work, for the model.
    pub description: String,
    /// What a run of it is started with.
    pub takes: Takes,
    /// What approvals go by. What the agent does then has approvals of its own, so this is `read` unless it is said.
    pub effect: Effect,
    /// The queue whose workers run it; that of the run unless given.
    pub queue: Option<String>,
    /// A part of the run's budget that it gets for itself: the JSON of a budget, or a number of tokens. It draws from the
    /// run's budget unless given.
    pub budget: Option<String>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Steps after which it pauses.
    pub max_steps: Option<u32>,
    /// What it is given of the conversation; nothing unless given. A handoff gives all of it in any case.
    pub shared_context: Option<SharedContext>,
}

/// What a run of a delegate is started with.
#[derive(Debug, Clone, PartialEq)]
pub enum Takes {
    /// A prompt of the built-in agent.
    Prompt,
    /// A text.
    Text,
    /// An object of this JSON Schema: the arguments of the model.
    Arguments(Value),
    /// The value of one argument.
    Argument {
        /// The JSON Schema of the arguments.
        parameters: Value,
        /// Which one.
        name: String,
    },
}

/// What a tool that starts an agent does with the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Giving {
    /// The agent works as a child, and its answer is the result of the call.
    Delegates,
    /// The run goes on as the agent.
    HandsOff,
}

impl Delegate {
    /// An agent that takes a text. Its tool has the name of the agent.
    pub fn new(kind: impl Into<String>, description: impl Into<String>) -> Self {
        let kind = kind.into();
        let fits = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        Self {
            name: kind.chars().map(|character| if fits(character) { character } else { '_' }).collect(),
            kind,
            description: description.into(),
            takes: Takes::Text,
            effect: Effect::Read,
            queue: None,
            budget: None,
            timeout: None,
            max_steps: None,
            shared_context: None,
        }
    }

    /// An agent of the built-in kind.
    pub fn of(agent: &ReactAgent, description: impl Into<String>) -> Self {
        Self { takes: Takes::Prompt, ..Self::new(agent.kind_name(), description) }
    }

    /// Checks it, for an error where it is declared instead of in a run.
    pub(super) fn checked(self, giving: Giving) -> Result<Self> {
        let invalid = |message: String| Err(Error::new(Code::InvalidArgument, message));
        let Self { kind, name, description, budget, .. } = &self;
        let longest = if giving == Giving::HandsOff { 64 - TRANSFER.len() } else { 64 };
        let fits = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        if name.is_empty() || name.len() > longest || !name.chars().all(fits) {
            return invalid(format!(
                "the agent {kind:?} is named {name:?} as a tool; use 1 to {longest} letters, digits, _ and -"
            ));
        }
        if description.trim().is_empty() {
            return invalid(format!(
                "the agent {kind:?} has no description, so a model would not know when to give it work; give one"
            ));
        }
        if let Some(budget) = budget {
            Budget::parse(budget)?;
        }
        Ok(self)
    }

    /// The name of its tool.
    pub(super) fn tool_name(&self, giving: Giving) -> String {
        match giving {
            Giving::Delegates => self.name.clone(),
            Giving::HandsOff => format!("{TRANSFER}{}", self.name),
        }
    }

    /// The JSON Schema of a call's arguments.
    pub(super) fn parameters(&self, giving: Giving) -> Value {
        let text = |description: &str| json!({ "type": "string", "description": description });
        match (&self.takes, giving) {
            (Takes::Arguments(parameters) | Takes::Argument { parameters, .. }, _) => parameters.clone(),
            (_, Giving::HandsOff) => json!({
                "type": "object",
                "properties": {
                    "reason": text("Why the other agent is to go on, in a few words."),
                    "instructions": text("What it is to do. It sees this conversation."),
                },
                "additionalProperties": false
            }),
            (_, Giving::Delegates) => {
                let sees = match &self.shared_context {
                    Some(SharedContext::ReadOnly(_) | SharedContext::Conversation(_)) => "It sees this conversation.",
                    _ => "It does not see this conversation, so say all that it has to know.",
                };
                let mut task = text(&format!("What the agent is to do. {sees}"));
                task["minLength"] = json!(1);
                json!({
                    "type": "object",
                    "properties": { TASK: task },
                    "required": [TASK],
                    "additionalProperties": false
                })
            }
        }
    }

    /// What a run of it is started with by a run with this input, which asks this model.
    pub(crate) fn input(
        &self,
        giving: Giving,
        arguments: &Value,
        run: &AgentInput,
        model: &ModelChoice,
    ) -> Result<Payload> {
        let said = || match giving {
            Giving::Delegates => arguments[TASK].as_str().unwrap_or_default(),
            Giving::HandsOff => {
                ["instructions", "reason"].iter().find_map(|one| arguments[one].as_str()).unwrap_or_default()
            }
        };
        match &self.takes {
            Takes::Prompt => {
                // After a handoff the conversation has the words already, and the user's next messages go to the agent.
                let (user_prompt, mode) = match giving {
                    Giving::Delegates => (said(), Mode::OneShot),
                    Giving::HandsOff => ("", run.config.mode),
                };
                let mut input = json!({ "userPrompt": user_prompt, "config": { "mode": mode } });
                if !model.is_empty() {
                    input["inheritedModel"] = serde_json::to_value(model).unwrap_or_default();
                }
                // What the run was not allowed, it is not allowed by way of another agent either.
                if let Some(policy) = &run.approvals {
                    input["approvals"] = serde_json::to_value(policy).unwrap_or_default();
                }
                Payload::of(&input)
            }
            Takes::Text => Payload::of(said()),
            Takes::Arguments(_) => TaskArguments::Arguments.payload(arguments),
            Takes::Argument { parameters, name } => TaskArguments::argument(name, parameters).payload(arguments),
        }
    }

    /// The JSON Schema of what it is given as a delegate.
    pub(crate) fn takes_arguments(&self) -> Value {
        self.parameters(Giving::Delegates)
    }

    /// The argument that is a text for it to read, if it takes one.
    pub(crate) fn text_argument(&self) -> Option<&str> {
        matches!(self.takes, Takes::Prompt | Takes::Text).then_some(TASK)
    }

    /// How a run of it is started. The id names the call, so that a process that goes on with the run finds the same child.
    pub(crate) fn options(&self, id: Option<String>) -> ChildOptions {
        let (budget, timeout, max_steps) = (self.budget.clone(), self.timeout, self.max_steps);
        ChildOptions {
            id: id.map(Into::into),
            queue: self.queue.clone(),
            limits: StartLimits { budget, timeout, max_steps, ..StartLimits::default() },
            shared_context: self.shared_context.clone(),
            ..ChildOptions::default()
        }
    }
}

/// The argument that says what a delegate is to do.
const TASK: &str = "task";
/// What the names of handoffs begin with.
pub(super) const TRANSFER: &str = "transfer_to_";

/// The id of the child of a call, among the children of its run.
pub(super) fn child_id(turn: u32, call_id: &str) -> String {
    // A provider may give any text, and the same one in every turn.
    match call_id.len() {
        1..=64 => format!("{turn}.{call_id}"),
        _ => format!("{turn}.{}", &blake3::hash(call_id.as_bytes()).to_hex()[..32]),
    }
}

/// The result of a call whose child has ended; none for what is no end.
pub(crate) fn end_of(delegate: &Delegate, child: ExecutionId, event: ChildEvent) -> Result<Option<ToolOutcome>> {
    let name = &delegate.name;
    let stopped = |code: &str, words: String, output: Option<Payload>| -> Result<ToolOutcome> {
        let kept = output.map(|output| answer_of(&output)).transpose()?;
        let kept = kept.map(|kept| kept.plain_text()).filter(|kept| !kept.trim().is_empty());
        let kept = kept.map_or_else(|| " It kept nothing.".to_owned(), |kept| format!(" What it had so far:\n{kept}"));
        Ok(ToolOutcome::error(code, words + &kept))
    };
    let outcome = match event {
        ChildEvent::Completed { output } => answer_of(&output)?,
        ChildEvent::Failed { error } => {
            let words = format!("The agent {name} has failed: {}: {}", error.error_type, error.message);
            ToolOutcome::error("agent_failed", words)
        }
        ChildEvent::Cancelled { output } => {
            stopped("agent_stopped", format!("The agent {name} was stopped before it had finished."), output)?
        }
        ChildEvent::BudgetExceeded { used, limit, output } => {
            let (used, limit) = (spent(&used), budget(&limit));
            let words = format!("The agent {name} was stopped by its budget: it has used {used} of {limit}.");
            stopped("agent_budget", words, output)?
        }
        _ => return Ok(None),
    };
    Ok(Some(outcome.with_details(json!({ "child": child }))))
}

/// The result of a call whose child could not be started; none where the error is not about the child.
pub(super) fn refusal_of(delegate: &Delegate, error: &Error) -> Option<ToolOutcome> {
    let about_it = matches!(
        error.code(),
        Code::BudgetExceeded
            | Code::LimitReached
            | Code::ExecutionExists
            | Code::InvalidArgument
            | Code::PayloadTooLarge
            | Code::ChildCancelled
            | Code::ChildFailed
    );
    let words = || format!("The agent {} was not started: {}", delegate.name, error.message());
    about_it.then(|| ToolOutcome::error("agent_not_started", words()))
}

/// The output of an agent as a text: its structured output as JSON, if it has one.
pub(crate) fn answer_text(output: &Payload) -> Result<String> {
    let outcome = output.parse::<RunOutcome>().ok();
    match outcome.and_then(|outcome| outcome.output) {
        Some(value) => Ok(value.to_string()),
        None => Ok(answer_of(output)?.plain_text()),
    }
}

/// What a model is shown of the output of an agent.
fn answer_of(output: &Payload) -> Result<ToolOutcome> {
    let Ok(outcome) = output.parse::<RunOutcome>() else { return outcome_of(output) };
    let RunOutcome { text, stop_reason, output, .. } = outcome;
    let mut answer = match &output {
        Some(value) => ToolOutcome::text(value.to_string()),
        None => ToolOutcome::text(text),
    };
    let why = match stop_reason {
        StopReason::End => return Ok(answer),
        StopReason::Length => "its answer was too long",
        StopReason::Refusal => "its model refused",
        StopReason::MaxTurns => "it has made as many model calls as it may",
        StopReason::Budget => "its budget is used up",
        StopReason::Interrupted => "it was interrupted",
        StopReason::InvalidOutput => "it gave no answer of the form that it has to have",
        StopReason::Error => "no model could be asked",
    };
    answer.content.push(Part::text(format!("\n[The agent has stopped early: {why}.]")));
    Ok(answer)
}

fn spent(spent: &Spent) -> String {
    let Spent { tokens, cost_micros, calls, .. } = spent;
    format!("{tokens} tokens in {calls} model calls, for ${:.2}", *cost_micros as f64 / 1e6)
}

fn budget(limit: &Budget) -> String {
    let tokens = limit.max_tokens.map(|tokens| format!("{tokens} tokens"));
    let cost = limit.max_cost_micros.map(|micros| format!("${:.2}", micros as f64 / 1e6));
    let calls = limit.max_calls.map(|calls| format!("{calls} model calls"));
    let parts: Vec<_> = [tokens, cost, calls].into_iter().flatten().collect();
    if parts.is_empty() { "its limit".to_owned() } else { parts.join(", ") }
}
