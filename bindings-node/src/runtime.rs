//! An open backend.

use crate::error::{invalid, thrown};
use crate::handle::{Handle, Run};
use crate::hub::{Abort, Hub, Reply};
use crate::value::{Wire, duration, payload};
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::host::test_world::{CrashableStore, kill};
use flovyn_core::host::{HostRuntime, requests, shown};
use flovyn_core::model::{Persistence, StartLimits};
use flovyn_core::runtime::Runtime as Core;
use flovyn_core::view::Style;
use napi_derive::napi;
use std::collections::HashMap;
use std::sync::Arc;

/// How a run is to be started.
#[napi(object)]
pub struct StartSettings {
    pub id: Option<String>,
    pub queue: Option<String>,
    pub metadata: Option<HashMap<String, String>>,
    pub max_steps: Option<u32>,
    pub max_total_steps: Option<u32>,
    pub max_tail: Option<u32>,
    /// JSON text.
    pub budget: Option<String>,
    pub timeout_ms: Option<f64>,
    pub start_timeout_ms: Option<f64>,
    pub priority: Option<i32>,
    pub concurrency_key: Option<String>,
    pub concurrency_limit: Option<u32>,
    pub delay_ms: Option<f64>,
    pub traceparent: Option<String>,
    pub persistence: Option<String>,
}

/// An open backend.
#[napi]
pub struct Runtime {
    pub(crate) host: HostRuntime,
    pub(crate) core: Core,
    pub(crate) threads: tokio::runtime::Handle,
    crashable: Option<Arc<CrashableStore>>,
    client: Client,
}

impl Runtime {
    /// A process of a test world.
    pub(crate) fn of_process(host: HostRuntime, core: Core, store: Arc<CrashableStore>) -> Self {
        Self { threads: host.handle(), client: core.client(), host, core, crashable: Some(store) }
    }

    /// An open backend.
    pub(crate) fn of_backend(host: HostRuntime) -> Self {
        let (client, core, threads) = (host.client(), host.runtime().clone(), host.handle());
        Self { host, core, threads, crashable: None, client }
    }

    fn crashable(&self) -> napi::Result<&Arc<CrashableStore>> {
        self.crashable.as_ref().ok_or_else(|| invalid("only a process of a test world can crash"))
    }
}

#[napi]
impl Runtime {
    /// Opens a URL; ends with a `Runtime`.
    #[napi]
    pub fn open(hub: &Hub, token: u32, url: Option<String>) -> napi::Result<()> {
        hub.inbox.on_thread(token, move || {
            Ok(Reply::Runtime(Box::new(Self::of_backend(HostRuntime::open(url.as_deref())?))))
        })
    }

    // ── a process of a test world ───────────────────────────────────────────────────────────────────────────────────────

    /// Lets the process crash at its `n`-th commit: `before` it, `after` it, or with only its `answer_lost`.
    #[napi]
    pub fn crash_at(&self, n: u32, how: String) -> napi::Result<()> {
        self.crashable()?.crash_at(u64::from(n), &how).map_err(thrown)
    }

    /// Commits of the process so far.
    #[napi]
    pub fn commits(&self) -> napi::Result<u32> {
        Ok(self.crashable()?.commits() as u32)
    }

    /// Ends when the process has crashed.
    #[napi]
    pub fn crashed(&self, hub: &Hub, token: u32) -> napi::Result<Abort> {
        let store = self.crashable()?.clone();
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            store.crashed().await;
            Ok(Reply::Nothing)
        }))
    }

    /// Kills the process, and lets the store notice.
    #[napi]
    pub fn kill(&self, hub: &Hub, token: u32) -> napi::Result<Abort> {
        let store = self.crashable()?.clone();
        Ok(hub.inbox.spawn(&self.threads, token, async move { kill(&store).await.map(|()| Reply::Nothing) }))
    }

    /// Ends with the recorded ops of a run, segment by segment, as facts.
    #[napi]
    pub fn journal(&self, hub: &Hub, token: u32, id: String) -> napi::Result<Abort> {
        let client = self.client.clone();
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Facts(shown::journal(&client, &id, Style::TypeScript).await?))
        }))
    }

    // ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The URL it was opened with.
    #[napi(getter)]
    pub fn url(&self) -> &str {
        self.host.url()
    }

    /// Starts a run; ends with a `Handle`.
    #[napi]
    pub fn start(
        &self,
        hub: &Hub,
        token: u32,
        kind: String,
        input: Wire<'_>,
        settings: StartSettings,
    ) -> napi::Result<Abort> {
        self.host.check_process().map_err(thrown)?;
        let input = payload(input);
        let limits = StartLimits {
            max_steps: settings.max_steps,
            max_total_steps: settings.max_total_steps,
            max_tail: settings.max_tail,
            budget: settings.budget,
            timeout: settings.timeout_ms.map(duration).transpose()?,
            start_timeout: settings.start_timeout_ms.map(duration).transpose()?,
        };
        let persistence = settings.persistence.as_deref().map(Persistence::parse).transpose();
        let options = StartOptions {
            id: settings.id,
            queue: settings.queue,
            metadata: settings.metadata.unwrap_or_default().into_iter().collect(),
            limits,
            priority: settings.priority.unwrap_or(0),
            concurrency_key: settings.concurrency_key,
            concurrency_limit: settings.concurrency_limit,
            delay: settings.delay_ms.map(duration).transpose()?,
            traceparent: settings.traceparent,
            persistence: persistence.map_err(thrown)?,
        };
        let (client, threads) = (self.client.clone(), self.threads.clone());
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            let run = client.start(&kind, input, options).await?;
            Ok(Reply::Handle(Run(Handle::of(run, threads))))
        }))
    }

    /// Finds a run; ends with a `Handle`.
    #[napi]
    pub fn handle(&self, hub: &Hub, token: u32, id: String) -> napi::Result<Abort> {
        self.host.check_process().map_err(thrown)?;
        let (client, threads) = (self.client.clone(), self.threads.clone());
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Handle(Run(Handle::of(client.handle(&id).await?, threads))))
        }))
    }

    /// Carries out a request beside one run, as `flovyn_core::host::requests` has them; ends with facts as JSON text.
    #[napi]
    pub fn ask(&self, hub: &Hub, token: u32, request: String) -> napi::Result<Abort> {
        self.host.check_process().map_err(thrown)?;
        let client = self.client.clone();
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Facts(requests::carry_out(&client, &request, Style::TypeScript).await?))
        }))
    }

    /// Copies the database to a new file; ends with its size as JSON text.
    #[napi]
    pub fn backup(&self, hub: &Hub, token: u32, path: String) -> napi::Result<Abort> {
        self.host.check_process().map_err(thrown)?;
        let client = self.client.clone();
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Facts(serde_json::json!(client.backup(path).await?)))
        }))
    }

    /// Closes workers and backend.
    #[napi]
    pub fn close(&self, hub: &Hub, token: u32, within_ms: f64) -> napi::Result<Abort> {
        let (core, within) = (self.core.clone(), duration(within_ms)?);
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            tokio::time::timeout(within, core.close()).await.unwrap_or(Ok(()))?;
            Ok(Reply::Nothing)
        }))
    }
}
