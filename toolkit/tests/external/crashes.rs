//! Workers that are killed with SIGKILL while an agent works: no record is bridged twice, and no turn is lost.

use super::permissions::{answer, request};
use super::worker_process::{WorkerProcess, serve};
use super::*;
use flovyn_core::error::Result;
use flovyn_toolkit::react::APPROVAL;

/// The prompt of the run in a folder.
fn prompt(folder: &Path) -> String {
    fs::read_to_string(folder.join("prompt")).expect("a prompt")
}

async fn client(folder: &Path, policy: ApprovalPolicy) -> Result<(FlovynClient, ExternalAgent)> {
    let driver = fs::read_to_string(folder.join("driver")).unwrap_or_else(|_| "acp".into());
    let agent = agent(folder, &[&driver]).with_approvals(policy);
    let url = format!("sqlite:{}", folder.join("runs.db").display());
    let builder = FlovynClient::builder().storage(url.as_str()).agent(agent.clone()).task(agent.turns());
    Ok((builder.build().await?, agent))
}

/// A worker that serves the run of its folder to its end.
#[test]
#[ignore = "it is the process that the other tests start and kill"]
fn external_worker() {
    serve(async |folder| {
        let (flovyn, agent) = client(folder, ApprovalPolicy::default()).await?;
        let _worker = flovyn.worker().await?;
        let run = flovyn.start(&agent, &ask(&prompt(folder)), StartOptions::with_id("run")).await?;
        run.result(Some(Duration::from_secs(60))).await?;
        Ok(told(&run).await)
    });
}

fn start(folder: &Path) -> WorkerProcess {
    WorkerProcess::start("crashes::external_worker", folder)
}

fn wait_for_log(folder: &Path, event: &str, times: usize) {
    worker_process::wait_for(event, || log(folder, event).len() >= times);
}

#[test]
fn family_15_a_killed_worker_bridges_nothing_twice() {
    bridges_nothing_twice("acp");
}

#[test]
fn family_15_a_killed_worker_of_pi_bridges_nothing_twice() {
    bridges_nothing_twice("pi");
}

#[test]
fn family_15_a_killed_worker_of_claude_bridges_nothing_twice() {
    bridges_nothing_twice("claude");
}

/// Waits until the agent has ended that was told something last. Until it has noticed that its worker is gone, it would go
/// on with what its test lets it do.
fn wait_for_end(folder: &Path) {
    let pid = log(folder, "prompt").last().expect("a prompt")["pid"].to_string();
    let lives = || fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    worker_process::wait_for("the end of the agent", || !lives());
}

fn bridges_nothing_twice(driver: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("driver"), driver).expect("it is written");
    let script = "say One; tool read; wait a; say Two; tool search; wait b; say Three";
    fs::write(folder.path().join("prompt"), script).expect("it is written");
    let worker = start(folder.path());
    wait_for_log(folder.path(), "wait", 1);
    // It may be in the middle of a commit, or a record may still be in a pipe: all of that has to come out alike.
    worker.kill();
    wait_for_end(folder.path());
    fs::write(folder.path().join("a"), "").expect("it is written");
    let worker = start(folder.path());
    wait_for_log(folder.path(), "wait", 3);
    worker.kill();
    wait_for_end(folder.path());
    fs::write(folder.path().join("b"), "").expect("it is written");
    let told: Vec<String> = start(folder.path()).result();
    let expected = [
        &format!("user: {script}"),
        "assistant: One",
        "assistant: call read",
        "tool_result: read = read is done",
        "assistant: Two",
        "assistant: call search",
        "tool_result: search = search is done",
        "assistant: Three",
    ];
    assert_eq!(told, expected);
    assert_eq!(log(folder.path(), "tool").len(), 2, "each tool ran once");
    assert_eq!(log(folder.path(), "new").len(), 1);
    let prompts = log(folder.path(), "prompt");
    let begun = prompts.iter().filter(|line| line["text"] == script).count();
    assert_eq!(begun, 1, "the message was sent once, and the agent told to go on: {prompts:?}");
}

#[test]
fn family_15_a_killed_worker_asks_once() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("prompt"), "say One; ask rm build; say Two").expect("it is written");
    let worker = start(folder.path());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (flovyn, asked) = runtime.block_on(async {
        let url = format!("sqlite:{}", folder.path().join("runs.db").display());
        worker_process::wait_for("a database", || folder.path().join("log.jsonl").exists());
        let flovyn = FlovynClient::builder().storage(url.as_str()).build().await.expect("a backend");
        let run = flovyn.handle("run").await.expect("the run");
        let asked = request(&run, 0).await;
        waits_for(&run, APPROVAL).await;
        (flovyn, asked)
    });
    // The answer comes while nobody serves the run; the agent that asked is gone.
    worker.kill();
    runtime.block_on(async {
        let run = flovyn.handle("run").await.expect("the run");
        answer(&run, &asked, true).await;
    });
    let told: Vec<String> = start(folder.path()).result();
    let rest = [
        "assistant: One",
        "assistant: call execute",
        "tool_result: execute = it ran",
        "assistant: rm build was allowedTwo",
    ];
    assert_eq!(told[1..], rest);
    let allowed = log(folder.path(), "answer");
    assert_eq!(allowed.iter().filter(|line| line["allowed"] == true).count(), 1, "{allowed:?}");
    runtime.block_on(async {
        let run = flovyn.handle("run").await.expect("the run");
        assert_eq!(of_type::<Value>(&run, "approval_request").await.len(), 1, "a person is asked once");
        flovyn.close().await.expect("it closes");
    });
}
