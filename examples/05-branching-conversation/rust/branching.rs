//! A conversation that is forked: both branches share what was said before, stored once.
//!
//! cargo run -p flovyn-examples --bin branching -- [DATABASE]

use flovyn_core::model::{Delivery, ForkFrom, PageRequest};
use flovyn_core::prelude::*;

/// Stands for a model.
#[task]
pub async fn answer(question: String) -> Result<String> {
    Ok(format!("About {question}: it depends."))
}

/// What a checkpoint saves. The conversation is not in it: it is a tree of its own.
#[derive(Default, Serialize, Deserialize, AgentState)]
pub struct Talk {
    turn: u32,
    #[reducer(append)]
    topics: Vec<String>,
}

/// Answers so many questions, one segment each.
#[agent]
pub async fn chat(ctx: Context<Talk>, turns: u32) -> Result<Vec<String>> {
    while ctx.state()?.turn < turns {
        let question: String = ctx.wait_for_signal("userMessage")?.await?;
        ctx.append_entry("user", &question)?;
        let answer = ctx.task(&Answer, question.clone()).await?;
        ctx.append_entry("assistant", &answer)?;
        let turn = ctx.state()?.turn + 1;
        ctx.update(TalkUpdate::new().turn(turn).topics([question]))?.await?;
    }
    ctx.messages().await?.iter().map(|entry| entry.new.content.parse()).collect()
}

async fn ask(handle: &Handle, question: &str) -> Result<()> {
    // The key makes a repeated program send it once.
    let key = Some(question.to_owned());
    handle.signal("userMessage", Payload::of(question)?, Delivery::default(), key).await.map(drop)
}

async fn said(handle: &Handle) -> Result<Vec<String>> {
    handle.result_as(Some(Duration::from_secs(10))).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "branching.db".into());
    let flovyn = FlovynClient::builder().url(&format!("sqlite:{database}")).agent(Chat).build().await?;
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
