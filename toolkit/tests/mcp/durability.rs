//! Calls of MCP tools as tasks: a worker that is killed with SIGKILL sends again what may be sent again, and nothing else.

use crate::{environment, pipes, server, servers, wait_for};
use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::runtime::AgentBuilder;
use flovyn_core::task::LocalTaskExecutor;
use flovyn_toolkit::tools::{CallRecords, ToolCallInput, ToolHost, ToolOutcome, ToolTask, Toolbox};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where the worker process finds its files.
const FOLDER: &str = "FLOVYN_TEST_FOLDER";

/// Calls tools one after the other.
struct Caller;

#[async_trait]
impl AgentDefinition for Caller {
    type State = ();
    type Input = Vec<(String, Value)>;
    type Output = Vec<ToolOutcome>;

    fn kind(&self) -> &str {
        "caller"
    }

    async fn execute(&self, ctx: &dyn AgentContext, calls: Self::Input) -> Result<Vec<ToolOutcome>> {
        let mut outcomes = Vec::new();
        for (name, arguments) in calls {
            let kind = ToolTask::kind_of(&format!("mcp__probe__{name}"));
            outcomes.push(ctx.schedule::<ToolOutcome>(&kind, &ToolCallInput::new(arguments))?.await?);
        }
        Ok(outcomes)
    }
}

/// Runs calls to their end.
async fn work(folder: &Path, calls: &[(&str, Value)]) -> Result<Vec<ToolOutcome>> {
    let servers = servers(pipes(folder, "stateless"), Duration::from_secs(20));
    let (toolbox, _) = servers.add_to(Toolbox::new()).await;
    let host = ToolHost::new(environment(folder), CallRecords::open(folder.join("records"))?);
    let tasks = ToolTask::all(&toolbox, &host);
    let executor = tasks.iter().try_fold(LocalTaskExecutor::new(), |executor, task| executor.register(task.clone()))?;
    let url = format!("sqlite:{}", folder.join("agents.db").display());
    let agents = AgentBuilder::new().storage(url.as_str()).task_executor(executor).build().await?;
    let calls: Vec<_> = calls.iter().map(|(name, arguments)| ((*name).to_owned(), arguments.clone())).collect();
    let outcomes = agents.execute_with(Caller, &calls, StartOptions::with_id("run")).await?;
    agents.close().await?;
    servers.close().await;
    Ok(outcomes)
}

fn calls(slow: &'static str) -> Vec<(&'static str, Value)> {
    vec![("many", json!({})), (slow, json!({ "steps": 1, "ms": 3_000 })), ("echo", json!({ "text": "after" }))]
}

#[test]
#[ignore = "the worker process that the other tests start and kill"]
fn worker_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let slow = if folder.join("exec").exists() { "slow_exec" } else { "slow" };
    let outcomes = runtime.block_on(work(folder, &calls(slow))).expect("the calls are run");
    fs::write(folder.join("result.json"), serde_json::to_vec(&outcomes).expect("JSON")).expect("it is written");
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "durability::worker_process", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// Kills a worker in the middle of its second call; what the next one makes of it.
fn killed_in_the_middle(folder: &Path) -> Vec<ToolOutcome> {
    let mut worker = start(folder);
    wait_for("the call", || server::noted(folder, "slow") == 1);
    worker.kill().expect("SIGKILL");
    worker.wait().expect("it is dead");
    let status = start(folder).wait().expect("it ends");
    assert!(status.success(), "{status}");
    serde_json::from_slice(&fs::read(folder.join("result.json")).expect("a result")).expect("JSON")
}

#[test]
fn a_call_that_executes_is_reported_and_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("exec"), "").unwrap();
    let outcomes = killed_in_the_middle(folder.path());
    assert_eq!(outcomes[1].error_code(), Some("interrupted"), "{outcomes:?}");
    assert!(outcomes[1].plain_text().starts_with("Interrupted after start, outcome unknown"));
    assert_eq!(server::noted(folder.path(), "slow"), 1, "it was made once");
    assert_eq!(server::noted(folder.path(), "many"), 1, "what had ended is not made again either");
    assert_eq!(outcomes[2].plain_text(), "after");
}

#[test]
fn a_call_that_reads_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let outcomes = killed_in_the_middle(folder.path());
    assert_eq!(outcomes.iter().map(ToolOutcome::plain_text).collect::<Vec<_>>(), ["done 1", "slept", "after"]);
    assert_eq!((server::noted(folder.path(), "slow"), server::noted(folder.path(), "many")), (2, 1));
}
