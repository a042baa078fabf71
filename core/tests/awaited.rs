//! What it costs to wait for a run: the reads of a handle while the run commits again and again.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::guarded::{Call, Gate, Guarded};
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const COMMITS: u64 = 300;
const PATIENCE: Duration = Duration::from_secs(60);

/// Commits often once it is told to.
struct Busy;

#[async_trait]
impl AgentDefinition for Busy {
    type State = ();
    type Input = ();
    type Output = u64;

    fn kind(&self) -> &str {
        "busy"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<u64> {
        let _: Value = ctx.wait_for_signal("begin")?.await?;
        for number in 0..COMMITS {
            ctx.append_entry("assistant", &number)?;
            ctx.flush()?.await?;
        }
        Ok(COMMITS)
    }
}

/// Counts the reads that pass.
#[derive(Default)]
struct Reads(AtomicU64);

impl Gate for Reads {
    async fn pass<T: Send>(&self, call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.0.fetch_add(u64::from(call == Call::Read), Ordering::Relaxed);
        body.await
    }
}

/// Reads of one waiter, and how long it waited.
async fn reads(url: &str) -> (u64, Duration) {
    let runtime = Runtime::open(url).await.unwrap();
    let host = NativeHost::default().agent(Busy).unwrap();
    let _worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    let counted = Arc::new(Guarded::over(runtime.storage().clone(), Reads::default()));
    let client = Client::new(counted.clone(), runtime.chunks().clone(), runtime.client().org());
    let run = client.start("busy", Payload::null(), StartOptions::default()).await.unwrap();
    counted.0.store(0, Ordering::Relaxed);
    let begun = Instant::now();
    let waiter = tokio::spawn({
        let run = run.clone();
        async move { run.result(Some(PATIENCE)).await.unwrap() }
    });
    run.signal("begin", Payload::of(&1).unwrap(), Default::default(), None).await.unwrap();
    assert_eq!(waiter.await.unwrap().parse::<u64>().unwrap(), COMMITS);
    let found = (counted.0.load(Ordering::Relaxed), begun.elapsed());
    runtime.close().await.unwrap();
    found
}

#[tokio::test]
async fn waiting_reads_at_the_start_and_at_the_end_in_memory() {
    let (reads, _) = reads("memory:").await;
    assert!((1..=2).contains(&reads), "{reads} reads");
}

#[tokio::test]
async fn waiting_reads_at_the_start_and_at_the_end_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let (reads, _) = reads(&format!("sqlite:{}", folder.path().join("runs.db").display())).await;
    assert!((1..=2).contains(&reads), "{reads} reads");
}

/// There the process takes some of its own writes for those of others, and looks, but not at each.
#[tokio::test]
async fn waiting_reads_now_and_then_on_postgresql() {
    let cluster = Cluster::start("").unwrap();
    let (reads, took) = reads(&cluster.fresh().unwrap()).await;
    let most = 2 + took.as_millis() as u64 / 100;
    assert!((1..=most).contains(&reads), "{reads} reads in {took:?}");
    assert!(reads < COMMITS / 2, "{reads} reads for {COMMITS} commits");
}
