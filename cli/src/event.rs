//! Durable events as text for people.

use crate::print::{short, word};
use flovyn_core::model::{CHILD_SIGNALS, Event, EventKind};
use serde_json::Value;

/// An event on one line of at most `limit` characters; ids that mean nothing to people are left out.
pub(crate) fn describe(event: &Event, limit: usize) -> String {
    let data = &event.data;
    let text = |name: &str| match &data[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let line = match event.kind {
        EventKind::Created => format!("{} in queue {}", text("kind"), text("queue")),
        EventKind::Resumed => format!("epoch {}", text("epoch")),
        EventKind::Waiting => match data["signals"].as_array() {
            Some(names) if !names.is_empty() => awaited(names),
            _ => format!("for {}", text("reason")),
        },
        EventKind::Woken | EventKind::Continued => text(if data["reason"].is_null() { "from" } else { "reason" }),
        EventKind::Checkpoint => text("sequence"),
        EventKind::Entry => match data.get("content") {
            Some(content) => format!("{}: {}", text("role"), content_text(content)),
            None => text("role"),
        },
        EventKind::Signal => match text("name").strip_prefix(CHILD_SIGNALS) {
            Some(child) => format!("the end of child {child}"),
            None => text("name"),
        },
        EventKind::Usage => {
            let usage = &data["usage"];
            format!("{}: {} in, {} out", text("model"), usage["input_tokens"], usage["output_tokens"])
        }
        kind if word(&kind).starts_with("task_") => {
            let error = data["error"]["message"].as_str().map(|message| format!(": {message}")).unwrap_or_default();
            format!("{} attempt {}{error}", text("kind"), text("attempt"))
        }
        EventKind::Failed | EventKind::Paused => match data["error"]["message"].as_str() {
            Some(message) => message.to_owned(),
            None => text("reason"),
        },
        _ if data.as_object().is_some_and(serde_json::Map::is_empty) => String::new(),
        _ => data.to_string(),
    };
    short(&line, limit)
}

/// What a run waits for, by the names of signals: some of them report the ends of children.
fn awaited(names: &[Value]) -> String {
    let names = || names.iter().filter_map(Value::as_str);
    let signals: Vec<_> = names().filter(|name| !name.starts_with(CHILD_SIGNALS)).collect();
    let children: Vec<_> = names().filter_map(|name| name.strip_prefix(CHILD_SIGNALS)).collect();
    let parts = [("for signal ", signals), ("for child ", children)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    parts.map(|(what, names)| format!("{what}{}", names.join(", "))).collect::<Vec<_>>().join(" and ")
}

/// The text of a content; its JSON where it has none.
pub(crate) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Object(object) => match object.get("text").or_else(|| object.get("content")) {
            Some(Value::String(text)) => text.clone(),
            _ => content.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn signals_and_children_are_told_apart() {
        let names = json!(["flovyn.child.7", "go", "flovyn.child.8"]);
        assert_eq!(awaited(names.as_array().unwrap()), "for signal go and for child 7, 8");
        assert_eq!(awaited(&[json!("go")]), "for signal go");
    }
}
