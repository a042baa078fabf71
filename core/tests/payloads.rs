//! What values cost: in the file, and in memory.

use async_trait::async_trait;
use flovyn_core::clock::ManualClock;
use flovyn_core::model::{AttemptResult, BatchEnd, TaskOptions};
use flovyn_core::storage::conformance::rig::{Rig, ended, json};
use flovyn_core::storage::conformance::{Factory, Subject};
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use std::sync::Arc;

struct Sqlite;

#[async_trait]
impl Factory for Sqlite {
    async fn open(&self, clock: ManualClock) -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions { clock: Arc::new(clock), ..SqliteOptions::default() };
        let storage = Arc::new(SqliteStorage::open(folder.path().join("runs.db"), options).unwrap());
        Subject { storage, corrupt: None, keep: Some(Box::new(folder)) }
    }
}

/// The bytes that entries hold themselves.
fn entry_bytes(rig: &Rig) -> i64 {
    let file = rig.storage.describe();
    let tool = rusqlite::Connection::open(file.strip_prefix("sqlite:").unwrap()).unwrap();
    tool.query_row("SELECT coalesce(sum(octet_length(content)), 0) FROM agent_entry", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn what_a_task_gave_is_stored_once() {
    let rig = Rig::new(&Sqlite).await;
    let mut holder = rig.running().await;
    // Answers that compress, answers that do not, across checkpoints.
    for n in 0..20u64 {
        let noise = format!("{:?}", blake3::hash(&n.to_le_bytes()));
        let answer =
            if n % 2 == 0 { noise.repeat(8) } else { noise.chars().chain("and so on ".repeat(300).chars()).collect() };
        let sequence = holder.next;
        let task = holder.inline(TaskOptions::default());
        let mut batch = holder.batch(vec![task], BatchEnd::Continue);
        batch.attempts.push(ended(sequence, 1, AttemptResult::Completed(json(&answer))));
        holder.commit_batch(batch).await;
        let entry = holder.entry(&answer);
        holder.checkpoint(vec![entry], json(&n)).await;
    }
    assert_eq!(entry_bytes(&rig), 0);
    // What no task gave is stored with the entry.
    let entry = holder.entry(&"what the user said ".repeat(50));
    holder.commit(vec![entry]).await;
    assert!(entry_bytes(&rig) > 10);
}
