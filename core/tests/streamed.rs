//! What a streamed payload costs in memory: a process of its own, so that nothing else is counted.
#![cfg(target_os = "linux")]

use flovyn_core::Payload;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::NewExecution;
use flovyn_core::payload::{Body, ByteSource};
use flovyn_core::storage::AgentStorage;
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use std::sync::Arc;
use std::time::Duration;

const ORG: OrgId = OrgId::DEFAULT;

/// Bytes that are made as they are read.
struct Generated(u64);

impl ByteSource for Generated {
    fn size(&self) -> u64 {
        self.0
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        for (n, chunk) in into.chunks_mut(4096).enumerate() {
            let mut state = (offset + n as u64 * 4096).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for byte in chunk {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = state as u8;
            }
        }
        Ok(())
    }
}

/// The most memory this process has held, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_payload_is_never_held_whole() {
    let folder = tempfile::tempdir().unwrap();
    let storage = SqliteStorage::open(folder.path().join("runs.db"), SqliteOptions::default()).unwrap();
    let source = Generated(96 << 20);
    let input = Payload { encoding: flovyn_core::payload::Encoding::Raw, body: Body::Source(Arc::new(source)) };
    let mut new = NewExecution::new(ExecutionId::fresh(), "agent", Payload::null()).unwrap();
    new.input = input;
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let before = peak();
    let watching = done.clone();
    let watch = std::thread::spawn(move || {
        let mut most = 0;
        while !watching.load(std::sync::atomic::Ordering::Relaxed) {
            most = most.max(peak());
            std::thread::sleep(Duration::from_millis(1));
        }
        most
    });
    let made = storage.create_execution(new).await.unwrap().execution;
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    let most = watch.join().unwrap();
    assert!(most.saturating_sub(before) < 56 << 20, "{} MiB more", (most - before) >> 20);
    let read = storage.read_payload(ORG, &made.new.input).await.unwrap();
    let mut expected = vec![0; 1 << 20];
    Generated(96 << 20).read_at(5 << 20, &mut expected).unwrap();
    assert_eq!(read.len(), 96 << 20);
    assert!(read[5 << 20..6 << 20] == expected[..]);
}
