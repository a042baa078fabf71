//! Inline attempts of a session: their ends, their time limits.

use super::{HostEffect, Inner, Session};
use crate::error::Code;
use crate::id::TaskId;
use crate::journal::{OpRef, StartTask};
use crate::model::{AttemptResult, Failure};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An attempt that runs in this process.
pub(super) struct Running {
    task: TaskId,
    kind: Arc<str>,
    attempt: u32,
    started: Instant,
    beat: Arc<Mutex<Instant>>,
    watch: Option<tokio::task::AbortHandle>,
}

impl Running {
    /// Ends its watch.
    pub fn stop(self) {
        if let Some(watch) = self.watch {
            watch.abort();
        }
    }
}

impl Session {
    /// Reports the end of an inline attempt. Ignored when the attempt is no longer wanted.
    pub fn task_ended(&self, op: OpRef, attempt: u32, result: AttemptResult) {
        let mut inner = self.inner.lock();
        if inner.running.get(&op).is_none_or(|running| running.attempt != attempt) {
            return;
        }
        let Some(running) = inner.running.remove(&op) else { return };
        drop(inner);
        let duration = super::now().saturating_duration_since(running.started);
        if self.trace().is_on() {
            let task = (running.task, &running.kind, attempt);
            self.trace().task_ended(self.storage.clock().now(), op.0, task, duration, &result);
        }
        running.stop();
        let result = match result {
            AttemptResult::Completed(output) => match output.check_size(self.max_payload) {
                Ok(()) => AttemptResult::Completed(output),
                Err(error) => AttemptResult::Failed {
                    failure: Failure::new(error.code(), error.code().as_str(), error.message()),
                    retryable: false,
                },
            },
            result => result,
        };
        self.with(|machine| machine.task_ended(op, attempt, result, duration));
    }

    /// A sign of life of an inline attempt.
    pub fn task_heartbeat(&self, op: OpRef) {
        if let Some(running) = self.inner.lock().running.get(&op) {
            *running.beat.lock() = super::now();
        }
    }

    /// Starts the clock of an attempt.
    pub(super) fn watch_attempt(self: &Arc<Self>, inner: &mut Inner, start: &StartTask) {
        let started = super::now();
        let beat = Arc::new(Mutex::new(started));
        let limits = (start.options.timeout, start.options.heartbeat_timeout);
        let watch = (limits != (None, None)).then(|| {
            let (me, op, attempt, beat, kind) =
                (Arc::downgrade(self), start.op, start.attempt, beat.clone(), start.kind.clone());
            self.runtime
                .spawn(async move {
                    let what = watch(limits.0, limits.1, &beat).await;
                    let Some(me) = me.upgrade() else { return };
                    let message = format!("task {kind:?} {what} and was stopped");
                    let failure = Failure::new(Code::TaskTimeout, "TaskTimeout", message);
                    me.inner.lock().effects.push_back(HostEffect::CancelTask(op));
                    me.task_ended(op, attempt, AttemptResult::Failed { failure, retryable: true });
                    if let Some(port) = me.port.get() {
                        port.ready(&me);
                    }
                })
                .abort_handle()
        });
        inner.running.insert(
            start.op,
            Running { task: start.task, kind: start.kind.clone(), attempt: start.attempt, started, beat, watch },
        );
    }
}

/// Ends when a limit is passed; says which.
async fn watch(timeout: Option<Duration>, silence: Option<Duration>, beat: &Mutex<Instant>) -> String {
    let over = async {
        match timeout {
            Some(limit) => {
                tokio::time::sleep(limit).await;
                format!("ran longer than {limit:?}")
            }
            None => std::future::pending().await,
        }
    };
    let silent = async {
        let Some(limit) = silence else { return std::future::pending().await };
        loop {
            let next = *beat.lock() + limit;
            let left = next.saturating_duration_since(super::now());
            if left.is_zero() {
                return format!("gave no heartbeat for {limit:?}");
            }
            tokio::time::sleep(left).await;
        }
    };
    tokio::select! {
        what = over => what,
        what = silent => what,
    }
}
