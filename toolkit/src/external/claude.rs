//! Claude Code by its stream of JSON messages: `claude -p --input-format stream-json --output-format stream-json`.
//!
//! A session has the id that we choose. The ids in what it prints are those of one process, and are not taken for the
//! session's. A resumed process does not tell what was said before; the transcript that Claude Code keeps of each session
//! does, where it is found.
//!
//! A message that steers is taken up between two calls of the model. One that comes after the last of them begins a turn of
//! its own, which has a result of its own. So Claude Code is asked to repeat each message when it takes it up, and a turn
//! is over only when a result comes and no message waits.

mod transcript;

use super::event::{Answer, ExternalEvent, Permission, Spent, ToolEnded, ToolStarted, TurnEnd, TurnEndReason, TurnLog};
use super::process::{Launch, Peer};
use super::protocol::{
    CatchUp, Controls, ExternalAgentProtocol, ExternalSession, Lost, SessionConfig, Snapshot, Spoken,
};
use crate::message::{Cost, CostBasis, Usage};
use crate::tools::{Effect, excerpt};
use async_trait::async_trait;
use flovyn_core::sync::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A driver of Claude Code.
#[derive(Debug, Clone)]
pub struct Claude {
    program: String,
    args: Vec<String>,
}

/// Begins the names of requests that take back a message.
const CANCEL: &str = "flovyn-cancel-";
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
        let more = ["--include-partial-messages", "--replay-user-messages", "--permission-prompt-tool", "stdio"];
        args.extend(more.map(str::to_owned));
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
        Ok(Box::new(ClaudeSession::open(peer, config, &config.new_id, 0).await?))
    }

    async fn resume(
        &self,
        peer: Peer,
        config: &SessionConfig,
        snapshot: &Snapshot,
        heard: Option<&TurnLog>,
    ) -> Spoken<(Box<dyn ExternalSession>, CatchUp)> {
        // Before the process begins, which adds to it.
        let lines = transcript::read(config, &snapshot.session_id).await;
        let caught = match (heard, &lines) {
            (Some(heard), Some(lines)) => transcript::catch_up(lines, heard),
            _ => CatchUp::Unknown,
        };
        let cost = lines.as_deref().map_or(0, transcript::cost);
        let session = ClaudeSession::open(peer, config, &snapshot.session_id, cost).await?;
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
    /// What it says that the session has cost so far, in millionths of a US dollar.
    cost: u64,
    /// The input of each tool that waits for a permission, by the request.
    asked: BTreeMap<String, Value>,
    /// The messages that it has not taken up.
    waiting: Waiting,
    /// Whether it has taken up a message since its last result.
    has_begun: bool,
    /// Whether it says when it takes one up.
    repeats: bool,
    /// How a turn has ended that another one follows, for a message that waits.
    ended: Option<TurnEnd>,
}

/// Messages that were sent and not yet taken up, in their order.
type Waiting = Arc<Mutex<Vec<SentMessage>>>;

struct SentMessage {
    id: String,
    text: String,
    steers: bool,
}

impl SentMessage {
    /// It was taken back when a turn was stopped.
    fn unheard(&self) -> ExternalEvent {
        let text = excerpt::prefix(&self.text, 200);
        ExternalEvent::Warning(format!(
            "Claude Code had not taken up this message when its turn was stopped, and has not heard it: {text}"
        ))
    }
}

impl ClaudeSession {
    /// Opens a session, which has cost so much before.
    async fn open(peer: Peer, config: &SessionConfig, id: &str, cost: u64) -> Spoken<Self> {
        let mut session = Self {
            peer,
            id: id.to_owned(),
            model: "claude".to_owned(),
            ready: VecDeque::new(),
            has_pieces: false,
            cost,
            asked: BTreeMap::new(),
            waiting: Waiting::default(),
            has_begun: false,
            repeats: false,
            ended: None,
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
            if record["type"] == "result" && record["is_error"] == true {
                let why = errors_of(&record).unwrap_or_else(|| "it did not say why".to_owned());
                return Err(Lost::refused(format!("Claude Code could not open the session {}: {why}", self.id)));
            }
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
            // What the provider refuses stands in the result as well, as the error of the turn.
            "assistant" if is_own && record["error"].is_null() => {
                read_blocks(&record["message"], self.has_pieces, &mut self.ready);
            }
            "user" if is_own => {
                self.on_taken_up(&record["uuid"]);
                read_results(&record["message"], &mut self.ready);
            }
            "result" => self.on_result(record),
            "control_request" => return self.on_request(record),
            "control_response" => self.on_response(&record["response"]),
            "control_cancel_request" => {
                self.asked.remove(record["request_id"].as_str().unwrap_or_default());
            }
            _ => {}
        }
        Ok(())
    }

    /// It has repeated a message; one of ours, if it waits.
    fn on_taken_up(&mut self, id: &Value) {
        let mut waiting = self.waiting.lock();
        let before = waiting.len();
        waiting.retain(|message| *id != message.id.as_str());
        if waiting.len() < before {
            (self.has_begun, self.repeats) = (true, true);
            self.ended = None;
        }
    }

    /// It has answered; perhaps that a message was taken back which would have begun a turn.
    fn on_response(&mut self, response: &Value) {
        let id = response["request_id"].as_str().and_then(|id| id.strip_prefix(CANCEL));
        let Some(id) = id.filter(|_| response["response"]["cancelled"] == true) else { return };
        let mut waiting = self.waiting.lock();
        if let Some(place) = waiting.iter().position(|message| message.id == id) {
            self.ready.push_back(waiting.remove(place).unheard());
        }
        if waiting.is_empty() {
            self.ready.extend(self.ended.take().map(ExternalEvent::TurnEnd));
        }
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
            // It counts from the start of the session.
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
        let end = end_of(record);
        let left = self.on_end(&end);
        if end.reason == TurnEndReason::Interrupted {
            self.ready.extend(left.iter().filter(|message| message.steers).map(SentMessage::unheard));
        } else if !left.is_empty() {
            // They begin the turn that follows.
            *self.waiting.lock() = left;
            self.ended = Some(end);
            return;
        }
        self.ready.push_back(ExternalEvent::TurnEnd(end));
    }

    /// Takes what waits at the end of a turn.
    fn on_end(&mut self, end: &TurnEnd) -> Vec<SentMessage> {
        let mut left = std::mem::take(&mut *self.waiting.lock());
        // Commands of its own are not repeated by all its versions.
        if !std::mem::replace(&mut self.has_begun, false) && !left.is_empty() {
            left.remove(0);
        }
        match self.repeats || end.reason == TurnEndReason::Interrupted {
            true => left,
            false => Vec::new(),
        }
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
        let message = sent(&self.waiting, text, false);
        self.peer.send(&message)
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
        let (steers, stops) = (self.waiting.clone(), self.waiting.clone());
        let control =
            |id: String, request: Value| json!({ "type": "control_request", "request_id": id, "request": request });
        let interrupt = move || {
            let waiting = stops.lock();
            let waiting = waiting.iter().filter(|message| message.steers);
            // They would begin a turn of their own when the present one has stopped.
            let cancelled = waiting.map(|message| {
                let request = json!({ "subtype": "cancel_async_message", "message_uuid": message.id });
                control(format!("{CANCEL}{}", message.id), request)
            });
            cancelled.chain([control("flovyn-interrupt".to_owned(), json!({ "subtype": "interrupt" }))]).collect()
        };
        Controls {
            outbox: self.peer.outbox().clone(),
            interrupt: Arc::new(interrupt),
            steer: Some(Arc::new(move |text| sent(&steers, text, true))),
        }
    }
}

/// How a turn has ended.
fn end_of(record: &Value) -> TurnEnd {
    let errors = errors_of(record);
    let is_stopped = record["terminal_reason"].as_str().is_some_and(|reason| reason.starts_with("aborted"))
        // Versions that do not say the reason.
        || errors.as_ref().is_none_or(|errors| errors.contains("abort"));
    match record["subtype"].as_str().unwrap_or_default() {
        "error_max_turns" | "error_max_budget_usd" => TurnEnd { reason: TurnEndReason::MaxTurns, message: None },
        "error_during_execution" if is_stopped => TurnEnd { reason: TurnEndReason::Interrupted, message: None },
        "success" if record["is_error"] != true => TurnEnd::default(),
        _ => {
            let message = errors.or_else(|| record["result"].as_str().map(str::to_owned));
            TurnEnd { reason: TurnEndReason::Error, message }
        }
    }
}

/// The errors that a result names; none if there are none.
fn errors_of(record: &Value) -> Option<String> {
    let errors = record["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Some(errors.collect::<Vec<_>>().join("; ")).filter(|errors| !errors.is_empty())
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

/// A message of the user that is sent now.
fn sent(waiting: &Waiting, text: &str, steers: bool) -> Value {
    let id = uuid::Uuid::new_v4().to_string();
    waiting.lock().push(SentMessage { id: id.clone(), text: text.to_owned(), steers });
    let content = json!([{ "type": "text", "text": text }]);
    let mut message = json!({
        "type": "user",
        "uuid": id,
        "message": { "role": "user", "content": content },
        "parent_tool_use_id": null,
    });
    if steers {
        message["priority"] = "next".into();
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
