//! What a Rust engineer meets in the first hour with the crate, and what must not go wrong in silence there.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, AgentState, NativeHost};
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt, StepOptions};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{PageRequest, RetryPolicy, Status, TaskStatus};
use flovyn_core::runtime::{AgentBuilder, Runtime, StdinSignals};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::testing::Harness;
use flovyn_core::worker::{Worker, WorkerOptions};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const PATIENCE: Duration = Duration::from_secs(20);

async fn runtime() -> Runtime {
    Runtime::open("memory:").await.unwrap()
}

async fn serve(runtime: &Runtime, host: NativeHost) -> Worker {
    runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap()
}

async fn start(runtime: &Runtime, kind: &str, input: impl Serialize) -> Handle {
    runtime.client().start(kind, Payload::of(&input).unwrap(), StartOptions::default()).await.unwrap()
}

/// Looks again until it is so.
async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let late = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < late, "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

struct Square;

#[async_trait]
impl TaskDefinition for Square {
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        "square"
    }
    async fn execute(&self, _: &TaskContext, number: u64) -> Result<u64> {
        Ok(number * number)
    }
}

// ── calls from other tasks ──────────────────────────────────────────────────────────────────────────────────────────

/// Calls its context in tasks of its own.
struct Spawner;

#[async_trait]
impl AgentDefinition for Spawner {
    type State = ();
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        "spawner"
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    async fn execute(&self, ctx: &dyn AgentContext, branches: u64) -> Result<u64> {
        let mut open = tokio::task::JoinSet::new();
        for number in 0..branches {
            let ctx = ctx.thread("");
            open.spawn(async move {
                let first = ctx.schedule_task(&Square, &number)?.await?;
                ctx.schedule_task(&Square, &first)?.await
            });
        }
        let mut sum = 0;
        while let Some(ended) = open.join_next().await {
            sum += ended.expect("no branch panics")?;
        }
        Ok(sum)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_spawned_tasks_are_recorded_and_answered() {
    let runtime = runtime().await;
    serve(&runtime, NativeHost::default().agent(Spawner).unwrap().task(Square).unwrap()).await;
    let handle = start(&runtime, "spawner", 8).await;
    let expected: u64 = (0..8u64).map(|number| number.pow(4)).sum();
    assert_eq!(handle.result(Some(PATIENCE)).await.unwrap().parse::<u64>().unwrap(), expected);
    runtime.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn spawned_tasks_hold_over_crashes() {
    let host = || NativeHost::default().agent(Spawner).unwrap().task(Square).unwrap();
    let checked = Harness::new("spawner", Payload::of(&3).unwrap(), host).concurrent().check().await;
    assert!(checked.is_ok(), "{checked:?}");
}

// ── a task that nobody has registered ───────────────────────────────────────────────────────────────────────────────

/// Keeps what the engine says by `tracing`.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{value:?} "));
    }
}

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN && metadata.target().starts_with("flovyn_core")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Calls a task, on a queue of this name if it has one.
struct Forgetful;

#[async_trait]
impl AgentDefinition for Forgetful {
    type State = ();
    type Input = Option<String>;
    type Output = u64;
    fn kind(&self) -> &str {
        "forgetful"
    }
    async fn execute(&self, ctx: &dyn AgentContext, queue: Option<String>) -> Result<u64> {
        match queue {
            Some(queue) => ctx.task(&Square, 3).queue(queue).await,
            None => ctx.schedule_task(&Square, &3)?.await,
        }
    }
}

#[tokio::test]
async fn a_task_that_nobody_serves_is_warned_of_at_once() {
    let said = Said::default();
    let _guard = tracing::subscriber::set_default(said.clone());
    let runtime = runtime().await;
    serve(&runtime, NativeHost::default().agent(Forgetful).unwrap()).await;
    for queue in ["default", "gpu"] {
        let given = Some(queue).filter(|queue| *queue == "gpu");
        let handle = start(&runtime, "forgetful", given).await;
        let expected = format!("no live worker serves it on the queue {queue:?}");
        // The event of it comes after five seconds, and only to who reads the run.
        let late = Instant::now() + Duration::from_secs(4);
        while !said.0.lock().unwrap().iter().any(|text| text.contains("\"square\"") && text.contains(&expected)) {
            assert!(Instant::now() < late, "nothing was said of it: {:?}", said.0.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Whoever serves it later finishes it.
        let options = WorkerOptions { queue: queue.into(), ..WorkerOptions::default() };
        runtime.worker(Arc::new(NativeHost::default().task(Square).unwrap()), options).await.unwrap();
        assert_eq!(handle.result(Some(PATIENCE)).await.unwrap().parse::<u64>().unwrap(), 9);
    }
    runtime.close().await.unwrap();
}

// ── closing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Takes a while, and counts how often it was begun and ended.
#[derive(Clone, Default)]
struct Slow(Arc<(AtomicU32, AtomicU32)>);

#[async_trait]
impl TaskDefinition for Slow {
    type Input = ();
    type Output = u32;
    fn kind(&self) -> &str {
        "slow"
    }
    async fn execute(&self, _: &TaskContext, (): ()) -> Result<u32> {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(700)).await;
        Ok(self.0.1.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

/// How the agent calls its slow work.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Way {
    Task,
    Beside,
    InOnce,
    Own,
    OwnAgain,
}

struct Patient;

#[async_trait]
impl AgentDefinition for Patient {
    type State = ();
    type Input = Way;
    type Output = u32;
    fn kind(&self) -> &str {
        "patient"
    }
    async fn execute(&self, ctx: &dyn AgentContext, way: Way) -> Result<u32> {
        let own = || async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            Ok(1)
        };
        match way {
            Way::Task => ctx.schedule("slow", &())?.await,
            Way::Beside => {
                let never = async {
                    let _: Option<()> = ctx.wait_for_signal_within("never", Duration::from_secs(5))?.await.ok();
                    Ok(())
                };
                let slow = async { ctx.schedule("slow", &())?.await };
                Ok(futures::try_join!(slow, never)?.0)
            }
            Way::InOnce => ctx.once("plan", &(), |ctx| async move { ctx.schedule::<u32>("slow", &())?.await }).await,
            Way::Own => ctx.run("slow of its own", own())?.await,
            Way::OwnAgain => {
                let retry = RetryPolicy { retries: 2, ..RetryPolicy::default() };
                ctx.run_with("slow of its own", StepOptions { retry, ..StepOptions::default() }, own)?.await
            }
        }
    }
}

/// An inline task under way ends and is stored before `close` returns: the next process need not do it again.
#[tokio::test]
async fn closing_waits_for_inline_tasks() {
    for (place, way) in [Way::Task, Way::Beside, Way::InOnce, Way::Own, Way::OwnAgain].into_iter().enumerate() {
        for counted in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let url = match place % 2 {
                0 => format!("sqlite:{}", folder.path().join("close.db").display()),
                _ => format!("memory:closing-{place}-{counted}"),
            };
            let slow = Slow::default();
            let options = WorkerOptions { count_inline: counted, ..WorkerOptions::default() };
            let runtime = Runtime::open(&url).await.unwrap();
            let host = NativeHost::default().agent(Patient).unwrap().task(slow.clone()).unwrap();
            let worker = runtime.worker(Arc::new(host), options).await.unwrap();
            let handle = start(&runtime, "patient", way).await;
            let tasks = || async { handle.tasks(PageRequest::default()).await.unwrap().items };
            until("the task runs", || async { tasks().await.iter().any(|task| task.status == TaskStatus::Running) })
                .await;
            worker.close(Duration::from_secs(10)).await.unwrap();
            assert_eq!(tasks().await[0].status, TaskStatus::Completed, "{way:?}, counted: {counted}");
            runtime.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_worker_counts_its_tasks_among_what_is_active() {
    let runtime = runtime().await;
    let slow = Slow::default();
    serve(&runtime, NativeHost::default().agent(Patient).unwrap()).await;
    let tasks = serve(&runtime, NativeHost::default().task(slow.clone()).unwrap()).await;
    let handle = start(&runtime, "patient", Way::Task).await;
    until("the task runs", || async { slow.0.0.load(Ordering::SeqCst) == 1 }).await;
    assert_eq!(tasks.active(), 1);
    handle.result(Some(PATIENCE)).await.unwrap();
    until("the task is over", || async { tasks.active() == 0 }).await;
    runtime.close().await.unwrap();
}

// ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, AgentState)]
struct Talk {
    turn: u32,
}

/// Saves what it is told to.
struct Saver(serde_json::Value);

#[async_trait]
impl AgentDefinition for Saver {
    type State = Talk;
    type Input = ();
    type Output = u32;
    fn kind(&self) -> &str {
        "saver"
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<u32> {
        let state: Talk = ctx.state()?;
        if state.turn == 0 {
            ctx.checkpoint(&self.0)?.await?;
        }
        let _: String = ctx.wait_for_signal("go")?.await?;
        Ok(state.turn)
    }
}

#[tokio::test]
async fn a_state_of_another_type_is_not_saved() {
    let runtime = runtime().await;
    serve(&runtime, NativeHost::default().agent(Saver(serde_json::json!(42))).unwrap()).await;
    let handle = start(&runtime, "saver", ()).await;
    let error = handle.result(Some(PATIENCE)).await.unwrap_err();
    assert!(error.message().contains("WrongStateType") && error.message().contains("Talk"), "{error}");
    runtime.close().await.unwrap();
}

// ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────

struct Failing;

#[async_trait]
impl AgentDefinition for Failing {
    type State = ();
    type Input = ();
    type Output = ();
    fn kind(&self) -> &str {
        "failing"
    }
    async fn execute(&self, _: &dyn AgentContext, (): ()) -> Result<()> {
        Err(Error::new(Code::InvalidArgument, "no otters").with("error_type", "OtterError"))
    }
}

#[tokio::test]
async fn the_error_of_a_run_has_the_type_of_what_failed() {
    let agents = AgentBuilder::new().storage("memory:").build().await.unwrap();
    let error = agents.execute(Failing, ()).await.unwrap_err();
    assert_eq!((error.code(), error.error_type()), (Code::AgentFailed, "OtterError"));
    agents.close().await.unwrap();
}

// ── small edges ─────────────────────────────────────────────────────────────────────────────────────────────────────

struct Asking;

#[async_trait]
impl AgentDefinition for Asking {
    type State = ();
    type Input = ();
    type Output = String;
    fn kind(&self) -> &str {
        "asking"
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<String> {
        let first = ctx.wait_for_signal_within::<String>("maybe", Duration::from_millis(100))?.await;
        assert_eq!(first.unwrap_err().code(), Code::SignalTimeout);
        ctx.wait_for_signal("word")?.await
    }
}

/// Runs itself as a child whose standard input is at its end: a wait that time ends goes on, one that nothing else can
/// end is told.
#[tokio::test]
async fn the_end_of_standard_input_ends_a_wait_that_nobody_else_answers() {
    const CHILD: &str = "FLOVYN_TEST_AT_END";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_end_of_standard_input_ends_a_wait_that_nobody_else_answers", "--nocapture"])
            .env(CHILD, "1")
            .stdin(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let late = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > late {
                child.kill().unwrap();
                panic!("the program waits although nobody can answer it");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success());
        return;
    }
    let agents = AgentBuilder::new().storage("memory:").signals(StdinSignals::new()).build().await.unwrap();
    let error = agents.execute_with(Asking, &(), StartOptions::with_id("asking-1")).await.unwrap_err();
    assert_eq!(error.code(), Code::Waiting, "{error}");
    assert!(error.message().contains("\"word\"") && error.message().contains("asking-1"), "{error}");
    assert_eq!(agents.client().handle("asking-1").await.unwrap().status().await.unwrap(), Status::Waiting);
    agents.close().await.unwrap();
}
