//! The events of a chat, made of the durable events of its run and the previews between them.
//!
//! Entries are the truth: when an answer is durable it comes as a whole, whatever was streamed of it before.

use super::agents::address;
use super::history::History;
use crate::Result;
use flovyn_core::client::{Client, Following, StreamEvent};
use flovyn_core::clock::Timestamp;
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{Chunk, ChunkKind, Event, EventKind};
use flovyn_toolkit::mcp::McpInputTask;
use flovyn_toolkit::message::{Message, Part, Role, ToolResult};
use flovyn_toolkit::react::{
    AgentBegin, AgentSpawn, AnswerEnd, InputRefused, InputReply, InputRequest, LlmCall, USER_MESSAGE,
};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};
use futures::future::{BoxFuture, Either, select, select_all};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// An event of a chat.
#[derive(Debug)]
pub(super) enum ChatEvent {
    /// More text of the answer that is being given.
    Text(String),
    /// More of the model's thinking.
    Thinking(String),
    /// The streamed part of the answer is discarded; the answer is streamed again.
    Discarded,
    /// The agent has read a message of the user.
    UserMessage(Message),
    /// The model has answered; its tool calls come with it.
    AssistantMessage(Message),
    /// A call is about to run.
    ToolStarted(String),
    /// More output of a running call.
    ToolOutput { call: String, text: String },
    /// A call is run again from its beginning.
    ToolRestarted(String),
    /// A call has its result; with its duration where it ran.
    ToolEnded { result: ToolResult, duration: Option<Duration> },
    /// A person is asked whether a call may run.
    ApprovalRequested(ApprovalRequest),
    /// Somebody has answered.
    ApprovalAnswered(ApprovalAnswer),
    /// An MCP server asks a person for input during a call.
    InputRequested(InputRequest),
    /// Somebody has given the input, and the call goes on.
    InputAnswered(InputReply),
    /// The input was refused.
    InputRefused(InputRefused),
    /// A model call has ended, with its usage and cost.
    ModelCalled(Box<LlmCall>),
    /// A run of another agent was started for a call.
    AgentStarted(AgentSpawn),
    /// An agent that works below the session has told something. What it asks comes as if the session asked, with ids that
    /// say whose they are.
    OfAgent { run: ExecutionId, event: Box<ChatEvent> },
    /// A notice of one line.
    Notice(String),
    /// No worker serves the session.
    Unserved,
    /// Why the answer to a message has stopped; the agent waits for the user next.
    AnswerEnded(AnswerEnd),
    /// The run sleeps for a while, as it does in an outage of models; or no longer.
    Sleeping(bool),
    /// The agent waits for the user.
    Idle,
    /// The run has ended; with the reason, unless it completed.
    SessionEnded(Option<String>),
}

/// The notice of a session that no worker serves.
pub(super) const UNSERVED: &str = "No worker serves this session: start `flovyn worker` for its server.";

/// The chat events of a session, from a position on.
pub(super) struct Feed {
    client: Client,
    watching: Following,
    /// The feeds of the agents that work for calls.
    agents: Vec<(ExecutionId, Feed)>,
    queue: VecDeque<ChatEvent>,
    /// The tools of calls that have no result yet.
    tools: HashMap<String, String>,
    /// Calls that may run, in the order in which they are started.
    allowed: Vec<String>,
    /// Calls that go on with the input that their server asked for.
    resumed_calls: Vec<String>,
    /// The op that is streaming the answer.
    answering: Option<(u32, u32)>,
    /// Running calls, by their op.
    running: HashMap<(u32, u32), String>,
    since: HashMap<String, Timestamp>,
    /// Calls of an agent of others that run and whose message has not come yet.
    external: HashSet<String>,
}

impl Feed {
    /// Follows a session from its beginning.
    pub(super) fn new(client: Client, run: ExecutionId) -> Self {
        Self::after(client, run, "")
    }

    /// Follows a session from the end of its history.
    pub(super) fn resumed(client: Client, run: ExecutionId, history: &History) -> Self {
        let mut feed = Self::after(client, run, &history.after);
        history.agents.iter().for_each(|spawn| feed.follow(spawn.child));
        let is_pending = |id: &String| {
            let questions = history.input_requests.iter().map(|(request, _)| &request.id);
            history
                .approvals
                .iter()
                .map(|request| &request.id)
                .chain(questions)
                .chain(&history.resumed_calls)
                .any(|pending| pending == id)
        };
        feed.tools = history.open.iter().map(|call| (call.id.clone(), call.name.clone())).collect();
        feed.resumed_calls.clone_from(&history.resumed_calls);
        feed.allowed = history.open.iter().map(|call| call.id.clone()).filter(|id| !is_pending(id)).collect();
        feed
    }

    fn after(client: Client, run: ExecutionId, after: &str) -> Self {
        Self {
            watching: client.follow(run, after),
            client,
            agents: Vec::new(),
            queue: VecDeque::new(),
            tools: HashMap::new(),
            allowed: Vec::new(),
            resumed_calls: Vec::new(),
            answering: None,
            running: HashMap::new(),
            since: HashMap::new(),
            external: HashSet::new(),
        }
    }

    /// The next event; none after the end. Cancel-safe.
    pub(super) fn next(&mut self) -> BoxFuture<'_, Result<Option<ChatEvent>>> {
        Box::pin(async move {
            loop {
                if let Some(queue) = self.queue.pop_front() {
                    return Ok(Some(queue));
                }
                match self.next_of_family().await? {
                    Next::Here(None) => return Ok(None),
                    Next::Here(Some(StreamEvent::Durable(event))) => self.durable(&event),
                    Next::Here(Some(StreamEvent::Chunk(_, chunk))) => self.preview(&chunk),
                    Next::Here(Some(StreamEvent::Retract { op, .. })) => self.retracted(op),
                    Next::Here(Some(StreamEvent::Gap(_))) => self.push(ChatEvent::Discarded),
                    Next::Below(place, Some(event)) => {
                        let run = self.agents[place].0;
                        self.below(run, *event);
                    }
                    Next::Below(place, None) => drop(self.agents.remove(place)),
                }
            }
        })
    }

    /// What comes first: an event of the run, or one of an agent below it.
    async fn next_of_family(&mut self) -> Result<Next> {
        let here = Box::pin(self.watching.next());
        if self.agents.is_empty() {
            return Ok(Next::Here(here.await?.map(|family| family.event)));
        }
        let below = select_all(self.agents.iter_mut().map(|(_, feed)| feed.next()));
        match select(here, below).await {
            Either::Left((family, _)) => Ok(Next::Here(family?.map(|family| family.event))),
            // An agent that was removed has nothing more to tell.
            Either::Right(((event, place, _), _)) => Ok(Next::Below(place, event.unwrap_or(None).map(Box::new))),
        }
    }

    /// Follows an agent that works for a call.
    fn follow(&mut self, run: ExecutionId) {
        if !self.agents.iter().any(|(known, _)| *known == run) {
            self.agents.push((run, Self::new(self.client.clone(), run)));
        }
    }

    /// Passes on what an agent below has told. What it asks is asked here, and answered by ids that say whose it is.
    fn below(&mut self, run: ExecutionId, event: ChatEvent) {
        let asked = match &event {
            ChatEvent::ApprovalRequested(request) => {
                let id = address(run, &request.id);
                Some(ChatEvent::ApprovalRequested(ApprovalRequest { id, ..request.clone() }))
            }
            ChatEvent::ApprovalAnswered(answer) => {
                let id = address(run, &answer.id);
                Some(ChatEvent::ApprovalAnswered(ApprovalAnswer { id, ..answer.clone() }))
            }
            ChatEvent::InputRequested(request) => {
                let id = address(run, &request.id);
                Some(ChatEvent::InputRequested(InputRequest { id, ..request.clone() }))
            }
            ChatEvent::InputAnswered(reply) => {
                let id = address(run, &reply.id);
                Some(ChatEvent::InputAnswered(InputReply { id, ..reply.clone() }))
            }
            ChatEvent::InputRefused(refused) => {
                let id = address(run, &refused.id);
                Some(ChatEvent::InputRefused(InputRefused { id, ..refused.clone() }))
            }
            _ => None,
        };
        self.queue.push_back(ChatEvent::OfAgent { run, event: Box::new(event) });
        self.queue.extend(asked);
    }

    fn push(&mut self, event: ChatEvent) {
        self.queue.push_back(event);
    }

    fn preview(&mut self, chunk: &Chunk) {
        let op = (chunk.segment, chunk.sequence);
        match chunk.kind {
            ChunkKind::Token => {
                self.answering = Some(op);
                self.push(ChatEvent::Text(chunk.data.to_string()));
            }
            ChunkKind::Data => {
                let event: Value = serde_json::from_str(&chunk.data).unwrap_or_default();
                self.structured(op, &event);
            }
            ChunkKind::Error => self.push(ChatEvent::Notice(chunk.data.to_string())),
            ChunkKind::Progress | ChunkKind::Void => {}
        }
    }

    fn structured(&mut self, op: (u32, u32), event: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("thinking_delta") => {
                self.answering = Some(op);
                self.push(ChatEvent::Thinking(text(&event["delta"])));
            }
            Some("terminal") => {
                if let Some(call) = self.running.get(&op).cloned() {
                    self.push(ChatEvent::ToolOutput { call, text: text(&event["data"]) });
                }
            }
            Some("tool_call_start") if event["tool_call"]["external"] == true => {
                let call = text(&event["tool_call"]["id"]);
                match self.tools.contains_key(&call) {
                    true => self.push(ChatEvent::ToolStarted(call)),
                    // The message that has it is on its way.
                    false => {
                        self.external.insert(call);
                    }
                }
            }
            Some("retrying") => {
                let seconds = event["delay_ms"].as_u64().unwrap_or_default() as f64 / 1_000.0;
                let reason = text(&event["reason"]);
                self.push(ChatEvent::Notice(format!("{reason}; the model is asked again in {seconds:.1} s")));
            }
            Some("status") if event["status"] == "compacting" => {
                self.push(ChatEvent::Notice("The window is full: what is old is being summarised.".into()));
            }
            _ => {}
        }
    }

    fn retracted(&mut self, op: (u32, u32)) {
        match self.running.get(&op).cloned() {
            Some(call) => self.push(ChatEvent::ToolRestarted(call)),
            None if self.answering == Some(op) => self.push(ChatEvent::Discarded),
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
                    McpInputTask::KIND if !self.resumed_calls.is_empty() => Some(self.resumed_calls.remove(0)),
                    _ => self.allowed.iter().position(of_tool).map(|place| self.allowed.remove(place)),
                };
                if let (Some(op), Some(call)) = (op, started) {
                    self.running.insert(op, call.clone());
                    self.since.insert(call.clone(), event.at);
                    self.push(ChatEvent::ToolStarted(call));
                }
            }
            EventKind::TaskRetry => {
                let why = data["error"]["message"].as_str().unwrap_or("the attempt failed");
                self.push(ChatEvent::Notice(format!("{why}; it is tried again")));
            }
            EventKind::Waiting => {
                let signals = data["signals"].as_array().cloned().unwrap_or_default();
                // A wait with a timer is a retry of a model call, not a wait for the user.
                if signals.len() == 1 && signals[0] == USER_MESSAGE && data["timers"] == false {
                    self.push(ChatEvent::Idle);
                } else if data["timers"] == true {
                    self.push(ChatEvent::Sleeping(true));
                }
            }
            // Ops of the successor have the same numbers.
            EventKind::HandedOff => {
                self.running.clear();
                self.allowed.clear();
                self.answering = None;
            }
            EventKind::Woken => self.push(ChatEvent::Sleeping(false)),
            EventKind::NoWorker => self.push(ChatEvent::Unserved),
            EventKind::Paused => self.push(ChatEvent::SessionEnded(Some(why(data, "the run is paused")))),
            EventKind::Failed => self.push(ChatEvent::SessionEnded(Some(why(data, "the run failed")))),
            EventKind::Cancelled => self.push(ChatEvent::SessionEnded(Some("the run was cancelled".into()))),
            EventKind::Completed => self.push(ChatEvent::SessionEnded(None)),
            _ => {}
        }
    }

    fn entry(&mut self, event: &Event) {
        let content = &event.data["content"];
        match event.data["entry_type"].as_str() {
            Some("message") => {
                let Some(message) = read::<Message>(content) else { return };
                match message.role {
                    Role::User => self.push(ChatEvent::UserMessage(message)),
                    Role::Assistant => {
                        self.answering = None;
                        for call in message.tool_calls() {
                            self.tools.insert(call.id.clone(), call.name.clone());
                            self.allowed.push(call.id.clone());
                        }
                        let started: Vec<_> =
                            message.tool_calls().filter_map(|call| self.external.take(&call.id)).collect();
                        self.since.extend(started.iter().map(|call| (call.clone(), event.at)));
                        self.push(ChatEvent::AssistantMessage(message));
                        started.into_iter().for_each(|call| self.push(ChatEvent::ToolStarted(call)));
                    }
                    Role::Tool => {
                        for result in message.tool_results() {
                            let duration = self.since.remove(&result.id).map(|since| event.at.since(since));
                            self.running.retain(|_, call| *call != result.id);
                            self.allowed.retain(|call| *call != result.id);
                            self.resumed_calls.retain(|call| *call != result.id);
                            self.tools.remove(&result.id);
                            self.push(ChatEvent::ToolEnded { result: result.clone(), duration });
                        }
                    }
                    Role::System | Role::Other(_) => {}
                }
            }
            Some("agent_begin") => {
                if let Some(AgentBegin { kind }) = read(content) {
                    self.push(ChatEvent::Notice(format!("{kind} goes on with the conversation.")));
                }
            }
            Some("agent_spawn") => {
                if let Some(spawn) = read::<AgentSpawn>(content) {
                    self.allowed.retain(|call| *call != spawn.id);
                    self.since.insert(spawn.id.clone(), event.at);
                    self.follow(spawn.child);
                    self.push(ChatEvent::ToolStarted(spawn.id.clone()));
                    self.push(ChatEvent::AgentStarted(spawn));
                }
            }
            Some("llm_call") => self.queue.extend(read(content).map(|call| ChatEvent::ModelCalled(Box::new(call)))),
            Some("approval_request") => {
                if let Some(request) = read::<ApprovalRequest>(content) {
                    self.allowed.retain(|call| *call != request.id);
                    self.push(ChatEvent::ApprovalRequested(request));
                }
            }
            Some("approval") => {
                if let Some(answer) = read::<ApprovalAnswer>(content) {
                    if answer.approved {
                        self.allowed.push(answer.id.clone());
                    }
                    self.push(ChatEvent::ApprovalAnswered(answer));
                }
            }
            Some("input_request") => {
                if let Some(request) = read::<InputRequest>(content) {
                    // The call does not run while its server waits for an answer.
                    self.running.retain(|_, call| *call != request.id);
                    self.since.remove(&request.id);
                    self.push(ChatEvent::InputRequested(request));
                }
            }
            Some("input") => {
                if let Some(reply) = read::<InputReply>(content) {
                    self.resumed_calls.push(reply.id.clone());
                    self.push(ChatEvent::InputAnswered(reply));
                }
            }
            Some("input_refused") => self.queue.extend(read(content).map(ChatEvent::InputRefused)),
            Some("compaction") => {
                let tokens = content["tokensBefore"].as_u64().unwrap_or_default();
                self.push(ChatEvent::Notice(format!("{tokens} tokens of the conversation were summarised.")));
            }
            Some("answer_end") => self.queue.extend(read(content).map(ChatEvent::AnswerEnded)),
            Some("warning") => self.push(ChatEvent::Notice(content["text"].as_str().unwrap_or_default().to_owned())),
            Some("budget_low") => self.push(ChatEvent::Notice("Little is left of the budget.".into())),
            _ => {}
        }
    }
}

/// What was told next.
enum Next {
    /// By the run; none at its end.
    Here(Option<StreamEvent>),
    /// By the agent of a place.
    Below(usize, Option<Box<ChatEvent>>),
}

fn read<T: DeserializeOwned>(content: &Value) -> Option<T> {
    T::deserialize(content).ok()
}

fn why(data: &Value, otherwise: &str) -> String {
    let reason = data["error"]["message"].as_str().or_else(|| data["reason"].as_str());
    reason.map_or_else(|| otherwise.to_owned(), |reason| format!("{otherwise}: {reason}"))
}

/// The text of a result, as the model gets it.
pub(super) fn text_of(result: &ToolResult) -> String {
    result.content.iter().filter_map(Part::as_text).collect()
}
