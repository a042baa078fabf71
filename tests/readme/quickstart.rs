//! The Rust program of the README, as it stands there: `tests/readme/run.py` compares the two, kills this one while it waits,
//! and answers it.

use flovyn_core::prelude::*;

#[task(retries = 3, timeout = "30s")]
async fn search(topic: String) -> Result<String> {
    Ok(format!("three pages about {topic}"))
}

#[agent]
async fn researcher(ctx: Context, topic: String) -> Result<String> {
    ctx.append_entry("user", &topic)?;
    let found = ctx.task(&Search, topic).await?;
    ctx.append_entry("assistant", &found)?;
    let answer: String = ctx.wait_for_signal("approval")?.await?;
    Ok(if answer == "yes" { found } else { "dropped".into() })
}

#[tokio::main]
async fn main() -> Result<()> {
    let agents = AgentBuilder::new().storage("sqlite:agents.db").build().await?;
    println!("{}", agents.execute_with(Researcher, &"otters".into(), StartOptions::with_id("otters-1")).await?);
    agents.close().await
}
