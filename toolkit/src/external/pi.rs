//! Pi by its RPC mode: commands and events as JSON, a line each.
//!
//! A session has the id that we choose, in a file of Pi's. After a crash `get_entries` tells what came after the last turn,
//! by the id of the entry at which that ended.

use super::event::{Answer, ExternalEvent, Permission, Spent, ToolEnded, ToolStarted, TurnEnd, TurnEndReason, TurnLog};
use super::process::{Launch, Peer};
use super::protocol::{
    CatchUp, Controls, ExternalAgentProtocol, ExternalSession, Lost, SessionConfig, Snapshot, Spoken,
};
use crate::message::{Cost, CostBasis, Usage};
use crate::tools::Effect;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A driver of Pi (`pi --mode rpc`).
#[derive(Debug, Clone)]
pub struct Pi {
    program: String,
    args: Vec<String>,
}

/// The variables that Pi inherits: its own, and the keys of the providers that it knows by them.
const VARIABLES: &[&str] = &[
    "PI_*",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
    "MISTRAL_API_KEY",
    "GROQ_API_KEY",
    "XAI_API_KEY",
    "DEEPSEEK_API_KEY",
    "AWS_*",
    "AZURE_*",
];

impl Default for Pi {
    fn default() -> Self {
        Self { program: "pi".to_owned(), args: Vec::new() }
    }
}

impl Pi {
    /// A driver that starts this program in place of `pi`, with these arguments before its own.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }
}

#[async_trait]
impl ExternalAgentProtocol for Pi {
    fn name(&self) -> &'static str {
        "pi"
    }

    fn launch(&self, config: &SessionConfig, snapshot: Option<&Snapshot>) -> Launch {
        let id = snapshot.map_or(&config.new_id, |snapshot| &snapshot.session_id);
        let mut args = self.args.clone();
        // It opens the session of this id, and makes it where there is none.
        args.extend(["--mode", "rpc", "--session-id", id.as_str()].map(str::to_owned));
        if let Some(model) = &config.model {
            args.extend(["--model".to_owned(), model.clone()]);
        }
        let variables = VARIABLES.iter().map(|&name| name.to_owned()).collect();
        Launch { program: self.program.clone(), args, variables, ..Launch::default() }
    }

    fn tells_version(&self) -> bool {
        true
    }

    fn steers(&self) -> bool {
        true
    }

    async fn start(&self, peer: Peer, config: &SessionConfig) -> Spoken<Box<dyn ExternalSession>> {
        Ok(Box::new(PiSession::open(peer, config, None).await?))
    }

    async fn resume(
        &self,
        peer: Peer,
        config: &SessionConfig,
        snapshot: &Snapshot,
        heard: Option<&TurnLog>,
    ) -> Spoken<(Box<dyn ExternalSession>, CatchUp)> {
        let mut session = PiSession::open(peer, config, snapshot.cursor.clone()).await?;
        let caught = match heard {
            None => CatchUp::Unknown,
            Some(heard) => {
                let entries = session.entries(config.start_timeout).await?;
                catch_up(entries["entries"].as_array().map_or(&[], Vec::as_slice), heard)
            }
        };
        Ok((Box::new(session), caught))
    }
}

struct PiSession {
    peer: Peer,
    id: String,
    /// The entry at which the last turn ended.
    cursor: Option<String>,
    last_command: u64,
    /// The command that begins a turn, until it is answered.
    prompt: Option<String>,
    /// Asks for the entry at which the turn that is over has ended.
    asks_cursor: Option<String>,
    ready: VecDeque<ExternalEvent>,
    /// Whether text of the present message was told by its pieces.
    has_text: bool,
    /// How the last message of the model ended.
    end: TurnEnd,
    /// The kind of each question that waits for an answer.
    asked: BTreeMap<String, Value>,
}

impl PiSession {
    async fn open(peer: Peer, config: &SessionConfig, cursor: Option<String>) -> Spoken<Self> {
        let mut session = Self {
            peer,
            id: String::new(),
            cursor,
            last_command: 0,
            prompt: None,
            asks_cursor: None,
            ready: VecDeque::new(),
            has_text: false,
            end: TurnEnd::default(),
            asked: BTreeMap::new(),
        };
        let state = session.call(json!({ "type": "get_state" }), config.start_timeout).await?;
        let id = state["sessionId"].as_str().unwrap_or(&config.new_id);
        session.id = id.to_owned();
        Ok(session)
    }

    fn command(&mut self, mut command: Value) -> Spoken<String> {
        self.last_command += 1;
        let id = format!("flovyn-{}", self.last_command);
        command["id"] = id.as_str().into();
        self.peer.send(&command)?;
        Ok(id)
    }

    /// Sends a command and waits for its response; what comes meanwhile is kept.
    async fn call(&mut self, command: Value, limit: Duration) -> Spoken<Value> {
        let name = command["type"].as_str().unwrap_or_default().to_owned();
        let id = self.command(command)?;
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let record = match self.peer.next_within(left).await {
                Err(Lost::Died(_)) if left.is_zero() => return Err(self.peer.silent(limit)),
                record => record?,
            };
            if record["type"] != "response" || record["id"] != id.as_str() {
                self.on_record(&record)?;
            } else if record["success"] == false {
                let why = record["error"].as_str().unwrap_or("it did not say why");
                return Err(Lost::refused(format!("Pi refused {name}: {why}")));
            } else {
                return Ok(record["data"].clone());
            }
        }
    }

    /// The entries after the cursor.
    async fn entries(&mut self, limit: Duration) -> Spoken<Value> {
        let command = self.entries_command();
        self.call(command, limit).await
    }

    fn entries_command(&self) -> Value {
        let mut command = json!({ "type": "get_entries" });
        if let Some(cursor) = &self.cursor {
            command["since"] = cursor.as_str().into();
        }
        command
    }

    fn on_record(&mut self, record: &Value) -> Spoken<()> {
        match record["type"].as_str().unwrap_or_default() {
            "response" => self.on_response(record),
            "message_start" => self.has_text = false,
            "message_update" => {
                let update = &record["assistantMessageEvent"];
                let delta = || update["delta"].as_str().unwrap_or_default().to_owned();
                match update["type"].as_str().unwrap_or_default() {
                    "text_delta" => {
                        self.has_text = true;
                        self.ready.push_back(ExternalEvent::Text(delta()));
                    }
                    "thinking_delta" => self.ready.push_back(ExternalEvent::Thinking(delta())),
                    _ => {}
                }
            }
            "message_end" if record["message"]["role"] == "assistant" => {
                let message = &record["message"];
                if !std::mem::replace(&mut self.has_text, false) {
                    self.ready.extend(said(message));
                }
                self.ready.push_back(ExternalEvent::MessageEnd);
                self.ready.extend(spent(message));
                self.end = end_of(message);
            }
            "tool_execution_start" => self.ready.push_back(ExternalEvent::ToolStart(ToolStarted {
                id: text(&record["toolCallId"]),
                name: text(&record["toolName"]),
                arguments: record["args"].clone(),
            })),
            "tool_execution_end" => self.ready.push_back(ExternalEvent::ToolEnd(ToolEnded {
                id: text(&record["toolCallId"]),
                content: words(&record["result"]["content"]),
                is_error: record["isError"] == true,
            })),
            // Versions before 1.0 say no more at the end of their work.
            "agent_end" if record.get("willRetry").is_none() => return self.on_settled(),
            "agent_settled" => return self.on_settled(),
            "extension_ui_request" => return self.on_question(record),
            "extension_error" => {
                let warning = format!("an extension of Pi has failed: {}", text(&record["error"]));
                self.ready.push_back(ExternalEvent::Warning(warning));
            }
            _ => {}
        }
        Ok(())
    }

    fn on_response(&mut self, record: &Value) {
        let id = record["id"].as_str().map(str::to_owned);
        if id.is_some() && id == self.prompt {
            self.prompt = None;
            let why = record["error"].as_str().unwrap_or("it did not say why");
            let end = match (&record["success"], record["data"]["disposition"].as_str()) {
                (Value::Bool(false), _) => {
                    Some(TurnEnd { reason: TurnEndReason::Error, message: Some(why.to_owned()) })
                }
                // A command of an extension: nothing follows.
                (_, Some("handled")) => Some(TurnEnd::default()),
                _ => None,
            };
            self.ready.extend(end.map(ExternalEvent::TurnEnd));
        } else if id.is_some() && id == self.asks_cursor {
            self.asks_cursor = None;
            if let Some(leaf) = record["data"]["leafId"].as_str() {
                self.cursor = Some(leaf.to_owned());
            }
            self.ready.push_back(ExternalEvent::TurnEnd(std::mem::take(&mut self.end)));
        }
    }

    /// It has nothing to do any more: where its records end is asked for, then the turn is over.
    fn on_settled(&mut self) -> Spoken<()> {
        if self.asks_cursor.is_none() {
            let command = self.entries_command();
            self.asks_cursor = Some(self.command(command)?);
        }
        Ok(())
    }

    /// An extension asks the user something. What can be answered by yes or no is a permission.
    fn on_question(&mut self, record: &Value) -> Spoken<()> {
        let id = text(&record["id"]);
        match record["method"].as_str().unwrap_or_default() {
            "confirm" | "select" => {
                self.asked.insert(id.clone(), record.clone());
                let mut arguments = json!({ "title": record["title"] });
                for name in ["message", "options"] {
                    if !record[name].is_null() {
                        arguments[name] = record[name].clone();
                    }
                }
                let permission = Permission { id, name: "pi-extension".to_owned(), effect: Effect::Exec, arguments };
                self.ready.push_back(ExternalEvent::Permission(permission));
                Ok(())
            }
            method @ ("input" | "editor") => {
                let warning =
                    format!("Pi has asked for a text ({}), which a run cannot give it", text(&record["title"]));
                tracing::warn!("{method}: {warning}");
                self.ready.push_back(ExternalEvent::Warning(warning));
                self.peer.send(&json!({ "type": "extension_ui_response", "id": id, "cancelled": true }))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ExternalSession for PiSession {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            session_id: self.id.clone(),
            cursor: self.cursor.clone(),
            agent: "pi".to_owned(),
            ..Snapshot::default()
        }
    }

    fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    async fn send_message(&mut self, text: &str) -> Spoken<()> {
        self.end = TurnEnd::default();
        self.prompt = Some(self.command(json!({ "type": "prompt", "message": text }))?);
        Ok(())
    }

    async fn next(&mut self) -> Spoken<ExternalEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let record = self.peer.next().await?;
            self.on_record(&record)?;
        }
    }

    async fn answer(&mut self, id: &str, answer: &Answer) -> Spoken<()> {
        let Some(question) = self.asked.remove(id) else { return Ok(()) };
        let mut response = json!({ "type": "extension_ui_response", "id": id });
        match (question["method"].as_str(), answer) {
            (_, Answer::Withdrawn) => response["cancelled"] = true.into(),
            (Some("confirm"), answer) => response["confirmed"] = (*answer == Answer::Allow).into(),
            (_, answer) => match option(&question["options"], *answer == Answer::Allow) {
                Some(value) => response["value"] = value.into(),
                None => response["cancelled"] = true.into(),
            },
        }
        self.peer.send(&response)
    }

    fn controls(&self) -> Controls {
        Controls {
            outbox: self.peer.outbox().clone(),
            interrupt: Arc::new(|| vec![json!({ "type": "clear_queue" }), json!({ "type": "abort" })]),
            steer: Some(Arc::new(|text| json!({ "type": "steer", "message": text }))),
        }
    }
}

/// The option that means yes, or no.
fn option(options: &Value, allows: bool) -> Option<String> {
    let words: &[&str] = match allows {
        true => &["allow", "yes", "approve", "accept", "continue", "proceed"],
        false => &["block", "no", "deny", "reject", "cancel", "abort"],
    };
    let options: Vec<_> = options.as_array()?.iter().filter_map(Value::as_str).collect();
    let begins = |option: &&&str| words.iter().any(|word| option.to_lowercase().starts_with(word));
    options.iter().find(begins).or(if allows { options.first() } else { None }).map(|option| (*option).to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The text of content, which is a text or blocks.
fn words(content: &Value) -> String {
    let blocks = content.as_array().into_iter().flatten();
    let texts = blocks.filter_map(|block| match block["type"].as_str() {
        Some("text") => block["text"].as_str().map(str::to_owned),
        Some(other) => Some(format!("[{other}]")),
        None => None,
    });
    content.as_str().map_or_else(|| texts.collect::<Vec<_>>().join("\n"), str::to_owned)
}

/// The texts and thoughts of a message.
fn said(message: &Value) -> Vec<ExternalEvent> {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks
        .filter_map(|block| match block["type"].as_str() {
            Some("text") => Some(ExternalEvent::Text(text(&block["text"]))),
            Some("thinking") => Some(ExternalEvent::Thinking(text(&block["thinking"]))),
            _ => None,
        })
        .collect()
}

/// What a message has used.
fn spent(message: &Value) -> Option<ExternalEvent> {
    let usage = message["usage"].as_object()?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let cost = usage.get("cost").and_then(|cost| cost["total"].as_f64());
    let mut usage = Usage {
        input: count("input"),
        cache_read: count("cacheRead"),
        cache_write: count("cacheWrite"),
        cache_write_1h: count("cacheWrite1h"),
        output: count("output"),
        reasoning: count("reasoning"),
        ..Usage::default()
    };
    if usage.total() == 0 {
        return None;
    }
    // A model without a price in its catalogue costs nothing there; that is no price.
    usage.cost = cost.filter(|cost| *cost > 0.0).map(|cost| Cost {
        amount_micros: (cost * 1e6).round() as u64,
        currency: "USD".to_owned(),
        basis: CostBasis::Table,
        table_version: None,
    });
    let model = format!("{}/{}", text(&message["provider"]), text(&message["model"]));
    Some(ExternalEvent::Spent(Spent { model, usage }))
}

/// How a turn ends that ends with this message.
fn end_of(message: &Value) -> TurnEnd {
    let why = message["errorMessage"].as_str().map(str::to_owned);
    match message["stopReason"].as_str().unwrap_or_default() {
        "length" => TurnEnd { reason: TurnEndReason::Length, message: None },
        "aborted" => TurnEnd { reason: TurnEndReason::Interrupted, message: None },
        "error" => TurnEnd { reason: TurnEndReason::Error, message: why },
        _ => TurnEnd::default(),
    }
}

/// What the entries since the last turn say of the one that was cut.
fn catch_up(entries: &[Value], heard: &TurnLog) -> CatchUp {
    let first = heard.sent.first().map_or("", |text| text.trim());
    let messages = entries.iter().filter(|entry| entry["type"] == "message").map(|entry| &entry["message"]);
    let mut messages =
        messages.skip_while(|message| message["role"] != "user" || words(&message["content"]).trim() != first);
    let (mut known, mut events, mut is_over) = (Vec::new(), Vec::new(), false);
    let Some(first) = messages.next() else { return CatchUp::Unheard };
    known.push(words(&first["content"]));
    for message in messages {
        is_over = false;
        match message["role"].as_str().unwrap_or_default() {
            "user" => known.push(words(&message["content"])),
            "assistant" => {
                events.extend(said(message));
                events.push(ExternalEvent::MessageEnd);
                events.extend(spent(message));
                let calls =
                    message["content"].as_array().into_iter().flatten().filter(|block| block["type"] == "toolCall");
                let calls: Vec<_> = calls
                    .map(|call| {
                        let (id, name) = (text(&call["id"]), text(&call["name"]));
                        ExternalEvent::ToolStart(ToolStarted { id, name, arguments: call["arguments"].clone() })
                    })
                    .collect();
                is_over = calls.is_empty() && message["stopReason"] == "stop";
                events.extend(calls);
            }
            "toolResult" => events.push(ExternalEvent::ToolEnd(ToolEnded {
                id: text(&message["toolCallId"]),
                content: words(&message["content"]),
                is_error: message["isError"] == true,
            })),
            _ => {}
        }
    }
    match is_over {
        true => {
            events.push(ExternalEvent::TurnEnd(TurnEnd::default()));
            CatchUp::Ended(events)
        }
        false => CatchUp::Cut { heard: known, events },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_tell_whether_a_turn_is_over() {
        let user = |text: &str| json!({"type": "message", "message": {"role": "user", "content": text}});
        let heard = TurnLog::of("go".into());
        assert_eq!(catch_up(&[], &heard), CatchUp::Unheard);
        assert_eq!(catch_up(&[user("other")], &heard), CatchUp::Unheard);
        let known = vec!["go".to_owned()];
        assert_eq!(catch_up(&[user("go")], &heard), CatchUp::Cut { heard: known, events: vec![] });
        let done = json!({"type": "message", "message": {
            "role": "assistant", "stopReason": "stop", "content": [{"type": "text", "text": "done"}],
        }});
        let over = TurnEnd::default();
        let events = vec![ExternalEvent::Text("done".into()), ExternalEvent::MessageEnd, ExternalEvent::TurnEnd(over)];
        assert_eq!(catch_up(&[user("go"), done], &heard), CatchUp::Ended(events));
    }

    #[test]
    fn options_are_read_as_yes_and_no() {
        let options = json!(["Block", "Allow once"]);
        assert_eq!(option(&options, true).as_deref(), Some("Allow once"));
        assert_eq!(option(&options, false).as_deref(), Some("Block"));
        assert_eq!(option(&json!(["red", "blue"]), false), None);
    }
}
