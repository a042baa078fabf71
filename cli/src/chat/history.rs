//! Where a session stands when it is taken up: its conversation so far, what is asked, and the position of its feed.

use super::session::{Session, Store};
use crate::Result;
use flovyn_core::model::{Execution, Status, Wait};
use flovyn_toolkit::message::{Message, ToolCall};
use flovyn_toolkit::react::{InputRefused, InputReply, InputRequest, LlmCall, USER_MESSAGE};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};

/// A session as it was found.
pub struct History {
    /// What was said and done, oldest first, that of the system included.
    pub messages: Vec<Message>,
    /// Tool calls without a result.
    pub open: Vec<ToolCall>,
    /// Requests that nobody has answered.
    pub asked: Vec<ApprovalRequest>,
    /// What MCP servers asked and nobody has answered, with what was wrong with answers to it.
    pub inquired: Vec<(InputRequest, Option<InputRefused>)>,
    /// Calls that go on with what their server asked for.
    pub told: Vec<String>,
    /// What model calls used.
    pub calls: Vec<LlmCall>,
    /// The number of the last event.
    pub after: u64,
    /// Whether it waits for the user.
    pub is_idle: bool,
    /// Why it cannot go on, where it has ended.
    pub over: Option<Status>,
}

/// Events read at a time.
const PAGE: usize = 1_000;

impl History {
    /// Reads a session that exists.
    pub async fn of(store: &Store, session: &Session) -> Result<Self> {
        let run = session.handle.describe().await?;
        let mut history = Self {
            messages: Vec::new(),
            open: Vec::new(),
            asked: Vec::new(),
            inquired: Vec::new(),
            told: Vec::new(),
            calls: Vec::new(),
            after: last_event(store, &run).await?,
            is_idle: is_idle(&run),
            over: run.status.is_terminal().then_some(run.status),
        };
        for entry in session.handle.messages().await? {
            let content = &entry.new.content;
            match entry.new.entry_type.as_str() {
                "message" => history.message(content.parse().ok()),
                "llm_call" => history.calls.extend(content.parse::<LlmCall>()),
                "approval_request" => history.asked.extend(content.parse::<ApprovalRequest>()),
                "input_request" => {
                    if let Ok(request) = content.parse::<InputRequest>() {
                        history.told.retain(|call| *call != request.id);
                        history.inquired.push((request, None));
                    }
                }
                "input" => history.replied(content.parse().ok()),
                "input_refused" => history.refused(content.parse().ok()),
                "approval" => {
                    if let Ok(answer) = content.parse::<ApprovalAnswer>() {
                        history.asked.retain(|request| request.id != answer.id);
                    }
                }
                _ => {}
            }
        }
        Ok(history)
    }

    fn replied(&mut self, reply: Option<InputReply>) {
        let Some(reply) = reply else { return };
        self.inquired.retain(|(request, _)| request.id != reply.id);
        self.told.push(reply.id);
    }

    fn refused(&mut self, refused: Option<InputRefused>) {
        let Some(refused) = refused else { return };
        let is_meant = |request: &InputRequest| request.id == refused.id && request.hash == refused.hash;
        if let Some((_, last)) = self.inquired.iter_mut().find(|(request, _)| is_meant(request)) {
            *last = Some(refused);
        }
    }

    fn message(&mut self, message: Option<Message>) {
        let Some(message) = message else { return };
        let has_result = |id: &String| message.tool_results().any(|result| result.id == *id);
        self.asked.retain(|request| !has_result(&request.id));
        self.inquired.retain(|(request, _)| !has_result(&request.id));
        self.told.retain(|call| !has_result(call));
        self.open.retain(|call| !has_result(&call.id));
        self.open.extend(message.tool_calls().cloned());
        self.messages.push(message);
    }
}

async fn last_event(store: &Store, run: &Execution) -> Result<u64> {
    let storage = store.runtime().storage();
    let mut last = 0;
    loop {
        let events = storage.events(run.new.org, run.new.id, last, PAGE).await?;
        let Some(event) = events.last() else { return Ok(last) };
        last = event.number;
    }
}

fn is_idle(run: &Execution) -> bool {
    let for_user = |wait: &Wait| wait.signals == [USER_MESSAGE] && !wait.timers;
    run.status == Status::Waiting && run.wait.as_ref().is_some_and(for_user)
}
