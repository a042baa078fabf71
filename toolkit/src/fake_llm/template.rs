//! Templates: texts that are filled in when they are sent.

use super::oddities::{BYTE, HALF};
use serde_json::{Map, Value};
use std::fmt::Write;

/// What texts may refer to.
#[derive(Debug, Clone, Default)]
pub(super) struct TemplateValues {
    pub(super) i: u64,
    pub(super) turn: u64,
    pub(super) last_user: String,
    pub(super) result: String,
}

impl TemplateValues {
    /// The text with what its `{{…}}` stand for; what is not known stays as it is.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            out.push_str(before);
            let Some((name, behind)) = after.split_once("}}") else {
                out.push_str("{{");
                rest = after;
                continue;
            };
            match name.trim() {
                "i" => drop(write!(out, "{}", self.i)),
                "turn" => drop(write!(out, "{}", self.turn)),
                "lastUser" => out.push_str(&self.last_user),
                "result" => out.push_str(&self.result),
                "half" => out.push(HALF),
                "byte" => out.push(BYTE),
                other => match other.strip_prefix("pad:").and_then(|count| count.trim().parse().ok()) {
                    Some(count) => out.push_str(&words(count)),
                    None => drop(write!(out, "{{{{{name}}}}}")),
                },
            }
            rest = behind;
        }
        out.push_str(rest);
        out
    }

    /// The same for every text of a JSON object.
    pub(super) fn fill_all(&self, object: &Map<String, Value>) -> Map<String, Value> {
        object.iter().map(|(name, value)| (name.clone(), self.fill_value(value))).collect()
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.fill_value(item)).collect()),
            Value::Object(fields) => Value::Object(self.fill_all(fields)),
            other => other.clone(),
        }
    }
}

/// So many characters of words.
fn words(count: usize) -> String {
    "lorem ipsum dolor sit amet ".chars().cycle().take(count.min(64 << 20)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_filled_in_and_the_rest_stays() {
        let values = TemplateValues { i: 3, turn: 7, last_user: "hi".into(), result: "out".into() };
        assert_eq!(values.fill("{{i}} of {{ turn }}: {{lastUser}}/{{result}}"), "3 of 7: hi/out");
        assert_eq!(values.fill("{{nothing}} {{pad:x}} {{open"), "{{nothing}} {{pad:x}} {{open");
        assert_eq!(values.fill("a{{pad:10}}b"), "alorem ipsub");
        let filled = values
            .fill_all(serde_json::json!({"a": ["{{i}}", {"b": "{{turn}}"}], "n": 1}).as_object().expect("an object"));
        assert_eq!(Value::Object(filled), serde_json::json!({"a": ["3", {"b": "7"}], "n": 1}));
    }
}
