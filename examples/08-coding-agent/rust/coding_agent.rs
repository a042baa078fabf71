//! The built-in coding agent on a folder of files: it streams, asks before it changes anything, and survives kill -9.
//!
//! cargo run -p flovyn-examples --bin coding-agent -- [DATABASE] [PROVIDER/MODEL]
//!
//! Without a model it speaks to a scripted one; with one the provider's key is taken from the environment.

use flovyn_core::Payload;
use flovyn_core::client::{Handle, StartOptions, StreamEvent};
use flovyn_core::model::{ChunkKind, Delivery, Event, EventKind};
use flovyn_core::runtime::FlovynClient;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use flovyn_toolkit::provider::{Api, Endpoint, Registry};
use flovyn_toolkit::react::{APPROVAL, AgentInput, LlmGenerate, ReactAgent, RunOutcome};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};
use flovyn_toolkit::tools::{CallRecords, ToolEnvironment, ToolHost, ToolTask, Toolbox};
use serde_json::{Value, json};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

const BROKEN: &str = "def add(a, b):\n    return a - b\n";
const PROMPT: &str = "The sums of sums.py are wrong. Find out why and mend it.";

/// What the scripted model says.
fn script() -> Script {
    Script::new([
        Turn { text: Some("I will look for it. ".into()), ..Turn::call("grep", json!({"pattern": "def add"})) },
        Turn::call("read", json!({"path": "sums.py"})),
        Turn::call("edit", json!({"path": "sums.py", "old_string": "a - b", "new_string": "a + b"})),
        Turn::text("It subtracted. Now it adds."),
    ])
}

/// Shows what happens and says yes to every change, as a person at a terminal would.
async fn look_on(run: &Handle) -> Result<(), Box<dyn Error>> {
    let mut events = run.stream(None);
    while let Some(event) = events.next().await? {
        match event {
            StreamEvent::Chunk(_, chunk) if chunk.kind == ChunkKind::Token => print!("{}", chunk.data),
            StreamEvent::Chunk(_, chunk) => {
                let shown: Value = serde_json::from_str(&chunk.data)?;
                if shown["type"] == "tool_call_start" {
                    println!("\n▸ {} {}", shown["tool_call"]["name"], shown["tool_call"]["arguments"]);
                }
            }
            StreamEvent::Durable(event) if event.kind == EventKind::Entry => allow(run, &event).await?,
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}

/// Answers the entry of a request; a run that has ended meanwhile needs no answer any more.
async fn allow(run: &Handle, entry: &Event) -> Result<(), Box<dyn Error>> {
    if entry.data["entry_type"] != "approval_request" || run.status().await?.is_terminal() {
        return Ok(());
    }
    let request: ApprovalRequest = serde_json::from_value(entry.data["content"].clone())?;
    println!("\n? {} {} (yes)", request.name, request.arguments);
    let key = Some(request.id.clone());
    let answer = ApprovalAnswer { id: request.id, hash: request.hash, approved: true, reason: None };
    run.signal(APPROVAL, Payload::of(&answer)?, Delivery::NextStep, key).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let database = PathBuf::from(words.next().unwrap_or_else(|| "coding-agent.db".into()));
    let fake = FakeLlm::start(script())?;
    let (model, models) = match words.next() {
        Some(model) => (model, Registry::from_env()?),
        None => {
            let mut models = Registry::new();
            models.add(Api::AnthropicMessages, Endpoint::new("fake", fake.url()))?;
            ("fake/scripted".to_owned(), models)
        }
    };
    let work = folder(&database, "work")?;
    let file = work.join("sums.py");
    if !file.exists() {
        std::fs::write(&file, BROKEN)?;
    }

    let toolbox = Toolbox::host()?.only(["read", "write", "edit", "grep", "find"])?;
    let records = CallRecords::open(folder(&database, "records")?)?;
    let host = ToolHost::new(ToolEnvironment::open(&work)?, records);
    let agent = ReactAgent::new().with_toolbox(&toolbox)?;
    let mut flovyn = FlovynClient::builder().url(&format!("sqlite:{}", database.display())).agent(agent.clone());
    flovyn = flovyn.task(LlmGenerate::new(models));
    for task in ToolTask::all(&toolbox, &host) {
        flovyn = flovyn.task(task);
    }
    let flovyn = flovyn.build().await?;
    flovyn.worker().await?;

    let run = flovyn.start(&agent, &AgentInput::new(&model, PROMPT), StartOptions::with_id("mend-1")).await?;
    look_on(&run).await?;
    let outcome: RunOutcome = run.result(None).await?.parse()?;
    println!("{} ({} turns)", outcome.text, outcome.turns);
    assert_eq!(std::fs::read_to_string(&file)?, BROKEN.replace('-', "+"));
    Ok(flovyn.close().await?)
}

/// A folder beside the database.
fn folder(database: &Path, name: &str) -> Result<PathBuf, std::io::Error> {
    let folder = database.with_extension(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
