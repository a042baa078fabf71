//! Claude Code by its stream of JSON messages: `claude -p --input-format stream-json --output-format stream-json`.
//!
//! A session has the id that we choose. The ids in what it prints are those of one process, and are not taken for the
//! session's. A resumed process does not tell what was said before; the transcript that Claude Code keeps of each session
//! does, where it is found.

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
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// A driver of Claude Code.
#[derive(Debug, Clone)]
pub struct Claude {
    program: String,
    args: Vec<String>,
}

/// The variables that it inherits.
const VARIABLES: &[&str] = &["ANTHROPIC_*", "CLAUDE_*", "AWS_*", "GOOGLE_*", "CLOUD_ML_REGION"];

impl Default for Claude {
    fn default() -> Self {
        Self { program: "claude".to_owned(), args: Vec::new() }
    }
}

impl Claude {
    /// A driver that starts this program in place of `claude`, with these arguments before its own.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }
}

#[async_trait]
impl ExternalAgentProtocol for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn launch(&self, config: &SessionConfig, snapshot: Option<&Snapshot>) -> Launch {
        let mut args = self.args.clone();
        let own = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"];
        args.extend(own.map(str::to_owned));
        args.extend(["--include-partial-messages", "--permission-prompt-tool", "stdio"].map(str::to_owned));
        args.extend(match snapshot {
            Some(snapshot) => ["--resume".to_owned(), snapshot.session_id.clone()],
            None => ["--session-id".to_owned(), config.new_id.clone()],
        });
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
        Ok(Box::new(ClaudeSession::open(peer, config, &config.new_id).await?))
    }

    async fn resume(
        &self,
        peer: Peer,
        config: &SessionConfig,
        snapshot: &Snapshot,
        heard: Option<&TurnLog>,
    ) -> Spoken<(Box<dyn ExternalSession>, CatchUp)> {
        // Before the process begins, which adds to it.
        let caught = match (heard, transcript(config, &snapshot.session_id).await) {
            (Some(heard), Some(lines)) => catch_up(&lines, heard),
            _ => CatchUp::Unknown,
        };
        let session = ClaudeSession::open(peer, config, &snapshot.session_id).await?;
        Ok((Box::new(session), caught))
    }
}

struct ClaudeSession {
    peer: Peer,
    id: String,
    model: String,
    ready: VecDeque<ExternalEvent>,
    /// Whether the present message was told by its pieces.
    has_pieces: bool,
    /// What the process has cost so far, in millionths of a US dollar.
    cost: u64,
    /// The input of each tool that waits for a permission, by the request.
    asked: BTreeMap<String, Value>,
}

impl ClaudeSession {
    async fn open(peer: Peer, config: &SessionConfig, id: &str) -> Spoken<Self> {
        let mut session = Self {
            peer,
            id: id.to_owned(),
            model: "claude".to_owned(),
            ready: VecDeque::new(),
            has_pieces: false,
            cost: 0,
            asked: BTreeMap::new(),
        };
        session.greet(config.start_timeout).await?;
        Ok(session)
    }

    async fn greet(&mut self, limit: Duration) -> Spoken<()> {
        let request = json!({ "subtype": "initialize", "hooks": null });
        self.peer.send(&json!({ "type": "control_request", "request_id": "flovyn-initialize", "request": request }))?;
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let record = match self.peer.next_within(left).await {
                Err(Lost::Died(_)) if left.is_zero() => return Err(self.peer.silent(limit)),
                record => record?,
            };
            let response = &record["response"];
            if record["type"] != "control_response" || response["request_id"] != "flovyn-initialize" {
                self.on_record(&record)?;
            } else if response["subtype"] == "error" {
                let why = response["error"].as_str().unwrap_or("it did not say why");
                return Err(Lost::refused(format!("Claude Code refused to begin: {why}")));
            } else {
                return Ok(());
            }
        }
    }

    fn on_record(&mut self, record: &Value) -> Spoken<()> {
        // What a sub-agent says is part of the tool call that has started it.
        let is_own = record["parent_tool_use_id"].is_null();
        match record["type"].as_str().unwrap_or_default() {
            "system" => {
                if let Some(model) = record["model"].as_str() {
                    self.model = format!("anthropic/{model}");
                }
            }
            "stream_event" if is_own => self.on_piece(&record["event"]),
            "assistant" if is_own => read_blocks(&record["message"], self.has_pieces, &mut self.ready),
            "user" if is_own => read_results(&record["message"], &mut self.ready),
            "result" => self.on_result(record),
            "control_request" => return self.on_request(record),
            _ => {}
        }
        Ok(())
    }

    fn on_piece(&mut self, event: &Value) {
        let delta = &event["delta"];
        let piece = match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => ExternalEvent::Text(text(&delta["text"])),
            "thinking_delta" => ExternalEvent::Thinking(text(&delta["thinking"])),
            _ => {
                if event["type"] == "message_start" {
                    self.has_pieces = false;
                }
                return;
            }
        };
        self.has_pieces = true;
        self.ready.push_back(piece);
    }

    fn on_result(&mut self, record: &Value) {
        let count = |name: &str| record["usage"][name].as_u64().unwrap_or(0);
        let mut usage = Usage {
            input: count("input_tokens"),
            cache_read: count("cache_read_input_tokens"),
            cache_write: count("cache_creation_input_tokens"),
            output: count("output_tokens"),
            ..Usage::default()
        };
        if let Some(dollars) = record["total_cost_usd"].as_f64() {
            // It counts from the start of the process.
            let total = (dollars.max(0.0) * 1e6).round() as u64;
            let amount_micros = total.saturating_sub(std::mem::replace(&mut self.cost, total));
            usage.cost = Some(Cost {
                amount_micros,
                currency: "USD".to_owned(),
                basis: CostBasis::Provider,
                table_version: None,
            });
        }
        if usage.total() > 0 || usage.cost.is_some() {
            self.ready.push_back(ExternalEvent::Spent(Spent { model: self.model.clone(), usage }));
        }
        let said = record["result"].as_str().map(str::to_owned);
        let errors = record["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let errors = errors.collect::<Vec<_>>().join("; ");
        let end = match record["subtype"].as_str().unwrap_or_default() {
            "error_max_turns" | "error_max_budget_usd" => TurnEnd { reason: TurnEndReason::MaxTurns, message: None },
            "error_during_execution" if errors.is_empty() || errors.contains("abort") => {
                TurnEnd { reason: TurnEndReason::Interrupted, message: None }
            }
            "success" if record["is_error"] != true => TurnEnd::default(),
            _ => {
                let message = if errors.is_empty() { said } else { Some(errors) };
                TurnEnd { reason: TurnEndReason::Error, message }
            }
        };
        self.ready.push_back(ExternalEvent::TurnEnd(end));
    }

    fn on_request(&mut self, record: &Value) -> Spoken<()> {
        let (id, request) = (text(&record["request_id"]), &record["request"]);
        if request["subtype"] != "can_use_tool" {
            let why = format!("Flovyn does not know the request {}", request["subtype"]);
            let response = json!({ "subtype": "error", "request_id": id, "error": why });
            return self.peer.send(&json!({ "type": "control_response", "response": response }));
        }
        let (name, arguments) = (text(&request["tool_name"]), request["input"].clone());
        self.asked.insert(id.clone(), arguments.clone());
        let effect = match name.as_str() {
            "Read" | "Grep" | "Glob" | "LS" | "WebFetch" | "WebSearch" | "TodoWrite" => Effect::Read,
            "Edit" | "MultiEdit" | "Write" | "NotebookEdit" => Effect::Write,
            _ => Effect::Exec,
        };
        self.ready.push_back(ExternalEvent::Permission(Permission { id, name, effect, arguments }));
        Ok(())
    }
}

#[async_trait]
impl ExternalSession for ClaudeSession {
    fn snapshot(&self) -> Snapshot {
        Snapshot { session_id: self.id.clone(), cursor: None, agent: "claude".to_owned(), ..Snapshot::default() }
    }

    fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    async fn send_message(&mut self, text: &str) -> Spoken<()> {
        self.peer.send(&message(text, None))
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
        let Some(input) = self.asked.remove(id) else { return Ok(()) };
        let decision = match answer {
            Answer::Allow => json!({ "behavior": "allow", "updatedInput": input }),
            Answer::Deny(reason) => {
                let reason = reason.as_ref().map_or_else(String::new, |reason| format!(" They said: {reason}"));
                json!({ "behavior": "deny", "message": format!("The user did not allow this.{reason}") })
            }
            Answer::Withdrawn => json!({ "behavior": "deny", "message": "The turn was ended.", "interrupt": true }),
        };
        let response = json!({ "subtype": "success", "request_id": id, "response": decision });
        self.peer.send(&json!({ "type": "control_response", "response": response }))
    }

    fn controls(&self) -> Controls {
        let request = json!({ "subtype": "interrupt" });
        let interrupt = json!({ "type": "control_request", "request_id": "flovyn-interrupt", "request": request });
        Controls {
            outbox: self.peer.outbox().clone(),
            interrupt: vec![interrupt],
            steer: Some(|text| message(text, Some("next"))),
        }
    }
}

/// Reads blocks of a message that are whole. Their text was told by its pieces, if there were any.
fn read_blocks(message: &Value, has_pieces: bool, events: &mut VecDeque<ExternalEvent>) {
    for block in message["content"].as_array().into_iter().flatten() {
        match block["type"].as_str().unwrap_or_default() {
            "text" if !has_pieces => events.push_back(ExternalEvent::Text(text(&block["text"]))),
            "thinking" if !has_pieces => events.push_back(ExternalEvent::Thinking(text(&block["thinking"]))),
            "tool_use" => events.push_back(ExternalEvent::ToolStart(ToolStarted {
                id: text(&block["id"]),
                name: text(&block["name"]),
                arguments: block["input"].clone(),
            })),
            _ => {}
        }
    }
    events.push_back(ExternalEvent::MessageEnd);
}

/// Reads results of tools.
fn read_results(message: &Value, events: &mut VecDeque<ExternalEvent>) {
    for block in message["content"].as_array().into_iter().flatten().filter(|block| block["type"] == "tool_result") {
        events.push_back(ExternalEvent::ToolEnd(ToolEnded {
            id: text(&block["tool_use_id"]),
            content: words(&block["content"]),
            is_error: block["is_error"] == true,
        }));
    }
}

/// The transcript that Claude Code keeps of a session; none where it is not found.
async fn transcript(config: &SessionConfig, id: &str) -> Option<Vec<Value>> {
    let folder = match config.variable("CLAUDE_CONFIG_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(config.variable("HOME")?).join(".claude"),
    };
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let project: String = config.working_dir.to_string_lossy().chars().map(plain).collect();
    let text = tokio::fs::read(folder.join("projects").join(project).join(format!("{id}.jsonl"))).await.ok()?;
    // The last line may be half written.
    Some(text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// What a transcript says of the turn that was cut.
fn catch_up(lines: &[Value], heard: &TurnLog) -> CatchUp {
    let first = heard.sent.first().map_or("", |text| text.trim());
    let own = lines.iter().filter(|line| line["isSidechain"] != true && line["isMeta"] != true);
    let own: Vec<_> = own.filter(|line| line["type"] == "user" || line["type"] == "assistant").collect();
    let is_said = |line: &Value| {
        let content = &line["message"]["content"];
        let blocks = content.as_array().into_iter().flatten();
        line["type"] == "user" && !blocks.into_iter().any(|block| block["type"] == "tool_result")
    };
    let said = |line: &Value| words(&line["message"]["content"]);
    let Some(place) = own.iter().rposition(|line| is_said(line) && said(line).trim() == first) else {
        return CatchUp::Unheard;
    };
    let (mut known, mut events, mut is_over) = (Vec::new(), VecDeque::new(), false);
    for line in &own[place..] {
        let message = &line["message"];
        is_over = line["type"] == "assistant" && message["stop_reason"] == "end_turn";
        match line["type"] == "assistant" {
            true => read_blocks(message, false, &mut events),
            false if is_said(line) => known.push(said(line)),
            false => read_results(message, &mut events),
        }
    }
    let mut events = Vec::from(events);
    match is_over {
        true => {
            events.push(ExternalEvent::TurnEnd(TurnEnd::default()));
            CatchUp::Ended(events)
        }
        false => CatchUp::Cut { heard: known, events },
    }
}

/// A message of the user.
fn message(text: &str, priority: Option<&str>) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    let mut message = json!({
        "type": "user",
        "message": { "role": "user", "content": content },
        "parent_tool_use_id": null,
    });
    if let Some(priority) = priority {
        message["priority"] = priority.into();
    }
    message
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The text of content, which is a text or blocks.
fn words(content: &Value) -> String {
    let blocks = content.as_array().into_iter().flatten();
    let texts = blocks.map(|block| match block["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("[{}]", block["type"].as_str().unwrap_or("something")),
    });
    content.as_str().map_or_else(|| texts.collect::<Vec<_>>().join("\n"), str::to_owned)
}
