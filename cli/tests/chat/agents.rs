//! Agents below a chat: their cards, what they ask, and who goes on with a conversation.

use super::terminal::Terminal;
use super::workers::start;
use super::*;
use async_trait::async_trait;
use flovyn_core::agent::NativeHost;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::Worker;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, ScriptedUsage, Turn, When};
use flovyn_toolkit::pricing::PriceTable;
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

/// Looks until a file is there.
#[derive(Clone)]
struct Look(PathBuf);

#[async_trait]
impl TaskDefinition for Look {
    type Input = Value;
    type Output = String;

    fn kind(&self) -> &str {
        "look"
    }

    async fn execute(&self, _ctx: &TaskContext, _input: Value) -> flovyn_core::Result<String> {
        while !self.0.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok("otters".to_owned())
    }
}

/// What the models of these tests cost.
const PRICES: &str = r#"[{"id": "fake", "models": [
    {"id": "m", "match": {"equals": "m"}, "prices": {"input_mtok": 1, "output_mtok": 10}}
]}]"#;

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
        let prices = Arc::new(PriceTable::parse("of the tests", PRICES).expect("a table"));
        let endpoint = Endpoint { prices, ..Endpoint::new("fake", fake.url()) };
        models.add(Api::AnthropicMessages, endpoint).expect("an address");
        let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let look = ToolSpec { name: "look".into(), description: "Looks.".into(), parameters: parameters.clone() };
        let note = ToolSpec { name: "note".into(), description: "Takes a note.".into(), parameters };
        let scout = ReactAgent::new().named("scout").with_model(ModelChoice::parse("fake/m"));
        let scout = scout.with_tool(AgentTool::task(note, "note", Effect::Write).expect("a schema")).expect("one tool");
        let scout = scout.with_tool(AgentTool::task(look, "look", Effect::Read).expect("a schema")).expect("another");
        let given = || Delegate::of(&scout, "Takes notes.");
        let boss =
            ReactAgent::new().with_delegate(given()).and_then(|boss| boss.with_handoff(given())).expect("two tools");
        let host = NativeHost::default().agent(boss).and_then(|host| host.agent(scout)?.task(LlmGenerate::new(models)));
        let host = host.and_then(|host| host.task(Note)?.task(Look(user.folder.path().join("go"))));
        let host = Arc::new(host.expect("every kind once"));
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

/// A turn that costs two cents.
fn paid(turn: Turn) -> Turn {
    Turn { usage: ScriptedUsage { input: Some(10_000), output: Some(1_000), ..ScriptedUsage::default() }, ..turn }
}

#[test]
fn an_agent_below_is_opened_with_its_cost_and_told_something() {
    let user = User::new();
    let script = [
        paid(Turn::text("Otters and rays.")).when(asked("Rays too", true)),
        paid(Turn::call("look", json!({}))).when(asked("Look at", false)),
        Turn::text("Nobody said anything.").when(asked("Look at", true)),
        paid(Turn::call("scout", json!({"task": "Look at otters."}))),
        Turn::text("All is done."),
    ];
    let served = Served::new(&user, script);
    let mut terminal = Terminal::chat(&user, &served.args(&["Go"]));
    // Its own two cents, without those of the agent above it.
    terminal.shows("working · $0.0200");
    terminal.line("/agents");
    terminal.shows("1  scout  working · $0.0200");
    terminal.line("/agents 1");
    let page = terminal.shows("The agent scout");
    assert!(page.contains("Look at otters."), "{page}");
    terminal.write("q");
    terminal.waits("the conversation", |text| !text.contains("q closes"));
    terminal.line("/agents 1 say Rays too.");
    terminal.shows("said to scout");
    std::fs::write(user.folder.path().join("go"), "").expect("a file");
    terminal.shows("All is done.");
    terminal.line("/agents");
    terminal.shows("1  scout  done · $0.0400");
    let heard = served.fake.requests().last().expect("a request").body.to_string();
    assert!(heard.contains("Otters and rays."), "{heard}");
    terminal.line("/agents 1");
    let page = terminal.shows("The agent scout");
    assert!(["● look", "Rays too.", "Otters and rays."].iter().all(|part| page.contains(part)), "{page}");
    terminal.write("q");
    terminal.waits("the conversation", |text| !text.contains("q closes"));
    // Nobody is there any more to hear it, and the chat goes on.
    for late in ["/agents 1 say Seals too.", "/agents 1 stop"] {
        terminal.line(late);
        terminal.shows("scout has ended");
        terminal.line("/agents 2");
        terminal.shows("there is no agent 2");
    }
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn an_agent_below_is_stopped_and_the_one_above_goes_on() {
    let user = User::new();
    let script = [
        Turn::call("look", json!({})).when(asked("Look at", false)),
        Turn::text("It looked on.").when(asked("Look at", true)),
        Turn::call("scout", json!({"task": "Look at otters."})),
        Turn::text("Then without it."),
        Turn::text("Still here."),
    ];
    let served = Served::new(&user, script);
    let mut terminal = Terminal::chat(&user, &served.args(&["Go"]));
    terminal.shows("● look");
    terminal.line("/agents 1 stop");
    let text = terminal.shows("Then without it.");
    assert!(!text.contains("It looked on."), "{text}");
    let heard = served.fake.requests().last().expect("a request").body.to_string();
    assert!(heard.contains("The agent scout was stopped before it had finished."), "{heard}");
    terminal.line("/agents");
    terminal.waits("the end of the scout", |text| text.contains("1  scout  ") && !text.contains("1  scout  working"));
    terminal.line("And now?");
    terminal.shows("Still here.");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}
