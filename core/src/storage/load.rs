//! How much work a backend has, in numbers for operators.

use crate::clock::Timestamp;

/// The load of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    /// The queues that have work, over all orgs.
    pub queues: Vec<QueueDepth>,
    /// The connections to the database, by what they are for.
    pub pools: Vec<PoolLoad>,
    /// Stored rows that could not be used, whose runs this process has paused.
    pub set_aside: u64,
}

/// The runs or the tasks of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDepth {
    /// `run` or `task`.
    pub what: &'static str,
    /// The queue.
    pub queue: String,
    /// How many wait for a worker.
    pub pending: u64,
    /// How many a worker holds.
    pub running: u64,
    /// Since when the oldest of the waiting ones has waited.
    pub oldest: Option<Timestamp>,
}

/// A few connections for one purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLoad {
    /// What they are for.
    pub name: &'static str,
    /// Connections that have nothing to do.
    pub idle: usize,
    /// Connections in use.
    pub busy: usize,
    /// Calls that wait for one.
    pub waiting: usize,
}
