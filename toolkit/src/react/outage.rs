//! Outages: the models are asked in turn until one answers, with waits between the rounds, for hours.
//!
//! This is the one place where a run makes a failed model call again. The waits are steps of the run, so they need no
//! process, and a message of the user is heard in the middle of one. When the time is over, the run pauses. Its last
//! call is a task that has failed and that no later step knows of, so a resumed run makes that call again, and nothing
//! else.

use super::events::AgentEvent;
use super::paid_failures::PaidFailures;
use super::run::AgentRun;
use super::turn::ModelOutcome;
use super::{Delivery, ModelChoice, OnFailure, USER_MESSAGE, UserMessage};
use crate::message::{ErrorKind, ModelError};
use flovyn_core::error::Result;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// How long a run waits for models that cannot be reached or refuse for the moment, and what it does then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RetryConfig {
    /// The longest time to wait for an answer: a number of seconds, or a text such as `90s`, `15m`, `6h` or `2d`.
    #[serde(serialize_with = "write_wait", deserialize_with = "read_wait")]
    pub max_wait: Duration,
    /// What the run does then.
    pub then: AfterOutage,
}

/// What a run does when it has waited for a model long enough. A chat says why, and waits for the next message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AfterOutage {
    /// It pauses until somebody resumes it. Then the last call is made again.
    #[default]
    Pause,
    /// It fails.
    Fail,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { max_wait: Duration::from_secs(6 * 3_600), then: AfterOutage::Pause }
    }
}

/// The wait after the first round that failed. It doubles from round to round, and a random part of up to half of it is
/// left out.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait between two rounds, unless a provider asks for a longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The rounds that have failed so far.
#[derive(Default)]
struct Outage {
    rounds: u32,
    waited: Duration,
    failures: PaidFailures,
    /// The model whose call is the last of the last round.
    last: Option<ModelChoice>,
}

/// How a wait for a provider ended.
#[derive(PartialEq, Eq)]
enum ProviderWait {
    Over,
    Interrupted,
}

impl AgentRun<'_> {
    /// Asks the models in turn until one answers.
    pub(super) async fn call_models(&mut self) -> Result<ModelOutcome> {
        let mut outage = Outage::default();
        let mut first = true;
        loop {
            let mut failed: Vec<(ModelChoice, ModelError)> = Vec::new();
            for model in outage.round(self.models()) {
                let on_failure = if outage.last.as_ref() == Some(&model) { OnFailure::Fail } else { OnFailure::Report };
                let outcome = self.call_model(&model, on_failure, std::mem::take(&mut first)).await?;
                let ModelOutcome::Failed(error) = outcome else { return Ok(outcome) };
                if !error.is_retryable() && !is_of_this_model(error.kind) {
                    return Ok(ModelOutcome::Failed(error));
                }
                failed.push((model, error));
            }
            // The model that waiting may help is asked last in the last round.
            let at = failed.iter().position(|(_, error)| error.is_retryable());
            let shortest =
                failed.iter().filter(|(_, error)| error.is_retryable()).map(|(_, error)| error.retry_after_ms);
            let asked = shortest.min().flatten().map(Duration::from_millis);
            let Some(at) = at else {
                let error = failed.into_iter().next().map(|(_, error)| error);
                let none = || ModelError::new(ErrorKind::UnknownModel, "no model was given");
                return Ok(ModelOutcome::Failed(error.unwrap_or_else(none)));
            };
            let (model, error) = failed.swap_remove(at);
            if outage.last.is_some() {
                return Ok(ModelOutcome::GivenUp(error, outage.waited));
            }
            let chance = self.ctx.random_bytes()[0];
            let wait = outage.wait_after(error.kind, asked, self.input.config.retry.max_wait, chance, model);
            let delay_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let until = self.ctx.current_time().after(wait).to_string();
            let attempt = outage.rounds + 1;
            AgentEvent::Retrying { attempt, delay_ms, until: &until, reason: &error.message }.emit(self.ctx);
            if !wait.is_zero() && self.wait_for_provider(wait).await? == ProviderWait::Interrupted {
                return Ok(ModelOutcome::Stopped);
            }
        }
    }

    /// Waits for a provider. Messages of the user that come meanwhile are added to the conversation.
    async fn wait_for_provider(&mut self, wait: Duration) -> Result<ProviderWait> {
        let end = self.ctx.current_time().after(wait);
        loop {
            let remaining = end.since(self.ctx.current_time());
            let outcome = self.ctx.wait_raw(USER_MESSAGE, Some(remaining))?.await?;
            let Some(payload) = outcome.payload() else { return Ok(ProviderWait::Over) };
            let message = UserMessage::read(payload);
            match message.delivery {
                _ if message.is_interrupt() => {
                    self.add_user_messages(&[message])?;
                    return Ok(ProviderWait::Interrupted);
                }
                Delivery::NextTurn => self.state.queue.push(message),
                Delivery::NextStep | Delivery::Now => drop(self.add_user_messages(&[message])?),
            }
        }
    }
}

/// Whether another model may answer where this one cannot.
fn is_of_this_model(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unauthorized | ErrorKind::QuotaExceeded | ErrorKind::UnknownModel)
}

impl Outage {
    /// The models of the next round, in order.
    fn round(&self, mut models: Vec<ModelChoice>) -> Vec<ModelChoice> {
        if let Some(at) = models.iter().position(|model| Some(model) == self.last.as_ref()) {
            let last = models.remove(at);
            models.push(last);
        }
        models
    }

    /// How long to wait after a round in which every model failed. Where the time or the patience is over, the round
    /// after it is the last, and `model` comes last in it.
    fn wait_after(
        &mut self,
        kind: ErrorKind,
        asked: Option<Duration>,
        most: Duration,
        chance: u8,
        model: ModelChoice,
    ) -> Duration {
        self.rounds += 1;
        let is_spent = self.failures.count(kind).is_some_and(|more| more <= 1);
        let doubled = FIRST_WAIT.saturating_mul(1 << (self.rounds - 1).min(16)).min(LONGEST_WAIT);
        let wait = asked.unwrap_or_else(|| doubled.mul_f64(1.0 - f64::from(chance) / 512.0));
        let left = most.saturating_sub(self.waited);
        if wait >= left || is_spent {
            self.last = Some(model);
        }
        // An answer that nobody can read is asked for again at once: that is no outage.
        let wait = if kind == ErrorKind::Protocol { Duration::ZERO } else { wait.min(left) };
        self.waited += wait;
        wait
    }
}

fn write_wait<S: Serializer>(wait: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(wait.as_secs_f64())
}

fn read_wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum WaitText {
        Seconds(f64),
        Text(String),
    }
    let seconds = match WaitText::deserialize(deserializer)? {
        WaitText::Seconds(seconds) => Some(seconds),
        WaitText::Text(text) => seconds(&text),
    };
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        D::Error::custom("a wait is a number of seconds from 0, or a text such as \"90s\", \"15m\", \"6h\" or \"2d\"")
    })
}

fn seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    number.trim().parse::<f64>().ok().map(|number| number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn waits_grow_and_end_with_the_time() {
        let model = || ModelChoice::parse("a/b");
        let mut outage = Outage::default();
        let most = Duration::from_secs(6 * 3_600);
        let mut waits = Vec::new();
        while outage.last.is_none() {
            waits.push(outage.wait_after(ErrorKind::Unavailable, None, most, 0, model()));
        }
        assert_eq!(waits[..3], [0.5, 1.0, 2.0].map(Duration::from_secs_f64));
        assert_eq!((waits.iter().sum::<Duration>(), waits.iter().max()), (most, Some(&LONGEST_WAIT)));
        assert!(waits.len() < 100, "{}", waits.len());
        // A provider that asks for longer is given as much as there is.
        let mut outage = Outage::default();
        let hour = Duration::from_secs(3_600);
        assert_eq!(outage.wait_after(ErrorKind::RateLimited, Some(hour * 2), hour, 9, model()), hour);
        assert_eq!(outage.round(vec![model(), ModelChoice::parse("c/d")]), [ModelChoice::parse("c/d"), model()]);
    }

    #[test]
    fn what_is_paid_is_not_asked_for_often() {
        for (kind, calls) in [(ErrorKind::Protocol, 2), (ErrorKind::Interrupted, 5)] {
            let mut outage = Outage::default();
            let mut rounds = 1;
            while outage.last.is_none() {
                outage.wait_after(kind, None, Duration::from_secs(3_600), 0, ModelChoice::default());
                rounds += 1;
            }
            assert_eq!(rounds, calls, "{kind:?}");
        }
    }

    #[test]
    fn policies_are_read_and_written() {
        let read = |value| serde_json::from_value::<RetryConfig>(value);
        assert_eq!(read(json!({})).expect("a policy"), RetryConfig::default());
        for (given, secs) in [(json!("90s"), 90), (json!("15m"), 900), (json!("6h"), 21_600), (json!(30), 30)] {
            let policy = read(json!({"maxWait": given, "then": "fail"})).expect("a policy");
            assert_eq!((policy.max_wait, policy.then), (Duration::from_secs(secs), AfterOutage::Fail));
            let written = serde_json::to_value(&policy).expect("JSON");
            assert_eq!(read(written).expect("a policy"), policy);
        }
        for wrong in [json!("soon"), json!(-1), json!("6 weeks")] {
            let error = read(json!({"maxWait": wrong})).expect_err("no wait").to_string();
            assert!(error.contains("15m"), "{error}");
        }
        assert!(read(json!({"maxwait": 1})).is_err());
    }
}
