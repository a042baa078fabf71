//! What entries contain: messages of the built-in agent, and whatever else an agent appends, read without trusting its form.

use serde_json::Value;

/// A part of a message.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// Text.
    Text(&'a str),
    /// What a model thought.
    Thinking(&'a str),
    /// A file, with an address that a browser can show.
    File { mime: &'a str, url: String },
    /// A call of a tool.
    Call { id: &'a str, name: &'a str, arguments: &'a Value, written: Option<&'a str> },
    /// What a call has come to.
    Outcome { call: &'a str, text: String, is_error: bool },
    /// Something of which nothing is known.
    Other(&'a Value),
}

/// The parts of a message: a text is one part, messages of the built-in agent name theirs, anything else is one part.
pub(super) fn parts_of(content: &Value) -> Vec<Part<'_>> {
    let parts = content.get("parts").or_else(|| content.get("content"));
    match (content, parts) {
        (Value::Null, _) => Vec::new(),
        (Value::String(text), _) | (_, Some(Value::String(text))) => vec![Part::Text(text)],
        (Value::Array(parts), _) | (_, Some(Value::Array(parts))) => parts.iter().filter_map(part_of).collect(),
        _ => match content["text"].as_str() {
            Some(text) => vec![Part::Text(text)],
            None => vec![Part::Other(content)],
        },
    }
}

/// The first text of a message; empty where it has none.
pub(super) fn first_text(content: &Value) -> &str {
    let text = |part: &Part<'_>| matches!(part, Part::Text(_));
    match parts_of(content).into_iter().find(text) {
        Some(Part::Text(text)) => text,
        _ => "",
    }
}

/// A part; none of what only its provider reads.
fn part_of(part: &Value) -> Option<Part<'_>> {
    let text = |name: &str| part[name].as_str().unwrap_or_default();
    Some(match part["type"].as_str() {
        None if part.is_string() => Part::Text(part.as_str().unwrap_or_default()),
        Some("text") => Part::Text(text("text")),
        Some("thinking") => Part::Thinking(text("text")),
        Some("media") => {
            let (mime, source) = (text("mime"), &part["source"]);
            let url = match (source["url"].as_str(), source["base64"].as_str()) {
                (Some(url), _) => url.to_owned(),
                (None, Some(base64)) => format!("data:{mime};base64,{base64}"),
                (None, None) => return None,
            };
            Part::File { mime, url }
        }
        Some("toolCall") => Part::Call {
            id: text("id"),
            name: text("name"),
            arguments: &part["arguments"],
            written: part["rawArguments"].as_str(),
        },
        Some("toolResult") => {
            let inner = parts_of(&part["content"]);
            let texts = inner.iter().filter_map(|part| match part {
                Part::Text(text) => Some(*text),
                _ => None,
            });
            Part::Outcome {
                call: text("id"),
                text: texts.collect::<Vec<_>>().join("\n"),
                is_error: part["isError"] == true,
            }
        }
        Some("custom") => return None,
        _ => Part::Other(part),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whatever_an_agent_appends_is_read() {
        assert_eq!(parts_of(&json!("a")), [Part::Text("a")]);
        assert_eq!(parts_of(&json!({ "text": "a" })), [Part::Text("a")]);
        assert_eq!(parts_of(&json!({ "content": "a" })), [Part::Text("a")]);
        assert_eq!(parts_of(&json!(null)), []);
        let odd = json!({ "n": 1 });
        assert_eq!(parts_of(&odd), [Part::Other(&odd)]);
        let message = json!({ "role": "assistant", "parts": [
            { "type": "thinking", "text": "t" },
            { "type": "text", "text": "a" },
            { "type": "toolCall", "id": "c", "name": "n", "arguments": { "x": 1 } },
            { "type": "media", "mime": "image/png", "source": { "base64": "AA==" } },
            { "type": "custom", "kind": "p.k", "value": 1 },
        ] });
        assert_eq!(
            parts_of(&message),
            [
                Part::Thinking("t"),
                Part::Text("a"),
                Part::Call { id: "c", name: "n", arguments: &json!({ "x": 1 }), written: None },
                Part::File { mime: "image/png", url: "data:image/png;base64,AA==".into() },
            ]
        );
        let result = json!({ "parts": [{ "type": "toolResult", "id": "c", "name": "n", "isError": true,
            "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }] });
        assert_eq!(parts_of(&result), [Part::Outcome { call: "c", text: "a\nb".into(), is_error: true }]);
        assert_eq!(first_text(&message), "a");
    }
}
