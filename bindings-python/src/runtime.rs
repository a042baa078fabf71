//! An open backend and the workers on it.

use crate::encode;
use crate::error::Failure;
use crate::handle::{Abort, Handle};
use crate::hub::{Hub, spawn};
use crate::session::duration;
use crate::stage::tell_end;
use crate::toolkit::Kit;
use crate::worker::{Port, config};
use flovyn_core::Error;
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::error::Code;
use flovyn_core::host::stage::{Mortal, bury};
use flovyn_core::host::{CompositeHost, HostRuntime, desk, shown};
use flovyn_core::id::ExecutionId;
use flovyn_core::journal::REPLAY_TIMEOUT;
use flovyn_core::model::StartLimits;
use flovyn_core::runtime::Runtime as Core;
use flovyn_core::view::Style;
use flovyn_core::worker::{Host, Worker as CoreWorker, WorkerOptions};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An open backend.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Runtime {
    host: HostRuntime,
    core: Core,
    life: Option<Arc<Mortal>>,
    client: Client,
    handle: tokio::runtime::Handle,
}

impl Runtime {
    /// A life on a stage.
    pub(crate) fn of_life(py: Python<'_>, host: HostRuntime, core: Core, life: Arc<Mortal>) -> PyResult<Self> {
        let handle = py.detach(|| host.block_on(async { tokio::runtime::Handle::current() })).map_err(Failure::from)?;
        Ok(Self { client: core.client(), host, core, life: Some(life), handle })
    }

    /// The engine's threads.
    pub(crate) fn threads(&self) -> tokio::runtime::Handle {
        self.handle.clone()
    }

    fn mortal(&self) -> PyResult<&Arc<Mortal>> {
        self.life.as_ref().ok_or_else(|| {
            Failure::Engine(Error::new(Code::InvalidArgument, "only a life on a stage can crash")).into()
        })
    }
}

#[pymethods]
impl Runtime {
    /// Opens a URL; blocks until the backend is ready, without the GIL.
    #[staticmethod]
    #[pyo3(signature = (url=None))]
    fn open(py: Python<'_>, url: Option<String>) -> PyResult<Self> {
        let (host, handle) = py
            .detach(|| {
                let host = HostRuntime::open(url.as_deref())?;
                let handle = host.block_on(async { tokio::runtime::Handle::current() })?;
                Ok::<_, Error>((host, handle))
            })
            .map_err(Failure::from)?;
        Ok(Self { client: host.client(), core: host.runtime().clone(), host, life: None, handle })
    }

    // ── a life on a stage ───────────────────────────────────────────────────────────────────────────────────────

    /// Ends the life at its `n`-th commit: `before` it, `after` it, or with its `answer_lost`.
    fn crash_at(&self, n: u64, how: &str) -> PyResult<()> {
        Ok(self.mortal()?.crash_at(n, how).map_err(Failure::from)?)
    }

    /// Commits of the life so far.
    fn commits(&self) -> PyResult<u64> {
        Ok(self.mortal()?.commits())
    }

    /// Ends with the life.
    fn ended(&self, hub: &Hub, token: u64) -> PyResult<Abort> {
        Ok(Abort(tell_end(self.mortal()?.clone(), &self.handle, hub, token)))
    }

    /// Ends the life, and lets the store notice.
    fn bury(&self, hub: &Hub, token: u64) -> PyResult<()> {
        let mortal = self.mortal()?.clone();
        spawn(&self.handle, &hub.inbox, token, async move { bury(&mortal).await });
        Ok(())
    }

    /// The recorded ops of a run, segment by segment.
    fn journal(&self, hub: &Hub, token: u64, id: &str) -> PyResult<()> {
        let (client, id) = (self.client.clone(), id.to_owned());
        spawn(&self.handle, &hub.inbox, token, async move { shown::journal(&client, &id, Style::Python).await });
        Ok(())
    }

    #[getter]
    pub(crate) fn url(&self) -> &str {
        self.host.url()
    }

    /// Starts a run; ends with a `Handle`.
    #[pyo3(signature = (
        hub, token, kind, input, *, id=None, queue=None, metadata=None, max_steps=None, max_total_steps=None,
        max_tail=None, budget=None, timeout=None, priority=0, concurrency_key=None, concurrency_limit=None, delay=None,
        traceparent=None,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn start(
        &self,
        hub: &Hub,
        token: u64,
        kind: String,
        input: &Bound<'_, PyAny>,
        id: Option<String>,
        queue: Option<String>,
        metadata: Option<BTreeMap<String, String>>,
        max_steps: Option<u32>,
        max_total_steps: Option<u32>,
        max_tail: Option<u32>,
        budget: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        priority: i32,
        concurrency_key: Option<String>,
        concurrency_limit: Option<u32>,
        delay: Option<f64>,
        traceparent: Option<String>,
    ) -> PyResult<()> {
        self.host.check_process().map_err(Failure::from)?;
        let input = encode::payload(input)?;
        let budget = budget.map(text).transpose()?;
        let timeout = timeout.map(duration).transpose()?;
        let options = StartOptions {
            id,
            queue,
            metadata: metadata.unwrap_or_default(),
            limits: StartLimits { max_steps, max_total_steps, max_tail, budget, timeout },
            priority,
            concurrency_key,
            concurrency_limit,
            delay: delay.map(duration).transpose()?,
            traceparent,
        };
        let (client, handle) = (self.client.clone(), self.handle.clone());
        spawn(&self.handle, &hub.inbox, token, async move {
            client.start(&kind, input, options).await.map(|run| Handle::of(run, handle))
        });
        Ok(())
    }

    /// Finds a run; ends with a `Handle`.
    fn handle(&self, hub: &Hub, token: u64, id: String) -> PyResult<()> {
        self.host.check_process().map_err(Failure::from)?;
        let (client, handle) = (self.client.clone(), self.handle.clone());
        spawn(
            &self.handle,
            &hub.inbox,
            token,
            async move { client.handle(&id).await.map(|run| Handle::of(run, handle)) },
        );
        Ok(())
    }

    /// Asks for something beside one run, as `flovyn_core::host::desk` has it; ends with facts.
    fn ask(&self, hub: &Hub, token: u64, question: &Bound<'_, PyAny>) -> PyResult<()> {
        self.host.check_process().map_err(Failure::from)?;
        let (client, question) = (self.client.clone(), text(question)?);
        spawn(&self.handle, &hub.inbox, token, async move { desk::ask(&client, &question, Style::Python).await });
        Ok(())
    }

    /// Copies the database to a new file; ends with its size.
    fn backup(&self, hub: &Hub, token: u64, path: PathBuf) -> PyResult<()> {
        self.host.check_process().map_err(Failure::from)?;
        let client = self.client.clone();
        spawn(
            &self.handle,
            &hub.inbox,
            token,
            async move { client.backup(path).await.map(|size| serde_json::json!(size)) },
        );
        Ok(())
    }

    /// Closes workers and backend through the hub.
    fn close(&self, hub: &Hub, token: u64, within: f64) -> PyResult<()> {
        let (runtime, within) = (self.core.clone(), duration(within)?);
        spawn(&self.handle, &hub.inbox, token, async move {
            tokio::time::timeout(within, runtime.close()).await.unwrap_or(Ok(()))
        });
        Ok(())
    }

    /// Closes workers and backend here and now, without the GIL. Nothing after a fork.
    fn close_now(&self, py: Python<'_>, within: f64) -> PyResult<()> {
        let within = duration(within)?;
        if self.host.check_process().is_err() {
            return Ok(());
        }
        let core = self.core.clone();
        let closing = async move { tokio::time::timeout(within, core.close()).await.unwrap_or(Ok(())) };
        Ok(py.detach(|| self.handle.block_on(closing)).map_err(Failure::from)?)
    }
}

/// A worker: declared first, then started.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Worker {
    port: Arc<Port>,
    handle: tokio::runtime::Handle,
    started: Arc<Mutex<Option<CoreWorker>>>,
}

#[pymethods]
impl Worker {
    #[new]
    fn new(runtime: &Runtime, hub: &Hub) -> Self {
        let port = Port::new(hub.inbox.clone(), runtime.handle.clone());
        Self { port, handle: runtime.handle.clone(), started: Arc::default() }
    }

    /// Names the worker among what a hub drains.
    #[getter]
    fn token(&self) -> u64 {
        self.port.token
    }

    #[allow(clippy::too_many_arguments)]
    fn serve_agent(
        &self,
        kind: String,
        stateful: bool,
        code: Option<String>,
        on_divergence: &str,
        on_error: Option<&str>,
        cancellable: bool,
        replay_timeout: Option<f64>,
    ) -> PyResult<()> {
        let replay_timeout = replay_timeout.map_or(Ok(REPLAY_TIMEOUT), duration)?;
        let config = config(stateful, code, on_divergence, on_error, cancellable, replay_timeout);
        let config = config.map_err(Failure::Engine)?;
        self.port.serve_agent(kind, config);
        Ok(())
    }

    /// Serves a task from now on; true if its kind is new.
    fn serve_task(&self, kind: &str) -> bool {
        let new = self.port.serve_task(kind);
        if new && let Some(worker) = &*self.started.lock() {
            worker.nudge();
        }
        new
    }

    /// Starts to poll.
    #[pyo3(signature = (hub, token, runtime, kit, *, queue, max_agents, max_tasks=None, max_parked=None, only=None))]
    #[allow(clippy::too_many_arguments)]
    fn start(
        &self,
        hub: &Hub,
        token: u64,
        runtime: &Runtime,
        kit: &Kit,
        queue: String,
        max_agents: usize,
        max_tasks: Option<usize>,
        max_parked: Option<usize>,
        only: Option<String>,
    ) -> PyResult<()> {
        let only = match only {
            Some(id) => Some(id.parse::<ExecutionId>().map_err(|error| {
                Failure::Engine(Error::new(Code::InvalidArgument, format!("{id:?} is no UUID: {error}")))
            })?),
            None => None,
        };
        let mut options = WorkerOptions { queue, max_agents, only, ..WorkerOptions::default() };
        if let Some(most) = max_tasks {
            (options.max_tasks, options.count_inline) = (most, most > 0);
        }
        options.max_parked = max_parked.unwrap_or(options.max_parked);
        let (host, core) = (runtime.host.clone(), runtime.core.clone());
        let (port, started): (Arc<dyn Host>, _) = (self.port.clone(), self.started.clone());
        let served = Arc::new(CompositeHost::new([port, kit.host()]).map_err(Failure::from)?);
        spawn(&self.handle, &hub.inbox, token, async move {
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

    /// Runs that advance, and waiting runs in memory.
    fn counts(&self) -> (usize, usize) {
        self.started.lock().as_ref().map_or((0, 0), |worker| (worker.active(), worker.parked()))
    }

    /// Stops: runs are put away and given back, tasks get the grace.
    fn close(&self, hub: &Hub, token: u64, grace: f64) -> PyResult<()> {
        let (worker, grace) = (self.started.lock().clone(), duration(grace)?);
        spawn(&self.handle, &hub.inbox, token, async move {
            match worker {
                Some(worker) => worker.close(grace).await,
                None => Ok(()),
            }
        });
        Ok(())
    }
}

/// JSON text of a small value.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(String::from_utf8_lossy(&encode::json(value)?).into_owned())
}

/// How long a run may tidy up when nothing else is said.
pub(crate) const GRACE: Duration = Duration::from_secs(30);
