//! One activation of an agent, as its context in Python sees it.
//!
//! Every method is one quick call into the engine. Those that may give the host something to do return it, so that a
//! step needs no wake-up of the loop for what happened on the loop's own thread.

use crate::decode;
use crate::encode;
use crate::error::Failure;
use crate::given::{Filling, LARGE};
use crate::hub::{Hub, Inbox, Note, spawn};
use crate::task::TaskSpec;
use flovyn_core::Error;
use flovyn_core::error::Code;
use flovyn_core::id::TaskId;
use flovyn_core::journal::{Answer, Call, Called, Ending, OnceBegin, OpRef, Outcome, Outside, Question};
use flovyn_core::model::{AttemptResult, Entry, Usage};
use flovyn_core::payload::{Encoding, Payload};
use flovyn_core::session::{Closed, HostEffect, Port, Session as Core};
use flovyn_core::storage::stored::Room;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

thread_local! {
    /// A native call on this thread will take the effects itself: the loop need not be woken for them.
    static TAKES_EFFECTS: Cell<bool> = const { Cell::new(false) };
}

type Once = Option<String>;

/// Wakes the loop of a session when the engine has something for it.
struct Wake {
    inbox: Arc<Inbox>,
    token: u64,
}

impl Port for Wake {
    fn ready(&self, session: &Arc<Core>) {
        if !TAKES_EFFECTS.get() {
            self.inbox.push(Note::Effects(self.token, session.clone()));
        }
    }

    fn room(&self, value: &Payload) -> Option<Box<dyn Room>> {
        let wanted = value.encoding == Encoding::Raw && value.size() >= LARGE as u64;
        if wanted { Filling::for_bytes(value.size()) } else { None }
    }
}

/// One activation of an agent.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Session {
    core: Arc<Core>,
    token: u64,
    runtime: tokio::runtime::Handle,
    thread: Mutex<Option<ThreadId>>,
    /// Names come again and again; the engine shares them.
    names: Mutex<HashMap<String, Arc<str>>>,
}

impl Session {
    /// Takes a session over and connects it with the loop of a hub.
    pub(crate) fn connect(core: Arc<Core>, inbox: &Arc<Inbox>, runtime: tokio::runtime::Handle) -> Self {
        let token = inbox.token();
        core.connect(Arc::new(Wake { inbox: inbox.clone(), token }));
        Self { core, token, runtime, thread: Mutex::default(), names: Mutex::default() }
    }

    fn name(&self, name: &str) -> Arc<str> {
        let mut names = self.names.lock();
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let shared: Arc<str> = name.into();
        if names.len() < 1_000 {
            names.insert(name.to_owned(), shared.clone());
        }
        shared
    }

    fn call(&self, call: Call, once: &Once) -> Result<Called, Failure> {
        self.check_thread()?;
        let once = once.as_deref().map(|name| self.name(name));
        Ok(self.core.call(call, once.as_ref())?)
    }

    fn read(&self, question: Question, once: &Once) -> Result<Answer, Failure> {
        self.check_thread()?;
        let once = once.as_deref().map(|name| self.name(name));
        Ok(self.core.read(question, once.as_ref())?)
    }

    fn check_thread(&self) -> Result<(), Failure> {
        match *self.thread.lock() {
            Some(own) if own != std::thread::current().id() => Err(Error::new(
                Code::WrongThread,
                "a context was used from another thread than its agent's; make the call on the agent's own thread, or do the work in a task",
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// The value of a payload, fetched where it is not in memory.
    fn loaded<'py>(&self, py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyAny>> {
        if payload.bytes().is_ok() {
            return Ok(decode::payload(py, payload)?);
        }
        let payload = py.detach(|| self.runtime.block_on(self.core.load(payload))).map_err(Failure::from)?;
        Ok(decode::payload(py, &payload)?)
    }

    /// Does something after which the effects are taken at once. The engine may write to its store meanwhile, so other
    /// threads of the interpreter go on.
    fn acting<'py>(&self, py: Python<'py>, act: impl FnOnce(&Core) + Send) -> PyResult<Bound<'py, PyList>> {
        py.detach(|| {
            TAKES_EFFECTS.set(true);
            act(&self.core);
            TAKES_EFFECTS.set(false);
        });
        effects(py, &self.core)
    }
}

#[pymethods]
impl Session {
    /// Names the session among what a hub drains.
    #[getter]
    fn token(&self) -> u64 {
        self.token
    }

    /// From now on only the calling thread may make calls.
    fn bind_thread(&self) {
        *self.thread.lock() = Some(std::thread::current().id());
    }

    fn execution_id(&self) -> String {
        self.core.execution_id().to_string()
    }

    fn org_id(&self) -> String {
        self.core.org().to_string()
    }

    fn key(&self) -> Option<String> {
        self.core.execution().new.key.clone()
    }

    fn kind(&self) -> String {
        self.core.execution().new.kind.clone()
    }

    fn input<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.loaded(py, &self.core.execution().new.input)
    }

    /// The state of the last checkpoint as `(value,)`; none before the first.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>,)>> {
        match self.core.state() {
            Some(state) => Ok(Some((self.loaded(py, state)?,))),
            None => Ok(None),
        }
    }

    // ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────

    #[pyo3(signature = (spec, input, key=None, once=None))]
    fn call_task<'py>(
        &self,
        py: Python<'py>,
        spec: &TaskSpec,
        input: &Bound<'py, PyAny>,
        key: Option<&str>,
        once: Once,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let called = self.call(spec.call(encode::payload(input)?, key.map(Into::into)), &once)?;
        let task = called.task.unwrap_or_default();
        Ok((called.op.0, PyBytes::new(py, task.0.as_bytes())))
    }

    #[pyo3(signature = (role, content, entry_type, turn_id=None, metadata=None, thread="", once=None))]
    #[allow(clippy::too_many_arguments)]
    fn call_entry<'py>(
        &self,
        py: Python<'py>,
        role: String,
        content: &Bound<'py, PyAny>,
        entry_type: String,
        turn_id: Option<String>,
        metadata: Option<&Bound<'py, PyAny>>,
        thread: &str,
        once: Once,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let metadata = match metadata {
            Some(value) => Some(String::from_utf8_lossy(&encode::json(value)?).into_owned()),
            None => None,
        };
        let content = encode::payload(content)?;
        let entry = Call::Entry { role, entry_type, content, turn_id, metadata, thread: thread.into() };
        let called = self.call(entry, &once)?;
        Ok(PyBytes::new(py, called.entry.unwrap_or_default().0.as_bytes()))
    }

    #[pyo3(signature = (name, timeout=None, once=None))]
    fn call_signal(&self, name: &str, timeout: Option<f64>, once: Once) -> PyResult<u32> {
        let timeout = timeout.map(duration).transpose()?;
        Ok(self.call(Call::Signal { name: self.name(name), timeout }, &once)?.op.0)
    }

    #[pyo3(signature = (seconds, once=None))]
    fn call_timer(&self, seconds: f64, once: Once) -> PyResult<u32> {
        Ok(self.call(Call::Timer { duration: duration(seconds)? }, &once)?.op.0)
    }

    #[pyo3(signature = (task, once=None))]
    fn call_attach<'py>(&self, py: Python<'py>, task: &str, once: Once) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let task: TaskId = task.parse().map_err(|_| {
            Failure::Engine(Error::new(
                Code::InvalidArgument,
                format!("{task:?} is no task ref; pass what `step.ref` gave when the task was scheduled"),
            ))
        })?;
        let called = self.call(Call::Attach { task }, &once)?;
        Ok((called.op.0, PyBytes::new(py, task.0.as_bytes())))
    }

    #[pyo3(signature = (model, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros=None, once=None))]
    #[allow(clippy::too_many_arguments)]
    fn call_usage(
        &self,
        model: String,
        input_tokens: u64,
        output_tokens: u64,
        cache_read_tokens: u64,
        cache_write_tokens: u64,
        cost_micros: Option<u64>,
        once: Once,
    ) -> PyResult<()> {
        let usage = Usage { calls: 1, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros };
        self.call(Call::Usage { model, usage }, &once)?;
        Ok(())
    }

    #[pyo3(signature = (once=None))]
    fn call_step(&self, once: Once) -> PyResult<u32> {
        Ok(self.call(Call::StepMark, &once)?.op.0)
    }

    #[pyo3(signature = (once=None))]
    fn call_flush(&self, once: Once) -> PyResult<u32> {
        Ok(self.call(Call::Flush, &once)?.op.0)
    }

    /// `(0, value)`: it happened; `(1, op)`: await this op; `(2, None)`: run it.
    fn once_begin<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        input: &Bound<'py, PyAny>,
    ) -> PyResult<(u8, Bound<'py, PyAny>)> {
        self.check_thread()?;
        let digest = encode::payload(input)?.digest().map_err(Failure::from)?;
        Ok(match self.core.once_begin(&self.name(name), digest).map_err(Failure::from)? {
            OnceBegin::Done(value) => (0, decode::payload(py, &value)?),
            OnceBegin::Recorded(op) => (1, op.0.into_pyobject(py)?.into_any()),
            OnceBegin::Run => (2, py.None().into_bound(py)),
        })
    }

    fn once_end(&self, name: &str, input: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<u32> {
        self.check_thread()?;
        let digest = encode::payload(input)?.digest().map_err(Failure::from)?;
        let value = encode::payload(value)?;
        Ok(self.core.once_end(&self.name(name), digest, value).map_err(Failure::from)?.0)
    }

    fn checkpoint(&self, state: &Bound<'_, PyAny>, metadata: &Bound<'_, PyAny>) -> PyResult<u32> {
        self.check_thread()?;
        let metadata = String::from_utf8_lossy(&encode::json(metadata)?).into_owned();
        self.core.checkpoint(encode::payload(state)?, metadata).map_err(Failure::from)?;
        Ok(OpRef::CHECKPOINT.0)
    }

    // ── reads ───────────────────────────────────────────────────────────────────────────────────────────────────

    #[pyo3(signature = (name, once=None))]
    fn has_signal(&self, name: &str, once: Once) -> PyResult<bool> {
        Ok(flag(self.read(Question::HasSignal(self.name(name)), &once)?))
    }

    #[pyo3(signature = (name, turn, once=None))]
    fn drain_signals<'py>(&self, py: Python<'py>, name: &str, turn: bool, once: Once) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        if let Answer::Signals(values) = self.read(Question::Drain { name: self.name(name), turn }, &once)? {
            let values = py.detach(|| {
                let load = async |value: &Payload| self.core.load(value).await;
                values.iter().map(|value| self.runtime.block_on(load(value))).collect::<Result<Vec<_>, _>>()
            });
            for value in values.map_err(Failure::from)? {
                list.append(decode::payload(py, &value)?)?;
            }
        }
        Ok(list)
    }

    #[pyo3(signature = (once=None))]
    fn check_cancellation(&self, once: Once) -> PyResult<bool> {
        Ok(flag(self.read(Question::Cancellation, &once)?))
    }

    #[pyo3(signature = (once=None))]
    fn remaining_budget<'py>(&self, py: Python<'py>, once: Once) -> PyResult<Bound<'py, PyAny>> {
        match self.read(Question::Budget, &once)? {
            Answer::Value(value) => Ok(decode::payload(py, &value)?),
            _ => Ok(py.None().into_bound(py)),
        }
    }

    fn is_cancel_requested(&self) -> bool {
        self.core.is_cancel_requested()
    }

    /// Seconds since 1970 by the run's own clock.
    fn time(&self) -> f64 {
        self.core.time().0 as f64 / 1e6
    }

    fn random_number(&self) -> PyResult<f64> {
        self.check_thread()?;
        Ok(self.core.random_number())
    }

    fn random<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.check_thread()?;
        Ok(PyBytes::new(py, &self.core.random()))
    }

    fn open_thread(&self, thread: &str) {
        self.core.open_thread(thread);
    }

    fn leaf(&self, thread: &str) -> Option<String> {
        self.core.leaf(thread).map(|leaf| leaf.to_string())
    }

    /// Reads the branch of a thread through the hub.
    fn branch(&self, hub: &Hub, token: u64, thread: String) {
        let core = self.core.clone();
        spawn(&self.runtime, &hub.inbox, token, async move { core.branch(&thread).await.map(Branch) });
    }

    /// Reads the branch of a thread here and now, without the GIL.
    fn branch_now<'py>(&self, py: Python<'py>, thread: &str) -> PyResult<Bound<'py, PyList>> {
        let entries = py.detach(|| self.runtime.block_on(self.core.branch(thread))).map_err(Failure::from)?;
        messages(py, &entries)
    }

    fn task_progress(&self, op: u32, attempt: u32, fraction: f64, message: &str) {
        self.core.task_progress(OpRef(op), attempt, fraction, message);
    }

    #[pyo3(signature = (kind, data, op=None, attempt=0))]
    fn stream(&self, kind: u8, data: &Bound<'_, PyAny>, op: Option<u32>, attempt: u32) -> PyResult<()> {
        let (kind, text) = encode::preview(kind, data)?;
        self.core.stream(kind, text.into(), op.map(|op| (OpRef(op), attempt)));
        Ok(())
    }

    // ── awaits and ends ─────────────────────────────────────────────────────────────────────────────────────────

    fn await_op(&self, op: u32) -> PyResult<()> {
        self.check_thread()?;
        Ok(self.core.await_op(OpRef(op)).map_err(Failure::from)?)
    }

    fn is_settled(&self, op: u32) -> bool {
        self.core.is_settled(OpRef(op))
    }

    fn abandon<'py>(&self, py: Python<'py>, op: u32) -> PyResult<Bound<'py, PyList>> {
        self.acting(py, |core| core.abandon(OpRef(op)))
    }

    /// Tells that several branches are alive, before one of them calls anything.
    fn note_concurrent(&self) {
        self.core.note_concurrent();
    }

    /// Whether something recorded has not been called again yet.
    fn is_replaying(&self) -> bool {
        self.core.is_replaying()
    }

    fn settle<'py>(&self, py: Python<'py>, concurrent: bool, outside: Option<u8>) -> PyResult<Bound<'py, PyList>> {
        let outside = outside.map(|outside| match outside {
            0 => Outside::Nothing,
            1 => Outside::Unknown,
            _ => Outside::Something,
        });
        self.acting(py, |core| core.settle(concurrent, outside))
    }

    fn completed<'py>(&self, py: Python<'py>, output: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let output = encode::payload(output)?;
        self.acting(py, |core| core.finish(Ending::Completed(output)))
    }

    fn failed<'py>(
        &self,
        py: Python<'py>,
        code: &str,
        error_type: &str,
        message: &str,
        traceback: Option<String>,
        unfit: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let failure = failure(code, error_type, message, traceback, Code::AgentFailed);
        self.acting(py, |core| core.finish(if unfit { Ending::Unfit(failure) } else { Ending::Failed(failure) }))
    }

    fn cancelled<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.acting(py, |core| core.finish(Ending::Cancelled))
    }

    fn task_completed<'py>(
        &self,
        py: Python<'py>,
        op: u32,
        attempt: u32,
        output: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let output = encode::output(output)?;
        self.acting(py, |core| core.task_ended(OpRef(op), attempt, AttemptResult::Completed(output)))
    }

    #[allow(clippy::too_many_arguments)]
    fn task_failed<'py>(
        &self,
        py: Python<'py>,
        op: u32,
        attempt: u32,
        code: &str,
        error_type: &str,
        message: &str,
        traceback: Option<String>,
        retryable: bool,
        pause: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let failure = failure(code, error_type, message, traceback, Code::TaskFailed);
        let result = AttemptResult::Failed { failure, retryable, pause: asked(pause) };
        self.acting(py, |core| core.task_ended(OpRef(op), attempt, result))
    }

    fn task_cancelled<'py>(&self, py: Python<'py>, op: u32, attempt: u32) -> PyResult<Bound<'py, PyList>> {
        self.acting(py, |core| core.task_ended(OpRef(op), attempt, AttemptResult::Cancelled))
    }

    fn task_heartbeat(&self, op: u32) {
        self.core.task_heartbeat(OpRef(op));
    }
}

/// A failure as Python tells it.
pub(crate) fn failure(
    code: &str,
    error_type: &str,
    message: &str,
    traceback: Option<String>,
    otherwise: Code,
) -> flovyn_core::model::Failure {
    let code = Code::parse(code).unwrap_or(otherwise);
    let mut failure = flovyn_core::model::Failure::new(code, error_type, message);
    failure.traceback = traceback;
    failure
}

fn flag(answer: Answer) -> bool {
    matches!(answer, Answer::Flag(true))
}

/// Seconds as a duration; negative ones are over already.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds.max(0.0)).map_err(|_| {
        Failure::Engine(Error::new(
            Code::InvalidArgument,
            format!("{seconds} is no number of seconds that can be waited for"),
        ))
        .into()
    })
}

/// The pause that an error asks for; what cannot be waited for asks for none.
pub(crate) fn asked(seconds: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds?).ok()
}

/// What the host must do, as tuples that begin with a number.
pub(crate) fn effects<'py>(py: Python<'py>, core: &Core) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for effect in core.take_effects() {
        match effect {
            HostEffect::Deliver(handed) => {
                for one in handed {
                    let (tag, value) = outcome(py, one.outcome)?;
                    list.append((0u8, one.op.0, tag, value))?;
                }
            }
            HostEffect::Start(start) => {
                let task = PyBytes::new(py, start.task.0.as_bytes());
                list.append((1u8, start.op.0, start.attempt, &*start.kind, task))?;
            }
            HostEffect::CancelTask(op) => list.append((2u8, op.0))?,
            HostEffect::Ask => list.append((4u8,))?,
            HostEffect::Warn(what) => list.append((5u8, what))?,
            HostEffect::Close(Closed::Finished(status)) => list.append((3u8, "finished", status.as_str()))?,
            HostEffect::Close(Closed::Evicted) => list.append((3u8, "evicted", ""))?,
            HostEffect::Close(Closed::Lost(error)) => list.append((3u8, "lost", error.to_string()))?,
        }
    }
    Ok(list)
}

/// 0: a value, 1: a failure, 2: out of time, 3: the run was asked to stop.
fn outcome(py: Python<'_>, outcome: Outcome) -> PyResult<(u8, Bound<'_, PyAny>)> {
    Ok(match outcome {
        Outcome::Value(value) | Outcome::Signal(value) => match decode::payload(py, &value) {
            Ok(value) => (0, value),
            Err(error) => (4, PyErr::from(error).into_value(py).into_bound(py).into_any()),
        },
        Outcome::Fired | Outcome::Done => (0, py.None().into_bound(py)),
        Outcome::Failed(failure) => (1, failed(py, &failure)?),
        Outcome::TimedOut => (2, py.None().into_bound(py)),
        Outcome::Cancelled => (3, py.None().into_bound(py)),
    })
}

/// A failure as `(code, type, message, kind, task, attempts, traceback)`.
pub(crate) fn failed<'py>(py: Python<'py>, failure: &flovyn_core::model::Failure) -> PyResult<Bound<'py, PyAny>> {
    let task = failure.task.map(|task| task.to_string());
    let parts = (
        failure.code.as_str(),
        &failure.error_type,
        &failure.message,
        &failure.kind,
        task,
        failure.attempts,
        &failure.traceback,
    );
    Ok(parts.into_pyobject(py)?.into_any())
}

/// Entries on their way to Python.
pub(crate) struct Branch(pub(crate) Vec<Entry>);

impl From<Branch> for crate::reply::Reply {
    fn from(branch: Branch) -> Self {
        Self::Object(Box::new(move |py| Ok(messages(py, &branch.0)?.into_any().unbind())))
    }
}

/// Entries as tuples, see [`message`].
pub(crate) fn messages<'py>(py: Python<'py>, entries: &[Entry]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for entry in entries {
        list.append(message(py, entry)?)?;
    }
    Ok(list)
}

/// An entry as `(id, parent, role, entry_type, content, turn_id, metadata, seconds)`.
fn message<'py>(py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyAny>> {
    let metadata = match &entry.new.metadata {
        Some(text) => Some(decode::json(py, text.as_bytes())?),
        None => None,
    };
    let parts = (
        entry.new.id.to_string(),
        entry.new.parent.map(|parent| parent.to_string()),
        &entry.new.role,
        &entry.new.entry_type,
        decode::payload(py, &entry.new.content)?,
        &entry.new.turn_id,
        metadata,
        entry.created_at.0 as f64 / 1e6,
    );
    Ok(parts.into_pyobject(py)?.into_any())
}
