//! The conformance suite over PostgreSQL: one server for all cases, a database for each.

use async_trait::async_trait;
use flovyn_core::clock::ManualClock;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::storage::conformance::differential::{self, Coverage};
use flovyn_core::storage::conformance::{Factory, Subject};
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_core::storage::postgres::{PostgresOptions, PostgresStorage};
use flovyn_core::testing::postgres::Cluster;
use std::sync::Arc;

struct Postgres;

/// Inverts the stored hash of a checkpoint.
fn corrupt(url: &str, execution: ExecutionId, sequence: u32) -> bool {
    let changed = Cluster::shared().sql(
        url.rsplit('/').next().unwrap(),
        &format!(
            "WITH changed AS (UPDATE agent_checkpoint c SET hash = set_byte(hash, 0, get_byte(hash, 0) # 1) \
             FROM agent_execution x WHERE x.org_id = c.org_id AND x.run = c.run AND x.id = '{execution}' \
             AND c.sequence = {sequence} RETURNING 1) SELECT count(*) FROM changed"
        ),
    );
    changed.unwrap() == "1"
}

#[async_trait]
impl Factory for Postgres {
    async fn open(&self, clock: ManualClock) -> Subject {
        let url = Cluster::shared().migrated().unwrap();
        let options = PostgresOptions { clock: Some(Arc::new(clock)), ..PostgresOptions::default() };
        let opened = url.clone();
        let storage = tokio::task::spawn_blocking(move || PostgresStorage::connect(&opened, options)).await.unwrap();
        let corrupt = move |_: OrgId, execution, sequence| corrupt(&url, execution, sequence);
        Subject { storage: Arc::new(storage.unwrap()), keeper: None, corrupt: Some(Box::new(corrupt)), keep: None }
    }
}

flovyn_core::conformance_tests!(Postgres);

struct Reference;

#[async_trait]
impl Factory for Reference {
    async fn open(&self, clock: ManualClock) -> Subject {
        let storage = Arc::new(MemoryStorage::new(Arc::new(clock)));
        Subject { storage, keeper: None, corrupt: None, keep: None }
    }
}

/// Random histories have the same answers and leave the same rows as the reference. `SEED` starts elsewhere, `SCALE` plays
/// more of them.
#[tokio::test]
async fn random_histories_agree_with_the_reference() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, scale) = (number("SEED").unwrap_or(0), number("SCALE").unwrap_or(1));
    let mut coverage = Coverage::default();
    for seed in first..first + 4 * scale {
        differential::play(&Reference, &Postgres, seed, 200, &mut coverage).await;
    }
    // A few histories do not meet every refusal; those that SQLite plays by default do.
    if scale > 2 {
        coverage.check();
    }
}
