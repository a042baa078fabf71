//! Agents end to end on both backends: the Rust API over the real engine.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt, StepOptions};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{Delivery, PageRequest, RetryPolicy, TaskOptions};
use flovyn_core::runtime::Runtime;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::WorkerOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

struct Double(Arc<AtomicU32>);

#[async_trait]
impl TaskDefinition for Double {
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        "double"
    }
    fn options(&self) -> TaskOptions {
        TaskOptions {
            retry: RetryPolicy { retries: 3, initial: Duration::from_millis(5), ..RetryPolicy::default() },
            ..TaskOptions::default()
        }
    }
    async fn execute(&self, ctx: &TaskContext, input: u64) -> Result<u64> {
        self.0.fetch_add(1, Ordering::SeqCst);
        if input == 13 && ctx.attempt() == 1 {
            return Err(Error::new(Code::InvalidArgument, "unlucky"));
        }
        Ok(input * 2)
    }
}

struct Walker;

#[async_trait]
impl AgentDefinition for Walker {
    type State = ();
    type Input = u64;
    type Output = Vec<u64>;
    fn kind(&self) -> &str {
        "walker"
    }
    async fn execute(&self, ctx: &dyn AgentContext, input: u64) -> Result<Vec<u64>> {
        ctx.append_entry("user", &input)?;
        let mut results = Vec::new();
        for step in 0..input {
            results.push(ctx.schedule::<u64>("double", &step)?.await?);
        }
        let both = futures::future::try_join(ctx.schedule::<u64>("double", &100)?, ctx.schedule::<u64>("double", &13)?)
            .await?;
        results.extend([both.0, both.1]);
        ctx.sleep(Duration::from_millis(20))?.await?;
        let more: u64 = ctx.wait_for_signal("more")?.await?;
        results.push(more);
        ctx.append_entry("assistant", &results)?;
        Ok(results)
    }
}

/// A backend keeps nothing of workers that were closed.
#[tokio::test]
async fn closed_workers_are_forgotten() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let open = runtime.worker(Arc::new(NativeHost::default()), WorkerOptions::default()).await.unwrap();
    let heard = runtime.storage().hints().listeners();
    for _ in 0..1_000 {
        let worker = runtime.worker(Arc::new(NativeHost::default()), WorkerOptions::default()).await.unwrap();
        worker.close(Duration::ZERO).await.unwrap();
    }
    assert_eq!(runtime.storage().hints().listeners(), heard);
    drop(open);
    runtime.close().await.unwrap();
    assert_eq!(runtime.storage().hints().listeners(), 0);
}

#[tokio::test]
async fn an_agent_runs_steps_retries_sleeps_and_waits_in_memory() {
    runs_steps_retries_sleeps_and_waits("memory:").await;
}

#[tokio::test]
async fn an_agent_runs_steps_retries_sleeps_and_waits_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    runs_steps_retries_sleeps_and_waits(&format!("sqlite:{}", folder.path().join("agents.db").display())).await;
}

async fn runs_steps_retries_sleeps_and_waits(url: &str) {
    let runtime = Runtime::open(url).await.unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let host = NativeHost::default().agent(Walker).unwrap().task(Double(runs.clone())).unwrap();
    let worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    let client = runtime.client();
    let options = StartOptions { id: Some("walk-1".into()), ..StartOptions::default() };
    let handle = client.start("walker", Payload::of(&3u64).unwrap(), options).await.unwrap();
    handle.signal("more", Payload::of(&7u64).unwrap(), Delivery::NextStep, None).await.unwrap();
    let output = handle.result(Some(Duration::from_secs(5))).await.unwrap();
    assert_eq!(output.parse::<Vec<u64>>().unwrap(), [0, 2, 4, 200, 26, 7]);
    assert_eq!(runs.load(Ordering::SeqCst), 6);
    let messages = handle.messages().await.unwrap();
    assert_eq!(messages.len(), 2);
    let mut stream = handle.stream(None);
    let mut kinds = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        kinds.push(format!("{event:?}"));
    }
    assert!(kinds.last().unwrap().contains("Completed"), "{kinds:#?}");
    // The end is known a moment before the copy here is done with it.
    let patience = tokio::time::Instant::now() + Duration::from_secs(5);
    while worker.active() > 0 && tokio::time::Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(worker.active(), 0);
    runtime.close().await.unwrap();
}

/// Never ends the first time it is started.
struct Stuck(Arc<AtomicU32>);

#[async_trait]
impl TaskDefinition for Stuck {
    type Input = ();
    type Output = u32;
    fn kind(&self) -> &str {
        "stuck"
    }
    async fn execute(&self, _: &TaskContext, (): ()) -> Result<u32> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => std::future::pending().await,
            before => Ok(before),
        }
    }
}

struct Asker;

#[async_trait]
impl AgentDefinition for Asker {
    type State = ();
    type Input = ();
    type Output = u32;
    fn kind(&self) -> &str {
        "asker"
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<u32> {
        ctx.schedule::<u32>("stuck", &())?.await
    }
}

/// A worker that closes says nothing of the tasks it stops: they are not failed, and the next worker takes them at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_a_worker_that_closes_goes_to_another() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory:".to_owned(), format!("sqlite:{}", folder.path().join("agents.db").display())] {
        let runtime = Runtime::open(&url).await.unwrap();
        let started = Arc::new(AtomicU32::new(0));
        let worker = async |host: NativeHost| runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
        let serving = || NativeHost::default().task(Stuck(started.clone())).unwrap();
        let _agents = worker(NativeHost::default().agent(Asker).unwrap()).await;
        let first = worker(serving()).await;
        let handle = runtime.client().start("asker", Payload::null(), StartOptions::default()).await.unwrap();
        while started.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        first.close(Duration::ZERO).await.unwrap();
        let _second = worker(serving()).await;
        let output = handle.result(Some(Duration::from_secs(10))).await.unwrap();
        assert_eq!(output.parse::<u32>().unwrap(), 1, "{url}");
        let task = handle.tasks(PageRequest::default()).await.unwrap().items.remove(0);
        assert_eq!((task.attempt, task.failed_attempts), (2, 0), "{url}");
        runtime.close().await.unwrap();
    }
}

/// Counts its attempts and ends when it is let.
struct Slow(Arc<AtomicU32>, Arc<tokio::sync::Notify>);

#[async_trait]
impl TaskDefinition for Slow {
    type Input = ();
    type Output = u32;
    fn kind(&self) -> &str {
        "slow"
    }
    async fn execute(&self, _: &TaskContext, (): ()) -> Result<u32> {
        let attempt = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.notified().await;
        Ok(attempt)
    }
}

struct Payer(Slow);

#[async_trait]
impl AgentDefinition for Payer {
    type State = ();
    type Input = ();
    type Output = Vec<u32>;
    fn kind(&self) -> &str {
        "payer"
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<Vec<u32>> {
        Ok(vec![ctx.schedule_task(&self.0, &())?.await?, ctx.schedule_task(&self.0, &())?.await?])
    }
}

#[tokio::test]
async fn a_step_under_way_is_not_thrown_away_by_a_close() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let (attempts, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(tokio::sync::Notify::new()));
    let slow = || Slow(attempts.clone(), gate.clone());
    let host = || Arc::new(NativeHost::default().agent(Payer(slow())).unwrap().task(slow()).unwrap());
    let first = runtime.worker(host(), WorkerOptions::default()).await.unwrap();
    let handle = runtime.client().start("payer", Payload::of(&()).unwrap(), StartOptions::default()).await.unwrap();
    while attempts.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let closing = tokio::spawn(async move { first.close(Duration::from_secs(60)).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    gate.notify_one();
    closing.await.unwrap().unwrap();
    assert_eq!(attempts.load(Ordering::SeqCst), 1, "nothing more was started by the one that closes");
    let second = runtime.worker(host(), WorkerOptions::default()).await.unwrap();
    gate.notify_one();
    let output = handle.result(Some(Duration::from_secs(20))).await.unwrap();
    assert_eq!(output.parse::<Vec<u32>>().unwrap(), [1, 2], "the first step was not run again");
    second.close(Duration::ZERO).await.unwrap();
}

/// Tries a step again that no other process has.
struct Persistent(Arc<AtomicU32>);

#[async_trait]
impl AgentDefinition for Persistent {
    type State = ();
    type Input = ();
    type Output = (u32, u32, String, String);
    fn kind(&self) -> &str {
        "persistent"
    }
    async fn execute(&self, ctx: &dyn AgentContext, _: ()) -> Result<Self::Output> {
        let retry = RetryPolicy { retries: 2, initial: Duration::from_millis(1), ..RetryPolicy::default() };
        let options = StepOptions { retry, ..StepOptions::default() };
        let tries = self.0.clone();
        let third: u32 = ctx
            .run_with("flaky", options.clone(), move || {
                let tries = tries.clone();
                async move {
                    match tries.fetch_add(1, Ordering::SeqCst) + 1 {
                        third @ 3 => Ok(third),
                        _ => Err(Error::new(Code::InvalidArgument, "not yet")),
                    }
                }
            })?
            .await?;
        let slow = StepOptions { timeout: Some(Duration::from_millis(20)), ..options };
        let late = ctx.run_with("slow", slow, std::future::pending::<Result<()>>)?.await.unwrap_err();
        let refused = StepOptions { key: Some("k".into()), ..StepOptions::default() };
        let once = ctx
            .run_with("refused", refused, || async { Err::<(), _>(Error::new(Code::InvalidArgument, "no")) })?
            .await
            .unwrap_err();
        let of = |error: &Error, fact: &str| error.fact(fact).unwrap_or_default().to_owned();
        Ok((third, of(&late, "attempts").parse().unwrap(), late.code().to_string(), of(&once, "attempts")))
    }
}

#[tokio::test]
async fn an_inline_step_is_tried_again_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory:".to_owned(), format!("sqlite:{}", folder.path().join("agents.db").display())] {
        let runtime = Runtime::open(&url).await.unwrap();
        let tries = Arc::new(AtomicU32::new(0));
        let host = NativeHost::default().agent(Persistent(tries.clone())).unwrap();
        let worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
        let handle = runtime.client().start("persistent", Payload::null(), StartOptions::default()).await.unwrap();
        let output = handle.result(Some(Duration::from_secs(30))).await.unwrap();
        let expected = (3, 3, "TaskTimeout".to_owned(), "1".to_owned());
        assert_eq!(output.parse::<(u32, u32, String, String)>().unwrap(), expected);
        assert_eq!(tries.load(Ordering::SeqCst), 3);
        worker.close(Duration::ZERO).await.unwrap();
    }
}

/// Maps a task over numbers; some fail.
struct Mapper;

struct Odd(Arc<AtomicU32>, Arc<AtomicU32>);

#[async_trait]
impl TaskDefinition for Odd {
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        "odd"
    }
    async fn execute(&self, _: &TaskContext, input: u64) -> Result<u64> {
        let open = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.fetch_max(open, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20 - input)).await;
        self.0.fetch_sub(1, Ordering::SeqCst);
        if input == 3 { Err(Error::new(Code::InvalidArgument, "three")) } else { Ok(input * 2 + 1) }
    }
}

#[async_trait]
impl AgentDefinition for Mapper {
    type State = ();
    type Input = ();
    type Output = Vec<Option<u64>>;
    fn kind(&self) -> &str {
        "mapper"
    }
    async fn execute(&self, ctx: &dyn AgentContext, _: ()) -> Result<Self::Output> {
        let task = Odd(Arc::default(), Arc::default());
        let ended = ctx.map(&task, (0..7).collect(), 3).await?;
        assert_eq!(ctx.map(&task, vec![1], 0).await.unwrap_err().code(), Code::InvalidArgument);
        Ok(ended.into_iter().map(Result::ok).collect())
    }
}

#[tokio::test]
async fn a_task_is_mapped_over_inputs_so_many_at_a_time() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let most = Arc::new(AtomicU32::new(0));
    let host = NativeHost::default().agent(Mapper).unwrap().task(Odd(Arc::default(), most.clone())).unwrap();
    let worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    let handle = runtime.client().start("mapper", Payload::null(), StartOptions::default()).await.unwrap();
    let output = handle.result(Some(Duration::from_secs(30))).await.unwrap();
    let expected = [Some(1), Some(3), Some(5), None, Some(9), Some(11), Some(13)];
    assert_eq!(output.parse::<Vec<Option<u64>>>().unwrap(), expected);
    assert_eq!(most.load(Ordering::SeqCst), 3);
    worker.close(Duration::ZERO).await.unwrap();
}

/// What was renamed, with its old name or without.
struct Renamed(&'static str, &'static [&'static str], Arc<AtomicU32>);

#[async_trait]
impl TaskDefinition for Renamed {
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        self.0
    }
    fn aliases(&self) -> &[&str] {
        self.1
    }
    async fn execute(&self, _: &TaskContext, input: u64) -> Result<u64> {
        self.2.fetch_add(1, Ordering::SeqCst);
        Ok(input + 1)
    }
}

struct Caller(&'static str, &'static [&'static str], &'static str);

#[async_trait]
impl AgentDefinition for Caller {
    type State = ();
    type Input = ();
    type Output = (u64, u64);
    fn kind(&self) -> &str {
        self.0
    }
    fn aliases(&self) -> &[&str] {
        self.1
    }
    async fn execute(&self, ctx: &dyn AgentContext, _: ()) -> Result<(u64, u64)> {
        let first: u64 = ctx.schedule(self.2, &1u64)?.await?;
        let more: u64 = ctx.wait_for_signal("more")?.await?;
        Ok((first, ctx.schedule(self.2, &more)?.await?))
    }
}

#[tokio::test]
async fn a_run_goes_on_with_what_its_functions_are_called_now() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let before = NativeHost::default().agent(Caller("old", &[], "plus")).unwrap();
    let before = before.task(Renamed("plus", &[], runs.clone())).unwrap();
    let worker = runtime.worker(Arc::new(before), WorkerOptions::default()).await.unwrap();
    let handle = runtime.client().start("old", Payload::null(), StartOptions::default()).await.unwrap();
    while handle.status().await.unwrap() != flovyn_core::model::Status::Waiting {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    worker.close(Duration::ZERO).await.unwrap();
    let after = NativeHost::default().agent(Caller("new", &["old"], "increment")).unwrap();
    let after = after.task(Renamed("increment", &["plus"], runs.clone())).unwrap();
    let worker = runtime.worker(Arc::new(after), WorkerOptions::default()).await.unwrap();
    handle.signal("more", Payload::of(&9u64).unwrap(), Delivery::NextStep, None).await.unwrap();
    let output = handle.result(Some(Duration::from_secs(30))).await.unwrap();
    assert_eq!(output.parse::<(u64, u64)>().unwrap(), (2, 10));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    worker.close(Duration::ZERO).await.unwrap();
    let twice = NativeHost::default().task(Renamed("plus", &[], runs.clone())).unwrap();
    assert!(twice.task(Renamed("increment", &["plus"], runs)).is_err());
}
