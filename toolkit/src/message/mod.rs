//! The message, in a form that no provider owns: a list of typed parts, each with the data that its provider wants
//! back.
//!
//! This is the form in which entries store a conversation, as JSON in camelCase. A part may carry an [`Opaque`] blob (a
//! signature, an encrypted thought, an item id). The blob is sent back unchanged to the origin that made it, and to
//! nobody else ([`transform`]). Parts of an unknown type are kept when they are read and written again, so that an
//! older program does not lose what a newer one has written.

pub(crate) mod call_ids;
mod error;
mod part;
pub mod shapes;
pub mod transform;
mod usage;

pub use error::{ErrorKind, ModelError};
pub use part::{
    CacheHint, Content, Custom, ExecutedBy, Media, MediaSource, Opaque, Origin, Part, Thinking, ToolCall, ToolResult,
};
pub use usage::{Cost, CostBasis, Usage};

use serde::{Deserialize, Serialize};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Its parts, in order.
    pub parts: Vec<Part>,
    /// Where an assistant's message came from and what it cost; absent on every other role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assistant: Option<AssistantMeta>,
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// The program tells the model how to behave.
    System,
    /// A person, or the program in place of a person.
    User,
    /// The model.
    Assistant,
    /// The results of tools.
    Tool,
    /// A role that this version does not know. It is kept and never sent to a model.
    #[serde(untagged)]
    Other(String),
}

/// Where an assistant's message came from, how it ended and what it cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AssistantMeta {
    /// The wire protocol, the provider and the model that were asked.
    #[serde(flatten)]
    pub origin: Origin,
    /// The model that has answered, as the provider says, if it is not the one that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_model: Option<String>,
    /// The provider's id of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Tokens and cost.
    pub usage: Usage,
    /// Why the model stopped.
    pub stop: Stop,
    /// The provider's own word for why the model stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_stop: Option<String>,
    /// What went wrong. It is present exactly when `stop` is `Error`, `Aborted` or `Interrupted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ModelError>,
    /// The number of the attempt of the call, from 1.
    pub attempt: u32,
    /// From sending the request to the first token, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u32>,
    /// From sending the request to the end of the response, in milliseconds.
    pub duration_ms: u32,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stop {
    /// It has finished its answer.
    #[default]
    End,
    /// It reached the limit of tokens. Tool calls that it was making are not part of the message.
    Length,
    /// It waits for the results of its tool calls.
    ToolUse,
    /// It refused, or a filter of the provider did.
    Refusal,
    /// The caller cancelled it.
    Aborted,
    /// The provider failed.
    Error,
    /// The stream ended before its last event. The call may be made again, and no tool call of it runs.
    Interrupted,
    /// The provider paused it. The conversation has to be sent again as it is now.
    Deferred,
}

impl Stop {
    /// Whether a message that stopped for this reason is part of the conversation.
    pub fn is_answer(self) -> bool {
        !matches!(self, Self::Aborted | Self::Error | Self::Interrupted)
    }
}

impl Message {
    /// A message of these parts.
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        Self { role, parts, assistant: None }
    }

    /// A message in which the program tells the model how to behave.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, vec![Part::text(text)])
    }

    /// A message of a person.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::text(text)])
    }

    /// A message of the model that was written by hand. One that a model has written also has [`AssistantMeta`].
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, vec![Part::text(text)])
    }

    /// A message with results of tools, in any order.
    pub fn tool(results: impl IntoIterator<Item = ToolResult>) -> Self {
        Self::new(Role::Tool, results.into_iter().map(Part::from).collect())
    }

    /// The record of a model call that failed. It is kept and never sent to a model.
    pub fn failed(origin: Origin, error: ModelError) -> Self {
        let stop = match error.kind {
            ErrorKind::Aborted => Stop::Aborted,
            ErrorKind::Interrupted => Stop::Interrupted,
            _ => Stop::Error,
        };
        let usage = error.usage.as_deref().cloned().unwrap_or_default();
        let meta = AssistantMeta { origin, usage, stop, error: Some(error), attempt: 1, ..AssistantMeta::default() };
        Self { role: Role::Assistant, parts: Vec::new(), assistant: Some(meta) }
    }

    /// The texts of all its text parts, joined without anything between them.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }

    /// The texts of its thinking, joined without anything between them.
    pub fn thinking(&self) -> String {
        let text = |part: &Part| match &part.content {
            Content::Thinking(thinking) => Some(thinking.text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// The tool calls that the program has to answer, in order. Calls that the provider ran itself are not among them.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match &part.content {
            Content::ToolCall(call) if call.executed_by == ExecutedBy::Us => Some(call),
            _ => None,
        })
    }

    /// The results of tools that it carries, in order.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|part| match &part.content {
            Content::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    /// Why the model stopped; [`Stop::End`] if that was not recorded.
    pub fn stop(&self) -> Stop {
        self.assistant.as_ref().map_or(Stop::End, |meta| meta.stop)
    }

    /// Tokens and cost, if a model has written this message.
    pub fn usage(&self) -> Option<&Usage> {
        self.assistant.as_ref().map(|meta| &meta.usage)
    }
}

#[cfg(test)]
mod tests;
