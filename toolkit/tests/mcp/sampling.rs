//! Servers that ask a model: only if their configuration lets them, within a budget, after a person was asked where it says so,
//! and counted as calls of the run.

use crate::pipes;
use flovyn_core::Payload;
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::model::{Delivery, Status};
use flovyn_core::runtime::Runtime;
use flovyn_core::worker::{Worker, WorkerOptions};
use flovyn_toolkit::config::{Toolkit, ToolkitConfig};
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn, When};
use flovyn_toolkit::mcp::{InputAnswer, InputQuestion, InputResponse};
use flovyn_toolkit::react::{INPUT, InputReply, InputRequest, RunOutcome};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// An agent whose model calls `asks_model`, and a server that then asks the model too.
struct Lab {
    fake: FakeLlm,
    runtime: Runtime,
    _worker: Worker,
    _folder: TempDir,
}

impl Lab {
    async fn new(era: &str, sampling: Value, turns: Vec<Turn>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = FakeLlm::start(Script::new(turns)).expect("a server");
        let mut server = pipes(folder.path(), era);
        if !sampling.is_null() {
            server["sampling"] = sampling;
        }
        let description = json!({
            "agents": [{ "kind": "fisher", "model": "fake/m", "approvals": "allow", "tools": ["mcp__probe__asks_model"] }],
            "mcpServers": { "probe": server },
            "providers": { "fake": { "api": "anthropic-messages", "baseUrl": fake.url() } },
        });
        let description = ToolkitConfig::parse(&description.to_string()).expect("a description");
        let toolkit = Toolkit::open(description, "memory:").await.expect("a kit");
        let runtime = Runtime::open("memory:").await.expect("a store");
        let worker = runtime.worker(toolkit.host(), WorkerOptions::default()).await.expect("a worker");
        Self { fake, runtime, _worker: worker, _folder: folder }
    }

    async fn start(&self) -> Handle {
        let input = Payload::of(&json!("Go.")).expect("JSON");
        self.runtime.client().start("fisher", input, StartOptions::default()).await.expect("it starts")
    }

    async fn ends(&self, run: &Handle) -> RunOutcome {
        run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("an outcome")
    }

    /// What the model was last told of its call.
    fn told(&self) -> String {
        let requests = self.fake.requests();
        let messages = requests.last().expect("a request").body["messages"].as_array().cloned().expect("messages");
        let mut blocks = messages.iter().flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
        let result = blocks.rfind(|block| block["type"] == "tool_result").expect("a result");
        match &result["content"] {
            Value::String(text) => text.clone(),
            parts => parts[0]["text"].as_str().expect("a text").to_owned(),
        }
    }
}

fn call() -> Turn {
    Turn::call("mcp__probe__asks_model", json!({}))
}

/// The answer to the server, whose model is another than the agent's.
fn sampled() -> Turn {
    let when = When { model: Some("small".into()), ..When::default() };
    Turn { when: Some(when), ..Turn::text("They eat fish.") }
}

/// How many calls of each model a run has counted.
fn calls(outcome: &RunOutcome) -> Vec<(&str, u64)> {
    outcome.usage.0.iter().map(|(model, usage)| (model.as_str(), usage.calls)).collect()
}

/// Waits for the question of a run.
pub(crate) async fn asked(run: &Handle) -> InputRequest {
    let waiting = async {
        loop {
            let now = run.describe().await.expect("the run is there");
            assert!(!now.status.is_terminal(), "the run ended: {:?}", now.failure);
            let waits = now.wait.is_some_and(|wait| wait.signals.iter().any(|name| name == INPUT));
            if now.status == Status::Waiting && waits {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it waits for an answer");
    let entries = run.messages().await.expect("the conversation");
    let request = entries.iter().rfind(|entry| entry.new.entry_type == "input_request").expect("a request");
    request.new.content.parse().expect("its content")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_gets_its_answer_and_the_run_counts_the_call() {
    for era in ["stateless", "handshake"] {
        let allowed = json!({ "model": "fake/small", "approvals": "allow", "maxCalls": 1 });
        let turns = vec![sampled(), call(), call(), Turn::text("Done.")];
        let lab = Lab::new(era, allowed, turns).await;
        let run = lab.start().await;
        let outcome = lab.ends(&run).await;
        let requests = lab.fake.requests();
        assert_eq!((outcome.text.as_str(), requests.len()), ("Done.", 4), "{era}");
        let sampled = &requests[1];
        assert_eq!((sampled.model.as_str(), &sampled.body["max_tokens"]), ("small", &json!(50)), "{era}");
        assert!(sampled.body.to_string().contains("What do otters eat?"), "{era}: {}", sampled.body);
        let first = requests[2].body["messages"].to_string();
        assert!(first.contains("They eat fish."), "{era}: {first}");
        assert!(lab.told().contains("its budget of 1 model calls is used up"), "{era}: {}", lab.told());
        assert_eq!(calls(&outcome), [("fake/m", 3), ("fake/small", 1)], "{era}");
        let entries = run.messages().await.expect("the conversation");
        let entries = entries.iter().filter(|entry| entry.new.entry_type == "llm_call");
        let entries: Vec<Value> = entries.map(|entry| entry.new.content.parse().expect("JSON")).collect();
        let sampling = entries.iter().filter(|call| call["purpose"] == "sampling").count();
        assert_eq!((entries.len(), sampling), (4, 1), "{era}: {entries:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_word_in_its_configuration_a_server_gets_no_answer() {
    for era in ["stateless", "handshake"] {
        let lab = Lab::new(era, Value::Null, vec![call(), Turn::text("Done.")]).await;
        let run = lab.start().await;
        assert_eq!(calls(&lab.ends(&run).await), [("fake/m", 2)], "{era}");
        let told = lab.told();
        assert!(told.contains("asks for sampling/createMessage") || told.contains("refused: "), "{era}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_before_a_model_is() {
    let asks = json!({ "model": "fake/small" });
    let refused = "A person did not let the MCP server \"probe\" ask a model";
    let cases = [(true, "They eat fish."), (false, refused)];
    for (era, (allow, answered)) in ["stateless", "handshake"].into_iter().flat_map(|era| cases.map(|case| (era, case)))
    {
        let turns = vec![sampled(), call(), Turn::text("Done.")];
        let lab = Lab::new(era, asks.clone(), turns).await;
        let run = lab.start().await;
        let request = asked(&run).await;
        assert_eq!(lab.fake.paid(), 1, "nothing was paid for before the answer");
        let (key, question) = request.questions.iter().next().expect("a question");
        let InputQuestion::Form { message, .. } = question else { panic!("{request:?}") };
        let shown =
            "May the MCP server \"probe\" ask the model fake/small for up to 50 tokens?\n\nuser: What do otters eat?";
        assert_eq!(message, shown);
        let response = InputResponse::Accept { content: Some(json!({ "allow": allow })) };
        let answer = InputAnswer { hash: request.hash, responses: BTreeMap::from([(key.clone(), response)]) };
        let payload = Payload::of(&InputReply { id: request.id, answer }).expect("JSON");
        run.signal(INPUT, payload, Delivery::NextStep, None).await.expect("the run takes it");
        let outcome = lab.ends(&run).await;
        let counted = if allow { vec![("fake/m", 2), ("fake/small", 1)] } else { vec![("fake/m", 2)] };
        assert_eq!((outcome.text.as_str(), calls(&outcome)), ("Done.", counted), "{era}");
        assert!(lab.told().contains(answered), "{}", lab.told());
    }
}
