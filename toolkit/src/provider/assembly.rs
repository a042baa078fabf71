//! Assembles a message from a stream, and checks it when the stream is complete.
//!
//! A tool call is only text here until the provider has said that the message is complete. Only [`Assembly::complete`]
//! makes a call of it, and refuses a message that contradicts itself.

use super::{ErrorKind, ModelError, OnEvent, StreamEvent};
use crate::message::call_ids::{CallIds, rename_within};
use crate::message::{
    AssistantMeta, Content, Custom, ExecutedBy, Message, Origin, Part, Role, Stop, Thinking, ToolCall, Usage,
};
use serde_json::{Map, Value};

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
        Self { origin: origin.clone(), ids, parts: Vec::new(), meta, started: false }
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
            Some((Growing::Call { json, by, .. }, _)) => {
                json.push_str(delta);
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
    pub(super) fn complete(mut self, ending: StreamEnd) -> Result<Message, ModelError> {
        let grown = std::mem::take(&mut self.parts);
        let mut parts = Vec::with_capacity(grown.len());
        let mut calls = 0;
        for (growing, mut opaque) in grown {
            let content = match growing {
                Growing::Text { text } if text.is_empty() && opaque.is_none() => continue,
                Growing::Thinking { text, redacted } if text.is_empty() && !redacted && opaque.is_none() => continue,
                Growing::Text { text } => Content::Text { text },
                Growing::Thinking { text, redacted } => Content::Thinking(Thinking { text, redacted }),
                Growing::Custom { kind, value } => Content::Custom(Custom { kind, value }),
                // The model was stopped by the limit of tokens or by a filter, so a call may lack a part of its
                // arguments.
                Growing::Call { by: ExecutedBy::Us, .. } if matches!(ending.stop, Stop::Length | Stop::Refusal) => {
                    continue;
                }
                Growing::Call { id, name, json, by, closed } => {
                    if by == ExecutedBy::Us {
                        calls += 1;
                        opaque.iter_mut().for_each(|opaque| rename_within(opaque, &id));
                    }
                    let arguments = self.arguments(&id, &name, &json, closed)?;
                    Content::ToolCall(ToolCall { id, name, arguments, raw_arguments: None, executed_by: by })
                }
            };
            let part = Part::new(content);
            parts.push(match opaque {
                Some(data) => part.with_opaque(&self.origin, data),
                None => part,
            });
        }
        match (ending.stop, calls) {
            (Stop::ToolUse, 0) => {
                let message = format!("the model stopped for {:?} and called no tool; ask again", ending.raw);
                return Err(self.failed(ErrorKind::Protocol, message));
            }
            (Stop::ToolUse, _) | (_, 0) => {}
            (_, calls) => {
                let message = format!("the model called {calls} tools and stopped for {:?}; ask again", ending.raw);
                return Err(self.failed(ErrorKind::Protocol, message));
            }
        }
        self.meta.stop = ending.stop;
        self.meta.raw_stop = Some(ending.raw);
        Ok(Message { role: Role::Assistant, parts, assistant: Some(self.meta) })
    }

    fn arguments(&self, id: &str, name: &str, json: &str, closed: bool) -> Result<Value, ModelError> {
        let wrong = |found: String| {
            let message = format!("the arguments of the call {id} of {name:?} {found}; ask again");
            Err(self.failed(ErrorKind::Protocol, message))
        };
        if !closed {
            return wrong("were never finished".to_owned());
        }
        // A call of a tool without parameters may have no text at all.
        if json.trim().is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        match serde_json::from_str(json) {
            Ok(Value::Object(arguments)) => Ok(Value::Object(arguments)),
            Ok(_) => wrong("are no JSON object".to_owned()),
            Err(error) => wrong(format!("are no JSON ({error})")),
        }
    }

    /// Whether there is a tool call that the program has to run.
    pub(super) fn has_calls(&self) -> bool {
        self.parts.iter().any(|(part, _)| matches!(part, Growing::Call { by: ExecutedBy::Us, .. }))
    }
}
