//! The conversation before a turn, as messages of AG-UI: a reader that comes anew gets it first.

use super::ag_ui::AgUi;
use super::content::{Part, parts_of};
use super::turn::Turn;
use serde_json::{Value, json};

/// Adds entries, from the oldest on, to the conversation that a writer knows. Each is an object with `entry`, `role`, `entry_type`
/// and `content`, as in its event.
pub(crate) fn remember(writer: &mut AgUi, entries: &[Value]) {
    let mut turn: Option<Turn> = None;
    for entry in entries {
        let id = entry["entry"].as_str().unwrap_or_default();
        if entry["role"] == "user" && entry["entry_type"] == "message" {
            turn = Some(Turn::of_message(id.to_owned()));
            writer.remember(Some(user_message(id, &entry["content"])), Vec::new());
            continue;
        }
        let turn = turn.get_or_insert_with(|| Turn::of_message(id.to_owned()));
        let mut parts = Vec::new();
        turn.take_entry(entry, None, &mut parts);
        writer.remember(None, parts);
    }
}

/// A message of the user.
fn user_message(id: &str, content: &Value) -> Value {
    let mut parts = Vec::new();
    for part in parts_of(content) {
        match part {
            Part::Text(text) => parts.push(json!({ "type": "text", "text": text })),
            Part::File { mime, url } => {
                let source = match url.split_once(";base64,") {
                    Some((_, base64)) if url.starts_with("data:") => {
                        json!({ "type": "data", "value": base64, "mimeType": mime })
                    }
                    _ => json!({ "type": "url", "value": url, "mimeType": mime }),
                };
                let kind = mime.split('/').next().filter(|kind| matches!(*kind, "image" | "audio" | "video"));
                parts.push(json!({ "type": kind.unwrap_or("document"), "source": source }));
            }
            Part::Other(value) => parts.push(json!({ "type": "text", "text": value.to_string() })),
            Part::Thinking(_) | Part::Call { .. } | Part::Outcome { .. } => {}
        }
    }
    let content = match &parts[..] {
        [] => json!(""),
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => parts.into(),
    };
    json!({ "id": id, "role": "user", "content": content })
}
