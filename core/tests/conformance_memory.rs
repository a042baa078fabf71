//! The conformance suite over the memory backend.

use async_trait::async_trait;
use flovyn_core::clock::ManualClock;
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
        Subject { storage, corrupt: Some(Box::new(corrupt)), keep: None }
    }
}

flovyn_core::conformance_tests!(Memory);
