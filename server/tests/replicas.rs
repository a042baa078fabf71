//! Several servers over one PostgreSQL: what one was told, all know.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Outcome, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::model::{Delivery, NewKey, TokenHash, fresh_token};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use flovyn_server::{Config, Extensions, Replica};
use std::sync::Arc;
use std::time::Duration;

struct Adds;

#[async_trait]
impl AgentDefinition for Adds {
    type State = ();
    type Input = u64;
    type Output = u64;

    fn kind(&self) -> &str {
        "adds"
    }

    async fn execute(&self, ctx: &dyn AgentContext, number: u64) -> Result<u64> {
        let mut sum = number;
        for step in 0..5 {
            sum += ctx.run("add", async move { Ok(step) })?.await?;
            ctx.append_entry("assistant", &sum)?;
        }
        let more: u64 = ctx.wait_for_signal("more")?.await?;
        Ok(sum + more)
    }
}

async fn replica(db: &str) -> Result<Replica> {
    let anywhere = ([127, 0, 0, 1], 0).into();
    let config = Config { db: Some(db.to_owned()), grpc: anywhere, http: anywhere, ..Config::default() };
    Replica::start(&config, Extensions::default()).await
}

async fn through(replica: &Replica, token: &str) -> Result<Runtime> {
    let options = RemoteOptions { token: Some(token.to_owned()) };
    Ok(Runtime::over(Arc::new(RemoteStorage::connect(&replica.serving().url(), options).await?)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_started_here_worked_there_and_followed_anywhere() -> Result<()> {
    let db = Cluster::shared().fresh().expect("a database");
    let (one, two) = (replica(&db).await?, replica(&db).await?);

    let keeper = Runtime::open(&db).await?;
    let directory = keeper.storage().server_side().unwrap();
    let org = directory.create_organization("otters", "a test").await?;
    let token = fresh_token();
    let (name, scopes, actor) = ("both".to_owned(), "member worker".parse()?, "a test".to_owned());
    let key =
        NewKey { org: org.id, name, scopes, expires_in: None, not_after: None, hash: TokenHash::of(&token), actor };
    directory.create_key(key).await?;

    let (client, server_of_work) = (through(&one, &token).await?, through(&two, &token).await?);
    let host = NativeHost::default().agent(Adds)?;
    let worker = server_of_work.worker(Arc::new(host), WorkerOptions::default()).await?;
    let mut handles = Vec::new();
    for number in 0..10u64 {
        let options = StartOptions::with_id(format!("sum-{number}"));
        handles.push(client.client().start("adds", Payload::of(&number)?, options).await?);
    }
    for handle in &handles {
        handle.signal("more", Payload::of(&100)?, Delivery::default(), Some("once".into())).await?;
    }
    for (number, handle) in handles.iter().enumerate() {
        // Read through the server that has no worker.
        let Outcome::Completed(output) = handle.outcome(Some(Duration::from_secs(20))).await? else {
            panic!("a run failed");
        };
        assert_eq!(output.parse::<usize>()?, number + 10 + 100);
        assert_eq!(handle.messages().await?.len(), 5);
    }

    // A server that ends takes nothing with it.
    worker.kill();
    one.stop().await?;
    let handle = server_of_work.client().handle("sum-3").await?;
    assert_eq!(handle.messages().await?.len(), 5);
    for runtime in [client, server_of_work, keeper] {
        let _ = runtime.close().await;
    }
    two.stop().await
}
