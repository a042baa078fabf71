//! A research team: an agent leads three others, which work side by side on one budget. It stops one of them in time.
//!
//! cargo run -p flovyn-examples --bin research-team -- [DATABASE]

use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt, Child};
use flovyn_core::error::{Code, Error};
use flovyn_core::journal::ChildOptions;
use flovyn_core::model::{Cancellation, ChildEvent, Spent, StartLimits, Usage};
use flovyn_core::runtime::FlovynClient;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::{Payload, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const PAGE_TOKENS: u64 = 100;

/// What a researcher looks into.
#[derive(Serialize, Deserialize)]
pub struct Question {
    topic: String,
    pages: u32,
}

/// Stands for a model that reads a page.
pub struct ReadPage;

#[async_trait]
impl TaskDefinition for ReadPage {
    type Input = (String, u32);
    type Output = String;

    fn kind(&self) -> &str {
        "read-page"
    }

    async fn execute(&self, _ctx: &TaskContext, (topic, page): (String, u32)) -> Result<String> {
        Ok(format!("page {page} about {topic}"))
    }
}

/// Reads pages, and keeps its notes where it is asked to stop.
pub struct Researcher;

impl Researcher {
    async fn read(ctx: &dyn AgentContext, question: &Question, notes: &mut Vec<String>) -> Result<()> {
        for page in 0..question.pages {
            notes.push(ctx.schedule_task(&ReadPage, &(question.topic.clone(), page))?.await?);
            ctx.record_usage("reader", Usage { calls: 1, input_tokens: PAGE_TOKENS, ..Usage::default() })?;
            ctx.signal_parent("read", &notes.len())?.await?;
        }
        Ok(())
    }
}

#[async_trait]
impl AgentDefinition for Researcher {
    type State = ();
    type Input = Question;
    type Output = Vec<String>;

    fn kind(&self) -> &str {
        "researcher"
    }

    async fn execute(&self, ctx: &dyn AgentContext, question: Question) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        match Self::read(ctx, &question, &mut notes).await {
            // By the lead, or because the budget has no room for another page.
            Err(stopped) if stopped.code() == Code::Cancelled => Ok(notes),
            read => read.map(|()| notes),
        }
    }
}

/// Leads three researchers.
pub struct Lead;

impl Lead {
    /// Hears a researcher to its end, and stops it once it has read too much. Tells how it ended, and its notes.
    async fn follow(
        ctx: &dyn AgentContext,
        child: &Child<Vec<String>>,
        patience: u32,
    ) -> Result<(String, Vec<String>)> {
        let notes = |output: Option<Payload>| output.map_or(Ok(Vec::new()), |output| output.parse());
        loop {
            match ctx.wait_for_child_event(child, None)?.await? {
                ChildEvent::Signal { payload, .. } if payload.parse::<u32>()? == patience => {
                    ctx.cancel_child(child, Cancellation::USUAL)?.await?;
                }
                ChildEvent::Completed { output } => return Ok(("completed".into(), notes(Some(output))?)),
                ChildEvent::Cancelled { output } => return Ok(("cancelled".into(), notes(output)?)),
                ChildEvent::BudgetExceeded { output, .. } => return Ok(("budget exceeded".into(), notes(output)?)),
                ChildEvent::Failed { error } => return Err(Error::new(error.code, error.message)),
                _ => {}
            }
        }
    }
}

#[async_trait]
impl AgentDefinition for Lead {
    type State = ();
    type Input = ();
    type Output = Vec<(String, Vec<String>)>;

    fn kind(&self) -> &str {
        "lead"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<Vec<(String, Vec<String>)>> {
        let ask = |topic: &str, pages| Question { topic: topic.into(), pages };
        let budget = Some((4 * PAGE_TOKENS).to_string());
        let small =
            ChildOptions { limits: StartLimits { budget, ..StartLimits::default() }, ..ChildOptions::default() };
        let otters = ctx.spawn_agent("researcher", &ask("otters", 3))?;
        let seals = ctx.spawn_agent_with("researcher", &ask("seals", 50), small)?;
        let eels = ctx.spawn_agent("researcher", &ask("eels", 10_000))?;
        let follow = [Self::follow(ctx, &otters, 1_000), Self::follow(ctx, &seals, 1_000), Self::follow(ctx, &eels, 5)];
        futures::future::try_join_all(follow).await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "research-team.db".into());
    let flovyn = FlovynClient::builder()
        .url(&format!("sqlite:{database}"))
        .agent(Lead)
        .agent(Researcher)
        .task(ReadPage)
        .build()
        .await?;
    flovyn.worker().await?;
    let limits = StartLimits { budget: Some("20000".into()), ..StartLimits::default() };
    let run = flovyn.start(&Lead, &(), StartOptions { limits, ..StartOptions::with_id("team-1") }).await?;
    let ends: Vec<(String, Vec<String>)> = run.result(Some(Duration::from_secs(60))).await?.parse()?;
    for (end, notes) in &ends {
        println!("{end} after {} pages", notes.len());
    }
    let sum = run.roll_up().await?;
    let used = Spent::of(&sum.usage).tokens;
    println!("{used} tokens in all, of {} researchers", sum.descendants);
    let words: Vec<_> = ends.iter().map(|(end, _)| end.as_str()).collect();
    assert_eq!(words, ["completed", "budget exceeded", "cancelled"]);
    assert_eq!((ends[0].1.len(), ends[1].1.len()), (3, 4));
    assert!(ends[2].1.len() >= 5 && used <= 20_000);
    flovyn.close().await
}
