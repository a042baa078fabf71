//! Results that are large together.

mod house;

use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::StartOptions;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{ExecutionId, RequestId, WorkerId};
use flovyn_core::model::TaskOptions;
use flovyn_core::wire::v2::worker_client::WorkerClient;
use flovyn_core::wire::{attach, raw, v2};
use futures::future::try_join_all;
use futures::stream;
use house::{House, TOKEN, agent, job};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;
use tonic::Request;
use tonic::transport::Channel;

/// Steps that end at the same moment share a commit, however large they are together.
#[tokio::test(flavor = "multi_thread")]
async fn many_large_results_go_in_one_commit() {
    const STEPS: usize = 180;
    const SIZE: usize = 900_000;
    let house = House::open().await;
    let gatherer = agent("gatherer", |ctx, _| {
        Box::pin(async move {
            let steps = (0..STEPS).map(|step| ctx.schedule::<Value>("large", &step)).collect::<Result<Vec<_>, _>>()?;
            let all = try_join_all(steps).await?;
            Ok(json!(all.iter().map(|one| one["text"].as_str().map_or(0, str::len)).sum::<usize>()))
        })
    });
    let all = Arc::new(Barrier::new(STEPS));
    let large = job("large", TaskOptions::default(), move |_, step| {
        let all = all.clone();
        Box::pin(async move {
            // Two of them never wait for each other in vain: all have begun before one ends.
            tokio::time::timeout(Duration::from_secs(20), all.wait())
                .await
                .map_err(|_| Error::new(Code::TaskFailed, "not all began"))?;
            Ok(json!({ "step": step, "text": "x".repeat(SIZE) }))
        })
    });
    let host = NativeHost::default().agent(gatherer).unwrap().task(large).unwrap();
    let (runtime, _worker) = house.worker(host).await;
    let run = runtime.client().start("gatherer", Payload::null(), StartOptions::default()).await.unwrap();
    let output = run.result(Some(Duration::from_secs(120))).await.unwrap();
    assert_eq!(output.parse::<usize>().unwrap(), STEPS * SIZE);
}

/// A commit whose parts never end is refused before it fills the server.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_commit_is_refused() {
    let house = House::open().await;
    let channel = Channel::from_shared(house.serving.url()).unwrap().connect().await.unwrap();
    let mut client = WorkerClient::new(channel);
    let request = v2::CommitRequest {
        execution: raw(ExecutionId::fresh().0),
        lease: Some(v2::Lease { worker: raw(WorkerId::fresh().0), epoch: 1 }),
        request_id: raw(RequestId::fresh().0),
        batch: Some(v2::Batch {
            ops: vec![v2::NewOp { seen: vec![7; 1 << 20], ..Default::default() }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let part = attach::commit_parts(request).remove(0);
    let mut asked = Request::new(stream::repeat(part));
    asked.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    let refused = tokio::time::timeout(Duration::from_secs(60), client.commit(asked)).await.expect("it is refused");
    let told = refused.unwrap_err();
    assert!(told.message().contains("commit more often"), "{told:?}");
}
