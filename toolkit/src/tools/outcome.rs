//! The outcome of a tool call: parts for the model, details for people and programs.

use crate::message::{Part, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The end of a tool call. This includes failures that the model can do something about. All other failures are an
/// `Err`, which the engine handles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolOutcome {
    /// The text and images that the model sees.
    pub content: Vec<Part>,
    /// Whether the call failed in a way that the model should know of.
    #[serde(default)]
    pub is_error: bool,
    /// Details for people and programs, such as a diff or an exit code. They are never sent to a model.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl ToolOutcome {
    /// An outcome with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Part::text(text)], is_error: false, details: Value::Null }
    }

    /// An outcome that tells the model what went wrong. `code` is a stable word, which becomes `details.error`.
    pub fn error(code: &str, message: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(message) }.with_details(json!({ "error": code }))
    }

    /// Adds details. The fields of an object are added to those that are there.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        match (&mut self.details, details) {
            (_, Value::Null) => {}
            (Value::Object(mine), Value::Object(more)) => mine.extend(more),
            (mine, details) => *mine = details,
        }
        self
    }

    /// The texts of all its parts, one after the other.
    pub fn plain_text(&self) -> String {
        self.content.iter().filter_map(Part::as_text).collect()
    }

    /// The stable word of an error, such as `not_unique`.
    pub fn error_code(&self) -> Option<&str> {
        self.details.get("error").and_then(Value::as_str).filter(|_| self.is_error)
    }

    /// The result for the model's call with this id and name.
    pub fn into_result(self, id: impl Into<String>, name: impl Into<String>) -> ToolResult {
        let details = Some(self.details).filter(|details| !details.is_null());
        let (id, name) = (id.into(), name.into());
        ToolResult { id, name, content: self.content, is_error: self.is_error, details, usage: None }
    }
}
