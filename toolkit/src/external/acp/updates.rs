//! Reads `session/update`: texts, tool calls in all their stages, and what was used.

use super::host::line_of;
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
    /// What it had cost when it was last booked.
    booked_cost: u64,
    /// The message that the text belongs to, where the agent says it.
    message: Option<String>,
}

#[derive(Default)]
struct Call {
    kind: String,
    title: String,
    input: Value,
    locations: Vec<String>,
    /// What its command has printed, where the agent shows that apart from the content.
    printed: String,
    is_known: bool,
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
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => self.on_text(update, ExternalEvent::Text),
            "agent_thought_chunk" => self.on_text(update, ExternalEvent::Thinking),
            "tool_call" | "tool_call_update" => self.on_call(update).1,
            "usage_update" => {
                self.on_cost(&update["cost"]);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// More of a text. One of another message than before is not a part of that.
    fn on_text(&mut self, update: &Value, event: fn(String) -> ExternalEvent) -> Vec<ExternalEvent> {
        let text = text_of(&update["content"]);
        if text.is_empty() {
            return Vec::new();
        }
        let message = update["messageId"].as_str().map(str::to_owned);
        let is_new = self.message != message;
        self.message = message;
        let end = is_new.then_some(ExternalEvent::MessageEnd);
        end.into_iter().chain([event(text)]).collect()
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
        for name in ["terminal_output", "terminal_output_delta"] {
            call.printed.push_str(update["_meta"][name]["data"].as_str().unwrap_or_default());
        }
        if call.has_ended {
            return (id, events);
        }
        let status = update["status"].as_str().unwrap_or_default();
        // Some agents tell of a call, with an input that is empty, while their model still writes the input.
        let has_input = call.input.as_object().is_none_or(|fields| !fields.is_empty());
        let is_first = !std::mem::replace(&mut call.is_known, true);
        if !is_first || status != "pending" || has_input {
            events.extend(call.start(&id));
        }
        if let "completed" | "failed" = status {
            call.has_ended = true;
            let content = call.result(update);
            events.push(ExternalEvent::ToolEnd(ToolEnded { id: id.clone(), content, is_error: status == "failed" }));
        }
        (id, events)
    }

    /// The call that a permission is asked for, with what is new of it.
    pub(super) fn asked(&mut self, update: &Value) -> (Vec<ExternalEvent>, AskedCall) {
        let (id, mut events) = self.on_call(update);
        let asked = match self.calls.get_mut(&id) {
            Some(call) => {
                events.extend(call.start(&id));
                AskedCall { id, name: call.name(), effect: call.effect(), arguments: call.arguments() }
            }
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

    /// Takes note of what a session that is resumed has cost before.
    pub(super) fn go_on_from(&mut self, cost: Option<u64>) {
        self.booked_cost = cost.unwrap_or(0);
    }

    /// What the session has cost as far as it was booked, where the agent says it.
    pub(super) fn booked_cost(&self) -> Option<u64> {
        Some(self.booked_cost).filter(|cost| *cost > 0)
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
            // What counts less than it did has begun to count anew.
            let before = std::mem::replace(&mut self.booked_cost, *amount);
            let amount_micros = if *amount < before { *amount } else { *amount - before };
            let currency = currency.clone();
            usage.cost = Some(Cost { amount_micros, currency, basis: CostBasis::Provider, table_version: None });
        }
        let says = counts.is_object() || usage.cost.is_some();
        says.then(|| ExternalEvent::Spent(Spent { model: agent.to_owned(), usage }))
    }
}

impl Call {
    /// Its beginning, once.
    fn start(&mut self, id: &str) -> Option<ExternalEvent> {
        let is_news = !std::mem::replace(&mut self.has_started, true);
        is_news.then(|| {
            let (name, arguments) = (self.name(), self.arguments());
            ExternalEvent::ToolStart(ToolStarted { id: id.to_owned(), name, arguments })
        })
    }

    /// Its result in words.
    fn result(&self, update: &Value) -> String {
        let blocks = update["content"].as_array().into_iter().flatten();
        let texts = blocks.filter_map(|block| match block["type"].as_str().unwrap_or_default() {
            "content" => Some(text_of(&block["content"])),
            "diff" => Some(format!("Changed {}.", block["path"].as_str().unwrap_or("a file"))),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        match &update["rawOutput"] {
            _ if !text.is_empty() => text,
            Value::Null => self.printed.clone(),
            Value::String(output) => output.clone(),
            output => output.to_string(),
        }
    }

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
        if let Some(line) = arguments.get("command").and_then(line_of_words) {
            arguments.insert("command".to_owned(), line.into());
        }
        if !self.title.is_empty() {
            arguments.entry("title").or_insert_with(|| self.title.clone().into());
        }
        if let Some(path) = self.locations.first() {
            arguments.entry("path").or_insert_with(|| path.clone().into());
        }
        Value::Object(arguments)
    }
}

/// The line of a command that is told in words, so that rules about commands see what they would see of a line. A line that
/// is given to a shell is that line.
fn line_of_words(command: &Value) -> Option<String> {
    let words: Option<Vec<_>> = command.as_array()?.iter().map(Value::as_str).collect();
    match words?.as_slice() {
        [_, "-c" | "-lc", line] => Some((*line).to_owned()),
        words => Some(line_of(words.iter().copied())),
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
    fn a_call_whose_input_is_being_written_has_not_begun() {
        let mut updates = Updates::default();
        let announced = json!({
            "sessionUpdate": "tool_call", "toolCallId": "a", "title": "Terminal", "kind": "execute",
            "status": "pending", "rawInput": {},
        });
        assert_eq!(updates.read(&announced), []);
        let written = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "a", "title": "Run ls", "rawInput": {"command": "ls"},
        });
        let arguments = json!({"command": "ls", "title": "Run ls"});
        let start = ToolStarted { id: "a".into(), name: "execute".into(), arguments };
        assert_eq!(updates.read(&written), [ExternalEvent::ToolStart(start)]);
        // A permission is asked for a call that has begun.
        let (events, asked) = updates.asked(&json!({"toolCallId": "b", "status": "pending", "rawInput": {}}));
        assert_eq!((events.len(), asked.name.as_str()), (1, "other"));
    }

    #[test]
    fn a_command_in_words_is_a_line() {
        for (words, line) in [(json!(["/bin/bash", "-lc", "ls | wc"]), "ls | wc"), (json!(["cat", "a b"]), "cat 'a b'")]
        {
            let (_, asked) = Updates::default().asked(&json!({"toolCallId": "a", "rawInput": {"command": words}}));
            assert_eq!(asked.arguments["command"], line);
        }
    }

    #[test]
    fn what_a_command_prints_is_its_result() {
        let mut updates = Updates::default();
        updates.read(&json!({
            "sessionUpdate": "tool_call", "toolCallId": "a", "kind": "execute", "status": "in_progress",
            "content": [{"type": "terminal", "terminalId": "a"}],
            "_meta": {"terminal_output_delta": {"terminal_id": "a", "data": "ott"}},
        }));
        let done = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "completed",
            "_meta": {"terminal_output_delta": {"terminal_id": "a", "data": "ers"}, "terminal_exit": {"exit_code": 0}},
        });
        let end = ToolEnded { id: "a".into(), content: "otters".into(), is_error: false };
        assert_eq!(updates.read(&done), [ExternalEvent::ToolEnd(end)]);
    }

    #[test]
    fn texts_of_two_messages_are_two() {
        let mut updates = Updates::default();
        let mut read = |id: Option<&str>, text: &str| {
            let content = json!({"type": "text", "text": text});
            updates.read(&json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": content}))
        };
        let text = |text: &str| ExternalEvent::Text(text.into());
        assert_eq!(read(None, "Warning"), [text("Warning")]);
        assert_eq!(read(Some("a"), ""), []);
        assert_eq!(read(Some("a"), "Ott"), [ExternalEvent::MessageEnd, text("Ott")]);
        assert_eq!(read(Some("a"), "ers"), [text("ers")]);
        assert_eq!(read(Some("b"), "Seals"), [ExternalEvent::MessageEnd, text("Seals")]);
    }

    #[test]
    fn a_session_that_is_resumed_is_not_paid_again() {
        let cost =
            |amount: f64| json!({"sessionUpdate": "usage_update", "cost": {"amount": amount, "currency": "USD"}});
        let booked = |updates: &mut Updates| match updates.turn_usage(&Value::Null, "acp x") {
            Some(ExternalEvent::Spent(spent)) => spent.usage.cost.map(|cost| cost.amount_micros),
            _ => None,
        };
        for (next, micros) in [(0.75, 250_000), (0.25, 250_000)] {
            let mut updates = Updates::default();
            updates.go_on_from(Some(500_000));
            updates.read(&cost(next));
            assert_eq!(booked(&mut updates), Some(micros), "{next}: it goes on, or begins anew");
        }
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
