//! The port for limits of queues, and how many runs a limit lets through.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use crate::model::{MAX_NAME, QueueLimit, Rate};
use async_trait::async_trait;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The allowed periods of rates.
pub const PERIODS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);
/// How soon to look again at a queue that was at its limit.
const AGAIN: Duration = Duration::from_millis(50);

/// The limits of orgs' queues. Every claim keeps to them.
#[async_trait]
pub trait Queues: Send + Sync {
    /// Sets the limit of an org's queue. An empty limit removes it.
    ///
    /// Errors: `InvalidArgument` for a limit of 0, a period outside of [`PERIODS`], and a name that is empty or too
    /// long.
    async fn limit_queue(&self, org: OrgId, queue: &str, limit: QueueLimit) -> Result<()>;

    /// The queues of an org that have a limit, by name.
    async fn queue_limits(&self, org: OrgId) -> Result<Vec<(String, QueueLimit)>>;
}

/// Refuses an invalid limit. Returns whether it limits anything.
pub(super) fn check(queue: &str, limit: &QueueLimit) -> Result<bool> {
    let wrong = |message: String| Err(Error::new(Code::InvalidArgument, message));
    if queue.is_empty() || queue.len() > MAX_NAME {
        return wrong(format!("a queue's name has 1 to {MAX_NAME} bytes, but {} were given", queue.len()));
    }
    if limit.concurrency == Some(0) {
        return wrong("a concurrency of 0 would stop the queue; give 1 or more, or none".into());
    }
    if let Some(Rate { runs, per }) = limit.rate
        && (runs == 0 || !PERIODS.contains(&per))
    {
        return wrong(format!("{runs} runs in {per:?} is no rate; give 1 or more in a millisecond to a day"));
    }
    Ok(limit.concurrency.is_some() || limit.rate.is_some())
}

/// The limit of a queue, with the state of its rate.
///
/// A rate is a token bucket. Each run that is handed out costs one step, the period divided by the number of runs.
/// `paid_until` moves on by that; it may be at most a period ahead of the time.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate {
    pub limit: QueueLimit,
    /// Until when the runs handed out so far use up the rate, in microseconds.
    pub paid_until: i64,
}

impl Gate {
    /// How many of the runs asked for may be handed out, while workers hold `held` runs of the queue.
    pub(super) fn room(&self, asked: usize, held: usize, now: Timestamp) -> usize {
        let places = self.limit.concurrency.map_or(asked, |most| (most as usize).saturating_sub(held));
        let ahead = self.limit.rate.map_or(asked, |rate| {
            // The runs of a whole period may be handed out at once, but no more: time in which nobody asked is not
            // saved up beyond that.
            let left = period(rate) - (self.paid_until - now.0).max(0);
            usize::try_from(left.max(0) / step(rate)).unwrap_or(usize::MAX)
        });
        asked.min(places).min(ahead)
    }

    /// Notes that so many runs were handed out.
    pub(super) fn pass(&mut self, runs: usize, now: Timestamp) {
        if let Some(rate) = self.limit.rate {
            let runs = i64::try_from(runs).unwrap_or(i64::MAX);
            self.paid_until = self.paid_until.max(now.0).saturating_add(step(rate).saturating_mul(runs));
        }
    }

    /// When to look again for runs that the limit has kept back.
    pub(super) fn opens_at(&self, now: Timestamp) -> Timestamp {
        let soon = now.after(AGAIN);
        let rate = self.limit.rate.map_or(i64::MIN, |rate| self.paid_until + step(rate) - period(rate));
        soon.max(Timestamp(rate))
    }
}

fn period(rate: Rate) -> i64 {
    i64::try_from(rate.per.as_micros()).unwrap_or(i64::MAX)
}

fn step(rate: Rate) -> i64 {
    (period(rate) / i64::from(rate.runs)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_any_time() {
        let rate = Rate { runs: 10, per: Duration::from_secs(1) };
        let mut gate = Gate { limit: QueueLimit { concurrency: None, rate: Some(rate) }, paid_until: 0 };
        let (mut now, mut passed) = (Timestamp(1_700_000_000_000_000), 0);
        let begin = now;
        for _ in 0..1_000 {
            let room = gate.room(3, 0, now);
            gate.pass(room, now);
            passed += room;
            now = if room < 3 { gate.opens_at(now) } else { now.after(Duration::from_millis(1)) };
        }
        let most = 10.0 + now.since(begin).as_secs_f64() * 10.0;
        assert!((most - 11.0..=most).contains(&(passed as f64)), "{passed} of {most}");
        // What nobody asked for is not saved up beyond a period.
        assert_eq!(gate.room(99, 0, now.after(Duration::from_secs(3_600))), 10);
    }

    #[test]
    fn places_and_rate_hold_together() {
        let rate = Some(Rate { runs: 5, per: Duration::from_secs(60) });
        let mut gate = Gate { limit: QueueLimit { concurrency: Some(3), rate }, paid_until: 0 };
        let now = Timestamp(1_700_000_000_000_000);
        assert_eq!(gate.room(9, 0, now), 3);
        gate.pass(3, now);
        assert_eq!((gate.room(9, 3, now), gate.room(9, 4, now), gate.room(9, 0, now)), (0, 0, 2));
        gate.pass(2, now);
        assert_eq!(gate.opens_at(now), now.after(Duration::from_secs(12)));
        assert_eq!(gate.room(9, 0, now.after(Duration::from_secs(12))), 1);
    }

    #[test]
    fn what_limits_nothing_is_refused() {
        let rate = |runs, millis| QueueLimit {
            rate: Some(Rate { runs, per: Duration::from_millis(millis) }),
            ..Default::default()
        };
        assert!(!check("q", &QueueLimit::default()).unwrap());
        assert!(check("q", &rate(1, 1_000)).unwrap());
        for wrong in [rate(0, 1), rate(1, 0), rate(1, 86_400_001), QueueLimit { concurrency: Some(0), rate: None }] {
            assert_eq!(check("q", &wrong).unwrap_err().code(), Code::InvalidArgument, "{wrong:?}");
        }
        let named = |length| check(&"x".repeat(length), &rate(1, 1));
        assert!(named(0).is_err() && named(MAX_NAME).unwrap() && named(MAX_NAME + 1).is_err());
    }
}
