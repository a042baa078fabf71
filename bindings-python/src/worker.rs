//! A worker's side towards the engine: what it serves, and how claims reach the event loop.

use crate::decode;
use crate::encode;
use crate::hub::{Inbox, Note};
use crate::session::{Session, asked, failure};
use flovyn_core::error::{Code, Error};
use flovyn_core::journal::{MachineConfig, OnDivergence, OnError};
use flovyn_core::model::{AttemptResult, ClaimedTask};
use flovyn_core::session::Session as Core;
use flovyn_core::worker::{Host, Ticket as CoreTicket};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What is served, and the kinds of it as the engine asks for them.
type Served<T> = (Arc<[String]>, T);

/// What a worker serves, and the loop it serves it on.
pub(crate) struct Port {
    pub(crate) token: u64,
    me: Weak<Port>,
    inbox: Arc<Inbox>,
    runtime: tokio::runtime::Handle,
    agents: Mutex<Served<HashMap<String, MachineConfig>>>,
    tasks: Mutex<Served<BTreeSet<String>>>,
}

impl Port {
    pub(crate) fn new(inbox: Arc<Inbox>, runtime: tokio::runtime::Handle) -> Arc<Self> {
        let token = inbox.token();
        Arc::new_cyclic(|me| Self {
            token,
            me: me.clone(),
            inbox,
            runtime,
            agents: Mutex::new((Arc::from([]), HashMap::new())),
            tasks: Mutex::new((Arc::from([]), BTreeSet::new())),
        })
    }

    pub(crate) fn serve_agent(&self, kind: String, config: MachineConfig) {
        let mut agents = self.agents.lock();
        agents.1.insert(kind, config);
        agents.0 = agents.1.keys().cloned().collect();
    }

    /// Whether the kind is new.
    pub(crate) fn serve_task(&self, kind: &str) -> bool {
        let mut tasks = self.tasks.lock();
        let new = tasks.1.insert(kind.to_owned());
        if new {
            tasks.0 = tasks.1.iter().cloned().collect();
        }
        new
    }

    /// A claimed run: `("agent", session, kind)`.
    pub(crate) fn agent<'py>(&self, py: Python<'py>, core: Arc<Core>) -> PyResult<Bound<'py, PyAny>> {
        let kind = core.execution().new.kind.clone();
        let session = Session::connect(core, &self.inbox, self.runtime.clone());
        Ok(("agent", Py::new(py, session)?, kind).into_pyobject(py)?.into_any())
    }

    /// A claimed task: `("task", ticket, kind, input, task, attempt, reconcile)`.
    pub(crate) fn task<'py>(
        &self,
        py: Python<'py>,
        claimed: ClaimedTask,
        ticket: Ticket,
    ) -> PyResult<Bound<'py, PyAny>> {
        let task = &claimed.task;
        let input = decode::payload(py, &task.new.input)?;
        let id = PyBytes::new(py, task.new.id.0.as_bytes());
        let ticket = Py::new(py, ticket)?;
        Ok(("task", ticket, &task.new.kind, input, id, task.attempt, claimed.reconcile).into_pyobject(py)?.into_any())
    }
}

impl Host for Port {
    fn agent_kinds(&self) -> Arc<[String]> {
        self.agents.lock().0.clone()
    }

    fn task_kinds(&self) -> Arc<[String]> {
        self.tasks.lock().0.clone()
    }

    fn agent_config(&self, kind: &str) -> Option<MachineConfig> {
        self.agents.lock().1.get(kind).cloned()
    }

    fn start_agent(&self, session: Arc<Core>) {
        if let Some(me) = self.me.upgrade() {
            self.inbox.push(Note::Agent(me, session));
        }
    }

    fn start_task(&self, task: ClaimedTask, ticket: CoreTicket) {
        let Some(me) = self.me.upgrade() else { return };
        let (inbox, port, id) = (self.inbox.clone(), me.clone(), ticket.task());
        ticket.on_cancel(move || inbox.push(Note::CancelTask(port, id)));
        self.inbox.push(Note::Task(me, Box::new(task), Ticket { core: ticket }));
    }
}

/// How an agent was declared.
pub(crate) fn config(
    stateful: bool,
    code: Option<String>,
    on_divergence: &str,
    on_error: Option<&str>,
    cancellable: bool,
    replay_timeout: Duration,
) -> Result<MachineConfig, Error> {
    Ok(MachineConfig {
        stateful,
        code,
        on_divergence: OnDivergence::parse(on_divergence)?,
        on_error: OnError::parse(on_error)?,
        not_cancellable: !cancellable,
        replay_timeout,
        ..MachineConfig::default()
    })
}

/// A claimed attempt of a task; its first reported end counts.
#[derive(Clone)]
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Ticket {
    core: CoreTicket,
}

impl Ticket {
    /// The attempt cannot begin: its input cannot be shown to Python.
    pub(crate) fn unreadable(&self, py: Python<'_>, error: &PyErr) {
        let named = error.get_type(py).name().map_or_else(|_| "Exception".to_owned(), |name| name.to_string());
        let failure = failure("NotSerializable", &named, &error.value(py).to_string(), None, Code::NotSerializable);
        self.core.finish(AttemptResult::Failed { failure, retryable: false, pause: None });
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

    fn stream(&self, kind: u8, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (kind, text) = encode::preview(kind, data)?;
        self.core.stream(kind, &text);
        Ok(())
    }

    fn completed(&self, output: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core.finish(AttemptResult::Completed(encode::output(output)?));
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
        self.core.finish(AttemptResult::Failed { failure, retryable, pause: asked(pause) });
    }

    fn cancelled(&self) {
        self.core.finish(AttemptResult::Cancelled);
    }

    /// `reconcile` found that it did not take effect.
    fn not_done(&self) {
        self.core.finish(AttemptResult::NotDone);
    }

    /// The process ends before the task did: another worker takes it.
    fn released(&self) {
        self.core.finish(AttemptResult::Released);
    }
}
