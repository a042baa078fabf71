//! W3 in Rust: how the cost of a turn and the bytes stored grow with the conversation. Runs T turns, prints, and dies;
//! `w3_recover` goes on from there. Usage: w3 TURNS stepwise|entries

use crate::conversation::{Conversation, Marks, Plan, Prose, TURN_BYTES};
use crate::{Failure, Span, argument, die, directory, emit, open, peak_mb, serve, settled_bytes, stored_bytes};
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::StartOptions;
use flovyn_core::model::Status;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn median_ms(times: &[Duration]) -> f64 {
    crate::percentile(times, 0.5) * 1e3
}

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let plan = Plan { turns: argument(1)?, stepwise: argument::<String>(2)? == "stepwise" };
    let marks = Arc::new(Mutex::new(Marks::default()));
    let runtime = open("flovyn.db").await?;
    let host = NativeHost::default().agent(Conversation(marks.clone()))?;
    let host = host.task(Prose("model_answer", 4096, 1))?.task(Prose("tool_result", 4096, 2))?;
    serve(&runtime, host, 100).await?;
    let empty = settled_bytes(&directory())?;
    let span = Span::new();
    let options = StartOptions { id: Some("chat".into()), ..StartOptions::default() };
    let handle = runtime.client().start("conversation", Payload::of(&plan)?, options).await?;
    while handle.status().await? != Status::Waiting {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let total = span.wall_s();
    let settled = settled_bytes(&directory())?.saturating_sub(empty);
    let turns = marks.lock().map_err(|_| "poisoned")?.turns.clone();
    let tenth = (turns.len() / 10).max(1);
    let (first, last) = (median_ms(&turns[..tenth]), median_ms(&turns[turns.len() - tenth..]));
    emit(serde_json::json!({
        "total_s": total,
        "turn_first_ms": first,
        "turn_last_ms": last,
        "turn_growth": last / first,
        "file_bytes": stored_bytes(&directory()),
        "stored_ratio": settled as f64 / (u64::from(plan.turns) * TURN_BYTES) as f64,
        "rss_peak_mb": peak_mb(),
    }));
    die()
}
