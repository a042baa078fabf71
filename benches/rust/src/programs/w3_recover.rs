//! W3 in Rust, second half: a new process takes up the conversation that `w3` left. Usage: w3_recover TURNS stepwise|entries

use crate::conversation::{Conversation, Marks, Plan, Prose};
use crate::{Failure, argument, emit, open, peak_mb, serve, spawned_at, wall};
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::model::Delivery;
use std::sync::{Arc, Mutex};

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let plan = Plan { turns: argument(1)?, stepwise: argument::<String>(2)? == "stepwise" };
    let marks = Arc::new(Mutex::new(Marks::default()));
    let runtime = open("flovyn.db").await?;
    let host = NativeHost::default().agent(Conversation(marks.clone()))?;
    let host = host.task(Prose("model_answer", 4096, 1))?.task(Prose("tool_result", 4096, 2))?;
    serve(&runtime, host, 100).await?;
    let handle = runtime.client().handle("chat").await?;
    let signalled = wall();
    handle.signal("more", Payload::of(&serde_json::json!({}))?, Delivery::NextStep, None).await?;
    let messages: usize = handle.result(None).await?.parse()?;
    let marks = marks.lock().map_err(|_| "poisoned")?;
    let first_step = if marks.first_step > 0.0 { marks.first_step } else { marks.entered };
    emit(serde_json::json!({
        "recover_ms": (marks.entered - signalled) * 1e3,
        "recover_step_ms": (first_step - spawned_at()) * 1e3,
        "load_ms": marks.load.as_secs_f64() * 1e3,
        "recover_rss_mb": peak_mb(),
        "wrong": messages as i64 - i64::from(plan.turns + 1) * 3,
    }));
    Ok(())
}
