//! Reads `session/update`: texts, tool calls in all their stages, and what was used.

use crate::external::event::{ExternalEvent, Spent, ToolEnded, ToolStarted};
use crate::message::{Cost, CostBasis, Usage};
use crate::tools::Effect;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What is known of the agent's tool calls and of what it has used.
#[derive(Default)]
pub(super) struct Updates {
    calls: BTreeMap<String, Call>,
    /// What the session has cost so far, in millionths of a unit of this currency.
    cost: Option<(u64, String)>,
    /// What it had cost when it was last told.
    told_cost: u64,
}

#[derive(Default)]
struct Call {
    kind: String,
    title: String,
    input: Value,
    locations: Vec<String>,
    has_started: bool,
    has_ended: bool,
    is_allowed: bool,
}

/// A tool call that the agent asks a permission for.
pub(super) struct AskedCall {
    pub id: String,
    pub name: String,
    pub effect: Effect,
    pub arguments: Value,
}

impl Updates {
    /// Forgets the calls of the turn before.
    pub(super) fn begin_turn(&mut self) {
        self.calls.retain(|_, call| !call.has_ended);
    }

    /// What an update says; nothing, if it is of a kind that is not known.
    pub(super) fn read(&mut self, update: &Value) -> Vec<ExternalEvent> {
        let said = || text_of(&update["content"]);
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => vec![ExternalEvent::Text(said())],
            "agent_thought_chunk" => vec![ExternalEvent::Thinking(said())],
            "tool_call" | "tool_call_update" => self.on_call(update).1,
            "usage_update" => {
                self.on_cost(&update["cost"]);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn on_call(&mut self, update: &Value) -> (String, Vec<ExternalEvent>) {
        let id = update["toolCallId"].as_str().unwrap_or_default().to_owned();
        let call = self.calls.entry(id.clone()).or_default();
        let mut events = Vec::new();
        if let Some(kind) = update["kind"].as_str() {
            call.kind = kind.to_owned();
        }
        if let Some(title) = update["title"].as_str() {
            call.title = title.to_owned();
        }
        if !update["rawInput"].is_null() {
            call.input = update["rawInput"].clone();
        }
        if let Some(locations) = update["locations"].as_array() {
            let paths = locations.iter().filter_map(|location| location["path"].as_str());
            call.locations = paths.map(str::to_owned).collect();
        }
        if call.has_ended {
            return (id, events);
        }
        if !std::mem::replace(&mut call.has_started, true) {
            let (name, arguments) = (call.name(), call.arguments());
            events.push(ExternalEvent::ToolStart(ToolStarted { id: id.clone(), name, arguments }));
        }
        let status = update["status"].as_str().unwrap_or_default();
        if let "completed" | "failed" = status {
            call.has_ended = true;
            let content = content_of(update);
            events.push(ExternalEvent::ToolEnd(ToolEnded { id: id.clone(), content, is_error: status == "failed" }));
        }
        (id, events)
    }

    /// The call that a permission is asked for, with what is new of it.
    pub(super) fn asked(&mut self, update: &Value) -> (Vec<ExternalEvent>, AskedCall) {
        let (id, events) = self.on_call(update);
        let asked = match self.calls.get(&id) {
            Some(call) => AskedCall { id, name: call.name(), effect: call.effect(), arguments: call.arguments() },
            None => AskedCall { id, name: "tool".to_owned(), effect: Effect::Exec, arguments: json!({}) },
        };
        (events, asked)
    }

    /// Takes note that a call was allowed.
    pub(super) fn allow(&mut self, id: &str) {
        if let Some(call) = self.calls.get_mut(id) {
            call.is_allowed = true;
        }
    }

    /// Whether a call that changes something was allowed and has not ended.
    pub(super) fn has_allowed_call(&self) -> bool {
        self.calls.values().any(|call| call.is_allowed && !call.has_ended)
    }

    fn on_cost(&mut self, cost: &Value) {
        if let (Some(amount), Some(currency)) = (cost["amount"].as_f64(), cost["currency"].as_str()) {
            self.cost = Some(((amount.max(0.0) * 1e6).round() as u64, currency.to_owned()));
        }
    }

    /// What the turn has used, where the agent says it.
    pub(super) fn turn_usage(&mut self, result: &Value, agent: &str) -> Option<ExternalEvent> {
        let counts = &result["usage"];
        let count = |name: &str| counts[name].as_u64().unwrap_or(0);
        let mut usage = Usage {
            input: count("inputTokens"),
            cache_read: count("cachedReadTokens"),
            cache_write: count("cachedWriteTokens"),
            output: count("outputTokens"),
            reasoning: count("thoughtTokens").min(count("outputTokens")),
            ..Usage::default()
        };
        if let Some((amount, currency)) = &self.cost {
            let amount_micros = amount.saturating_sub(std::mem::replace(&mut self.told_cost, *amount));
            let currency = currency.clone();
            usage.cost = Some(Cost { amount_micros, currency, basis: CostBasis::Provider, table_version: None });
        }
        let says = counts.is_object() || usage.cost.is_some();
        says.then(|| ExternalEvent::Spent(Spent { model: agent.to_owned(), usage }))
    }
}

impl Call {
    fn name(&self) -> String {
        if self.kind.is_empty() { "other".to_owned() } else { self.kind.clone() }
    }

    fn effect(&self) -> Effect {
        match self.kind.as_str() {
            "read" | "search" | "think" | "fetch" => Effect::Read,
            "edit" | "delete" | "move" => Effect::Write,
            _ => Effect::Exec,
        }
    }

    /// What is shown of it and what rules of approvals look at: its input, its title, and the file that it is about.
    fn arguments(&self) -> Value {
        let mut arguments = match &self.input {
            Value::Object(fields) => fields.clone(),
            Value::Null => Map::new(),
            other => Map::from_iter([("input".to_owned(), other.clone())]),
        };
        if !self.title.is_empty() {
            arguments.entry("title").or_insert_with(|| self.title.clone().into());
        }
        if let Some(path) = self.locations.first() {
            arguments.entry("path").or_insert_with(|| path.clone().into());
        }
        Value::Object(arguments)
    }
}

/// The text of a content block; what is no text is named.
pub(super) fn text_of(content: &Value) -> String {
    match content["type"].as_str().unwrap_or_default() {
        "text" => content["text"].as_str().unwrap_or_default().to_owned(),
        "resource_link" => content["uri"].as_str().unwrap_or_default().to_owned(),
        "resource" => content["resource"]["text"].as_str().unwrap_or("[a resource]").to_owned(),
        "" => String::new(),
        other => format!("[{other}]"),
    }
}

/// The result of a tool call in words.
fn content_of(update: &Value) -> String {
    let blocks = update["content"].as_array().into_iter().flatten();
    let texts = blocks.filter_map(|block| match block["type"].as_str().unwrap_or_default() {
        "content" => Some(text_of(&block["content"])),
        "diff" => Some(format!("Changed {}.", block["path"].as_str().unwrap_or("a file"))),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    match (&update["rawOutput"], text.is_empty()) {
        (Value::Null, _) | (_, false) => text,
        (Value::String(output), true) => output.clone(),
        (output, true) => output.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_begins_and_ends_once() {
        let mut updates = Updates::default();
        let began = updates.read(&json!({
            "sessionUpdate": "tool_call", "toolCallId": "a", "title": "Run ls", "kind": "execute",
            "status": "pending", "rawInput": {"command": "ls"},
        }));
        let arguments = json!({"command": "ls", "title": "Run ls"});
        assert_eq!(
            began,
            [ExternalEvent::ToolStart(ToolStarted { id: "a".into(), name: "execute".into(), arguments })]
        );
        assert_eq!(
            updates.read(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "in_progress"})),
            []
        );
        let done = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "completed",
            "content": [{"type": "content", "content": {"type": "text", "text": "otters"}}],
        });
        let end = ToolEnded { id: "a".into(), content: "otters".into(), is_error: false };
        assert_eq!(updates.read(&done), [ExternalEvent::ToolEnd(end)]);
        assert_eq!(updates.read(&done), []);
        assert_eq!(updates.read(&json!({"sessionUpdate": "of_next_year", "content": 5})), []);
    }

    #[test]
    fn an_unknown_price_is_no_price() {
        let mut updates = Updates::default();
        assert_eq!(updates.turn_usage(&json!({"stopReason": "end_turn"}), "acp x"), None);
        let Some(ExternalEvent::Spent(spent)) = updates.turn_usage(&json!({"usage": {"inputTokens": 5}}), "acp x")
        else {
            panic!("it said what it used")
        };
        assert_eq!((spent.usage.input, spent.usage.cost), (5, None));
        for (amount, micros) in [(0.5, 500_000), (0.75, 250_000)] {
            updates.read(&json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": amount, "currency": "USD"}}));
            let Some(ExternalEvent::Spent(spent)) = updates.turn_usage(&Value::Null, "acp x") else {
                panic!("it said what it cost")
            };
            assert_eq!(spent.usage.cost.map(|cost| cost.amount_micros), Some(micros));
        }
    }
}
