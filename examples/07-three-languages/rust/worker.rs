//! One of three workers that serve the same agent, each in its language: this one in Rust.
//!
//! relay-worker URL [STEPS]: with STEPS it is killed once it has done so many.

use async_trait::async_trait;
use flovyn_core::Result;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::runtime::FlovynClient;
use flovyn_core::task::{TaskContext, TaskDefinition};
use std::sync::atomic::{AtomicU32, Ordering};

static DONE: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicU32 = AtomicU32::new(u32::MAX);

/// Tells who did it.
pub struct Step;

#[async_trait]
impl TaskDefinition for Step {
    type Input = u32;
    type Output = (u32, String);

    fn kind(&self) -> &str {
        "step"
    }

    async fn execute(&self, _ctx: &TaskContext, number: u32) -> Result<(u32, String)> {
        if DONE.fetch_add(1, Ordering::Relaxed) == LAST.load(Ordering::Relaxed) {
            let me = std::process::id().to_string();
            let _ = std::process::Command::new("kill").args(["-9", &me]).status();
        }
        Ok((number, "Rust".into()))
    }
}

/// The same steps as in the other languages.
pub struct Relay;

#[async_trait]
impl AgentDefinition for Relay {
    type State = ();
    type Input = u32;
    type Output = Vec<(u32, String)>;

    fn kind(&self) -> &str {
        "relay"
    }

    fn version(&self) -> Option<String> {
        Some("1".into())
    }

    async fn execute(&self, ctx: &dyn AgentContext, steps: u32) -> Result<Self::Output> {
        let mut ran = Vec::new();
        for number in 0..steps {
            ran.push(ctx.schedule_task(&Step, &number)?.await?);
        }
        Ok(ran)
    }
}

/// A part of the Python team's work.
pub struct CountLetters;

#[async_trait]
impl TaskDefinition for CountLetters {
    type Input = String;
    type Output = usize;

    fn kind(&self) -> &str {
        "count_letters"
    }

    async fn execute(&self, _ctx: &TaskContext, text: String) -> Result<usize> {
        Ok(text.chars().filter(|letter| letter.is_alphabetic()).count())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let url = words.first().map_or("sqlite:three.db", String::as_str);
    if let Some(last) = words.get(1).and_then(|word| word.parse().ok()) {
        LAST.store(last, Ordering::Relaxed);
    }
    let flovyn = FlovynClient::builder().url(url).agent(Relay).task(Step).task(CountLetters).build().await?;
    flovyn.worker().await?.closed().await;
    flovyn.close().await
}
