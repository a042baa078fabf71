//! Inline attempts of a session: their ends, their time limits.

use super::{HostEffect, Inner, Session};
use crate::error::Code;
use crate::id::TaskId;
use crate::journal::{OpRef, StartTask};
use crate::model::{AttemptResult, ChunkKind, Failure};
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
    /// What it has streamed, where that may become its result.
    said: Option<String>,
}

impl Running {
    /// Keeps a token that it streams.
    pub fn say(&mut self, text: &str) {
        if let Some(said) = &mut self.said {
            said.push_str(text);
        }
    }

    /// Ends its watch.
    pub fn stop(self) {
        if let Some(watch) = self.watch {
            watch.abort();
        }
    }
}

impl Inner {
    pub(super) fn is_wanted(&self, op: OpRef, attempt: u32) -> bool {
        self.running.get(&op).is_some_and(|running| running.attempt == attempt)
    }
}

impl Session {
    /// Reports the end of an inline attempt. Ignored when the attempt is no longer wanted.
    pub fn task_ended(&self, op: OpRef, attempt: u32, result: AttemptResult) {
        let mut inner = self.inner.lock();
        if !inner.is_wanted(op, attempt) {
            return;
        }
        let Some(running) = inner.running.remove(&op) else { return };
        drop(inner);
        self.ended(op, running, result);
    }

    /// Whether an inline attempt still counts: it has not ended, and nobody has told it to stop.
    pub fn wants_attempt(&self, op: OpRef, attempt: u32) -> bool {
        self.inner.lock().is_wanted(op, attempt)
    }

    /// Ends an inline attempt with the text it has streamed so far. Who takes it from `running` first says how it ended:
    /// this, or the attempt itself.
    pub(super) fn interrupt(&self, op: OpRef) {
        let mut inner = self.inner.lock();
        let Some(mut running) = inner.running.remove(&op) else { return };
        inner.effects.push_back(HostEffect::CancelTask(op));
        drop(inner);
        let said = running.said.take().unwrap_or_default();
        self.ended(op, running, AttemptResult::said(&said));
        if let (Some(me), Some(port)) = (self.me.upgrade(), self.port.get()) {
            port.ready(&me);
        }
    }

    fn ended(&self, op: OpRef, running: Running, result: AttemptResult) {
        let attempt = running.attempt;
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
                    pause: None,
                },
            },
            result => result,
        };
        self.with(|machine| machine.task_ended(op, attempt, result, duration));
    }

    /// How far an inline attempt is: a preview at once, durable with the worker's next write; a sign of life too.
    pub fn task_progress(&self, op: OpRef, attempt: u32, fraction: f64, message: &str) {
        self.task_heartbeat(op);
        let running = self.inner.lock().running.get(&op).map(|running| (running.task, running.attempt));
        let Some((task, _)) = running.filter(|(_, running)| *running == attempt) else { return };
        let report = progress(fraction, message);
        self.stream(ChunkKind::Progress, report.as_str().into(), Some((op, attempt)));
        if let Some(keeper) = self.keeper.get() {
            keeper.progressed(task, attempt, report);
        }
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
                    me.task_ended(op, attempt, AttemptResult::Failed { failure, retryable: true, pause: None });
                    if let Some(port) = me.port.get() {
                        port.ready(&me);
                    }
                })
                .abort_handle()
        });
        let (task, kind, attempt) = (start.task, start.kind.clone(), start.attempt);
        let said = start.options.interruptible.then(String::new);
        inner.running.insert(start.op, Running { task, kind, attempt, started, beat, watch, said });
    }
}

/// What an attempt tells of how far it is, as it is stored and streamed: a fraction from 0 to 1 and words.
pub(crate) fn progress(fraction: f64, message: &str) -> String {
    serde_json::json!({"fraction": fraction.clamp(0.0, 1.0), "message": message}).to_string()
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
