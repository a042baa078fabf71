//! The conformance suite over gRPC, in front of SQLite and PostgreSQL.

use async_trait::async_trait;
use flovyn_core::clock::ManualClock;
use flovyn_core::storage::Storage;
use flovyn_core::storage::conformance::{Factory, Subject};
use flovyn_core::storage::postgres::{PostgresOptions, PostgresStorage};
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::streaming::Chunks;
use flovyn_core::testing::postgres::Cluster;
use flovyn_server::{Access, Identity, ServerConfig, serve};
use std::sync::Arc;

const TOKEN: &str = "conformance";

/// A client of a server over a store.
async fn fronted(storage: Arc<dyn Storage>, kept: impl Send + Sync + 'static) -> Subject {
    let access = Access::of([(TOKEN, Identity::operator())]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve(storage.clone(), Chunks::default(), config).await.unwrap();
    let options = RemoteOptions { token: Some(TOKEN.into()) };
    let remote = RemoteStorage::connect(&serving.url(), options).await.unwrap();
    Subject { storage: Arc::new(remote), keeper: Some(storage), corrupt: None, keep: Some(Box::new((serving, kept))) }
}

mod sqlite {
    use super::*;

    struct Sqlite;

    #[async_trait]
    impl Factory for Sqlite {
        async fn open(&self, clock: ManualClock) -> Subject {
            let folder = tempfile::tempdir().unwrap();
            let options = SqliteOptions { clock: Arc::new(clock), ..SqliteOptions::default() };
            let storage = SqliteStorage::open(folder.path().join("runs.db"), options).unwrap();
            fronted(Arc::new(storage), folder).await
        }
    }

    flovyn_core::conformance_tests!(Sqlite);
}

mod postgres {
    use super::*;

    /// One database server for all cases, a database for each.
    struct Postgres;

    #[async_trait]
    impl Factory for Postgres {
        async fn open(&self, clock: ManualClock) -> Subject {
            let url = Cluster::shared().migrated().unwrap();
            let options = PostgresOptions { clock: Some(Arc::new(clock)), ..PostgresOptions::default() };
            let storage = tokio::task::spawn_blocking(move || PostgresStorage::connect(&url, options)).await.unwrap();
            fronted(Arc::new(storage.unwrap()), ()).await
        }
    }

    flovyn_core::conformance_tests!(Postgres);
}
