//! A worker: what it serves, and what of the engine waits for the loop.

use crate::error::{failure_of, thrown};
use crate::hub::{Abort, Hub, Reply};
use crate::runtime::Runtime;
use crate::session::{FailureDraft, Session};
use crate::task::TaskSpec;
use crate::value::{Wire, WireOut, duration, payload, to_js};
use flovyn_core::error::Code;
use flovyn_core::host::{
    Activation, Activations, AgentDeclaration, CompositeHost, Language, NewsCode, PreviewCode, TaskSpec as Spec,
    WorkerSettings as Settings,
};
use flovyn_core::model::AttemptResult;
use flovyn_core::sync::Mutex;
use flovyn_core::worker::{Host, Ticket as CoreTicket, Worker as CoreWorker};
use flovyn_toolkit::config::Toolkits;
use napi::Env;
use napi::bindgen_prelude::Array;
use napi_derive::napi;
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

impl WorkerSettings {
    fn into_core(self) -> Settings {
        Settings {
            queue: self.queue,
            max_agents: self.max_agents as usize,
            max_tasks: self.max_tasks.map(|most| most as usize),
            max_parked: self.max_parked.map(|most| most as usize),
            only: self.only,
        }
    }
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
        let AgentSettings { stateful, code, on_divergence, on_error, cancellable, replay_timeout_ms } = settings;
        let replay_timeout = replay_timeout_ms;
        let declared = AgentDeclaration { stateful, code, on_divergence, on_error, cancellable, replay_timeout };
        self.activations.serve_agent(&kind, declared.config(Language::TypeScript).map_err(thrown)?);
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
        let store = runtime.host.store().to_owned();
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
        self.toolkit.options(&kind).map(|options| TaskSpec(Spec::queued(&kind, options, queue)))
    }

    /// Starts to poll.
    #[napi]
    pub fn start(&self, hub: &Hub, token: u32, runtime: &Runtime, settings: WorkerSettings) -> napi::Result<Abort> {
        let options = settings.into_core().options().map_err(thrown)?;
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

    /// Takes what waits: `[code, id, session, kind]` to run an agent, `[code, id]` to take effects of its session,
    /// `[code, id, ticket, kind, input, task, attempt, reconcile]` to run a task, `[code, id]` to stop it. The codes are
    /// `NewsCode`s.
    #[napi(ts_return_type = "Activated[]")]
    pub fn poll<'env>(&self, env: &'env Env) -> napi::Result<Array<'env>> {
        let mut list = env.create_array(0)?;
        for activation in self.activations.poll() {
            let mut parts = env.create_array(0)?;
            match activation {
                Activation::Agent(id, core) => {
                    parts.insert(NewsCode::Agent.number())?;
                    parts.insert(id as f64)?;
                    let kind = core.execution().new.kind.clone();
                    parts.insert(Session::of(core, self.threads.clone()))?;
                    parts.insert(kind)?;
                }
                Activation::Effects(id, _) => {
                    parts.insert(NewsCode::Effects.number())?;
                    parts.insert(id as f64)?;
                }
                Activation::Task(id, claimed) => {
                    let Some(core) = self.activations.ticket(id) else { continue };
                    let task = claimed.task;
                    let input = match to_js(env, WireOut(task.new.input))? {
                        Ok(input) => input,
                        Err(text) => {
                            // The attempt has failed; what else waits is given.
                            let (failure, retryable) = failure_of(&text);
                            self.activations.task_ended(id, AttemptResult::Failed { failure, retryable, pause: None });
                            continue;
                        }
                    };
                    parts.insert(NewsCode::Task.number())?;
                    parts.insert(id as f64)?;
                    parts.insert(Ticket { id, core, activations: self.activations.clone() })?;
                    parts.insert(&*task.new.kind)?;
                    parts.insert(input)?;
                    parts.insert(task.new.id.to_string())?;
                    parts.insert(task.attempt)?;
                    parts.insert(claimed.reconcile)?;
                }
                Activation::CancelTask(id) => {
                    parts.insert(NewsCode::CancelTask.number())?;
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

    /// `kind` is a `PreviewCode`.
    #[napi]
    pub fn stream(&self, kind: u32, data: String) {
        self.core.stream(PreviewCode::kind(kind), &data);
    }

    #[napi]
    pub fn completed(&self, output: Wire<'_>) {
        self.activations.task_ended(self.id, AttemptResult::Completed(payload(output)));
    }

    #[napi]
    pub fn failed(&self, failure: FailureDraft, retryable: bool, pause_ms: Option<f64>) {
        let failure = failure.into_failure(Code::TaskFailed);
        let pause = Language::TypeScript.pause(pause_ms);
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
