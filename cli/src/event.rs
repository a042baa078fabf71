//! Durable events as text for people.

use crate::print::{short, word};
use flovyn_core::model::{
    ANSWER_SIGNALS, CHILD_SIGNALS, EVENT_SIGNALS, Event, EventKind, REFUSAL_SIGNALS, is_own_signal,
};
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
        EventKind::Signal => signal(&text("name")),
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

/// A signal by its name: some are of the run's family.
fn signal(name: &str) -> String {
    if let Some(child) = name.strip_prefix(CHILD_SIGNALS) {
        format!("the end of child {child}")
    } else if let Some(child) = name.strip_prefix(EVENT_SIGNALS) {
        format!("news of child {child}")
    } else if name.starts_with(ANSWER_SIGNALS) {
        "the answer to a request".to_owned()
    } else if name.starts_with(REFUSAL_SIGNALS) {
        "a message was not delivered".to_owned()
    } else {
        name.to_owned()
    }
}

/// What a run waits for, by the names of signals: some of them are of its family.
fn awaited(names: &[Value]) -> String {
    let names = || names.iter().filter_map(Value::as_str);
    let signals: Vec<_> = names().filter(|name| !is_own_signal(name)).collect();
    // Who waits for news of a child waits for its end, too.
    let children: Vec<_> = names().filter_map(|name| name.strip_prefix(CHILD_SIGNALS)).collect();
    let parent: Vec<_> =
        names().filter(|name| name.starts_with(ANSWER_SIGNALS)).map(|_| "its parent").take(1).collect();
    let parts = [("for signal ", signals), ("for child ", children), ("for an answer of ", parent)];
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
        assert_eq!(awaited(&[json!("flovyn.child.7"), json!("flovyn.event.7")]), "for child 7");
        assert_eq!(awaited(&[json!("flovyn.answer.9")]), "for an answer of its parent");
        assert_eq!(signal("flovyn.event.7"), "news of child 7");
        assert_eq!(signal("flovyn.answer.9"), "the answer to a request");
        assert_eq!(signal("flovyn.refused.0.3"), "a message was not delivered");
    }
}
