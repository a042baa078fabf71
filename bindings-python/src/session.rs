//! One activation of an agent, as its context in Python sees it.
//!
//! Every method is one quick call into the engine. Those that may give the host something to do return it, so that a
//! step needs no wake-up of the loop for what happened on the loop's own thread.

use crate::decode;
use crate::encode;
use crate::error::OrRaise;
use crate::hub::{Hub, spawn};
use crate::task::TaskSpec;
use crate::value::{duration, text};
use flovyn_core::error::Code;
use flovyn_core::host::{
    EffectCode, EventParts, HostSession, Language, OnceCode, OutcomeCode, child_of, closed, failure, request_of,
};
use flovyn_core::journal::{Call, ChildCall, ChildOptions, Completion, Ending, OnceBegin, OpRef, Outcome};
use flovyn_core::model::{
    AttemptResult, Cancellation, ChildEvent, Entry, MessageBody, OnParentEnd, Persistence, SharedContext, StartLimits,
    Usage,
};
use flovyn_core::payload::Payload;
use flovyn_core::session::{HostEffect, Session as Core};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One activation of an agent.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Session(HostSession);

impl Session {
    pub(crate) fn of(core: Arc<Core>, threads: tokio::runtime::Handle) -> Self {
        Self(HostSession::new(core, threads))
    }

    fn send(&self, body: MessageBody, once: Option<&str>) -> PyResult<u32> {
        Ok(self.0.call(Call::Send(body), once).or_raise()?.op.0)
    }

    /// The value of a payload, fetched where it is not in memory.
    fn loaded<'py>(&self, py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyAny>> {
        if payload.bytes().is_ok() {
            return Ok(decode::payload(py, payload)?);
        }
        let payload = py.detach(|| self.0.loaded(payload)).or_raise()?;
        Ok(decode::payload(py, &payload)?)
    }

    /// Does something after which the effects are taken at once. The engine may write to its store meanwhile, so other
    /// threads of the interpreter go on.
    fn acting<'py>(&self, py: Python<'py>, act: impl FnOnce(&Core) + Send) -> PyResult<Bound<'py, PyList>> {
        py.detach(|| self.0.acting(act));
        effects(py, self.0.core())
    }
}

#[pymethods]
impl Session {
    /// From now on only the calling thread may make calls.
    fn bind_thread(&self) {
        self.0.bind_thread();
    }

    fn execution_id(&self) -> String {
        self.0.core().execution_id().to_string()
    }

    fn org_id(&self) -> String {
        self.0.core().org().to_string()
    }

    fn key(&self) -> Option<String> {
        self.0.core().execution().new.key.clone()
    }

    /// JSON of what the parent gave of its conversation.
    fn shared_context(&self) -> Option<String> {
        self.0.core().execution().new.shared_context.as_ref().map(|shared| shared.json().to_owned())
    }

    fn input<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.loaded(py, &self.0.core().execution().new.input)
    }

    /// The state of the last checkpoint as `(value,)`; none before the first.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>,)>> {
        match self.0.core().state() {
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
        once: Option<&str>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let called = self.0.task(&spec.0, encode::payload(input)?, key, once).or_raise()?;
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
        once: Option<&str>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let metadata = match metadata {
            Some(value) => Some(String::from_utf8_lossy(&encode::json(value)?).into_owned()),
            None => None,
        };
        let content = encode::payload(content)?;
        let entry = Call::Entry { role, entry_type, content, turn_id, metadata, thread: thread.into() };
        let called = self.0.call(entry, once).or_raise()?;
        Ok(PyBytes::new(py, called.entry.unwrap_or_default().0.as_bytes()))
    }

    #[pyo3(signature = (name, timeout=None, once=None))]
    fn call_signal(&self, name: &str, timeout: Option<f64>, once: Option<&str>) -> PyResult<u32> {
        let timeout = timeout.map(duration).transpose()?;
        Ok(self.0.signal(name, timeout, once).or_raise()?.0)
    }

    #[pyo3(signature = (seconds, once=None))]
    fn call_timer(&self, seconds: f64, once: Option<&str>) -> PyResult<u32> {
        let timer = Call::Timer { duration: duration(seconds)? };
        Ok(self.0.call(timer, once).or_raise()?.op.0)
    }

    /// Starts a child: its op, and its id.
    #[pyo3(signature = (kind, input, id=None, key=None, queue=None, max_steps=None, timeout=None, start_timeout=None, priority=0, metadata=None, budget=None, on_parent_end=None, shared_context=None, persistence=None, thread="", hand_off=None, once=None))]
    #[allow(clippy::too_many_arguments)]
    fn call_child<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        input: &Bound<'py, PyAny>,
        id: Option<&str>,
        key: Option<&str>,
        queue: Option<String>,
        max_steps: Option<u32>,
        timeout: Option<f64>,
        start_timeout: Option<f64>,
        priority: i32,
        metadata: Option<BTreeMap<String, String>>,
        budget: Option<&Bound<'py, PyAny>>,
        on_parent_end: Option<&str>,
        shared_context: Option<&Bound<'py, PyAny>>,
        persistence: Option<&str>,
        thread: &str,
        hand_off: Option<&str>,
        once: Option<&str>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let budget = budget.map(text).transpose()?;
        let shared = shared_context.map(text).transpose()?;
        let timeout = timeout.map(duration).transpose()?;
        let start_timeout = start_timeout.map(duration).transpose()?;
        let options = ChildOptions {
            id: id.map(Into::into),
            key: key.map(Into::into),
            queue,
            limits: StartLimits { max_steps, timeout, start_timeout, budget, ..StartLimits::default() },
            priority,
            metadata: metadata.unwrap_or_default(),
            on_parent_end: on_parent_end.map(OnParentEnd::parse).transpose().or_raise()?.unwrap_or_default(),
            persistence: persistence.map(Persistence::parse).transpose().or_raise()?.unwrap_or_default(),
            shared_context: shared.map(|json| SharedContext::given(&json, thread)).transpose().or_raise()?,
        };
        let hand_off = hand_off.map(Completion::parse).transpose().or_raise()?;
        let call = ChildCall { kind: kind.into(), input: encode::payload(input)?, options, hand_off };
        let called = self.0.call(Call::Child(Box::new(call)), once).or_raise()?;
        Ok((called.op.0, PyBytes::new(py, called.child.unwrap_or_default().0.as_bytes())))
    }

    #[pyo3(signature = (name, payload, once=None))]
    fn call_tell(&self, name: String, payload: &Bound<'_, PyAny>, once: Option<&str>) -> PyResult<u32> {
        self.send(MessageBody::ToParent { name, payload: encode::payload(payload)?, is_request: false }, once)
    }

    #[pyo3(signature = (name, payload, timeout=None, once=None))]
    fn call_request(
        &self,
        name: &str,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        once: Option<&str>,
    ) -> PyResult<u32> {
        let timeout = timeout.map(duration).transpose()?;
        Ok(self.0.request(name, encode::payload(payload)?, timeout, once).or_raise()?.0)
    }

    #[pyo3(signature = (child, name, payload, delivery, once=None))]
    fn call_send(
        &self,
        child: &str,
        name: String,
        payload: &Bound<'_, PyAny>,
        delivery: &str,
        once: Option<&str>,
    ) -> PyResult<u32> {
        let (child, delivery) = (child_of(child).or_raise()?, Language::Python.word("delivery", delivery).or_raise()?);
        self.send(MessageBody::ToChild { child, name, payload: encode::payload(payload)?, delivery }, once)
    }

    #[pyo3(signature = (child, request, payload, once=None))]
    fn call_answer(&self, child: &str, request: &str, payload: &Bound<'_, PyAny>, once: Option<&str>) -> PyResult<u32> {
        let request = request_of(child, request).or_raise()?;
        let payload = encode::payload(payload)?;
        self.send(MessageBody::Answer { child: request.child, request: request.id, payload }, once)
    }

    #[pyo3(signature = (child, mode, grace=None, once=None))]
    fn call_stop(&self, child: &str, mode: &str, grace: Option<f64>, once: Option<&str>) -> PyResult<u32> {
        let (child, mode) = (child_of(child).or_raise()?, Language::Python.word("mode", mode).or_raise()?);
        let grace = grace.map(duration).transpose()?.unwrap_or(Cancellation::USUAL_GRACE);
        self.send(MessageBody::Stop { child, how: Cancellation { mode, grace } }, once)
    }

    #[pyo3(signature = (child, timeout=None, once=None))]
    fn call_child_event(&self, child: &str, timeout: Option<f64>, once: Option<&str>) -> PyResult<u32> {
        let timeout = timeout.map(duration).transpose()?;
        Ok(self.0.child_event(child, timeout, once).or_raise()?.0)
    }

    #[pyo3(signature = (task, once=None))]
    fn call_attach<'py>(
        &self,
        py: Python<'py>,
        task: &str,
        once: Option<&str>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let (op, task) = self.0.attach(task, once).or_raise()?;
        Ok((op.0, PyBytes::new(py, task.0.as_bytes())))
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
        once: Option<&str>,
    ) -> PyResult<()> {
        let usage = Usage { calls: 1, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros };
        self.0.call(Call::Usage { model, usage }, once).or_raise()?;
        Ok(())
    }

    #[pyo3(signature = (once=None))]
    fn call_step(&self, once: Option<&str>) -> PyResult<u32> {
        Ok(self.0.call(Call::StepMark, once).or_raise()?.op.0)
    }

    #[pyo3(signature = (once=None))]
    fn call_flush(&self, once: Option<&str>) -> PyResult<u32> {
        Ok(self.0.call(Call::Flush, once).or_raise()?.op.0)
    }

    #[pyo3(signature = (once=None))]
    fn call_persist(&self, once: Option<&str>) -> PyResult<u32> {
        Ok(self.0.persist(once).or_raise()?.0)
    }

    /// A `OnceCode` with the value that it has, or with the op to await.
    fn once_begin<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        input: &Bound<'py, PyAny>,
    ) -> PyResult<(u32, Bound<'py, PyAny>)> {
        let begun = self.0.once_begin(name, &encode::payload(input)?).or_raise()?;
        let code = OnceCode::of(&begun).number();
        Ok(match begun {
            OnceBegin::Done(value) => (code, decode::payload(py, &value)?),
            OnceBegin::Recorded(op) => (code, op.0.into_pyobject(py)?.into_any()),
            OnceBegin::Run => (code, py.None().into_bound(py)),
        })
    }

    fn once_end(&self, name: &str, input: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<u32> {
        let (input, value) = (encode::payload(input)?, encode::payload(value)?);
        Ok(self.0.once_end(name, &input, value).or_raise()?.0)
    }

    fn checkpoint(&self, state: &Bound<'_, PyAny>, metadata: &Bound<'_, PyAny>) -> PyResult<u32> {
        let metadata = String::from_utf8_lossy(&encode::json(metadata)?).into_owned();
        Ok(self.0.checkpoint(encode::payload(state)?, metadata).or_raise()?.0)
    }

    // ── reads ───────────────────────────────────────────────────────────────────────────────────────────────────

    #[pyo3(signature = (name, once=None))]
    fn has_signal(&self, name: &str, once: Option<&str>) -> PyResult<bool> {
        self.0.has_signal(name, once).or_raise()
    }

    #[pyo3(signature = (name, turn, once=None))]
    fn drain_signals<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        turn: bool,
        once: Option<&str>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for value in py.detach(|| self.0.drain_signals(name, turn, once)).or_raise()? {
            list.append(decode::payload(py, &value)?)?;
        }
        Ok(list)
    }

    #[pyo3(signature = (once=None))]
    fn check_cancellation(&self, once: Option<&str>) -> PyResult<bool> {
        self.0.check_cancellation(once).or_raise()
    }

    #[pyo3(signature = (once=None))]
    fn remaining_budget<'py>(&self, py: Python<'py>, once: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        match self.0.remaining_budget(once).or_raise()? {
            Some(left) => Ok(decode::payload(py, &left)?),
            None => Ok(py.None().into_bound(py)),
        }
    }

    fn is_cancel_requested(&self) -> bool {
        self.0.core().is_cancel_requested()
    }

    /// Seconds since 1970 by the run's own clock.
    fn time(&self) -> f64 {
        self.0.core().time().0 as f64 / 1e6
    }

    fn random_number(&self) -> PyResult<f64> {
        self.0.random_number().or_raise()
    }

    fn random<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.random().or_raise()?))
    }

    fn open_thread(&self, thread: &str) {
        self.0.core().open_thread(thread);
    }

    fn leaf(&self, thread: &str) -> Option<String> {
        self.0.core().leaf(thread).map(|leaf| leaf.to_string())
    }

    /// Reads the branch of a thread through the hub.
    fn branch(&self, hub: &Hub, token: u64, thread: String) {
        let core = self.0.core().clone();
        spawn(self.0.threads(), &hub.inbox, token, async move { core.branch(&thread).await.map(Branch) });
    }

    /// Reads the branch of a thread here and now, without the GIL.
    fn branch_now<'py>(&self, py: Python<'py>, thread: &str) -> PyResult<Bound<'py, PyList>> {
        let entries = py.detach(|| self.0.branch_now(thread)).or_raise()?;
        messages(py, &entries)
    }

    fn task_progress(&self, op: u32, attempt: u32, fraction: f64, message: &str) {
        self.0.core().task_progress(OpRef(op), attempt, fraction, message);
    }

    #[pyo3(signature = (kind, data, op=None, attempt=0))]
    fn stream(&self, kind: u32, data: &Bound<'_, PyAny>, op: Option<u32>, attempt: u32) -> PyResult<()> {
        self.0.stream(kind, encode::preview(kind, data)?.into(), op.map(|op| (op, attempt)));
        Ok(())
    }

    // ── awaits and ends ─────────────────────────────────────────────────────────────────────────────────────────

    fn await_op(&self, op: u32) -> PyResult<()> {
        self.0.await_op(op).or_raise()
    }

    fn abandon<'py>(&self, py: Python<'py>, op: u32) -> PyResult<Bound<'py, PyList>> {
        self.acting(py, |core| core.abandon(OpRef(op)))
    }

    /// Tells that several branches are alive, before one of them calls anything.
    fn note_concurrent(&self) {
        self.0.core().note_concurrent();
    }

    /// Whether something recorded has not been called again yet.
    fn is_replaying(&self) -> bool {
        self.0.core().is_replaying()
    }

    /// Says that the code is quiet, and by an `OutsideCode` what may make it go on, where that was asked.
    fn settle<'py>(&self, py: Python<'py>, concurrent: bool, outside: Option<u32>) -> PyResult<Bound<'py, PyList>> {
        py.detach(|| self.0.settle(concurrent, outside));
        effects(py, self.0.core())
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
        let result = AttemptResult::Failed { failure, retryable, pause: Language::Python.pause(pause) };
        self.acting(py, |core| core.task_ended(OpRef(op), attempt, result))
    }

    fn task_heartbeat(&self, op: u32) {
        self.0.core().task_heartbeat(OpRef(op));
    }
}

/// What the host must do, as tuples that begin with an `EffectCode`.
pub(crate) fn effects<'py>(py: Python<'py>, core: &Core) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for effect in core.take_effects() {
        match effect {
            HostEffect::Deliver(handed) => {
                for one in handed {
                    let (code, value) = outcome(py, one.outcome)?;
                    list.append((EffectCode::Deliver.number(), one.op.0, code.number(), value))?;
                }
            }
            HostEffect::Start(start) => {
                let task = PyBytes::new(py, start.task.0.as_bytes());
                list.append((EffectCode::Start.number(), start.op.0, start.attempt, &*start.kind, task))?;
            }
            HostEffect::CancelTask(op) => list.append((EffectCode::CancelTask.number(), op.0))?,
            HostEffect::Ask => list.append((EffectCode::Ask.number(),))?,
            HostEffect::Warn(what) => list.append((EffectCode::Warn.number(), what))?,
            HostEffect::Close(why) => {
                let (reason, detail) = closed(&why);
                list.append((EffectCode::Close.number(), reason, detail))?;
            }
        }
    }
    Ok(list)
}

/// An outcome with what comes with its code.
fn outcome(py: Python<'_>, outcome: Outcome) -> PyResult<(OutcomeCode, Bound<'_, PyAny>)> {
    let code = OutcomeCode::of(&outcome);
    let value = match outcome {
        Outcome::Value(value) | Outcome::Signal(value) => match decode::payload(py, &value) {
            Ok(value) => value,
            Err(error) => {
                let error = PyErr::from(error).into_value(py).into_bound(py).into_any();
                return Ok((OutcomeCode::Unreadable, error));
            }
        },
        Outcome::Event(event) => return event_parts(py, *event),
        Outcome::Failed(failure) => failed(py, &failure)?,
        Outcome::Fired | Outcome::Done | Outcome::TimedOut | Outcome::Cancelled => py.None().into_bound(py),
    };
    Ok((code, value))
}

/// What has happened to a child as `(kind, name, value, child, request, failure)`.
fn event_parts(py: Python<'_>, event: ChildEvent) -> PyResult<(OutcomeCode, Bound<'_, PyAny>)> {
    let value = match event.payload().map(|payload| decode::payload(py, payload)) {
        Some(Ok(value)) => value,
        Some(Err(error)) => {
            return Ok((OutcomeCode::Unreadable, PyErr::from(error).into_value(py).into_bound(py).into_any()));
        }
        None => py.None().into_bound(py),
    };
    let EventParts { kind, name, child, request, failure, overrun } = EventParts::of(event);
    let failure = failure.as_ref().map(|failure| failed(py, failure)).transpose()?;
    let overrun =
        overrun.map(|overrun| decode::json(py, &serde_json::to_vec(&overrun).unwrap_or_default())).transpose()?;
    let event = (kind, name, value, child, request, failure, overrun);
    Ok((OutcomeCode::Event, event.into_pyobject(py)?.into_any()))
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
