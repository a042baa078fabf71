//! The agent loop: one turn after another, from the start of a run or its last checkpoint to its end.

use super::compaction::Compacted;
use super::inbox;
use super::transcript::{LlmCall, OfferedTools, Transcript, entry_type, estimate};
use super::{
    AgentEvent, AgentInput, AgentTool, Delivery, Mode, ModelChoice, Phase, ReactAgent, ReactState, RunOutcome,
    StopReason, USER_MESSAGE, UserMessage,
};
use crate::message::{Message, Role};
use crate::tools::Effect;
use crate::tools::approval::{Approvals, Decision};
use flovyn_core::Payload;
use flovyn_core::context::{AgentContext, AgentContextExt, Message as NewMessage};
use flovyn_core::error::Result;
use flovyn_core::model::Usage;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A run that the agent executes.
pub(super) struct AgentRun<'a> {
    pub ctx: &'a dyn AgentContext,
    pub input: &'a AgentInput,
    pub tools: BTreeMap<String, AgentTool>,
    pub state: ReactState,
    agent: &'a ReactAgent,
    approvals: Vec<Approvals>,
}

/// How a turn ends.
pub(super) enum TurnEnd {
    /// Another turn follows.
    More,
    /// The model has finished, or a limit was reached.
    Stopped(StopReason, String),
}

impl<'a> AgentRun<'a> {
    pub(super) fn new(agent: &'a ReactAgent, ctx: &'a dyn AgentContext, input: &'a AgentInput) -> Result<Self> {
        let tools = agent.select_tools(input.tools.as_deref())?;
        let policies = std::iter::once(&agent.approvals).chain(&input.approvals);
        let approvals = policies.map(|policy| policy.compile()).collect::<Result<_>>()?;
        Ok(Self { ctx, input, tools, state: ctx.state()?, agent, approvals })
    }

    /// Runs turns until the run ends. Everything that is not in the state is read from the conversation.
    pub(super) async fn run_to_end(mut self) -> Result<RunOutcome> {
        if self.state.phase == Phase::New {
            self.begin().await?;
        }
        loop {
            if self.state.phase == Phase::WaitingForInput {
                self.wait_for_user().await?;
            }
            self.status("running", None);
            if let TurnEnd::Stopped(reason, text) = self.turn().await?
                && !self.follow_up().await?
            {
                match self.input.config.mode {
                    Mode::OneShot => return Ok(self.outcome(reason, text)),
                    Mode::Chat => self.state.phase = Phase::WaitingForInput,
                }
                let word = serde_json::to_value(reason).unwrap_or_default();
                self.status("waiting_for_input", word.as_str());
            }
            self.ctx.checkpoint(&self.state)?.await?;
        }
    }

    /// Records the system prompt, the tools and the first message.
    async fn begin(&mut self) -> Result<()> {
        self.state.begin(self.input);
        let prompt = self.input.system_prompt.as_ref().unwrap_or(&self.agent.system_prompt);
        if !prompt.is_empty() {
            self.append_message(&Message::system(prompt))?;
        }
        match self.input.config.mode {
            Mode::Chat => self.record_offered_tools_if_changed().await?,
            Mode::OneShot => self.record_tools(&self.offered())?,
        }
        let first = UserMessage {
            text: self.input.user_prompt.clone(),
            parts: self.input.user_parts.clone(),
            ..UserMessage::default()
        };
        let silent = first.text.is_empty() && first.parts.is_empty();
        if silent && self.input.config.mode == Mode::Chat {
            self.state.phase = Phase::WaitingForInput;
            return Ok(());
        }
        self.state.phase = Phase::Working;
        self.add_user_message(&first)
    }

    /// Records the tools that the model may call, unless they are the same as before. A chat that has waited for days may go on in
    /// a process with other tools. They are read in a recorded step, so that a replay after a crash sees the same tools.
    async fn record_offered_tools_if_changed(&mut self) -> Result<()> {
        let (offered, last_digest) = (self.offered(), self.state.offered.clone());
        let news = self.ctx.run("offered_tools", async move {
            let digest = format!("{:?}", Payload::of(&offered)?.digest()?);
            Ok((last_digest.as_ref() != Some(&digest)).then_some((digest, offered)))
        })?;
        let Some((digest, offered)) = news.await? else { return Ok(()) };
        match self.state.offered.replace(digest) {
            None => self.record_tools(&offered),
            Some(_) => self.record("system", entry_type::TOOLS, &offered),
        }
    }

    /// Records the tools of a run at its start.
    fn record_tools(&self, offered: &OfferedTools) -> Result<()> {
        if offered.tools.is_empty() {
            return Ok(());
        }
        self.record("system", entry_type::TOOLS, offered)
    }

    fn offered(&self) -> OfferedTools {
        OfferedTools { tools: self.tools.values().map(|tool| tool.spec.clone()).collect() }
    }

    /// Waits for a message of the user, however long that takes.
    async fn wait_for_user(&mut self) -> Result<()> {
        loop {
            let outcome = self.ctx.wait_raw(USER_MESSAGE, None)?.await?;
            self.record_offered_tools_if_changed().await?;
            // An interrupt has no effect while nothing runs.
            let goes_on = match outcome.payload() {
                Some(payload) => self.add_user_messages(&[UserMessage::read(payload)])?,
                None => true,
            };
            if goes_on {
                self.state.phase = Phase::Working;
                return Ok(());
            }
        }
    }

    /// Adds the messages that wait for the end of a turn; returns whether they need an answer.
    async fn follow_up(&mut self) -> Result<bool> {
        let mut messages = std::mem::take(&mut self.state.queue);
        messages.extend(self.drain(true).await?);
        self.add_user_messages(&messages)
    }

    /// Takes the messages for the next model call; those for the end of the turn are queued.
    pub(super) async fn steering(&mut self) -> Result<Vec<UserMessage>> {
        let waits = |message: &UserMessage| message.delivery == Delivery::NextTurn;
        let (queued, steering): (Vec<_>, Vec<_>) = self.drain(false).await?.into_iter().partition(waits);
        self.state.queue.extend(queued);
        Ok(steering)
    }

    async fn drain(&self, turn: bool) -> Result<Vec<UserMessage>> {
        let mut messages = Vec::new();
        for payload in self.ctx.drain_raw(USER_MESSAGE, turn)? {
            messages.push(UserMessage::read(&self.ctx.load(&payload).await?));
        }
        Ok(messages)
    }

    /// Adds messages of the user in their order; returns whether they need an answer.
    pub(super) fn add_user_messages(&mut self, messages: &[UserMessage]) -> Result<bool> {
        for message in messages {
            match message.is_interrupt() {
                true => self.state.choose(message),
                false => self.add_user_message(message)?,
            }
        }
        Ok(inbox::need_an_answer(messages))
    }

    /// Appends a message of the user to the conversation.
    fn add_user_message(&mut self, message: &UserMessage) -> Result<()> {
        self.state.add_user_message(message);
        self.append_message(&message.message())
    }

    /// Appends a message to the conversation.
    pub(super) fn append_message(&mut self, message: &Message) -> Result<()> {
        let role = match &message.role {
            Role::System => "system",
            Role::Assistant => "assistant",
            Role::Tool => "tool_result",
            Role::User | Role::Other(_) => "user",
        };
        self.state.context_tokens += estimate(message);
        self.record(role, entry_type::MESSAGE, message)
    }

    /// Appends an entry of the current turn.
    pub(super) fn record(&self, role: &str, entry_type: &str, content: &impl Serialize) -> Result<()> {
        let entry = NewMessage {
            role: role.to_owned(),
            content: Payload::of(content)?,
            entry_type: entry_type.to_owned(),
            turn_id: Some(self.state.turn.to_string()),
            metadata: None,
        };
        self.ctx.append_message(entry).map(drop)
    }

    /// Records the usage of a model call, in the conversation and in the totals.
    pub(super) fn record_call(&mut self, call: &LlmCall) -> Result<()> {
        self.record("assistant", entry_type::LLM_CALL, call)?;
        let usage = call.usage.as_ref().map_or_else(|| Usage { calls: 1, ..Usage::default() }, Usage::from);
        let model = call.model.to_string();
        self.state.usage.add(&model, &usage);
        self.ctx.record_usage(&model, usage)?;
        if self.state.ledger.runs_low(self.input.config.budget.as_ref()) {
            let ledger = self.state.ledger.clone();
            self.record("system", entry_type::BUDGET_LOW, &ledger)?;
            let (tokens, cost_micros, calls) = (ledger.tokens, ledger.cost_micros, ledger.calls);
            AgentEvent::BudgetLow { tokens, cost_micros, calls }.emit(self.ctx);
        }
        Ok(())
    }

    /// Records a compaction: its summary replaces what is before it.
    pub(super) fn compacted(&mut self, compacted: &Compacted, kept_tokens: u64) -> Result<()> {
        self.state.context_tokens = kept_tokens + estimate(&compacted.message());
        self.record("user", entry_type::COMPACTION, compacted)
    }

    /// The decision about a call: the strictest of all policies.
    pub(super) fn decide(&self, name: &str, effect: Effect, arguments: &Value) -> Decision {
        let words = self.approvals.iter().map(|approvals| approvals.decide(name, effect, arguments));
        words.max().unwrap_or(Decision::Ask)
    }

    /// The conversation so far.
    pub(super) async fn transcript(&self) -> Result<Transcript> {
        Transcript::of(&self.ctx.messages().await?)
    }

    /// Streams the status of the agent.
    pub(super) fn status(&self, status: &str, reason: Option<&str>) {
        AgentEvent::Status { status, turn: self.state.turn, reason }.emit(self.ctx);
    }

    /// The chosen model, then its fallbacks.
    pub(super) fn models(&self) -> Vec<ModelChoice> {
        let mut models = vec![self.state.model.clone()];
        models.extend(self.input.config.fallback.iter().filter(|model| **model != self.state.model).cloned());
        models
    }

    fn outcome(self, stop_reason: StopReason, text: String) -> RunOutcome {
        let ReactState { turn: turns, model, answered_by, usage, .. } = self.state;
        let model = answered_by.unwrap_or(model);
        RunOutcome { text, stop_reason, turns, model, usage }
    }
}
