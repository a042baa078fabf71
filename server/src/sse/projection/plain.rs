//! A turn as events for those who have no client of a protocol: they read it with curl.

use super::part::{Piece, Prose, TurnPart};
use serde_json::{Value, json};

/// The events that show a part. The end of the turn is written by who knows its answer.
pub(super) fn events(part: TurnPart) -> Vec<Value> {
    match part {
        TurnPart::Grew(Piece { id, prose }, delta) => vec![json!({ "type": name(prose), "id": id, "delta": delta })],
        TurnPart::Voided { pieces, .. } => {
            let retracted =
                |(piece, _): (Piece, bool)| json!({ "type": name(piece.prose), "id": piece.id, "retracted": true });
            pieces.into_iter().map(retracted).collect()
        }
        TurnPart::Called { call, name, arguments, written, .. } => {
            // What is no JSON object is shown as the model has written it.
            let arguments = written.map_or(arguments, Value::String);
            vec![json!({ "type": "tool_call", "id": call, "name": name, "arguments": arguments })]
        }
        TurnPart::Returned { call, text, is_error, is_denied } => vec![json!({
            "type": "tool_result", "id": call, "result": text, "isError": is_error, "isDenied": is_denied,
        })],
        _ => Vec::new(),
    }
}

fn name(prose: Prose) -> &'static str {
    match prose {
        Prose::Text => "message",
        Prose::Thinking => "thought",
    }
}
