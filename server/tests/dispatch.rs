//! Who gets a run, over two workers that share nothing but the database or the server: the worker that has it parked, one
//! at a time of a concurrency key whoever dies, and nobody behind another org's backlog.

mod house;

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Client, Handle, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt, TaskCall};
use flovyn_core::error::Result;
use flovyn_core::id::{ExecutionId, OpId, OrgId, RequestId, Slot, TaskId, WorkerId};
use flovyn_core::journal::Outcome;
use flovyn_core::model::{
    Batch, BatchEnd, CommitRequest, Delivery, Label, LabelKey, NewExecution, NewOp, NewTask, OpBody, OpKind, Placement,
    Status, TaskOptions, TaskStatus,
};
use flovyn_core::payload::Digest;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::ClaimRequest;
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use futures::StreamExt;
use futures::future::{try_join, try_join_all};
use house::{House, job};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often each run is woken.
const ROUNDS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts how often it is entered, and waits for its rounds.
struct Waits(Arc<AtomicUsize>);

#[async_trait]
impl AgentDefinition for Waits {
    type State = ();
    type Input = ();
    type Output = usize;

    fn kind(&self) -> &str {
        "waits"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<usize> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut heard = 0;
        for _ in 0..ROUNDS {
            heard += ctx.wait_for_signal::<usize>("round")?.await?;
        }
        Ok(heard)
    }
}

async fn until_waiting(handle: &Handle) -> Result<()> {
    let waiting = async {
        while handle.status().await? != Status::Waiting {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the run waits")
}

/// Wakes 20 runs ten times each, over two idle workers, and counts the wake-ups that its parked copy answered.
async fn parked_copies_go_on(runtimes: [Runtime; 2]) -> Result<()> {
    let entered = Arc::new(AtomicUsize::new(0));
    for runtime in &runtimes {
        let host = NativeHost::default().agent(Waits(entered.clone()))?;
        runtime.worker(Arc::new(host), WorkerOptions::default()).await?;
    }
    let client = runtimes[0].client();
    let mut handles = Vec::new();
    for n in 0..20 {
        handles.push(client.start("waits", Payload::null(), StartOptions::with_id(format!("waits-{n}"))).await?);
    }
    for round in 0..ROUNDS {
        for handle in &handles {
            until_waiting(handle).await?;
            let key = Some(format!("round {round}"));
            handle.signal("round", Payload::of(&1)?, Delivery::NextStep, key).await?;
        }
    }
    for handle in &handles {
        assert_eq!(handle.result(Some(PATIENCE)).await?.parse::<usize>()?, ROUNDS);
    }
    let wakes = handles.len() * ROUNDS;
    let missed = entered.load(Ordering::SeqCst) - handles.len();
    println!("{} of {wakes} wake-ups were answered by the parked copy", wakes - missed);
    assert!(missed * 20 <= wakes, "{missed} of {wakes} wake-ups entered the run again");
    for runtime in runtimes {
        runtime.close().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_copy_goes_on_over_postgres() -> Result<()> {
    let db = Cluster::shared().fresh().expect("a database");
    parked_copies_go_on([Runtime::open(&db).await?, Runtime::open(&db).await?]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_copy_goes_on_over_grpc() -> Result<()> {
    let house = House::open().await;
    parked_copies_go_on([house.remote().await, house.remote().await]).await
}

/// Counts how many runs of a key advance at the same time, and the most there were.
#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A run that advances; also one that ends with its process ends this.
struct Advancing<'a>(&'a Gauge);

impl Gauge {
    fn advance(&self) -> Advancing<'_> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Advancing(self)
    }
}

impl Drop for Advancing<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How many runs of each key of the storm may advance; the gauge after theirs is of runs without one.
const LIMITS: [usize; KEYS] = [1, 1, 1, 2];
const KEYS: usize = 4;
type Gauges = Arc<[Gauge; KEYS + 1]>;

/// Advances alone among those of its key: three steps, a wait in which others may advance, three more.
struct Alone(Gauges);

#[async_trait]
impl AgentDefinition for Alone {
    type State = ();
    type Input = usize;
    type Output = ();

    fn kind(&self) -> &str {
        "alone"
    }

    async fn execute(&self, ctx: &dyn AgentContext, key: usize) -> Result<()> {
        for part in 0..2 {
            let advancing = self.0[key].advance();
            for _ in 0..3 {
                ctx.run("step", async {
                    tokio::task::yield_now().await;
                    Ok(())
                })?
                .await?;
            }
            drop(advancing);
            if part == 0 {
                ctx.wait_for_signal::<()>("go")?.await?;
            }
        }
        Ok(())
    }
}

/// A worker that ends all at once, as a killed process does.
struct Process(WorkerId, Option<tokio::runtime::Runtime>);

impl Process {
    async fn start(db: &str, gauges: &Gauges) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads start");
        let (db, gauges) = (db.to_owned(), gauges.clone());
        let (ready, worker) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let flovyn = Runtime::open(&db).await?;
            let host = NativeHost::default().agent(Alone(gauges))?;
            let worker = flovyn.worker(Arc::new(host), WorkerOptions::default()).await?;
            let _ = ready.send(worker.id());
            std::future::pending::<Result<()>>().await
        });
        Self(worker.await.expect("a worker starts"), Some(runtime))
    }

    /// None of its code runs any more when this returns.
    async fn kill(mut self) -> WorkerId {
        let runtime = self.1.take().expect("it lives");
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(PATIENCE)).await.expect("it ends");
        self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.1.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

/// Starts runs of a key one after the other, and sees each to its end. Tells how many there were.
async fn drive(client: &Client, key: usize, over: &AtomicBool) -> Result<usize> {
    let mut ended = 0;
    while !over.load(Ordering::SeqCst) {
        let concurrency_key = (key < KEYS).then(|| format!("key {key}"));
        let concurrency_limit = LIMITS.get(key).filter(|limit| **limit > 1).map(|limit| *limit as u32);
        let options = StartOptions { concurrency_key, concurrency_limit, ..StartOptions::default() };
        let handle = client.start("alone", Payload::of(&key)?, options).await?;
        handle.signal("go", Payload::null(), Delivery::NextStep, None).await?;
        handle.result(Some(PATIENCE)).await?;
        ended += 1;
    }
    Ok(ended)
}

/// Workers die all the time, and in no moment are more runs of a key RUNNING than may be: neither by the rows nor by what the
/// code does.
/// `SCALE=n` makes it n times as long.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_concurrency_key_one_run_advances_whoever_dies() -> Result<()> {
    let scale = std::env::var("SCALE").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(1);
    let (began, storm) = (Instant::now(), Duration::from_secs(10 * scale));
    let db = Cluster::shared().fresh().expect("a database");
    let schema = db.rsplit("%3D").next().expect("a schema").to_owned();
    let runtime = Runtime::open(&db).await?;
    let (client, gauges, over) = (runtime.client(), Gauges::default(), Arc::new(AtomicBool::new(false)));
    let looking = {
        // All keys at one moment: how many runs each has that are RUNNING.
        let running = format!(
            "SELECT concurrency_key, count(*) FROM {schema}.agent_execution \
             WHERE status = 1 AND concurrency_key IS NOT NULL GROUP BY 1"
        );
        let over = over.clone();
        tokio::task::spawn_blocking(move || {
            let (mut looks, mut seen) = (0, 0);
            while !over.load(Ordering::SeqCst) {
                let rows = Cluster::shared().sql("postgres", &running).expect("the rows are read");
                let may_be = |row: &str| (0..KEYS).any(|n| (1..=LIMITS[n]).any(|may| row == format!("key {n}|{may}")));
                assert!(rows.lines().all(may_be), "too many are RUNNING: {rows}");
                (looks, seen) = (looks + 1, seen + rows.lines().count());
            }
            (looks, seen)
        })
    };
    let (mut dead, done) = (Vec::new(), AtomicBool::new(false));
    let killing = async {
        let mut workers = VecDeque::new();
        for _ in 0..3 {
            workers.push_back(Process::start(&db, &gauges).await);
        }
        while !done.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(300)).await;
            if began.elapsed() < storm {
                dead.push(workers.pop_front().expect("three live").kill().await);
                workers.push_back(Process::start(&db, &gauges).await);
            }
            over.store(began.elapsed() >= storm, Ordering::SeqCst);
            // As a server does when a worker's connection breaks; a claim that the dead had asked for may have come since.
            for worker in &dead {
                runtime.storage().cut_leases(OrgId::DEFAULT, *worker, Duration::ZERO).await?;
            }
        }
        Ok(())
    };
    let driving = async {
        let ended = try_join_all((0..30).map(|n| drive(&client, n % (KEYS + 1), &over))).await;
        done.store(true, Ordering::SeqCst);
        ended
    };
    let ((), ended) = try_join(killing, driving).await?;
    let (looks, seen) = looking.await.expect("the rows are as they must be");
    let deaths = dead.len();
    let most = gauges.each_ref().map(|gauge| gauge.most.load(Ordering::SeqCst));
    let ended: usize = ended.iter().sum();
    println!("{ended} runs, {deaths} deaths; {looks} looks saw {seen} RUNNING; most of each key at once {most:?}");
    assert_eq!(most[..KEYS], LIMITS);
    assert!(most[KEYS] > 1, "those without a key advance together");
    assert!(deaths > 3 && seen > 10 && ended > 30, "{deaths} deaths, {seen} seen, {ended} runs");
    runtime.close().await
}

/// The answer of a commit over gRPC hands the tasks of its batch straight to its sender, as many as it has places for.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_brings_its_tasks_along() -> Result<()> {
    let house = House::open().await;
    let runtime = house.remote().await;
    let storage = runtime.storage();
    let handle = runtime.client().start("agent", Payload::null(), StartOptions::default()).await?;
    let claim = |kind: &str, limit: usize, worker: WorkerId| ClaimRequest {
        org: OrgId::DEFAULT,
        worker,
        queue: "default".into(),
        kinds: [kind.to_owned()].into(),
        limit,
        ttl: Duration::from_secs(30),
        only: None,
    };
    let worker = WorkerId::fresh();
    let claimed = storage.claim_agents(claim("agent", 1, worker)).await?.remove(0);
    let task = |sequence: u32| -> Result<NewOp> {
        let (execution, slot) = (handle.id(), Slot { segment: 0, sequence });
        let task = NewTask {
            id: TaskId(OpId { execution, slot, once: None }.uuid()),
            kind: "fetch".into(),
            queue: "default".into(),
            input: Payload::of(&sequence)?,
            options: TaskOptions::default(),
            placement: Placement::Queue,
            entry: None,
        };
        let key = LabelKey::Key(format!("task {sequence}").into());
        let label = Label { kind: OpKind::Task, name: "fetch".into(), key };
        Ok(NewOp { sequence, once: None, label, seen: Vec::new(), body: OpBody::Task(task) })
    };
    let request = CommitRequest {
        org: OrgId::DEFAULT,
        execution: handle.id(),
        lease: claimed.lease,
        request_id: RequestId::fresh(),
        digest: Digest::of_parts(&[b"three tasks"]),
        base: 0,
        known: claimed.high,
        batch: Batch::new(0, vec![task(0)?, task(1)?, task(2)?], BatchEnd::Continue),
        refused: Vec::new(),
        local: None,
    };
    let wanted = claim("fetch", 2, worker);
    let (answer, tasks) = storage.commit_and_claim(request.clone(), &wanted).await?;
    assert_eq!((answer.number, tasks.len()), (1, 2));
    for claimed in &tasks {
        assert_eq!((claimed.task.attempt, claimed.task.worker), (1, Some(worker)));
        let stored = storage.task(OrgId::DEFAULT, handle.id(), claimed.task.new.id).await?;
        assert_eq!(stored.status, TaskStatus::Running);
    }
    // A repeated request brings what is left; the rest is claimed as ever.
    let (again, more) = storage.commit_and_claim(request, &wanted).await?;
    assert_eq!((again.number, more.len()), (1, 1));
    assert!(storage.claim_tasks(claim("fetch", 9, worker)).await?.is_empty());
    runtime.close().await
}

/// Schedules tasks on its own queue, one after the other.
struct Fetches;

#[async_trait]
impl AgentDefinition for Fetches {
    type State = ();
    type Input = u64;
    type Output = u64;

    fn kind(&self) -> &str {
        "fetches"
    }

    async fn execute(&self, ctx: &dyn AgentContext, many: u64) -> Result<u64> {
        let mut sum = 0;
        for n in 0..many {
            let queue = Some("default".to_owned());
            let call = TaskCall { kind: "fetch".into(), input: Payload::of(&n)?, options: None, queue, key: None };
            let Outcome::Value(got) = ctx.schedule_raw(call)?.await? else { break };
            sum += got.parse::<u64>()?;
        }
        Ok(sum)
    }
}

/// A worker whose few places are always taken still gets every task, whichever way it comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_few_places_gets_every_task() -> Result<()> {
    let house = House::open().await;
    let runtime = house.remote().await;
    let fetch = job("fetch", TaskOptions::default(), |_, n| Box::pin(async move { Ok(n) }));
    let host = NativeHost::default().agent(Fetches)?.task(fetch)?;
    let options = WorkerOptions { max_tasks: 1, max_agents: 3, ..WorkerOptions::default() };
    runtime.worker(Arc::new(host), options).await?;
    let mut handles = Vec::new();
    for _ in 0..6 {
        handles.push(runtime.client().start("fetches", Payload::of(&10u64)?, StartOptions::default()).await?);
    }
    for handle in &handles {
        assert_eq!(handle.result(Some(PATIENCE)).await?.parse::<u64>()?, 45);
    }
    runtime.close().await
}

/// Ten thousand runs of one org are queued; another's one is in its next claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_another_org_delays_nobody() -> Result<()> {
    let db = Cluster::shared().fresh().expect("a database");
    let runtime = Runtime::open(&db).await?;
    let storage = runtime.storage();
    let new = |org: OrgId| -> Result<NewExecution> {
        let mut new = NewExecution::new(ExecutionId::fresh(), "agent", Payload::null())?;
        new.org = org;
        Ok(new)
    };
    let (busy, quiet) = (OrgId::fresh(), OrgId::fresh());
    let starts = futures::stream::iter(0..10_000).map(|_| async { storage.create_execution(new(busy)?).await });
    let mut starts = starts.buffer_unordered(500);
    while let Some(started) = starts.next().await {
        started?;
    }
    let one = storage.create_execution(new(quiet)?).await?.execution.new.id;
    let claim = |org: OrgId, limit: usize| ClaimRequest {
        org,
        worker: WorkerId::fresh(),
        queue: "default".into(),
        kinds: ["agent".to_owned()].into(),
        limit,
        ttl: Duration::from_secs(30),
        only: None,
    };
    assert_eq!(storage.claim_agents(claim(busy, 100)).await?.len(), 100);
    let claims = storage.claim_agents(claim(quiet, 100)).await?;
    assert_eq!(claims.iter().map(|claim| claim.execution.new.id).collect::<Vec<_>>(), [one]);
    runtime.close().await
}
