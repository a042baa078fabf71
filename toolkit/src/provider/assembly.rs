//! Assembles a message from a stream, and checks it when the stream is complete.
//!
//! A tool call is only text here until the provider has said that the message is complete. Only [`Assembly::complete`]
//! makes a call of it. A call whose arguments cannot be read is a call all the same: the answer to it tells the model
//! what is wrong, which costs less than to ask again.

use super::halves::{Joined, has_half, has_lone_half, mark, settle, settle_all};
use super::{ErrorKind, ModelError, OnEvent, StreamEvent};
use crate::message::call_ids::{CallIds, adapt_call};
use crate::message::{
    AssistantMeta, Content, Custom, ExecutedBy, Message, Origin, Part, Role, Stop, Thinking, ToolCall, Usage,
};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// A part while it grows.
#[derive(Debug)]
pub(super) enum Growing {
    Text { text: String },
    Thinking { text: String, redacted: bool },
    Call { id: String, name: String, json: String, by: ExecutedBy, closed: bool },
    Custom { kind: String, value: Value },
}

/// A message while it grows.
#[derive(Debug)]
pub(super) struct Assembly {
    origin: Origin,
    /// The ids of all calls of the conversation and of this message.
    ids: CallIds,
    parts: Vec<(Growing, Option<Value>)>,
    /// What the provider has said about the message so far.
    pub(super) meta: AssistantMeta,
    started: bool,
    /// Of each part that had half of a surrogate pair: what is known of the next character.
    halves: HashMap<usize, Joined>,
}

/// How a stream ended: why the model stopped, and the provider's own word for that.
#[derive(Debug, Clone)]
pub(super) struct StreamEnd {
    pub(super) stop: Stop,
    pub(super) raw: String,
}

impl Assembly {
    pub(super) fn new(origin: &Origin, ids: CallIds) -> Self {
        let meta = AssistantMeta { origin: origin.clone(), attempt: 1, ..AssistantMeta::default() };
        Self { origin: origin.clone(), ids, parts: Vec::new(), meta, started: false, halves: HashMap::new() }
    }

    /// Reads the JSON object of an event. Halves of surrogate pairs are marked, to be joined with what comes later.
    pub(super) fn read(&self, data: &str) -> Result<Value, ModelError> {
        let wrong =
            |what: String| self.failed(ErrorKind::Protocol, format!("an event of the stream {what}; ask again"));
        let read = serde_json::from_str::<Value>(data).or_else(|error| {
            let marked = mark(data).ok_or(error)?;
            serde_json::from_str(&marked)
        });
        match read {
            Ok(value) if value.is_object() => Ok(value),
            Ok(_) => Err(wrong("is no JSON object".to_owned())),
            Err(error) => Err(wrong(format!("is no JSON ({error})"))),
        }
    }

    /// Stores which model answers. Only the first call has an effect.
    pub(super) fn start(&mut self, id: Option<&str>, model: Option<&str>, on: OnEvent<'_>) {
        if self.meta.response_id.is_none() {
            self.meta.response_id = id.filter(|id| !id.is_empty()).map(str::to_owned);
        }
        if let Some(model) = model.filter(|model| *model != self.origin.model && !model.is_empty()) {
            self.meta.response_model = Some(model.to_owned());
        }
        if !std::mem::replace(&mut self.started, true) {
            on(StreamEvent::Started { model: model.unwrap_or(&self.origin.model).to_owned() });
        }
    }

    /// Begins a part and returns its number. A call keeps its id unless another call already has it.
    pub(super) fn begin(&mut self, mut part: Growing, on: OnEvent<'_>) -> usize {
        let number = self.parts.len();
        if let Growing::Call { id, name, by: ExecutedBy::Us, .. } = &mut part {
            *id = self.ids.unique(id);
            on(StreamEvent::ToolCallStart { part: number, id: id.clone(), name: name.clone() });
        }
        self.parts.push((part, None));
        number
    }

    /// Adds text to a part. It is ignored if the part does not consist of text.
    pub(super) fn grow(&mut self, part: usize, delta: &str, on: OnEvent<'_>) {
        // The arguments of a call keep the halves, so that they are known to be unreadable.
        if let Some((Growing::Call { json, .. }, _)) = self.parts.get_mut(part) {
            json.push_str(delta);
        }
        let joins = has_half(delta) || self.halves.get(&part).is_some_and(Joined::is_open);
        let joined = joins.then(|| self.halves.entry(part).or_default().more(delta));
        let delta = joined.as_deref().unwrap_or(delta);
        if delta.is_empty() {
            return;
        }
        let delta_event = match self.parts.get_mut(part) {
            Some((Growing::Text { text }, _)) => {
                text.push_str(delta);
                StreamEvent::TextDelta { part, delta: delta.to_owned() }
            }
            Some((Growing::Thinking { text, .. }, _)) => {
                text.push_str(delta);
                StreamEvent::ThinkingDelta { part, delta: delta.to_owned() }
            }
            Some((Growing::Call { by, .. }, _)) => {
                if *by == ExecutedBy::Provider {
                    return;
                }
                StreamEvent::ToolCallDelta { part, delta: delta.to_owned() }
            }
            Some((Growing::Custom { .. }, _)) | None => return,
        };
        on(delta_event);
    }

    /// The part with this number.
    pub(super) fn part(&mut self, number: usize) -> Option<&mut Growing> {
        self.parts.get_mut(number).map(|(part, _)| part)
    }

    /// The data that the provider wants back with a part.
    pub(super) fn opaque(&mut self, part: usize) -> Option<&mut Option<Value>> {
        self.parts.get_mut(part).map(|(_, opaque)| opaque)
    }

    pub(super) fn usage(&mut self) -> &mut Usage {
        &mut self.meta.usage
    }

    /// An error that also says how many tokens were used so far.
    pub(super) fn failed(&self, kind: ErrorKind, message: String) -> ModelError {
        let used = self.meta.usage != Usage::default();
        ModelError { usage: used.then(|| Box::new(self.meta.usage.clone())), ..ModelError::new(kind, message) }
    }

    /// The error of a stream that ended before the provider said that the message is complete.
    pub(super) fn interrupted(&self) -> ModelError {
        let message = format!(
            "the stream of {}/{} ended before its last event; nothing of it counts, ask again",
            self.origin.provider, self.origin.model
        );
        self.failed(ErrorKind::Interrupted, message)
    }

    /// Makes the message. It must only be called after the provider has said that the message is complete.
    pub(super) fn complete(mut self, ending: StreamEnd) -> Message {
        for (part, mut joined) in std::mem::take(&mut self.halves) {
            let (Some(character), Some(growing)) = (joined.end(), self.part(part)) else { continue };
            if let Growing::Text { text } | Growing::Thinking { text, .. } = growing {
                text.push(character);
            }
        }
        let mut parts = Vec::with_capacity(self.parts.len());
        let mut calls = 0;
        for (growing, mut opaque) in std::mem::take(&mut self.parts) {
            let content = match growing {
                Growing::Text { text } if text.is_empty() && opaque.is_none() => continue,
                Growing::Thinking { text, redacted } if text.is_empty() && !redacted && opaque.is_none() => continue,
                Growing::Text { text } => Content::Text { text: settle(&text).into_owned() },
                Growing::Thinking { text, redacted } => {
                    Content::Thinking(Thinking { text: settle(&text).into_owned(), redacted })
                }
                Growing::Custom { kind, mut value } => {
                    settle_all(&mut value);
                    Content::Custom(Custom { kind, value })
                }
                // The model was stopped by the limit of tokens or by a filter, so a call may lack a part of its
                // arguments.
                Growing::Call { by: ExecutedBy::Us, .. } if matches!(ending.stop, Stop::Length | Stop::Refusal) => {
                    continue;
                }
                Growing::Call { id, name, json, by, closed } => {
                    let (arguments, raw_arguments) = arguments(&json, closed);
                    let call = ToolCall { id, name, arguments, raw_arguments, executed_by: by };
                    if by == ExecutedBy::Us {
                        calls += 1;
                        opaque.iter_mut().for_each(|opaque| adapt_call(opaque, &call));
                    }
                    Content::ToolCall(call)
                }
            };
            opaque.iter_mut().for_each(settle_all);
            let part = Part::new(content);
            parts.push(match opaque {
                Some(data) => part.with_opaque(&self.origin, data),
                None => part,
            });
        }
        // What the model has done counts, and not what it said that it would do.
        self.meta.stop = match (ending.stop, calls) {
            (Stop::ToolUse, 0) => Stop::End,
            (stop, 0) => stop,
            _ => Stop::ToolUse,
        };
        self.meta.raw_stop = Some(ending.raw);
        Message { role: Role::Assistant, parts, assistant: Some(self.meta) }
    }
}

/// The arguments of a call, and the text that the model has written if it is no JSON object or has half a character.
fn arguments(written: &str, closed: bool) -> (Value, Option<String>) {
    let none = || Value::Object(Map::new());
    let json = settle(written);
    match serde_json::from_str(&json) {
        Ok(Value::Object(arguments)) if !has_lone_half(written) => (Value::Object(arguments), None),
        // A call of a tool without parameters may have no text at all, or `null`.
        Ok(Value::Null) if closed => (none(), None),
        Err(_) if closed && json.trim().is_empty() => (none(), None),
        Ok(_) | Err(_) => (none(), Some(json.into_owned())),
    }
}
