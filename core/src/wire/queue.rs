//! Limits of queues on the wire.

use super::{micros, v2};
use crate::model::{QueueLimit, Rate};
use std::time::Duration;

/// A limit with the name of its queue.
pub fn queue_limit(queue: &str, limit: &QueueLimit) -> v2::QueueLimit {
    let rate = limit.rate.map(|rate| v2::Rate { runs: rate.runs, per: micros(rate.per) });
    v2::QueueLimit { queue: queue.to_owned(), concurrency: limit.concurrency, rate }
}

/// Reads it back.
pub fn limit_of_queue(wire: v2::QueueLimit) -> (String, QueueLimit) {
    let rate = wire.rate.map(|rate| Rate { runs: rate.runs, per: Duration::from_micros(rate.per) });
    (wire.queue, QueueLimit { concurrency: wire.concurrency, rate })
}
