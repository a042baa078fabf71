//! S7 in Rust: the tokens of one run to many readers over SSE. Usage: fanout READERS TOKENS
//!
//! The worker is in this process, so that sending and receiving are told by one clock: a token is the moment it was sent.

use crate::{Failure, argument, emit, open, percentile, serve};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::model::Delivery;
use flovyn_core::task::{TaskContext, TaskDefinition};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Between two tokens: as fast as a quick model speaks.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the last token has until its task ends.
const QUIET: Duration = Duration::from_secs(2);

/// Says tokens, and then nothing for a while: a preview that comes after its task has ended is dropped.
struct Say(Instant);

#[async_trait]
impl TaskDefinition for Say {
    type Input = u32;
    type Output = u32;
    fn kind(&self) -> &str {
        "say"
    }
    async fn execute(&self, ctx: &TaskContext, tokens: u32) -> flovyn_core::Result<u32> {
        for _ in 0..tokens {
            ctx.stream_token(&self.0.elapsed().as_nanos().to_string());
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(QUIET).await;
        Ok(tokens)
    }
}

/// Speaks once it is told to.
struct Speaker;

#[async_trait]
impl AgentDefinition for Speaker {
    type State = ();
    type Input = u32;
    type Output = u32;
    fn kind(&self) -> &str {
        "speaker"
    }
    async fn execute(&self, ctx: &dyn AgentContext, tokens: u32) -> flovyn_core::Result<u32> {
        let _: serde_json::Value = ctx.wait_for_signal("begin")?.await?;
        ctx.schedule("say", &tokens)?.await
    }
}

/// What a reader has heard: when each token was sent and when it came, since the epoch.
type Heard = Vec<(Duration, Duration)>;

/// The `data` of a token's event.
#[derive(Deserialize)]
struct Token {
    data: String,
}

/// Reads a run's events to their end.
async fn read(http: String, run: String, token: String, epoch: Instant, ready: Arc<AtomicUsize>) -> Option<Heard> {
    let address = http.strip_prefix("http://")?.to_owned();
    let connection = TcpStream::connect(&address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await.ok()?;
    tokio::spawn(connection);
    let request = Request::get(format!("/api/orgs/default/agent-executions/{run}/stream/consolidated"))
        .header(header::HOST, address)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Empty::<Bytes>::new())
        .ok()?;
    let mut answer = sender.send_request(request).await.ok().filter(|answer| answer.status() == 200)?;
    ready.fetch_add(1, Ordering::Relaxed);
    let (mut heard, mut text) = (Heard::new(), String::new());
    while let Some(frame) = answer.frame().await {
        let now = epoch.elapsed();
        text.push_str(std::str::from_utf8(frame.ok()?.data_ref()?).ok()?);
        while let Some((event, rest)) = text.split_once("\n\n") {
            if event.lines().any(|line| line == "event: token") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "))?;
                let sent: u64 = serde_json::from_str::<Token>(data).ok()?.data.parse().ok()?;
                heard.push((Duration::from_nanos(sent), now));
            }
            text = rest.to_owned();
        }
    }
    Some(heard)
}

/// Measures, and prints the figures.
pub(crate) async fn main() -> Result<(), Failure> {
    let (readers, tokens): (usize, u32) = (argument(1)?, argument(2)?);
    let (http, token) = (std::env::var("BENCH_HTTP")?, std::env::var("FLOVYN_TOKEN")?);
    let epoch = Instant::now();
    let runtime = open("flovyn.db").await?;
    let worker = serve(&runtime, NativeHost::default().agent(Speaker)?.task(Say(epoch))?, 10).await?;
    let handle = runtime.client().start("speaker", Payload::of(&tokens)?, StartOptions::default()).await?;
    let ready = Arc::new(AtomicUsize::new(0));
    let reading: Vec<_> = (0..readers)
        .map(|_| tokio::spawn(read(http.clone(), handle.id().to_string(), token.clone(), epoch, ready.clone())))
        .collect();
    let since = Instant::now();
    while ready.load(Ordering::Relaxed) < readers {
        if since.elapsed() > Duration::from_secs(60) {
            return Err("the readers did not get through in 60 s".into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    handle.signal("begin", Payload::of(&serde_json::json!({}))?, Delivery::NextStep, None).await?;
    handle.result(None).await?;

    let (mut waits, mut last, mut came) = (Vec::new(), std::collections::BTreeMap::new(), 0);
    let mut span = (Duration::MAX, Duration::ZERO);
    for reader in reading {
        let heard = reader.await?.ok_or("a reader's stream failed")?;
        came += heard.len();
        for (sent, at) in heard {
            waits.push(at.saturating_sub(sent));
            span = (span.0.min(sent), span.1.max(at));
            let latest: &mut Duration = last.entry(sent).or_default();
            *latest = (*latest).max(at.saturating_sub(sent));
        }
    }
    let slowest: Vec<Duration> = last.into_values().collect();
    emit(serde_json::json!({
        "token_p50_ms": percentile(&waits, 0.5) * 1e3,
        "token_p99_ms": percentile(&waits, 0.99) * 1e3,
        "last_p50_ms": percentile(&slowest, 0.5) * 1e3,
        "events_per_s": came as f64 / span.1.saturating_sub(span.0).as_secs_f64(),
        "missing": readers * tokens as usize - came,
        "wrong": usize::from(came != readers * tokens as usize),
    }));
    drop(worker);
    runtime.close().await?;
    Ok(())
}
