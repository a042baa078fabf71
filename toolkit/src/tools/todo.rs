//! The `todo` tool: the steps of a longer piece of work, as the model writes them.
//!
//! The tool keeps nothing. The list is the outcome of the call, and the built-in agent has it in its state, so that it
//! survives a crash and a compaction.

use super::fault::Fault;
use super::{Effect, Tool, ToolEnvironment, ToolOutcome, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

/// The most steps of a list.
const MOST_STEPS: usize = 100;
/// The longest step, in characters.
const LONGEST_STEP: usize = 500;

/// Writes the list of steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Todo;

/// A list of steps, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TodoList(pub Vec<TodoStep>);

/// A step of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoStep {
    /// What is done in it.
    pub content: String,
    /// How far it is.
    #[serde(default)]
    pub status: TodoStatus,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// It was not begun.
    #[default]
    Pending,
    /// It is being done.
    InProgress,
    /// It is done.
    #[serde(alias = "completed")]
    Done,
}

#[derive(Deserialize)]
struct Input {
    todos: TodoList,
}

impl Todo {
    /// The name that models use.
    pub const NAME: &'static str = "todo";
}

#[async_trait]
impl Tool for Todo {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> &str {
        "Write the list of steps of a piece of work that has three or more, and keep it up to date. Each call gives the \
         whole list, which replaces the one before. Have one step in_progress at a time, and mark it done as soon as it \
         is. The user sees the list."
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "maxItems": MOST_STEPS,
                    "description": "All steps, in their order.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "content": { "type": "string", "minLength": 1, "maxLength": LONGEST_STEP, "description": "What is done in the step." },
                            "status": { "type": "string", "enum": ["pending", "in_progress", "done", "completed"], "description": "How far it is; pending unless given." }
                        },
                        "required": ["content"],
                        "additionalProperties": false
                    }
                }
            },
            "required": ["todos"],
            "additionalProperties": false
        })
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    async fn call(&self, arguments: Value, _environment: &ToolEnvironment) -> Result<ToolOutcome> {
        Fault::into_outcome(parse(Self::NAME, arguments).map(|Input { todos }| todos.outcome()))
    }
}

impl TodoList {
    /// The list in the details of an outcome of the tool.
    pub(crate) fn of(outcome: &ToolOutcome) -> Option<Self> {
        Self::deserialize(outcome.details.get("todos").filter(|_| !outcome.is_error)?).ok()
    }

    /// Whether it has no steps.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn outcome(self) -> ToolOutcome {
        let text = match self.is_empty() {
            true => "The list is empty.".to_owned(),
            false => self.to_string(),
        };
        ToolOutcome::text(text).with_details(json!({ "todos": self }))
    }
}

/// A checklist with a step in each line.
impl fmt::Display for TodoList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|TodoStep { content, status }| {
            let mark = match status {
                TodoStatus::Pending => "[ ]",
                TodoStatus::InProgress => "[>]",
                TodoStatus::Done => "[x]",
            };
            // A step is one line, whatever the model has written.
            writeln!(f, "{mark} {}", content.split_whitespace().collect::<Vec<_>>().join(" "))
        })
    }
}
