//! A run from its beginning, or its last checkpoint, to its end: one turn after another.

use super::compaction::Compacted;
use super::inbox;
use super::transcript::{LlmCall, Offered, Transcript, entry_type, estimate};
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

/// A run in the hands of the agent.
pub(super) struct Run<'a> {
    pub ctx: &'a dyn AgentContext,
    pub input: &'a AgentInput,
    pub tools: BTreeMap<String, AgentTool>,
    pub state: ReactState,
    agent: &'a ReactAgent,
    approvals: Vec<Approvals>,
}

/// What a turn ends with.
pub(super) enum TurnEnd {
    /// The model goes on.
    More,
    /// It has said what it had to say, or may say no more.
    Stopped(StopReason, String),
}

impl<'a> Run<'a> {
    pub fn new(agent: &'a ReactAgent, ctx: &'a dyn AgentContext, input: &'a AgentInput) -> Result<Self> {
        let tools = agent.offered(input.tools.as_deref())?;
        let policies = std::iter::once(&agent.approvals).chain(&input.approvals);
        let approvals = policies.map(|policy| policy.compile()).collect::<Result<_>>()?;
        Ok(Self { ctx, input, tools, state: ctx.state()?, agent, approvals })
    }

    /// Goes on until the run ends. All that is not in the state is read from the conversation.
    pub async fn drive(mut self) -> Result<RunOutcome> {
        if self.state.phase == Phase::New {
            self.begin().await?;
        }
        loop {
            if self.state.phase == Phase::WaitingForInput {
                self.listen().await?;
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

    /// Writes down how to behave, what may be called and what is asked.
    async fn begin(&mut self) -> Result<()> {
        self.state.begin(self.input);
        let prompt = self.input.system_prompt.as_ref().unwrap_or(&self.agent.system_prompt);
        if !prompt.is_empty() {
            self.say(&Message::system(prompt))?;
        }
        match self.input.config.mode {
            Mode::Chat => self.offer().await?,
            Mode::OneShot => self.tell_tools(&self.offered())?,
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
        self.hear(&first)
    }

    /// Tells the model what it may call, unless it was told the same last. A chat that waited for days may go on in a process with
    /// other tools; which they were is recorded, so that one that goes on after a crash says the same of this moment.
    async fn offer(&mut self) -> Result<()> {
        let (offered, told) = (self.offered(), self.state.offered.clone());
        let news = self.ctx.run("offered_tools", async move {
            let digest = format!("{:?}", Payload::of(&offered)?.digest()?);
            Ok((told.as_ref() != Some(&digest)).then_some((digest, offered)))
        })?;
        let Some((digest, offered)) = news.await? else { return Ok(()) };
        match self.state.offered.replace(digest) {
            None => self.tell_tools(&offered),
            Some(_) => self.record("system", entry_type::TOOLS, &offered),
        }
    }

    /// Writes down what the model may call from its first word on.
    fn tell_tools(&self, offered: &Offered) -> Result<()> {
        if offered.tools.is_empty() {
            return Ok(());
        }
        self.record("system", entry_type::TOOLS, offered)
    }

    fn offered(&self) -> Offered {
        Offered { tools: self.tools.values().map(|tool| tool.spec.clone()).collect() }
    }

    /// Waits for the user, however long.
    async fn listen(&mut self) -> Result<()> {
        loop {
            let outcome = self.ctx.wait_raw(USER_MESSAGE, None)?.await?;
            self.offer().await?;
            // Where nothing is at work, an interrupt ends nothing.
            let goes_on = match outcome.payload() {
                Some(payload) => self.attend(&[UserMessage::read(payload)])?,
                None => true,
            };
            if goes_on {
                self.state.phase = Phase::Working;
                return Ok(());
            }
        }
    }

    /// Takes what waits until the model has nothing left to do; tells whether there was anything.
    async fn follow_up(&mut self) -> Result<bool> {
        let mut messages = std::mem::take(&mut self.state.queue);
        messages.extend(self.drain(true).await?);
        self.attend(&messages)
    }

    /// Takes what is to be heard before the next model call; what is to wait is put into the queue.
    pub async fn steering(&mut self) -> Result<Vec<UserMessage>> {
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

    /// Takes messages of the user in their order; tells whether they leave the model something to answer.
    pub fn attend(&mut self, messages: &[UserMessage]) -> Result<bool> {
        for message in messages {
            match message.is_interrupt() {
                true => self.state.choose(message),
                false => self.hear(message)?,
            }
        }
        Ok(inbox::want_an_answer(messages))
    }

    /// Makes a message of the user a part of the conversation.
    fn hear(&mut self, message: &UserMessage) -> Result<()> {
        self.state.hear(message);
        self.say(&message.message())
    }

    /// Makes a message a part of the conversation.
    pub fn say(&mut self, message: &Message) -> Result<()> {
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
    pub fn record(&self, role: &str, entry_type: &str, content: &impl Serialize) -> Result<()> {
        let entry = NewMessage {
            role: role.to_owned(),
            content: Payload::of(content)?,
            entry_type: entry_type.to_owned(),
            turn_id: Some(self.state.turn.to_string()),
            metadata: None,
        };
        self.ctx.append_message(entry).map(drop)
    }

    /// Records what a model call cost, in the conversation and in the accounts.
    pub fn account(&mut self, call: &LlmCall) -> Result<()> {
        self.record("assistant", entry_type::LLM_CALL, call)?;
        let usage = call.usage.as_ref().map_or_else(|| Usage { calls: 1, ..Usage::default() }, Usage::from);
        let model = call.model.to_string();
        self.state.usage.add(&model, &usage);
        self.ctx.record_usage(&model, usage)?;
        if self.state.ledger.runs_low(self.input.config.budget.as_ref()) {
            let ledger = self.state.ledger.clone();
            self.record("system", entry_type::BUDGET_LOW, &ledger)?;
            let (tokens, cost_micros, calls) = (ledger.tokens, ledger.cost_micros, ledger.calls);
            AgentEvent::BudgetLow { tokens, cost_micros, calls }.tell(self.ctx);
        }
        Ok(())
    }

    /// Hides what a summary stands for.
    pub fn compacted(&mut self, compacted: &Compacted, kept_tokens: u64) -> Result<()> {
        self.state.context_tokens = kept_tokens + estimate(&compacted.message());
        self.record("user", entry_type::COMPACTION, compacted)
    }

    /// What happens to a call: of all policies the strictest word.
    pub fn decide(&self, name: &str, effect: Effect, arguments: &Value) -> Decision {
        let words = self.approvals.iter().map(|approvals| approvals.decide(name, effect, arguments));
        words.max().unwrap_or(Decision::Ask)
    }

    /// The conversation as it stands.
    pub async fn transcript(&self) -> Result<Transcript> {
        Transcript::of(&self.ctx.messages().await?)
    }

    /// Tells those who look on what the agent does.
    pub fn status(&self, status: &str, reason: Option<&str>) {
        AgentEvent::Status { status, turn: self.state.turn, reason }.tell(self.ctx);
    }

    /// The model that is asked, then those that stand in for it.
    pub fn models(&self) -> Vec<ModelChoice> {
        let mut models = vec![self.state.model.clone()];
        models.extend(self.input.config.fallback.iter().filter(|model| **model != self.state.model).cloned());
        models
    }

    fn outcome(self, stop_reason: StopReason, text: String) -> RunOutcome {
        let ReactState { turn: turns, model, usage, .. } = self.state;
        RunOutcome { text, stop_reason, turns, model, usage }
    }
}
