//! One turn: pending user messages, compaction if it is due, one model call, and its tool calls.

use super::compaction::{Compacted, CompactionDetails, Cut, Extract};
use super::generate::{GenerateInput, Generated, LlmGenerate, OnFailure, Purpose, Reply};
use super::ledger::{Reservation, answer_within};
use super::run::{AgentRun, TurnEnd};
use super::tool_calls::ToolCallsEnd;
use super::transcript::{LlmCall, Transcript};
use super::{AfterOutage, Mode, ModelChoice, StopReason, Via};
use crate::message::{AssistantMeta, ErrorKind, Message, ModelError, Origin, Part, Role, Stop, Usage};
use crate::provider::ThinkingLevel;
use flovyn_core::Payload;
use flovyn_core::context::{Step, TaskCall};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::journal::Outcome;
use flovyn_core::model::{Persistence, TaskOptions};
use futures::future::join_all;
use std::time::Duration;

/// The outcome of a model call.
pub(super) enum ModelOutcome {
    Reply(Box<Reply>, ModelChoice),
    Interrupted(String, ModelChoice),
    /// The user interrupted a wait between two calls.
    Stopped,
    Failed(ModelError),
    /// No model has answered, and the run has waited this long.
    GivenUp(ModelError, Duration),
    NoBudget,
}

/// The outcome of a compaction.
#[derive(PartialEq, Eq)]
enum CompactionOutcome {
    /// The conversation is shorter now.
    Compacted,
    /// It was not needed, or nothing could be summarised.
    NotCompacted,
    /// The user interrupted it.
    Interrupted,
}

impl AgentRun<'_> {
    /// Makes one model call and runs its tool calls.
    pub(super) async fn turn(&mut self) -> Result<TurnEnd> {
        let messages = self.steering().await?;
        if !self.add_user_messages(&messages)? && !messages.is_empty() {
            return self.interrupted().await;
        }
        self.follow_tools().await?;
        // The message that interrupted it is handled in the next turn.
        if self.compact_if_due(false).await? == CompactionOutcome::Interrupted {
            return Ok(TurnEnd::More);
        }
        let mut result = self.call_models().await?;
        if matches!(&result, ModelOutcome::Failed(error) if error.kind == ErrorKind::ContextOverflow)
            && self.input.config.compaction.enabled
        {
            match self.compact_if_due(true).await? {
                CompactionOutcome::Compacted => result = self.call_models().await?,
                CompactionOutcome::Interrupted => return Ok(TurnEnd::More),
                CompactionOutcome::NotCompacted => {}
            }
        }
        match result {
            ModelOutcome::Reply(reply, model) => self.on_reply(*reply, &model).await,
            ModelOutcome::Interrupted(text, model) => {
                self.record_interrupted_answer(text, model)?;
                Ok(TurnEnd::More)
            }
            ModelOutcome::Stopped => self.interrupted().await,
            ModelOutcome::Failed(error) => self.on_failure(error),
            ModelOutcome::GivenUp(error, waited) => self.on_outage(error, waited),
            ModelOutcome::NoBudget => {
                let text = self.transcript().await?.last_answer_text();
                Ok(TurnEnd::Stopped(StopReason::Budget, text))
            }
        }
    }

    /// Stops because the user has interrupted.
    async fn interrupted(&self) -> Result<TurnEnd> {
        Ok(TurnEnd::Stopped(StopReason::Interrupted, self.transcript().await?.last_answer_text()))
    }

    /// Appends an answer to the conversation and runs its tool calls.
    async fn on_reply(&mut self, reply: Reply, model: &ModelChoice) -> Result<TurnEnd> {
        let Reply { message, context_window, output, empty, .. } = reply;
        self.state.answered_by = Some(model.clone());
        if let Some(usage) = empty {
            let meta = AssistantMeta { usage: *usage, ..AssistantMeta::default() };
            self.record_call(&LlmCall::of(model, "turn", &meta))?;
        }
        self.state.turn += 1;
        self.state.since_user += 1;
        self.state.window = context_window;
        self.append_message(&message)?;
        if let Some(meta) = &message.assistant {
            self.record_call(&LlmCall::of(model, "turn", meta))?;
            if meta.usage.total() > 0 {
                self.state.context_tokens = meta.usage.total();
            }
        }
        if let Some(checked) = output {
            return self.on_output(&message, checked);
        }
        let calls: Vec<_> = message.tool_calls().cloned().collect();
        let stopped = |reason| Ok(TurnEnd::Stopped(reason, message.text()));
        match message.stop() {
            _ if !calls.is_empty() => {
                if self.run_calls(calls).await? == ToolCallsEnd::Interrupted {
                    return self.interrupted().await;
                }
                match self.state.since_user >= self.max_turns() {
                    true => stopped(StopReason::MaxTurns),
                    false => Ok(TurnEnd::More),
                }
            }
            Stop::Deferred if self.state.since_user < self.max_turns() => Ok(TurnEnd::More),
            Stop::Length => stopped(StopReason::Length),
            Stop::Refusal => stopped(StopReason::Refusal),
            _ => stopped(StopReason::End),
        }
    }

    /// How many model calls may answer a message of the user.
    pub(super) fn max_turns(&self) -> u32 {
        self.state.limits.max_turns.unwrap_or(self.input.config.max_turns).max(1)
    }

    /// Records the text of an interrupted answer.
    fn record_interrupted_answer(&mut self, text: String, model: ModelChoice) -> Result<()> {
        let meta = AssistantMeta {
            origin: Origin::new("", &model.provider, &model.model_id),
            stop: Stop::Aborted,
            error: Some(ModelError::new(ErrorKind::Aborted, "the user interrupted the answer")),
            attempt: 1,
            ..AssistantMeta::default()
        };
        // The provider did not come to say what it charges.
        let output = text.len() as u64 / 4 + 1;
        let usage = Usage { input: self.state.context_tokens, output, is_estimate: true, ..Usage::default() };
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::text(text)] };
        self.state.since_user += 1;
        self.append_message(&Message { role: Role::Assistant, parts, assistant: Some(meta.clone()) })?;
        self.record_call(&LlmCall::of(&model, "turn", &AssistantMeta { usage, ..meta }))
    }

    /// Records why no model answered. A chat goes on with the user's next message; a one-shot run fails.
    fn on_failure(&mut self, error: ModelError) -> Result<TurnEnd> {
        let model = self.state.model.clone();
        self.append_message(&Message::failed(Origin::new("", &model.provider, &model.model_id), error.clone()))?;
        if self.input.config.mode == Mode::Chat {
            return Ok(TurnEnd::Stopped(StopReason::Error, error.message));
        }
        let kind = word(error.kind);
        Err(Error::new(Code::AgentFailed, format!("no model answered: {}", error.message)).with("error_type", kind))
    }

    /// Pauses a one-shot run that has waited for a model long enough. Nothing is recorded, so that a resumed run makes the
    /// call again that has failed last.
    fn on_outage(&mut self, error: ModelError, waited: Duration) -> Result<TurnEnd> {
        let config = &self.input.config;
        if config.mode == Mode::Chat || config.retry.then == AfterOutage::Fail {
            return self.on_failure(error);
        }
        let message = format!(
            "no model has answered, and the run has waited {} s for one; resume it to ask again: {}",
            waited.as_secs(),
            error.message
        );
        Err(Error::new(Code::AgentFailed, message).with("error_type", word(error.kind)).pausing())
    }

    /// Asks one model. The first call of a turn marks a step.
    pub(super) async fn call_model(
        &mut self,
        model: &ModelChoice,
        on_failure: OnFailure,
        is_first: bool,
    ) -> Result<ModelOutcome> {
        if self.state.is_at_limit() {
            return Ok(ModelOutcome::NoBudget);
        }
        let (config, prompt) = (&self.input.config, self.state.context_tokens);
        let answer_limit = answer_within(&self.ctx.remaining_budget()?.parse()?, prompt, config.max_tokens);
        let reserved = self.state.ledger.reserve(config.budget.as_ref(), prompt, answer_limit);
        let Some(reservation) = reserved else { return Ok(ModelOutcome::NoBudget) };
        // The step's mark is committed together with the call.
        let mark = if is_first { Some(self.ctx.step()?) } else { None };
        let carried = self.carried().await?;
        let call = self.generate(model, Purpose::Turn, reservation, self.state.thinking, on_failure, carried)?;
        if let Some(mark) = mark {
            mark.await?;
        }
        let generated = generated(call.await?)?;
        self.settle(reservation, &generated);
        if let Generated::Failed { error: ModelError { usage: Some(usage), .. } } = &generated {
            let meta = AssistantMeta { usage: (**usage).clone(), stop: Stop::Error, ..AssistantMeta::default() };
            self.record_call(&LlmCall::of(model, "turn", &meta))?;
        }
        Ok(match generated {
            Generated::Reply(reply) => ModelOutcome::Reply(reply, model.clone()),
            Generated::Failed { error } => ModelOutcome::Failed(error),
            Generated::Interrupted(text) => ModelOutcome::Interrupted(text, model.clone()),
        })
    }

    /// The conversation by value, for a model that other workers ask although it stays on this machine.
    async fn carried(&self) -> Result<Option<Box<Transcript>>> {
        let is_carried = self.input.config.via.is_some() && self.ctx.persistence() == Persistence::Local;
        Ok(if is_carried { Some(Box::new(self.transcript().await?)) } else { None })
    }

    fn generate(
        &self,
        model: &ModelChoice,
        purpose: Purpose,
        reservation: Reservation,
        thinking: ThinkingLevel,
        on_failure: OnFailure,
        transcript: Option<Box<Transcript>>,
    ) -> Result<Step> {
        let input = GenerateInput {
            max_tokens: reservation.answer,
            temperature: self.input.config.temperature,
            thinking,
            output: self.output_form().filter(|_| purpose == Purpose::Turn).cloned(),
            purpose,
            on_failure,
            transcript,
            ..GenerateInput::new(model.clone(), self.ctx.context_ref())
        };
        let reserve = u32::try_from(reservation.tokens).unwrap_or(u32::MAX);
        let mut options = TaskOptions { reserve, ..LlmGenerate::call_options() };
        if on_failure != OnFailure::Retry {
            options.retry.retries = 0;
        }
        self.ctx.schedule_raw(TaskCall {
            kind: LlmGenerate::KIND.to_owned(),
            input: Payload::of(&input)?,
            options: Some(options),
            queue: self.input.config.via.map(Via::queue),
            key: None,
        })
    }

    fn settle(&mut self, reservation: Reservation, generated: &Generated) {
        let ledger = &mut self.state.ledger;
        match generated {
            Generated::Reply(reply) => {
                ledger.settle(reservation, reply.message.usage(), reply.attempt);
                if let Some(empty) = &reply.empty {
                    ledger.settle(reservation, Some(empty), 1);
                }
            }
            // A call that was refused is not paid.
            Generated::Failed { error } => {
                if let Some(usage) = &error.usage {
                    ledger.settle(reservation, Some(usage), 1);
                }
            }
            Generated::Interrupted(_) => ledger.settle(reservation, None, 1),
        }
    }

    /// Compacts the conversation if the window is full, or in any case with `overflown`.
    async fn compact_if_due(&mut self, overflown: bool) -> Result<CompactionOutcome> {
        let compaction = &self.input.config.compaction;
        let is_due = overflown || compaction.is_due(self.state.context_tokens, self.state.window);
        if !is_due || self.state.is_at_limit() {
            return Ok(CompactionOutcome::NotCompacted);
        }
        let transcript = self.transcript().await?;
        let Some(cut) = compaction.cut(&transcript, self.state.window, overflown) else {
            return Ok(CompactionOutcome::NotCompacted);
        };
        self.status("compacting", None);
        self.summarise(cut).await
    }

    /// Compacts all of the conversation that can be, because the user asks for it.
    pub(super) async fn compact_all(&mut self, focus: &str) -> Result<()> {
        let transcript = self.transcript().await?;
        let Some(mut cut) = self.input.config.compaction.cut_all(&transcript) else { return Ok(()) };
        let focus = Some(focus.trim().to_owned()).filter(|focus| !focus.is_empty());
        cut.extracts.iter_mut().for_each(|extract| extract.focus.clone_from(&focus));
        self.status("compacting", None);
        self.summarise(cut).await.map(drop)
    }

    async fn summarise(&mut self, cut: Cut) -> Result<CompactionOutcome> {
        let model = self.state.model.clone();
        let config = &self.input.config;
        let tokens_before = self.state.context_tokens;
        let answer_limit = Some(config.compaction.reserve_tokens * 4 / 5);
        // The summaries run concurrently, so none is started unless the budget has room for all of them.
        let mut ledger = self.state.ledger.clone();
        let mut calls = Vec::with_capacity(cut.extracts.len());
        for extract in &cut.extracts {
            let reserved = ledger.reserve(config.budget.as_ref(), tokens_before, answer_limit);
            let Some(reservation) = reserved else { return Ok(CompactionOutcome::NotCompacted) };
            ledger.settle(reservation, None, 1);
            calls.push((extract, reservation));
        }
        let carried = self.carried().await?;
        let begin = |&(extract, reservation): &(&Extract, Reservation)| {
            let purpose = Purpose::Summary(extract.clone());
            self.generate(&model, purpose, reservation, ThinkingLevel::Off, OnFailure::Retry, carried.clone())
        };
        let steps = calls.iter().map(begin).collect::<Result<Vec<_>>>()?;
        let mut result = CompactionOutcome::Compacted;
        let mut summaries = Vec::with_capacity(steps.len());
        let mut usage = Usage::default();
        for (outcome, (extract, reservation)) in join_all(steps).await.into_iter().zip(calls) {
            let generated = generated(outcome?)?;
            self.settle(reservation, &generated);
            match generated {
                Generated::Reply(reply) => {
                    if let Some(meta) = &reply.message.assistant {
                        self.record_call(&LlmCall::of(&model, "compaction", meta))?;
                        usage.add(&meta.usage);
                    }
                    // An empty summary would take the place of all that was said.
                    if reply.message.text().trim().is_empty() && result == CompactionOutcome::Compacted {
                        result = CompactionOutcome::NotCompacted;
                    }
                    summaries.push((extract.clone(), reply.message.text()));
                }
                Generated::Interrupted(_) => result = CompactionOutcome::Interrupted,
                // Without a summary the conversation stays as it is. The next call will show whether it fits.
                Generated::Failed { .. } if result == CompactionOutcome::Compacted => {
                    result = CompactionOutcome::NotCompacted
                }
                Generated::Failed { .. } => {}
            }
        }
        if result != CompactionOutcome::Compacted {
            return Ok(result);
        }
        let compacted = Compacted {
            summary: Compacted::joined(cut.carried.as_deref(), &summaries),
            first_kept_entry_id: cut.first_kept,
            tokens_before,
            usage,
            details: CompactionDetails { todos: self.state.todos.clone(), ..cut.details },
        };
        self.compacted(&compacted, cut.kept_tokens)?;
        Ok(CompactionOutcome::Compacted)
    }
}

/// The outcome of a model call's task. A task that has failed for good counts as a temporary failure of the model.
fn generated(outcome: Outcome) -> Result<Generated> {
    match outcome {
        Outcome::Value(payload) => payload.parse(),
        Outcome::Failed(failure) => {
            let kind = serde_json::from_value(failure.error_type.clone().into()).unwrap_or(ErrorKind::Unavailable);
            Ok(Generated::Failed { error: ModelError::new(kind, failure.message) })
        }
        Outcome::Cancelled => Err(Error::new(Code::Cancelled, "the run was asked to stop")),
        other => Err(Error::new(Code::InvalidArgument, format!("a model call ended with {other:?}"))),
    }
}

fn word(kind: ErrorKind) -> String {
    serde_json::to_value(kind).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}
