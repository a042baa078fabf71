//! What servers say about the use of their tools is in the system prompt of the runs that have them.

use crate::pipes;
use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::runtime::Runtime;
use flovyn_core::worker::WorkerOptions;
use flovyn_toolkit::config::{Toolkit, ToolkitConfig};
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn the_instructions_of_a_server_are_in_the_prompt_of_runs_with_its_tools() {
    for era in ["stateless", "handshake"] {
        let folder = tempfile::tempdir().unwrap();
        let fake = FakeLlm::start(Script::new((0..3).map(|_| Turn::text("Done.")))).expect("a server");
        let description = json!({
            "agents": [
                { "kind": "fisher", "model": "fake/m", "systemPrompt": "Be brief.", "tools": ["read", "mcp__probe__echo"] },
                { "kind": "reader", "model": "fake/m", "systemPrompt": "Be brief.", "tools": ["read"] },
            ],
            "mcpServers": { "probe": pipes(folder.path(), era) },
            "providers": { "fake": { "api": "anthropic-messages", "baseUrl": fake.url() } },
        });
        let description = ToolkitConfig::parse(&description.to_string()).expect("a description");
        let toolkit = Toolkit::open(description, "memory:").await.expect("a kit");
        let runtime = Runtime::open("memory:").await.expect("a store");
        let _worker = runtime.worker(toolkit.host(), WorkerOptions::default()).await.expect("a worker");
        let said =
            "\n\nThe MCP server \"probe\" says about the use of its tools (mcp__probe__*):\nLook for otters first.";
        let runs = [
            ("fisher", json!({ "userPrompt": "Go." }), format!("Be brief.{said}")),
            (
                "fisher",
                json!({ "userPrompt": "Go.", "systemPrompt": "Be long.", "tools": ["read"] }),
                "Be long.".into(),
            ),
            ("reader", json!({ "userPrompt": "Go." }), "Be brief.".into()),
        ];
        for (number, (kind, input, expected)) in runs.into_iter().enumerate() {
            let input = Payload::of(&input).expect("JSON");
            let run = runtime.client().start(kind, input, StartOptions::default()).await.expect("it starts");
            run.result(Some(Duration::from_secs(30))).await.expect("it completes");
            assert_eq!(fake.requests()[number].body["system"][0]["text"], expected, "{era} {kind}");
        }
        toolkit.close().await;
    }
}
