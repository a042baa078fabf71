//! A worker whose connection breaks is taken for dead within seconds, not when its lease ends.

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Result;
use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::model::Status;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::storage::{ClaimRequest, Heartbeat, Storage, WorkSource, WorkerInfo};
use flovyn_server::{Access, Identity, ServerConfig, serve};
use std::time::Duration;

const TOKEN: &str = "takeover";
const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_cuts_leases() -> Result<()> {
    let house = Runtime::open("memory:").await?;
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve(house.storage().clone(), house.chunks().clone(), config).await?;
    let handle = house.client().start("agent", Payload::null(), StartOptions::default()).await?;

    let remote = RemoteStorage::connect(&serving.url(), RemoteOptions { token: Some(TOKEN.into()) }).await?;
    let worker = WorkerId::fresh();
    let (queue, kinds) = ("default".to_owned(), ["agent".to_owned()].into());
    let (org, name) = (OrgId::DEFAULT, "mortal".to_owned());
    remote.register_worker(WorkerInfo { org, id: worker, name, queues: vec![queue.clone()], elsewhere: false }).await?;
    // Once the stream of hints is open, the worker's next sign of life hangs on it.
    remote.hints().leases().changed().await;
    let claim = ClaimRequest { org, worker, queue, kinds, limit: 1, ttl: LEASE, only: None };
    assert_eq!(remote.claim_agents(claim).await?.len(), 1);
    let beat = Heartbeat { org, worker, ttl: LEASE, executions: vec![], tasks: vec![], progress: vec![] };
    remote.heartbeat(beat).await?;
    assert_eq!(handle.status().await?, Status::Running);

    drop(remote);
    let taken = tokio::time::timeout(LEASE / 2, async {
        while handle.status().await? != Status::Pending {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    });
    taken.await.expect("the lease is cut long before it ends")
}
