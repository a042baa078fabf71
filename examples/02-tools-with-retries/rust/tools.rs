//! Tools that fail, are retried with pauses, time out, and run side by side.
//!
//! cargo run -p flovyn-examples --bin tools -- [DATABASE]

use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{RetryPolicy, TaskOptions};
use flovyn_core::runtime::AgentBuilder;
use flovyn_core::task::{LocalTaskExecutor, TaskContext, TaskDefinition};
use std::time::Duration;

fn retries(retries: u32) -> TaskOptions {
    TaskOptions { retry: RetryPolicy { retries, ..RetryPolicy::default() }, ..TaskOptions::default() }
}

/// Fails its first two attempts.
pub struct Flaky;

#[async_trait]
impl TaskDefinition for Flaky {
    type Input = u64;
    type Output = u64;

    fn kind(&self) -> &str {
        "flaky"
    }

    fn options(&self) -> TaskOptions {
        retries(3)
    }

    async fn execute(&self, ctx: &TaskContext, number: u64) -> Result<u64> {
        match ctx.attempt() {
            1 | 2 => Err(Error::new(Code::StorageUnavailable, format!("attempt {} was refused", ctx.attempt()))),
            _ => Ok(number * number),
        }
    }
}

/// Takes longer than it may.
pub struct Slow;

#[async_trait]
impl TaskDefinition for Slow {
    type Input = ();
    type Output = u64;

    fn kind(&self) -> &str {
        "slow"
    }

    fn options(&self) -> TaskOptions {
        TaskOptions { timeout: Some(Duration::from_millis(100)), ..TaskOptions::default() }
    }

    async fn execute(&self, _ctx: &TaskContext, (): ()) -> Result<u64> {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(0)
    }
}

/// Would be retried, but says itself that there is no point.
pub struct Hopeless;

#[async_trait]
impl TaskDefinition for Hopeless {
    type Input = String;
    type Output = u64;

    fn kind(&self) -> &str {
        "hopeless"
    }

    fn options(&self) -> TaskOptions {
        retries(5)
    }

    async fn execute(&self, _ctx: &TaskContext, text: String) -> Result<u64> {
        text.parse().map_err(|error| Error::new(Code::NonRetryable, format!("{text:?} is no number: {error}")))
    }
}

/// Uses all three.
pub struct Toolbox;

#[async_trait]
impl AgentDefinition for Toolbox {
    type State = ();
    type Input = ();
    type Output = (Vec<u64>, Vec<String>);

    fn kind(&self) -> &str {
        "toolbox"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<Self::Output> {
        let steps: Vec<_> = (0..3).map(|number| ctx.schedule_task(&Flaky, &number)).collect::<Result<_>>()?;
        let squares = futures::future::try_join_all(steps).await?;
        let failures = [ctx.schedule_task(&Slow, &())?.await, ctx.schedule_task(&Hopeless, &"seven".into())?.await];
        let told = failures.into_iter().filter_map(|ended| ended.err().map(|error| error.error_type().to_owned()));
        Ok((squares, told.collect()))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "tools.db".into());
    let tasks = LocalTaskExecutor::new().register(Flaky)?.register(Slow)?.register(Hopeless)?;
    let agents = AgentBuilder::new().storage(format!("sqlite:{database}")).task_executor(tasks).build().await?;
    let (squares, errors) = agents.execute_with(Toolbox, &(), StartOptions::with_id("tools-1")).await?;
    println!("{squares:?}\n{}", errors.join("\n"));
    assert_eq!(squares, [0, 1, 4]);
    assert_eq!(errors, ["TaskTimeout", "NonRetryable"]);
    agents.close().await
}
