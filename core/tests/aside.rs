//! A stored row that cannot be used stops its own run, and nobody else's.

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, TaskCall};
use flovyn_core::id::{ExecutionId, OrgId, SignalId, TaskId, WorkerId};
use flovyn_core::model::{
    Delivery, EventKind, NewExecution, NewSignal, PageRequest, ResumeRequest, Status, TaskStatus, WaitReason,
};
use flovyn_core::payload::Payload;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::postgres::{PostgresOptions, PostgresStorage};
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::storage::{ClaimRequest, Heartbeat, Storage};
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const ORG: OrgId = OrgId::DEFAULT;

/// Changes a column of a row of a table by hand.
type Spoil = Box<dyn Fn(&str, Uuid, &str)>;

struct Backend {
    storage: Arc<dyn Storage>,
    spoil: Spoil,
    _folder: Option<tempfile::TempDir>,
}

fn sqlite() -> Backend {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let storage = Arc::new(SqliteStorage::open(&file, SqliteOptions::default()).unwrap());
    let spoil: Spoil = Box::new(move |table, id, set| {
        let beside = rusqlite::Connection::open(&file).unwrap();
        let sql = format!("UPDATE {table} SET {set} WHERE id = x'{}'", id.simple());
        assert_eq!(beside.execute(&sql, []).unwrap(), 1);
    });
    Backend { storage, spoil, _folder: Some(folder) }
}

fn postgres() -> Backend {
    let cluster = Cluster::shared();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap().to_owned();
    let storage = Arc::new(PostgresStorage::connect(&url, PostgresOptions::default()).unwrap());
    let spoil: Spoil = Box::new(move |table, id, set| {
        cluster.sql("postgres", &format!("UPDATE {schema}.{table} SET {set} WHERE id = '{id}'")).unwrap();
    });
    Backend { storage, spoil, _folder: None }
}

fn claim(queue: &str, kind: &str) -> ClaimRequest {
    ClaimRequest {
        org: ORG,
        worker: WorkerId::fresh(),
        queue: queue.into(),
        kinds: [kind.to_owned()].into(),
        limit: 10,
        ttl: Duration::from_secs(30),
        only: None,
    }
}

async fn start(storage: &dyn Storage) -> ExecutionId {
    let new = NewExecution::new(ExecutionId::fresh(), "agent", Payload::of(&"input").unwrap()).unwrap();
    storage.create_execution(new).await.unwrap().execution.new.id
}

async fn claimed(storage: &dyn Storage) -> Vec<ExecutionId> {
    let claims = storage.claim_agents(claim("default", "agent")).await.unwrap();
    claims.into_iter().map(|claim| claim.execution.new.id).collect()
}

/// A run that is paused says why; once its row is mended it goes on.
async fn pauses_and_goes_on(storage: &dyn Storage, run: ExecutionId, why: &str) {
    let paused = storage.execution(ORG, run).await.unwrap();
    assert_eq!((paused.status, paused.wait.unwrap().reason), (Status::Paused, Some(WaitReason::Quarantined)));
    assert!(paused.failure.as_ref().unwrap().message.contains(why), "{:?}", paused.failure);
    let events = storage.events(ORG, run, 0, 100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::Paused).count(), 1);
    storage.resume(ORG, run, ResumeRequest::default()).await.unwrap();
    assert_eq!(claimed(storage).await, [run]);
}

async fn a_run_of_no_use_stops_nobody_else(backend: Backend) {
    let storage = &*backend.storage;
    let [first, bad, last] = [start(storage).await, start(storage).await, start(storage).await];
    (backend.spoil)("agent_execution", bad.0, "metadata = 'no JSON'");
    assert_eq!(claimed(storage).await, [first, last]);
    assert!(claimed(storage).await.is_empty());
    assert_eq!(storage.load().await.unwrap().set_aside, 1);
    (backend.spoil)("agent_execution", bad.0, "metadata = '{}'");
    pauses_and_goes_on(storage, bad, "not as it was written").await;

    // A name that an older version let in, and that no index of today holds.
    let [bad, good] = [start(storage).await, start(storage).await];
    let long: String = (0..400).map(|_| Uuid::new_v4().simple().to_string()).collect();
    (backend.spoil)("agent_execution", bad.0, &format!("concurrency_key = '{long}', metadata = 'no JSON'"));
    assert_eq!(claimed(storage).await, [good]);
    (backend.spoil)("agent_execution", bad.0, "concurrency_key = NULL, metadata = '{}'");
    assert_eq!(storage.execution(ORG, bad).await.unwrap().status, Status::Paused);

    // What time brings comes to others all the same.
    let [bad, good] = [start(storage).await, start(storage).await];
    for _ in 0..2 {
        let short = ClaimRequest { limit: 1, ttl: Duration::from_millis(1), ..claim("default", "agent") };
        assert_eq!(storage.claim_agents(short).await.unwrap().len(), 1);
    }
    (backend.spoil)("agent_execution", bad.0, "metadata = 'no JSON', status = 77");
    tokio::time::sleep(Duration::from_millis(20)).await;
    storage.pass().await.unwrap();
    let mut again = claimed(storage).await;
    again.retain(|run| *run == good);
    assert_eq!(again, [good]);
}

struct Asks;

#[async_trait]
impl AgentDefinition for Asks {
    type State = ();
    type Input = ();
    type Output = ();

    fn kind(&self) -> &str {
        "asks"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> flovyn_core::Result<()> {
        let call = |n: u32| -> flovyn_core::Result<TaskCall> {
            let (kind, queue) = ("work".to_owned(), Some("gpu".to_owned()));
            Ok(TaskCall { kind, input: Payload::of(&n)?, options: None, queue, key: None })
        };
        let both = [ctx.schedule_raw(call(1)?)?, ctx.schedule_raw(call(2)?)?];
        for each in both {
            each.await?;
        }
        Ok(())
    }
}

async fn a_task_of_no_use_stops_its_run_alone(backend: Backend) {
    let runtime = Runtime::over(backend.storage.clone());
    let storage = &*backend.storage;
    let host = NativeHost::default().agent(Asks).unwrap();
    let _worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    let client = runtime.client();
    let start = async || client.start("asks", Payload::null(), StartOptions::default()).await.unwrap().id();
    let (bad, good) = (start().await, start().await);
    let tasks = async |run| {
        loop {
            let page = storage.tasks(ORG, run, PageRequest::default()).await.unwrap().items;
            if page.len() == 2 {
                return page.into_iter().map(|task| task.new.id).collect::<Vec<TaskId>>();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (of_bad, of_good) = (tasks(bad).await, tasks(good).await);
    (backend.spoil)("task_execution", of_bad[0].0, "options = 'no JSON'");
    let mut handed: Vec<_> = storage.claim_tasks(claim("gpu", "work")).await.unwrap();
    handed.sort_by_key(|claimed| claimed.task.new.id);
    let mut expected = vec![of_bad[1], of_good[0], of_good[1]];
    expected.sort();
    assert_eq!(handed.iter().map(|claimed| claimed.task.new.id).collect::<Vec<_>>(), expected);
    let paused = storage.execution(ORG, bad).await.unwrap();
    assert_eq!((paused.status, paused.wait.unwrap().reason), (Status::Paused, Some(WaitReason::Quarantined)));
    assert!(paused.failure.unwrap().message.contains(&of_bad[0].to_string()));
    (backend.spoil)("task_execution", of_bad[0].0, "options = '{}'");
    assert_eq!(storage.task(ORG, bad, of_bad[0]).await.unwrap().status, TaskStatus::Quarantined);
}

async fn news_of_no_use_stop_no_heartbeat(backend: Backend) {
    let storage = &*backend.storage;
    let (bad, _good) = (start(storage).await, start(storage).await);
    let worker = claim("default", "agent");
    let claims = storage.claim_agents(worker.clone()).await.unwrap();
    let held: Vec<_> = claims.iter().map(|claim| (claim.execution.new.id, claim.lease.epoch, claim.high)).collect();
    let signal = NewSignal {
        org: ORG,
        execution: bad,
        id: SignalId::fresh(),
        name: "go".into(),
        payload: Payload::null(),
        delivery: Delivery::default(),
        idempotency_key: None,
    };
    let stored = storage.store_signal(signal).await.unwrap();
    (backend.spoil)("agent_signal", stored.id.0, "delivery = 77");
    let beat = Heartbeat {
        org: ORG,
        worker: worker.worker,
        ttl: Duration::from_secs(30),
        executions: held,
        tasks: Vec::new(),
        progress: Vec::new(),
    };
    let answer = storage.heartbeat(beat).await.unwrap();
    assert_eq!((answer.lost_executions, answer.stale_executions), (Vec::new(), vec![bad]));
}

#[tokio::test(flavor = "multi_thread")]
async fn news_of_no_use_stop_no_heartbeat_on_sqlite() {
    news_of_no_use_stop_no_heartbeat(sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn news_of_no_use_stop_no_heartbeat_on_postgresql() {
    news_of_no_use_stop_no_heartbeat(postgres()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_no_use_stops_nobody_else_on_sqlite() {
    a_run_of_no_use_stops_nobody_else(sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_no_use_stops_nobody_else_on_postgresql() {
    a_run_of_no_use_stops_nobody_else(postgres()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_no_use_stops_its_run_alone_on_sqlite() {
    a_task_of_no_use_stops_its_run_alone(sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_no_use_stops_its_run_alone_on_postgresql() {
    a_task_of_no_use_stops_its_run_alone(postgres()).await;
}
