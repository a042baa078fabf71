//! Answers one prompt and ends: text to standard output, tools and cost to standard error. Nobody is waited for.

use super::agents::model_call;
use super::approval_rules::{ApprovalRules, answer, leaves_sandbox};
use super::elicitation::Elicitation;
use super::feed::{ChatEvent, UNSERVED};
use super::given_text;
use super::live_session::LiveSession;
use super::local_agents::LocalAgents;
use super::report::{Report, note};
use super::tools::{ToolName, problem_lines};
use super::turn_hooks::TurnHooks;
use crate::Result;
use crate::print::short;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::react::{Delivery, InputRequest};
use flovyn_toolkit::tools::approval::ApprovalRequest;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::timeout;

/// The reason of a refused call where nobody can be asked.
const NOT_ALLOWED: &str = "Nobody can be asked in this session, and it does not allow this by itself.";

/// The same for a command that is to run outside of the sandbox.
const NOT_OUTSIDE: &str =
    "Nobody can be asked in this session, so no command leaves the sandbox. Without outsideSandbox it may run.";

/// How long MCP servers may take to start before a notice says that they are starting.
const START_NOTICE_AFTER: Duration = Duration::from_secs(3);

/// How long standard input may be silent before a notice says that it is waited for.
const INPUT_NOTICE_AFTER: Duration = Duration::from_secs(3);

/// Waits for the tools of this process, and prints problems of MCP servers.
pub(super) async fn wait_open(local_agents: &mut Option<LocalAgents>) -> Result {
    let Some(local_agents) = local_agents else { return Ok(()) };
    match timeout(START_NOTICE_AFTER, local_agents.wait_open()).await {
        Ok(wait_open) => drop(wait_open?),
        Err(_) => {
            note("The MCP servers are starting…");
            local_agents.wait_open().await?;
        }
    }
    let lines =
        local_agents.toolkit().map(|toolkit| problem_lines(&toolkit.tools(), &toolkit.problems())).unwrap_or_default();
    lines.iter().for_each(|line| note(line));
    Ok(())
}

/// The text of standard input, unless that is a terminal.
pub(super) async fn piped_text() -> Result<String> {
    if std::io::stdin().is_terminal() {
        return Ok(String::new());
    }
    // On a thread, so that a signal ends the command meanwhile.
    let mut reading = tokio::task::spawn_blocking(|| given_text::of_pipe(std::io::stdin()));
    let read = match timeout(INPUT_NOTICE_AFTER, &mut reading).await {
        Ok(read) => read,
        Err(_) => {
            note("Standard input is read to its end; < /dev/null says that there is none.");
            reading.await
        }
    };
    Ok(read.map_err(|error| Error::new(Code::AgentFailed, format!("standard input: {error}")))??)
}

/// Follows a session until it waits for the user again, and reports it. `turn_begun`: the turn has begun already.
pub(super) async fn follow(
    live_session: &mut LiveSession,
    mut turn_begun: bool,
    rules: &ApprovalRules,
    hooks: &mut TurnHooks,
    report: &mut Report<'_>,
) -> Result {
    for request in std::mem::take(&mut live_session.approvals) {
        answer_approval(live_session, rules, &request, report).await?;
    }
    for request in std::mem::take(&mut live_session.input_requests) {
        close_input_request(live_session, request).await?;
    }
    let mut unpriced = false;
    loop {
        let Some(event) = live_session.feed.next().await? else { break };
        match event {
            ChatEvent::Text(text) => report.text(&text)?,
            ChatEvent::Discarded => report.discard()?,
            ChatEvent::UserMessage(message) if turn_begun => report.user_message(&message)?,
            ChatEvent::UserMessage(_) => turn_begun = true,
            ChatEvent::AssistantMessage(message) => report.answered(message)?,
            ChatEvent::ToolEnded { result, duration } => report.tool(&result, duration)?,
            ChatEvent::ApprovalRequested(request) => answer_approval(live_session, rules, &request, report).await?,
            ChatEvent::InputRequested(request) => close_input_request(live_session, request).await?,
            ChatEvent::InputRefused(refused) => note(&refused.message),
            ChatEvent::ModelCalled(call) => {
                let has_price = call.usage.as_ref().is_some_and(|usage| usage.cost.is_some());
                if live_session.limits().max_cost_micros.is_some() && !has_price && !unpriced {
                    unpriced = true;
                    let model = &call.model;
                    report.notice(&format!("The price of {model} is not known, so --max-cost does not limit it."))?;
                }
                report.model_called(call.usage.as_ref());
            }
            ChatEvent::OfAgent { event, .. } => {
                if let Some(call) = model_call(&event) {
                    report.model_called(call.usage.as_ref());
                }
            }
            ChatEvent::Notice(notice) => report.notice(&notice)?,
            ChatEvent::Unserved => report.notice(UNSERVED)?,
            ChatEvent::AnswerEnded(end) if turn_begun => {
                hooks.ended(end.stop_reason);
                report.ended(end);
            }
            ChatEvent::Idle if turn_begun => {
                let more = hooks.idle(&live_session.session.name(), &mut note).await;
                let Some(more) = more else { break };
                live_session.send_text(&more, Delivery::NextStep).await?;
            }
            ChatEvent::SessionEnded(Some(why)) => {
                report.fail(&why)?;
                return Err(Error::new(Code::AgentFailed, why).into());
            }
            ChatEvent::SessionEnded(None) => break,
            ChatEvent::Idle
            | ChatEvent::AnswerEnded(_)
            | ChatEvent::Thinking(_)
            | ChatEvent::AgentStarted(_)
            | ChatEvent::Sleeping(_)
            | ChatEvent::ToolStarted(_)
            | ChatEvent::ToolOutput { .. }
            | ChatEvent::ToolRestarted(_)
            | ChatEvent::ApprovalAnswered(_)
            | ChatEvent::InputAnswered(_) => {}
        }
    }
    report.finish()
}

async fn answer_approval(
    live_session: &LiveSession,
    rules: &ApprovalRules,
    request: &ApprovalRequest,
    report: &mut Report<'_>,
) -> Result {
    let refused = || {
        let name = ToolName::of(&request.name);
        let (notice, reason) = match leaves_sandbox(request) {
            true => (
                format!(
                    "{name} was not allowed: only a person at a terminal lets a command leave the sandbox; --unsandboxed \
                     has no sandbox"
                ),
                NOT_OUTSIDE,
            ),
            false => (format!("{name} was not allowed; --yes, --approve or --allowed-tools allows it"), NOT_ALLOWED),
        };
        note(&notice);
        answer(request, false, Some(reason.to_owned()))
    };
    let answer = rules.answer(request).unwrap_or_else(refused);
    if !answer.approved {
        report.denied(request);
    }
    live_session.answer_approval(&answer).await
}

/// Cancels an elicitation, since nobody can answer here.
async fn close_input_request(live_session: &LiveSession, request: InputRequest) -> Result {
    let (server, tool) = (request.server.clone(), ToolName::of(&request.name).tool.to_owned());
    for question in request.questions.values() {
        let question = short(question.message(), 200);
        note(&format!("{server} asks before {tool} goes on: {question} Nobody can answer here, so it was closed."));
    }
    match Elicitation::new(request).cancel() {
        Some(reply) => live_session.answer_input(&reply).await,
        None => Ok(()),
    }
}
