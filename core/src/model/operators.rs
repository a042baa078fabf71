//! What operators look at: workers and queues.

use crate::clock::Timestamp;
use crate::id::WorkerId;

/// A worker as its calls have shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWorker {
    /// Its id.
    pub id: WorkerId,
    /// Host, process and name, for people; empty for one that never registered.
    pub name: String,
    /// The queues it said it polls.
    pub queues: Vec<String>,
    /// What its claims asked for: kind and queue.
    pub serves: Vec<(String, String)>,
    /// The last sign of life that was noted.
    pub seen_at: Timestamp,
    /// Until when it is believed to live.
    pub alive_until: Timestamp,
}

/// What a queue has of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLoad {
    /// The agent or the task.
    pub kind: String,
    /// The queue.
    pub queue: String,
    /// How many may be claimed now.
    pub queued: u64,
    /// How many workers hold.
    pub running: u64,
    /// Whether a live worker serves it.
    pub served: bool,
}
