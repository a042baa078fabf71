//! What is PostgreSQL's own: several processes on one database, groups, schema versions, index plans, a server that goes away.

use flovyn_core::error::Code;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::NewExecution;
use flovyn_core::payload::Payload;
use flovyn_core::storage::postgres::{PostgresOptions, PostgresStorage};
use flovyn_core::storage::{AgentStorage, Catalog, ClaimRequest, Storage, WorkSource};
use flovyn_core::testing::postgres::Cluster;
use std::time::Duration;

fn connect(url: &str) -> flovyn_core::Result<PostgresStorage> {
    PostgresStorage::connect(url, PostgresOptions::default())
}

fn start() -> NewExecution {
    NewExecution::new(ExecutionId::fresh(), "agent", Payload::of(&"input").unwrap()).unwrap()
}

fn claim(limit: usize) -> ClaimRequest {
    ClaimRequest {
        org: OrgId::DEFAULT,
        worker: WorkerId::fresh(),
        queue: "default".into(),
        kinds: ["agent".to_owned()].into(),
        limit,
        ttl: Duration::from_secs(30),
        only: None,
    }
}

#[test]
fn a_newer_schema_and_foreign_tables_are_refused() {
    let cluster = Cluster::shared();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap();
    connect(&url).unwrap().close();
    connect(&url).unwrap().close();
    cluster.sql("postgres", &format!("INSERT INTO {schema}.flovyn_schema VALUES (99)")).unwrap();
    assert_eq!(connect(&url).unwrap_err().code(), Code::SchemaTooNew);

    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap();
    cluster.sql("postgres", &format!("CREATE TABLE {schema}.agent_execution (theirs INT)")).unwrap();
    assert!(connect(&url).is_err());
}

#[test]
fn wrong_urls_are_told_apart() {
    for (url, code) in [
        ("postgres://", Code::InvalidArgument),
        ("postgres://host:x/db", Code::InvalidArgument),
        ("postgres://host/db?sslmode=require", Code::InvalidArgument),
        ("postgres://%2Fnowhere/db", Code::StorageUnavailable),
    ] {
        assert_eq!(connect(url).unwrap_err().code(), code, "{url}");
    }
    let missing = connect(&Cluster::shared().url("nobody_made_this")).unwrap_err();
    assert_eq!(missing.code(), Code::StorageUnavailable);
    assert!(missing.message().contains("nobody_made_this"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_openings_migrate_a_database_once() {
    let url = Cluster::shared().fresh().unwrap();
    let opening = (0..4).map(|_| {
        let url = url.clone();
        tokio::task::spawn_blocking(move || connect(&url))
    });
    for opened in futures::future::join_all(opening).await {
        opened.unwrap().unwrap();
    }
}

/// What one process writes rings the other's bell, and each run is claimed once.
#[tokio::test(flavor = "multi_thread")]
async fn processes_share_the_work() {
    let url = Cluster::shared().fresh().unwrap();
    let (one, other) = (connect(&url).unwrap(), connect(&url).unwrap());
    let mut bell = other.hints().agents();
    // The first look of the other must not be the news.
    tokio::time::timeout(Duration::from_secs(20), async {
        let started = start();
        one.create_execution(started.clone()).await.unwrap();
        bell.changed().await;
    })
    .await
    .expect("the bell rings");
    for _ in 0..40 {
        one.create_execution(start()).await.unwrap();
    }
    let mut claimed = Vec::new();
    loop {
        let (a, b) = tokio::join!(one.claim_agents(claim(3)), other.claim_agents(claim(5)));
        let (a, b) = (a.unwrap(), b.unwrap());
        if a.is_empty() && b.is_empty() {
            break;
        }
        claimed.extend(a.into_iter().chain(b).map(|claim| claim.execution.new.id));
    }
    let count = claimed.len();
    claimed.sort();
    claimed.dedup();
    assert_eq!((count, claimed.len()), (41, 41));
}

/// Commands that share a transaction: those that are refused leave the others alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_command_leaves_its_neighbours_alone() {
    let url = Cluster::shared().fresh().unwrap();
    let options = PostgresOptions { committers: 1, ..PostgresOptions::default() };
    let storage = PostgresStorage::connect(&url, options).unwrap();
    let taken = start();
    storage.create_execution(taken.clone()).await.unwrap();
    let all = (0..60).map(|n| {
        let storage = storage.clone();
        // Every third is the taken id with another input, every third names a text that no column can hold.
        let mut new = start();
        match n % 3 {
            0 => {
                new = NewExecution::new(taken.id, "agent", Payload::of(&n).unwrap()).unwrap();
            }
            1 => new.key = Some("a\0b".into()),
            _ => {}
        }
        let id = new.id;
        tokio::spawn(async move { (n, id, storage.create_execution(new).await.map_err(|error| error.code())) })
    });
    for done in futures::future::join_all(all).await {
        let (n, id, result) = done.unwrap();
        match n % 3 {
            0 => assert_eq!(result.unwrap_err(), Code::ExecutionExists),
            1 => assert_eq!(result.unwrap_err(), Code::InvalidArgument),
            _ => {
                assert!(!result.unwrap().existing);
                assert_eq!(storage.execution(OrgId::DEFAULT, id).await.unwrap().new.id, id);
            }
        }
    }
}

/// A server that goes away and comes back costs its callers an error that may be retried, and no acknowledged run.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_loses_nothing() {
    let cluster = Cluster::start("").unwrap();
    let storage = connect(&cluster.fresh().unwrap()).unwrap();
    let mut kept = Vec::new();
    for _ in 0..20 {
        kept.push(storage.create_execution(start()).await.unwrap().execution.new.id);
    }
    cluster.crash_and_restart().unwrap();
    let new = start();
    let mut tries = 0;
    let again = loop {
        match storage.create_execution(new.clone()).await {
            Ok(created) => break created,
            Err(error) if error.is_retryable() && tries < 50 => tries += 1,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(again.execution.new.id, new.id);
    for id in kept {
        assert_eq!(storage.execution(OrgId::DEFAULT, id).await.unwrap().new.id, id);
    }
}
