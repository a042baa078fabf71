//! Counts the calls of the storage.

use super::Metrics;
use flovyn_core::error::Result;
use flovyn_core::id::RequestId;
use flovyn_core::model::{AttemptResult, CommitAnswer, CommitRequest, Committed, OpBody, Usage};
use flovyn_core::storage::Storage;
use flovyn_core::storage::guarded::{Call, Gate};
use flovyn_core::sync::Mutex;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};
use tracing::warn;

/// Requests that are remembered, so that one that is sent again is not counted again.
const REMEMBERED: usize = 4_096;

/// A gate that counts.
pub(crate) struct Measured {
    metrics: Metrics,
    slow: Duration,
    seen: Mutex<(HashSet<RequestId>, VecDeque<RequestId>)>,
}

impl Measured {
    /// A call that takes longer than `slow` is named in the log.
    pub(crate) fn new(metrics: Metrics, slow: Duration) -> Self {
        Self { metrics, slow, seen: Mutex::default() }
    }

    /// Whether a request is answered for the first time, as far as this server remembers.
    fn is_first(&self, request: RequestId) -> bool {
        let (known, order) = &mut *self.seen.lock();
        if !known.insert(request) {
            return false;
        }
        order.push_back(request);
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        true
    }
}

/// The counts of a batch.
struct Worth {
    request: RequestId,
    bytes: u64,
    usage: Vec<(String, Usage)>,
    children: u64,
    messages: u64,
}

impl Worth {
    fn of(request: &CommitRequest) -> Self {
        let (mut bytes, mut usage, mut children, mut messages) = (0, Vec::new(), 0, 0);
        for op in &request.batch.ops {
            match &op.body {
                OpBody::Entry(entry) => bytes += entry.content.size(),
                OpBody::Task(task) => bytes += task.input.size(),
                OpBody::Child(child) => {
                    bytes += child.input.size();
                    children += 1;
                }
                OpBody::Send(message) => {
                    bytes += message.body.payload().map_or(0, flovyn_core::Payload::size);
                    messages += 1;
                }
                OpBody::Usage { model, usage: used } => usage.push((model.clone(), used.clone())),
                _ => {}
            }
        }
        children -= request.refused.len() as u64;
        for report in &request.batch.attempts {
            if let AttemptResult::Completed(output) = &report.result {
                bytes += output.size();
            }
        }
        Self { request: request.request_id, bytes, usage, children, messages }
    }
}

impl Gate for Measured {
    async fn pass<T: Send>(&self, call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let began = Instant::now();
        let answer = body.await;
        let name = format!("{call:?}");
        let result = answer.as_ref().err().map_or("ok", |error| error.code().as_str()).to_owned();
        let metrics = &self.metrics.0;
        let timed = metrics.storage_seconds.get_or_create_owned(&[("call", name.clone())]);
        let took = began.elapsed();
        timed.observe(took.as_secs_f64());
        if took > self.slow {
            warn!(call = name, seconds = took.as_secs_f64(), result, "a call of the storage took long");
        }
        metrics.storage_calls.get_or_create(&[("call", name), ("result", result)]).inc();
        answer
    }

    async fn commit(&self, inner: &dyn Storage, request: CommitRequest) -> Result<CommitAnswer> {
        let worth = Worth::of(&request);
        let answer = self.pass(Call::Commit, inner.commit(request)).await;
        let metrics = &self.metrics.0;
        let outcome = match &answer {
            Ok(answer) => match answer.committed {
                Committed::Continue => "continue",
                Committed::Suspended => "suspended",
                Committed::Finished(_) => "finished",
            },
            Err(error) => error.code().as_str(),
        };
        metrics.commits.get_or_create(&[("outcome", outcome.to_owned())]).inc();
        if let Ok(answer) = &answer
            && self.is_first(worth.request)
        {
            self.metrics.stored("commit", worth.bytes);
            worth.usage.iter().for_each(|(model, usage)| self.metrics.used(model, usage));
            metrics.children.inc_by(worth.children);
            metrics.messages.inc_by(worth.messages);
            if let Committed::Finished(status) = answer.committed {
                metrics.ended.get_or_create(&[("status", status.as_str().to_owned())]).inc();
            }
        }
        answer
    }

    /// The backend is closed by the caller, who opened it.
    fn close(&self, _inner: &dyn Storage) {}
}
