//! The limits of a key: starts, signals and polls a second, and open event streams. Each key has token buckets of its own in its
//! org; an empty bucket refuses a call, with the time until there is a token again.

use crate::access::Identity;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::sync::Mutex;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use serde::Deserialize;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The field of an error that has the time until a retry may succeed, in milliseconds.
pub(crate) const RETRY_AFTER: &str = "retry_after_ms";

/// The table `[limits]` of a server's file; 0 is no limit. The defaults are as stated here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Starts and forks a second, of a key: 500.
    pub create: u32,
    /// Signals a second, of a key: 1,000.
    pub signal: u32,
    /// Polls for work a second, of a key: 100.
    pub poll: u32,
    /// Open event streams of a key: 1,000.
    pub streams: usize,
    /// Connections at a time, of each port: 4,096. More wait.
    pub connections: usize,
    /// Connections at a time that one address has to a port: 2,048. More are closed.
    pub connections_each: usize,
    /// Unknown tokens a minute from one address: 100. Further unknown tokens of that address are refused.
    pub strangers: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            create: 500,
            signal: 1_000,
            poll: 100,
            streams: 1_000,
            connections: 4_096,
            connections_each: 2_048,
            strangers: 100,
        }
    }
}

impl Limits {
    /// No limits, except those of memory.
    pub fn none() -> Self {
        Self { create: 0, signal: 0, poll: 0, streams: 0, connections: 0, connections_each: 0, strangers: 0 }
    }
}

/// A kind of call that is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// A start or a fork.
    Create,
    /// A signal.
    Signal,
    /// A poll for work.
    Poll,
}

impl Rate {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Create => "starts",
            Self::Signal => "signals",
            Self::Poll => "polls",
        }
    }
}

/// A key, in its org.
type Caller = (OrgId, Arc<str>);

struct Bucket {
    limiter: DefaultKeyedRateLimiter<Caller>,
    per_second: NonZeroU32,
    calls: AtomicU32,
}

/// The limits of all keys. Clones share them.
#[derive(Clone)]
pub(crate) struct KeyLimiter(Arc<Shared>);

struct Shared {
    create: Option<Bucket>,
    signal: Option<Bucket>,
    poll: Option<Bucket>,
    max_streams: usize,
    streams: Mutex<HashMap<Caller, usize>>,
}

impl KeyLimiter {
    /// Full buckets.
    pub(crate) fn of(limits: &Limits) -> Self {
        let bucket = |per_second: u32| {
            let per_second = NonZeroU32::new(per_second)?;
            Some(Bucket {
                limiter: RateLimiter::keyed(Quota::per_second(per_second)),
                per_second,
                calls: AtomicU32::new(0),
            })
        };
        Self(Arc::new(Shared {
            create: bucket(limits.create),
            signal: bucket(limits.signal),
            poll: bucket(limits.poll),
            max_streams: limits.streams,
            streams: Mutex::default(),
        }))
    }

    /// Takes one token out of a bucket.
    ///
    /// Errors: `RateLimited`, with the time until there is one again.
    pub(crate) fn count(&self, rate: Rate, org: OrgId, who: &Identity) -> Result<()> {
        let bucket = match rate {
            Rate::Create => &self.0.create,
            Rate::Signal => &self.0.signal,
            Rate::Poll => &self.0.poll,
        };
        let Some(bucket) = bucket else { return Ok(()) };
        // Buckets that are full again are forgotten.
        if bucket.calls.fetch_add(1, Ordering::Relaxed) % 4_096 == 4_095 {
            bucket.limiter.retain_recent();
        }
        let Err(empty) = bucket.limiter.check_key(&(org, who.name().clone())) else { return Ok(()) };
        let wait = empty.wait_time_from(DefaultClock::default().now());
        let (per_second, calls) = (bucket.per_second, rate.describe());
        Err(limited(format!("the key may make {per_second} {calls} a second and has made them; ask again later"), wait))
    }

    /// Counts an event stream until the returned value is dropped.
    ///
    /// Errors: `RateLimited` where the key has reached its limit.
    pub(crate) fn stream(&self, org: OrgId, who: &Identity) -> Result<OpenStream> {
        let caller = (org, who.name().clone());
        let mut streams = self.0.streams.lock();
        let open = streams.entry(caller.clone()).or_default();
        let max = self.0.max_streams;
        if max > 0 && *open >= max {
            let message = format!("the key has {max} streams of events open, as many as it may; close some");
            return Err(limited(message, Duration::from_secs(1)));
        }
        *open += 1;
        Ok(OpenStream { limiter: self.clone(), caller, who: who.clone() })
    }
}

impl std::fmt::Debug for KeyLimiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gauges")
    }
}

pub(crate) fn limited(message: String, wait: Duration) -> Error {
    let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    Error::new(Code::RateLimited, message).with(RETRY_AFTER, wait)
}

/// Whole seconds after which a refused caller may try again.
pub(crate) fn retry_after(error: &Error) -> Option<u64> {
    let (_, wait) = error.context().iter().find(|(name, _)| *name == RETRY_AFTER)?;
    Some(wait.parse::<u64>().ok()?.div_ceil(1_000).max(1))
}

/// An open event stream that is counted.
pub(crate) struct OpenStream {
    limiter: KeyLimiter,
    caller: Caller,
    who: Identity,
}

impl OpenStream {
    /// The caller that has it open.
    pub(crate) fn who(&self) -> &Identity {
        &self.who
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut streams = self.limiter.0.streams.lock();
        if let Some(open) = streams.get_mut(&self.caller) {
            *open -= 1;
            if *open == 0 {
                streams.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_of_one_key_and_one_kind_of_call() {
        let limiter = KeyLimiter::of(&Limits { create: 2, signal: 1, ..Limits::none() });
        let (one, two) = (OrgId::fresh(), OrgId::fresh());
        let (own, other) = (Identity::of_org(one), Identity::of_org(two));
        let create = |org, who: &Identity| limiter.count(Rate::Create, org, who);
        create(one, &own).unwrap();
        create(one, &own).unwrap();
        let refused = create(one, &own).unwrap_err();
        assert_eq!((refused.code(), retry_after(&refused)), (Code::RateLimited, Some(1)), "{refused}");
        assert!(refused.is_retryable() && refused.message().contains("2 starts"), "{refused}");
        create(two, &other).unwrap();
        limiter.count(Rate::Signal, one, &own).unwrap();
        for _ in 0..1_000 {
            limiter.count(Rate::Poll, one, &own).unwrap();
        }
    }

    #[test]
    fn a_closed_stream_makes_room() {
        let limiter = KeyLimiter::of(&Limits { streams: 2, ..Limits::none() });
        let (org, who) = (OrgId::DEFAULT, Identity::of_org(OrgId::DEFAULT));
        let (first, _second) = (limiter.stream(org, &who).unwrap(), limiter.stream(org, &who).unwrap());
        assert_eq!(limiter.stream(org, &who).err().map(|error| error.code()), Some(Code::RateLimited));
        drop(first);
        let _third = limiter.stream(org, &who).unwrap();
        assert!(limiter.stream(org, &who).is_err());
        assert!(limiter.stream(OrgId::fresh(), &who).is_ok(), "of another org");
    }
}
