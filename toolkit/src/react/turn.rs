//! One turn: what the user said meanwhile, room in the window, one model call, the tools it asks for.

use super::compaction::{Compacted, Cut, Extract};
use super::events::AgentEvent;
use super::generate::{GenerateInput, Generated, LlmGenerate, Purpose, Reply};
use super::ledger::{Reservation, answer_within};
use super::round::RoundEnd;
use super::run::{Run, TurnEnd};
use super::transcript::LlmCall;
use super::{Delivery, Mode, ModelChoice, StopReason, USER_MESSAGE, UserMessage};
use crate::message::{AssistantMeta, ErrorKind, Message, ModelError, Origin, Part, Role, Stop, Usage};
use crate::provider::ThinkingLevel;
use flovyn_core::Payload;
use flovyn_core::context::{Step, TaskCall};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::journal::Outcome;
use flovyn_core::model::TaskOptions;
use futures::future::join_all;
use std::time::Duration;

/// How often a provider's long waits are waited for in one turn.
const LONG_WAITS: u32 = 5;
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// What asking for an answer came to.
enum Asked {
    Answer(Box<Reply>, ModelChoice),
    Interrupted(String, ModelChoice),
    /// The user wants none any more.
    Stopped,
    Failed(ModelError),
    NoBudget,
}

/// How a wait for a provider ended.
#[derive(PartialEq, Eq)]
enum Wait {
    Over,
    Interrupted,
}

/// What making room in the window came to.
#[derive(PartialEq, Eq)]
enum Room {
    /// There is more.
    Made,
    /// There was enough, or none could be made.
    AsBefore,
    /// The user spoke meanwhile in a way that does not wait.
    Interrupted,
}

impl Run<'_> {
    /// Makes one model call and runs the tools it asks for.
    pub async fn turn(&mut self) -> Result<TurnEnd> {
        let said = self.steering().await?;
        if !self.attend(&said)? && !said.is_empty() {
            return self.interrupted().await;
        }
        // What the user said to end it is heard in the next turn.
        if self.make_room(false).await? == Room::Interrupted {
            return Ok(TurnEnd::More);
        }
        let mut asked = self.ask_models().await?;
        if matches!(&asked, Asked::Failed(error) if error.kind == ErrorKind::ContextOverflow)
            && self.input.config.compaction.enabled
        {
            match self.make_room(true).await? {
                Room::Made => asked = self.ask_models().await?,
                Room::Interrupted => return Ok(TurnEnd::More),
                Room::AsBefore => {}
            }
        }
        match asked {
            Asked::Answer(reply, model) => self.answered(*reply, &model).await,
            Asked::Interrupted(text, model) => {
                self.cut_short(text, model)?;
                Ok(TurnEnd::More)
            }
            Asked::Stopped => self.interrupted().await,
            Asked::Failed(error) => self.failed(error),
            Asked::NoBudget => {
                let text = self.transcript().await?.last_words();
                Ok(TurnEnd::Stopped(StopReason::Budget, text))
            }
        }
    }

    /// Stops, for the user wants nothing more now.
    async fn interrupted(&self) -> Result<TurnEnd> {
        Ok(TurnEnd::Stopped(StopReason::Interrupted, self.transcript().await?.last_words()))
    }

    /// Takes an answer into the conversation and does what it asks for.
    async fn answered(&mut self, reply: Reply, model: &ModelChoice) -> Result<TurnEnd> {
        let Reply { message, context_window, .. } = reply;
        self.state.turn += 1;
        self.state.since_user += 1;
        self.state.window = context_window;
        self.say(&message)?;
        if let Some(meta) = &message.assistant {
            self.account(&call_of(model, "turn", meta))?;
            if meta.usage.total() > 0 {
                self.state.context_tokens = meta.usage.total();
            }
        }
        let calls: Vec<_> = message.tool_calls().cloned().collect();
        let stopped = |reason| Ok(TurnEnd::Stopped(reason, message.text()));
        match message.stop() {
            _ if !calls.is_empty() => {
                if self.run_calls(calls).await? == RoundEnd::Interrupted {
                    return self.interrupted().await;
                }
                match self.state.since_user >= self.input.config.max_turns.max(1) {
                    true => stopped(StopReason::MaxTurns),
                    false => Ok(TurnEnd::More),
                }
            }
            Stop::Deferred if self.state.since_user < self.input.config.max_turns => Ok(TurnEnd::More),
            Stop::Length => stopped(StopReason::Length),
            Stop::Refusal => stopped(StopReason::Refusal),
            _ => stopped(StopReason::End),
        }
    }

    /// Keeps what the model had said when the user interrupted it.
    fn cut_short(&mut self, text: String, model: ModelChoice) -> Result<()> {
        let meta = AssistantMeta {
            origin: Origin::new("", &model.provider, &model.model_id),
            stop: Stop::Aborted,
            error: Some(ModelError::new(ErrorKind::Aborted, "the user interrupted the answer")),
            attempt: 1,
            ..AssistantMeta::default()
        };
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::text(text)] };
        self.state.since_user += 1;
        self.say(&Message { role: Role::Assistant, parts, assistant: Some(meta.clone()) })?;
        self.account(&LlmCall { usage: None, ..call_of(&model, "turn", &meta) })
    }

    /// Keeps why no model answered. A chat goes on with the user's next message; a one-shot run fails.
    fn failed(&mut self, error: ModelError) -> Result<TurnEnd> {
        let model = self.state.model.clone();
        self.say(&Message::failed(Origin::new("", &model.provider, &model.model_id), error.clone()))?;
        if self.input.config.mode == Mode::Chat {
            return Ok(TurnEnd::Stopped(StopReason::Error, error.message));
        }
        let kind = word(error.kind);
        Err(Error::new(Code::AgentFailed, format!("no model answered: {}", error.message)).with("error_type", kind))
    }

    /// Asks the models in turn until one answers.
    async fn ask_models(&mut self) -> Result<Asked> {
        let mut waits = 0;
        loop {
            let mut last = None;
            for model in self.models() {
                let asked = self.ask(&model).await?;
                let Asked::Failed(error) = asked else { return Ok(asked) };
                let lasting =
                    matches!(error.kind, ErrorKind::Unauthorized | ErrorKind::QuotaExceeded | ErrorKind::UnknownModel);
                if !error.is_retryable() && !lasting {
                    return Ok(Asked::Failed(error));
                }
                last = Some(error);
            }
            let Some(error) = last else {
                return Ok(Asked::Failed(ModelError::new(ErrorKind::UnknownModel, "no model was given")));
            };
            let wait = error.retry_after_ms.map(Duration::from_millis).filter(|wait| *wait <= LONGEST_WAIT);
            let Some(wait) = wait.filter(|_| error.is_retryable() && waits < LONG_WAITS) else {
                return Ok(Asked::Failed(error));
            };
            waits += 1;
            let delay_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            AgentEvent::Retrying { attempt: waits + 1, delay_ms, reason: &error.message }.tell(self.ctx);
            if self.wait_for_provider(wait).await? == Wait::Interrupted {
                return Ok(Asked::Stopped);
            }
        }
    }

    /// Waits as long as a provider wants. What the user says meanwhile becomes part of the conversation.
    async fn wait_for_provider(&mut self, wait: Duration) -> Result<Wait> {
        let end = self.ctx.current_time().after(wait);
        loop {
            let left = end.since(self.ctx.current_time());
            let outcome = self.ctx.wait_raw(USER_MESSAGE, Some(left))?.await?;
            let Some(payload) = outcome.payload() else { return Ok(Wait::Over) };
            let message = UserMessage::read(payload);
            match message.delivery {
                _ if message.is_interrupt() => {
                    self.attend(&[message])?;
                    return Ok(Wait::Interrupted);
                }
                Delivery::NextTurn => self.state.queue.push(message),
                Delivery::NextStep | Delivery::Now => drop(self.attend(&[message])?),
            }
        }
    }

    async fn ask(&mut self, model: &ModelChoice) -> Result<Asked> {
        let (config, prompt) = (&self.input.config, self.state.context_tokens);
        let asked = answer_within(&self.ctx.remaining_budget()?.parse()?, prompt, config.max_tokens);
        let reserved = self.state.ledger.reserve(config.budget.as_ref(), prompt, asked);
        let Some(reservation) = reserved else { return Ok(Asked::NoBudget) };
        // The mark of the step is durable with the call.
        let mark = self.ctx.step()?;
        let call = self.generate(model, Purpose::Turn, reservation, self.state.thinking)?;
        mark.await?;
        let generated = generated(call.await?)?;
        self.settle(reservation, &generated);
        if let Generated::Failed { error: ModelError { usage: Some(usage), .. } } = &generated {
            let meta = AssistantMeta { usage: (**usage).clone(), stop: Stop::Error, ..AssistantMeta::default() };
            self.account(&call_of(model, "turn", &meta))?;
        }
        Ok(match generated {
            Generated::Reply(reply) => Asked::Answer(reply, model.clone()),
            Generated::Failed { error } => Asked::Failed(error),
            Generated::Interrupted(text) => Asked::Interrupted(text, model.clone()),
        })
    }

    fn generate(
        &self,
        model: &ModelChoice,
        purpose: Purpose,
        reservation: Reservation,
        thinking: ThinkingLevel,
    ) -> Result<Step> {
        let input = GenerateInput {
            max_tokens: reservation.answer,
            temperature: self.input.config.temperature,
            thinking,
            purpose,
            ..GenerateInput::new(model.clone(), self.ctx.context_ref())
        };
        let reserve = u32::try_from(reservation.tokens).unwrap_or(u32::MAX);
        self.ctx.schedule_raw(TaskCall {
            kind: LlmGenerate::KIND.to_owned(),
            input: Payload::of(&input)?,
            options: Some(TaskOptions { reserve, ..LlmGenerate::call_options() }),
            queue: None,
            key: None,
        })
    }

    fn settle(&mut self, reservation: Reservation, generated: &Generated) {
        let ledger = &mut self.state.ledger;
        match generated {
            Generated::Reply(reply) => ledger.settle(reservation, reply.message.usage(), reply.attempt),
            Generated::Failed { error } => {
                ledger.settle(reservation, Some(&error.usage.clone().unwrap_or_default()), 1);
            }
            Generated::Interrupted(_) => ledger.settle(reservation, None, 1),
        }
    }

    /// Makes room in the window where it is full, or in any case with `overflown`.
    async fn make_room(&mut self, overflown: bool) -> Result<Room> {
        let compaction = &self.input.config.compaction;
        if !overflown && !compaction.is_due(self.state.context_tokens, self.state.window) {
            return Ok(Room::AsBefore);
        }
        let walked = self.transcript().await?;
        let Some(cut) = compaction.cut(&walked, self.state.window, overflown) else { return Ok(Room::AsBefore) };
        self.status("compacting", None);
        self.summarise(cut).await
    }

    async fn summarise(&mut self, cut: Cut) -> Result<Room> {
        let model = self.state.model.clone();
        let config = &self.input.config;
        let tokens_before = self.state.context_tokens;
        let asked = Some(config.compaction.reserve_tokens * 4 / 5);
        // They run beside each other: none is begun unless the budget has room for all.
        let mut left = self.state.ledger.clone();
        let mut calls = Vec::with_capacity(cut.extracts.len());
        for extract in &cut.extracts {
            let reserved = left.reserve(config.budget.as_ref(), tokens_before, asked);
            let Some(reservation) = reserved else { return Ok(Room::AsBefore) };
            left.settle(reservation, None, 1);
            calls.push((extract, reservation));
        }
        let begin = |&(extract, reservation): &(&Extract, Reservation)| {
            self.generate(&model, Purpose::Summary(extract.clone()), reservation, ThinkingLevel::Off)
        };
        let steps = calls.iter().map(begin).collect::<Result<Vec<_>>>()?;
        let mut room = Room::Made;
        let mut summaries = Vec::with_capacity(steps.len());
        let mut usage = Usage::default();
        for (outcome, (extract, reservation)) in join_all(steps).await.into_iter().zip(calls) {
            let generated = generated(outcome?)?;
            self.settle(reservation, &generated);
            match generated {
                Generated::Reply(reply) => {
                    if let Some(meta) = &reply.message.assistant {
                        self.account(&call_of(&model, "compaction", meta))?;
                        add(&mut usage, &meta.usage);
                    }
                    summaries.push((extract.clone(), reply.message.text()));
                }
                Generated::Interrupted(_) => room = Room::Interrupted,
                // Without a summary the conversation stays as it is: the next call says whether it fits.
                Generated::Failed { .. } if room == Room::Made => room = Room::AsBefore,
                Generated::Failed { .. } => {}
            }
        }
        if room != Room::Made {
            return Ok(room);
        }
        let compacted = Compacted {
            summary: Compacted::joined(cut.carried.as_deref(), &summaries),
            first_kept_entry_id: cut.first_kept,
            tokens_before,
            usage,
            details: cut.details,
        };
        self.compacted(&compacted, cut.kept_tokens)?;
        Ok(Room::Made)
    }
}

/// What a model call's task ended with. Attempts that failed for good are a failure that may pass.
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

fn call_of(model: &ModelChoice, purpose: &str, meta: &AssistantMeta) -> LlmCall {
    LlmCall {
        model: model.clone(),
        purpose: purpose.to_owned(),
        usage: Some(meta.usage.clone()),
        latency_ms: meta.duration_ms,
        first_token_ms: meta.first_token_ms,
        stop_reason: meta.stop,
    }
}

/// Adds what another call used; the cost is unknown where one of them is.
fn add(sum: &mut Usage, more: &Usage) {
    let first = *sum == Usage::default();
    sum.input += more.input;
    sum.cache_read += more.cache_read;
    sum.cache_write += more.cache_write;
    sum.cache_write_1h += more.cache_write_1h;
    sum.output += more.output;
    sum.reasoning += more.reasoning;
    sum.cost = match (sum.cost.take(), &more.cost) {
        (None, cost) if first => cost.clone(),
        (Some(one), Some(two)) if one.currency == two.currency => {
            Some(crate::message::Cost { amount_micros: one.amount_micros + two.amount_micros, ..one })
        }
        _ => None,
    };
}

fn word(kind: ErrorKind) -> String {
    serde_json::to_value(kind).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}
