//! A task reads the conversation that a context reference stands for, wherever its attempt runs.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt, ContextRef};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{Entry, RetryPolicy, TaskOptions};
use flovyn_core::runtime::{AgentBuilder, Runtime};
use flovyn_core::storage::guarded::{Call, Gate, Guarded};
use flovyn_core::task::{LocalTaskExecutor, TaskContext, TaskDefinition};
use flovyn_core::worker::{Worker, WorkerOptions};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Reads the conversation on its second attempt, which comes from the queue, or on its first.
struct Reads {
    kind: &'static str,
    fails: u32,
}

#[async_trait]
impl TaskDefinition for Reads {
    type Input = ContextRef;
    type Output = (u32, Vec<String>);

    fn kind(&self) -> &str {
        self.kind
    }

    fn options(&self) -> TaskOptions {
        let retry = RetryPolicy { retries: 1, initial: Duration::from_millis(1), ..RetryPolicy::default() };
        TaskOptions { retry, ..TaskOptions::default() }
    }

    async fn execute(&self, ctx: &TaskContext, at: ContextRef) -> Result<(u32, Vec<String>)> {
        if ctx.attempt() <= self.fails {
            return Err(Error::new(Code::TaskFailed, "not yet"));
        }
        let entries = ctx.messages(&at).await?;
        let said = entries.iter().map(|entry| entry.new.content.parse()).collect::<Result<_>>()?;
        Ok((ctx.attempt(), said))
    }
}

struct Talker;

#[async_trait]
impl AgentDefinition for Talker {
    type State = ();
    type Input = ();
    type Output = Vec<(u32, Vec<String>)>;

    fn kind(&self) -> &str {
        "talker"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<Self::Output> {
        let start = ctx.context_ref();
        ctx.append_entry("user", "one")?;
        ctx.flush()?.await?;
        ctx.append_entry("user", &"x".repeat(100_000))?;
        let both = ctx.context_ref();
        // Not durable when the attempt begins: it starts beside its commit.
        let here = ctx.schedule("here", &both)?;
        ctx.append_entry("user", "three")?;
        Ok(vec![here.await?, ctx.schedule("again", &both)?.await?, ctx.schedule("here", &start)?.await?])
    }
}

#[tokio::test]
async fn a_task_reads_what_its_context_reference_stands_for() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = format!("sqlite:{}", folder.path().join("agents.db").display());
    for url in ["memory:", &sqlite] {
        let executor = LocalTaskExecutor::new().register(Reads { kind: "here", fails: 0 })?;
        let executor = executor.register(Reads { kind: "again", fails: 1 })?;
        let agents = AgentBuilder::new().storage(url).task_executor(executor).build().await?;
        let read = agents.execute(Talker, ()).await?;
        let both = vec!["one".to_owned(), "x".repeat(100_000)];
        assert_eq!(read, [(1, both.clone()), (2, both), (1, Vec::new())]);
        agents.close().await?;
    }
    Ok(())
}

const TURNS: usize = 20;

/// Says something each turn, and both it and its task read the whole conversation then.
struct Chatty;

#[async_trait]
impl AgentDefinition for Chatty {
    type State = ();
    type Input = ();
    type Output = usize;

    fn kind(&self) -> &str {
        "chatty"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<usize> {
        for half in 0..2 {
            for turn in 0..TURNS {
                let number = half * TURNS + turn;
                ctx.append_entry("user", &number.to_string())?;
                ctx.flush()?.await?;
                let all: Vec<_> = (0..=number).map(|number| number.to_string()).collect();
                let here: Vec<String> =
                    ctx.messages().await?.iter().map(|entry| entry.new.content.parse()).collect::<Result<_>>()?;
                let (_, there): (u32, Vec<String>) = ctx.schedule("here", &ctx.context_ref())?.await?;
                assert_eq!((&here, &there), (&all, &all));
            }
            let _: Value = ctx.wait_for_signal("on")?.await?;
        }
        Ok(2 * TURNS)
    }
}

/// Counts the entries that a store has told, which has no answer every other time.
#[derive(Default)]
struct Told {
    entries: AtomicUsize,
    is_there: AtomicBool,
}

impl Gate for Told {
    async fn pass<T: Send>(&self, call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        if call == Call::Branch && !self.is_there.fetch_xor(true, Ordering::Relaxed) {
            return Err(Error::new(Code::StorageUnavailable, "it is away"));
        }
        body.await
    }

    fn on_entries(&self, entries: &[Entry]) {
        self.entries.fetch_add(entries.len(), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_worker_reads_each_entry_once_and_waits_for_its_store() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = format!("sqlite:{}", folder.path().join("agents.db").display());
    for url in ["memory:", &sqlite] {
        let runtime = Runtime::open(url).await?;
        let run = runtime.client().start("chatty", Payload::of(&())?, StartOptions::default()).await?;
        for half in 1..=2 {
            let store = Arc::new(Guarded::over(runtime.storage().clone(), Told::default()));
            let host = NativeHost::default().agent(Chatty)?.task(Reads { kind: "here", fails: 0 })?;
            let worker =
                Worker::start(store.clone(), runtime.chunks().clone(), Arc::new(host), WorkerOptions::default())
                    .await?;
            run.outcome_or_wait().await?.expect_err("it waits to be told to go on");
            worker.close(Duration::ZERO).await?;
            assert_eq!(store.entries.load(Ordering::Relaxed), half * TURNS);
            run.signal("on", Payload::of(&())?, Default::default(), None).await?;
        }
        runtime.close().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_task_waits_for_the_store_of_its_conversation() -> Result<()> {
    let runtime = Runtime::open("memory:").await?;
    let run = runtime.client().start("talker", Payload::of(&())?, StartOptions::default()).await?;
    let store = Arc::new(Guarded::over(runtime.storage().clone(), Told::default()));
    let tasks = [Reads { kind: "here", fails: 0 }, Reads { kind: "again", fails: 1 }];
    let host = tasks.into_iter().try_fold(NativeHost::default().agent(Talker)?, NativeHost::task)?;
    let worker = Worker::start(store, runtime.chunks().clone(), Arc::new(host), WorkerOptions::default()).await?;
    let read: Vec<(u32, Vec<String>)> = run.result(None).await?.parse()?;
    // An attempt that fails for the store would be one more.
    assert_eq!(read.iter().map(|(attempt, said)| (*attempt, said.len())).collect::<Vec<_>>(), [(1, 2), (2, 2), (1, 0)]);
    worker.close(Duration::ZERO).await?;
    runtime.close().await
}
