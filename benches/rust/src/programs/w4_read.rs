//! W4 in Rust, second half: a new process replays the run and reads the large output. Usage: w4_read MIB text|bytes|file

use crate::payload::Large;
use crate::{Failure, argument, emit, open, peak_mb, reset_peak, rss_mb, serve};
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::model::Delivery;
use std::sync::{Arc, Mutex};

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let mebibytes: u64 = argument(1)?;
    let step = Arc::new(Mutex::new(None));
    let runtime = open("flovyn.db").await?;
    reset_peak();
    let before = rss_mb();
    serve(&runtime, NativeHost::default().agent(Large { output: None, step: step.clone() })?, 100).await?;
    let handle = runtime.client().handle("payload").await?;
    handle.signal("again", Payload::of(&serde_json::json!({}))?, Delivery::NextStep, None).await?;
    let size: u64 = handle.result(None).await?.parse()?;
    emit(serde_json::json!({
        "read_ms": step.lock().map_err(|_| "poisoned")?.map_or(f64::NAN, |taken| taken.as_secs_f64() * 1e3),
        "read_rss_growth_mb": peak_mb() - before,
        "wrong": u32::from(size != mebibytes << 20),
    }));
    Ok(())
}
