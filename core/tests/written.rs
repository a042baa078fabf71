//! Agents and tasks that are written as functions: what the macros make of them, calls that are put together, steps that
//! borrow, states with a type, errors of other libraries.

use flovyn_core::agent::NativeHost;
use flovyn_core::model::{PageRequest, ResumeRequest, SideEffects, Status, TaskStatus, WaitReason};
use flovyn_core::prelude::*;
use flovyn_core::runtime::Runtime;
use flovyn_core::task::QueueTaskExecutor;
use flovyn_core::testing::Harness;
use flovyn_core::worker::WorkerOptions;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const PATIENCE: Duration = Duration::from_secs(20);

async fn agents() -> flovyn_core::runtime::AgentRunner {
    AgentBuilder::new().storage("memory:").build().await.unwrap()
}

async fn serve(runtime: &Runtime, host: NativeHost) {
    runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
}

async fn start(runtime: &Runtime, kind: &str, input: impl Serialize) -> Handle {
    runtime.client().start(kind, Payload::of(&input).unwrap(), StartOptions::default()).await.unwrap()
}

// ── functions as definitions ────────────────────────────────────────────────────────────────────────────────────────

/// Squares a number.
#[task]
async fn square(number: u64) -> Result<u64> {
    Ok(number * number)
}

/// Says which attempt it is.
///
/// For tests.
#[task(
    name = "attempts",
    aliases = ["attempt"],
    definition = Counted,
    retries = 2,
    timeout = "30s",
    heartbeat_timeout = "1.5s",
    deadline = Duration::from_secs(60),
    no_retry = ["Never"],
    queue = "elsewhere"
)]
async fn count(ctx: &TaskContext, _until: u32) -> Result<u32> {
    Ok(ctx.attempt())
}

#[task(at_most_once, description = "Sends a mail.")]
async fn send(ctx: TaskContext) -> Result<u32> {
    Ok(ctx.attempt())
}

/// Adds squares.
#[agent(version = "1", tags = ["numbers", "tests"], timeout = "1h", cancellable = false, on_divergence = "pause")]
async fn adder(ctx: Context, numbers: Vec<u64>) -> Result<u64> {
    let mut sum = 0;
    for number in numbers {
        sum += ctx.task(&Square, number).await?;
    }
    Ok(sum)
}

#[test]
fn a_function_becomes_a_definition() {
    assert_eq!((Square.kind(), Square.description()), ("square", Some("Squares a number.")));
    assert_eq!(Square.options(), flovyn_core::model::TaskOptions::default());
    assert_eq!((Counted.kind(), Counted.aliases()), ("attempts", &["attempt"][..]));
    assert_eq!(Counted.description(), Some("Says which attempt it is.\n\nFor tests."));
    assert_eq!(TaskDefinition::queue(&Counted), Some("elsewhere"));
    let options = Counted.options();
    assert_eq!((options.retry.retries, &options.retry.no_retry[..]), (2, &["Never".to_owned()][..]));
    let limits = [options.timeout, options.heartbeat_timeout, options.deadline];
    assert_eq!(limits.map(|limit| limit.map(|limit| limit.as_millis())), [Some(30_000), Some(1_500), Some(60_000)]);
    assert_eq!((Send.options().side_effects, Send.description()), (SideEffects::AtMostOnce, Some("Sends a mail.")));
    assert_eq!(
        (Adder.kind(), Adder.description(), Adder.tags()),
        ("adder", Some("Adds squares."), &["numbers", "tests"][..])
    );
    assert_eq!(AgentDefinition::version(&Adder).as_deref(), Some("1"));
    assert_eq!((AgentDefinition::timeout(&Adder), Adder.cancellable()), (Some(Duration::from_secs(3_600)), false));
    assert_eq!(Adder.on_divergence(), flovyn_core::agent::OnDivergence::Pause);
}

#[tokio::test]
async fn functions_stay_functions() {
    assert_eq!(square(3).await.unwrap(), 9);
}

#[tokio::test]
async fn a_task_is_registered_where_it_is_called() {
    let agents = agents().await;
    assert_eq!(agents.execute(Adder, vec![2, 3]).await.unwrap(), 13);
    agents.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn functions_hold_over_crashes() {
    let host = || NativeHost::default().agent(Adder).unwrap();
    let checked = Harness::new("adder", Payload::of(&[2, 3]).unwrap(), host).check().await;
    assert!(checked.is_ok(), "{checked:?}");
}

/// Whoever says that tasks go to their queues is not overruled by a call.
#[tokio::test]
async fn a_queue_executor_leaves_tasks_to_others() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let agents = AgentBuilder::new().storage(runtime.clone()).task_executor(QueueTaskExecutor).build().await.unwrap();
    let ran = tokio::spawn({
        let agents = agents.clone();
        async move { agents.execute_with(Adder, &vec![2], StartOptions::with_id("queued")).await }
    });
    let pending = loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let Ok(handle) = runtime.client().handle("queued").await else { continue };
        let mut tasks = handle.tasks(PageRequest::default()).await.unwrap().items;
        if let Some(task) = tasks.pop() {
            break task;
        }
    };
    assert_eq!((pending.status, pending.new.placement), (TaskStatus::Pending, flovyn_core::model::Placement::Queue));
    serve(&runtime, NativeHost::default().task(Square).unwrap()).await;
    assert_eq!(ran.await.unwrap().unwrap(), 4);
    agents.close().await.unwrap();
}

/// The time of a definition counts where the start gives none.
#[tokio::test]
async fn a_run_ends_when_its_definitions_time_is_over() {
    #[agent(timeout = "150ms")]
    async fn sleepy(ctx: Context) -> Result<()> {
        ctx.wait_for_signal("never")?.await
    }
    let agents = agents().await;
    let error = agents.execute(Sleepy, ()).await.unwrap_err();
    assert!(matches!(error.code(), Code::AgentFailed | Code::AgentCancelled), "{error}");
    agents.close().await.unwrap();
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct Place {
    name: String,
}

#[task(schema)]
async fn locate(place: Place) -> Result<u32> {
    Ok(place.name.len() as u32)
}

#[agent(schema)]
async fn locator(ctx: Context, place: Place) -> Result<u32> {
    ctx.task(&Locate, place).await
}

#[test]
fn definitions_have_schemas() {
    let input = Locate.input_schema().unwrap();
    assert_eq!(input["properties"]["name"]["type"], "string", "{input}");
    assert_eq!(Locate.output_schema().unwrap()["type"], "integer");
    assert_eq!(AgentDefinition::input_schema(&Locator), Some(input));
    assert_eq!(Square.input_schema(), None);
}

// ── calls that are put together ─────────────────────────────────────────────────────────────────────────────────────

/// Fails until the given attempt.
#[task]
async fn flaky(ctx: &TaskContext, until: u32) -> Result<u32> {
    match ctx.attempt() {
        attempt if attempt >= until => Ok(attempt),
        attempt => Err(Error::other(format!("attempt {attempt} was refused"))),
    }
}

#[task]
async fn stuck() -> Result<()> {
    std::future::pending().await
}

/// A call with other options than its definition's.
#[agent]
async fn caller(ctx: Context) -> Result<(u32, String, String)> {
    let retry = flovyn_core::model::RetryPolicy { initial: Duration::from_millis(1), ..Default::default() };
    let tried = ctx.task(&Flaky, 3).retry(retry).retries(2).await?;
    let late = ctx.task(&Stuck, ()).timeout(Duration::from_millis(20)).await.unwrap_err();
    let refused = ctx.task(&Flaky, 2).at_most_once().retries(1).await.unwrap_err();
    Ok((tried, late.error_type().to_owned(), refused.message().to_owned()))
}

#[tokio::test]
async fn one_call_may_have_other_options() {
    let agents = agents().await;
    let (tried, late, refused) = agents.execute(Caller, ()).await.unwrap();
    assert_eq!((tried, late.as_str()), (3, "TaskTimeout"));
    assert!(refused.contains("at_most_once"), "{refused}");
    agents.close().await.unwrap();
}

/// Every way in which futures are joined.
#[agent(version = "1")]
async fn joiner(ctx: Context) -> Result<Vec<u64>> {
    let (one, two) = futures::try_join!(ctx.task(&Square, 1), ctx.task(&Square, 2))?;
    let all = futures::future::try_join_all((3..6).map(|number| ctx.task(&Square, number))).await?;
    let mut unordered: FuturesUnordered<_> = (6..8).map(|number| ctx.task(&Square, number)).collect();
    let mut sum = 0;
    while let Some(ended) = unordered.next().await {
        sum += ended?;
    }
    let never = ctx.task(&Stuck, ());
    // The harness compares journals: without `biased` the branches take their slots in an order of chance.
    let first = tokio::select! {
        biased;
        ended = ctx.task(&Square, 8) => ended?,
        never = never => return never.map(|()| Vec::new()),
    };
    let mut spawned = tokio::task::JoinSet::new();
    spawned.spawn(ctx.task(&Square, 9));
    let there = spawned.join_next().await.expect("one was spawned")??;
    let started = [ctx.task(&Square, 10).start()?, ctx.task_named("square", &11u64).start()?];
    let mut squares = vec![one, two, sum, first, there];
    squares.extend(all);
    for step in started {
        squares.push(step.await?);
    }
    Ok(squares)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_join_in_every_way() {
    let agents = agents().await;
    let squares = agents.execute(Joiner, ()).await.unwrap();
    assert_eq!(squares, [1, 4, 36 + 49, 64, 81, 9, 16, 25, 100, 121]);
    agents.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn joined_calls_hold_over_crashes() {
    let host = || NativeHost::default().agent(Joiner).unwrap();
    let checked = Harness::new("joiner", Payload::of(&()).unwrap(), host).concurrent().check().await;
    assert!(checked.is_ok(), "{checked:?}");
}

#[agent]
async fn sender(ctx: Context) -> Result<u64> {
    ctx.task(&Square, 5).queue("gpu").await
}

#[tokio::test]
async fn a_call_goes_to_the_queue_that_it_names() {
    let runtime = Runtime::open("memory:").await.unwrap();
    serve(&runtime, NativeHost::default().agent(Sender).unwrap()).await;
    let handle = start(&runtime, "sender", ()).await;
    let options = WorkerOptions { queue: "gpu".into(), ..WorkerOptions::default() };
    runtime.worker(Arc::new(NativeHost::default().task(Square).unwrap()), options).await.unwrap();
    assert_eq!(handle.result_as::<u64>(Some(PATIENCE)).await.unwrap(), 25);
    assert_eq!(handle.tasks(PageRequest::default()).await.unwrap().items[0].new.queue, "gpu");
    runtime.close().await.unwrap();
}

// ── steps that borrow ───────────────────────────────────────────────────────────────────────────────────────────────

static TRIES: AtomicU32 = AtomicU32::new(0);

/// Borrows its words, fails and panics in between.
#[agent(version = "1")]
async fn borrower(ctx: Context, words: Vec<String>) -> Result<(String, u32, String, String)> {
    let text = ctx.inline("join", || async { Ok(words.join(" ")) }).await?;
    let tries = AtomicU32::new(0);
    let work = || async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        TRIES.fetch_add(1, Ordering::SeqCst);
        match tries.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Error::other("not yet")),
            1 => panic!("not yet either"),
            2 => std::future::pending().await,
            tries => Ok(tries),
        }
    };
    let retry = flovyn_core::model::RetryPolicy { initial: Duration::from_millis(1), ..Default::default() };
    let tried = ctx.inline("tried", work).retry(retry).retries(3).timeout(Duration::from_millis(50)).await?;
    let failed =
        ctx.inline::<(), _, _>("failed", || async { Err(std::fs::File::open("no/such/file").unwrap_err().into()) });
    let failed = failed.await.unwrap_err().error_type().to_owned();
    let slow = ctx.inline::<(), _, _>("slow", std::future::pending).timeout(Duration::from_millis(20));
    Ok((text, tried, failed, slow.await.unwrap_err().error_type().to_owned()))
}

#[tokio::test]
async fn an_inline_step_borrows_and_is_tried_again() {
    let agents = agents().await;
    let words = vec!["otters".to_owned(), "swim".to_owned()];
    let ended = agents.execute_with(Borrower, &words, StartOptions::with_id("borrower")).await.unwrap();
    let expected = ("otters swim".to_owned(), 3, "io::Error".to_owned(), "TaskTimeout".to_owned());
    assert_eq!(ended, expected);
    let tasks = agents.client().handle("borrower").await.unwrap().tasks(PageRequest::default()).await.unwrap();
    assert_eq!(tasks.items.len(), 4);
    agents.close().await.unwrap();
}

/// Steps that borrow beside others, one of them given up.
#[agent(version = "1")]
async fn mixer(ctx: Context, words: Vec<String>) -> Result<Vec<usize>> {
    let lengths = futures::future::try_join_all(words.iter().map(|word| {
        ctx.inline("length", move || async move {
            tokio::task::yield_now().await;
            Ok(word.len())
        })
        .key(word)
    }))
    .await?;
    let given_up = ctx.inline::<(), _, _>("never", std::future::pending);
    tokio::select! {
        ended = given_up => ended?,
        slept = ctx.sleep(Duration::from_millis(5))? => drop(slept?),
    }
    Ok(lengths)
}

#[tokio::test(start_paused = true)]
async fn inline_steps_hold_over_crashes() {
    let host = || NativeHost::default().agent(Mixer).unwrap();
    let words = Payload::of(&["a", "bb", "ccc"]).unwrap();
    let checked = Harness::new("mixer", words, host).concurrent().check().await;
    assert!(checked.is_ok(), "{checked:?}");
}

// ── states with a type ──────────────────────────────────────────────────────────────────────────────────────────────

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, AgentState)]
struct Talk {
    turn: u32,
    #[reducer(append)]
    topics: Vec<String>,
}

#[agent(version = "1")]
async fn talker(ctx: Context<Talk>, turns: u32) -> Result<Talk> {
    while ctx.state()?.turn < turns {
        let turn = ctx.state()?.turn + 1;
        let topic = ctx.inline("topic", || async { Ok(format!("topic {turn}")) }).await?;
        ctx.update(TalkUpdate::new().turn(turn).topics([topic]))?.await?;
    }
    ctx.state()
}

#[tokio::test(start_paused = true)]
async fn updates_are_reduced_and_saved() {
    let host = || NativeHost::default().agent(Talker).unwrap();
    let proof = Harness::new("talker", Payload::of(&2).unwrap(), host).check().await.unwrap();
    let outcome = proof.observed.unwrap().outcome;
    assert!(outcome.contains(r#"{"turn":2,"topics":["topic 1","topic 2"]}"#), "{outcome}");
}

#[derive(Default, Serialize, Deserialize, AgentState)]
struct Old {
    turns: String,
}

#[agent(name = "grown", version = "1")]
async fn early(ctx: Context<Old>) -> Result<u32> {
    ctx.checkpoint(&Old { turns: "7".into() })?.await?;
    ctx.wait_for_signal("go")?.await
}

#[agent(name = "grown", version = "2")]
async fn careless(ctx: Context<Talk>) -> Result<u32> {
    let _: Value = ctx.wait_for_signal("go")?.await?;
    Ok(ctx.state()?.turn)
}

fn grow(old: Value) -> Result<Talk> {
    let turns = old["turns"].as_str().ok_or_else(|| Error::other("the old state has no turns"))?;
    Ok(Talk { turn: turns.parse()?, topics: Vec::new() })
}

#[agent(name = "grown", version = "3", migrate = grow)]
async fn careful(ctx: Context<Talk>) -> Result<u32> {
    let _: Value = ctx.wait_for_signal("go")?.await?;
    Ok(ctx.state()?.turn)
}

async fn has_status(handle: &Handle, status: Status) -> flovyn_core::model::Execution {
    for _ in 0..4_000 {
        let run = handle.describe().await.unwrap();
        if run.status == status {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the run is {}, not {status}", handle.status().await.unwrap());
}

#[tokio::test]
async fn a_state_that_cannot_be_read_pauses_the_run_until_code_that_can_read_it() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let worker = |host| {
        let runtime = runtime.clone();
        async move { runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap() }
    };
    let first = worker(NativeHost::default().agent(Early).unwrap()).await;
    let handle = start(&runtime, "grown", ()).await;
    has_status(&handle, Status::Waiting).await;
    first.close(PATIENCE).await.unwrap();
    let second = worker(NativeHost::default().agent(Careless).unwrap()).await;
    handle.send("go", &1).await.unwrap();
    let paused = has_status(&handle, Status::Paused).await;
    let failure = paused.failure.unwrap();
    assert_eq!(
        (failure.code, paused.wait.and_then(|wait| wait.reason)),
        (Code::WrongStateType, Some(WaitReason::Error))
    );
    assert!(failure.message.contains("Talk") && failure.message.contains("migrate"), "{}", failure.message);
    second.close(PATIENCE).await.unwrap();
    let _third = worker(NativeHost::default().agent(Careful).unwrap()).await;
    handle.resume(ResumeRequest::default()).await.unwrap();
    assert_eq!(handle.result_as::<u32>(Some(PATIENCE)).await.unwrap(), 7);
    runtime.close().await.unwrap();
}

// ── errors of other libraries ───────────────────────────────────────────────────────────────────────────────────────

#[derive(Debug)]
struct OutOfStock(u32);

impl std::fmt::Display for OutOfStock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "only {} left", self.0)
    }
}

impl std::error::Error for OutOfStock {}

/// Fails in so many ways, by `?` alone.
#[task]
async fn failing(how: String) -> Result<u32> {
    match how.as_str() {
        "io" => drop(std::fs::read("no/such/file")?),
        "json" => drop(serde_json::from_str::<u32>("{")?),
        "anyhow" => Err(anyhow::anyhow!("deep").context("shallow"))?,
        "anyhow of io" => {
            let read: anyhow::Result<Vec<u8>> = anyhow::Context::context(std::fs::read("no/such/file"), "the list");
            drop(read?);
        }
        "boxed" => Err(Box::<dyn std::error::Error + std::marker::Send + Sync>::from("in a box"))?,
        "boxed of its own" => {
            Err(Box::<dyn std::error::Error + std::marker::Send + Sync>::from(Error::other(OutOfStock(1))))?
        }
        "number" => drop("x".parse::<u32>()?),
        _ => return Err(Error::other(OutOfStock(2))),
    }
    Ok(0)
}

/// Returns errors of its own.
#[task]
async fn own(left: u32) -> std::result::Result<u32, OutOfStock> {
    if left < 3 { Err(OutOfStock(left)) } else { Ok(left) }
}

#[task]
async fn any(cancelled: bool) -> anyhow::Result<u32> {
    if cancelled {
        Err(Error::new(Code::NonRetryable, "no").with("error_type", "Final"))?;
    }
    anyhow::bail!("any")
}

/// Tried once more unless it says that there is no point.
#[task(retries = 1)]
async fn tried(ctx: &TaskContext, terminal: bool) -> Result<u32> {
    let refused = std::fs::read("no/such/file").map(|_| 0);
    match (terminal, ctx.attempt()) {
        (true, _) => refused.terminal(),
        (false, 1) => Err(Error::new(Code::NonRetryable, "it said that it is final")).retryable(),
        (false, attempt) => Ok(attempt),
    }
}

#[agent]
async fn taster(ctx: Context) -> Result<Vec<(String, String)>> {
    let mut tasted = Vec::new();
    for how in ["io", "json", "anyhow", "anyhow of io", "boxed", "boxed of its own", "number", "other"] {
        tasted.push(ctx.task(&Failing, how.to_owned()).await.unwrap_err());
    }
    tasted.push(ctx.task(&Own, 2).await.unwrap_err());
    tasted.push(ctx.task(&Any, false).await.unwrap_err());
    tasted.push(ctx.task(&Any, true).await.unwrap_err());
    tasted.push(ctx.task(&Tried, true).await.unwrap_err());
    assert_eq!(ctx.task(&Tried, false).await?, 2);
    let facts = |error: &Error| (error.error_type().to_owned(), error.fact("reason").unwrap_or_default().to_owned());
    Ok(tasted.iter().map(facts).collect())
}

#[tokio::test]
async fn errors_of_others_keep_their_type() {
    let agents = agents().await;
    let tasted = agents.execute_with(Taster, &(), StartOptions::with_id("taster")).await.unwrap();
    let types: Vec<_> = tasted.iter().map(|(error_type, _)| error_type.as_str()).collect();
    let expected = [
        "io::Error",
        "serde_json::Error",
        "anyhow::Error",
        "io::Error",
        "Error",
        "OutOfStock",
        "ParseIntError",
        "OutOfStock",
        "OutOfStock",
        "anyhow::Error",
        "Final",
        "io::Error",
    ];
    assert_eq!(types, expected, "{tasted:?}");
    assert_eq!(tasted[2].1, "shallow: deep");
    assert!(tasted[3].1.starts_with("the list: No such file"), "{:?}", tasted[3]);
    assert_eq!(
        (tasted[4].1.as_str(), tasted[5].1.as_str(), tasted[7].1.as_str()),
        ("in a box", "only 1 left", "only 2 left")
    );
    let tasks =
        agents.client().handle("taster").await.unwrap().tasks(PageRequest { limit: 50, after: None }).await.unwrap();
    let attempts: Vec<_> =
        tasks.items.iter().filter(|task| task.new.kind == "tried").map(|task| task.attempt).collect();
    assert_eq!(attempts, [1, 2], "a terminal error is tried once, a retryable one twice");
    agents.close().await.unwrap();
}

/// A run that fails with another library's error says so, and one that is asked to stop inside of `anyhow` is cancelled.
#[tokio::test]
async fn agents_fail_with_the_errors_of_others() {
    #[agent]
    async fn reader(_ctx: Context) -> anyhow::Result<u32> {
        Ok(std::fs::read("no/such/file")?.len() as u32)
    }
    #[agent]
    async fn waiter(ctx: Context) -> anyhow::Result<u32> {
        Ok(ctx.wait_for_signal("never")?.await?)
    }
    let runtime = Runtime::open("memory:").await.unwrap();
    serve(&runtime, NativeHost::default().agent(Reader).unwrap().agent(Waiter).unwrap()).await;
    let error = start(&runtime, "reader", ()).await.result(Some(PATIENCE)).await.unwrap_err();
    assert_eq!((error.code(), error.error_type()), (Code::AgentFailed, "io::Error"));
    let handle = start(&runtime, "waiter", ()).await;
    has_status(&handle, Status::Waiting).await;
    handle.cancel(flovyn_core::model::CancelMode::Graceful, PATIENCE).await.unwrap();
    assert_eq!(handle.result(Some(PATIENCE)).await.unwrap_err().code(), Code::AgentCancelled);
    runtime.close().await.unwrap();
}

/// No result in a result: a run has ended, or waits.
#[tokio::test]
async fn a_run_that_goes_no_further_says_why() {
    #[agent]
    async fn asking(ctx: Context) -> Result<Value> {
        ctx.wait_for_signal("word")?.await
    }
    let flovyn = FlovynClient::builder().url("memory:").agent(Asking).build().await.unwrap();
    flovyn.worker().await.unwrap();
    let handle = flovyn.start(&Asking, &(), StartOptions::default()).await.unwrap();
    match handle.halted().await.unwrap() {
        Halted::Waits(run) => assert_eq!(run.wait.unwrap().signals, ["word"]),
        Halted::Ended(outcome) => panic!("it ended with {outcome:?}"),
    }
    handle.send("word", &json!({"a": 1})).await.unwrap();
    match handle.halted().await.unwrap() {
        Halted::Ended(Outcome::Completed(output)) => assert_eq!(output.parse::<Value>().unwrap(), json!({"a": 1})),
        other => panic!("it is {other:?}"),
    }
    flovyn.close().await.unwrap();
}
