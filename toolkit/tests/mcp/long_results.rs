//! Results of servers that are too long for a model: their beginning and end are shown, and every line can be read, also after the
//! process has ended.

use crate::pipes;
use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::model::Delivery;
use flovyn_core::runtime::Runtime;
use flovyn_core::worker::{Worker, WorkerOptions};
use flovyn_toolkit::config::{Toolkit, ToolkitConfig};
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use flovyn_toolkit::react::{USER_MESSAGE, UserMessage};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

async fn serve(folder: &Path, turns: Vec<Turn>) -> (FakeLlm, Runtime, Worker, Toolkit) {
    let fake = FakeLlm::start(Script::new(turns)).expect("a server");
    let description = json!({
        "agents": [{ "kind": "fisher", "model": "fake/m", "approvals": "allow", "tools": ["mcp__probe__long"] }],
        "mcpServers": { "probe": pipes(folder, "stateless") },
        "records": folder.join("records"),
        "providers": { "fake": { "api": "anthropic-messages", "baseUrl": fake.url() } },
    });
    let description = ToolkitConfig::parse(&description.to_string()).expect("a description");
    let store = format!("sqlite:{}", folder.join("agents.db").display());
    let toolkit = Toolkit::open(description, &store).await.expect("a kit");
    let runtime = Runtime::open(&store).await.expect("a store");
    let worker = runtime.worker(toolkit.host(), WorkerOptions::default()).await.expect("a worker");
    (fake, runtime, worker, toolkit)
}

/// The text of the newest result in a request.
fn newest(fake: &FakeLlm, request: usize) -> String {
    let messages = fake.requests()[request].body["messages"].as_array().cloned().expect("messages");
    let mut blocks = messages.iter().flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    let result = blocks.rfind(|block| block["type"] == "tool_result").expect("a result");
    match &result["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().expect("a text").to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_in_the_middle_of_five_megabytes_can_be_read_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut call = Turn::call("mcp__probe__long", json!({ "lines": 100_000 }));
    call.tool_calls[0].id = Some("toolu_long".into());
    let read = |line: u32| Turn::call("read_result", json!({ "call_id": "toolu_long", "offset": line, "limit": 1 }));
    let (fake, runtime, worker, toolkit) =
        serve(folder.path(), vec![call, read(50_000), Turn::text("The middle.")]).await;
    let input = Payload::of(&json!({ "userPrompt": "Go.", "config": { "mode": "chat" } })).expect("JSON");
    let run = runtime.client().start("fisher", input, StartOptions::default()).await.expect("it starts");
    fake.wait_until(PATIENCE, |requests| requests.len() >= 3).await.expect("three requests");
    let shown = newest(&fake, 1);
    let (first, last) = ("line 1 of a long result of a server, with more words\n", "line 100000 of a long result");
    assert!(shown.starts_with(first) && shown.contains(last) && shown.len() < 60_000, "{} bytes", shown.len());
    assert!(shown.contains("MB in 100000 lines") && shown.contains("Read them with read_result"), "{shown}");
    assert!(newest(&fake, 2).starts_with(" 50000\tline 50000 of a long result"), "{}", newest(&fake, 2));
    let id = run.id().to_string();
    drop(worker);
    runtime.close().await.expect("it closes");
    toolkit.close().await;
    let turns = [Turn::text("-"), Turn::text("-"), Turn::text("-"), read(77_777), Turn::text("Another.")];
    let (fake, runtime, worker, toolkit) = serve(folder.path(), turns.into()).await;
    let run = runtime.client().handle(&id).await.expect("the run is there");
    let message = Payload::of(&UserMessage::new("And line 77777?")).expect("JSON");
    run.signal(USER_MESSAGE, message, Delivery::NextStep, None).await.expect("the run takes it");
    fake.wait_until(PATIENCE, |requests| requests.len() >= 2).await.expect("two requests");
    assert!(newest(&fake, 1).starts_with(" 77777\tline 77777 of a long result"), "{}", newest(&fake, 1));
    drop(worker);
    runtime.close().await.expect("it closes");
    toolkit.close().await;
}
