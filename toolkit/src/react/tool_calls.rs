//! The tool calls of one model answer: they run concurrently as durable tasks, and each gets exactly one result in the
//! conversation.
//!
//! A call that a policy denies, or whose arguments are wrong, gets its result at once. A call that needs a person, before it runs
//! or because its MCP server asks for input, waits while the others run. When the user sends a message, running calls are waited
//! for and the others are skipped. When the run is cancelled, every call without a result gets one that says so. A call that
//! hands the run off comes last.

use super::agent_tool::{self, CallContext};
use super::approvals::{ApprovalDecision, PendingApprovals};
use super::delegate::Giving;
use super::delegation::{News, Working};
use super::elicitation::{PendingElicitations, continue_call};
use super::events::{AgentEvent, ToolCallEnd, ToolCallRef, ToolCallStart, artifact_type};
use super::questions;
use super::results::{self, Checked};
use super::run::AgentRun;
use super::transcript::{ContextEdit, LlmCall, entry_type, estimate};
use super::{Delivery, ModelChoice, USER_MESSAGE, UserMessage};
use crate::mcp::{InputGiven, InputRequired, SAMPLED, SampledCall};
use crate::message::{Message, Part, ToolCall};
use crate::tools::approval::Decision;
use crate::tools::{Effect, Todo, TodoList, ToolOutcome};
use flovyn_core::context::Step;
use flovyn_core::error::{Code, Result};
use flovyn_core::id::EntryId;
use flovyn_core::journal::Outcome;
use flovyn_core::model::ChildEvent;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// How much of the arguments that a person has given a call the model is shown with its result, in characters.
const MAX_CHANGED: usize = 2_000;
/// The result of calls that were skipped because of a message of the user.
const SKIPPED: &str = "Skipped: the user sent a new message.";
/// The result of calls that were skipped because the user stopped the agent.
const STOPPED_BY_USER: &str = "Skipped: the user stopped the agent.";
/// The result of calls whose elicitation was not answered.
const ELICITATION_UNANSWERED: &str =
    "Not gone on with: the MCP server asked the user something, and they did not answer it.";
/// The result of calls whose question to a person was not answered.
const QUESTION_UNANSWERED: &str = "Not answered: the user sent a new message instead.";
/// The result of calls that would give out work once too often.
const NO_ROUNDS: &str = "Not given out: you have given out work as often as you may. Answer now, with what you have.";
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
pub(super) struct ToolCalls {
    ready: VecDeque<ReadyCall>,
    approvals: PendingApprovals,
    elicitations: PendingElicitations,
    open: Vec<(Awaited, Step)>,
    /// The calls that other agents work for.
    pub(super) children: Vec<(Working, News)>,
    /// The calls that may hand the run off.
    handoffs: Vec<ToolCall>,
    /// Whether delegates are given work.
    is_round: bool,
    user_messages: Vec<UserMessage>,
}

/// What has come of what is waited for.
enum CallEvent {
    Ended(Awaited, Outcome),
    Child(Working, News, Result<ChildEvent>),
}

/// A call that may run, or go on with the input that its server asked for.
struct ReadyCall {
    call: ToolCall,
    given: Option<InputGiven>,
}

/// What an open step waits for.
#[derive(PartialEq)]
pub(super) enum Awaited {
    Tool(ToolCall),
    /// The answer of the run that has started this one.
    Parent(ToolCall),
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
        let before = (self.state.results_kept, self.state.was_asked);
        for call in calls {
            if call.name == results::NAME && self.reads_results() {
                self.read_result(&call).await?;
            } else if call.name == questions::ANSWER && self.answers_agents() {
                let ToolCall { id, name, arguments, .. } = &call;
                AgentEvent::ToolCallStart { tool_call: ToolCallStart { id, name, arguments, external: false } }
                    .emit(self.ctx);
                self.answer_agent(tool_calls, call).await?;
            } else {
                self.admit(tool_calls, call)?;
            }
        }
        self.state.rounds += u32::from(tool_calls.is_round);
        self.answer_all(tool_calls).await?;
        self.hand_off(std::mem::take(&mut tool_calls.handoffs)).await?;
        match before == (self.state.results_kept, self.state.was_asked) {
            true => Ok(()),
            false => self.record_offered_tools_if_changed().await,
        }
    }

    /// Runs calls until each has a result.
    async fn answer_all(&mut self, tool_calls: &mut ToolCalls) -> Result<()> {
        loop {
            self.start_ready(tool_calls).await?;
            self.wait_for_people(tool_calls)?;
            if tool_calls.open.is_empty() && tool_calls.children.is_empty() {
                return Ok(());
            }
            match tool_calls.next().await? {
                CallEvent::Ended(Awaited::Tool(call), outcome) => self.on_task_end(tool_calls, call, &outcome)?,
                CallEvent::Ended(Awaited::Approval, outcome) => self.on_approval(tool_calls, &outcome)?,
                CallEvent::Ended(Awaited::Parent(call), outcome) => {
                    self.on_parent_answer(tool_calls, call, &outcome).await?;
                }
                CallEvent::Ended(Awaited::Answer, outcome) => self.on_elicitation_answer(tool_calls, &outcome).await?,
                CallEvent::Ended(Awaited::Message, outcome) => self.on_user_message(tool_calls, &outcome).await?,
                CallEvent::Child(working, news, event) => {
                    let goes_on = self.on_child_event(working, news, event).await?;
                    tool_calls.children.extend(goes_on);
                }
            }
        }
    }

    /// Decides whether a call runs, is refused, or needs approval.
    fn admit(&mut self, tool_calls: &mut ToolCalls, call: ToolCall) -> Result<()> {
        let Some(tool) = self.tools.get(&call.name) else {
            let own = self.reads_results().then_some(results::NAME);
            let own = own.into_iter().chain(self.answers_agents().then_some(questions::ANSWER));
            let shown = self.tools.iter().filter(|(_, tool)| !tool.is_hidden).map(|(name, _)| name.as_str());
            let names = shown.chain(own).collect::<Vec<_>>().join(", ");
            let message = format!("There is no tool {:?}. There are: {names}.", call.name);
            return self.answer(&call, ToolOutcome::error("unknown_tool", message));
        };
        if let Some(faults) = call.fault().or_else(|| tool.faults(&call.arguments)) {
            return self.answer(&call, ToolOutcome::error("invalid_arguments", faults));
        }
        if tool.gives(Giving::Delegates).is_some() {
            if self.input.config.max_rounds.is_some_and(|most| self.state.rounds >= most) {
                return self.answer(&call, ToolOutcome::error("no_rounds_left", NO_ROUNDS));
            }
            tool_calls.is_round = true;
        }
        let effect = tool.effect_of(&call.arguments);
        match self.decide(&call.name, effect, &call.arguments) {
            Decision::Allow => tool_calls.ready.push_back(ReadyCall { call, given: None }),
            Decision::Ask => tool_calls.approvals.ask(self, call, effect)?,
            Decision::Deny => {
                self.answer(&call, ToolOutcome::error("denied", not_allowed(&call)))?;
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
            AgentEvent::ToolCallStart { tool_call: ToolCallStart { id, name, arguments, external: false } }
                .emit(self.ctx);
        }
        for ReadyCall { call, given } in starting {
            let tool = self.tools.get(&call.name);
            if let Some(delegate) = tool.and_then(|tool| tool.gives(Giving::Delegates)).cloned() {
                let working = self.delegate(&call, &delegate)?;
                tool_calls.children.extend(working);
            } else if tool.is_some_and(|tool| tool.escalates) {
                let question = call.arguments["question"].as_str().unwrap_or_default().to_owned();
                self.escalate(tool_calls, call, &question)?;
            } else if tool.is_some_and(|tool| tool.gives(Giving::HandsOff).is_some()) {
                tool_calls.handoffs.push(call);
            } else {
                let step = self.schedule(&call, given.as_ref())?;
                tool_calls.open.push((Awaited::Tool(call), step));
            }
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

    /// Waits for answers and for messages of the user while a request is open, and for messages while children work.
    fn wait_for_people(&self, tool_calls: &mut ToolCalls) -> Result<()> {
        let (asks_approval, elicits) = (!tool_calls.approvals.is_empty(), !tool_calls.elicitations.is_empty());
        let hears = asks_approval || elicits || !tool_calls.children.is_empty();
        tool_calls.open.retain(|(awaited, _)| match awaited {
            Awaited::Tool(_) | Awaited::Parent(_) => true,
            Awaited::Approval => asks_approval,
            Awaited::Answer => elicits,
            Awaited::Message => hears,
        });
        if asks_approval && !tool_calls.awaits(&Awaited::Approval) {
            tool_calls.open.push((Awaited::Approval, PendingApprovals::wait(self.ctx)?));
            self.status("waiting_for_approval", None);
        }
        if elicits && !tool_calls.awaits(&Awaited::Answer) {
            tool_calls.open.push((Awaited::Answer, PendingElicitations::wait(self.ctx)?));
            self.status("waiting_for_answer", None);
        }
        if hears && !tool_calls.awaits(&Awaited::Message) {
            tool_calls.open.push((Awaited::Message, self.ctx.wait_raw(USER_MESSAGE, None)?));
        }
        Ok(())
    }

    fn on_approval(&mut self, tool_calls: &mut ToolCalls, outcome: &Outcome) -> Result<()> {
        let Some(payload) = outcome.payload() else { return Ok(()) };
        match tool_calls.approvals.answered(self, payload)? {
            ApprovalDecision::Approved { call, is_changed, allows } => {
                let known = &mut self.state.allowed;
                allows.into_iter().for_each(|rule| {
                    if !known.contains(&rule) {
                        known.push(rule)
                    }
                });
                match is_changed {
                    true => self.admit_changed(tool_calls, call)?,
                    false => tool_calls.ready.push_back(ReadyCall { call, given: None }),
                }
            }
            ApprovalDecision::Denied(call, message) => self.answer(&call, ToolOutcome::error("denied", message))?,
            ApprovalDecision::Nothing => {}
        }
        Ok(())
    }

    /// Decides about a call that a person has approved with arguments of their own. They are held to what the model's are held to,
    /// but that nobody is asked again.
    fn admit_changed(&mut self, tool_calls: &mut ToolCalls, call: ToolCall) -> Result<()> {
        self.changed.insert(call.id.clone(), call.arguments.clone());
        let tool = self.tools.get(&call.name);
        if let Some(faults) = tool.and_then(|tool| tool.faults(&call.arguments)) {
            return self.answer(&call, ToolOutcome::error("invalid_arguments", faults));
        }
        let effect = tool.map_or(Effect::Exec, |tool| tool.effect_of(&call.arguments));
        if self.decide(&call.name, effect, &call.arguments) == Decision::Deny {
            return self.answer(&call, ToolOutcome::error("denied", not_allowed(&call)));
        }
        tool_calls.ready.push_back(ReadyCall { call, given: None });
        Ok(())
    }

    async fn on_elicitation_answer(&mut self, tool_calls: &mut ToolCalls, outcome: &Outcome) -> Result<()> {
        let Some(payload) = outcome.payload() else { return Ok(()) };
        if let Some((call, given)) = tool_calls.elicitations.answered(self, payload)? {
            if self.is_question(&call) {
                return self.on_answer(tool_calls, call, questions::answer_of(&given.responses)).await;
            }
            tool_calls.ready.push_back(ReadyCall { call, given: Some(given) });
        }
        Ok(())
    }

    async fn on_user_message(&mut self, tool_calls: &mut ToolCalls, outcome: &Outcome) -> Result<()> {
        let Some(message) = outcome.payload().map(UserMessage::read) else { return Ok(()) };
        if message.delivery == Delivery::NextTurn {
            self.state.queue.push(message);
            return Ok(());
        }
        let must_not_wait = message.delivery == Delivery::Now;
        tool_calls.user_messages.push(message);
        self.skip(tool_calls)?;
        for (working, _) in tool_calls.children.iter_mut().filter(|_| must_not_wait) {
            self.stop_child(working).await?;
        }
        Ok(())
    }

    fn skip(&mut self, tool_calls: &mut ToolCalls) -> Result<()> {
        let message = match tool_calls.user_messages.last().is_some_and(UserMessage::is_interrupt) {
            true => STOPPED_BY_USER,
            false => SKIPPED,
        };
        let elicited = tool_calls.elicitations.take();
        for call in &elicited {
            let why = if self.is_question(call) { QUESTION_UNANSWERED } else { ELICITATION_UNANSWERED };
            self.answer(call, ToolOutcome::error("skipped", why))?;
        }
        tool_calls.unanswered().iter().try_for_each(|call| self.answer(call, ToolOutcome::error("skipped", message)))
    }

    fn stop(&mut self, tool_calls: &mut ToolCalls) -> Result<()> {
        let open = std::mem::take(&mut tool_calls.open).into_iter().filter_map(|(awaited, _)| match awaited {
            Awaited::Tool(call) | Awaited::Parent(call) => Some(call),
            Awaited::Approval | Awaited::Answer | Awaited::Message => None,
        });
        let children = std::mem::take(&mut tool_calls.children).into_iter().map(|(working, _)| working.call);
        let calls = open.chain(children).chain(tool_calls.unanswered()).collect::<Vec<_>>();
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
        AgentEvent::ToolCallStart { tool_call: ToolCallStart { id, name, arguments, external: false } }.emit(self.ctx);
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
        self.append_outcome(call, outcome).map(drop)
    }

    /// Appends the result of a call; returns the entry.
    pub(super) fn append_outcome(&mut self, call: &ToolCall, mut outcome: ToolOutcome) -> Result<EntryId> {
        if let Some(arguments) = self.changed.remove(&call.id) {
            // What the model has written stays as it is: it has to know what was run in its place.
            let arguments: String = arguments.to_string().chars().take(MAX_CHANGED).collect();
            outcome
                .content
                .insert(0, Part::text(format!("[The user changed the arguments of this call: {arguments}]")));
        }
        let (content, is_error) = (outcome.plain_text(), outcome.is_error);
        let message = result_message(call, outcome);
        self.state.context_tokens += estimate(&message);
        let entry = self.ctx.append_message(self.entry_of(&message)?)?;
        self.show_end(call, &content, is_error);
        Ok(entry)
    }

    /// Replaces the result of a call by another one.
    pub(super) fn correct_outcome(&mut self, entry: EntryId, call: &ToolCall, outcome: ToolOutcome) -> Result<()> {
        let (content, is_error) = (outcome.plain_text(), outcome.is_error);
        let edit = ContextEdit { target_id: entry, replacement: Some(result_message(call, outcome)) };
        self.record("system", entry_type::CONTEXT_EDIT, &edit)?;
        self.show_end(call, &content, is_error);
        Ok(())
    }

    fn show_end(&self, call: &ToolCall, content: &str, is_error: bool) {
        let tool_call = ToolCallRef { id: &call.id, name: &call.name, external: false };
        AgentEvent::ToolCallEnd { tool_call, result: ToolCallEnd { content, is_error } }.emit(self.ctx);
    }
}

/// The message with the result of a call.
pub(super) fn result_message(call: &ToolCall, outcome: ToolOutcome) -> Message {
    Message::tool([outcome.into_result(&call.id, &call.name)])
}

impl ToolCalls {
    /// Waits for a step.
    pub(super) fn wait(&mut self, awaited: Awaited, step: Step) {
        self.open.push((awaited, step));
    }

    /// Asks a person for what a call goes on with.
    pub(super) fn ask_person(&mut self, run: &AgentRun<'_>, call: ToolCall, required: InputRequired) -> Result<()> {
        self.elicitations.ask(run, call, required)
    }

    fn running(&self) -> usize {
        let tools = self.open.iter().filter(|(awaited, _)| matches!(awaited, Awaited::Tool(_)));
        tools.count() + self.children.len()
    }

    fn awaits(&self, wanted: &Awaited) -> bool {
        self.open.iter().any(|(awaited, _)| awaited == wanted)
    }

    /// Takes the calls that do not run and have no result; their requests are closed.
    fn unanswered(&mut self) -> Vec<ToolCall> {
        let ready = self.ready.drain(..).map(|ready| ready.call);
        let waiting = self.approvals.take().into_iter().chain(self.elicitations.take());
        ready.chain(std::mem::take(&mut self.handoffs)).chain(waiting).collect()
    }

    /// The next step that ends, or the next news of a child. A step that ended with an error stays among the open ones, so that
    /// its call gets a result.
    async fn next(&mut self) -> Result<CallEvent> {
        enum Ready {
            Step(usize, Result<Outcome>),
            Child(usize, Result<ChildEvent>),
        }
        let ended = poll_fn(|cx| {
            for (place, (_, step)) in self.open.iter_mut().enumerate() {
                if let Poll::Ready(outcome) = Pin::new(step).poll(cx) {
                    return Poll::Ready(Ready::Step(place, outcome));
                }
            }
            for (place, (_, news)) in self.children.iter_mut().enumerate() {
                if let Poll::Ready(event) = Pin::new(&mut news.news).poll(cx) {
                    return Poll::Ready(Ready::Child(place, event));
                }
            }
            Poll::Pending
        });
        match ended.await {
            Ready::Step(place, outcome) => {
                let outcome = outcome?;
                let (awaited, _) = self.open.remove(place);
                Ok(CallEvent::Ended(awaited, outcome))
            }
            Ready::Child(_, Err(error)) if error.code() == Code::Cancelled => Err(error),
            Ready::Child(place, event) => {
                let (working, news) = self.children.remove(place);
                Ok(CallEvent::Child(working, news, event))
            }
        }
    }
}

/// What the model is told of a call that the policy denies.
fn not_allowed(call: &ToolCall) -> String {
    format!("The policy of this agent does not allow this call of {}.", call.name)
}
