//! The inline attempts of a session: their start, their tries in place, their time limits and their ends.
//!
//! An attempt of a task with `in_place` retries is tried again here, without a commit in between. The store sees one
//! attempt.

use super::{HostEffect, Inner, Place, Session, Turn, traces};
use crate::error::Code;
use crate::id::TaskId;
use crate::journal::{OpRef, StartTask, retry};
use crate::model::{AttemptResult, ChunkKind, Failure};
use crate::sync::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An attempt that runs in this process, or pauses before its next try.
pub(super) struct Running {
    task: TaskId,
    kind: Arc<str>,
    /// The number that the host knows the current try by: the attempt's number, plus one for each failed try. None in a
    /// pause between two tries.
    attempt: Option<u32>,
    /// The attempt's number.
    of: u32,
    /// How to start the next try, if the task is retried in place.
    again: Option<Box<StartTask>>,
    started: Instant,
    /// When the last sign of life came.
    beat: Arc<Mutex<Instant>>,
    /// The timer of its time limits, or of the pause.
    watch: Option<tokio::task::AbortHandle>,
    /// How many previews it has made.
    previews: u64,
    /// The text that it has streamed, if an interrupt may make that its result.
    said: Option<String>,
    /// Its place, if the worker counts inline attempts. None in a pause.
    place: Option<Place>,
}

/// What the next try of an attempt takes over from the try before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tried {
    /// The attempt's number.
    pub of: u32,
    /// How many previews it has made.
    pub previews: u64,
}

impl Tried {
    /// The first try of an attempt.
    pub(super) fn first(attempt: u32) -> Self {
        Self { of: attempt, previews: 0 }
    }
}

impl Running {
    /// The attempt's number.
    pub(super) fn of(&self) -> u32 {
        self.of
    }

    /// The number of the preview that it makes now, from 1.
    pub(super) fn next_preview(&mut self) -> u64 {
        self.previews += 1;
        self.previews
    }

    /// Adds a token to the streamed text.
    pub(super) fn say(&mut self, text: &str) {
        if let Some(said) = &mut self.said {
            said.push_str(text);
        }
    }

    /// Stops its timer.
    pub(super) fn stop(mut self) {
        self.stop_watch();
    }

    fn stop_watch(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
    }

    /// The pause before the next try. None if no other try follows this result.
    fn pause_after(&self, result: &AttemptResult) -> Option<Duration> {
        let start = self.again.as_ref()?;
        retry::in_place(&start.options, start.task, result, self.tries())
    }

    /// How many tries it has made, this one included.
    fn tries(&self) -> u32 {
        self.attempt.map_or(0, |attempt| attempt - self.of + 1)
    }
}

impl Inner {
    pub(super) fn is_wanted(&self, op: OpRef, attempt: u32) -> bool {
        self.running.get(&op).is_some_and(|running| running.attempt == Some(attempt))
    }

    /// Whether there are attempts, and all of them pause before another try or wait for a place.
    pub(super) fn only_pauses(&self) -> bool {
        !(self.running.is_empty() && self.waiting.is_empty())
            && self.running.values().all(|running| running.attempt.is_none())
    }

    /// A running attempt. None if it has ended, or was told to stop.
    pub(super) fn running_attempt(&mut self, op: OpRef, attempt: u32) -> Option<&mut Running> {
        self.running.get_mut(&op).filter(|running| running.attempt == Some(attempt))
    }
}

impl Session {
    /// Reports the end of an inline attempt, or of one try of it. Ignored if the attempt has ended or was told to stop.
    pub fn task_ended(&self, op: OpRef, attempt: u32, result: AttemptResult) {
        let tries_again = |running: &Running| running.previews > 0 && running.pause_after(&result).is_some();
        let shows = self.inner.lock().running_attempt(op, attempt).is_some_and(|running| tries_again(running));
        if shows {
            self.stream(ChunkKind::Void, "".into(), Some((op, attempt)));
        }
        let mut inner = self.inner.lock();
        if !inner.is_wanted(op, attempt) {
            return;
        }
        let Some(mut running) = inner.running.remove(&op) else { return };
        if let Some(pause) = running.pause_after(&result) {
            // It is taken out and put back under one lock. Otherwise a request to stop could come in between and not
            // find it.
            self.pause(&mut running, op, pause);
            self.trace_end(op, &running, &result);
            inner.running.insert(op, running);
            return;
        }
        drop(inner);
        self.ended(op, running, result);
    }

    /// Whether an inline attempt still counts: it has not ended, and nobody has told it to stop.
    pub fn wants_attempt(&self, op: OpRef, attempt: u32) -> bool {
        self.inner.lock().is_wanted(op, attempt)
    }

    /// Ends an inline attempt with the text that it has streamed so far. The attempt may end by itself at the same
    /// moment: whoever takes it out of `running` first decides how it ended.
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
        let (attempt, tries) = (running.of, running.tries());
        let duration = self.trace_end(op, &running, &result);
        let counts = running.again.is_some();
        running.stop();
        let result = match result {
            // The store counts attempts, not tries. So the failure says how many tries there were.
            AttemptResult::Failed { mut failure, retryable, pause } if counts => {
                failure.attempts = tries;
                AttemptResult::Failed { failure, retryable, pause }
            }
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

    /// Traces the end of a try, and returns how long it took.
    fn trace_end(&self, op: OpRef, running: &Running, result: &AttemptResult) -> Duration {
        let duration = super::now().saturating_duration_since(running.started);
        if self.trace().is_on() {
            let task = (running.task, &running.kind, running.of);
            self.trace().task_ended(self.storage.clock().now(), op.0, task, duration, result);
        }
        duration
    }

    /// Schedules the next try of an attempt after a pause, and gives its place back for that time.
    fn pause(&self, running: &mut Running, op: OpRef, pause: Duration) {
        let next = running.attempt.take().unwrap_or(running.of) + 1;
        let me = self.me.clone();
        running.stop_watch();
        running.place = None;
        let waiting = self.runtime.spawn(async move {
            tokio::time::sleep(pause).await;
            if let Some(me) = me.upgrade() {
                me.begin_again(op, next);
            }
        });
        running.watch = Some(waiting.abort_handle());
    }

    fn begin_again(self: &Arc<Self>, op: OpRef, attempt: u32) {
        let mut inner = self.inner.lock();
        let Some(mut running) = inner.running.remove(&op) else { return };
        let Some(start) = running.again.take() else { return };
        let again = StartTask { attempt, ..*start };
        let noted = traces::started(&again);
        let tried = Tried { of: running.of, previews: running.previews };
        let ready = self.start(&mut inner, again, tried);
        drop(inner);
        if self.trace().is_on() {
            self.tell(vec![noted]);
        }
        if ready && let Some(port) = self.port.get() {
            port.ready(self);
        }
    }

    /// Starts a try of an attempt, or lets it wait for a place. True if it starts.
    pub(super) fn start(self: &Arc<Self>, inner: &mut Inner, start: StartTask, tried: Tried) -> bool {
        match self.keeper.get().map_or(Turn::Now(None), |keeper| keeper.turn(self, start.op)) {
            Turn::Now(place) => {
                self.begin(inner, start, tried, place);
                true
            }
            Turn::Later => {
                inner.waiting.insert(start.op, (start, tried));
                false
            }
        }
    }

    /// Starts an attempt that has waited for a place. If it was told to stop meanwhile, the place is given back.
    pub(crate) fn begin_in(self: &Arc<Self>, op: OpRef, place: Place) {
        let mut inner = self.inner.lock();
        let Some((start, tried)) = inner.waiting.remove(&op) else { return };
        self.begin(&mut inner, start, tried, Some(place));
        drop(inner);
        if let Some(port) = self.port.get() {
            port.ready(self);
        }
    }

    fn begin(self: &Arc<Self>, inner: &mut Inner, start: StartTask, tried: Tried, place: Option<Place>) {
        self.watch_attempt(inner, &start, tried, place);
        inner.effects.push_back(HostEffect::Start(start));
    }

    /// An inline attempt reports its progress. The report is streamed as a preview at once, and stored with the
    /// worker's next write. It counts as a sign of life.
    pub fn task_progress(&self, op: OpRef, attempt: u32, fraction: f64, message: &str) {
        self.task_heartbeat(op);
        let running = self.inner.lock().running.get(&op).map(|running| (running.task, running.attempt, running.of));
        let Some((task, _, of)) = running.filter(|(_, running, _)| *running == Some(attempt)) else { return };
        let report = progress(fraction, message);
        self.stream(ChunkKind::Progress, report.as_str().into(), Some((op, attempt)));
        if let Some(keeper) = self.keeper.get() {
            keeper.progressed(task, of, report);
        }
    }

    /// An inline attempt gives a sign of life.
    pub fn task_heartbeat(&self, op: OpRef) {
        if let Some(running) = self.inner.lock().running.get(&op) {
            *running.beat.lock() = super::now();
        }
    }

    /// Notes a try that begins, and starts the timer of its limits.
    fn watch_attempt(self: &Arc<Self>, inner: &mut Inner, start: &StartTask, tried: Tried, place: Option<Place>) {
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
        let (task, kind, attempt) = (start.task, start.kind.clone(), Some(start.attempt));
        let again = start.options.in_place.then(|| Box::new(start.clone()));
        let said = start.options.interruptible.then(String::new);
        let Tried { of, previews } = tried;
        let running = Running { task, kind, attempt, of, again, started, beat, watch, previews, said, place };
        inner.running.insert(start.op, running);
    }
}

/// A progress report in the form in which it is stored and streamed: a fraction from 0 to 1, and a message.
pub(crate) fn progress(fraction: f64, message: &str) -> String {
    serde_json::json!({"fraction": fraction.clamp(0.0, 1.0), "message": message}).to_string()
}

/// Waits until one of the limits is passed, and says which.
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
