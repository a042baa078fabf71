//! A turn as a UI message stream of the AI SDK, version 1: what `useChat` reads.

use super::part::{Ending, Piece, Prose, TurnPart};
use serde_json::{Value, json};

/// Writes a turn for the AI SDK.
#[derive(Debug)]
pub(crate) struct AiSdk {
    /// Whether the reader knows `reset-step`, which takes back what a step has written. Only `ai` 7 does.
    pub(crate) resets: bool,
}

impl AiSdk {
    /// The chunks that show a part.
    pub(super) fn chunks(&self, part: TurnPart) -> Vec<Value> {
        vec![match part {
            TurnPart::Began { id, .. } => json!({ "type": "start", "messageId": format!("{id}-answer") }),
            TurnPart::StepBegan => json!({ "type": "start-step" }),
            TurnPart::StepEnded => json!({ "type": "finish-step" }),
            TurnPart::Opened(Piece { id, prose }) => json!({ "type": word(prose, "start"), "id": id }),
            TurnPart::Grew(Piece { id, prose }, text) => {
                json!({ "type": word(prose, "delta"), "id": id, "delta": text })
            }
            TurnPart::Closed(Piece { id, prose }) => json!({ "type": word(prose, "end"), "id": id }),
            TurnPart::Voided { is_all: true, .. } if self.resets => json!({ "type": "reset-step" }),
            TurnPart::Voided { pieces, .. } => {
                let mark = json!({ "flovyn": { "retracted": true } });
                let open = pieces.into_iter().filter(|(_, is_open)| *is_open);
                return open
                    .map(|(Piece { id, prose }, _)| {
                        json!({ "type": word(prose, "end"), "id": id, "providerMetadata": mark })
                    })
                    .collect();
            }
            TurnPart::File { mime, url } => json!({ "type": "file", "mediaType": mime, "url": url }),
            TurnPart::Called { call, name, arguments, written: None, .. } => {
                json!({ "type": "tool-input-available", "toolCallId": call, "toolName": name, "input": arguments })
            }
            TurnPart::Called { call, name, written: Some(written), .. } => json!({
                "type": "tool-input-error", "toolCallId": call, "toolName": name, "input": written,
                "errorText": "The model has written arguments that are no JSON object.",
            }),
            TurnPart::ApprovalRequested(approval) => {
                json!({ "type": "tool-approval-request", "approvalId": approval.id(), "toolCallId": approval.call })
            }
            TurnPart::Denied { call } => json!({ "type": "tool-output-denied", "toolCallId": call }),
            TurnPart::Returned { is_denied: true, .. } => return Vec::new(),
            TurnPart::Returned { call, text, is_error: true, .. } => {
                json!({ "type": "tool-output-error", "toolCallId": call, "errorText": text })
            }
            TurnPart::Returned { call, text, .. } => {
                json!({ "type": "tool-output-available", "toolCallId": call, "output": text })
            }
            TurnPart::Data { name, id: Some(id), value } => {
                json!({ "type": format!("data-{name}"), "id": id, "data": value })
            }
            TurnPart::Data { name, id: None, value } => {
                json!({ "type": format!("data-{name}"), "data": value, "transient": true })
            }
            TurnPart::Failed { message, .. } => json!({ "type": "error", "errorText": message }),
            TurnPart::Ended(Ending::Cancelled) => json!({ "type": "abort", "reason": "The run was cancelled." }),
            TurnPart::Ended(ending) => json!({ "type": "finish", "finishReason": reason(&ending) }),
        }]
    }
}

fn word(prose: Prose, what: &str) -> String {
    let kind = if prose == Prose::Text { "text" } else { "reasoning" };
    format!("{kind}-{what}")
}

fn reason(ending: &Ending) -> &'static str {
    match ending {
        Ending::Done(word) => match &word[..] {
            "end" => "stop",
            "length" => "length",
            "refusal" => "content-filter",
            "error" | "invalid_output" => "error",
            _ => "other",
        },
        Ending::Asks(_) => "tool-calls",
        Ending::Steered => "stop",
        Ending::Failed => "error",
        Ending::Cancelled => "other",
    }
}
