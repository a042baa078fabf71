//! The tool calls of one model answer: they run concurrently as durable tasks, and each gets exactly one result in the
//! conversation.
//!
//! A call that a policy denies, or whose arguments are wrong, gets its result at once. A call that needs a person, before it runs
//! or because its MCP server asks for input, waits while the others run. When the user sends a message, running calls are waited
//! for and the others are skipped. When the run is cancelled, every call without a result gets one that says so.

use super::agent_tool::{self, CallContext};
use super::approvals::{ApprovalDecision, PendingApprovals};
use super::elicitation::{PendingElicitations, continue_call};
use super::events::{AgentEvent, ToolCallEnd, ToolCallRef, ToolCallStart, artifact_type};
use super::results::{self, Checked};
use super::run::AgentRun;
use super::transcript::LlmCall;
use super::{Delivery, ModelChoice, USER_MESSAGE, UserMessage};
use crate::mcp::{InputGiven, SAMPLED, SampledCall};
use crate::message::{Message, ToolCall};
use crate::tools::approval::Decision;
use crate::tools::{Effect, Todo, TodoList, ToolOutcome};
use flovyn_core::context::Step;
use flovyn_core::error::{Code, Result};
use flovyn_core::journal::Outcome;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// The result of calls that were skipped because of a message of the user.
const SKIPPED: &str = "Skipped: the user sent a new message.";
/// The result of calls that were skipped because the user stopped the agent.
const STOPPED_BY_USER: &str = "Skipped: the user stopped the agent.";
/// The result of calls whose elicitation was not answered.
const ELICITATION_UNANSWERED: &str =
    "Not gone on with: the MCP server asked the user something, and they did not answer it.";
/// The result of calls that had none when the run was cancelled.
const RUN_CANCELLED: &str = "Stopped: the run was cancelled before this call had a result.";

/// How the loop goes on after the calls of an answer.
#[derive(PartialEq, Eq)]
pub(super) enum ToolCallsEnd {
    /// The model gets the results.
    Answered,
    /// The user has interrupted.
    Interrupted,
}

/// The state of the calls of one answer.
#[derive(Default)]
struct ToolCalls {
    ready: VecDeque<ReadyCall>,
    approvals: PendingApprovals,
    elicitations: PendingElicitations,
    open: Vec<(Awaited, Step)>,
    user_messages: Vec<UserMessage>,
}

/// A call that may run, or go on with the input that its server asked for.
struct ReadyCall {
    call: ToolCall,
    given: Option<InputGiven>,
}

/// What an open step waits for.
#[derive(PartialEq)]
enum Awaited {
    Tool(ToolCall),
    Approval,
    Answer,
    Message,
}

impl AgentRun<'_> {
    /// Runs the calls until each has a result.
    pub(super) async fn run_calls(&mut self, calls: Vec<ToolCall>) -> Result<ToolCallsEnd> {
        let mut tool_calls = ToolCalls::default();
        let ended = self.run_until_answered(&mut tool_calls, calls).await;
        if let Err(error) = &ended
            && error.code() == Code::Cancelled
        {
            self.stop(&mut tool_calls)?;
        }
        ended?;
        let user_messages = std::mem::take(&mut tool_calls.user_messages);
        let goes_on = self.add_user_messages(&user_messages)? || user_messages.is_empty();
        Ok(if goes_on { ToolCallsEnd::Answered } else { ToolCallsEnd::Interrupted })
    }

    async fn run_until_answered(&mut self, tool_calls: &mut ToolCalls, calls: Vec<ToolCall>) -> Result<()> {
        let had_kept = self.state.results_kept;
        for call in calls {
            match call.name == results::NAME && self.reads_results() {
                true => self.read_result(&call).await?,
                false => self.admit(tool_calls, call)?,
            }
        }
        self.answer_all(tool_calls).await?;
        match self.state.results_kept == had_kept {
            true => Ok(()),
            false => self.record_offered_tools_if_changed().await,
        }
    }

    /// Runs calls until each has a result.
    async fn answer_all(&mut self, tool_calls: &mut ToolCalls) -> Result<()> {
        loop {
            self.start_ready(tool_calls).await?;
            self.wait_for_people(tool_calls)?;
            if tool_calls.open.is_empty() {
                return Ok(());
            }
            let (awaited, outcome) = tool_calls.next().await?;
            match awaited {
                Awaited::Tool(call) => self.on_task_end(tool_calls, call, &outcome)?,
                Awaited::Approval => self.on_approval(tool_calls, &outcome)?,
                Awaited::Answer => self.on_elicitation_answer(tool_calls, &outcome)?,
                Awaited::Message => self.on_user_message(tool_calls, &outcome)?,
            }
        }
    }

    /// Decides whether a call runs, is refused, or needs approval.
    fn admit(&mut self, tool_calls: &mut ToolCalls, call: ToolCall) -> Result<()> {
        let Some(tool) = self.tools.get(&call.name) else {
            let own = self.reads_results().then_some(results::NAME);
            let shown = self.tools.iter().filter(|(_, tool)| !tool.is_hidden).map(|(name, _)| name.as_str());
            let names = shown.chain(own).collect::<Vec<_>>().join(", ");
            let message = format!("There is no tool {:?}. There are: {names}.", call.name);
            return self.answer(&call, ToolOutcome::error("unknown_tool", message));
        };
        if let Some(faults) = call.fault().or_else(|| tool.faults(&call.arguments)) {
            return self.answer(&call, ToolOutcome::error("invalid_arguments", faults));
        }
        let effect = tool.effect_of(&call.arguments);
        match self.decide(&call.name, effect, &call.arguments) {
            Decision::Allow => tool_calls.ready.push_back(ReadyCall { call, given: None }),
            Decision::Ask => tool_calls.approvals.ask(self, call, effect)?,
            Decision::Deny => {
                let message = format!("The policy of this agent does not allow this call of {}.", call.name);
                self.answer(&call, ToolOutcome::error("denied", message))?;
            }
        }
        Ok(())
    }

    /// Starts ready calls up to the limit, unless the user has sent a message: then they are skipped.
    async fn start_ready(&mut self, tool_calls: &mut ToolCalls) -> Result<()> {
        let max = self.input.config.parallel_tools.max(1);
        if tool_calls.ready.is_empty() || tool_calls.running() >= max {
            return Ok(());
        }
        let user_messages = self.steering().await?;
        tool_calls.user_messages.extend(user_messages);
        if !tool_calls.user_messages.is_empty() {
            return self.skip(tool_calls);
        }
        let free = (max - tool_calls.running()).min(tool_calls.ready.len());
        let starting: Vec<_> = tool_calls.ready.drain(..free).collect();
        // All start events come before the first task is scheduled: what an agent streams belongs to its last op, and events that
        // belong to a task's op would be taken for those of a lost attempt.
        for ReadyCall { call: ToolCall { id, name, arguments, .. }, .. } in
            starting.iter().filter(|ready| ready.given.is_none())
        {
            AgentEvent::ToolCallStart { tool_call: ToolCallStart { id, name, arguments } }.emit(self.ctx);
        }
        for ReadyCall { call, given } in starting {
            let step = self.schedule(&call, given.as_ref())?;
            tool_calls.open.push((Awaited::Tool(call), step));
        }
        Ok(())
    }

    fn schedule(&self, call: &ToolCall, given: Option<&InputGiven>) -> Result<Step> {
        if let Some(given) = given {
            return self.ctx.schedule_raw(continue_call(call, given)?);
        }
        let context = CallContext {
            working_directory: self.input.working_directory.as_deref(),
            session: self.ctx.agent_execution_id().to_string(),
            seen: &self.state.seen,
        };
        self.ctx.schedule_raw(self.tools[&call.name].call(&call.id, &call.arguments, &context)?)
    }

    /// Waits for answers and for messages of the user while a request is open.
    fn wait_for_people(&self, tool_calls: &mut ToolCalls) -> Result<()> {
        let (asks_approval, elicits) = (!tool_calls.approvals.is_empty(), !tool_calls.elicitations.is_empty());
        tool_calls.open.retain(|(awaited, _)| match awaited {
            Awaited::Tool(_) => true,
            Awaited::Approval => asks_approval,
            Awaited::Answer => elicits,
            Awaited::Message => asks_approval || elicits,
        });
        if asks_approval && !tool_calls.awaits(&Awaited::Approval) {
            tool_calls.open.push((Awaited::Approval, PendingApprovals::wait(self.ctx)?));
            self.status("waiting_for_approval", None);
        }
        if elicits && !tool_calls.awaits(&Awaited::Answer) {
            tool_calls.open.push((Awaited::Answer, PendingElicitations::wait(self.ctx)?));
            self.status("waiting_for_answer", None);
        }
        if (asks_approval || elicits) && !tool_calls.awaits(&Awaited::Message) {
            tool_calls.open.push((Awaited::Message, self.ctx.wait_raw(USER_MESSAGE, None)?));
        }
        Ok(())
    }

    fn on_approval(&mut self, tool_calls: &mut ToolCalls, outcome: &Outcome) -> Result<()> {
        let Some(payload) = outcome.payload() else { return Ok(()) };
        match tool_calls.approvals.answered(self, payload)? {
            ApprovalDecision::Approved(call) => tool_calls.ready.push_back(ReadyCall { call, given: None }),
            ApprovalDecision::Denied(call, message) => self.answer(&call, ToolOutcome::error("denied", message))?,
            ApprovalDecision::Nothing => {}
        }
        Ok(())
    }

    fn on_elicitation_answer(&mut self, tool_calls: &mut ToolCalls, outcome: &Outcome) -> Result<()> {
        let Some(payload) = outcome.payload() else { return Ok(()) };
        if let Some((call, given)) = tool_calls.elicitations.answered(self, payload)? {
            tool_calls.ready.push_back(ReadyCall { call, given: Some(given) });
        }
        Ok(())
    }

    fn on_user_message(&mut self, tool_calls: &mut ToolCalls, outcome: &Outcome) -> Result<()> {
        let Some(message) = outcome.payload().map(UserMessage::read) else { return Ok(()) };
        if message.delivery == Delivery::NextTurn {
            self.state.queue.push(message);
            return Ok(());
        }
        tool_calls.user_messages.push(message);
        self.skip(tool_calls)
    }

    fn skip(&mut self, tool_calls: &mut ToolCalls) -> Result<()> {
        let message = match tool_calls.user_messages.last().is_some_and(UserMessage::is_interrupt) {
            true => STOPPED_BY_USER,
            false => SKIPPED,
        };
        let elicited = tool_calls.elicitations.take();
        elicited
            .iter()
            .try_for_each(|call| self.answer(call, ToolOutcome::error("skipped", ELICITATION_UNANSWERED)))?;
        tool_calls.unanswered().iter().try_for_each(|call| self.answer(call, ToolOutcome::error("skipped", message)))
    }

    fn stop(&mut self, tool_calls: &mut ToolCalls) -> Result<()> {
        let open = std::mem::take(&mut tool_calls.open).into_iter().filter_map(|(awaited, _)| match awaited {
            Awaited::Tool(call) => Some(call),
            Awaited::Approval | Awaited::Answer | Awaited::Message => None,
        });
        let calls = open.chain(tool_calls.unanswered()).collect::<Vec<_>>();
        calls.iter().try_for_each(|call| self.answer(call, ToolOutcome::error("cancelled", RUN_CANCELLED)))
    }

    /// Handles the end of a task: the call has its result, or its server asks for input first.
    fn on_task_end(&mut self, tool_calls: &mut ToolCalls, call: ToolCall, outcome: &Outcome) -> Result<()> {
        let outcome = match outcome {
            Outcome::Value(output) => self.tools[&call.name].outcome(output)?,
            Outcome::Failed(failure) => agent_tool::failed(failure),
            other => ToolOutcome::error("task_failed", format!("The task ended with {other:?}.")),
        };
        self.count_sampled(&outcome)?;
        if let Some(required) = self.tools[&call.name].asks(&outcome) {
            return tool_calls.elicitations.ask(self, call, required);
        }
        self.state.seen.note(&outcome);
        if let Some(todos) = TodoList::of(&outcome).filter(|_| call.name == Todo::NAME) {
            self.state.todos = todos;
        }
        let wrote = !outcome.is_error && self.tools[&call.name].effect == Effect::Write;
        let path = outcome.details.get("path").or_else(|| call.arguments.get("path"));
        let path = path.and_then(|path| path.as_str()).filter(|_| wrote).map(str::to_owned);
        self.answer(&call, outcome)?;
        if let Some(path) = &path {
            AgentEvent::Artifact { path, action: &call.name, artifact_type: artifact_type(path) }.emit(self.ctx);
        }
        Ok(())
    }

    /// Counts the model calls that an MCP server has made in the middle of a call as calls of this run.
    fn count_sampled(&mut self, outcome: &ToolOutcome) -> Result<()> {
        let Some(sampled) = outcome.details.get(SAMPLED) else { return Ok(()) };
        let sampled: Vec<SampledCall> = serde_json::from_value(sampled.clone()).unwrap_or_default();
        for SampledCall { model, meta } in sampled {
            self.state.ledger.count(&meta.usage);
            self.record_call(&LlmCall::of(&ModelChoice::parse(&model), "sampling", &meta))?;
        }
        Ok(())
    }

    /// Answers a call that reads more of an earlier result. The agent has the text itself, so no task is needed.
    async fn read_result(&mut self, call: &ToolCall) -> Result<()> {
        let ToolCall { id, name, arguments, .. } = call;
        AgentEvent::ToolCallStart { tool_call: ToolCallStart { id, name, arguments } }.emit(self.ctx);
        let outcome = match results::parse(arguments) {
            Ok(input) => match self.kept_result(&input.call_id).await? {
                Some(text) => self.input.config.results.read(&input, &text),
                None => results::not_kept(&input.call_id),
            },
            Err(wrong) => wrong,
        };
        self.append_result(call, outcome)
    }

    /// Appends the result of a call to the conversation. Of a long one the whole is kept beside the conversation, and
    /// the model is shown its beginning and its end.
    pub(super) fn answer(&mut self, call: &ToolCall, outcome: ToolOutcome) -> Result<()> {
        let limits = &self.input.config.results;
        let outcome = match limits.check(outcome)? {
            Checked::Short(outcome) => outcome,
            Checked::Long(long) => {
                let can_be_read = self.keep_result(&call.id, long.kept.clone())?;
                long.shown(limits, can_be_read.then_some(call.id.as_str()))
            }
        };
        self.append_result(call, outcome)
    }

    fn append_result(&mut self, call: &ToolCall, outcome: ToolOutcome) -> Result<()> {
        let result = outcome.into_result(&call.id, &call.name);
        let (content, is_error) = (agent_tool::text_of(&result), result.is_error);
        self.append_message(&Message::tool([result]))?;
        let tool_call = ToolCallRef { id: &call.id, name: &call.name };
        AgentEvent::ToolCallEnd { tool_call, result: ToolCallEnd { content: &content, is_error } }.emit(self.ctx);
        Ok(())
    }
}

impl ToolCalls {
    fn running(&self) -> usize {
        self.open.iter().filter(|(awaited, _)| matches!(awaited, Awaited::Tool(_))).count()
    }

    fn awaits(&self, wanted: &Awaited) -> bool {
        self.open.iter().any(|(awaited, _)| awaited == wanted)
    }

    /// Takes the calls that do not run and have no result; their requests are closed.
    fn unanswered(&mut self) -> Vec<ToolCall> {
        let ready = self.ready.drain(..).map(|ready| ready.call);
        ready.chain(self.approvals.take()).chain(self.elicitations.take()).collect()
    }

    /// The next step that ends. A step that ended with an error stays among the open ones, so that its call gets a result.
    async fn next(&mut self) -> Result<(Awaited, Outcome)> {
        let ended = poll_fn(|cx| {
            let polled = self.open.iter_mut().map(|(_, step)| Pin::new(step).poll(cx));
            let ready = polled.enumerate().find_map(|(place, polled)| match polled {
                Poll::Ready(outcome) => Some((place, outcome)),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        let (place, outcome) = ended.await;
        let outcome = outcome?;
        let (awaited, _) = self.open.remove(place);
        Ok((awaited, outcome))
    }
}
