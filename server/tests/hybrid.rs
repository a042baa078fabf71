//! Agents on a file of their own, tasks on the workers of a server.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::client::StartOptions;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{CancelMode, ExecutionFilter, PageRequest, RetryPolicy, Status, TaskOptions};
use flovyn_core::runtime::{AgentBuilder, AgentRunner, RemoteTaskExecutor, Runtime};
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use house::{House, TOKEN, agent, job};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What sends tasks of kind `resize` to the house.
async fn fleet(house: &House, options: TaskOptions) -> RemoteTaskExecutor {
    let token = RemoteOptions { token: Some(TOKEN.into()) };
    let remote = RemoteStorage::connect(&house.serving.url(), token).await.unwrap();
    RemoteTaskExecutor::over(Runtime::over(Arc::new(remote))).task("resize", options)
}

/// Agents whose runs are kept in a folder of their own.
async fn agents(folder: &Path, fleet: &RemoteTaskExecutor) -> AgentRunner {
    let url = format!("sqlite:{}", folder.join("mine.db").display());
    AgentBuilder::new().storage(url).task_executor(fleet.clone()).build().await.unwrap()
}

/// The runs the house has, newest first.
async fn runs_of(house: &House) -> Vec<flovyn_core::model::Execution> {
    let page = PageRequest { limit: 100, after: None };
    house.runtime.client().runs(ExecutionFilter::default(), page).await.unwrap().items
}

fn album() -> house::Agent {
    agent("album", |ctx, names| {
        Box::pin(async move {
            let mut done = Vec::new();
            for name in names.as_array().into_iter().flatten() {
                done.push(ctx.schedule::<Value>("resize", name)?.await?);
            }
            Ok(done.into())
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_run_here_and_their_tasks_there() {
    let house = House::open().await;
    let ran = Arc::new(AtomicU32::new(0));
    let count = ran.clone();
    let resize = job("resize", TaskOptions::default(), move |_, name| {
        let count = count.clone();
        Box::pin(async move {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(format!("small {}", name.as_str().unwrap_or("?")).into())
        })
    });
    let _worker = house.worker(NativeHost::default().task(resize).unwrap()).await;

    let folder = tempfile::tempdir().unwrap();
    let fleet = fleet(&house, TaskOptions::default()).await;
    let mine = agents(folder.path(), &fleet).await;
    let small = mine.execute_with(album(), &json!(["otter", "otter", "seal"]), StartOptions::with_id("album")).await;
    assert_eq!(small.unwrap(), json!(["small otter", "small otter", "small seal"]));
    assert_eq!(ran.load(Ordering::SeqCst), 3, "two calls with one input are two tasks");

    let there = runs_of(&house).await;
    assert_eq!(there.len(), 3);
    assert!(there.iter().all(|run| run.new.kind == "task:resize" && run.status == Status::Completed));
    mine.close().await.unwrap();
    fleet.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_comes_back_finds_its_task_again() {
    let house = House::open().await;
    let (ran, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
    let (count, open) = (ran.clone(), gate.clone());
    let resize = job("resize", TaskOptions::default(), move |_, name| {
        let (count, open) = (count.clone(), open.clone());
        Box::pin(async move {
            count.fetch_add(1, Ordering::SeqCst);
            open.acquire().await.unwrap().forget();
            Ok(name)
        })
    });
    let _worker = house.worker(NativeHost::default().task(resize).unwrap()).await;

    let folder = tempfile::tempdir().unwrap();
    let first = fleet(&house, TaskOptions::default()).await;
    let mine = agents(folder.path(), &first).await;
    let work = {
        let mine = mine.clone();
        tokio::spawn(async move { mine.execute_with(album(), &json!(["otter"]), StartOptions::with_id("album")).await })
    };
    while ran.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    work.abort();
    mine.close().await.unwrap();
    first.close().await.unwrap();
    assert!(!runs_of(&house).await[0].status.is_terminal(), "the task outlives the process that wants it");

    gate.add_permits(8);
    let second = fleet(&house, TaskOptions::default()).await;
    let mine = agents(folder.path(), &second).await;
    let small = mine.execute_with(album(), &json!(["otter"]), StartOptions::with_id("album")).await;
    assert_eq!(small.unwrap(), json!(["otter"]));
    assert_eq!(ran.load(Ordering::SeqCst), 1, "it ran once");
    assert_eq!(runs_of(&house).await.len(), 1);
    mine.close().await.unwrap();
    second.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_there_fails_here() {
    let house = House::open().await;
    let ran = Arc::new(AtomicU32::new(0));
    let count = ran.clone();
    let resize = job("resize", TaskOptions::default(), move |_, _| {
        let count = count.clone();
        Box::pin(async move {
            count.fetch_add(1, Ordering::SeqCst);
            Err(Error::new(Code::TaskFailed, "the picture is torn").with("error_type", "TornPicture"))
        })
    });
    let _worker = house.worker(NativeHost::default().task(resize).unwrap()).await;

    let folder = tempfile::tempdir().unwrap();
    let retry = RetryPolicy { retries: 2, initial: Duration::from_millis(1), ..RetryPolicy::default() };
    let fleet = fleet(&house, TaskOptions { retry, ..TaskOptions::default() }).await;
    let mine = agents(folder.path(), &fleet).await;
    let caught = agent("careful", |ctx, name| {
        Box::pin(async move {
            let error = ctx.schedule::<Value>("resize", &name)?.await.unwrap_err();
            Ok(json!([error.fact("reason"), error.error_type()]))
        })
    });
    let told = mine.execute(caught, json!("otter")).await.unwrap();
    assert_eq!(told, json!(["the picture is torn", "TornPicture"]));
    assert_eq!(ran.load(Ordering::SeqCst), 3, "retries are those of the task there");
    mine.close().await.unwrap();
    fleet.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_stops_its_task_there() -> Result<()> {
    let house = House::open().await;
    let ran = Arc::new(AtomicU32::new(0));
    let count = ran.clone();
    let resize = job("resize", TaskOptions::default(), move |_, _| {
        let count = count.clone();
        Box::pin(async move {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        })
    });
    let _worker = house.worker(NativeHost::default().task(resize)?).await;

    let folder = tempfile::tempdir().unwrap();
    let fleet = fleet(&house, TaskOptions::default()).await;
    let mine = agents(folder.path(), &fleet).await;
    let work = {
        let mine = mine.clone();
        tokio::spawn(async move { mine.execute_with(album(), &json!(["otter"]), StartOptions::with_id("album")).await })
    };
    while ran.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    mine.client().handle("album").await?.cancel(CancelMode::Graceful, Duration::from_secs(30)).await?;
    assert_eq!(work.await.unwrap().unwrap_err().code(), Code::AgentCancelled);
    let there = runs_of(&house).await[0].new.id.to_string();
    house.until(&there, "CANCELLED").await;
    mine.close().await?;
    fleet.close().await
}
