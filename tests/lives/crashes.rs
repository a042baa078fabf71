//! Lives of the generator's agents in Rust that end at commits, within one process: by the world of the engine's tests.

use super::steering::send;
use super::{Decide, Fails, Generated, LIVES, Work, count, explain, list, locked};
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::host::test_world::{CrashableStore, TestWorld, kill};
use flovyn_core::model::Status;
use flovyn_core::runtime::Runtime;
use flovyn_core::worker::WorkerOptions;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const AT_A_TIME: usize = 6;

/// Lets each program die where it says, on a world of its own, and prints what came of it.
pub(crate) async fn die_all(life: &'static Value) -> Result<()> {
    let limit = Duration::from_secs(count(&life["timeout"]));
    let parked = life["max_parked"].as_u64().and_then(|most| usize::try_from(most).ok());
    let dying = |program: &'static Value| async move {
        let name = program["name"].as_str().unwrap_or_default();
        let late = || Err(Error::new(Code::Timeout, "it has not ended"));
        let told = match tokio::time::timeout(limit, die(program, name, parked)).await.unwrap_or_else(|_| late()) {
            Ok(result) => json!({"name": name, "result": result}),
            Err(error) => {
                explain(name);
                json!({"name": name, "error": error.to_string()})
            }
        };
        println!("{told}");
    };
    stream::iter(list(&life["programs"])).for_each_concurrent(AT_A_TIME, dying).await;
    Ok(())
}

/// Lets a program die at some of its commits; gives what came of it.
async fn die(program: &Value, name: &str, parked: Option<usize>) -> Result<Value> {
    let world = blocking(TestWorld::new).await?;
    let world = Arc::new(world);
    let points = list(&program["crashes"]).iter().map(Some).chain([None]);
    for (number, point) in points.enumerate() {
        locked(&LIVES).insert(name.to_owned(), number as u64 + 1);
        let begun = world.clone();
        let (runtime, store): (Runtime, Arc<CrashableStore>) = blocking(move || begun.start_process()).await?;
        if let Some([at, how]) = point.map(list) {
            store.crash_at(count(at), how.as_str().unwrap_or_default())?;
        }
        let handle = runtime.client().start("generated", Payload::of(&name)?, StartOptions::with_id(name)).await?;
        send(&handle, &program["signals"], false).await?;
        let host = NativeHost::default().agent(Generated)?.task(Work)?.task(Fails)?.task(Decide)?;
        let options = WorkerOptions::default();
        let options = WorkerOptions { max_parked: parked.unwrap_or(options.max_parked), ..options };
        let worker = runtime.worker(Arc::new(host), options).await?;
        if ended(&world, &store, &handle).await? {
            let result = handle.result(Some(Duration::from_secs(10))).await?.parse();
            worker.close(Duration::ZERO).await?;
            return result;
        }
        kill(&store).await?;
    }
    Err(Error::new(Code::Timeout, "its last life ended by itself"))
}

/// The world begins its lives on threads of its own, which it waits for.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let gone = |error| Error::new(Code::Timeout, format!("the world is gone: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(gone)?
}

/// Waits for the end of a run, or of its life: true for the run. Time passes while it waits.
async fn ended(world: &TestWorld, store: &CrashableStore, handle: &Handle) -> Result<bool> {
    loop {
        let status = tokio::select! {
            biased;
            () = store.crashed() => return Ok(false),
            status = handle.status() => status?,
        };
        if status.is_terminal() {
            return Ok(true);
        }
        if status == Status::Waiting
            && let Some(due) = world.passed().await?
        {
            world.advance(due.since(world.now()) + Duration::from_micros(1));
        }
        tokio::select! {
            () = store.crashed() => return Ok(false),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
}
