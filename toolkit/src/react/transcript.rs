//! The conversation as entries: the content of each entry type, and how a branch becomes the messages of a model.
//!
//! | type of the entry | content |
//! | --- | --- |
//! | `message` | a [`Message`] |
//! | `tools` | the tools that the model may call |
//! | `llm_call` | what a model call cost |
//! | `compaction` | a summary, which hides the messages before `firstKeptEntryId` |
//! | `context_edit` | replaces the message of one entry, or removes it |
//! | `agent_begin` | an agent that goes on with a conversation begins: what models are told and may call is its own from here |
//!
//! The other types (`agent_spawn`, `approval_request`, `approval`, `input_request`, `input`, `input_refused`, `budget_low`, `answer_end`,
//! `warning`) are for people. No model gets them. A `tool_output` is the whole text of a long result, on a thread of
//! its own.

use super::{Compacted, ModelChoice};
use crate::message::{AssistantMeta, Content, Media, Message, Part, Role, Stop, ToolCall, Usage};
use crate::provider::ToolSpec;
use flovyn_core::Payload;
use flovyn_core::error::Result;
use flovyn_core::id::EntryId;
use flovyn_core::model::Entry;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The types of entries that the agent writes.
pub(crate) mod entry_type {
    pub(crate) const MESSAGE: &str = "message";
    pub(crate) const TOOLS: &str = "tools";
    pub(crate) const LLM_CALL: &str = "llm_call";
    pub(crate) const COMPACTION: &str = "compaction";
    pub(crate) const CONTEXT_EDIT: &str = "context_edit";
    pub(crate) const AGENT_BEGIN: &str = "agent_begin";
    pub(crate) const AGENT_SPAWN: &str = "agent_spawn";
    pub(crate) const APPROVAL_REQUEST: &str = "approval_request";
    pub(crate) const APPROVAL: &str = "approval";
    pub(crate) const INPUT_REQUEST: &str = "input_request";
    pub(crate) const INPUT: &str = "input";
    pub(crate) const INPUT_REFUSED: &str = "input_refused";
    pub(crate) const ANSWER_END: &str = "answer_end";
    pub(crate) const WARNING: &str = "warning";
    pub(crate) const BUDGET_LOW: &str = "budget_low";
    pub(crate) const TOOL_OUTPUT: &str = "tool_output";
}

/// The content of an `llm_call` entry: what a model call cost, for people and for accounting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmCall {
    /// The model that was asked.
    pub model: ModelChoice,
    /// `turn`, `compaction`, `sampling` for the call of an MCP server, or `external` for those of an external agent.
    pub purpose: String,
    /// Tokens and cost; an estimate if the call ended before the provider gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// From sending the request to the end of the response, in milliseconds.
    pub latency_ms: u32,
    /// From sending the request to the first token, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u32>,
    /// Why the model stopped.
    pub stop_reason: Stop,
}

impl LlmCall {
    /// The call that an answer came from.
    pub(crate) fn of(model: &ModelChoice, purpose: &str, meta: &AssistantMeta) -> Self {
        Self {
            model: model.clone(),
            purpose: purpose.to_owned(),
            usage: Some(meta.usage.clone()),
            latency_ms: meta.duration_ms,
            first_token_ms: meta.first_token_ms,
            stop_reason: meta.stop,
        }
    }
}

/// The content of a `tools` entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OfferedTools {
    pub tools: Vec<ToolSpec>,
}

impl OfferedTools {
    /// A text that differs where the tools do.
    pub(super) fn digest(&self) -> Result<String> {
        Ok(format!("{:?}", Payload::of(self)?.digest()?))
    }
}

/// The content of a `context_edit` entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContextEdit {
    pub target_id: EntryId,
    pub replacement: Option<Message>,
}

/// The content of an `agent_begin` entry: an agent goes on with a conversation that another one has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentBegin {
    /// The agent.
    pub kind: String,
}

/// The text that a model sees at the end of an interrupted answer.
const INTERRUPTED: &str = "[The user interrupted this answer.]";
/// The message that is added if the conversation would end with an answer of the model.
const GO_ON: &str = "Continue.";

/// A branch in the form in which a model gets it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transcript {
    system: Vec<Message>,
    tools: Vec<ToolSpec>,
    summary: Option<Compacted>,
    items: Vec<(EntryId, Message)>,
}

impl Transcript {
    /// Makes it from the entries of a branch, which begin at the root and have their contents in memory.
    pub fn of(entries: &[Entry]) -> Result<Self> {
        let mut transcript = Self::default();
        for entry in entries {
            let content = &entry.new.content;
            match entry.new.entry_type.as_str() {
                entry_type::MESSAGE => match message(entry)? {
                    message if message.role == Role::System => transcript.system.push(message),
                    message => transcript.items.push((entry.new.id, message)),
                },
                entry_type::TOOLS => transcript.tools = content.parse::<OfferedTools>()?.tools,
                entry_type::AGENT_BEGIN => (transcript.system, transcript.tools) = (Vec::new(), Vec::new()),
                entry_type::COMPACTION => transcript.hide(content.parse()?),
                entry_type::CONTEXT_EDIT => transcript.edit(content.parse()?),
                _ => {}
            }
        }
        Ok(transcript)
    }

    fn hide(&mut self, summary: Compacted) {
        let kept = self.items.iter().position(|(id, _)| Some(*id) == summary.first_kept_entry_id);
        self.items.drain(..kept.unwrap_or(self.items.len()));
        self.summary = Some(summary);
    }

    fn edit(&mut self, edit: ContextEdit) {
        let Some(place) = self.items.iter().position(|(id, _)| *id == edit.target_id) else { return };
        match edit.replacement {
            Some(message) => self.items[place].1 = message,
            None => drop(self.items.remove(place)),
        }
    }

    /// The tools that the model may call.
    pub fn tools(&self) -> &[ToolSpec] {
        &self.tools
    }

    /// The messages since the last compaction, with the ids of their entries. System messages are not among them.
    pub fn items(&self) -> &[(EntryId, Message)] {
        &self.items
    }

    /// The last compaction.
    pub fn compacted(&self) -> Option<&Compacted> {
        self.summary.as_ref()
    }

    /// The messages for a model: first the system messages, then the summary, then the rest. The last one is never a
    /// message of the model, because providers reject that.
    pub fn messages(&self) -> Vec<Message> {
        self.messages_before(false)
    }

    /// As [`messages`](Self::messages), but if more messages follow, the last one may be a message of the model.
    pub(super) fn messages_before(&self, more_follow: bool) -> Vec<Message> {
        let mut messages = self.system.clone();
        messages.extend(self.summary.as_ref().map(Compacted::message));
        messages.extend(self.items.iter().map(|(_, message)| for_model(message)));
        let last = messages.iter().rev().find(|message| message.stop().is_answer());
        // A provider that has paused its model (`Deferred`) needs the conversation to end with the model's message.
        let ended = |last: &Message| last.tool_calls().next().is_none() && last.stop() != Stop::Deferred;
        if !more_follow && last.is_some_and(|last| last.role == Role::Assistant && ended(last)) {
            messages.push(Message::user(GO_ON));
        }
        messages
    }

    /// The calls of the last answer that have no result.
    pub(super) fn open_calls(&self) -> Vec<ToolCall> {
        let answer = self.items.iter().rposition(|(_, message)| message.role == Role::Assistant);
        let Some((_, message)) = answer.and_then(|place| self.items.get(place)) else { return Vec::new() };
        let after = self.items.iter().skip(answer.map_or(0, |place| place + 1));
        let ended: Vec<_> = after.flat_map(|(_, message)| message.tool_results()).map(|result| &result.id).collect();
        message.tool_calls().filter(|call| !ended.contains(&&call.id)).cloned().collect()
    }

    /// About how many tokens it takes.
    pub(super) fn estimate(&self) -> u64 {
        self.messages().iter().map(estimate).sum()
    }

    /// The text of the model's last answer.
    pub fn last_answer_text(&self) -> String {
        let answers = self.items.iter().rev().filter(|(_, message)| message.role == Role::Assistant);
        answers.map(|(_, message)| message.text()).find(|text| !text.is_empty()).unwrap_or_default()
    }
}

/// Reads the message of a `message` entry. Entries of other programs may hold plain text, which becomes a message too.
fn message(entry: &Entry) -> Result<Message> {
    let value: Value = entry.new.content.parse()?;
    let role = match entry.new.role.as_str() {
        "system" => Role::System,
        "assistant" => Role::Assistant,
        _ => Role::User,
    };
    Ok(match value {
        Value::String(text) => Message::new(role, vec![Part::text(text)]),
        value => {
            let text = value.get("text").and_then(Value::as_str).map_or_else(|| value.to_string(), str::to_owned);
            serde_json::from_value(value).unwrap_or_else(|_| Message::new(role, vec![Part::text(text)]))
        }
    })
}

/// A message in the form in which a model gets it. An interrupted answer keeps its text, although its provider never
/// completed it.
fn for_model(message: &Message) -> Message {
    match message.stop() {
        Stop::Aborted if !message.text().is_empty() => {
            Message::assistant(format!("{}\n\n{INTERRUPTED}", message.text()))
        }
        _ => message.clone(),
    }
}

/// About how many tokens a message takes: a quarter of its characters, and 1,200 for an image.
pub(super) fn estimate(message: &Message) -> u64 {
    message.parts.iter().map(of_part).sum()
}

fn of_part(part: &Part) -> u64 {
    let text = |length: usize| length as u64 / 4 + 1;
    match &part.content {
        Content::Text { text: content } => text(content.len()),
        Content::Thinking(thinking) => text(thinking.text.len()),
        Content::Media(Media { .. }) => 1_200,
        Content::ToolCall(call) => text(call.name.len() + call.arguments.to_string().len()),
        Content::ToolResult(result) => result.content.iter().map(of_part).sum(),
        Content::Custom(custom) => text(custom.value.to_string().len()),
        Content::Unrecognized(_) => 0,
    }
}
