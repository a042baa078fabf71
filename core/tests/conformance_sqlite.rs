//! The conformance suite over SQLite files in the temporary folder (in memory where the machine has a RAM disk).

use async_trait::async_trait;
use flovyn_core::clock::ManualClock;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::storage::conformance::differential::{self, Coverage};
use flovyn_core::storage::conformance::{Factory, Subject};
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use std::path::Path;
use std::sync::Arc;

struct Sqlite;

fn folder() -> tempfile::TempDir {
    let ram = Path::new("/dev/shm");
    if ram.is_dir() { tempfile::tempdir_in(ram).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Inverts the stored hash of a checkpoint.
fn corrupt(file: &Path, execution: ExecutionId, sequence: u32) -> bool {
    let connection = rusqlite::Connection::open(file).unwrap();
    let found = connection.query_row(
        "SELECT c.key, c.hash FROM agent_checkpoint c JOIN agent_execution x ON x.run = c.run \
         WHERE x.id = ?1 AND c.sequence = ?2",
        rusqlite::params![execution.0.as_bytes(), sequence],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)),
    );
    let Ok((key, mut hash)) = found else { return false };
    hash[0] ^= 1;
    connection.execute("UPDATE agent_checkpoint SET hash = ?2 WHERE key = ?1", rusqlite::params![key, hash]).unwrap()
        == 1
}

#[async_trait]
impl Factory for Sqlite {
    async fn open(&self, clock: ManualClock) -> Subject {
        let folder = folder();
        let file = folder.path().join("runs.db");
        let options = SqliteOptions { clock: Arc::new(clock), ..SqliteOptions::default() };
        let storage = Arc::new(SqliteStorage::open(&file, options).unwrap());
        let corrupt = move |_: OrgId, execution, sequence| corrupt(&file, execution, sequence);
        Subject { storage, keeper: None, corrupt: Some(Box::new(corrupt)), keep: Some(Box::new(folder)) }
    }
}

flovyn_core::conformance_tests!(Sqlite);

struct Reference;

#[async_trait]
impl Factory for Reference {
    async fn open(&self, clock: ManualClock) -> Subject {
        let storage = Arc::new(MemoryStorage::new(Arc::new(clock)));
        Subject { storage, keeper: None, corrupt: None, keep: None }
    }
}

/// Random histories have the same answers and leave the same rows as the reference. `SEED` starts elsewhere.
#[tokio::test]
async fn random_histories_agree_with_the_reference() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, scale) = (number("SEED").unwrap_or(0), number("SCALE").unwrap_or(1));
    let mut coverage = Coverage::default();
    for seed in first..first + 12 * scale {
        differential::play(&Reference, &Sqlite, seed, 300, &mut coverage).await;
    }
    coverage.check();
}
