//! A copy that waits in memory goes on by itself while its run is claimed for it: the run is never held by nobody (rule 19).

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::runtime::Runtime;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::WorkerOptions;
use std::sync::Arc;
use std::time::Duration;

const RUNS: u64 = 40;
const ROUNDS: u64 = 25;
/// Shorter than a lease, which gives a run that nobody holds to the next worker.
const PATIENCE: Duration = Duration::from_secs(20);

struct Ping;

#[async_trait]
impl TaskDefinition for Ping {
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        "ping"
    }
    async fn execute(&self, _: &TaskContext, n: u64) -> Result<u64> {
        Ok(n)
    }
}

/// One branch sleeps in the store, the other in this process; both end at about the same time.
struct Racer;

#[async_trait]
impl AgentDefinition for Racer {
    type State = ();
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        "racer"
    }
    async fn execute(&self, ctx: &dyn AgentContext, number: u64) -> Result<u64> {
        for round in 0..ROUNDS {
            let inside = async { ctx.sleep(Duration::from_millis(5))?.await };
            let outside = async {
                tokio::time::sleep(Duration::from_micros(3_000 + (number * 7 + round * 13) % 20 * 500)).await;
                ctx.schedule_task(&Ping, &round)?.await
            };
            let (inside, outside) = futures::join!(inside, outside);
            inside?;
            outside?;
        }
        Ok(number)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_goes_on_as_it_is_claimed_keeps_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(&format!("sqlite:{}", folder.path().join("runs.db").display())).await.unwrap();
    for max_parked in [10_000, 3] {
        let host = NativeHost::default().agent(Racer).unwrap().task(Ping).unwrap();
        let options = WorkerOptions { max_parked, ..WorkerOptions::default() };
        let worker = runtime.worker(Arc::new(host), options).await.unwrap();
        let client = runtime.client();
        let mut runs = Vec::new();
        for number in 0..RUNS {
            let input = Payload::of(&number).unwrap();
            runs.push(client.start("racer", input, StartOptions::default()).await.unwrap());
        }
        for (number, run) in runs.iter().enumerate() {
            let ended = run.result(Some(PATIENCE)).await.unwrap();
            assert_eq!(ended.parse::<usize>().unwrap(), number);
        }
        worker.close(Duration::ZERO).await.unwrap();
    }
}
