//! The tool calls of one answer: side by side as durable tasks, each answered exactly once in the conversation.
//!
//! A call that a policy denies, or whose arguments are wrong, is answered at once; one that needs a person, before it runs or
//! because its MCP server asks in the middle, waits while the others run. When the user speaks, what runs is waited for and what does not is skipped. When the run is asked to stop,
//! every call that has no result yet gets one that says so.

use super::approving::{Asking, Decided};
use super::events::{AgentEvent, ToolCallEnd, ToolCallRef, ToolCallStart, artifact_type};
use super::offer::{self, CallScene};
use super::questioning::{Questions, going_on};
use super::run::Run;
use super::{Delivery, USER_MESSAGE, UserMessage};
use crate::mcp::InputGiven;
use crate::message::{Message, ToolCall};
use crate::tools::approval::Decision;
use crate::tools::{Effect, ToolOutcome};
use flovyn_core::context::Step;
use flovyn_core::error::{Code, Result};
use flovyn_core::journal::Outcome;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// What the model is told of calls that a message of the user came before.
const SKIPPED: &str = "Skipped: the user sent a new message.";
/// What it is told of calls that the user did not let begin.
const ENDED: &str = "Skipped: the user stopped the agent.";
/// What it is told of calls that a server's question stopped.
const UNANSWERED: &str = "Not gone on with: the MCP server asked the user something, and they did not answer it.";
/// What it is told of calls without a result in a run that was asked to stop.
const STOPPED: &str = "Stopped: the run was cancelled before this call had a result.";

/// How it goes on after the calls of an answer.
#[derive(PartialEq, Eq)]
pub(super) enum RoundEnd {
    /// The model is told what they gave.
    Answered,
    /// The user wants nothing more now.
    Interrupted,
}

/// The calls of one answer.
#[derive(Default)]
struct Round {
    ready: VecDeque<Ready>,
    asking: Asking,
    questions: Questions,
    open: Vec<(Awaited, Step)>,
    heard: Vec<UserMessage>,
}

/// A call that may run, or go on with what its server asked for.
struct Ready {
    call: ToolCall,
    given: Option<InputGiven>,
}

/// What is waited for.
#[derive(PartialEq)]
enum Awaited {
    Tool(ToolCall),
    Approval,
    Answer,
    Message,
}

impl Run<'_> {
    /// Runs the calls and answers each.
    pub async fn run_calls(&mut self, calls: Vec<ToolCall>) -> Result<RoundEnd> {
        let mut round = Round::default();
        let ended = self.play(&mut round, calls).await;
        if let Err(error) = &ended
            && error.code() == Code::Cancelled
        {
            self.stop(&mut round)?;
        }
        ended?;
        let heard = std::mem::take(&mut round.heard);
        let goes_on = self.attend(&heard)? || heard.is_empty();
        Ok(if goes_on { RoundEnd::Answered } else { RoundEnd::Interrupted })
    }

    async fn play(&mut self, round: &mut Round, calls: Vec<ToolCall>) -> Result<()> {
        for call in calls {
            self.admit(round, call)?;
        }
        loop {
            self.start_ready(round).await?;
            self.wait_for_people(round)?;
            if round.open.is_empty() {
                return Ok(());
            }
            let (awaited, outcome) = round.next().await?;
            match awaited {
                Awaited::Tool(call) => self.ended(round, call, &outcome)?,
                Awaited::Approval => self.decided(round, &outcome)?,
                Awaited::Answer => self.told(round, &outcome)?,
                Awaited::Message => self.spoken(round, &outcome)?,
            }
        }
    }

    /// Decides what becomes of a call.
    fn admit(&mut self, round: &mut Round, call: ToolCall) -> Result<()> {
        let Some(tool) = self.tools.get(&call.name) else {
            let names = self.tools.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let told = format!("There is no tool {:?}. There are: {names}.", call.name);
            return self.answer(&call, ToolOutcome::error("unknown_tool", told));
        };
        if let Some(faults) = tool.faults(&call.arguments) {
            return self.answer(&call, ToolOutcome::error("invalid_arguments", faults));
        }
        let effect = tool.effect;
        match self.decide(&call.name, effect, &call.arguments) {
            Decision::Allow => round.ready.push_back(Ready { call, given: None }),
            Decision::Ask => round.asking.ask(self, call, effect)?,
            Decision::Deny => {
                let told = format!("The policy of this agent does not allow this call of {}.", call.name);
                self.answer(&call, ToolOutcome::error("denied", told))?;
            }
        }
        Ok(())
    }

    /// Starts what may start, unless the user has spoken: then it is skipped.
    async fn start_ready(&mut self, round: &mut Round) -> Result<()> {
        let most = self.input.config.parallel_tools.max(1);
        if round.ready.is_empty() || round.running() >= most {
            return Ok(());
        }
        let heard = self.steering().await?;
        round.heard.extend(heard);
        if !round.heard.is_empty() {
            return self.skip(round);
        }
        let free = (most - round.running()).min(round.ready.len());
        let starting: Vec<_> = round.ready.drain(..free).collect();
        // What an agent streams goes with its last op; with a task's it would be taken for a lost attempt's.
        for Ready { call: ToolCall { id, name, arguments, .. }, .. } in
            starting.iter().filter(|ready| ready.given.is_none())
        {
            AgentEvent::ToolCallStart { tool_call: ToolCallStart { id, name, arguments } }.tell(self.ctx);
        }
        for Ready { call, given } in starting {
            let step = self.schedule(&call, given.as_ref())?;
            round.open.push((Awaited::Tool(call), step));
        }
        Ok(())
    }

    fn schedule(&self, call: &ToolCall, given: Option<&InputGiven>) -> Result<Step> {
        if let Some(given) = given {
            return self.ctx.schedule_raw(going_on(call, given)?);
        }
        let scene = CallScene {
            working_directory: self.input.working_directory.as_deref(),
            session: self.ctx.agent_execution_id().to_string(),
            seen: &self.state.seen,
        };
        self.ctx.schedule_raw(self.tools[&call.name].call(&call.id, &call.arguments, &scene)?)
    }

    /// Waits for answers, and for the user, as long as somebody is asked.
    fn wait_for_people(&self, round: &mut Round) -> Result<()> {
        let (approvals, answers) = (!round.asking.is_empty(), !round.questions.is_empty());
        round.open.retain(|(awaited, _)| match awaited {
            Awaited::Tool(_) => true,
            Awaited::Approval => approvals,
            Awaited::Answer => answers,
            Awaited::Message => approvals || answers,
        });
        if approvals && !round.awaits(&Awaited::Approval) {
            round.open.push((Awaited::Approval, Asking::wait(self.ctx)?));
            self.status("waiting_for_approval", None);
        }
        if answers && !round.awaits(&Awaited::Answer) {
            round.open.push((Awaited::Answer, Questions::wait(self.ctx)?));
            self.status("waiting_for_answer", None);
        }
        if (approvals || answers) && !round.awaits(&Awaited::Message) {
            round.open.push((Awaited::Message, self.ctx.wait_raw(USER_MESSAGE, None)?));
        }
        Ok(())
    }

    fn decided(&mut self, round: &mut Round, outcome: &Outcome) -> Result<()> {
        let Some(payload) = outcome.payload() else { return Ok(()) };
        match round.asking.answered(self, payload)? {
            Decided::Approved(call) => round.ready.push_back(Ready { call, given: None }),
            Decided::Denied(call, told) => self.answer(&call, ToolOutcome::error("denied", told))?,
            Decided::Nothing => {}
        }
        Ok(())
    }

    fn told(&mut self, round: &mut Round, outcome: &Outcome) -> Result<()> {
        let Some(payload) = outcome.payload() else { return Ok(()) };
        if let Some((call, given)) = round.questions.answered(self, payload)? {
            round.ready.push_back(Ready { call, given: Some(given) });
        }
        Ok(())
    }

    fn spoken(&mut self, round: &mut Round, outcome: &Outcome) -> Result<()> {
        let Some(message) = outcome.payload().map(UserMessage::read) else { return Ok(()) };
        if message.delivery == Delivery::NextTurn {
            self.state.queue.push(message);
            return Ok(());
        }
        round.heard.push(message);
        self.skip(round)
    }

    fn skip(&mut self, round: &mut Round) -> Result<()> {
        let told = match round.heard.last().is_some_and(UserMessage::is_interrupt) {
            true => ENDED,
            false => SKIPPED,
        };
        let asked = round.questions.take();
        asked.iter().try_for_each(|call| self.answer(call, ToolOutcome::error("skipped", UNANSWERED)))?;
        round.unanswered().iter().try_for_each(|call| self.answer(call, ToolOutcome::error("skipped", told)))
    }

    fn stop(&mut self, round: &mut Round) -> Result<()> {
        let open = std::mem::take(&mut round.open).into_iter().filter_map(|(awaited, _)| match awaited {
            Awaited::Tool(call) => Some(call),
            Awaited::Approval | Awaited::Answer | Awaited::Message => None,
        });
        let calls = open.chain(round.unanswered()).collect::<Vec<_>>();
        calls.iter().try_for_each(|call| self.answer(call, ToolOutcome::error("cancelled", STOPPED)))
    }

    /// Takes the end of a task: the call has its result, or its server asks before it goes on.
    fn ended(&mut self, round: &mut Round, call: ToolCall, outcome: &Outcome) -> Result<()> {
        let outcome = match outcome {
            Outcome::Value(output) => self.tools[&call.name].outcome(output)?,
            Outcome::Failed(failure) => offer::failed(failure),
            other => ToolOutcome::error("task_failed", format!("The task ended with {other:?}.")),
        };
        if let Some(required) = self.tools[&call.name].asks(&outcome) {
            return round.questions.ask(self, call, required);
        }
        self.state.seen.note(&outcome);
        let wrote = !outcome.is_error && self.tools[&call.name].effect == Effect::Write;
        let path = outcome.details.get("path").or_else(|| call.arguments.get("path"));
        let path = path.and_then(|path| path.as_str()).filter(|_| wrote).map(str::to_owned);
        self.answer(&call, outcome)?;
        if let Some(path) = &path {
            AgentEvent::Artifact { path, action: &call.name, artifact_type: artifact_type(path) }.tell(self.ctx);
        }
        Ok(())
    }

    /// Makes an outcome the call's one result in the conversation.
    fn answer(&mut self, call: &ToolCall, outcome: ToolOutcome) -> Result<()> {
        let result = outcome.into_result(&call.id, &call.name);
        let (content, is_error) = (offer::shown(&result), result.is_error);
        self.say(&Message::tool([result]))?;
        let tool_call = ToolCallRef { id: &call.id, name: &call.name };
        AgentEvent::ToolCallEnd { tool_call, result: ToolCallEnd { content: &content, is_error } }.tell(self.ctx);
        Ok(())
    }
}

impl Round {
    fn running(&self) -> usize {
        self.open.iter().filter(|(awaited, _)| matches!(awaited, Awaited::Tool(_))).count()
    }

    fn awaits(&self, wanted: &Awaited) -> bool {
        self.open.iter().any(|(awaited, _)| awaited == wanted)
    }

    /// The calls that do not run and have no result; nobody is asked about them any more.
    fn unanswered(&mut self) -> Vec<ToolCall> {
        let ready = self.ready.drain(..).map(|ready| ready.call);
        ready.chain(self.asking.take()).chain(self.questions.take()).collect()
    }

    /// The next to end. What ended with an error stays among the open ones, so that its call is still known.
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
