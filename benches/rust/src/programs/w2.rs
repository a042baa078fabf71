//! W2 in Rust: many agents at once, each a few small durable steps. Usage: w2 AGENTS STEPS

use crate::{Failure, Small, Span, argument, emit, open, peak_mb, percentile, serve};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::task::{TaskContext, TaskDefinition};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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

struct FewSteps(Arc<Mutex<Vec<Duration>>>);

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
            let start = Instant::now();
            ctx.schedule_task(&Tiny, &number)?.await?;
            if let Ok(mut times) = self.0.lock() {
                times.push(start.elapsed());
            }
        }
        Ok(steps)
    }
}

async fn run(client: Client, name: String, steps: u32) -> flovyn_core::Result<u32> {
    let options = StartOptions { id: Some(name), ..StartOptions::default() };
    client.start("few_steps", Payload::of(&steps)?, options).await?.result(None).await?.parse()
}

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let (agents, steps): (usize, u32) = (argument(1)?, argument(2)?);
    let times = Arc::new(Mutex::new(Vec::new()));
    let runtime = open("flovyn.db").await?;
    serve(&runtime, NativeHost::default().agent(FewSteps(times.clone()))?.task(Tiny)?, agents).await?;
    let client = runtime.client();
    run(client.clone(), "warm-up".into(), steps).await?;
    times.lock().map_err(|_| "poisoned")?.clear();
    let span = Span::new();
    let runs: Vec<_> =
        (0..agents).map(|number| tokio::spawn(run(client.clone(), format!("agent-{number}"), steps))).collect();
    let mut wrong = 0;
    for one in runs {
        wrong += u32::from(one.await?? != steps);
    }
    let (wall, cpu) = (span.wall_s(), span.cpu_s());
    let times = times.lock().map_err(|_| "poisoned")?.clone();
    emit(serde_json::json!({
        "steps_per_s": agents as f64 * f64::from(steps) / wall,
        "step_p50_ms": percentile(&times, 0.5) * 1e3,
        "step_p99_ms": percentile(&times, 0.99) * 1e3,
        "cpu_s": cpu,
        "rss_peak_mb": peak_mb(),
        "wrong": wrong,
    }));
    runtime.close().await?;
    Ok(())
}
