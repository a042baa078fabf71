//! Workers and queues, as operators see them.

use crate::clock::Timestamp;
use crate::id::WorkerId;

/// A worker, as far as a store knows it from the worker's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWorker {
    /// Its id.
    pub id: WorkerId,
    /// Its host, process and name, for people; empty if it has never registered.
    pub name: String,
    /// The queues that it registered for.
    pub queues: Vec<String>,
    /// The kinds and queues that its claims have asked for.
    pub serves: Vec<(String, String)>,
    /// The last sign of life that was stored.
    pub seen_at: Timestamp,
    /// Until when it counts as alive without another sign of life.
    pub alive_until: Timestamp,
}

/// The work of one kind in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLoad {
    /// The agent or the task.
    pub kind: String,
    /// The queue.
    pub queue: String,
    /// How many may be claimed now.
    pub queued: u64,
    /// How many are held by workers.
    pub running: u64,
    /// Whether a live worker serves this kind in this queue.
    pub served: bool,
}
