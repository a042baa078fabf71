//! The built-in agent against the scripted model server: on memory and SQLite, through crashes, with a user who interferes.

mod approvals;
mod budgets;
mod compactions;
mod crashes;
mod delegates;
mod faults;
mod growth;
mod handoffs;
mod images;
mod leading;
mod mistakes;
mod outages;
mod outputs;
mod plain;
mod results;
mod steering;
mod talk;
#[path = "../timeless/mod.rs"]
mod timeless;
mod todos;
#[path = "../worker_process/mod.rs"]
mod worker_process;

use async_trait::async_trait;
use flovyn_core::client::{Handle, StartOptions, StreamEvent};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{ChunkKind, Delivery as EngineDelivery, Entry, Status};
use flovyn_core::runtime::{FlovynClient, FlovynClientBuilder};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::Worker;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use flovyn_toolkit::message::Message;
use flovyn_toolkit::provider::{Api, Endpoint, ModelInfo, Registry, RetryPolicy, ToolSpec};
use flovyn_toolkit::react::{
    APPROVAL, AgentInput, AgentTool, LlmGenerate, ReactAgent, RunOutcome, USER_MESSAGE, UserMessage,
};
use flovyn_toolkit::tools::Effect;
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Barrier, Semaphore};

const PATIENCE: Duration = Duration::from_secs(30);

/// The window of the models of these tests, in tokens.
const WINDOW: u64 = 100_000;

/// The most tokens that one answer of theirs may have.
const MOST_SAID: u64 = 32_000;

/// The scripted server as the provider `fake` (Anthropic's wire), as `other` (OpenAI's) and as `third` (OpenAI's
/// Responses), each with a model `m`.
fn models(fake: &FakeLlm) -> Registry {
    let model = || ModelInfo {
        id: "m".into(),
        context_window: Some(WINDOW),
        max_output: Some(MOST_SAID),
        images: true,
        ..ModelInfo::default()
    };
    let mut models = Registry::new();
    let fakes = Endpoint::new("fake", fake.url()).models([model()]);
    models.add(Api::AnthropicMessages, fakes).expect("an address");
    let others = Endpoint::new("other", fake.openai_url()).models([model()]);
    models.add(Api::OpenaiChat, others).expect("an address");
    let thirds = Endpoint::new("third", fake.openai_url()).models([model()]);
    models.add(Api::OpenaiResponses, thirds).expect("an address");
    models
}

/// One try within an attempt, so that the engine sees every failure.
fn generate(fake: &FakeLlm) -> LlmGenerate {
    LlmGenerate::new(models(fake)).with_policy(RetryPolicy::never())
}

/// Says what it was told; `note` waits for nobody.
#[derive(Clone)]
struct Note;

#[async_trait]
impl TaskDefinition for Note {
    type Input = Value;
    type Output = String;

    fn kind(&self) -> &str {
        "note"
    }

    async fn execute(&self, _ctx: &TaskContext, input: Value) -> Result<String> {
        match input["text"].as_str() {
            // It ends after its neighbours, so that the order of the results is known.
            Some("late") => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok("noted late".into())
            }
            Some("fail") => Err(Error::new(Code::NonRetryable, "this note cannot be taken")),
            text => Ok(format!("noted {}", text.unwrap_or_default())),
        }
    }
}

/// Ends when the test lets it; `meet` ends when another one runs beside it.
#[derive(Clone)]
struct Gate {
    kind: &'static str,
    open: Arc<Semaphore>,
    meeting: Arc<Barrier>,
}

impl Gate {
    fn new(kind: &'static str) -> Self {
        Self { kind, open: Arc::new(Semaphore::new(0)), meeting: Arc::new(Barrier::new(2)) }
    }
}

#[async_trait]
impl TaskDefinition for Gate {
    type Input = Value;
    type Output = String;

    fn kind(&self) -> &str {
        self.kind
    }

    async fn execute(&self, _ctx: &TaskContext, _input: Value) -> Result<String> {
        match self.kind {
            "meet" => {
                self.meeting.wait().await;
            }
            _ => self.open.acquire().await.expect("it is never closed").forget(),
        }
        Ok(format!("{} is over", self.kind))
    }
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: format!("The {name} of a test."),
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}}),
    }
}

/// An agent with the tools `note` (a look), `wait`, `meet` and `send` (a change); everything is allowed.
fn agent() -> ReactAgent {
    let tools = [("note", Effect::Read), ("wait", Effect::Read), ("meet", Effect::Read), ("send", Effect::Write)];
    let agent = ReactAgent::new().with_system_prompt("Be brief.").with_approvals(ApprovalPolicy::allow_all());
    tools.into_iter().fold(agent, |agent, (name, effect)| {
        let kind = if name == "send" { "note" } else { name };
        let tool = AgentTool::task(spec(name), kind, effect).expect("a schema");
        agent.with_tool(tool).expect("a name of its own")
    })
}

/// A backend with a worker that serves the agent.
struct Lab {
    fake: FakeLlm,
    flovyn: FlovynClient,
    gate: Gate,
    agent: ReactAgent,
    _worker: Worker,
}

impl Lab {
    async fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::of("memory:", Script::new(turns), agent()).await
    }

    async fn of(url: &str, script: Script, agent: ReactAgent) -> Self {
        let fake = FakeLlm::start(script).expect("a server");
        let gate = Gate::new("wait");
        let flovyn = FlovynClient::builder()
            .storage(url)
            .agent(agent.clone())
            .task(generate(&fake))
            .task(Note)
            .task(gate.clone())
            .task(Gate::new("meet"))
            .build()
            .await
            .expect("a backend");
        let worker = flovyn.worker().await.expect("a worker");
        Self { fake, flovyn, gate, agent, _worker: worker }
    }

    async fn start(&self, input: &AgentInput) -> Handle {
        self.flovyn.start(&self.agent, input, StartOptions::default()).await.expect("it starts")
    }

    async fn ends(&self, input: &AgentInput) -> (RunOutcome, Handle) {
        let run = self.start(input).await;
        (outcome(&run).await, run)
    }

    /// Requests that the server has answered so far; waits for so many.
    async fn asked(&self, times: usize) {
        let enough = self.fake.wait_until(PATIENCE, |requests| requests.len() >= times).await;
        enough.unwrap_or_else(|found| panic!("{} requests came instead of {times}", found.len()));
    }
}

fn ask(prompt: &str) -> AgentInput {
    AgentInput::new("fake/m", prompt)
}

async fn outcome(run: &Handle) -> RunOutcome {
    run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("an outcome")
}

/// Says something to a run.
async fn say(run: &Handle, message: UserMessage) {
    let signal = message.signal(None).expect("a signal");
    run.signal(USER_MESSAGE, signal.payload, signal.delivery, None).await.expect("the run takes it");
}

/// Waits until a run waits for a signal.
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

/// Waits until a tool of the run is at work.
async fn works(run: &Handle, kind: &str) {
    let working = async {
        loop {
            let tasks = run.tasks(Default::default()).await.expect("the tasks").items;
            if tasks.iter().any(|task| task.new.kind == kind && !task.status.is_terminal()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, working).await.unwrap_or_else(|_| panic!("no {kind} is at work"));
}

/// The conversation in short: `role: text`, calls as `role: call name`, results as `role: name = text`.
async fn told(run: &Handle) -> Vec<String> {
    let entries = run.messages().await.expect("the conversation");
    let messages = entries.iter().filter(|entry| entry.new.entry_type == "message");
    messages.flat_map(|entry| lines(&entry.new.role, &content(entry))).collect()
}

fn content<T: serde::de::DeserializeOwned>(entry: &Entry) -> T {
    entry.new.content.parse().expect("the content of its type")
}

async fn of_type<T: serde::de::DeserializeOwned>(run: &Handle, entry_type: &str) -> Vec<T> {
    let entries = run.messages().await.expect("the conversation");
    entries.iter().filter(|entry| entry.new.entry_type == entry_type).map(content).collect()
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

/// What a run's readers were shown, from its start to its end: tokens as text, data as JSON, retractions as `retract`.
async fn shown(run: Handle) -> Vec<Value> {
    let mut events = run.stream(None);
    let mut shown = Vec::new();
    while let Some(event) = events.next().await.expect("the events can be read") {
        match event {
            StreamEvent::Chunk(_, chunk) if chunk.kind == ChunkKind::Token => shown.push(json!(&*chunk.data)),
            StreamEvent::Chunk(_, chunk) => shown.push(serde_json::from_str(&chunk.data).expect("JSON")),
            StreamEvent::Retract { .. } => shown.push(json!("retract")),
            StreamEvent::Durable(_) | StreamEvent::Gap(_) => {}
        }
    }
    shown
}

/// The events of a type among those that were shown.
fn of_kind<'a>(shown: &'a [Value], kind: &str) -> Vec<&'a Value> {
    shown.iter().filter(|event| event["type"] == kind).collect()
}
