//! A worker's side towards the engine: how what waits for its loop gets there, and the attempts that it runs.

use crate::decode;
use crate::encode;
use crate::error::OrRaise;
use crate::hub::{Hub, Inbox, Note, spawn};
use crate::memory::{Filling, LARGE};
use crate::runtime::Runtime;
use crate::session::{Session, effects};
use crate::toolkit::Toolkit;
use crate::value::duration;
use flovyn_core::error::Code;
use flovyn_core::host::{
    Activation, Activations, AgentDeclaration, CompositeHost, Language, NewsCode, PreviewCode, Wake, WorkerSettings,
    failure,
};
use flovyn_core::model::AttemptResult;
use flovyn_core::payload::{Encoding, Payload};
use flovyn_core::storage::stored::Room;
use flovyn_core::sync::Mutex;
use flovyn_core::worker::{Host, Ticket as CoreTicket, Worker as CoreWorker};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::sync::{Arc, OnceLock, Weak};

/// What a worker has for its loop, by the token under which the loop listens for it.
#[derive(Clone)]
pub(crate) struct News {
    token: u64,
    activations: Arc<Activations>,
    threads: tokio::runtime::Handle,
}

impl News {
    /// Appends all that waits as `(token, None, news)`, where news begin with a `NewsCode`.
    pub(crate) fn append_to(&self, py: Python<'_>, list: &Bound<'_, PyList>) -> PyResult<()> {
        for activation in self.activations.poll() {
            let news = match activation {
                Activation::Agent(id, core) => {
                    let kind = core.execution().new.kind.clone();
                    let session = Py::new(py, Session::of(core, self.threads.clone()))?;
                    (NewsCode::Agent.number(), id, session, kind).into_pyobject(py)?
                }
                Activation::Effects(id, session) => {
                    let effects = effects(py, &session)?;
                    if effects.is_empty() {
                        continue;
                    }
                    (NewsCode::Effects.number(), id, effects).into_pyobject(py)?
                }
                Activation::Task(id, claimed) => {
                    let Some(core) = self.activations.ticket(id) else { continue };
                    let ticket = Ticket { id, core, activations: self.activations.clone() };
                    let task = &claimed.task;
                    let input = match decode::payload(py, &task.new.input) {
                        Ok(input) => input,
                        Err(error) => {
                            ticket.unreadable(py, &error.into());
                            continue;
                        }
                    };
                    let uuid = PyBytes::new(py, task.new.id.0.as_bytes());
                    let (kind, ticket) = (&task.new.kind, Py::new(py, ticket)?);
                    let code = NewsCode::Task.number();
                    (code, id, ticket, kind, input, uuid, task.attempt, claimed.reconcile).into_pyobject(py)?
                }
                Activation::CancelTask(id) => (NewsCode::CancelTask.number(), id).into_pyobject(py)?,
            };
            list.append((self.token, py.None(), news))?;
        }
        Ok(())
    }
}

/// Tells the loop of a hub that a worker has something for it.
struct LoopWake {
    inbox: Arc<Inbox>,
    token: u64,
    threads: tokio::runtime::Handle,
    /// Set once both are made: each needs the other.
    activations: OnceLock<Weak<Activations>>,
}

impl Wake for LoopWake {
    fn ready(&self) {
        if let Some(activations) = self.activations.get().and_then(Weak::upgrade) {
            self.inbox.push(Note::News(News { token: self.token, activations, threads: self.threads.clone() }));
        }
    }

    fn room(&self, value: &Payload) -> Option<Box<dyn Room>> {
        let wanted = value.encoding == Encoding::Raw && value.size() >= LARGE as u64;
        if wanted { Filling::for_bytes(value.size()) } else { None }
    }
}

/// A worker: declared first, then started.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Worker {
    token: u64,
    activations: Arc<Activations>,
    threads: tokio::runtime::Handle,
    started: Arc<Mutex<Option<CoreWorker>>>,
}

#[pymethods]
impl Worker {
    #[new]
    fn new(runtime: &Runtime, hub: &Hub) -> Self {
        let (inbox, threads) = (hub.inbox.clone(), runtime.threads());
        let token = inbox.token();
        let wake = Arc::new(LoopWake { inbox, token, threads: threads.clone(), activations: OnceLock::new() });
        let activations = Activations::new(wake.clone());
        let _ = wake.activations.set(Arc::downgrade(&activations));
        Self { token, activations, threads, started: Arc::default() }
    }

    /// Names the worker among what a hub drains.
    #[getter]
    fn token(&self) -> u64 {
        self.token
    }

    #[allow(clippy::too_many_arguments)]
    fn serve_agent(
        &self,
        kind: &str,
        stateful: bool,
        code: Option<String>,
        on_divergence: String,
        on_error: Option<String>,
        cancellable: bool,
        replay_timeout: Option<f64>,
    ) -> PyResult<()> {
        let declared = AgentDeclaration { stateful, code, on_divergence, on_error, cancellable, replay_timeout };
        self.activations.serve_agent(kind, declared.config(Language::Python).or_raise()?);
        Ok(())
    }

    /// Serves a task from now on.
    fn serve_task(&self, kind: &str) {
        if self.activations.serve_task(kind)
            && let Some(worker) = &*self.started.lock()
        {
            worker.nudge();
        }
    }

    /// Starts to poll.
    #[pyo3(signature = (hub, token, runtime, toolkit, *, queue, max_agents, max_tasks=None, max_parked=None, only=None))]
    #[allow(clippy::too_many_arguments)]
    fn start(
        &self,
        hub: &Hub,
        token: u64,
        runtime: &Runtime,
        toolkit: &Toolkit,
        queue: String,
        max_agents: usize,
        max_tasks: Option<usize>,
        max_parked: Option<usize>,
        only: Option<String>,
    ) -> PyResult<()> {
        let options = WorkerSettings { queue, max_agents, max_tasks, max_parked, only }.options().or_raise()?;
        let (host, core) = runtime.opened();
        let (own, started): (Arc<dyn Host>, _) = (self.activations.clone(), self.started.clone());
        let served = Arc::new(CompositeHost::new([own, toolkit.host()]).or_raise()?);
        spawn(&self.threads, &hub.inbox, token, async move {
            host.check_process()?;
            let worker = core.worker(served, options).await?;
            *started.lock() = Some(worker);
            Ok(())
        });
        Ok(())
    }

    /// Looks for work now.
    fn nudge(&self) {
        if let Some(worker) = &*self.started.lock() {
            worker.nudge();
        }
    }

    /// Drops waiting runs from memory.
    fn evict(&self) {
        if let Some(worker) = &*self.started.lock() {
            worker.evict_parked();
        }
    }

    /// Stops: runs are put away and given back, tasks get the grace.
    fn close(&self, hub: &Hub, token: u64, grace: f64) -> PyResult<()> {
        let (worker, grace) = (self.started.lock().clone(), duration(grace)?);
        spawn(&self.threads, &hub.inbox, token, async move {
            match worker {
                Some(worker) => worker.close(grace).await,
                None => Ok(()),
            }
        });
        Ok(())
    }
}

/// A claimed attempt of a task; its first reported end counts.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Ticket {
    id: u64,
    core: CoreTicket,
    activations: Arc<Activations>,
}

impl Ticket {
    /// The attempt cannot begin: its input cannot be shown to Python.
    fn unreadable(&self, py: Python<'_>, error: &PyErr) {
        let named = error.get_type(py).name().map_or_else(|_| "Exception".to_owned(), |name| name.to_string());
        let failure = failure("NotSerializable", &named, &error.value(py).to_string(), None, Code::NotSerializable);
        self.finish(AttemptResult::Failed { failure, retryable: false, pause: None });
    }

    fn finish(&self, result: AttemptResult) {
        self.activations.task_ended(self.id, result);
    }
}

#[pymethods]
impl Ticket {
    fn heartbeat(&self) {
        self.core.heartbeat();
    }

    fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    fn progress(&self, fraction: f64, message: &str) {
        self.core.progress(fraction, message);
    }

    fn stream(&self, kind: u32, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core.stream(PreviewCode::kind(kind), &encode::preview(kind, data)?);
        Ok(())
    }

    fn completed(&self, output: &Bound<'_, PyAny>) -> PyResult<()> {
        self.finish(AttemptResult::Completed(encode::output(output)?));
        Ok(())
    }

    #[pyo3(signature = (code, error_type, message, traceback, retryable, pause))]
    fn failed(
        &self,
        code: &str,
        error_type: &str,
        message: &str,
        traceback: Option<String>,
        retryable: bool,
        pause: Option<f64>,
    ) {
        let failure = failure(code, error_type, message, traceback, Code::TaskFailed);
        self.finish(AttemptResult::Failed { failure, retryable, pause: Language::Python.pause(pause) });
    }

    fn cancelled(&self) {
        self.finish(AttemptResult::Cancelled);
    }

    /// `reconcile` found that it did not take effect.
    fn not_done(&self) {
        self.finish(AttemptResult::NotDone);
    }

    /// The process ends before the task did: another worker takes it.
    fn released(&self) {
        self.finish(AttemptResult::Released);
    }
}
