//! External agents against scripted programs that speak their protocols, with the faults that agents have, under kills.

mod acp_types;
mod claude;
mod crashes;
mod faults;
mod permissions;
mod pi;
mod published;
mod published_coders;
mod steering;
mod talk;
#[path = "../worker_process/mod.rs"]
mod worker_process;

use flovyn_core::client::{Handle, StartOptions, StreamEvent};
use flovyn_core::error::Error;
use flovyn_core::model::{ChunkKind, Entry, Status};
use flovyn_core::runtime::{Backing, FlovynClient};
use flovyn_core::worker::Worker;
use flovyn_toolkit::external::{Claude, ExternalAgent, Pi};
use flovyn_toolkit::message::Message;
use flovyn_toolkit::react::{AgentConfig, AgentInput, Mode, RunOutcome, USER_MESSAGE, UserMessage};
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use flovyn_toolkit::tools::{Sandbox, ToolEnvironment};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const DRIVERS: [&str; 3] = ["acp", "claude", "pi"];

/// The program that speaks these protocols.
fn fake() -> String {
    format!("{}/tests/external/fake_agent.py", env!("CARGO_MANIFEST_DIR"))
}

/// The scripted agent in a folder, started with these words.
fn agent(folder: &Path, words: &[&str]) -> ExternalAgent {
    let script = fake();
    let args = std::iter::once(script.as_str()).chain(words.iter().copied());
    let work = folder.join("work");
    fs::create_dir_all(&work).expect("a folder");
    let environment = ToolEnvironment::open(&work).expect("it opens").with_sandbox(Sandbox::Off);
    let agent = match words[0] {
        "claude" => ExternalAgent::custom(Claude::new("python3", args), work),
        "pi" => ExternalAgent::custom(Pi::new("python3", args), work),
        _ => ExternalAgent::acp("python3", args, work),
    };
    agent
        .with_value("FAKE_DIR", folder.to_string_lossy())
        .with_value("CLAUDE_CONFIG_DIR", folder.join("claude").to_string_lossy())
        .with_approvals(ApprovalPolicy::allow_all())
        .with_environment(environment)
        .with_abort_grace(Duration::from_secs(2))
}

/// A backend with a worker that serves an agent, and the folder of the scripted program.
struct Lab {
    folder: tempfile::TempDir,
    flovyn: FlovynClient,
    agent: ExternalAgent,
    /// None while nobody serves it.
    worker: Option<Worker>,
}

impl Lab {
    async fn new() -> Self {
        Self::of(&["acp"], |agent| agent).await
    }

    async fn of(words: &[&str], with: impl FnOnce(ExternalAgent) -> ExternalAgent) -> Self {
        Self::over("memory:", words, with).await
    }

    async fn over(
        backing: impl Into<Backing>,
        words: &[&str],
        with: impl FnOnce(ExternalAgent) -> ExternalAgent,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let agent = with(agent(folder.path(), words));
        let flovyn = FlovynClient::builder().storage(backing).agent(agent.clone()).task(agent.turns());
        let flovyn = flovyn.agent(talk::Lead).build().await.expect("a backend");
        let worker = flovyn.worker().await.expect("a worker");
        Self { folder, flovyn, agent, worker: Some(worker) }
    }

    async fn start(&self, input: &AgentInput) -> Handle {
        self.flovyn.start(&self.agent, input, StartOptions::default()).await.expect("it starts")
    }

    /// Runs a prompt to its end.
    async fn ends(&self, prompt: &str) -> (RunOutcome, Handle) {
        let run = self.start(&ask(prompt)).await;
        (outcome(&run).await, run)
    }

    /// Runs a prompt to its failure.
    async fn fails(&self, prompt: &str) -> Error {
        let run = self.start(&ask(prompt)).await;
        run.result(Some(PATIENCE)).await.expect_err("it fails")
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self, event: &str) -> Vec<Value> {
        log(self.path(), event)
    }

    /// Lets a step that waits go on.
    fn release(&self, name: &str) {
        fs::write(self.path().join(name), "").expect("it is written");
    }

    /// Waits until the program has logged an event so many times.
    async fn logged(&self, event: &str, times: usize) {
        let logged = async {
            while self.log(event).len() < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, logged).await.unwrap_or_else(|_| panic!("no {event} came"));
    }
}

/// What the program has logged of a sort.
fn log(folder: &Path, event: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("log.jsonl")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == event).collect()
}

fn ask(prompt: &str) -> AgentInput {
    AgentInput { user_prompt: prompt.into(), ..AgentInput::default() }
}

fn chat(prompt: &str) -> AgentInput {
    AgentInput { config: AgentConfig { mode: Mode::Chat, ..AgentConfig::default() }, ..ask(prompt) }
}

async fn outcome(run: &Handle) -> RunOutcome {
    run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("an outcome")
}

/// Says something to a run.
async fn say(run: &Handle, message: UserMessage) {
    let signal = message.signal(None).expect("a signal");
    run.signal(USER_MESSAGE, signal.payload, signal.delivery, None).await.expect("the run takes it");
}

/// Waits until a run waits for a signal and does nothing else.
async fn waits_for(run: &Handle, signal: &str) {
    let waiting = async {
        loop {
            let now = run.describe().await.expect("the run is there");
            let waits = now.wait.is_some_and(|wait| wait.signals.iter().any(|name| name == signal));
            if now.status == Status::Waiting && waits {
                return;
            }
            assert!(!now.status.is_terminal(), "the run ended: {:?}", now.failure);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("nobody waits for {signal}"));
}

/// Waits until a run has ended so many answers, and gives the reason of the last.
async fn answers(run: &Handle, times: usize) -> Value {
    let ended = async {
        loop {
            if let Some(end) = of_type::<Value>(run, "answer_end").await.get(times - 1) {
                return end["stopReason"].clone();
            }
            let now = run.describe().await.expect("the run is there");
            assert!(!now.status.is_terminal(), "the run ended: {:?}", now.failure);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    ended.unwrap_or_else(|_| panic!("no end of answer {times} came"))
}

/// The conversation in short: `role: text`, calls as `role: call name`, results as `role: name = text`.
async fn told(run: &Handle) -> Vec<String> {
    let entries = run.messages().await.expect("the conversation");
    let messages = entries.iter().filter(|entry| entry.new.entry_type == "message");
    messages.flat_map(|entry| lines(&entry.new.role, &content(entry))).collect()
}

/// Waits until the conversation has a line.
async fn keeps(run: &Handle, line: &str) {
    let kept = async {
        while !told(run).await.iter().any(|told| told == line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, kept).await.is_err() {
        panic!("no {line:?} came: {:?}, {:?}", told(run).await, of_type::<Value>(run, "warning").await);
    }
}

fn lines(role: &str, message: &Message) -> Vec<String> {
    let mut lines = Vec::new();
    if !message.text().is_empty() {
        lines.push(format!("{role}: {}", message.text()));
    }
    lines.extend(message.tool_calls().map(|call| format!("{role}: call {}", call.name)));
    lines.extend(message.tool_results().map(|result| {
        let text: String = result.content.iter().filter_map(|part| part.as_text()).collect();
        format!("{role}: {} = {text}", result.name)
    }));
    lines
}

fn content<T: serde::de::DeserializeOwned>(entry: &Entry) -> T {
    entry.new.content.parse().expect("the content of its type")
}

async fn of_type<T: serde::de::DeserializeOwned>(run: &Handle, entry_type: &str) -> Vec<T> {
    let entries = run.messages().await.expect("the conversation");
    entries.iter().filter(|entry| entry.new.entry_type == entry_type).map(content).collect()
}

/// What a run's readers were shown: tokens as one text, and data as JSON.
async fn shown(run: Handle) -> (String, Vec<Value>) {
    let mut events = run.stream(None);
    let (mut tokens, mut data) = (String::new(), Vec::new());
    while let Some(event) = events.next().await.expect("the events can be read") {
        match event {
            StreamEvent::Chunk(_, chunk) if chunk.kind == ChunkKind::Token => tokens.push_str(&chunk.data),
            StreamEvent::Chunk(_, chunk) => data.push(serde_json::from_str(&chunk.data).expect("JSON")),
            StreamEvent::Retract { .. } | StreamEvent::Durable(_) | StreamEvent::Gap(_) => {}
        }
    }
    (tokens, data)
}

/// The processes of a run's agent that live.
fn living(mark: &str) -> Vec<PathBuf> {
    let mark = format!("FLOVYN_TOOL_CALL=external-{mark}");
    let folders = fs::read_dir("/proc").expect("a /proc").flatten().map(|entry| entry.path());
    let carries = |path: &PathBuf| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
    };
    folders.filter(carries).collect()
}

/// Waits until no process of a run's agent lives.
async fn is_gone(run: &str) {
    let gone = async {
        while !living(run).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("its processes end");
}
