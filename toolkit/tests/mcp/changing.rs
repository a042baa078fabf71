//! Tools that come and go while runs go on: a server says that it has others, or comes alive after the worker has started.

use crate::failing::unready;
use crate::{HttpServer, pipes, server, wait_for};
use flovyn_core::Payload;
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::runtime::Runtime;
use flovyn_core::worker::{Worker, WorkerOptions};
use flovyn_toolkit::config::{Toolkit, ToolkitConfig};
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use flovyn_toolkit::react::RunOutcome;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// An agent with all tools of one server.
pub(crate) struct Lab {
    fake: FakeLlm,
    pub(crate) toolkit: Toolkit,
    runtime: Runtime,
    worker: Worker,
}

impl Lab {
    pub(crate) async fn new(folder: &Path, server: Value, turns: impl IntoIterator<Item = Turn>) -> Self {
        let fake = FakeLlm::start(Script::new(turns)).expect("a server");
        Self::open(folder, server, fake, "memory:").await
    }

    async fn open(folder: &Path, server: Value, fake: FakeLlm, store: &str) -> Self {
        let description = json!({
            "agents": [{ "kind": "fisher", "model": "fake/m", "approvals": "allow", "tools": ["read", "mcp__probe__*"] }],
            "mcpServers": { "probe": server },
            "records": folder.join("records"),
            "providers": { "fake": { "api": "anthropic-messages", "baseUrl": fake.url() } },
        });
        let description = ToolkitConfig::parse(&description.to_string()).expect("a description");
        let toolkit = Toolkit::open(description, store).await.expect("a kit");
        let runtime = Runtime::open(store).await.expect("a store");
        let worker = runtime.worker(toolkit.host(), WorkerOptions::default()).await.expect("a worker");
        Self { fake, toolkit, runtime, worker }
    }

    pub(crate) async fn start(&self) -> Handle {
        let input = Payload::of(&json!("Go.")).expect("JSON");
        self.runtime.client().start("fisher", input, StartOptions::default()).await.expect("it starts")
    }

    async fn run(&self) -> (Handle, RunOutcome) {
        let run = self.start().await;
        let outcome = run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("an outcome");
        (run, outcome)
    }

    /// Whether a request to the model offered a tool.
    pub(crate) fn offered(&self, request: usize, tool: &str) -> bool {
        let tools = self.fake.requests()[request].body["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().any(|offered| offered["name"] == format!("mcp__probe__{tool}"))
    }

    /// What a request to the model says of its last call.
    pub(crate) fn told(&self, request: usize) -> String {
        let messages = self.fake.requests()[request].body["messages"].as_array().cloned().expect("messages");
        let mut blocks = messages.iter().flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
        let result = blocks.rfind(|block| block["type"] == "tool_result").expect("a result");
        match &result["content"] {
            Value::String(text) => text.clone(),
            parts => parts[0]["text"].as_str().expect("a text").to_owned(),
        }
    }
}

fn call(tool: &str) -> Turn {
    Turn::call(format!("mcp__probe__{tool}"), json!({}))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_model_call_sees_the_tools_that_a_server_has_now() {
    for (over, era) in [("pipes", "stateless"), ("pipes", "handshake"), ("http", "stateless"), ("http", "handshake")] {
        let folder = tempfile::tempdir().unwrap();
        let http = (over == "http").then(|| HttpServer::start(folder.path(), era, 0));
        let config = match &http {
            Some(http) => json!({ "url": http.url(), "headers": { "Authorization": server::KEY } }),
            None => pipes(folder.path(), era),
        };
        let turns = [call("many"), call("learns"), call("learned"), call("many"), Turn::text("Done.")];
        let lab = Lab::new(folder.path(), config.clone(), turns).await;
        let (run, outcome) = lab.run().await;
        assert_eq!(outcome.text, "Done.", "{over} {era}");
        for request in 0..5 {
            assert_eq!(lab.offered(request, "learned"), request >= 2, "{over} {era}: {request}");
            assert_eq!(lab.offered(request, "many"), request < 2, "{over} {era}: {request}");
        }
        let told: Vec<_> = (1..5).map(|request| lab.told(request)).collect();
        assert_eq!(told[..3], ["done 1", "learned", "this is learned"], "{over} {era}");
        let gone =
            "The MCP server \"probe\" does not have its tool \"many\" any more, so the call was not made. It has: ";
        assert!(told[3].starts_with(gone) && told[3].contains("learned"), "{over} {era}: {}", told[3]);
        assert_eq!(server::noted(folder.path(), "many"), 1, "{over} {era}");
        let entries = run.messages().await.expect("the conversation");
        let lists = entries.iter().filter(|entry| entry.new.entry_type == "tools").count();
        assert_eq!(lists, 2, "{over} {era}: the tools are recorded when they change");
        let served = lab.toolkit.tools();
        let names: Vec<_> = served.iter().map(|tool| tool.name.as_str()).collect();
        assert!(names.contains(&"mcp__probe__learned") && !names.contains(&"mcp__probe__many"), "{names:?}");
        // It has other prompts too, and said so.
        let servers = lab.toolkit.mcp_servers();
        tokio::time::timeout(PATIENCE, servers.prompts_changed()).await.expect("it has said so");
        let prompts: Vec<_> = servers.prompts().await.0.into_iter().map(|prompt| prompt.prompt).collect();
        assert_eq!(prompts, ["greet", "taught"], "{over} {era}");
        lab.toolkit.close().await;
        // Another process still knows the tool that was there once.
        let lab = Lab::new(folder.path(), config, [call("many"), Turn::text("Done.")]).await;
        lab.run().await;
        assert!(lab.told(1).starts_with(gone), "{over} {era}: {}", lab.told(1));
        lab.toolkit.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_alive_gets_its_tools_in_the_worker_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let turns = [Turn::call("mcp__probe__echo", json!({ "text": "hi" })), Turn::text("Done.")];
    let lab = Lab::new(folder.path(), unready(folder.path()), turns).await;
    let has = |name: &str| lab.toolkit.tools().iter().any(|tool| tool.name == name);
    assert!(has("mcp__probe__try_again") && !has("mcp__probe__echo"));
    fs::write(folder.path().join("ready"), "").unwrap();
    let alive = async {
        while !has("mcp__probe__echo") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, alive).await.expect("it is tried again");
    assert!(!has("mcp__probe__try_again") && lab.toolkit.problems().iter().all(|one| !one.message.contains("no disk")));
    let (_, outcome) = lab.run().await;
    assert_eq!(outcome.text, "Done.");
    assert!(lab.offered(0, "echo") && !lab.offered(0, "try_again"));
    assert_eq!(lab.told(1), "hi");
    let body = &lab.fake.requests()[0].body;
    assert!(body["system"].to_string().contains("Look for otters first."), "{}", body["system"]);
    lab.toolkit.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_tries_a_server_again_has_its_tools_in_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let turns = [call("try_again"), Turn::call("mcp__probe__echo", json!({ "text": "hi" })), Turn::text("Done.")];
    let lab = Lab::new(folder.path(), unready(folder.path()), turns).await;
    // Whether it is found alive by the call or shortly before, the call says so.
    fs::write(folder.path().join("ready"), "").unwrap();
    let (_, outcome) = lab.run().await;
    assert_eq!(outcome.text, "Done.");
    assert!(lab.told(1).contains("Its tools can be called from your next answer on."), "{}", lab.told(1));
    assert!(lab.offered(1, "echo") && !lab.offered(1, "try_again"));
    assert_eq!(lab.told(2), "hi");
    lab.toolkit.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_in_another_process_with_the_tools_that_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("agents.db").display());
    let slow = Turn::call("mcp__probe__slow", json!({ "steps": 1, "ms": 2_000 }));
    let turns = [call("many"), call("learns"), slow, call("learned"), call("many"), Turn::text("Done.")];
    let fake = FakeLlm::start(Script::new(turns)).expect("a server");
    let lab = Lab::open(folder.path(), pipes(folder.path(), "stateless"), fake, &store).await;
    let run = lab.start().await;
    wait_for("the slow call", || server::noted(folder.path(), "slow") == 1);
    let Lab { fake, toolkit, runtime, worker } = lab;
    // The process ends in the middle of a turn, behind the step that has recorded its tools.
    toolkit.close().await;
    worker.close(Duration::ZERO).await.expect("it ends");
    runtime.close().await.expect("it closes");
    let lab = Lab::open(folder.path(), pipes(folder.path(), "stateless"), fake, &store).await;
    let run = lab.runtime.client().handle(&run.id().to_string()).await.expect("the run is there");
    let outcome: RunOutcome = run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("an outcome");
    assert_eq!((outcome.text.as_str(), lab.fake.paid()), ("Done.", 6), "each call is paid once");
    let entries = run.messages().await.expect("the conversation");
    assert_eq!(entries.iter().filter(|entry| entry.new.entry_type == "tools").count(), 2);
    assert_eq!(lab.told(4), "this is learned");
    assert!(lab.told(5).contains("does not have its tool \"many\" any more"), "{}", lab.told(5));
    assert_eq!(server::noted(folder.path(), "many"), 1);
    let Lab { toolkit, runtime, worker, .. } = lab;
    drop(worker);
    runtime.close().await.expect("it closes");
    toolkit.close().await;
}
