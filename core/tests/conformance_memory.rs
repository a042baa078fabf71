//! The conformance suite over the memory backend.

use async_trait::async_trait;
use flovyn_core::clock::ManualClock;
use flovyn_core::storage::conformance::differential::{self, Coverage};
use flovyn_core::storage::conformance::{Factory, Subject};
use flovyn_core::storage::memory::MemoryStorage;
use std::sync::Arc;

struct Memory;

#[async_trait]
impl Factory for Memory {
    async fn open(&self, clock: ManualClock) -> Subject {
        let storage = Arc::new(MemoryStorage::new(Arc::new(clock)));
        let damaged = storage.clone();
        let corrupt = move |org, execution, sequence| damaged.corrupt_checkpoint(org, execution, sequence);
        Subject { storage, keeper: None, corrupt: Some(Box::new(corrupt)), keep: None }
    }
}

flovyn_core::conformance_tests!(Memory);

/// Two stores of the same kind agree on random histories, and the histories reach what they are meant to.
#[tokio::test]
async fn random_histories_agree() {
    let mut coverage = Coverage::default();
    for seed in 0..30 {
        differential::play(&Memory, &Memory, seed, 300, &mut coverage).await;
    }
    coverage.check();
}
