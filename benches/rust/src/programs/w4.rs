//! W4 in Rust: one step whose output is large. Prints, and dies; `w4_read` reads it back. Usage: w4 MIB text|bytes|file

use crate::payload::{Large, make};
use crate::{Failure, argument, die, directory, emit, open, peak_mb, reset_peak, rss_mb, serve, settled_bytes};
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::StartOptions;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let (mebibytes, form): (usize, String) = (argument(1)?, argument(2)?);
    let step = Arc::new(Mutex::new(None));
    let output = make(mebibytes, &form)?;
    let runtime = open("flovyn.db").await?;
    serve(&runtime, NativeHost::default().agent(Large { output: Some(output), step: step.clone() })?, 100).await?;
    reset_peak();
    let before = rss_mb();
    let options = StartOptions { id: Some("payload".into()), ..StartOptions::default() };
    runtime.client().start("payload", Payload::null(), options).await?;
    let taken = loop {
        if let Some(taken) = *step.lock().map_err(|_| "poisoned")? {
            break taken;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    emit(serde_json::json!({
        "step_ms": taken.as_secs_f64() * 1e3,
        "rss_growth_mb": peak_mb() - before,
        "rss_peak_mb": peak_mb(),
    }));
    emit(serde_json::json!({"stored_ratio": settled_bytes(&directory())? as f64 / (mebibytes << 20) as f64}));
    die()
}
