//! An agent of somebody else's takes over a run: it works in a process of its own, what it asks for is allowed by a policy, and
//! what it says is kept.
//!
//! cargo run -p flovyn-examples --bin other-agents -- [DATABASE] [AGENT]
//!
//! Without an agent it is the small one of scribe.py; with one it is claude, pi, or a command that speaks ACP, such as codex-acp.

use async_trait::async_trait;
use flovyn_core::Result;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::journal::{ChildOptions, Completion};
use flovyn_core::runtime::FlovynClient;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_toolkit::external::ExternalAgent;
use flovyn_toolkit::react::RunOutcome;
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is to be noted.
pub struct Today;

#[async_trait]
impl TaskDefinition for Today {
    type Input = ();
    type Output = String;

    fn kind(&self) -> &str {
        "today"
    }

    async fn execute(&self, _ctx: &TaskContext, (): ()) -> Result<String> {
        Ok("Otters hold hands.".into())
    }
}

/// Finds out what is to be done, and gives its run to the agent of a kind.
pub struct Desk(String);

#[async_trait]
impl AgentDefinition for Desk {
    type State = ();
    type Input = ();
    type Output = RunOutcome;

    fn kind(&self) -> &str {
        "desk"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<RunOutcome> {
        let prompt = format!("Write in notes.txt: {}", ctx.schedule_task(&Today, &())?.await?);
        match ctx.handoff_to_agent(&self.0, &prompt, ChildOptions::default(), Completion::WaitForChild).await? {}
    }
}

fn chosen(word: Option<&str>, work: &Path) -> ExternalAgent {
    let agent = match word {
        None => {
            let scribe = concat!(env!("CARGO_MANIFEST_DIR"), "/11-other-agents/scribe.py");
            ExternalAgent::acp("python3", [scribe], work).named("scribe")
        }
        Some("claude") => ExternalAgent::claude(work),
        Some("pi") => ExternalAgent::pi(work),
        Some(command) => {
            let (program, args) = command.split_once(' ').unwrap_or((command, ""));
            ExternalAgent::acp(program, args.split_whitespace(), work)
        }
    };
    agent.with_approvals(ApprovalPolicy::allow_all())
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let database = PathBuf::from(words.next().unwrap_or_else(|| "other-agents.db".into()));
    let work = database.with_extension("work");
    std::fs::create_dir_all(&work)?;
    let other = chosen(words.next().as_deref(), &work);
    let desk = || Desk(other.kind().to_owned());
    let flovyn = FlovynClient::builder()
        .url(&format!("sqlite:{}", database.display()))
        .agent(desk())
        .agent(other.clone())
        .task(other.turns())
        .task(Today)
        .build()
        .await?;
    flovyn.worker().await?;
    let run = flovyn.start(&desk(), &(), StartOptions::with_id("note-1")).await?;
    let outcome: RunOutcome = run.result(Some(Duration::from_secs(600))).await?.parse()?;
    println!("{} ({:?})", outcome.text, outcome.stop_reason);
    assert_eq!(std::fs::read_to_string(work.join("notes.txt"))?.matches("Otters hold hands.").count(), 1);
    Ok(flovyn.close().await?)
}
