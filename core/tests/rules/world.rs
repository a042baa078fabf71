//! A backend on a driven clock with agents and tasks made of closures.

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, AgentState, NativeHost};
use flovyn_core::client::{Client, Handle, StartOptions};
use flovyn_core::clock::{ManualClock, Timestamp};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::journal::{OnDivergence, OnError};
use flovyn_core::model::{Delivery, Event, EventKind, RecordedOp, Status, Task, TaskOptions};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::Storage;
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::{Worker, WorkerOptions};
use flovyn_core::{Payload, storage};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const ORG: OrgId = OrgId::DEFAULT;

type Corrupt = Box<dyn Fn(ExecutionId, u32) -> bool + Send + Sync>;

/// One backend under test.
pub(crate) struct World {
    pub storage: Arc<dyn Storage>,
    pub clock: ManualClock,
    pub runtime: Runtime,
    pub corrupt: Corrupt,
    folder: Option<tempfile::TempDir>,
}

impl World {
    pub(crate) fn memory() -> Self {
        let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
        let memory = Arc::new(MemoryStorage::new(Arc::new(clock.clone())));
        let damaged = memory.clone();
        let corrupt = Box::new(move |execution, sequence| damaged.corrupt_checkpoint(ORG, execution, sequence));
        Self { runtime: Runtime::over(memory.clone()), storage: memory, clock, corrupt, folder: None }
    }

    pub(crate) fn sqlite() -> Self {
        let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
        let ram = Path::new("/dev/shm");
        let folder = if ram.is_dir() { tempfile::tempdir_in(ram) } else { tempfile::tempdir() }.unwrap();
        let file = folder.path().join("runs.db");
        let options = SqliteOptions { clock: Arc::new(clock.clone()), ..SqliteOptions::default() };
        let storage = Arc::new(SqliteStorage::open(&file, options).unwrap());
        let corrupt = Box::new(move |execution: ExecutionId, sequence: u32| {
            let connection = rusqlite::Connection::open(&file).unwrap();
            let changed = connection.execute(
                "UPDATE agent_checkpoint SET hash = zeroblob(length(hash)) WHERE sequence = ?2 AND run = \
                 (SELECT run FROM agent_execution WHERE id = ?1)",
                rusqlite::params![execution.0.as_bytes(), sequence],
            );
            changed.unwrap() == 1
        });
        Self { runtime: Runtime::over(storage.clone()), storage, clock, corrupt, folder: Some(folder) }
    }

    pub(crate) fn client(&self) -> Client {
        self.runtime.client()
    }

    /// A worker that keeps no waiting run in memory: every wait is a re-entry.
    pub(crate) async fn forgetful(&self, host: NativeHost) -> Worker {
        let options = WorkerOptions { max_parked: 0, ..WorkerOptions::default() };
        self.runtime.worker(Arc::new(host), options).await.unwrap()
    }

    pub(crate) async fn worker(&self, host: NativeHost) -> Worker {
        self.runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap()
    }

    /// As `kill -9` and another process that notices it.
    pub(crate) async fn kill(&self, worker: &Worker) {
        worker.kill_noticed().await.unwrap();
    }

    pub(crate) async fn start(&self, kind: &str) -> Handle {
        self.client().start(kind, Payload::null(), StartOptions::default()).await.unwrap()
    }

    pub(crate) async fn journal(&self, handle: &Handle, segment: u32) -> Vec<RecordedOp> {
        self.storage.journal(ORG, handle.id(), segment).await.unwrap()
    }

    pub(crate) async fn events(&self, handle: &Handle) -> Vec<Event> {
        self.storage.events(ORG, handle.id(), 0, 10_000).await.unwrap()
    }

    pub(crate) async fn warnings(&self, handle: &Handle, word: &str) -> usize {
        let events = self.events(handle).await;
        events.iter().filter(|event| event.kind == EventKind::Warning && event.data["warning"] == word).count()
    }

    pub(crate) async fn tasks(&self, handle: &Handle) -> Vec<Task> {
        handle.tasks(flovyn_core::model::PageRequest { limit: 1_000, after: None }).await.unwrap().items
    }

    /// How many bytes are stored, for a backend in a file: pages in use, whatever the write-ahead log still repeats.
    pub(crate) fn stored_size(&self) -> Option<u64> {
        let file = self.folder.as_ref()?.path().join("runs.db");
        let connection = rusqlite::Connection::open(file).unwrap();
        let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0)).unwrap();
        let pages = number("PRAGMA page_count") - number("PRAGMA freelist_count");
        Some((pages * number("PRAGMA page_size")).cast_unsigned())
    }
}

/// Looks again until it is so; 20 seconds are far more than it takes.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    for _ in 0..6_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    panic!("it never came to this: {what}");
}

pub(crate) async fn waits_for(handle: &Handle, signal: &str) {
    until(&format!("the run waits for {signal:?}"), || async {
        let run = handle.describe().await.unwrap();
        let named = run.wait.is_some_and(|wait| wait.signals.iter().any(|name| name == signal));
        run.status == Status::Waiting && named
    })
    .await;
}

pub(crate) async fn has_status(handle: &Handle, status: Status) {
    until(&format!("the run is {status}"), || async { handle.status().await.unwrap() == status }).await;
}

pub(crate) async fn send(handle: &Handle, name: &str, value: impl Serialize) {
    handle.signal(name, Payload::of(&value).unwrap(), Delivery::NextStep, None).await.unwrap();
}

pub(crate) async fn result(handle: &Handle) -> Value {
    let output = handle.result(Some(Duration::from_secs(25))).await;
    output.unwrap_or_else(|error| panic!("{error:?}")).parse().unwrap()
}

type Body = dyn for<'a> Fn(&'a dyn AgentContext) -> BoxFuture<'a, Result<Value>> + Send + Sync;

/// An agent without state.
#[derive(Clone)]
pub(crate) struct Agent {
    kind: String,
    version: String,
    policy: OnDivergence,
    on_error: OnError,
    body: Arc<Body>,
}

pub(crate) fn agent(
    kind: &str,
    body: impl for<'a> Fn(&'a dyn AgentContext) -> BoxFuture<'a, Result<Value>> + Send + Sync + 'static,
) -> Agent {
    let (policy, on_error) = (OnDivergence::Continue, OnError::Judge);
    Agent { kind: kind.into(), version: "1".into(), policy, on_error, body: Arc::new(body) }
}

impl Agent {
    pub(crate) fn version(self, version: &str) -> Self {
        Self { version: version.into(), ..self }
    }

    pub(crate) fn policy(self, policy: OnDivergence) -> Self {
        Self { policy, ..self }
    }

    pub(crate) fn on_error(self, on_error: OnError) -> Self {
        Self { on_error, ..self }
    }

    pub(crate) fn host(self) -> NativeHost {
        NativeHost::default().agent(self).unwrap()
    }
}

#[async_trait]
impl AgentDefinition for Agent {
    type State = ();
    type Input = Value;
    type Output = Value;
    fn kind(&self) -> &str {
        &self.kind
    }
    fn version(&self) -> Option<String> {
        Some(self.version.clone())
    }
    fn on_divergence(&self) -> OnDivergence {
        self.policy
    }
    fn on_error(&self) -> OnError {
        self.on_error
    }
    async fn execute(&self, ctx: &dyn AgentContext, _: Value) -> Result<Value> {
        (self.body)(ctx).await
    }
}

/// A state of any form.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct State(pub Value);

impl AgentState for State {}

/// An agent with state.
pub(crate) struct Stateful(pub &'static str, pub Arc<Body>);

pub(crate) fn stateful(
    kind: &'static str,
    body: impl for<'a> Fn(&'a dyn AgentContext) -> BoxFuture<'a, Result<Value>> + Send + Sync + 'static,
) -> NativeHost {
    NativeHost::default().agent(Stateful(kind, Arc::new(body))).unwrap()
}

#[async_trait]
impl AgentDefinition for Stateful {
    type State = State;
    type Input = Value;
    type Output = Value;
    fn kind(&self) -> &str {
        self.0
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    async fn execute(&self, ctx: &dyn AgentContext, _: Value) -> Result<Value> {
        (self.1)(ctx).await
    }
}

type Work = dyn Fn(TaskContext, Value) -> BoxFuture<'static, Result<Value>> + Send + Sync;

/// A task with a list of what it was asked to do.
#[derive(Clone)]
pub(crate) struct Job {
    kind: &'static str,
    options: TaskOptions,
    work: Arc<Work>,
    pub asked: Arc<Mutex<Vec<Value>>>,
}

/// A task that gives back its input.
pub(crate) fn echo() -> Job {
    job("echo", |_, input| Box::pin(async move { Ok(input) }))
}

pub(crate) fn job(
    kind: &'static str,
    work: impl Fn(TaskContext, Value) -> BoxFuture<'static, Result<Value>> + Send + Sync + 'static,
) -> Job {
    Job { kind, options: TaskOptions::default(), work: Arc::new(work), asked: Arc::default() }
}

impl Job {
    pub(crate) fn options(self, options: TaskOptions) -> Self {
        Self { options, ..self }
    }

    /// How often it was asked to do this.
    pub(crate) fn times(&self, input: impl Into<Value>) -> usize {
        let input = input.into();
        self.asked.lock().unwrap().iter().filter(|asked| **asked == input).count()
    }

    pub(crate) fn total(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl TaskDefinition for Job {
    type Input = Value;
    type Output = Value;
    fn kind(&self) -> &str {
        self.kind
    }
    fn options(&self) -> TaskOptions {
        self.options.clone()
    }
    async fn execute(&self, ctx: &TaskContext, input: Value) -> Result<Value> {
        self.asked.lock().unwrap().push(input.clone());
        (self.work)(ctx.clone(), input).await
    }
    async fn reconcile(&self, _: &TaskContext, input: Value) -> Result<Option<Value>> {
        Ok(Some(serde_json::json!({"reconciled": input})))
    }
}

/// Does `echo` with an input.
pub(crate) async fn say(ctx: &dyn AgentContext, what: impl Into<Value>) -> Result<Value> {
    ctx.schedule::<Value>("echo", &what.into())?.await
}

/// A claim of runs by a worker that is none.
pub(crate) fn claim_by(worker: u128, kind: &str) -> storage::ClaimRequest {
    storage::ClaimRequest {
        org: ORG,
        worker: flovyn_core::id::WorkerId(uuid::Uuid::from_u128(worker)),
        queue: "default".into(),
        kinds: Arc::new([kind.to_owned()]),
        limit: 1,
        ttl: Duration::from_secs(30),
        only: None,
    }
}

/// Makes one module of a rule, with a test for each backend.
#[macro_export]
macro_rules! rule {
    ($name:ident, $world:ident, $body:block) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn holds($world: World) $body

            #[tokio::test]
            async fn on_memory() {
                holds(World::memory()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                holds(World::sqlite()).await;
            }
        }
    };
}
