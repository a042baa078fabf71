//! The smallest durable agent. Run it twice: the second time nothing runs, the recorded result comes back.
//! cargo run -p flovyn-examples --bin hello -- [DATABASE]

use flovyn_core::prelude::*;

/// A step.
#[task]
pub async fn greet(name: String) -> Result<String> {
    println!("greeting {name}");
    Ok(format!("Hello, {name}!"))
}

/// Greets, and keeps the conversation.
#[agent]
pub async fn hello(ctx: Context, name: String) -> Result<String> {
    ctx.append_entry("user", &name)?;
    let greeting = ctx.task(&Greet, name).await?;
    ctx.append_entry("assistant", &greeting)?;
    Ok(greeting)
}

#[tokio::main]
async fn main() -> Result<()> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "hello.db".into());
    let agents = AgentBuilder::new().storage(format!("sqlite:{database}")).build().await?;
    let greeting = agents.execute_with(Hello, &"world".into(), StartOptions::with_id("hello-1")).await?;
    println!("{greeting}");
    assert_eq!(greeting, "Hello, world!");
    agents.close().await
}
