//! What happens in a session, in the words of a chat: made of the durable events of its run, with previews in between.
//!
//! Entries are the truth: an answer is told whole when it is durable, whatever was streamed of it before.

use super::history::History;
use crate::Result;
use flovyn_core::client::{Handle, StreamEvent, Watching};
use flovyn_core::clock::Timestamp;
use flovyn_core::model::{Chunk, ChunkKind, Event, EventId, EventKind};
use flovyn_toolkit::mcp::McpInputTask;
use flovyn_toolkit::message::{Message, Part, Role, ToolResult};
use flovyn_toolkit::react::{InputRefused, InputReply, InputRequest, LlmCall, USER_MESSAGE};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Something that happened.
#[derive(Debug)]
pub enum Happening {
    /// More text of the answer that is being given.
    Text(String),
    /// More of what the model thinks.
    Thinking(String),
    /// What was streamed of the answer is void; it is given again.
    Void,
    /// The user was heard.
    Heard(Message),
    /// The model has answered; its tool calls come with it.
    Answered(Message),
    /// A call is about to run.
    Started(String),
    /// More output of a running call.
    Output { call: String, text: String },
    /// A call runs again from its beginning.
    Again(String),
    /// A call has its result, after so long where it ran.
    Ended { result: ToolResult, took: Option<Duration> },
    /// A person is asked.
    Asked(ApprovalRequest),
    /// Somebody answered.
    Decided(ApprovalAnswer),
    /// An MCP server asks a person in the middle of a call.
    Inquired(InputRequest),
    /// Somebody answered it, and the call goes on.
    Replied(InputReply),
    /// Somebody answered it, and the answer does not do.
    Refused(InputRefused),
    /// A model call was paid.
    Paid(Box<LlmCall>),
    /// Something worth a line.
    Notice(String),
    /// Nobody works for the session.
    Unserved,
    /// The agent waits for the user.
    Idle,
    /// The run is over; why, unless it completed.
    Over(Option<String>),
}

/// What is said of a session that nobody works for.
pub const UNSERVED: &str = "No worker serves this session: start `flovyn worker` for its server.";

/// The happenings of a session, from a position on.
pub struct Feed {
    watching: Watching,
    ready: VecDeque<Happening>,
    /// The tools of calls that have no result yet.
    tools: HashMap<String, String>,
    /// Calls that may run, in the order in which they are started.
    allowed: Vec<String>,
    /// Calls that go on with what their server asked for.
    told: Vec<String>,
    /// The op that streams the answer.
    answering: Option<(u32, u32)>,
    /// Tools that run, by their op.
    running: HashMap<(u32, u32), String>,
    since: HashMap<String, Timestamp>,
}

impl Feed {
    /// Follows a session from its beginning.
    pub fn new(handle: &Handle) -> Self {
        Self::over(handle.stream(None))
    }

    /// Follows a session from where it was found.
    pub fn resumed(handle: &Handle, history: &History) -> Self {
        let mut feed = Self::over(handle.stream(Some(EventId { number: history.after, chunk: 0 })));
        let asked = |id: &String| {
            let questions = history.inquired.iter().map(|(request, _)| &request.id);
            history
                .asked
                .iter()
                .map(|request| &request.id)
                .chain(questions)
                .chain(&history.told)
                .any(|asked| asked == id)
        };
        feed.tools = history.open.iter().map(|call| (call.id.clone(), call.name.clone())).collect();
        feed.told.clone_from(&history.told);
        feed.allowed = history.open.iter().map(|call| call.id.clone()).filter(|id| !asked(id)).collect();
        feed
    }

    fn over(watching: Watching) -> Self {
        Self {
            watching,
            ready: VecDeque::new(),
            tools: HashMap::new(),
            allowed: Vec::new(),
            told: Vec::new(),
            answering: None,
            running: HashMap::new(),
            since: HashMap::new(),
        }
    }

    /// The next happening; none after the end. Whoever drops the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Happening>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            match self.watching.next().await? {
                None => return Ok(None),
                Some(StreamEvent::Durable(event)) => self.durable(&event),
                Some(StreamEvent::Chunk(_, chunk)) => self.preview(&chunk),
                Some(StreamEvent::Retract { op, .. }) => self.retracted(op),
                Some(StreamEvent::Gap(_)) => self.tell(Happening::Void),
            }
        }
    }

    fn tell(&mut self, happening: Happening) {
        self.ready.push_back(happening);
    }

    fn preview(&mut self, chunk: &Chunk) {
        let op = (chunk.segment, chunk.sequence);
        match chunk.kind {
            ChunkKind::Token => {
                self.answering = Some(op);
                self.tell(Happening::Text(chunk.data.to_string()));
            }
            ChunkKind::Data => {
                let event: Value = serde_json::from_str(&chunk.data).unwrap_or_default();
                self.structured(op, &event);
            }
            ChunkKind::Error => self.tell(Happening::Notice(chunk.data.to_string())),
            ChunkKind::Progress | ChunkKind::Void => {}
        }
    }

    fn structured(&mut self, op: (u32, u32), event: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("thinking_delta") => {
                self.answering = Some(op);
                self.tell(Happening::Thinking(text(&event["delta"])));
            }
            Some("terminal") => {
                if let Some(call) = self.running.get(&op).cloned() {
                    self.tell(Happening::Output { call, text: text(&event["data"]) });
                }
            }
            Some("retrying") => {
                let seconds = event["delay_ms"].as_u64().unwrap_or_default() as f64 / 1_000.0;
                let reason = text(&event["reason"]);
                self.tell(Happening::Notice(format!("{reason}; the model is asked again in {seconds:.1} s")));
            }
            Some("status") if event["status"] == "compacting" => {
                self.tell(Happening::Notice("The window is full: what is old is being summarised.".into()));
            }
            _ => {}
        }
    }

    fn retracted(&mut self, op: (u32, u32)) {
        match self.running.get(&op).cloned() {
            Some(call) => self.tell(Happening::Again(call)),
            None if self.answering == Some(op) => self.tell(Happening::Void),
            None => {}
        }
    }

    fn durable(&mut self, event: &Event) {
        let data = &event.data;
        let op = event.sequence.map(|sequence| (event.segment, sequence));
        match event.kind {
            EventKind::Entry => self.entry(event),
            EventKind::TaskStarted if op.is_none_or(|op| !self.running.contains_key(&op)) => {
                let kind = data["kind"].as_str().unwrap_or_default();
                let tool = kind.strip_prefix("tool.");
                let of_tool = |call: &String| self.tools.get(call).map(String::as_str) == tool;
                let started = match kind {
                    McpInputTask::KIND if !self.told.is_empty() => Some(self.told.remove(0)),
                    _ => self.allowed.iter().position(of_tool).map(|place| self.allowed.remove(place)),
                };
                if let (Some(op), Some(call)) = (op, started) {
                    self.running.insert(op, call.clone());
                    self.since.insert(call.clone(), event.at);
                    self.tell(Happening::Started(call));
                }
            }
            EventKind::TaskRetry => {
                let why = data["error"]["message"].as_str().unwrap_or("the attempt failed");
                self.tell(Happening::Notice(format!("{why}; it is tried again")));
            }
            EventKind::Waiting => {
                let signals = data["signals"].as_array().cloned().unwrap_or_default();
                // With a timer it is a provider that is waited for.
                if signals.len() == 1 && signals[0] == USER_MESSAGE && data["timers"] == false {
                    self.tell(Happening::Idle);
                }
            }
            EventKind::NoWorker => self.tell(Happening::Unserved),
            EventKind::Paused => self.tell(Happening::Over(Some(why(data, "the run is paused")))),
            EventKind::Failed => self.tell(Happening::Over(Some(why(data, "the run failed")))),
            EventKind::Cancelled => self.tell(Happening::Over(Some("the run was cancelled".into()))),
            EventKind::Completed => self.tell(Happening::Over(None)),
            _ => {}
        }
    }

    fn entry(&mut self, event: &Event) {
        let content = &event.data["content"];
        match event.data["entry_type"].as_str() {
            Some("message") => {
                let Some(message) = read::<Message>(content) else { return };
                match message.role {
                    Role::User => self.tell(Happening::Heard(message)),
                    Role::Assistant => {
                        self.answering = None;
                        for call in message.tool_calls() {
                            self.tools.insert(call.id.clone(), call.name.clone());
                            self.allowed.push(call.id.clone());
                        }
                        self.tell(Happening::Answered(message));
                    }
                    Role::Tool => {
                        for result in message.tool_results() {
                            let took = self.since.remove(&result.id).map(|since| event.at.since(since));
                            self.running.retain(|_, call| *call != result.id);
                            self.allowed.retain(|call| *call != result.id);
                            self.told.retain(|call| *call != result.id);
                            self.tools.remove(&result.id);
                            self.tell(Happening::Ended { result: result.clone(), took });
                        }
                    }
                    Role::System | Role::Other(_) => {}
                }
            }
            Some("llm_call") => self.ready.extend(read(content).map(|call| Happening::Paid(Box::new(call)))),
            Some("approval_request") => {
                if let Some(request) = read::<ApprovalRequest>(content) {
                    self.allowed.retain(|call| *call != request.id);
                    self.tell(Happening::Asked(request));
                }
            }
            Some("approval") => {
                if let Some(answer) = read::<ApprovalAnswer>(content) {
                    if answer.approved {
                        self.allowed.push(answer.id.clone());
                    }
                    self.tell(Happening::Decided(answer));
                }
            }
            Some("input_request") => {
                if let Some(request) = read::<InputRequest>(content) {
                    // While somebody thinks, nothing of the call runs.
                    self.running.retain(|_, call| *call != request.id);
                    self.since.remove(&request.id);
                    self.tell(Happening::Inquired(request));
                }
            }
            Some("input") => {
                if let Some(reply) = read::<InputReply>(content) {
                    self.told.push(reply.id.clone());
                    self.tell(Happening::Replied(reply));
                }
            }
            Some("input_refused") => self.ready.extend(read(content).map(Happening::Refused)),
            Some("compaction") => {
                let tokens = content["tokensBefore"].as_u64().unwrap_or_default();
                self.tell(Happening::Notice(format!("{tokens} tokens of the conversation were summarised.")));
            }
            Some("budget_low") => self.tell(Happening::Notice("Little is left of the budget.".into())),
            _ => {}
        }
    }
}

fn read<T: DeserializeOwned>(content: &Value) -> Option<T> {
    T::deserialize(content).ok()
}

fn why(data: &Value, otherwise: &str) -> String {
    let reason = data["error"]["message"].as_str().or_else(|| data["reason"].as_str());
    reason.map_or_else(|| otherwise.to_owned(), |reason| format!("{otherwise}: {reason}"))
}

/// The text that a model is shown of a result.
pub fn text_of(result: &ToolResult) -> String {
    result.content.iter().filter_map(Part::as_text).collect()
}
