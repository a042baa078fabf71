//! W1 in Rust: one agent, one small durable step after the other. Usage: w1 STEPS

use crate::{Failure, Small, Span, argument, directory, emit, open, percentile, serve, stored_bytes};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::task::{TaskContext, TaskDefinition};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WARM_UP: u32 = 20;

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

struct Sequential(Arc<Mutex<Vec<Duration>>>);

#[async_trait]
impl AgentDefinition for Sequential {
    type State = ();
    type Input = u32;
    type Output = u32;
    fn kind(&self) -> &str {
        "sequential"
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

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let steps: u32 = argument(1)?;
    let times = Arc::new(Mutex::new(Vec::new()));
    let runtime = open("flovyn.db").await?;
    serve(&runtime, NativeHost::default().agent(Sequential(times.clone()))?.task(Tiny)?, 100).await?;
    let client = runtime.client();
    let run = async |name: &str, steps: u32| {
        let options = StartOptions { id: Some(name.into()), ..StartOptions::default() };
        client.start("sequential", Payload::of(&steps)?, options).await?.result(None).await
    };
    run("warm-up", WARM_UP).await?;
    times.lock().map_err(|_| "poisoned")?.clear();
    let span = Span::new();
    run("measured", steps).await?;
    let (wall, cpu) = (span.wall_s(), span.cpu_s());
    let times = times.lock().map_err(|_| "poisoned")?.clone();
    emit(serde_json::json!({
        "p50_us": percentile(&times, 0.5) * 1e6,
        "p99_us": percentile(&times, 0.99) * 1e6,
        "steps_per_s": f64::from(steps) / wall,
        "cpu_us": cpu / f64::from(steps) * 1e6,
        "stored_bytes": stored_bytes(&directory()),
    }));
    runtime.close().await?;
    Ok(())
}
