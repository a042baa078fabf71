//! W5 in Rust, evicted agents: what they cost a process that holds none of them. Usage: w5_evicted AGENTS begin|resume

use crate::waiting::{Resumed, Waiter, burst, handles, paced, start};
use crate::{Failure, Span, argument, die, emit, open, percentile, rss_mb, serve};
use flovyn_core::agent::NativeHost;
use std::time::Duration;

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let agents: u32 = argument(1)?;
    let resumed = Resumed::default();
    if argument::<String>(2)? == "begin" {
        let runtime = open("flovyn.db").await?;
        serve(&runtime, NativeHost::default().agent(Waiter(resumed))?, 100).await?;
        start(&runtime.client(), 0..agents).await?;
        die()
    }
    let empty = open("empty.db").await?;
    serve(&empty, NativeHost::default().agent(Waiter(resumed.clone()))?, 100).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let empty_mb = rss_mb();
    empty.close().await?;
    let runtime = open("flovyn.db").await?;
    serve(&runtime, NativeHost::default().agent(Waiter(resumed.clone()))?, 100).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (crowd_mb, span) = (rss_mb(), Span::new());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle_cpu = span.cpu_s() / span.wall_s();
    let crowd = handles(&runtime.client(), 0..agents).await?;
    let (first, rest) = crowd.split_at((agents / 5).min(200) as usize);
    let latencies = paced(first, &resumed).await?;
    burst(rest, &resumed).await?;
    emit(serde_json::json!({
        "evicted_rss_mb": crowd_mb,
        "kb_per_evicted": (crowd_mb - empty_mb) * 1024.0 / f64::from(agents),
        "evicted_idle_cpu_percent": idle_cpu * 100.0,
        "evicted_p50_ms": percentile(&latencies, 0.5) * 1e3,
        "wrong": agents as usize - resumed.lock().map_err(|_| "poisoned")?.len(),
    }));
    runtime.close().await?;
    Ok(())
}
