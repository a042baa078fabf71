//! Limits of queues: how many runs advance at the same time, and how many are handed out within a period.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The limits of a queue of an org.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLimit {
    /// Runs that workers hold at the same time; waiting ones do not count.
    pub concurrency: Option<u32>,
    /// How many runs, new ones and woken ones, are handed to workers within a period.
    pub rate: Option<Rate>,
}

/// A number of runs per period. They may come all at once or spread over the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many runs, from 1.
    pub runs: u32,
    /// The period, from a millisecond to a day.
    pub per: Duration,
}
