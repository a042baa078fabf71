//! A turn as events of AG-UI, version 1: what `HttpAgent` reads. A thread is a run of ours, a run of theirs is a turn.

use super::part::{Approval, Ending, Piece, Prose, TurnPart};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Writes a turn for AG-UI.
#[derive(Debug)]
pub(crate) struct AgUi {
    thread: String,
    run: String,
    /// The conversation before the turn.
    before: Vec<Value>,
    /// The messages of the turn.
    own: Vec<Value>,
    steps: usize,
    has_failed: bool,
}

impl AgUi {
    /// Writes for a thread and a run, whose reader has these messages.
    pub(crate) fn new(thread: String, run: String, before: Vec<Value>) -> Self {
        Self { thread, run, before, own: Vec::new(), steps: 0, has_failed: false }
    }

    /// The first events; with the conversation before the turn for a reader that does not have it.
    pub(super) fn opening(&self, with_messages: bool) -> Vec<Value> {
        let started = json!({ "type": "RUN_STARTED", "threadId": self.thread, "runId": self.run });
        match with_messages {
            true => vec![started, self.snapshot()],
            false => vec![started],
        }
    }

    /// The end of a turn in which there is nothing to show.
    pub(super) fn finished(&self) -> Value {
        json!({ "type": "RUN_FINISHED", "threadId": self.thread, "runId": self.run, "outcome": { "type": "success" } })
    }

    /// Adds the parts of an earlier turn to the conversation.
    pub(crate) fn remember(&mut self, message: Option<Value>, parts: Vec<TurnPart>) {
        self.before.extend(message);
        for part in parts {
            self.note(&part);
        }
        self.before.append(&mut self.own);
    }

    /// The events that show a part. Behind an error there are none.
    pub(super) fn events(&mut self, part: TurnPart) -> Vec<Value> {
        if self.has_failed {
            return Vec::new();
        }
        self.note(&part);
        match part {
            TurnPart::Began { .. } => Vec::new(),
            TurnPart::StepBegan => {
                self.steps += 1;
                vec![json!({ "type": "STEP_STARTED", "stepName": self.step() })]
            }
            TurnPart::StepEnded => vec![json!({ "type": "STEP_FINISHED", "stepName": self.step() })],
            TurnPart::Opened(Piece { id, prose: Prose::Text }) => {
                vec![json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" })]
            }
            TurnPart::Opened(Piece { id, prose: Prose::Thinking }) => vec![
                json!({ "type": "REASONING_START", "messageId": id }),
                json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }),
            ],
            TurnPart::Grew(Piece { id, prose }, delta) => {
                let kind = if prose == Prose::Text { "TEXT_MESSAGE_CONTENT" } else { "REASONING_MESSAGE_CONTENT" };
                vec![json!({ "type": kind, "messageId": id, "delta": delta })]
            }
            TurnPart::Closed(piece) => closed(&piece),
            TurnPart::Voided { pieces, .. } => {
                let open = pieces.iter().filter(|(_, is_open)| *is_open);
                open.flat_map(|(piece, _)| closed(piece)).chain([self.snapshot()]).collect()
            }
            TurnPart::Called { message, call, name, arguments, written } => {
                let arguments = written.unwrap_or_else(|| arguments.to_string());
                vec![
                    json!({
                        "type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": name, "parentMessageId": message,
                    }),
                    json!({ "type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": arguments }),
                    json!({ "type": "TOOL_CALL_END", "toolCallId": call }),
                ]
            }
            TurnPart::Returned { call, text, is_error, .. } => {
                let mut event = json!({
                    "type": "TOOL_CALL_RESULT", "messageId": result_id(&call), "toolCallId": call, "content": text,
                    "role": "tool",
                });
                if is_error {
                    event["metadata"] = json!({ "isError": true });
                }
                vec![event]
            }
            // What is asked is in the end of the run, which is when it can be answered; what is refused has a result.
            TurnPart::ApprovalRequested(_) | TurnPart::Denied { .. } => Vec::new(),
            TurnPart::File { mime, url } => {
                vec![json!({ "type": "CUSTOM", "name": "file", "value": { "mimeType": mime, "url": url } })]
            }
            TurnPart::Data { name, value, .. } => vec![json!({ "type": "CUSTOM", "name": name, "value": value })],
            TurnPart::Failed { message, code } => {
                self.has_failed = true;
                let mut event = json!({ "type": "RUN_ERROR", "message": message });
                if let Some(code) = code {
                    event["code"] = code.into();
                }
                vec![event]
            }
            TurnPart::Ended(ending) => {
                let outcome = match ending {
                    Ending::Asks(approvals) => {
                        json!({ "type": "interrupt", "interrupts": approvals.iter().map(interrupt).collect::<Vec<_>>() })
                    }
                    Ending::Cancelled => json!({ "type": "cancelled" }),
                    Ending::Done(_) | Ending::Steered | Ending::Failed => json!({ "type": "success" }),
                };
                let mut event = self.finished();
                event["outcome"] = outcome;
                vec![event]
            }
        }
    }

    /// The messages that the reader has, or is to have.
    fn snapshot(&self) -> Value {
        let mut known = HashSet::new();
        let all = self.before.iter().chain(&self.own);
        // One that goes on with a turn may have its beginning from its reader, too.
        let messages: Vec<_> = all.filter(|message| known.insert(message["id"].as_str())).collect();
        json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages })
    }

    fn step(&self) -> String {
        format!("step-{}", self.steps)
    }

    /// Keeps the messages of the turn as a reader makes them of its events.
    fn note(&mut self, part: &TurnPart) {
        match part {
            TurnPart::Opened(Piece { id, prose }) => {
                let role = if *prose == Prose::Text { "assistant" } else { "reasoning" };
                self.own.push(json!({ "id": id, "role": role, "content": "" }));
            }
            TurnPart::Grew(Piece { id, .. }, delta) => {
                if let Some(message) = self.own.iter_mut().find(|message| message["id"] == id.as_str())
                    && let Value::String(text) = &mut message["content"]
                {
                    text.push_str(delta);
                }
            }
            TurnPart::Voided { pieces, .. } => {
                let is_void = |message: &Value| pieces.iter().any(|(piece, _)| message["id"] == piece.id.as_str());
                self.own.retain(|message| !is_void(message));
            }
            TurnPart::Called { message, call, name, arguments, written } => {
                let arguments = written.clone().unwrap_or_else(|| arguments.to_string());
                let function = json!({ "name": name, "arguments": arguments });
                let call = json!({ "id": call, "type": "function", "function": function });
                let known = self.own.iter_mut().find(|known| known["id"] == message.as_str());
                match known.map(|known| &mut known["toolCalls"]) {
                    Some(Value::Array(calls)) => calls.push(call),
                    Some(calls) => *calls = json!([call]),
                    None => self.own.push(json!({ "id": message, "role": "assistant", "toolCalls": [call] })),
                }
            }
            TurnPart::Returned { call, text, .. } => {
                self.own.push(json!({ "id": result_id(call), "role": "tool", "toolCallId": call, "content": text }));
            }
            _ => {}
        }
    }
}

fn closed(Piece { id, prose }: &Piece) -> Vec<Value> {
    match prose {
        Prose::Text => vec![json!({ "type": "TEXT_MESSAGE_END", "messageId": id })],
        Prose::Thinking => vec![
            json!({ "type": "REASONING_MESSAGE_END", "messageId": id }),
            json!({ "type": "REASONING_END", "messageId": id }),
        ],
    }
}

fn result_id(call: &str) -> String {
    format!("result-{call}")
}

fn interrupt(approval: &Approval) -> Value {
    json!({
        "id": approval.id(),
        "reason": "tool_call",
        "message": format!("May {} run?", approval.name),
        "toolCallId": approval.call,
        "responseSchema": {
            "type": "object",
            "properties": { "approved": { "type": "boolean" }, "reason": { "type": "string" } },
            "required": ["approved"],
        },
        "metadata": { "toolName": approval.name, "arguments": approval.arguments },
    })
}
