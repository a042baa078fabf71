//! Calls of MCP tools as tasks: a worker that is killed with SIGKILL sends again what may be sent again, and nothing else.

use crate::caller::call_all;
use crate::worker_process::{self, WorkerProcess, wait_for};
use crate::{environment, pipes, server, servers};
use flovyn_core::error::Result;
use flovyn_toolkit::tools::{CallRecords, ToolCallInput, ToolHost, ToolOutcome, Toolbox};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Makes three calls, of which the second takes long.
async fn work(folder: &Path) -> Result<Vec<ToolOutcome>> {
    let servers = servers(pipes(folder, "stateless"), Duration::from_secs(20));
    let (toolbox, _) = servers.add_to(Toolbox::new()).await;
    let host = ToolHost::new(environment(folder), CallRecords::open(folder.join("records"))?);
    let slow = if folder.join("exec").exists() { "slow_exec" } else { "slow" };
    let calls = [("many", json!({})), (slow, json!({ "steps": 1, "ms": 3_000 })), ("echo", json!({ "text": "after" }))];
    let named = calls.map(|(name, arguments)| (format!("mcp__probe__{name}"), ToolCallInput::new(arguments)));
    let outcomes = call_all(folder, &toolbox, &host, &named.into()).await?;
    servers.close().await;
    Ok(outcomes)
}

#[test]
#[ignore = "the worker process that the other tests start and kill"]
fn worker_process() {
    worker_process::serve(work);
}

/// Kills a worker in the middle of its second call; what the next one makes of it.
fn killed_in_the_middle(folder: &Path) -> Vec<ToolOutcome> {
    let start = || WorkerProcess::start("durability::worker_process", folder);
    let worker = start();
    wait_for("the call", || server::noted(folder, "slow") == 1);
    worker.kill();
    start().result()
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
