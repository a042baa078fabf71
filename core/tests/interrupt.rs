//! A signal delivered `now` against the model call in flight: from another process, on a queue, and under crashes.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Client, Handle, StartOptions};

use flovyn_core::context::{AgentContext, AgentContextExt, TaskCall};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::model::{Delivery, PageRequest, RetryPolicy, Task, TaskOptions, TaskStatus};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::Storage;
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::testing::{CrashPoint, CrashPoints, VirtualClock};
use flovyn_core::worker::WorkerOptions;
use std::sync::Arc;
use std::time::Duration;

const ORG: OrgId = OrgId::DEFAULT;

/// A model that says a word and then thinks for ever. It tells when it has begun.
#[derive(Clone, Default)]
struct Model(Arc<tokio::sync::Notify>);

#[async_trait]
impl TaskDefinition for Model {
    type Input = ();
    type Output = String;
    fn kind(&self) -> &str {
        "model"
    }
    fn options(&self) -> TaskOptions {
        TaskOptions { interruptible: true, ..TaskOptions::default() }
    }
    async fn execute(&self, ctx: &TaskContext, (): ()) -> Result<String> {
        ctx.stream_token("Once ");
        ctx.stream_token("upon");
        self.0.notify_one();
        std::future::pending().await
    }
}

/// Asks the model, then tells what it said and how it was steered.
struct Teller {
    options: TaskOptions,
    queue: Option<String>,
}

impl Teller {
    fn of(model: &impl TaskDefinition, queue: Option<&str>) -> Self {
        Self { options: model.options(), queue: queue.map(Into::into) }
    }
}

#[async_trait]
impl AgentDefinition for Teller {
    type State = ();
    type Input = ();
    type Output = (String, Vec<String>);
    fn kind(&self) -> &str {
        "teller"
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<Self::Output> {
        ctx.append_entry("user", "a story")?;
        let call = TaskCall {
            kind: "model".into(),
            input: Payload::null(),
            options: Some(self.options.clone()),
            queue: self.queue.clone(),
            key: None,
        };
        let flovyn_core::journal::Outcome::Value(said) = ctx.schedule_raw(call)?.await? else {
            return Ok(("".into(), vec![]));
        };
        ctx.append_message(flovyn_core::context::Message {
            role: "assistant".into(),
            content: said.clone(),
            entry_type: "message".into(),
            turn_id: None,
            metadata: None,
        })?;
        let steered = ctx.drain_signals("steer")?;
        ctx.flush()?.await?;
        Ok((said.parse()?, steered))
    }
}

async fn start(client: &Client) -> Handle {
    client.start("teller", Payload::null(), StartOptions::default()).await.unwrap()
}

async fn interrupt(handle: &Handle) {
    let key = Some("once".to_owned());
    handle.signal("steer", Payload::of("shorter").unwrap(), Delivery::Now, key).await.unwrap();
}

async fn told(handle: &Handle) -> (String, Vec<String>) {
    handle.result(Some(Duration::from_secs(60))).await.unwrap().parse().unwrap()
}

async fn the_task(storage: &Arc<dyn Storage>, handle: &Handle) -> Task {
    let mut tasks = storage.tasks(ORG, handle.id(), PageRequest::default()).await.unwrap().items;
    assert_eq!(tasks.len(), 1);
    tasks.remove(0)
}

fn steered(said: &str) -> (String, Vec<String>) {
    (said.into(), vec!["shorter".into()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_of_another_process_interrupts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let open = || -> Arc<dyn Storage> { Arc::new(SqliteStorage::open(&file, SqliteOptions::default()).unwrap()) };
    let (mine, theirs) = (open(), open());
    let model = Model::default();
    let host = NativeHost::default().agent(Teller::of(&model, None)).unwrap().task(model.clone()).unwrap();
    let runtime = Runtime::over(mine.clone());
    let worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    let handle = start(&Client::new(theirs.clone(), Default::default(), ORG)).await;
    model.0.notified().await;
    interrupt(&handle).await;
    assert_eq!(told(&handle).await, steered("Once upon"));
    worker.close(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_of_the_queue_learns_of_it_with_its_heartbeat() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(Arc::new(VirtualClock::new())));
    let model = Model::default();
    let agents = NativeHost::default().agent(Teller::of(&model, Some("default"))).unwrap();
    let tasks = NativeHost::default().task(model.clone()).unwrap();
    let runtime = Runtime::over(storage.clone());
    runtime.worker(Arc::new(agents), WorkerOptions::default()).await.unwrap();
    runtime.worker(Arc::new(tasks), WorkerOptions::default()).await.unwrap();
    let handle = start(&runtime.client()).await;
    model.0.notified().await;
    interrupt(&handle).await;
    assert_eq!(told(&handle).await, steered("Once upon"));
    let task = the_task(&storage, &handle).await;
    assert_eq!((task.status, task.attempt), (TaskStatus::Completed, 1));
}

/// Runs it through processes of which the first dies at a point; gives the commits of the last and what was told.
async fn through(point: Option<CrashPoint>) -> (u64, (String, Vec<String>)) {
    let clock = Arc::new(VirtualClock::new());
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(clock));
    let handle = start(&Client::new(storage.clone(), Default::default(), ORG)).await;
    let mut point = point;
    loop {
        let process = Arc::new(CrashPoints::new(storage.clone(), point.take()));
        let model = Model::default();
        let host = NativeHost::default().agent(Teller::of(&model, None)).unwrap().task(model.clone()).unwrap();
        let runtime = Runtime::over(process.clone());
        let worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
        let outside = async {
            model.0.notified().await;
            interrupt(&handle).await;
            std::future::pending::<()>().await
        };
        let ended = tokio::select! {
            biased;
            () = process.died() => false,
            told = handle.outcome(Some(Duration::from_secs(3_600))) => told.map(|_| true).unwrap(),
            () = outside => unreachable!(),
        };
        worker.kill();
        process.die();
        process.release_calls();
        if ended || handle.status().await.unwrap().is_terminal() {
            let told = told(&handle).await;
            let task = the_task(&storage, &handle).await;
            let recorded: String = task.output.unwrap().parse().unwrap();
            assert_eq!((task.status, &recorded), (TaskStatus::Completed, &told.0));
            let last = handle.messages().await.unwrap().pop().unwrap();
            assert_eq!(last.new.content.parse::<String>().unwrap(), told.0);
            return (process.commits(), told);
        }
        storage.unregister_worker(ORG, worker.id()).await.unwrap();
    }
}

/// What the model had said is kept from the commit on that holds it. A call that was in flight when its process died
/// before that is not made again: it stays interrupted, with nothing said.
#[tokio::test(start_paused = true)]
async fn an_interruption_holds_through_crashes() {
    let (commits, undisturbed) = through(None).await;
    assert_eq!(undisturbed, steered("Once upon"));
    assert!(commits >= 3, "{commits}");
    let mut lost = 0;
    for n in 1..=commits {
        for point in [CrashPoint::Before(n), CrashPoint::After(n), CrashPoint::AnswerLost(n)] {
            let (_, told) = through(Some(point)).await;
            assert!([steered("Once upon"), steered("")].contains(&told), "{point:?}: {told:?}");
            lost += usize::from(told.0.is_empty());
        }
    }
    // Only the crash between the interruption and its commit loses what was said.
    assert_eq!(lost, 1);
}

/// A model whose provider is down, and is asked again in an hour.
struct Down;

#[async_trait]
impl TaskDefinition for Down {
    type Input = ();
    type Output = String;
    fn kind(&self) -> &str {
        "model"
    }
    fn options(&self) -> TaskOptions {
        let hour = Duration::from_secs(3_600);
        let retry = RetryPolicy { retries: 3, initial: hour, max: hour, ..RetryPolicy::default() };
        TaskOptions { interruptible: true, retry, ..TaskOptions::default() }
    }
    async fn execute(&self, _: &TaskContext, (): ()) -> Result<String> {
        Err(Error::new(Code::TaskFailed, "nobody is there"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_between_two_attempts_ends_without_a_word() {
    for queue in [None, Some("default")] {
        let host = NativeHost::default().agent(Teller::of(&Down, queue)).unwrap().task(Down).unwrap();
        let runtime = Runtime::open("memory:").await.unwrap();
        let worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
        let handle = start(&runtime.client()).await;
        let failed = async {
            loop {
                let tasks = runtime.storage().tasks(ORG, handle.id(), PageRequest::default()).await.unwrap().items;
                if tasks.iter().any(|task| task.failed_attempts == 1) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), failed).await.expect("its first attempt fails");
        interrupt(&handle).await;
        assert_eq!(told(&handle).await, steered(""));
        worker.close(Duration::ZERO).await.unwrap();
    }
}
