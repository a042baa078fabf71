//! The agent loop: one turn after another, from the start of a run or its last checkpoint to its end.

use super::agent_tool::{accept_part, checked_part};
use super::compaction::Compacted;
use super::output::Output;
use super::questions::answer_spec;
use super::tool_calls::result_message;
use super::transcript::{AgentBegin, LlmCall, OfferedTools, Transcript, entry_type, estimate};
use super::{
    AgentEvent, AgentInput, AgentTool, AnswerEnd, Delivery, Mode, ModelChoice, OutputSpec, Phase, ReactAgent,
    ReactState, RunOutcome, StopReason, USER_MESSAGE, UserMessage,
};
use super::{inbox, results};
use crate::message::{Message, Part, Role};
use crate::provider::ToolSpec;
use crate::tools::approval::{ApprovalPolicy, Approvals, Decision, Otherwise};
use crate::tools::{Effect, ToolOutcome};
use flovyn_core::Payload;
use flovyn_core::context::{AgentContext, AgentContextExt, Message as NewMessage};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{SharedContext, Usage};
use serde::{Deserialize, Serialize};
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
    /// The calls that run with other arguments than the model's, by their ids.
    pub(super) changed: BTreeMap<String, Value>,
    /// Whether the tools were recorded since the last checkpoint.
    has_recorded_tools: bool,
}

/// The result of calls of another agent, in the conversation of one that it has started meanwhile.
const ELSEWHERE: &str = "[Still running: the other agent gets the result.]";

/// What a run takes from the process that it begins in.
#[derive(Serialize, Deserialize)]
struct Beginning {
    /// What MCP servers say about the use of their tools.
    instructions: String,
    offered: OfferedTools,
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
        for form in input.output.iter().chain(&input.config.output) {
            accept_form(form, &tools)?;
        }
        let policies = std::iter::once(&agent.approvals).chain(&input.approvals);
        let approvals = policies.map(|policy| policy.compile()).collect::<Result<_>>()?;
        Ok(Self {
            ctx,
            input,
            tools,
            state: ctx.state()?,
            agent,
            approvals,
            changed: BTreeMap::new(),
            has_recorded_tools: false,
        })
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
                    Mode::Chat => {
                        let (turns, output) = (self.state.since_user, self.state.output.clone());
                        let end = AnswerEnd { stop_reason: reason, turns, output };
                        self.record("system", entry_type::ANSWER_END, &end)?;
                        self.state.phase = Phase::WaitingForInput;
                    }
                }
                let word = serde_json::to_value(reason).unwrap_or_default();
                self.status("waiting_for_input", word.as_str());
            }
            self.ctx.checkpoint(&self.state)?.await?;
            self.has_recorded_tools = false;
        }
    }

    /// Records the system prompt, the tools and the first message.
    async fn begin(&mut self) -> Result<()> {
        self.state.begin(self.input);
        let goes_on = self.go_on().await?;
        let mut prompt = self.input.system_prompt.as_ref().unwrap_or(&self.agent.system_prompt).clone();
        let Beginning { instructions, offered } = self.beginning().await?;
        prompt.push_str(&instructions);
        let prompt = prompt.trim_start();
        if !prompt.is_empty() {
            self.append_message(&Message::system(prompt))?;
        }
        self.state.offered = Some(offered.digest()?);
        self.record_tools(&offered)?;
        let first = UserMessage {
            text: self.input.user_prompt.clone(),
            parts: accepted(&self.input.user_parts)?,
            limits: self.input.limits,
            output: self.input.output.clone(),
            ..UserMessage::default()
        };
        let silent = first.text.is_empty() && first.parts.is_empty();
        if silent && goes_on {
            self.state.phase = Phase::Working;
            return Ok(());
        }
        if silent && self.input.config.mode == Mode::Chat {
            self.state.phase = Phase::WaitingForInput;
            return Ok(());
        }
        self.state.phase = Phase::Working;
        self.state.add_user_message(&first);
        self.append_message(&first.message())
    }

    /// Goes on with the conversation of the run that has started this one, if it was given one. Calls that still run there get
    /// results here: no model takes a conversation without them.
    async fn go_on(&mut self) -> Result<bool> {
        if !matches!(self.ctx.shared_context(), Some(SharedContext::ReadOnly(_) | SharedContext::Conversation(_))) {
            return Ok(false);
        }
        let transcript = self.transcript().await?;
        let kind = self.agent_kind().to_owned();
        self.record("system", entry_type::AGENT_BEGIN, &AgentBegin { kind })?;
        self.state.context_tokens = transcript.estimate();
        for call in transcript.open_calls() {
            self.append_message(&result_message(&call, ToolOutcome::text(ELSEWHERE)))?;
        }
        Ok(!transcript.items().is_empty())
    }

    /// What the run takes from the process that it begins in. It is read in a recorded step, in every run: after a crash
    /// the run may be in a process with other tools, or with servers that say something else or cannot be used.
    async fn beginning(&mut self) -> Result<Beginning> {
        let (agent, input, tools) = (self.agent.clone(), self.input.tools.clone(), self.tools.clone());
        let beginning = self.ctx.run("beginning", async move {
            let tools = agent.settled_tools(input.as_deref(), tools).await;
            Ok(Beginning { instructions: agent.instructions(&tools), offered: offered(&tools, &[]) })
        })?;
        let beginning = beginning.await?;
        self.take_live_tools();
        Ok(beginning)
    }

    /// Records the tools that the model may call at the start of a turn, where they may have changed since the last one.
    pub(super) async fn follow_tools(&mut self) -> Result<()> {
        match self.agent.live.is_some() && !self.has_recorded_tools {
            true => self.record_offered_tools_if_changed().await,
            false => Ok(()),
        }
    }

    /// Records the tools that the model may call, unless they are the same as before. A chat that has waited for days may go on in
    /// a process with other tools. They are read in a recorded step, so that a replay after a crash sees the same tools.
    pub(super) async fn record_offered_tools_if_changed(&mut self) -> Result<()> {
        let (agent, names, last_digest) = (self.agent.clone(), self.input.tools.clone(), self.state.offered.clone());
        let (tools, results_kept, was_asked) = (self.tools.clone(), self.state.results_kept, self.state.was_asked);
        let news = self.ctx.run("offered_tools", async move {
            let tools = agent.settled_tools(names.as_deref(), tools).await;
            let own = [results_kept.then(results::spec), was_asked.then(answer_spec)];
            let own: Vec<_> = own.into_iter().flatten().filter(|own| !tools.contains_key(&own.name)).collect();
            let offered = offered(&tools, &own);
            let digest = offered.digest()?;
            Ok((last_digest.as_ref() != Some(&digest)).then_some((digest, offered)))
        })?;
        let news = news.await?;
        self.take_live_tools();
        let Some((digest, offered)) = news else { return Ok(()) };
        match self.state.offered.replace(digest) {
            None => self.record_tools(&offered),
            Some(_) => self.record("system", entry_type::TOOLS, &offered),
        }
    }

    /// Takes the tools that the agent has now, where they may change.
    fn take_live_tools(&mut self) {
        self.has_recorded_tools = true;
        if self.agent.live.is_some()
            && let Ok(tools) = self.agent.select_tools(self.input.tools.as_deref())
        {
            self.tools = tools;
        }
    }

    /// Records the tools of a run at its start.
    fn record_tools(&self, offered: &OfferedTools) -> Result<()> {
        if offered.tools.is_empty() {
            return Ok(());
        }
        self.record("system", entry_type::TOOLS, offered)
    }

    /// Whether the model may read the rest of long results. A tool of the user's with the same name hides the agent's.
    pub(super) fn reads_results(&self) -> bool {
        self.state.results_kept && !self.tools.contains_key(results::NAME)
    }

    /// Keeps the whole text of a long result. Returns whether the store has taken it.
    pub(super) fn keep_result(&mut self, call_id: &str, text: Payload) -> Result<bool> {
        let entry = NewMessage {
            role: "tool_result".to_owned(),
            content: text,
            entry_type: entry_type::TOOL_OUTPUT.to_owned(),
            turn_id: Some(self.state.turn.to_string()),
            metadata: None,
        };
        match self.ctx.thread(&results::thread_of(call_id)).append_message(entry) {
            Ok(_) => self.state.results_kept = true,
            // The store was opened with a lower limit for the size of a value.
            Err(error) if error.code() == Code::PayloadTooLarge => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(self.reads_results())
    }

    /// The whole text of an earlier result; none if it was not too long.
    pub(super) async fn kept_result(&self, call_id: &str) -> Result<Option<String>> {
        let entries = self.ctx.thread(&results::thread_of(call_id)).messages().await?;
        let kept = entries.last().filter(|last| last.new.entry_type == entry_type::TOOL_OUTPUT);
        kept.map(|kept| kept.new.content.parse()).transpose()
    }

    /// Waits for a message of the user, however long that takes.
    async fn wait_for_user(&mut self) -> Result<()> {
        loop {
            let outcome = self.ctx.wait_raw(USER_MESSAGE, None)?.await?;
            self.record_offered_tools_if_changed().await?;
            // An interrupt has no effect while nothing runs.
            let goes_on = match outcome.payload().map(UserMessage::read) {
                Some(UserMessage { compact: Some(focus), .. }) => {
                    self.compact_all(&focus).await?;
                    self.status("waiting_for_input", None);
                    false
                }
                Some(message) => self.add_user_messages(&[message])?,
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
                false if message.compact.is_some() => {}
                false => self.add_user_message(message)?,
            }
        }
        Ok(inbox::need_an_answer(messages))
    }

    /// Appends a message of the user to the conversation.
    fn add_user_message(&mut self, message: &UserMessage) -> Result<()> {
        self.state.add_user_message(message);
        let mut said = message.message();
        // A form that cannot be used is no reason to lose the message.
        if let Some(Err(error)) = message.output.as_ref().map(|form| accept_form(form, &self.tools)) {
            self.state.output_form = None;
            said.parts.push(Part::text(format!("[The form of the answer was left out: {}.]", error.message())));
        }
        said.parts = said.parts.into_iter().map(checked_part).collect();
        self.append_message(&said)
    }

    /// Appends a message to the conversation.
    pub(super) fn append_message(&mut self, message: &Message) -> Result<()> {
        self.state.context_tokens += estimate(message);
        self.ctx.append_message(self.entry_of(message)?).map(drop)
    }

    /// Appends an entry of the current turn.
    pub(super) fn record(&self, role: &str, entry_type: &str, content: &impl Serialize) -> Result<()> {
        self.ctx.append_message(self.entry(role, entry_type, content)?).map(drop)
    }

    fn entry(&self, role: &str, entry_type: &str, content: &impl Serialize) -> Result<NewMessage> {
        let (role, entry_type) = (role.to_owned(), entry_type.to_owned());
        let turn_id = Some(self.state.turn.to_string());
        Ok(NewMessage { role, content: Payload::of(content)?, entry_type, turn_id, metadata: None })
    }

    /// A message as an entry of the current turn.
    pub(super) fn entry_of(&self, message: &Message) -> Result<NewMessage> {
        let role = match &message.role {
            Role::System => "system",
            Role::Assistant => "assistant",
            Role::Tool => "tool_result",
            Role::User | Role::Other(_) => "user",
        };
        self.entry(role, entry_type::MESSAGE, message)
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

    /// The decision about a call: the strictest of all policies, and no question about what a person has allowed for this run.
    pub(super) fn decide(&self, name: &str, effect: Effect, arguments: &Value) -> Decision {
        let words = self.approvals.iter().map(|approvals| approvals.decide(name, effect, arguments));
        let decision = words.max().unwrap_or(Decision::Ask);
        let is_allowed = || {
            // Nothing but what a rule says is allowed by these.
            let otherwise = Otherwise { read: Decision::Ask, write: Decision::Ask, exec: Decision::Ask };
            let rules = ApprovalPolicy { rules: self.state.allowed.clone(), otherwise };
            rules.compile().is_ok_and(|rules| rules.decide(name, effect, arguments) == Decision::Allow)
        };
        match decision == Decision::Ask && !self.state.allowed.is_empty() && is_allowed() {
            true => Decision::Allow,
            false => decision,
        }
    }

    /// The conversation so far.
    pub(super) async fn transcript(&self) -> Result<Transcript> {
        Transcript::of(&self.ctx.messages().await?)
    }

    /// Streams the status of the agent.
    pub(super) fn status(&self, status: &str, reason: Option<&str>) {
        AgentEvent::Status { status, turn: self.state.turn, reason }.emit(self.ctx);
    }

    /// The agent that it is a run of.
    pub(super) fn agent_kind(&self) -> &str {
        self.agent.kind_name()
    }

    /// The form of the answer that is due, if it has one.
    pub(super) fn output_form(&self) -> Option<&OutputSpec> {
        self.state.output_form.as_ref().or(self.input.config.output.as_ref())
    }

    /// The chosen model, then its fallbacks.
    pub(super) fn models(&self) -> Vec<ModelChoice> {
        let mut models = vec![self.state.model.clone()];
        models.extend(self.input.config.fallback.iter().filter(|model| **model != self.state.model).cloned());
        models
    }

    fn outcome(self, stop_reason: StopReason, text: String) -> RunOutcome {
        let ReactState { turn: turns, model, answered_by, usage, output, .. } = self.state;
        let model = answered_by.unwrap_or(model);
        RunOutcome { text, stop_reason, turns, model, usage, output }
    }
}

/// Checks that answers of a form can be had with these tools.
fn accept_form(form: &OutputSpec, tools: &BTreeMap<String, AgentTool>) -> Result<()> {
    form.compile()?;
    Output::refuse_name(tools.keys().map(String::as_str))
}

/// What models are offered of tools, and the agent's own ones.
fn offered(tools: &BTreeMap<String, AgentTool>, own: &[ToolSpec]) -> OfferedTools {
    let shown = tools.values().filter(|tool| !tool.is_hidden).map(|tool| tool.spec.clone());
    OfferedTools { tools: shown.chain(own.iter().cloned()).collect() }
}

/// The images and documents of a run's first message. One that cannot be used is an error: whoever starts the run can
/// still do something about it.
fn accepted(given: &[Part]) -> Result<Vec<Part>> {
    let accept = |(at, part): (usize, &Part)| {
        accept_part(part.clone()).map_err(|why| {
            let message = format!("userParts[{at}] of the run cannot be used: {why}");
            Error::new(Code::InvalidArgument, message)
        })
    };
    given.iter().enumerate().map(accept).collect()
}
