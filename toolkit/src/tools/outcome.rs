//! The outcome of a tool call: parts for the model, details for people and programs.

use crate::message::{Part, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The end of a tool call. What the model can act on is here, failures included; an `Err` beside it is the engine's business.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolOutcome {
    /// All that the model sees: text and images.
    pub content: Vec<Part>,
    /// Whether the call failed in a way that the model should know of.
    #[serde(default)]
    pub is_error: bool,
    /// What cards and programs show beside it, such as a diff or an exit code; never sent to a model.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl ToolOutcome {
    /// Makes an outcome of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Part::text(text)], is_error: false, details: Value::Null }
    }

    /// Makes an outcome that tells the model what went wrong; `code` is a stable word, kept as `details.error`.
    pub fn error(code: &str, message: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(message) }.with_details(json!({ "error": code }))
    }

    /// Adds details; the fields of an object join those that are there.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        match (&mut self.details, details) {
            (_, Value::Null) => {}
            (Value::Object(mine), Value::Object(more)) => mine.extend(more),
            (mine, details) => *mine = details,
        }
        self
    }

    /// The text of all its parts, one after the other.
    pub fn plain_text(&self) -> String {
        self.content.iter().filter_map(Part::as_text).collect()
    }

    /// The stable word of an error, such as `not_unique`.
    pub fn error_code(&self) -> Option<&str> {
        self.details.get("error").and_then(Value::as_str).filter(|_| self.is_error)
    }

    /// Makes the result that answers a call of the model.
    pub fn into_result(self, id: impl Into<String>, name: impl Into<String>) -> ToolResult {
        let details = Some(self.details).filter(|details| !details.is_null());
        let (id, name) = (id.into(), name.into());
        ToolResult { id, name, content: self.content, is_error: self.is_error, details, usage: None }
    }
}
