//! A worker: what it serves, and what of the engine waits for the loop.

use crate::error::{failure_of, invalid, thrown};
use crate::hub::{Abort, Hub, Reply};
use crate::runtime::Runtime;
use crate::session::{FailureDraft, Session, chunk};
use crate::task::TaskSpec;
use crate::value::{Given, Shown, asked, duration, payload, shown};
use flovyn_core::error::Code;
use flovyn_core::host::{Activation, Activations, AgentSpec, CompositeHost};
use flovyn_core::id::ExecutionId;
use flovyn_core::journal::{MachineConfig, OnDivergence, OnError, REPLAY_TIMEOUT};
use flovyn_core::model::AttemptResult;
use flovyn_core::worker::{Host, Ticket as CoreTicket, Worker as CoreWorker, WorkerOptions};
use flovyn_toolkit::config::Toolkits;
use napi::Env;
use napi::bindgen_prelude::Array;
use napi_derive::napi;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How an agent is declared.
#[napi(object)]
pub struct AgentSettings {
    pub stateful: bool,
    pub code: Option<String>,
    pub on_divergence: String,
    pub on_error: Option<String>,
    pub cancellable: bool,
    pub replay_timeout_ms: Option<f64>,
}

/// How much a worker takes on.
#[napi(object)]
pub struct WorkerSettings {
    pub queue: String,
    pub max_agents: u32,
    pub max_tasks: Option<u32>,
    pub max_parked: Option<u32>,
    pub only: Option<String>,
}

/// A worker: declared first, then started.
#[napi]
pub struct Worker {
    activations: Arc<Activations>,
    toolkit: Arc<Toolkits>,
    threads: tokio::runtime::Handle,
    started: Arc<Mutex<Option<CoreWorker>>>,
    /// Whether its JavaScript is gone.
    dropped: Arc<AtomicBool>,
}

/// A terminated thread of JavaScript drops its workers and closes none. The engine's threads are the process's: they would
/// renew the leases of its runs for ever.
impl Drop for Worker {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
        let (worker, toolkit) = (self.started.lock().take(), self.toolkit.clone());
        self.threads.spawn(async move {
            if let Some(worker) = worker {
                // Nobody is left who could be told; what cannot be given back is free when its lease is over.
                let _ = worker.close(Duration::ZERO).await;
            }
            toolkit.close().await;
        });
    }
}

#[napi]
impl Worker {
    #[napi(constructor)]
    pub fn new(runtime: &Runtime, hub: &Hub) -> Self {
        Self {
            activations: Activations::new(hub.inbox.clone()),
            toolkit: Arc::default(),
            threads: runtime.threads.clone(),
            started: Arc::default(),
            dropped: Arc::default(),
        }
    }

    #[napi]
    pub fn serve_agent(&self, kind: String, settings: AgentSettings) -> napi::Result<()> {
        let config = MachineConfig {
            stateful: settings.stateful,
            code: settings.code,
            on_divergence: OnDivergence::parse(&settings.on_divergence).map_err(thrown)?,
            on_error: OnError::parse(settings.on_error.as_deref()).map_err(thrown)?,
            not_cancellable: !settings.cancellable,
            blind: true,
            replay_timeout: settings.replay_timeout_ms.map_or(Ok(REPLAY_TIMEOUT), duration)?,
        };
        self.activations.serve_agent(&kind, AgentSpec { config });
        Ok(())
    }

    /// Serves a task from now on.
    #[napi]
    pub fn serve_task(&self, kind: String) {
        if self.activations.serve_task(&kind)
            && let Some(worker) = &*self.started.lock()
        {
            worker.nudge();
        }
    }

    /// Opens what of the toolkit is described, each description as JSON text, and serves it from then on: in the place of what
    /// its agents were described by before, or beside all that is served. Ends with what is wrong with MCP servers, as JSON text.
    #[napi]
    pub fn serve_toolkit(
        &self,
        hub: &Hub,
        token: u32,
        runtime: &Runtime,
        descriptions: Vec<String>,
        replaces: bool,
    ) -> Abort {
        let (toolkit, activations, started) = (self.toolkit.clone(), self.activations.clone(), self.started.clone());
        let store = runtime.host.url().to_owned();
        hub.inbox.spawn(&self.threads, token, async move {
            let taken = activations.task_kinds();
            let problems = match replaces {
                true => toolkit.replace(&descriptions, &store, &taken).await?,
                false => toolkit.add(&descriptions, &store, &taken).await?,
            };
            if let Some(worker) = &*started.lock() {
                worker.nudge();
            }
            Ok(Reply::Facts(problems.into()))
        })
    }

    /// How a task of the toolkit that is served here is scheduled; null for any other kind.
    #[napi]
    pub fn toolkit_task(&self, kind: String, queue: String) -> Option<TaskSpec> {
        self.toolkit.options(&kind).map(|options| TaskSpec::queued(kind, options, queue))
    }

    /// Starts to poll.
    #[napi]
    pub fn start(&self, hub: &Hub, token: u32, runtime: &Runtime, settings: WorkerSettings) -> napi::Result<Abort> {
        let only = match settings.only {
            Some(id) => {
                Some(id.parse::<ExecutionId>().map_err(|error| invalid(format!("{id:?} is no UUID: {error}")))?)
            }
            None => None,
        };
        let mut options = WorkerOptions {
            queue: settings.queue,
            max_agents: settings.max_agents as usize,
            only,
            ..WorkerOptions::default()
        };
        if let Some(most) = settings.max_tasks {
            (options.max_tasks, options.count_inline) = (most as usize, most > 0);
        }
        options.max_parked = settings.max_parked.map_or(options.max_parked, |most| most as usize);
        let (host, core) = (runtime.host.clone(), runtime.core.clone());
        let (activations, toolkit, started) = (self.activations.clone(), self.toolkit.clone(), self.started.clone());
        let dropped = self.dropped.clone();
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            host.check_process()?;
            let served = CompositeHost::new([activations as Arc<dyn Host>, toolkit])?;
            let worker = core.worker(Arc::new(served), options).await?;
            *started.lock() = Some(worker.clone());
            if dropped.load(Ordering::Acquire) {
                worker.close(Duration::ZERO).await?;
            }
            Ok(Reply::Nothing)
        }))
    }

    /// Takes what waits: `[0, id, session, kind]` to run an agent, `[1, id]` to take effects of its session,
    /// `[2, id, ticket, kind, input, task, attempt, reconcile]` to run a task, `[3, id]` to stop it.
    #[napi]
    pub fn poll<'env>(&self, env: &'env Env) -> napi::Result<Array<'env>> {
        let mut list = env.create_array(0)?;
        for activation in self.activations.poll() {
            let mut parts = env.create_array(0)?;
            match activation {
                Activation::Agent(id, core) => {
                    parts.insert(0u32)?;
                    parts.insert(id as f64)?;
                    let kind = core.execution().new.kind.clone();
                    parts.insert(Session::of(core, self.threads.clone()))?;
                    parts.insert(kind)?;
                }
                Activation::Effects(id) => {
                    parts.insert(1u32)?;
                    parts.insert(id as f64)?;
                }
                Activation::Task(id, claimed) => {
                    let Some(core) = self.activations.ticket(id) else { continue };
                    let task = claimed.task;
                    let input = match shown(env, Shown(task.new.input))? {
                        Ok(input) => input,
                        Err(text) => {
                            // The attempt has failed; what else waits is given.
                            let (failure, retryable) = failure_of(&text);
                            self.activations.task_ended(id, AttemptResult::Failed { failure, retryable, pause: None });
                            continue;
                        }
                    };
                    parts.insert(2u32)?;
                    parts.insert(id as f64)?;
                    parts.insert(Ticket { id, core, activations: self.activations.clone() })?;
                    parts.insert(&*task.new.kind)?;
                    parts.insert(input)?;
                    parts.insert(task.new.id.to_string())?;
                    parts.insert(task.attempt)?;
                    parts.insert(claimed.reconcile)?;
                }
                Activation::CancelTask(id) => {
                    parts.insert(3u32)?;
                    parts.insert(id as f64)?;
                }
            }
            list.insert(parts)?;
        }
        Ok(list)
    }

    /// Looks for work now.
    #[napi]
    pub fn nudge(&self) {
        if let Some(worker) = &*self.started.lock() {
            worker.nudge();
        }
    }

    /// Drops waiting runs from memory.
    #[napi]
    pub fn evict(&self) {
        if let Some(worker) = &*self.started.lock() {
            worker.evict_parked();
        }
    }

    /// Stops: runs are put away and given back, tasks get the grace.
    #[napi]
    pub fn close(&self, hub: &Hub, token: u32, grace_ms: f64) -> napi::Result<Abort> {
        let (worker, toolkit, grace) = (self.started.lock().clone(), self.toolkit.clone(), duration(grace_ms)?);
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            if let Some(worker) = worker {
                worker.close(grace).await?;
            }
            toolkit.close().await;
            Ok(Reply::Nothing)
        }))
    }
}

/// A claimed attempt of a task; its first reported end counts.
#[napi]
pub struct Ticket {
    id: u64,
    core: CoreTicket,
    activations: Arc<Activations>,
}

#[napi]
impl Ticket {
    #[napi]
    pub fn heartbeat(&self) {
        self.core.heartbeat();
    }

    #[napi(getter)]
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    #[napi]
    pub fn progress(&self, fraction: f64, message: String) {
        self.core.progress(fraction, &message);
    }

    /// `kind` is 0 for a token, 1 for data.
    #[napi]
    pub fn stream(&self, kind: u32, data: String) {
        self.core.stream(chunk(kind), &data);
    }

    #[napi]
    pub fn completed(&self, output: Given<'_>) {
        self.activations.task_ended(self.id, AttemptResult::Completed(payload(output)));
    }

    #[napi]
    pub fn failed(&self, failure: FailureDraft, retryable: bool, pause_ms: Option<f64>) {
        let failure = failure.into_failure(Code::TaskFailed);
        let pause = pause_ms.and_then(asked);
        self.activations.task_ended(self.id, AttemptResult::Failed { failure, retryable, pause });
    }

    #[napi]
    pub fn cancelled(&self) {
        self.activations.task_ended(self.id, AttemptResult::Cancelled);
    }

    /// `reconcile` found that it did not take effect.
    #[napi]
    pub fn not_done(&self) {
        self.activations.task_ended(self.id, AttemptResult::NotDone);
    }

    /// The process ends before the task did: another worker takes it.
    #[napi]
    pub fn released(&self) {
        self.activations.task_ended(self.id, AttemptResult::Released);
    }
}
