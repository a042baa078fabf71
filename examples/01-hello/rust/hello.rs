//! The smallest durable agent. Run it twice: the second time nothing runs, the recorded result comes back.
//!
//! cargo run -p flovyn-examples --bin hello -- [DATABASE]

use async_trait::async_trait;
use flovyn_core::Result;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::runtime::AgentBuilder;
use flovyn_core::task::{LocalTaskExecutor, TaskContext, TaskDefinition};

/// A step.
pub struct Greet;

#[async_trait]
impl TaskDefinition for Greet {
    type Input = String;
    type Output = String;

    fn kind(&self) -> &str {
        "greet"
    }

    async fn execute(&self, _ctx: &TaskContext, name: String) -> Result<String> {
        println!("greeting {name}");
        Ok(format!("Hello, {name}!"))
    }
}

/// Greets, and keeps the conversation.
pub struct Hello;

#[async_trait]
impl AgentDefinition for Hello {
    type State = ();
    type Input = String;
    type Output = String;

    fn kind(&self) -> &str {
        "hello"
    }

    async fn execute(&self, ctx: &dyn AgentContext, name: String) -> Result<String> {
        ctx.append_entry("user", &name)?;
        let greeting = ctx.schedule_task(&Greet, &name)?.await?;
        ctx.append_entry("assistant", &greeting)?;
        Ok(greeting)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "hello.db".into());
    let agents = AgentBuilder::new()
        .storage(format!("sqlite:{database}"))
        .task_executor(LocalTaskExecutor::new().register(Greet)?)
        .build()
        .await?;
    let greeting = agents.execute_with(Hello, &"world".into(), StartOptions::with_id("hello-1")).await?;
    println!("{greeting}");
    assert_eq!(greeting, "Hello, world!");
    agents.close().await
}
