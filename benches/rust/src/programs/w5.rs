//! W5 in Rust: a crowd of waiting agents, what they cost, and how fast a signal reaches them. Usage: w5 AGENTS

use crate::waiting::{Resumed, Waiter, burst, handles, paced, start};
use crate::{Failure, Span, argument, emit, open, percentile, rss_mb, serve};
use flovyn_core::agent::NativeHost;
use std::time::Duration;

const WARM_UP: u32 = 20;

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let agents: u32 = argument(1)?;
    let resumed = Resumed::default();
    let runtime = open("flovyn.db").await?;
    serve(&runtime, NativeHost::default().agent(Waiter(resumed.clone()))?, 500).await?;
    let client = runtime.client();
    start(&client, agents..agents + WARM_UP).await?;
    burst(&handles(&client, agents..agents + WARM_UP).await?, &resumed).await?;

    let (idle_mb, span) = (rss_mb(), Span::new());
    start(&client, 0..agents).await?;
    let (start_s, waiting_mb) = (span.wall_s(), rss_mb());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let span = Span::new();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle_cpu = span.cpu_s() / span.wall_s();

    let crowd = handles(&client, 0..agents).await?;
    let (first, rest) = crowd.split_at((agents / 5).min(200) as usize);
    let one_at_a_time = paced(first, &resumed).await?;
    let span = Span::new();
    let back_to_back = burst(rest, &resumed).await?;
    emit(serde_json::json!({
        "start_s": start_s,
        "paced_p50_ms": percentile(&one_at_a_time, 0.5) * 1e3,
        "paced_p99_ms": percentile(&one_at_a_time, 0.99) * 1e3,
        "burst_p50_ms": percentile(&back_to_back, 0.5) * 1e3,
        "burst_p99_ms": percentile(&back_to_back, 0.99) * 1e3,
        "burst_per_s": rest.len() as f64 / span.wall_s(),
        "rss_mb": waiting_mb,
        "kb_per_agent": (waiting_mb - idle_mb) * 1024.0 / f64::from(agents),
        "idle_cpu_percent": idle_cpu * 100.0,
    }));
    runtime.close().await?;
    Ok(())
}
