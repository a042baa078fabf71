//! A conversation that is forked: both branches share what was said before, stored once.
//!
//! cargo run -p flovyn-examples --bin branching -- [DATABASE]

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, AgentState, Reduce};
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::model::{Delivery, ForkFrom, PageRequest};
use flovyn_core::runtime::FlovynClient;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::{Payload, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Stands for a model.
pub struct Answer;

#[async_trait]
impl TaskDefinition for Answer {
    type Input = String;
    type Output = String;

    fn kind(&self) -> &str {
        "answer"
    }

    async fn execute(&self, _ctx: &TaskContext, question: String) -> Result<String> {
        Ok(format!("About {question}: it depends."))
    }
}

/// What a checkpoint saves. The conversation is not in it: it is a tree of its own.
#[derive(Default, Serialize, Deserialize, AgentState)]
pub struct Talk {
    turn: u32,
    #[reducer(append)]
    topics: Vec<String>,
}

/// Answers so many questions, one segment each.
pub struct Chat;

#[async_trait]
impl AgentDefinition for Chat {
    type State = Talk;
    type Input = u32;
    type Output = Vec<String>;

    fn kind(&self) -> &str {
        "chat"
    }

    async fn execute(&self, ctx: &dyn AgentContext, turns: u32) -> Result<Vec<String>> {
        let mut state: Talk = ctx.state()?;
        while state.turn < turns {
            let question: String = ctx.wait_for_signal("userMessage")?.await?;
            ctx.append_entry("user", &question)?;
            let answer = ctx.schedule_task(&Answer, &question)?.await?;
            ctx.append_entry("assistant", &answer)?;
            state.reduce(TalkUpdate::new().turn(state.turn + 1).topics([question]));
            ctx.checkpoint(&state)?.await?;
        }
        ctx.messages().await?.iter().map(|entry| entry.new.content.parse()).collect()
    }
}

async fn ask(handle: &Handle, question: &str) -> Result<()> {
    // The key makes a repeated program send it once.
    let key = Some(question.to_owned());
    handle.signal("userMessage", Payload::of(question)?, Delivery::default(), key).await.map(drop)
}

async fn said(handle: &Handle) -> Result<Vec<String>> {
    handle.result(Some(Duration::from_secs(10))).await?.parse()
}

#[tokio::main]
async fn main() -> Result<()> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "branching.db".into());
    let flovyn = FlovynClient::builder().url(&format!("sqlite:{database}")).agent(Chat).task(Answer).build().await?;
    flovyn.worker().await?;
    let trunk = flovyn.start(&Chat, &2, StartOptions::with_id("trunk")).await?;
    ask(&trunk, "trees").await?;
    while trunk.checkpoints(PageRequest::default()).await?.items.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let branch = trunk.fork(ForkFrom::Checkpoint(1), Some("branch"), None, None).await?;
    ask(&trunk, "oaks").await?;
    ask(&branch, "birches").await?;
    let (said, instead) = (said(&trunk).await?, said(&branch).await?);
    println!("{said:?}\n{instead:?}");
    assert_eq!(said[..2], instead[..2]);
    assert!(said[2] == "oaks" && instead[2] == "birches");
    flovyn.close().await
}
