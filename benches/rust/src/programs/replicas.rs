//! S8 in Rust: many agents over several servers of one PostgreSQL, a worker at each. Usage: replicas AGENTS STEPS
//!
//! First runs of one step each, for which a claim is most of the work; then runs of many steps, which are commits.

use crate::{Failure, Small, Span, argument, emit, serve};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::runtime::Runtime;
use flovyn_core::task::{TaskContext, TaskDefinition};

struct Tiny;

#[async_trait]
impl TaskDefinition for Tiny {
    type Input = u32;
    type Output = Small;
    fn kind(&self) -> &str {
        "tiny"
    }
    async fn execute(&self, _: &TaskContext, _: u32) -> flovyn_core::Result<Small> {
        Ok(Small::result())
    }
}

struct FewSteps;

#[async_trait]
impl AgentDefinition for FewSteps {
    type State = ();
    type Input = u32;
    type Output = u32;
    fn kind(&self) -> &str {
        "few_steps"
    }
    async fn execute(&self, ctx: &dyn AgentContext, steps: u32) -> flovyn_core::Result<u32> {
        for number in 0..steps {
            ctx.schedule_task(&Tiny, &number)?.await?;
        }
        Ok(steps)
    }
}

async fn run(client: Client, name: String, steps: u32) -> flovyn_core::Result<u32> {
    let options = StartOptions { id: Some(name), ..StartOptions::default() };
    client.start("few_steps", Payload::of(&steps)?, options).await?.result(None).await?.parse()
}

/// Runs so many agents, spread over the servers; how many ended wrong, and the seconds it took.
async fn crowd(clients: &[Client], name: &str, agents: usize, steps: u32) -> Result<(u32, f64), Failure> {
    let span = Span::new();
    let runs: Vec<_> = (0..agents)
        .zip(clients.iter().cycle())
        .map(|(number, client)| tokio::spawn(run(client.clone(), format!("{name}-{number}"), steps)))
        .collect();
    let mut wrong = 0;
    for one in runs {
        wrong += u32::from(one.await?? != steps);
    }
    Ok((wrong, span.wall_s()))
}

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let (agents, steps): (usize, u32) = (argument(1)?, argument(2)?);
    let urls = std::env::var("BENCH_URLS").map_err(|_| "BENCH_URLS names no servers")?;
    let (mut runtimes, mut workers, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    for url in urls.split_whitespace() {
        let runtime = Runtime::open(url).await?;
        workers.push(serve(&runtime, NativeHost::default().agent(FewSteps)?.task(Tiny)?, agents).await?);
        clients.push(runtime.client());
        runtimes.push(runtime);
    }
    crowd(&clients, "warm-up", clients.len() * 4, 1).await?;
    let starts = agents * 5;
    let (early, claiming) = crowd(&clients, "start", starts, 1).await?;
    let (late, stepping) = crowd(&clients, "agent", agents, steps).await?;
    emit(serde_json::json!({
        "claims_per_s": starts as f64 / claiming,
        "steps_per_s": agents as f64 * f64::from(steps) / stepping,
        "wrong": early + late,
    }));
    drop(workers);
    for runtime in runtimes {
        runtime.close().await?;
    }
    Ok(())
}
