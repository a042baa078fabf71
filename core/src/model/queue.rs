//! Limits of queues: how many runs advance together, and how many are handed out in a time.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a queue of an org may do at most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLimit {
    /// Runs that workers hold at the same time; waiting ones do not count.
    pub concurrency: Option<u32>,
    /// How often runs are handed to workers, new ones and woken ones.
    pub rate: Option<Rate>,
}

/// So many in a time, at once or spread over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many, from 1.
    pub runs: u32,
    /// In which time, from a millisecond to a day.
    pub per: Duration,
}
