//! Agents below a chat: their cards, what they ask, and who goes on with a conversation.

use super::terminal::Terminal;
use super::workers::start;
use super::*;
use async_trait::async_trait;
use flovyn_core::agent::NativeHost;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::Worker;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn, When};
use flovyn_toolkit::provider::{Api, Endpoint, Registry, ToolSpec};
use flovyn_toolkit::react::{AgentTool, Delegate, LlmGenerate, ModelChoice, ReactAgent};
use flovyn_toolkit::tools::Effect;
use serde_json::{Value, json};
use std::sync::Arc;

/// Takes notes, which changes something.
#[derive(Clone)]
struct Note;

#[async_trait]
impl TaskDefinition for Note {
    type Input = Value;
    type Output = String;

    fn kind(&self) -> &str {
        "note"
    }

    async fn execute(&self, _ctx: &TaskContext, input: Value) -> flovyn_core::Result<String> {
        Ok(format!("noted {}", input["text"].as_str().unwrap_or_default()))
    }
}

/// A server, and a worker of this process that serves `react-agent` with a delegate `scout`, which it can hand off to too.
struct Served {
    url: String,
    fake: FakeLlm,
    _server: Running,
    _worker: Worker,
    _runtime: tokio::runtime::Runtime,
}

impl Served {
    fn new(user: &User, turns: impl IntoIterator<Item = Turn>) -> Self {
        let fake = FakeLlm::start(Script::new(turns)).expect("a model");
        let served = format!("sqlite:{}", user.folder.path().join("served.db").display());
        let (server, line) =
            start(user.flovyn(&["dev", "--json", "--db", &served, "--http-port", "0", "--grpc-port", "0"]));
        let said: Value = serde_json::from_str(&line).expect("JSON");
        let url = said["grpc"].as_str().expect("an address").to_owned();
        let mut models = Registry::new();
        models.add(Api::AnthropicMessages, Endpoint::new("fake", fake.url())).expect("an address");
        let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let note = ToolSpec { name: "note".into(), description: "Takes a note.".into(), parameters };
        let scout = ReactAgent::new().named("scout").with_model(ModelChoice::parse("fake/m"));
        let scout = scout.with_tool(AgentTool::task(note, "note", Effect::Write).expect("a schema")).expect("one tool");
        let given = || Delegate::of(&scout, "Takes notes.");
        let boss =
            ReactAgent::new().with_delegate(given()).and_then(|boss| boss.with_handoff(given())).expect("two tools");
        let host = NativeHost::default().agent(boss).and_then(|host| host.agent(scout)?.task(LlmGenerate::new(models)));
        let host = Arc::new(host.and_then(|host| host.task(Note)).expect("every kind once"));
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let port = url.rsplit(':').next().unwrap_or_default();
        let token = user.folder.path().join(format!("home/dev-{port}.token"));
        let token = std::fs::read_to_string(token).expect("the token of the server").trim().to_owned();
        let worker = runtime.block_on(async {
            let storage = RemoteStorage::connect(&url, RemoteOptions { token: Some(token) }).await?;
            let opened = flovyn_core::runtime::Runtime::over(Arc::new(storage));
            opened.worker(host, Default::default()).await
        });
        let worker = worker.expect("a worker");
        Self { url, fake, _server: server, _worker: worker, _runtime: runtime }
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["--db", self.url.as_str(), "--model", "fake/m"], more].concat()
    }
}

fn asked(text: &str, has_tool_result: bool) -> When {
    When { last_user_contains: Some(text.into()), has_tool_result: Some(has_tool_result), ..When::default() }
}

fn turns() -> [Turn; 4] {
    [
        Turn::call("note", json!({"text": "otters"})).when(asked("Take a note", false)),
        Turn::text("It is noted.").when(asked("Take a note", true)),
        Turn::call("scout", json!({"task": "Take a note."})),
        Turn::text("All is done."),
    ]
}

#[test]
fn what_an_agent_below_wants_is_answered_by_the_rules_of_the_chat() {
    let user = User::new();
    let served = Served::new(&user, turns());
    assert_eq!(user.chat(&served.args(&["-p", "Go", "--yes"])), "All is done.\n");
    assert_eq!(served.fake.paid(), 4);
}

#[test]
fn an_agent_below_is_asked_about_shown_and_listed() {
    let user = User::new();
    let served = Served::new(&user, turns());
    let mut terminal = Terminal::chat(&user, &served.args(&["--plain", "Go"]));
    terminal.shows("Allow it?");
    terminal.line("y");
    terminal.shows("All is done.");
    terminal.shows("/agents 1 shows what it did");
    terminal.line("/agents");
    terminal.shows("1  scout  done");
    terminal.line("/agents 2");
    terminal.shows("there is no agent 2");
    terminal.line("/quit");
    let bytes = terminal.bytes_at_end();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("* note text: otters"), "{text}");
}

#[test]
fn the_chat_goes_on_with_whom_the_conversation_is_handed_to() {
    let user = User::new();
    let script = [Turn::call("transfer_to_scout", json!({"reason": "notes"})), Turn::text("I am the scout.")];
    let served = Served::new(&user, script);
    let mut terminal = Terminal::chat(&user, &served.args(&["--plain", "Go"]));
    terminal.shows("scout goes on with the conversation.");
    terminal.shows("I am the scout.");
    terminal.line("/quit");
    drop(terminal.bytes_at_end());
}
