//! The history of a session that is resumed: its conversation, open requests, and the position of its feed.

use super::session::{Session, Store};
use crate::Result;
use flovyn_core::error::Error;
use flovyn_core::model::{Execution, Status, Wait};
use flovyn_toolkit::message::{Message, ToolCall};
use flovyn_toolkit::react::{AgentSpawn, AnswerEnd, InputRefused, InputReply, InputRequest, LlmCall, USER_MESSAGE};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};

/// The history of a session.
pub(super) struct History {
    /// All messages, oldest first, those of the system included.
    pub messages: Vec<Message>,
    /// Tool calls without a result.
    pub open: Vec<ToolCall>,
    /// Open approval requests.
    pub approvals: Vec<ApprovalRequest>,
    /// Open elicitations, with the refusal of the last reply.
    pub input_requests: Vec<(InputRequest, Option<InputRefused>)>,
    /// Calls that go on with the input that their server asked for.
    pub resumed_calls: Vec<String>,
    /// The model calls, with their usage.
    pub calls: Vec<LlmCall>,
    /// The agents that work for calls without a result.
    pub agents: Vec<AgentSpawn>,
    /// The place of the last event.
    pub after: String,
    /// Why the last answer stopped.
    pub end: Option<AnswerEnd>,
    /// Whether it waits for a message of the user.
    pub is_idle: bool,
    /// Its final status, where it has ended.
    pub ended: Option<Status>,
}

impl History {
    /// Reads a session that exists.
    pub(super) async fn of(store: &Store, session: &Session) -> Result<Self> {
        let run = session.handle.describe().await?;
        let (after, last) = last_event(store, &run).await?;
        let mut history = Self {
            messages: Vec::new(),
            open: Vec::new(),
            approvals: Vec::new(),
            input_requests: Vec::new(),
            resumed_calls: Vec::new(),
            calls: Vec::new(),
            end: None,
            agents: Vec::new(),
            after,
            is_idle: is_idle(&last),
            ended: run.status.is_terminal().then_some(run.status),
        };
        for entry in session.handle.messages().await? {
            let content = &entry.new.content;
            match entry.new.entry_type.as_str() {
                "message" => history.add_message(content.parse().ok()),
                "answer_end" => history.end = content.parse().ok(),
                "agent_spawn" => history.agents.extend(content.parse::<AgentSpawn>()),
                "llm_call" => history.calls.extend(content.parse::<LlmCall>()),
                "approval_request" => history.approvals.extend(content.parse::<ApprovalRequest>()),
                "input_request" => {
                    if let Ok(request) = content.parse::<InputRequest>() {
                        history.resumed_calls.retain(|call| *call != request.id);
                        history.input_requests.push((request, None));
                    }
                }
                "input" => history.add_input_reply(content.parse().ok()),
                "input_refused" => history.add_input_refusal(content.parse().ok()),
                "approval" => {
                    if let Ok(answer) = content.parse::<ApprovalAnswer>() {
                        history.approvals.retain(|request| request.id != answer.id);
                    }
                }
                _ => {}
            }
        }
        Ok(history)
    }

    fn add_input_reply(&mut self, reply: Option<InputReply>) {
        let Some(reply) = reply else { return };
        self.input_requests.retain(|(request, _)| request.id != reply.id);
        self.resumed_calls.push(reply.id);
    }

    fn add_input_refusal(&mut self, refused: Option<InputRefused>) {
        let Some(refused) = refused else { return };
        let is_meant = |request: &InputRequest| request.id == refused.id && request.hash == refused.hash;
        if let Some((_, last)) = self.input_requests.iter_mut().find(|(request, _)| is_meant(request)) {
            *last = Some(refused);
        }
    }

    fn add_message(&mut self, message: Option<Message>) {
        let Some(message) = message else { return };
        let has_result = |id: &String| message.tool_results().any(|result| result.id == *id);
        self.approvals.retain(|request| !has_result(&request.id));
        self.input_requests.retain(|(request, _)| !has_result(&request.id));
        self.resumed_calls.retain(|call| !has_result(call));
        self.agents.retain(|spawn| !has_result(&spawn.id));
        self.open.retain(|call| !has_result(&call.id));
        self.open.extend(message.tool_calls().cloned());
        self.messages.push(message);
    }
}

/// The place of the last event, over any handoffs, and the run that has the conversation now.
async fn last_event(store: &Store, run: &Execution) -> Result<(String, Execution)> {
    let (mut run, mut place) = (run.clone(), String::new());
    loop {
        let number = last_number(store, &run).await?;
        place.push_str(&format!("{}{number}", if place.is_empty() { "" } else { ">" }));
        let (storage, org) = (store.runtime().storage(), run.new.org);
        match run.handed_to {
            Some(next) if !run.status.is_terminal() => run = storage.execution(org, next).await?,
            _ => return Ok((place, run)),
        }
    }
}

/// The number of the last event. Numbers grow, with gaps, so it is found in as many reads as a number has digits, twice:
/// a session of a year has more events than anybody waits for.
async fn last_number(store: &Store, run: &Execution) -> Result<u64> {
    let next = async |after| {
        let events = store.runtime().storage().events(run.new.org, run.new.id, after, 1).await?;
        Ok::<_, Error>(events.first().map(|event| event.number))
    };
    let (mut last, mut stride) = (0, 1);
    while let Some(number) = next(last + stride - 1).await? {
        (last, stride) = (number, stride * 2);
    }
    while stride > 1 {
        stride /= 2;
        if let Some(number) = next(last + stride - 1).await? {
            last = number;
        }
    }
    Ok(last)
}

fn is_idle(run: &Execution) -> bool {
    let for_user = |wait: &Wait| wait.signals == [USER_MESSAGE] && !wait.timers;
    run.status == Status::Waiting && run.wait.as_ref().is_some_and(for_user)
}
