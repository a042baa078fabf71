//! An activation as a binding holds it: the session with what every host language needs around it.

use super::TaskSpec;
use super::activations::quietly;
use super::child_of;
use super::codes::{OutsideCode, PreviewCode};
use crate::error::{Code, Error, Result};
use crate::id::TaskId;
use crate::journal::{Answer, Call, Called, OnceBegin, OpRef, Question};
use crate::model::{Entry, Failure, event_signal};
use crate::payload::Payload;
use crate::session::{Closed, HostEffect, Session};
use crate::sync::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

/// Names that one activation remembers.
const MOST_NAMES: usize = 1_000;

/// One activation of an agent. Every method is one quick call, but for those that say that they block.
pub struct HostSession {
    core: Arc<Session>,
    threads: tokio::runtime::Handle,
    /// The only thread that may make calls, where the language has several.
    thread: OnceLock<ThreadId>,
    /// Names come again and again, and the engine shares them: a copy for each call would cost more than the look-up.
    names: Mutex<HashMap<String, Arc<str>>>,
}

impl HostSession {
    /// Takes a session over; `threads` are the engine's.
    pub fn new(core: Arc<Session>, threads: tokio::runtime::Handle) -> Self {
        Self { core, threads, thread: OnceLock::new(), names: Mutex::default() }
    }

    /// The session, for what needs nothing around it.
    pub fn core(&self) -> &Arc<Session> {
        &self.core
    }

    /// The engine's threads.
    pub fn threads(&self) -> &tokio::runtime::Handle {
        &self.threads
    }

    /// From now on only the calling thread may make calls.
    pub fn bind_thread(&self) {
        // An activation begins once, so a second thread has nothing to bind.
        let _ = self.thread.set(std::thread::current().id());
    }

    fn check_thread(&self) -> Result<()> {
        match self.thread.get() {
            Some(own) if *own != std::thread::current().id() => Err(Error::new(
                Code::WrongThread,
                "a context was used from another thread than its agent's; make the call on the agent's own thread, or do the work in a task",
            )),
            _ => Ok(()),
        }
    }

    /// A name as the engine shares it.
    fn name(&self, name: &str) -> Arc<str> {
        let mut names = self.names.lock();
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let shared: Arc<str> = name.into();
        if names.len() < MOST_NAMES {
            names.insert(name.to_owned(), shared.clone());
        }
        shared
    }

    // ── calls: `once` is the name of the `once` that the call is made in ────────────────────────────────────────

    /// Makes a call.
    pub fn call(&self, call: Call, once: Option<&str>) -> Result<Called> {
        self.check_thread()?;
        let once = once.map(|name| self.name(name));
        self.core.call(call, once.as_ref())
    }

    /// Schedules a task.
    pub fn task(&self, spec: &TaskSpec, input: Payload, key: Option<&str>, once: Option<&str>) -> Result<Called> {
        self.call(spec.call(input, key, &self.core.execution().new.queue), once)
    }

    /// Waits for a signal.
    pub fn signal(&self, name: &str, timeout: Option<Duration>, once: Option<&str>) -> Result<OpRef> {
        Ok(self.call(Call::Signal { name: self.name(name), timeout }, once)?.op)
    }

    /// Keeps the journal from now on. The op ends when all so far is durable.
    pub fn persist(&self, once: Option<&str>) -> Result<OpRef> {
        self.check_thread()?;
        let once = once.map(|name| self.name(name));
        self.core.persist(once.as_ref())
    }

    /// Sends the parent a request. The op ends with the answer.
    pub fn request(
        &self,
        name: &str,
        payload: Payload,
        timeout: Option<Duration>,
        once: Option<&str>,
    ) -> Result<OpRef> {
        self.check_thread()?;
        let once = once.map(|name| self.name(name));
        self.core.request(name, payload, timeout, once.as_ref())
    }

    /// Waits for what a child tells next, or for its end. The op ends with an event.
    pub fn child_event(&self, child: &str, timeout: Option<Duration>, once: Option<&str>) -> Result<OpRef> {
        let name = event_signal(child_of(child)?);
        self.signal(&name, timeout, once)
    }

    /// Joins a task by its ref.
    pub fn attach(&self, task: &str, once: Option<&str>) -> Result<(OpRef, TaskId)> {
        let task: TaskId = task.parse().map_err(|_| {
            let hint = "pass what `step.ref` gave when the task was scheduled";
            Error::new(Code::InvalidArgument, format!("{task:?} is no task ref; {hint}"))
        })?;
        Ok((self.call(Call::Attach { task }, once)?.op, task))
    }

    /// Saves a state, with metadata as JSON text.
    pub fn checkpoint(&self, state: Payload, metadata: String) -> Result<OpRef> {
        self.check_thread()?;
        self.core.checkpoint(state, metadata)?;
        Ok(OpRef::CHECKPOINT)
    }

    /// Begins a `once` with its arguments.
    pub fn once_begin(&self, name: &str, arguments: &Payload) -> Result<OnceBegin> {
        self.check_thread()?;
        self.core.once_begin(&self.name(name), arguments.digest()?)
    }

    /// Ends a `once` that has run.
    pub fn once_end(&self, name: &str, arguments: &Payload, value: Payload) -> Result<OpRef> {
        self.check_thread()?;
        self.core.once_end(&self.name(name), arguments.digest()?, value)
    }

    // ── reads ───────────────────────────────────────────────────────────────────────────────────────────────────

    fn read(&self, question: Question, once: Option<&str>) -> Result<Answer> {
        self.check_thread()?;
        let once = once.map(|name| self.name(name));
        self.core.read(question, once.as_ref())
    }

    /// Whether a signal of this name waits.
    pub fn has_signal(&self, name: &str, once: Option<&str>) -> Result<bool> {
        Ok(self.read(Question::HasSignal(self.name(name)), once)? == Answer::Flag(true))
    }

    /// Takes all signals of this name that wait. Blocks for those that are not in memory: code that waited for them in the
    /// language's own way would go on later on replay than it did.
    pub fn drain_signals(&self, name: &str, turn: bool, once: Option<&str>) -> Result<Vec<Payload>> {
        match self.read(Question::Drain { name: self.name(name), turn }, once)? {
            Answer::Signals(values) => values.iter().map(|value| self.loaded(value)).collect(),
            _ => Ok(Vec::new()),
        }
    }

    /// Whether the run was asked to stop.
    pub fn check_cancellation(&self, once: Option<&str>) -> Result<bool> {
        Ok(self.read(Question::Cancellation, once)? == Answer::Flag(true))
    }

    /// What is left of the budget; none where there is no budget.
    pub fn remaining_budget(&self, once: Option<&str>) -> Result<Option<Payload>> {
        Ok(match self.read(Question::Budget, once)? {
            Answer::Value(value) => Some(value),
            _ => None,
        })
    }

    /// A number from 0 to 1 that is the same on replay.
    pub fn random_number(&self) -> Result<f64> {
        self.check_thread()?;
        Ok(self.core.random_number())
    }

    /// Sixteen bytes that are the same on replay.
    pub fn random(&self) -> Result<[u8; 16]> {
        self.check_thread()?;
        Ok(self.core.random())
    }

    /// A payload whose value is in memory. Blocks for one that is not.
    pub fn loaded(&self, payload: &Payload) -> Result<Payload> {
        if payload.bytes().is_ok() {
            return Ok(payload.clone());
        }
        self.threads.block_on(self.core.load(payload))
    }

    /// The branch of a thread. Blocks.
    pub fn branch_now(&self, thread: &str) -> Result<Vec<Entry>> {
        self.threads.block_on(self.core.branch(thread))
    }

    // ── awaits and ends ─────────────────────────────────────────────────────────────────────────────────────────

    /// Registers an await.
    pub fn await_op(&self, op: u32) -> Result<()> {
        self.check_thread()?;
        self.core.await_op(OpRef(op))
    }

    /// Says that the code is quiet, and by an [`OutsideCode`] what may make it go on, where the host was asked.
    pub fn settle(&self, concurrent: bool, outside: Option<u32>) {
        self.acting(|core| core.settle(concurrent, outside.map(OutsideCode::outside)));
    }

    /// Does something after which the calling thread takes the effects at once: the loop need not be woken for them.
    pub fn acting(&self, act: impl FnOnce(&Session)) {
        quietly(&self.core, |core| act(core));
    }

    /// Takes what waits for the host.
    pub fn take_effects(&self) -> Vec<HostEffect> {
        self.core.take_effects()
    }

    /// Shows a preview, of an attempt of a task where it is named by op and attempt.
    pub fn stream(&self, kind: u32, data: Arc<str>, task: Option<(u32, u32)>) {
        self.core.stream(PreviewCode::kind(kind), data, task.map(|(op, attempt)| (OpRef(op), attempt)));
    }
}

/// Why a copy is put away and what of it, in the words that hosts know.
pub fn closed(why: &Closed) -> (&'static str, String) {
    match why {
        Closed::Finished(status) => ("finished", status.as_str().to_owned()),
        Closed::Evicted => ("evicted", String::new()),
        Closed::Lost(error) => ("lost", error.to_string()),
    }
}

/// A failure as a host reports it; `otherwise` is the code where it names none of ours.
pub fn failure(code: &str, error_type: &str, message: &str, traceback: Option<String>, otherwise: Code) -> Failure {
    let mut failure = Failure::new(Code::parse(code).unwrap_or(otherwise), error_type, message);
    failure.traceback = traceback;
    failure
}
