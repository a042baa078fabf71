//! Agents put together by the builders: executors, signal sources, tracers.

use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{RetryPolicy, TaskOptions, Usage};
use flovyn_core::runtime::{AgentBuilder, ChannelSignals, FlovynClient, StdinSignals};
use flovyn_core::task::{LocalTaskExecutor, TaskContext, TaskDefinition, TaskExecutor};
use flovyn_core::tracer::{AgentTracer, CompositeTracer, FileTracer, SqliteTracer, StdoutTracer, Trace, Traced};
use flovyn_core::{Payload, runtime::Runtime};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Greet;

#[async_trait]
impl TaskDefinition for Greet {
    type Input = String;
    type Output = String;
    fn kind(&self) -> &str {
        "greet"
    }
    fn options(&self) -> TaskOptions {
        let retry = RetryPolicy { retries: 1, initial: Duration::from_millis(1), ..RetryPolicy::default() };
        TaskOptions { retry, ..TaskOptions::default() }
    }
    async fn execute(&self, ctx: &TaskContext, name: String) -> Result<String> {
        if ctx.attempt() == 1 {
            return Err(Error::new(Code::InvalidArgument, "not yet"));
        }
        Ok(format!("hello, {name}"))
    }
}

struct Talker;

#[async_trait]
impl AgentDefinition for Talker {
    type State = ();
    type Input = String;
    type Output = String;
    fn kind(&self) -> &str {
        "talker"
    }
    async fn execute(&self, ctx: &dyn AgentContext, name: String) -> Result<String> {
        ctx.append_entry("user", &name)?;
        let greeting = ctx.schedule_task(&Greet, &name)?.await?;
        ctx.record_usage("tiny", Usage { calls: 1, input_tokens: 3, output_tokens: 2, ..Usage::default() })?;
        let more: String = ctx.wait_for_signal("more")?.await?;
        Ok(format!("{greeting} {more}"))
    }
}

fn with_id(id: &str) -> StartOptions {
    StartOptions { id: Some(id.into()), ..StartOptions::default() }
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<Trace>>>);

impl AgentTracer for Memory {
    fn trace(&self, record: &Trace) {
        self.0.lock().unwrap().push(record.clone());
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flovyn-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_runner_executes_signals_and_traces() {
    let folder = Folder::new("tracers");
    let seen = Memory::default();
    let (signals, source) = ChannelSignals::new();
    let agents = AgentBuilder::new()
        .storage("memory:")
        .task_executor(LocalTaskExecutor::new().register(Greet).unwrap())
        .signals(source)
        .tracer(
            CompositeTracer::new()
                .with(seen.clone())
                .with(FileTracer::open(folder.0.join("trace.jsonl")).unwrap())
                .with(SqliteTracer::open(folder.0.join("trace.db")).unwrap()),
        )
        .build()
        .await
        .unwrap();
    signals.send("more", "and goodbye").unwrap();
    let output = agents.execute_with(Talker, &"otter".to_owned(), with_id("t-1")).await.unwrap();
    assert_eq!(output, "hello, otter and goodbye");
    // The same id gives the recorded result: nobody sends a second signal.
    assert_eq!(agents.execute_with(Talker, &"otter".to_owned(), with_id("t-1")).await.unwrap(), output);
    agents.close().await.unwrap();

    let records = seen.0.lock().unwrap().clone();
    let words: Vec<_> = records.iter().map(|record| record.what.word()).collect();
    assert_eq!(words.first(), Some(&"activated"), "{words:?}");
    assert_eq!(words.last(), Some(&"ended"), "{words:?}");
    for word in ["op", "usage", "task_started", "task_ended"] {
        assert!(words.contains(&word), "{word} is missing in {words:?}");
    }
    let ends = records.iter().filter_map(|record| match &record.what {
        Traced::TaskEnded { attempt, error, .. } => Some((*attempt, error.is_some())),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [(1, true), (2, false)]);

    let lines = std::fs::read_to_string(folder.0.join("trace.jsonl")).unwrap();
    let read: Vec<Trace> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, records);
    let database = rusqlite::Connection::open(folder.0.join("trace.db")).unwrap();
    let stored: u64 = database.query_row("SELECT count(*) FROM trace", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, records.len() as u64);
}

struct Shout;

#[async_trait]
impl TaskExecutor for Shout {
    fn kinds(&self) -> Vec<String> {
        vec!["greet".into()]
    }
    async fn execute(&self, _: &TaskContext, kind: &str, input: Payload) -> Result<Payload> {
        Payload::of(&format!("{kind}: {}!", input.parse::<String>()?.to_uppercase()))
    }
}

#[tokio::test]
async fn an_executor_of_ones_own_runs_the_tasks() {
    let (signals, source) = ChannelSignals::new();
    let agents = AgentBuilder::new().storage("memory:").task_executor(Shout).signals(source).build().await.unwrap();
    signals.send("more", "!").unwrap();
    assert_eq!(agents.execute(Talker, "otter".to_owned()).await.unwrap(), "greet: OTTER! !");
    agents.close().await.unwrap();
}

#[tokio::test]
async fn a_dropped_execution_goes_on_under_its_id() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let executor = || LocalTaskExecutor::new().register(Greet).unwrap();
    let agents = AgentBuilder::new().storage(runtime.clone()).task_executor(executor()).build().await.unwrap();
    let name = "otter".to_owned();
    let waiting = agents.execute_with(Talker, &name, with_id("d-1"));
    assert!(tokio::time::timeout(Duration::from_millis(200), waiting).await.is_err());
    let (signals, source) = ChannelSignals::new();
    signals.send("more", "again").unwrap();
    let agents = AgentBuilder::new().storage(runtime).task_executor(executor()).signals(source).build().await.unwrap();
    let output = agents.execute_with(Talker, &name, with_id("d-1")).await.unwrap();
    assert_eq!(output, "hello, otter again");
    agents.close().await.unwrap();
}

#[tokio::test]
async fn a_flovyn_client_serves_what_it_was_built_with() {
    let flovyn = FlovynClient::builder().url("memory:").agent(Talker).task(Greet).build().await.unwrap();
    flovyn.worker().await.unwrap();
    let handle = flovyn.start(&Talker, &"otter".to_owned(), with_id("f-1")).await.unwrap();
    handle.signal("more", Payload::of("there").unwrap(), Default::default(), None).await.unwrap();
    let output = handle.result(Some(Duration::from_secs(5))).await.unwrap();
    assert_eq!(output.parse::<String>().unwrap(), "hello, otter there");
    assert_eq!(flovyn.handle("f-1").await.unwrap().id(), handle.id());
    flovyn.close().await.unwrap();
}

#[tokio::test]
async fn two_agents_of_one_kind_are_refused() {
    let built = FlovynClient::builder().url("memory:").agent(Talker).agent(Talker).build().await;
    assert_eq!(built.err().unwrap().code(), Code::InvalidArgument);
}

/// Runs itself as a child whose standard input is a pipe.
#[tokio::test]
async fn signals_come_from_the_terminal() {
    const CHILD: &str = "FLOVYN_TEST_TERMINAL";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signals_come_from_the_terminal", "--nocapture"])
            .env(CHILD, "1")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"typed by hand\n").unwrap();
        let ended = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{text}");
        assert!(text.contains("got: hello, otter typed by hand"), "{text}");
        assert!(text.contains("talker") && text.contains("task greet") && text.contains("COMPLETED"), "{text}");
        return;
    }
    let agents = AgentBuilder::new()
        .storage("memory:")
        .task_executor(LocalTaskExecutor::new().register(Greet).unwrap())
        .signals(StdinSignals::new())
        .tracer(StdoutTracer::new().unwrap())
        .build()
        .await
        .unwrap();
    println!("got: {}", agents.execute(Talker, "otter".to_owned()).await.unwrap());
    agents.close().await.unwrap();
}

#[test]
fn a_trace_that_cannot_be_written_is_refused_at_once() {
    let error = FileTracer::open("no/such/folder/trace.jsonl").err().unwrap();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("no/such/folder"), "{error}");
    assert_eq!(SqliteTracer::open("no/such/folder/trace.db").err().unwrap().code(), Code::InvalidArgument);
}
