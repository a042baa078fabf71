//! What the agent may do without an op: read its conversation, time and random numbers, and stream previews.

use super::Session;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::EntryId;
use crate::journal::OpRef;
use crate::model::{Chunk, ChunkKind, Entry};
use crate::payload::Digest;
use std::sync::Arc;

/// Makes a number from 0 to 1 of random bytes. It uses their first 53 bits: so many a float holds exactly.
pub(crate) fn number_of(bytes: [u8; 16]) -> f64 {
    let [a, b, c, d, e, f, g, ..] = bytes;
    (u64::from_be_bytes([0, a, b, c, d, e, f, g]) >> 3) as f64 / (1u64 << 53) as f64
}

impl Session {
    /// The store's time of the last outcome handed over: the same on replay, and monotonic.
    pub fn time(&self) -> Timestamp {
        self.inner.lock().machine.time()
    }

    /// 16 random bytes, seeded from the run and its place in the journal: the same on replay.
    pub fn random(&self) -> [u8; 16] {
        let (segment, sequence) = {
            let inner = self.inner.lock();
            (inner.machine.segment(), inner.machine.last_called())
        };
        let mut draws = self.draws.lock();
        let place = sequence.wrapping_add(segment.rotate_left(16));
        *draws = if draws.0 == place { (place, draws.1 + 1) } else { (place, 0) };
        let parts =
            [&self.execution.0.as_bytes()[..], &segment.to_le_bytes(), &sequence.to_le_bytes(), &draws.1.to_le_bytes()];
        Digest::of_parts(&parts).0
    }

    /// A number from 0 to 1, below 1: the same on replay and in every language.
    pub fn random_number(&self) -> f64 {
        number_of(self.random())
    }

    /// Whether the run was asked to stop, as far as this process knows. Not recorded.
    pub fn is_cancel_requested(&self) -> bool {
        self.inner.lock().machine.is_cancel_requested()
    }

    /// Gives a thread of the conversation a leaf of its own.
    pub fn open_thread(&self, thread: &str) {
        self.inner.lock().machine.open_thread(thread);
    }

    /// Where a thread of the conversation stands.
    pub fn leaf(&self, thread: &str) -> Option<EntryId> {
        self.inner.lock().machine.leaf(thread)
    }

    /// The entries from the root to a thread's leaf at this point of the journal, durable or not yet; contents in memory.
    pub async fn branch(&self, thread: &str) -> Result<Vec<Entry>> {
        self.branch_to(self.leaf(thread)).await
    }

    /// The entries from the root to one of this run's, durable or not yet; contents in memory.
    pub async fn branch_to(&self, mut leaf: Option<EntryId>) -> Result<Vec<Entry>> {
        let mut fresh = Vec::new();
        {
            let inner = self.inner.lock();
            while let Some(entry) = leaf.and_then(|id| inner.recent.get(&id)) {
                fresh.push(entry.clone());
                leaf = entry.parent;
            }
        }
        let mut entries = match leaf {
            Some(leaf) => self.until_available(|| self.conversations.branch(self.execution, leaf)).await?,
            None => Vec::new(),
        };
        let now = self.storage.clock().now();
        for new in fresh.into_iter().rev() {
            let depth = entries.last().map_or(0, |last: &Entry| last.depth + 1);
            entries.push(Entry {
                new,
                execution: self.execution,
                slot: crate::id::Slot::default(),
                depth,
                created_at: now,
            });
        }
        for entry in &mut entries {
            entry.new.content = self.load(&entry.new.content).await?;
        }
        Ok(entries)
    }

    /// Streams a preview. `task` names the inline attempt that makes it; without one it belongs to the last op called.
    /// Does nothing once that attempt has ended or was told to stop.
    pub fn stream(&self, kind: ChunkKind, data: Arc<str>, task: Option<(OpRef, u32)>) {
        if self.is_closed() {
            return;
        }
        let mut of_agent = self.previews.lock();
        let (segment, sequence, attempt, seq, after) = {
            let mut inner = self.inner.lock();
            let (op, attempt, seq) = match task {
                Some((op, attempt)) => {
                    let Some(running) = inner.running_attempt(op, attempt) else { return };
                    if kind == ChunkKind::Token {
                        running.say(&data);
                    }
                    (Some(op), running.of(), running.next_preview())
                }
                None => {
                    *of_agent += 1;
                    (None, Chunk::OF_AN_AGENT, *of_agent)
                }
            };
            let machine = &inner.machine;
            let sequence = op.and_then(|op| machine.op_id(op)).map(|id| id.slot.sequence);
            (machine.segment(), sequence.unwrap_or_else(|| machine.last_called()), attempt, seq, machine.known())
        };
        let epoch = self.lease().epoch;
        self.chunks.publish(
            after,
            self.org,
            Chunk { execution: self.execution, segment, sequence, epoch, attempt, seq, kind, data },
        );
    }
}
