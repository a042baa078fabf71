//! What becomes of the work of a worker that met no server when it had something to say.

use crate::guards::driven;
use crate::house::{BASE, TOKEN};
use crate::worker::{Stop, Wire, Worker};
use crate::{house_over, on_each};
use flovyn_core::runtime::Runtime;
use flovyn_proto::v1;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_its_worker_has_forgotten_goes_to_another() {
    let (house, clock) = driven().await;
    let url = house.serving.url();
    let mut worker = Worker::start(&url, TOKEN, &["chat"], &["double"]).await;
    let id = house.post(BASE, json!({ "kind": "chat" })).await["id"].as_str().unwrap().to_owned();
    let mut ctx = worker.claim().await;
    ctx.schedule("double", json!({ "n": 1 }));
    ctx.flush().await.unwrap();
    worker.task().await;
    // It reported the end to a server that was not there, and polls and beats on.
    drop(ctx);
    for _ in 0..6 {
        let standing = house.get(&format!("{BASE}/{id}")).await["status"].clone();
        assert_eq!(standing, "RUNNING", "an agent may be silent for a while");
        clock.advance(Duration::from_secs(60));
        house.runtime.storage().pass().await.unwrap();
        let beat = v1::WorkerHeartbeatRequest { worker_id: worker.id.clone(), ..Default::default() };
        worker.wire.lifecycle.send_heartbeat(beat).await.unwrap();
    }
    clock.advance(Duration::from_secs(60));
    house.runtime.storage().pass().await.unwrap();
    assert_eq!(house.get(&format!("{BASE}/{id}")).await["status"], "PENDING");
    let tasks = house.get(&format!("{BASE}/{id}/tasks")).await;
    assert_eq!(tasks["tasks"][0]["status"], "RUNNING", "a task may say nothing until its end");
    assert_eq!(worker.claim().await.id(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_met_no_server_fails_neither_run_nor_task() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let task = ctx.schedule("double", json!({ "n": 1 }));
        ctx.flush().await.unwrap();
        for error in [
            "gRPC error: status: Unavailable, message: \"error trying to connect: tcp connect error\"",
            "gRPC error: status: Unknown, message: \"transport error\"",
            "gRPC error: status: Cancelled, message: \"h2 protocol error\"",
        ] {
            ctx.end(Err(Stop::Failed(error.into()))).await.unwrap();
            assert_eq!(rig.status(&id).await, "PENDING");
            ctx = rig.worker.claim().await;
            let claimed = rig.worker.task().await;
            assert_eq!(claimed.task_execution_id, task);
            rig.worker.fail(&claimed, error).await.unwrap();
        }
        assert_eq!(rig.tasks(&id).await[0]["status"], "PENDING");
        // What the agent itself says is a failure.
        ctx.end(Err(Stop::Failed("status: Unavailable is what the bank said".into()))).await.unwrap();
        assert_eq!(rig.status(&id).await, "FAILED");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_tasks_alone_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("runs.db").display());
    let house = house_over(Runtime::open(&file).await.unwrap(), folder).await;
    let url = house.serving.url();
    let mut agents = Worker::start(&url, TOKEN, &["chat"], &[]).await;
    let mut tasks = Worker::start_as(&url, TOKEN, Some("gpu"), &[], &["double"]).await;
    assert!(tasks.poll_task(0).await.is_none());
    house.post(BASE, json!({ "kind": "chat" })).await;
    let mut ctx = agents.claim().await;
    let (other, known) = (ctx.schedule("other", json!({})), ctx.schedule("double", json!({ "n": 1 })));
    ctx.flush().await.unwrap();
    let crate::house::House { runtime, serving, folder } = house;
    serving.stop().await.unwrap();
    runtime.close().await.unwrap();
    let house = house_over(Runtime::open(&file).await.unwrap(), folder).await;
    tasks.wire = Wire::connect(&house.serving.url(), TOKEN).await;
    assert_eq!(tasks.task().await.task_execution_id, known);
    assert!(tasks.poll_task(0).await.is_none(), "it cannot run {other}");
}
