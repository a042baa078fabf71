//! Retries of model calls: after a wait, and with fallback models.

use super::{CancellationToken, ErrorKind, ModelError, ModelInfo, ModelRequest, OnEvent, Provider, StreamEvent};
use crate::message::{Message, Usage};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// How often a failed call is made again, and how long the waits are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How many calls are made at most, the first included.
    pub attempts: u32,
    /// The wait before the second call. It doubles from call to call, and a random part of up to half is left out.
    pub base: Duration,
    /// The longest wait. If a provider asks for a longer one, the caller gets the error at once: a durable caller can
    /// wait without keeping a process.
    pub longest: Duration,
    /// Whether a call is also made again when it fails after it has shown content. The content is then
    /// [`StreamEvent::Retracted`]. If this is not set, the caller gets such an error.
    pub after_content: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 4, base: Duration::from_millis(500), longest: Duration::from_secs(60), after_content: false }
    }
}

impl RetryPolicy {
    /// A policy that makes no call again.
    pub fn never() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// The wait after a failed attempt; the first attempt has the number 1. None if the provider asks for too long a
    /// wait.
    fn wait(&self, attempt: u32, error: &ModelError) -> Option<Duration> {
        if let Some(millis) = error.retry_after_ms {
            return Some(Duration::from_millis(millis)).filter(|wait| *wait <= self.longest);
        }
        let doubled = self.base.saturating_mul(1 << (attempt - 1).min(16)).min(self.longest);
        Some(doubled.mul_f64(1.0 - fastrand::f64() / 2.0))
    }
}

/// A provider that makes a failed call again if that may help.
pub struct Retrying {
    inner: Arc<dyn Provider>,
    policy: RetryPolicy,
}

impl Retrying {
    /// Makes the calls of a provider with a policy.
    pub fn new(inner: Arc<dyn Provider>, policy: RetryPolicy) -> Self {
        Self { inner, policy }
    }
}

#[async_trait]
impl Provider for Retrying {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn api(&self) -> &str {
        self.inner.api()
    }

    async fn stream(
        &self,
        request: &ModelRequest,
        on: OnEvent<'_>,
        cancel: &CancellationToken,
    ) -> Result<Message, ModelError> {
        let mut wasted = Usage::default();
        for attempt in 1.. {
            let mut content_shown = false;
            let watched = &mut |event: StreamEvent| {
                content_shown |= event.is_content();
                on(event);
            };
            let error = match self.inner.stream(request, watched, cancel).await {
                Ok(mut message) => {
                    if let Some(meta) = &mut message.assistant {
                        meta.attempt = attempt;
                        if wasted != Usage::default() {
                            meta.usage.add(&wasted);
                        }
                    }
                    return Ok(message);
                }
                Err(mut error) => {
                    error.usage.iter().for_each(|used| wasted.add(used));
                    error.usage = (wasted != Usage::default()).then(|| Box::new(wasted.clone()));
                    error
                }
            };
            // An answer that nobody can read is paid like any other.
            let attempts = if error.kind == ErrorKind::Protocol { 2 } else { u32::MAX };
            let again = error.is_retryable()
                && attempt < self.policy.attempts.min(attempts)
                && (!content_shown || self.policy.after_content);
            let Some(delay) = self.policy.wait(attempt, &error).filter(|_| again) else { return Err(error) };
            let reason = error.message;
            if content_shown {
                on(StreamEvent::Retracted { reason: reason.clone() });
            }
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            on(StreamEvent::Retrying { attempt: attempt + 1, delay_ms, reason });
            tokio::select! {
                () = cancel.cancelled() => break,
                () = tokio::time::sleep(delay) => {}
            }
        }
        Err(ModelError::new(ErrorKind::Aborted, "the model call was cancelled while it waited to be made again"))
    }

    async fn models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        self.inner.models().await
    }
}

/// Several models in order: when one fails, the next is asked.
///
/// The model that the request names is ignored. After an error that every model would give (the request is wrong, the
/// conversation is too long, the call was cancelled), no other model is asked.
pub struct Fallback {
    choices: Vec<(Arc<dyn Provider>, String)>,
}

impl Fallback {
    /// Asks `first`, and then the others in order. Each is a provider and the id of one of its models.
    pub fn new(
        first: (Arc<dyn Provider>, String),
        others: impl IntoIterator<Item = (Arc<dyn Provider>, String)>,
    ) -> Self {
        Self { choices: std::iter::once(first).chain(others).collect() }
    }
}

#[async_trait]
impl Provider for Fallback {
    fn name(&self) -> &str {
        self.choices[0].0.name()
    }

    fn api(&self) -> &str {
        self.choices[0].0.api()
    }

    async fn stream(
        &self,
        request: &ModelRequest,
        on: OnEvent<'_>,
        cancel: &CancellationToken,
    ) -> Result<Message, ModelError> {
        let mut failed = Vec::new();
        let mut last = None;
        let mut wasted = Usage::default();
        for (provider, model) in &self.choices {
            if let Some(ModelError { message: reason, .. }) = last.take() {
                on(StreamEvent::FellBack { model: format!("{}/{model}", provider.name()), reason });
            }
            let mut content_shown = false;
            let watched = &mut |event: StreamEvent| {
                match event {
                    StreamEvent::Retracted { .. } => content_shown = false,
                    _ => content_shown |= event.is_content(),
                }
                on(event);
            };
            let fallback_request = ModelRequest { model: model.clone(), ..request.clone() };
            match provider.stream(&fallback_request, watched, cancel).await {
                Ok(mut message) => {
                    if let Some(meta) = message.assistant.as_mut().filter(|_| wasted != Usage::default()) {
                        meta.usage.add(&wasted);
                    }
                    return Ok(message);
                }
                Err(error) if !falls_back(error.kind) => return Err(error),
                Err(mut error) => {
                    error.usage.iter().for_each(|used| wasted.add(used));
                    error.usage = (wasted != Usage::default()).then(|| Box::new(wasted.clone()));
                    if content_shown {
                        on(StreamEvent::Retracted { reason: error.message.clone() });
                    }
                    failed.push(format!("{}/{model}: {}", provider.name(), error.message));
                    last = Some(error);
                }
            }
        }
        let error = last.unwrap_or_else(|| ModelError::new(ErrorKind::UnknownModel, "no model was given"));
        Err(ModelError { message: failed.join("; "), ..error })
    }

    async fn models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        self.choices[0].0.models().await
    }
}

fn falls_back(kind: ErrorKind) -> bool {
    kind.is_retryable() || matches!(kind, ErrorKind::Unauthorized | ErrorKind::QuotaExceeded | ErrorKind::UnknownModel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_their_jitter_and_obey_the_provider() {
        let policy = RetryPolicy::default();
        let error = ModelError::new(ErrorKind::Unavailable, "x");
        for (attempt, most) in [(1, 500), (2, 1_000), (3, 2_000), (20, 60_000)] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let wait = policy.wait(attempt, &error).expect("a wait");
                assert!(wait <= most && wait >= most / 2, "{wait:?} after attempt {attempt}");
            }
        }
        let asked = |millis| ModelError { retry_after_ms: Some(millis), ..error.clone() };
        assert_eq!(policy.wait(1, &asked(1_234)), Some(Duration::from_millis(1_234)));
        assert_eq!(policy.wait(1, &asked(60_001)), None);
    }
}
