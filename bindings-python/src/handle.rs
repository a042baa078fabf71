//! One run in the hands of a caller.

use crate::decode;
use crate::encode;
use crate::error::{Failure, OrRaise};
use crate::hub::{Hub, spawn};
use crate::reply::Reply;
use crate::session::failed;
use crate::value::{duration, text};
use flovyn_core::client::{Handle as Core, Outcome, StreamEvent};
use flovyn_core::error::Code;
use flovyn_core::host::shown;
use flovyn_core::host::stream::{Read, Stream};
use flovyn_core::host::{EndCode, Language, failure, fork_from, op_id};
use flovyn_core::id::RequestId;
use flovyn_core::model::{
    CancelMode, Cancellation, ChunkKind, Cursor, Delivery, Divergence, Execution, PageRequest, Resolution,
    ResumeRequest,
};
use flovyn_core::view::{Event, Run, Show, Style, Task};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::sync::Arc;

/// One run.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Handle {
    core: Core,
    runtime: tokio::runtime::Handle,
}

/// A handle on its way to Python.
pub(crate) struct Found(Handle);

impl Handle {
    pub(crate) fn of(core: Core, runtime: tokio::runtime::Handle) -> Found {
        Found(Self { core, runtime })
    }
}

impl From<Found> for Reply {
    fn from(found: Found) -> Self {
        Self::Object(Box::new(move |py| Ok(Py::new(py, found.0)?.into_any())))
    }
}

/// How a run ended, or where it waits: an `EndCode` with its value.
struct Ended(Result<Outcome, Box<Execution>>);

impl From<Ended> for Reply {
    fn from(ended: Ended) -> Self {
        Self::Object(Box::new(move |py| {
            let (code, value) = match &ended.0 {
                Ok(Outcome::Completed(output)) => (EndCode::Completed, decode::payload(py, output)?),
                Ok(Outcome::Failed(failure)) => (EndCode::Failed, failed(py, failure)?),
                Ok(Outcome::Cancelled(Some(kept))) => (EndCode::Cancelled, decode::payload(py, kept)?),
                Ok(Outcome::Cancelled(None)) => (EndCode::Cancelled, py.None().into_bound(py)),
                Err(run) => {
                    (EndCode::Waiting, decode::json(py, Run::of(run).show(Style::Python).to_string().as_bytes())?)
                }
            };
            Ok((code.number(), value).into_pyobject(py)?.into_any().unbind())
        }))
    }
}

#[pymethods]
impl Handle {
    #[getter]
    fn id(&self) -> String {
        self.core.id().to_string()
    }

    #[getter]
    fn key(&self) -> Option<&str> {
        self.core.key()
    }

    fn describe(&self, hub: &Hub, token: u64) {
        let core = self.core.clone();
        spawn(&self.runtime, &hub.inbox, token, async move { shown::described(&core, Style::Python).await });
    }

    fn status(&self, hub: &Hub, token: u64) {
        let core = self.core.clone();
        spawn(&self.runtime, &hub.inbox, token, async move { Ok(core.status().await?.as_str().to_owned()) });
    }

    #[pyo3(signature = (hub, token, timeout=None))]
    fn outcome(&self, hub: &Hub, token: u64, timeout: Option<f64>) -> PyResult<Abort> {
        let (core, timeout) = (self.core.clone(), timeout.map(duration).transpose()?);
        let end = async move { core.outcome(timeout).await.map(|outcome| Ended(Ok(outcome))) };
        Ok(Abort(spawn(&self.runtime, &hub.inbox, token, end)))
    }

    fn outcome_or_wait(&self, hub: &Hub, token: u64) -> Abort {
        let core = self.core.clone();
        let end = async move { core.outcome_or_wait().await.map(Ended) };
        Abort(spawn(&self.runtime, &hub.inbox, token, end))
    }

    fn late(&self, hub: &Hub, token: u64, limit: f64) -> PyResult<()> {
        let (core, limit) = (self.core.clone(), duration(limit)?);
        spawn(&self.runtime, &hub.inbox, token, async move { Err::<(), _>(core.late(limit).await) });
        Ok(())
    }

    #[pyo3(signature = (after=None, children=false))]
    fn stream(&self, after: Option<&str>, children: bool) -> PyResult<Watching> {
        let _inside = self.runtime.enter();
        let reader = Stream::of(&self.core, after, children).map_err(Failure::Engine)?;
        Ok(Watching { reader: Arc::new(tokio::sync::Mutex::new(reader)), runtime: self.runtime.clone() })
    }

    #[pyo3(signature = (hub, token, name, payload, delivery, idempotency_key=None))]
    fn signal(
        &self,
        hub: &Hub,
        token: u64,
        name: String,
        payload: &Bound<'_, PyAny>,
        delivery: &str,
        idempotency_key: Option<String>,
    ) -> PyResult<()> {
        let delivery: Delivery = Language::Python.word("delivery", delivery).or_raise()?;
        let (core, payload) = (self.core.clone(), encode::payload(payload)?);
        spawn(&self.runtime, &hub.inbox, token, async move {
            let stored = core.signal(&name, payload, delivery, idempotency_key).await?;
            Ok(stored.id.to_string())
        });
        Ok(())
    }

    #[pyo3(signature = (hub, token, mode, timeout=None))]
    fn cancel(&self, hub: &Hub, token: u64, mode: &str, timeout: Option<f64>) -> PyResult<()> {
        let mode: CancelMode = Language::Python.word("mode", mode).or_raise()?;
        let (core, grace) =
            (self.core.clone(), timeout.map(duration).transpose()?.unwrap_or(Cancellation::USUAL_GRACE));
        spawn(&self.runtime, &hub.inbox, token, async move {
            Ok(core.cancel(mode, grace).await?.status.as_str().to_owned())
        });
        Ok(())
    }

    #[pyo3(signature = (hub, token, *, retry=false, max_steps=None, max_tail=None, budget=None, message=None))]
    #[allow(clippy::too_many_arguments)]
    fn resume(
        &self,
        hub: &Hub,
        token: u64,
        retry: bool,
        max_steps: Option<u32>,
        max_tail: Option<u32>,
        budget: Option<&Bound<'_, PyAny>>,
        message: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let budget = budget.map(text).transpose()?;
        let message = message.map(encode::payload).transpose()?;
        let request =
            ResumeRequest { retry, max_steps, max_tail, budget, message, request_id: Some(RequestId::fresh()) };
        let core = self.core.clone();
        spawn(
            &self.runtime,
            &hub.inbox,
            token,
            async move { Ok(core.resume(request).await?.status.as_str().to_owned()) },
        );
        Ok(())
    }

    /// `state` and `input` are `(value,)` where they are given.
    #[pyo3(signature = (hub, token, *, checkpoint=None, entry=None, op=None, id=None, state=None, input=None))]
    #[allow(clippy::too_many_arguments)]
    fn fork(
        &self,
        hub: &Hub,
        token: u64,
        checkpoint: Option<u32>,
        entry: Option<&str>,
        op: Option<&str>,
        id: Option<String>,
        state: Option<(Bound<'_, PyAny>,)>,
        input: Option<(Bound<'_, PyAny>,)>,
    ) -> PyResult<()> {
        let from = fork_from(checkpoint, entry, op).or_raise()?;
        let state = state.map(|(state,)| encode::payload(&state)).transpose()?;
        let input = input.map(|(input,)| encode::payload(&input)).transpose()?;
        let (core, runtime) = (self.core.clone(), self.runtime.clone());
        spawn(&self.runtime, &hub.inbox, token, async move {
            core.fork(from, id.as_deref(), state, input).await.map(|fork| Handle::of(fork, runtime))
        });
        Ok(())
    }

    /// `result` is `(value,)`, `error` is `(type, message)`; without both: retry.
    #[pyo3(signature = (hub, token, op, *, result=None, error=None))]
    fn resolve(
        &self,
        hub: &Hub,
        token: u64,
        op: &str,
        result: Option<(Bound<'_, PyAny>,)>,
        error: Option<(String, String)>,
    ) -> PyResult<()> {
        let op = op_id(op).or_raise()?;
        let resolution = match (result, error) {
            (Some((value,)), _) => Resolution::Result(encode::payload(&value)?),
            (None, Some((kind, message))) => {
                Resolution::Error(failure("TaskFailed", &kind, &message, None, Code::TaskFailed))
            }
            (None, None) => Resolution::Retry,
        };
        let core = self.core.clone();
        spawn(&self.runtime, &hub.inbox, token, async move {
            Ok(Task::of(&core.resolve(op, resolution).await?).show(Style::Python))
        });
        Ok(())
    }

    fn resolve_divergence(&self, hub: &Hub, token: u64, decision: &str) -> PyResult<()> {
        let decision: Divergence = Language::Python.word("decision", decision).or_raise()?;
        let (core, runtime) = (self.core.clone(), self.runtime.clone());
        spawn(&self.runtime, &hub.inbox, token, async move {
            core.resolve_divergence(decision).await.map(|run| Handle::of(run, runtime))
        });
        Ok(())
    }

    /// Ends with `(messages, position)`.
    fn messages(&self, hub: &Hub, token: u64) {
        let core = self.core.clone();
        spawn(&self.runtime, &hub.inbox, token, async move {
            let snapshot = core.snapshot().await?;
            Ok(Reply::Object(Box::new(move |py| {
                let items = crate::session::messages(py, &snapshot.entries)?;
                Ok((items, snapshot.position.to_string()).into_pyobject(py)?.into_any().unbind())
            })))
        });
    }

    /// Ends with a value of the run: its `input`, its `output`, or the `state` of a checkpoint; with none where it has none.
    #[pyo3(signature = (hub, token, what, checkpoint=None))]
    fn value(&self, hub: &Hub, token: u64, what: String, checkpoint: Option<u32>) {
        let core = self.core.clone();
        spawn(&self.runtime, &hub.inbox, token, async move {
            let value = shown::value(&core, &what, checkpoint).await?;
            Ok(value.map_or(Reply::Nothing, Reply::Value))
        });
    }

    /// Ends with `(messages, next)`.
    #[pyo3(signature = (hub, token, limit, after=None))]
    fn entries(&self, hub: &Hub, token: u64, limit: usize, after: Option<String>) {
        let core = self.core.clone();
        spawn(&self.runtime, &hub.inbox, token, async move {
            let page = core.entries(PageRequest { limit, after: after.map(Cursor) }).await?;
            Ok(Reply::Object(Box::new(move |py| {
                let items = crate::session::messages(py, &page.items)?;
                Ok((items, page.next.map(|cursor| cursor.0)).into_pyobject(py)?.into_any().unbind())
            })))
        });
    }

    #[pyo3(signature = (hub, token, limit, after=None))]
    fn checkpoints(&self, hub: &Hub, token: u64, limit: usize, after: Option<String>) {
        let core = self.core.clone();
        spawn(
            &self.runtime,
            &hub.inbox,
            token,
            async move { shown::checkpoints(&core, limit, after, Style::Python).await },
        );
    }

    #[pyo3(signature = (hub, token, limit, after=None))]
    fn tasks(&self, hub: &Hub, token: u64, limit: usize, after: Option<String>) {
        let core = self.core.clone();
        spawn(&self.runtime, &hub.inbox, token, async move { shown::tasks(&core, limit, after, Style::Python).await });
    }
}

/// Gives up a call whose caller no longer waits.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Abort(pub(crate) tokio::task::AbortHandle);

#[pymethods]
impl Abort {
    fn abort(&self) {
        self.0.abort();
    }
}

/// A reader of a run's events, or of those of all below it too.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Watching {
    reader: Arc<tokio::sync::Mutex<Stream>>,
    runtime: tokio::runtime::Handle,
}

#[pymethods]
impl Watching {
    /// Ends with a list of events; an empty one after the last event.
    fn next(&self, hub: &Hub, token: u64) -> Abort {
        let reader = self.reader.clone();
        let read = async move { reader.lock().await.next().await.map(Events) };
        Abort(spawn(&self.runtime, &hub.inbox, token, read))
    }

    /// Ends with the bytes of some server-sent events; with none after the last event.
    fn next_sent(&self, hub: &Hub, token: u64) -> Abort {
        let reader = self.reader.clone();
        let read = async move { reader.lock().await.next_sent().await.map(Sent) };
        Abort(spawn(&self.runtime, &hub.inbox, token, read))
    }
}

struct Sent(Vec<u8>);

impl From<Sent> for Reply {
    fn from(sent: Sent) -> Self {
        Self::Object(Box::new(move |py| Ok(PyBytes::new(py, &sent.0).into_any().unbind())))
    }
}

struct Events(Vec<Read>);

impl From<Events> for Reply {
    fn from(events: Events) -> Self {
        Self::Object(Box::new(move |py| Ok(listed(py, &events.0)?.into_any().unbind())))
    }
}

/// Events as tuples `(what, id, run, depth, …)`.
fn listed<'py>(py: Python<'py>, events: &[Read]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for Read { id, execution, depth, event } in events {
        let (id, run) = (id.as_str(), execution.0.as_bytes().as_slice());
        match event {
            StreamEvent::Durable(event) => {
                let facts = decode::json(py, Event::of(event).show(Style::Python).to_string().as_bytes())?;
                list.append(("durable", id, run, depth, facts))?;
            }
            StreamEvent::Chunk(_, chunk) => {
                let (what, data) = match chunk.kind {
                    ChunkKind::Token => ("token", chunk.data.as_ref().into_pyobject(py)?.into_any()),
                    ChunkKind::Data => ("data", decode::json(py, chunk.data.as_bytes())?),
                    ChunkKind::Error => ("error", decode::json(py, chunk.data.as_bytes())?),
                    ChunkKind::Progress => ("progress", decode::json(py, chunk.data.as_bytes())?),
                    // Readers get a retraction in its place.
                    ChunkKind::Void => continue,
                };
                let op = format!("{}-{}-{}", chunk.execution, chunk.segment, chunk.sequence);
                list.append((what, id, run, depth, data, op, chunk.attempt))?;
            }
            StreamEvent::Retract { op: (segment, sequence), .. } => {
                list.append(("retract", id, run, depth, format!("{execution}-{segment}-{sequence}")))?;
            }
            StreamEvent::Gap(_) => list.append(("gap", id, run, depth))?,
        }
    }
    Ok(list)
}
