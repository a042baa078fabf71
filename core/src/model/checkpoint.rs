//! Checkpoints, from which a run with state starts again.

use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId};
use crate::model::UsageTotals;
use crate::payload::Payload;
use std::collections::BTreeMap;

/// The checkpoint that ends a segment. It holds no messages, so its size does not grow with the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCheckpoint {
    /// The author's state.
    pub state: Payload,
    /// The last entry of each thread of the conversation; the main thread is `""`.
    pub leaves: BTreeMap<String, EntryId>,
    /// Small JSON object: reason, entry count, the author's own facts.
    pub metadata: String,
}

/// A stored checkpoint; its sequence is the number of the segment it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The run.
    pub execution: ExecutionId,
    /// The segment it starts, from 1.
    pub sequence: u32,
    /// What was saved.
    pub saved: NewCheckpoint,
    /// What model calls had used up to here.
    pub usage: UsageTotals,
    /// BLAKE3 over sequence, state, leaves and usage; checked on every load.
    pub hash: [u8; 32],
    /// When it became durable.
    pub created_at: Timestamp,
}

impl Checkpoint {
    /// The hash that a checkpoint with this content must have. It covers the state through the content hash of the
    /// state.
    pub fn content_hash(
        sequence: u32,
        state: &[u8; 32],
        leaves: &BTreeMap<String, EntryId>,
        usage: &UsageTotals,
    ) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&sequence.to_le_bytes());
        hasher.update(state);
        for (thread, leaf) in leaves {
            hasher.update(&(thread.len() as u64).to_le_bytes());
            hasher.update(thread.as_bytes());
            hasher.update(leaf.0.as_bytes());
        }
        hasher.update(&serde_json::to_vec(usage).unwrap_or_default());
        *hasher.finalize().as_bytes()
    }
}
