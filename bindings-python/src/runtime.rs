//! An open backend and the workers on it.

use crate::encode;
use crate::error::{Failure, OrRaise};
use crate::handle::{Abort, Handle};
use crate::hub::{Hub, spawn};
use crate::test_world::wait_for_crash;
use crate::value::{duration, text};
use flovyn_core::Error;
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::error::Code;
use flovyn_core::host::test_world::{CrashableStore, kill};
use flovyn_core::host::{HostRuntime, requests, shown};
use flovyn_core::model::{Persistence, StartLimits};
use flovyn_core::runtime::Runtime as Core;
use flovyn_core::view::Style;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// An open backend.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Runtime {
    host: HostRuntime,
    core: Core,
    crashable: Option<Arc<CrashableStore>>,
    client: Client,
}

impl Runtime {
    /// A process of a test world.
    pub(crate) fn of_process(host: HostRuntime, core: Core, store: Arc<CrashableStore>) -> Self {
        Self { client: core.client(), host, core, crashable: Some(store) }
    }

    /// The engine's threads.
    pub(crate) fn threads(&self) -> tokio::runtime::Handle {
        self.host.handle()
    }

    /// An open backend.
    pub(crate) fn of_backend(host: HostRuntime) -> Self {
        Self { client: host.client(), core: host.runtime().clone(), host, crashable: None }
    }

    /// The name of what this computer keeps for its runs.
    pub(crate) fn store(&self) -> &str {
        self.host.store()
    }

    /// What a worker is started on.
    pub(crate) fn opened(&self) -> (HostRuntime, Core) {
        (self.host.clone(), self.core.clone())
    }

    fn crashable(&self) -> PyResult<&Arc<CrashableStore>> {
        self.crashable.as_ref().ok_or_else(|| {
            Failure::Engine(Error::new(Code::InvalidArgument, "only a process of a test world can crash")).into()
        })
    }
}

#[pymethods]
impl Runtime {
    /// Opens a URL; blocks until the backend is ready, without the GIL.
    #[staticmethod]
    #[pyo3(signature = (url=None))]
    fn open(py: Python<'_>, url: Option<String>) -> PyResult<Self> {
        let host = py.detach(|| HostRuntime::open(url.as_deref())).or_raise()?;
        Ok(Self::of_backend(host))
    }

    // ── a process of a test world ───────────────────────────────────────────────────────────────────────────────────────

    /// Lets the process crash at its `n`-th commit: `before` it, `after` it, or with only its `answer_lost`.
    fn crash_at(&self, n: u64, how: &str) -> PyResult<()> {
        self.crashable()?.crash_at(n, how).or_raise()
    }

    /// Commits of the process so far.
    fn commits(&self) -> PyResult<u64> {
        Ok(self.crashable()?.commits())
    }

    /// Ends when the process has crashed.
    fn crashed(&self, hub: &Hub, token: u64) -> PyResult<Abort> {
        Ok(Abort(wait_for_crash(self.crashable()?.clone(), &self.threads(), hub, token)))
    }

    /// Kills the process, and lets the store notice.
    fn kill(&self, hub: &Hub, token: u64) -> PyResult<()> {
        let store = self.crashable()?.clone();
        spawn(&self.threads(), &hub.inbox, token, async move { kill(&store).await });
        Ok(())
    }

    /// The recorded ops of a run, segment by segment.
    fn journal(&self, hub: &Hub, token: u64, id: &str) -> PyResult<()> {
        let (client, id) = (self.client.clone(), id.to_owned());
        spawn(&self.threads(), &hub.inbox, token, async move { shown::journal(&client, &id, Style::Python).await });
        Ok(())
    }

    #[getter]
    pub(crate) fn url(&self) -> &str {
        self.host.url()
    }

    /// Starts a run; ends with a `Handle`.
    #[pyo3(signature = (
        hub, token, kind, input, *, id=None, queue=None, metadata=None, max_steps=None, max_total_steps=None,
        max_tail=None, budget=None, timeout=None, start_timeout=None, priority=0, concurrency_key=None, concurrency_limit=None, delay=None,
        traceparent=None, persistence=None,
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
        start_timeout: Option<f64>,
        priority: i32,
        concurrency_key: Option<String>,
        concurrency_limit: Option<u32>,
        delay: Option<f64>,
        traceparent: Option<String>,
        persistence: Option<&str>,
    ) -> PyResult<()> {
        self.host.check_process().or_raise()?;
        let input = encode::payload(input)?;
        let budget = budget.map(text).transpose()?;
        let timeout = timeout.map(duration).transpose()?;
        let start_timeout = start_timeout.map(duration).transpose()?;
        let options = StartOptions {
            id,
            queue,
            metadata: metadata.unwrap_or_default(),
            limits: StartLimits { max_steps, max_total_steps, max_tail, budget, timeout, start_timeout },
            priority,
            concurrency_key,
            concurrency_limit,
            delay: delay.map(duration).transpose()?,
            traceparent,
            persistence: persistence.map(Persistence::parse).transpose().or_raise()?,
        };
        let (client, handle) = (self.client.clone(), self.threads());
        spawn(&self.threads(), &hub.inbox, token, async move {
            client.start(&kind, input, options).await.map(|run| Handle::of(run, handle))
        });
        Ok(())
    }

    /// Finds a run; ends with a `Handle`.
    fn handle(&self, hub: &Hub, token: u64, id: String) -> PyResult<()> {
        self.host.check_process().or_raise()?;
        let (client, handle) = (self.client.clone(), self.threads());
        spawn(&self.threads(), &hub.inbox, token, async move {
            client.handle(&id).await.map(|run| Handle::of(run, handle))
        });
        Ok(())
    }

    /// Carries out a request beside one run, as `flovyn_core::host::requests` has them; ends with facts.
    fn ask(&self, hub: &Hub, token: u64, request: &Bound<'_, PyAny>) -> PyResult<()> {
        self.host.check_process().or_raise()?;
        let (client, request) = (self.client.clone(), text(request)?);
        spawn(&self.threads(), &hub.inbox, token, async move {
            requests::carry_out(&client, &request, Style::Python).await
        });
        Ok(())
    }

    /// Copies the database to a new file; ends with its size.
    fn backup(&self, hub: &Hub, token: u64, path: PathBuf) -> PyResult<()> {
        self.host.check_process().or_raise()?;
        let client = self.client.clone();
        spawn(&self.threads(), &hub.inbox, token, async move {
            client.backup(path).await.map(|size| serde_json::json!(size))
        });
        Ok(())
    }

    /// Closes workers and backend through the hub.
    fn close(&self, hub: &Hub, token: u64, within: f64) -> PyResult<()> {
        let (runtime, within) = (self.core.clone(), duration(within)?);
        spawn(&self.threads(), &hub.inbox, token, async move {
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
        py.detach(|| self.threads().block_on(closing)).or_raise()
    }
}
