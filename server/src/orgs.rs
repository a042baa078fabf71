//! What organizations may ask for, whatever keys they have: looked up now and then, and counted here.

use crate::limits::{Rate, limited};
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use flovyn_core::model::OrgLimits;
use flovyn_core::storage::Storage;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long a look at an organization holds.
const FRESH: Duration = Duration::from_secs(5);
/// Organizations that are remembered at a time.
const REMEMBERED: usize = 10_000;

/// The organizations that calls were about. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Orgs(Arc<Mutex<HashMap<OrgId, Seen>>>);

/// What was found, and when.
type Seen = (Instant, Arc<Gauge>);

/// The buckets and the streams of one.
#[derive(Default)]
struct Gauge {
    limits: OrgLimits,
    create: Option<DefaultDirectRateLimiter>,
    signal: Option<DefaultDirectRateLimiter>,
    poll: Option<DefaultDirectRateLimiter>,
    streams: Arc<AtomicU32>,
}

impl Gauge {
    /// Full buckets; streams that are open stay counted.
    fn of(limits: OrgLimits, streams: Arc<AtomicU32>) -> Self {
        let bucket = |each: Option<u32>| Some(RateLimiter::direct(Quota::per_second(NonZeroU32::new(each?)?)));
        let (create, signal, poll) = (bucket(limits.create), bucket(limits.signal), bucket(limits.poll));
        Self { limits, create, signal, poll, streams }
    }
}

impl Orgs {
    /// Takes one call out of the bucket of an organization.
    ///
    /// Errors: `RateLimited`, with the time until there is one again.
    pub(crate) async fn count(&self, storage: &dyn Storage, org: OrgId, rate: Rate) -> Result<()> {
        let gauge = self.of(storage, org).await;
        let (bucket, each) = match rate {
            Rate::Create => (&gauge.create, gauge.limits.create),
            Rate::Signal => (&gauge.signal, gauge.limits.signal),
            Rate::Poll => (&gauge.poll, gauge.limits.poll),
        };
        let Some((bucket, each)) = bucket.as_ref().zip(each) else { return Ok(()) };
        let Err(empty) = bucket.check() else { return Ok(()) };
        let told = format!(
            "the organization may make {each} {} a second, with all its keys, and has made them; ask again later",
            rate.told()
        );
        Err(limited(told, empty.wait_time_from(DefaultClock::default().now())))
    }

    /// Counts a stream of events of an organization for as long as what this returns lives.
    ///
    /// Errors: `RateLimited` where it has as many as it may.
    pub(crate) async fn stream(&self, storage: &dyn Storage, org: OrgId) -> Result<OrgStream> {
        let gauge = self.of(storage, org).await;
        let open = OrgStream(gauge.streams.clone());
        let before = open.0.fetch_add(1, Ordering::Relaxed);
        match gauge.limits.streams {
            Some(most) if before >= most => {
                let told = format!("the organization has {most} streams of events open, as many as it may; close some");
                Err(limited(told, Duration::from_secs(1)))
            }
            _ => Ok(open),
        }
    }

    /// The gauge of an organization. Where the store cannot tell its limits now, those it told last hold.
    async fn of(&self, storage: &dyn Storage, org: OrgId) -> Arc<Gauge> {
        let last = self.0.lock().get(&org).cloned();
        if let Some((at, gauge)) = &last
            && at.elapsed() < FRESH
        {
            return gauge.clone();
        }
        let found = match storage.directory() {
            Some(directory) => directory.organization(org).await.ok(),
            None => None,
        };
        let mut kept = self.0.lock();
        if kept.len() >= REMEMBERED {
            kept.retain(|_, (_, gauge)| Arc::strong_count(&gauge.streams) > 1);
        }
        // Another call may have looked meanwhile: a bucket is not filled twice.
        let last = kept.get(&org).map(|(_, gauge)| gauge.clone()).unwrap_or_default();
        let limits = found.map_or(last.limits, |found| found.map(|org| org.limits).unwrap_or_default());
        let gauge = match limits == last.limits {
            true => last,
            false => Arc::new(Gauge::of(limits, last.streams.clone())),
        };
        kept.insert(org, (Instant::now(), gauge.clone()));
        gauge
    }
}

/// A stream that is counted.
pub(crate) struct OrgStream(Arc<AtomicU32>);

impl Drop for OrgStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::clock::{ManualClock, Timestamp};
    use flovyn_core::error::Code;
    use flovyn_core::storage::Directory;
    use flovyn_core::storage::memory::MemoryStorage;

    #[tokio::test(start_paused = true)]
    async fn an_organization_is_held_to_its_limits_with_all_its_keys() {
        let storage = MemoryStorage::new(Arc::new(ManualClock::new(Timestamp(0))));
        let otters = storage.create_organization("otters", "a test").await.unwrap().id;
        let orgs = Orgs::default();
        let count = async |org, rate| orgs.count(&storage, org, rate).await.map_err(|error| error.code());
        for _ in 0..100 {
            count(otters, Rate::Create).await.unwrap();
        }
        let limits = OrgLimits { create: Some(2), streams: Some(1), ..OrgLimits::default() };
        storage.limit_organization(otters, limits, "a test").await.unwrap();
        let first = orgs.stream(&storage, otters).await.unwrap();
        tokio::time::advance(FRESH).await;
        assert_eq!((count(otters, Rate::Create).await, count(otters, Rate::Create).await), (Ok(()), Ok(())));
        assert_eq!(count(otters, Rate::Create).await, Err(Code::RateLimited));
        assert_eq!((count(otters, Rate::Signal).await, count(OrgId::DEFAULT, Rate::Create).await), (Ok(()), Ok(())));
        // What was opened before it was limited is counted.
        assert_eq!(orgs.stream(&storage, otters).await.err().map(|error| error.code()), Some(Code::RateLimited));
        drop(first);
        let _second = orgs.stream(&storage, otters).await.unwrap();
        assert!(orgs.stream(&storage, otters).await.is_err() && orgs.stream(&storage, OrgId::DEFAULT).await.is_ok());
    }
}
