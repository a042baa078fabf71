//! Answers one prompt and ends: text to standard output, tools and cost to standard error.

use super::approval_rules::{ApprovalRules, answer};
use super::cost::Tally;
use super::elicitation::Elicitation;
use super::feed::{ChatEvent, UNSERVED, text_of};
use super::live_session::LiveSession;
use super::local_agents::LocalAgents;
use super::screen::style::clean;
use super::tools::{ToolName, problem_lines};
use crate::Result;
use crate::print::{Output, short, took};
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::message::{Message, ToolResult};
use flovyn_toolkit::react::InputRequest;
use flovyn_toolkit::tools::approval::ApprovalRequest;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// The reason of a refused call where nobody can be asked.
const NOT_ALLOWED: &str = "Nobody can be asked in this session: it allows looking alone.";

/// How long MCP servers may take to start before a notice says that they are starting.
const START_NOTICE_AFTER: Duration = Duration::from_secs(3);

/// An answer that is being written.
struct OneShot<'a> {
    out: &'a mut Output,
    rules: ApprovalRules,
    tally: Tally,
    /// The text of the answer that was printed.
    printed: String,
    /// The agent has read the prompt: what follows is the answer.
    turn_begun: bool,
    /// The last complete answer.
    last: Option<Message>,
}

/// Waits for the tools of this process, and prints problems of MCP servers.
pub(super) async fn wait_open(local_agents: &mut Option<LocalAgents>) -> Result {
    let Some(local_agents) = local_agents else { return Ok(()) };
    match timeout(START_NOTICE_AFTER, local_agents.wait_open()).await {
        Ok(wait_open) => drop(wait_open?),
        Err(_) => {
            eprintln!("The MCP servers are starting…");
            local_agents.wait_open().await?;
        }
    }
    let lines =
        local_agents.toolkit().map(|toolkit| problem_lines(toolkit.tools(), toolkit.problems())).unwrap_or_default();
    lines.iter().for_each(|line| eprintln!("{line}"));
    Ok(())
}

/// Follows a session until it waits for the user again, and prints it. `turn_begun`: the turn has begun already.
pub(super) async fn follow(
    live_session: &mut LiveSession,
    turn_begun: bool,
    rules: ApprovalRules,
    out: &mut Output,
) -> Result {
    let mut shot = OneShot { out, rules, tally: Tally::default(), printed: String::new(), turn_begun, last: None };
    for request in std::mem::take(&mut live_session.approvals) {
        shot.answer_approval(live_session, &request).await?;
    }
    for request in std::mem::take(&mut live_session.input_requests) {
        close_input_request(live_session, request).await?;
    }
    loop {
        let Some(event) = live_session.feed.next().await? else { break };
        match event {
            ChatEvent::Text(text) => shot.text(&text)?,
            ChatEvent::Discarded => shot.discard()?,
            ChatEvent::UserMessage(_) => shot.turn_begun = true,
            ChatEvent::AssistantMessage(message) => shot.answer_text(message)?,
            ChatEvent::ToolEnded { result, duration } => shot.tool(&result, duration.map(took)),
            ChatEvent::ApprovalRequested(request) => shot.answer_approval(live_session, &request).await?,
            ChatEvent::InputRequested(request) => close_input_request(live_session, request).await?,
            ChatEvent::InputRefused(refused) => eprintln!("{}", refused.message),
            ChatEvent::ModelCalled(call) => shot.tally.add(call.usage.as_ref()),
            ChatEvent::Notice(notice) => eprintln!("{notice}"),
            ChatEvent::Unserved => eprintln!("{UNSERVED}"),
            ChatEvent::Idle if shot.turn_begun => break,
            ChatEvent::SessionEnded(Some(why)) => return Err(Error::new(Code::AgentFailed, why).into()),
            ChatEvent::SessionEnded(None) => break,
            ChatEvent::Idle
            | ChatEvent::Thinking(_)
            | ChatEvent::ToolStarted(_)
            | ChatEvent::ToolOutput { .. }
            | ChatEvent::ToolRestarted(_)
            | ChatEvent::ApprovalAnswered(_)
            | ChatEvent::InputAnswered(_) => {}
        }
    }
    shot.end(&live_session.session.name())
}

/// Cancels an elicitation, since nobody can answer here.
async fn close_input_request(live_session: &LiveSession, request: InputRequest) -> Result {
    let (server, tool) = (request.server.clone(), ToolName::of(&request.name).tool.to_owned());
    for question in request.questions.values() {
        let question = short(question.message(), 200);
        eprintln!("{server} asks before {tool} goes on: {question} Nobody can answer here, so it was closed.");
    }
    match Elicitation::new(request).cancel() {
        Some(reply) => live_session.answer_input(&reply).await,
        None => Ok(()),
    }
}

impl OneShot<'_> {
    fn text(&mut self, text: &str) -> Result {
        self.printed.push_str(text);
        match (self.out.is_json(), self.out.is_terminal()) {
            (true, _) => Ok(()),
            (_, true) => self.out.part(&clean(text)),
            (_, false) => self.out.part(text),
        }
    }

    fn discard(&mut self) -> Result {
        if !self.printed.is_empty() {
            self.line()?;
            eprintln!("(the answer was cut off and is given again)");
        }
        Ok(())
    }

    /// Ends the line of the answer.
    fn line(&mut self) -> Result {
        let open = !self.printed.is_empty() && !self.printed.ends_with('\n');
        self.printed.clear();
        if open && !self.out.is_json() { self.out.line("") } else { Ok(()) }
    }

    fn answer_text(&mut self, message: Message) -> Result {
        let text = message.text();
        match text.strip_prefix(&self.printed) {
            Some(rest) => self.text(rest)?,
            None => {
                self.discard()?;
                self.text(&text)?;
            }
        }
        self.line()?;
        self.last = Some(message);
        Ok(())
    }

    fn tool(&mut self, result: &ToolResult, duration: Option<String>) {
        let mark = if result.is_error { "✗" } else { "✓" };
        let duration = duration.map(|duration| format!(" ({duration})")).unwrap_or_default();
        eprintln!("{mark} {}{duration}: {}", ToolName::of(&result.name), short(&text_of(result), 100));
    }

    async fn answer_approval(&mut self, live_session: &LiveSession, request: &ApprovalRequest) -> Result {
        let by_rules = self.rules.answer(request);
        let refused = || {
            eprintln!("{} was not allowed; --yes or --approve allows it", ToolName::of(&request.name));
            answer(request, false, Some(NOT_ALLOWED.to_owned()))
        };
        live_session.answer_approval(&by_rules.unwrap_or_else(refused)).await
    }

    fn end(self, session: &str) -> Result {
        let error = self.last.as_ref().and_then(|message| message.assistant.as_ref()?.error.as_ref());
        if let Some(error) = error {
            return Err(Error::new(Code::AgentFailed, format!("the model gave no answer: {}", error.message)).into());
        }
        if self.out.is_json() {
            let text = self.last.map(|message| message.text()).unwrap_or_default();
            return self.out.value(&json!({ "session": session, "text": text, "usage": self.tally.json() }));
        }
        eprintln!("{} · session {session}", self.tally.line());
        Ok(())
    }
}
