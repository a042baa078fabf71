//! W7 in Rust: one run of an agent with a tool; its model reads the whole conversation before each call. The conversation is
//! entries, the model's step is given a reference to it; each turn ends with a checkpoint. Usage: w7 TURNS

use crate::{Failure, argument, directory, emit, open, peak_mb, percentile, prose, serve, settled_bytes};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, AgentState, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt, ContextRef};
use flovyn_core::task::{TaskContext, TaskDefinition};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const USER_BYTES: usize = 2048;
const SAID_BYTES: usize = 4096;

/// What the scripted model and its tool note.
#[derive(Default)]
struct Script {
    /// When each turn began.
    began: Vec<Instant>,
    /// Turns whose conversation was not whole.
    wrong: u64,
}

impl Script {
    /// Begins a turn: the model's words, once it has read what was said.
    fn answer(&mut self, read: usize) -> String {
        let turn = self.began.len();
        self.began.push(Instant::now());
        self.wrong += u64::from(read != USER_BYTES + turn * 2 * SAID_BYTES);
        prose(SAID_BYTES, 2 * turn as u64 + 1)
    }

    /// What the tool of the present turn gives.
    fn result(&self) -> String {
        prose(SAID_BYTES, 2 * self.began.len() as u64)
    }
}

type Shared = Arc<Mutex<Script>>;

struct Model(Shared);

#[async_trait]
impl TaskDefinition for Model {
    type Input = ContextRef;
    type Output = String;

    fn kind(&self) -> &str {
        "model"
    }

    async fn execute(&self, ctx: &TaskContext, context: ContextRef) -> flovyn_core::Result<String> {
        let mut read = 0;
        for entry in ctx.messages(&context).await? {
            read += entry.new.content.parse::<String>()?.len();
        }
        Ok(self.0.lock().map(|mut script| script.answer(read)).unwrap_or_default())
    }
}

#[derive(Serialize, Deserialize)]
struct Call {
    id: String,
}

struct Look(Shared);

#[async_trait]
impl TaskDefinition for Look {
    type Input = Call;
    type Output = String;

    fn kind(&self) -> &str {
        "look"
    }

    async fn execute(&self, _: &TaskContext, _: Call) -> flovyn_core::Result<String> {
        Ok(self.0.lock().map(|script| script.result()).unwrap_or_default())
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Progress {
    turn: u32,
}

impl AgentState for Progress {}

struct Work(u32);

#[async_trait]
impl AgentDefinition for Work {
    type State = Progress;
    type Input = String;
    type Output = u32;

    fn kind(&self) -> &str {
        "work"
    }

    async fn execute(&self, ctx: &dyn AgentContext, prompt: String) -> flovyn_core::Result<u32> {
        let begun = ctx.state::<Progress>()?.turn;
        if begun == 0 {
            ctx.append_entry("user", &prompt)?;
        }
        for turn in begun..self.0 {
            let answer: String = ctx.schedule("model", &ctx.context_ref())?.await?;
            ctx.append_entry("assistant", &answer)?;
            let result: String = ctx.schedule("look", &Call { id: format!("call-{turn}") })?.await?;
            ctx.append_entry("tool", &result)?;
            ctx.checkpoint(&Progress { turn: turn + 1 })?.await?;
        }
        Ok(self.0)
    }
}

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let turns: u32 = argument(1)?;
    let script = Shared::default();
    let runtime = open("flovyn.db").await?;
    let host = NativeHost::default().agent(Work(turns))?.task(Model(script.clone()))?.task(Look(script.clone()))?;
    serve(&runtime, host, 100).await?;
    let empty = settled_bytes(&directory())?;
    let options = StartOptions { id: Some("work".into()), ..StartOptions::default() };
    let handle = runtime.client().start("work", Payload::of(&prose(USER_BYTES, 0))?, options).await?;
    handle.result(Some(Duration::from_secs(600))).await?;
    let ended = Instant::now();
    let stored = settled_bytes(&directory())?.saturating_sub(empty) as f64;
    let Script { began, wrong } = std::mem::take(&mut *script.lock().map_err(|_| "poisoned")?);
    let marks: Vec<Instant> = began.into_iter().chain([ended]).collect();
    let times: Vec<Duration> = marks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let window = (times.len() / 20).max(5).min(times.len());
    let (first, last) = (percentile(&times[..window], 0.5), percentile(&times[times.len() - window..], 0.5));
    emit(serde_json::json!({
        "turn_p50_ms": percentile(&times, 0.5) * 1e3,
        "turn_first_ms": first * 1e3,
        "turn_last_ms": last * 1e3,
        "turn_growth": last / first,
        "stored_mb": stored / f64::from(1 << 20),
        "stored_ratio": stored / (USER_BYTES + turns as usize * 2 * SAID_BYTES) as f64,
        "rss_peak_mb": peak_mb(),
        "wrong": wrong + (times.len() as u64).abs_diff(u64::from(turns)),
    }));
    runtime.close().await?;
    Ok(())
}
