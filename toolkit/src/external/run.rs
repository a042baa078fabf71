//! The run of an external agent: its session, one turn after another, messages of the user, and its end.

use super::agent::ExternalAgent;
use super::event::{Record, TurnEnd, TurnEndReason, TurnLog};
use super::protocol::SessionConfig;
use super::state::{ExternalState, TurnState};
use super::turns::{Act, ExternalTurns, LostPeer, Point, Pulled, Slot, SlotGuard, SlotOptions, TurnInput};
use crate::message::{ErrorKind, Message, ModelError, Origin};
use crate::react::{
    AgentEvent, AgentInput, AnswerEnd, Delivery, Mode, ModelChoice, RunOutcome, StopReason, USER_MESSAGE, UserMessage,
    entry_type,
};
use crate::tools::ToolEnvironment;
use crate::tools::WorkingDirectory;
use crate::tools::approval::Approvals;
use flovyn_core::Payload;
use flovyn_core::context::{AgentContext, AgentContextExt, Step, TaskCall};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::journal::Outcome;
use flovyn_core::model::TaskOptions;
use serde_json::{Value, json};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// How many processes in a row may die in one turn, or before one.
const MOST_DEATHS: u32 = 3;
/// The pause before the first restart; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// What a turn reserves of a budget. What it uses beyond is booked as the agent says it.
const RESERVE: u32 = 1_000;
/// After so many exchanges in one turn a checkpoint shortens what a restart replays.
const CHECKPOINT_AFTER: u32 = 200;

/// A run of an external agent.
pub(super) struct Run<'a> {
    pub ctx: &'a dyn AgentContext,
    pub agent: &'a ExternalAgent,
    pub input: AgentInput,
    pub state: ExternalState,
    pub approvals: Vec<Approvals>,
    guard: SlotGuard,
    /// Waits for the next message of the user while a turn runs.
    message: Option<Step>,
    exchanges: u32,
}

/// How the run goes on after a turn.
enum Next {
    Turn(Vec<UserMessage>),
    Stopped(StopReason, String),
}

impl<'a> Run<'a> {
    pub(super) fn new(agent: &'a ExternalAgent, ctx: &'a dyn AgentContext, input: AgentInput) -> Result<Self> {
        let working_dir = agent.directory_of(&input)?;
        let mut environment = match &agent.environment {
            Some(environment) => environment.clone(),
            None => ToolEnvironment::open(&working_dir)?,
        };
        environment.directory = WorkingDirectory::open(&working_dir)?;
        let run = ctx.agent_execution_id().to_string();
        let config = SessionConfig {
            working_dir,
            model: agent.model_of(&input),
            new_id: String::new(),
            environment,
            start_timeout: agent.start_timeout,
            env: agent.env.clone(),
        };
        let options = SlotOptions {
            variables: agent.variables.clone(),
            inactivity: agent.inactivity,
            abort_grace: agent.abort_grace,
        };
        let policies = std::iter::once(&agent.approvals).chain(&input.approvals);
        let approvals = policies.map(|policy| policy.compile()).collect::<Result<_>>()?;
        let guard = Slot::enter(ctx.activation(), run, agent.driver.clone(), config, options);
        Ok(Self { ctx, agent, input, state: ctx.state()?, approvals, guard, message: None, exchanges: 0 })
    }

    /// Runs turns until the run ends.
    pub(super) async fn finish(mut self) -> Result<RunOutcome> {
        match self.turns().await {
            // The agent gets time to stop, and what it has said is kept.
            Err(error) if error.code() == Code::Cancelled && self.ctx.check_cancellation()? => {
                self.message = None;
                if self.state.session.is_some() {
                    self.note();
                    let closed = self.act(Act::Close)?.await?;
                    let pulled = pulled(closed)?;
                    self.keep(&pulled)?;
                }
                self.close_open_calls("Stopped: the run was cancelled before this call had a result.")?;
                let text = self.state.turn.as_ref().map_or_else(String::new, |turn| turn.text.clone());
                Ok(self.outcome(StopReason::Interrupted, text))
            }
            ended => ended,
        }
    }

    async fn turns(&mut self) -> Result<RunOutcome> {
        let mut next = match (self.state.session.is_some(), self.state.turn.is_some()) {
            (false, _) => self.begin().await?,
            (true, _) => Vec::new(),
        };
        loop {
            if self.state.is_waiting {
                next = self.wait_for_user().await?;
            }
            let followed = match self.state.turn.is_none() && self.is_over_budget()? {
                // What the user has said is kept for whoever gives the run more.
                true => {
                    self.append_prompt(&std::mem::take(&mut next))?;
                    Next::Stopped(StopReason::Budget, String::new())
                }
                false => {
                    self.status("running");
                    let ended = self.turn(std::mem::take(&mut next)).await?;
                    self.follow_up(ended).await?
                }
            };
            match followed {
                Next::Turn(messages) => next = messages,
                Next::Stopped(reason, text) if self.input.config.mode == Mode::OneShot => {
                    return Ok(self.outcome(reason, text));
                }
                Next::Stopped(reason, _) => {
                    let end = AnswerEnd { stop_reason: reason, turns: 1, output: None };
                    self.record("system", entry_type::ANSWER_END, &end)?;
                    self.state.is_waiting = true;
                    self.status("waiting_for_input");
                }
            }
            if next.is_empty() {
                self.checkpoint().await?;
            }
        }
    }

    /// Opens the session, and takes the first message.
    async fn begin(&mut self) -> Result<Vec<UserMessage>> {
        let mut deaths = 0;
        loop {
            self.note();
            let opened = pulled(self.act(Act::Open)?.await?)?;
            if let Some(lost) = &opened.lost {
                deaths += 1;
                self.bear(lost, deaths).await?;
                continue;
            }
            self.state.session.clone_from(&opened.snapshot);
            break;
        }
        let first = UserMessage { text: self.input.user_prompt.clone(), ..UserMessage::default() };
        if !first.text.is_empty() {
            return Ok(vec![first]);
        }
        if self.input.config.mode == Mode::OneShot {
            let message =
                "the external agent was given no prompt; start the run with {\"userPrompt\": …}, or just a text";
            return Err(Error::new(Code::InvalidArgument, message));
        }
        self.state.is_waiting = true;
        Ok(Vec::new())
    }

    /// Tells the process how far the run has come.
    fn note(&self) {
        let heard = self.state.turn.as_ref().map(|turn| turn.heard.clone());
        let is_fresh = self.state.turns == 0 && heard.as_ref().is_none_or(TurnLog::is_silent);
        self.guard.slot().note(Point { snapshot: self.state.session.clone(), heard, is_fresh });
    }

    pub(super) fn act(&self, act: Act) -> Result<Step> {
        let reserve = if matches!(act, Act::Prompt { .. }) { RESERVE } else { 0 };
        let input = TurnInput { run: self.ctx.agent_execution_id().to_string(), act };
        self.ctx.schedule_raw(TaskCall {
            kind: ExternalTurns::KIND.to_owned(),
            input: Payload::of(&input)?,
            options: Some(TaskOptions { reserve, ..TaskOptions::default() }),
            queue: None,
            key: None,
        })
    }

    /// Runs a turn: a message, or the rest of one that a checkpoint has cut.
    async fn turn(&mut self, messages: Vec<UserMessage>) -> Result<TurnEnd> {
        let mut act = match messages.is_empty() {
            true => Act::Listen,
            false => {
                let text = self.append_prompt(&messages)?;
                self.state.turn = Some(TurnState { heard: TurnLog::of(text.clone()), ..TurnState::default() });
                Act::Prompt { text }
            }
        };
        loop {
            self.note();
            let mut listening = self.act(act)?;
            let outcome = loop {
                match self.next(&mut listening).await? {
                    Came::Step(outcome) => break outcome,
                    Came::Message(message) => self.on_message(message).await?,
                }
            };
            let pulled = pulled(outcome)?;
            let asked = self.keep(&pulled)?;
            if let Some(lost) = &pulled.lost {
                let deaths = self.turn_state().deaths + 1;
                self.turn_state().deaths = deaths;
                self.bear(lost, deaths).await?;
            }
            if let Some(end) = pulled.records.iter().find_map(|record| match record {
                Record::TurnEnd(end) => Some(end.clone()),
                _ => None,
            }) {
                self.message = None;
                self.close_open_calls("The agent ended its turn without a result of this call.")?;
                return Ok(end);
            }
            self.stop_over_budget().await?;
            self.interrupt_if_due().await?;
            act = match asked {
                Some(permission) => Act::Answer { id: permission.id.clone(), answer: self.decide(&permission).await? },
                None => Act::Listen,
            };
            self.exchanges += 1;
            if self.exchanges.is_multiple_of(CHECKPOINT_AFTER) && matches!(act, Act::Listen) {
                self.message = None;
                self.checkpoint().await?;
            }
        }
    }

    /// Waits for a step, or for a message of the user.
    pub(super) async fn next(&mut self, step: &mut Step) -> Result<Came> {
        if self.message.is_none() {
            self.message = Some(self.ctx.wait_raw(USER_MESSAGE, None)?);
        }
        let message = &mut self.message;
        let heard = poll_fn(|cx| {
            if let Poll::Ready(outcome) = Pin::new(&mut *step).poll(cx) {
                return Poll::Ready(outcome.map(Came::Step));
            }
            match message.as_mut().map(|message| Pin::new(message).poll(cx)) {
                Some(Poll::Ready(outcome)) => {
                    *message = None;
                    Poll::Ready(outcome.map(|outcome| {
                        Came::Message(outcome.payload().map_or_else(UserMessage::default, UserMessage::read))
                    }))
                }
                _ => Poll::Pending,
            }
        });
        heard.await
    }

    /// Handles a message of the user in the middle of a turn.
    pub(super) async fn on_message(&mut self, message: UserMessage) -> Result<()> {
        match message.delivery {
            Delivery::NextTurn => self.state.queue.push(message),
            Delivery::NextStep if self.agent.driver.steers() => {
                let text = self.append_prompt(&[message])?;
                self.turn_state().heard.sent.push(text.clone());
                self.note();
                self.act(Act::Steer { text })?.await?;
            }
            Delivery::NextStep => {
                self.turn_state().pending.push(message);
                self.interrupt_if_due().await?;
            }
            Delivery::Now => {
                let is_stop = message.is_interrupt();
                let turn = self.turn_state();
                turn.is_stopped = is_stop;
                if is_stop {
                    turn.pending.clear();
                } else {
                    turn.pending.push(message);
                }
                self.interrupt().await?;
            }
        }
        Ok(())
    }

    /// Ends the turn for messages that wait, once no tool call runs.
    async fn interrupt_if_due(&mut self) -> Result<()> {
        let turn = self.turn_state();
        match !turn.pending.is_empty() && !turn.heard.has_open_tools() {
            true => self.interrupt().await,
            false => Ok(()),
        }
    }

    pub(super) async fn interrupt(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.turn_state().is_interrupted, true) {
            self.act(Act::Interrupt)?.await?;
        }
        Ok(())
    }

    /// Ends a turn that has used up the budget.
    async fn stop_over_budget(&mut self) -> Result<()> {
        if !self.turn_state().is_over_budget && self.is_over_budget()? {
            self.turn_state().is_over_budget = true;
            self.interrupt().await?;
        }
        Ok(())
    }

    /// Whether nothing is left of the run's own budget, or of the engine's.
    fn is_over_budget(&self) -> Result<bool> {
        let left: Value = self.ctx.remaining_budget()?.parse()?;
        Ok(self.state.is_over(self.input.config.budget.as_ref()) || left["tokens"]["left"] == 0)
    }

    /// Lets the run go on after a process of the agent has died, a few times.
    async fn bear(&mut self, lost: &LostPeer, deaths: u32) -> Result<()> {
        let printed =
            lost.stderr.as_ref().map_or_else(String::new, |stderr| format!("; its standard error ends with\n{stderr}"));
        if !lost.is_final && deaths <= MOST_DEATHS {
            self.warn(&format!("{}; it is started again{printed}", lost.why))?;
            self.ctx.sleep(PAUSE * (1 << (deaths - 1)))?.await?;
            return Ok(());
        }
        let times = if deaths > 1 { format!(" ({deaths} processes in a row)") } else { String::new() };
        let kind = lost.error_type.as_deref().unwrap_or("ExternalAgentFailed");
        let message = format!("{}{times}{printed}", lost.why);
        Err(Error::new(Code::AgentFailed, message).with("error_type", kind))
    }

    /// Decides what comes after a turn.
    async fn follow_up(&mut self, end: TurnEnd) -> Result<Next> {
        let turn = self.state.turn.take().unwrap_or_default();
        self.state.turns += 1;
        self.tell_parent(&turn, &end).await?;
        let mut messages = turn.pending;
        messages.append(&mut self.state.queue);
        for payload in self.ctx.drain_raw(USER_MESSAGE, true)? {
            messages.push(UserMessage::read(&self.ctx.load(&payload).await?));
        }
        if turn.is_over_budget {
            return Ok(Next::Stopped(StopReason::Budget, turn.text));
        }
        if turn.is_stopped {
            // What was said before the stop is taken back, except what was to wait for the end of the turn.
            messages.retain(|message| message.delivery == Delivery::NextTurn);
        }
        messages.retain(|message| !message.is_interrupt());
        if !messages.is_empty() {
            return Ok(Next::Turn(messages));
        }
        let reason = match end.reason {
            TurnEndReason::End => StopReason::End,
            TurnEndReason::Length => StopReason::Length,
            TurnEndReason::MaxTurns => StopReason::MaxTurns,
            TurnEndReason::Refusal => StopReason::Refusal,
            TurnEndReason::Interrupted => StopReason::Interrupted,
            TurnEndReason::Error => {
                let why = end.message.unwrap_or_else(|| "it did not say why".to_owned());
                let message = format!("the external agent could not go on: {why}");
                if self.input.config.mode == Mode::OneShot {
                    return Err(Error::new(Code::AgentFailed, message).with("error_type", "ExternalAgentError"));
                }
                let failed = ModelError::new(ErrorKind::Unavailable, message.clone());
                self.append(&Message::failed(Origin::default(), failed))?;
                return Ok(Next::Stopped(StopReason::Error, message));
            }
        };
        Ok(Next::Stopped(reason, turn.text))
    }

    /// Tells the run that has started this one how a turn ended.
    async fn tell_parent(&mut self, turn: &TurnState, end: &TurnEnd) -> Result<()> {
        if self.state.has_parent == Some(false) {
            return Ok(());
        }
        let news = json!({
            "turn": self.state.turns,
            "text": turn.text,
            "stopReason": end.reason,
            "session": self.state.session,
            "usage": self.state.usage,
        });
        let sent = match self.ctx.signal_parent("turn", &news)?.await {
            Ok(()) => true,
            Err(error) if matches!(error.code(), Code::NoParent | Code::ExecutionClosed) => false,
            Err(error) => return Err(error),
        };
        self.state.has_parent = Some(sent);
        Ok(())
    }

    /// Waits for a message of the user, however long that takes.
    async fn wait_for_user(&mut self) -> Result<Vec<UserMessage>> {
        loop {
            let outcome = self.ctx.wait_raw(USER_MESSAGE, None)?.await?;
            let message = outcome.payload().map_or_else(UserMessage::default, UserMessage::read);
            if message.compact.is_some() {
                self.warn("An external agent cannot be asked for a summary of its conversation.")?;
                self.status("waiting_for_input");
            } else if !message.is_interrupt() {
                self.state.is_waiting = false;
                return Ok(vec![message]);
            }
        }
    }

    async fn checkpoint(&mut self) -> Result<()> {
        self.message = None;
        self.ctx.checkpoint(&self.state)?.await?;
        Ok(())
    }

    /// The turn that runs.
    pub(super) fn turn_state(&mut self) -> &mut TurnState {
        self.state.turn.get_or_insert_with(TurnState::default)
    }

    /// Streams the status of the run.
    pub(super) fn status(&self, status: &str) {
        AgentEvent::Status { status, turn: self.state.turns, reason: None }.emit(self.ctx);
    }

    fn outcome(&self, stop_reason: StopReason, text: String) -> RunOutcome {
        let model = self.state.model.as_deref().map_or_else(
            || self.agent.model_of(&self.input).map_or_else(ModelChoice::default, |model| ModelChoice::parse(&model)),
            ModelChoice::parse,
        );
        RunOutcome { text, stop_reason, turns: self.state.turns, model, usage: self.state.usage.clone(), output: None }
    }
}

/// What came first.
pub(super) enum Came {
    Step(Outcome),
    Message(UserMessage),
}

/// The result of an exchange.
fn pulled(outcome: Outcome) -> Result<Pulled> {
    match outcome {
        Outcome::Value(payload) => payload.parse(),
        Outcome::Failed(failure) => {
            let message = format!("an exchange with the external agent failed: {}", failure.message);
            Err(Error::new(Code::AgentFailed, message).with("error_type", failure.error_type))
        }
        Outcome::Cancelled => Err(Error::new(Code::Cancelled, "the run was asked to stop")),
        other => Err(Error::new(Code::Internal, format!("an exchange with an external agent ended with {other:?}"))),
    }
}
