//! W6 in Rust: the program that the harness kills and starts again. Usage: w6_recover STEPS

use crate::{Failure, Small, argument, note, open, serve};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::task::{TaskContext, TaskDefinition};

struct Logged;

#[async_trait]
impl TaskDefinition for Logged {
    type Input = u32;
    type Output = Small;
    fn kind(&self) -> &str {
        "logged"
    }
    async fn execute(&self, _: &TaskContext, number: u32) -> flovyn_core::Result<Small> {
        note("step", number);
        Ok(Small::result())
    }
}

struct Crashing;

#[async_trait]
impl AgentDefinition for Crashing {
    type State = ();
    type Input = u32;
    type Output = u32;
    fn kind(&self) -> &str {
        "crashing"
    }
    async fn execute(&self, ctx: &dyn AgentContext, steps: u32) -> flovyn_core::Result<u32> {
        for number in 0..steps {
            ctx.schedule_task(&Logged, &number)?.await?;
        }
        Ok(steps)
    }
}

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    note("begun", 0);
    note("imported", 0);
    let steps: u32 = argument(1)?;
    let runtime = open("flovyn.db").await?;
    serve(&runtime, NativeHost::default().agent(Crashing)?.task(Logged)?, 100).await?;
    note("connected", 0);
    let options = StartOptions { id: Some("crash".into()), ..StartOptions::default() };
    runtime.client().start("crashing", Payload::of(&steps)?, options).await?.result(None).await?;
    note("finished", 0);
    Ok(())
}
