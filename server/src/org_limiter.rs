//! The limits of organizations over all their keys. They are read from the store now and then; this server counts by itself.

use crate::limits::{Rate, limited};
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use flovyn_core::model::OrgLimits;
use flovyn_core::storage::Storage;
use flovyn_core::sync::Mutex;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long the limits of an organization are cached.
const LIMITS_TTL: Duration = Duration::from_secs(5);
/// Organizations that are cached at a time.
const MAX_CACHED: usize = 10_000;

/// The limits of all organizations. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct OrgLimiter(Arc<Mutex<HashMap<OrgId, CachedBuckets>>>);

/// The buckets of an organization, and when its limits were read.
type CachedBuckets = (Instant, Arc<OrgBuckets>);

/// The token buckets of an organization, and its open streams.
#[derive(Default)]
struct OrgBuckets {
    limits: OrgLimits,
    create: Option<DefaultDirectRateLimiter>,
    signal: Option<DefaultDirectRateLimiter>,
    poll: Option<DefaultDirectRateLimiter>,
    streams: Arc<AtomicU32>,
}

impl OrgBuckets {
    /// Full buckets; streams that are open stay counted.
    fn of(limits: OrgLimits, streams: Arc<AtomicU32>) -> Self {
        let bucket =
            |per_second: Option<u32>| Some(RateLimiter::direct(Quota::per_second(NonZeroU32::new(per_second?)?)));
        let (create, signal, poll) = (bucket(limits.create), bucket(limits.signal), bucket(limits.poll));
        Self { limits, create, signal, poll, streams }
    }
}

impl OrgLimiter {
    /// Takes one token out of a bucket of an organization.
    ///
    /// Errors: `RateLimited`, with the time until there is one again.
    pub(crate) async fn count(&self, storage: &dyn Storage, org: OrgId, rate: Rate) -> Result<()> {
        let buckets = self.of(storage, org).await;
        let (bucket, per_second) = match rate {
            Rate::Create => (&buckets.create, buckets.limits.create),
            Rate::Signal => (&buckets.signal, buckets.limits.signal),
            Rate::Poll => (&buckets.poll, buckets.limits.poll),
        };
        let Some((bucket, per_second)) = bucket.as_ref().zip(per_second) else { return Ok(()) };
        let Err(empty) = bucket.check() else { return Ok(()) };
        let message = format!(
            "the organization may make {per_second} {} a second, with all its keys, and has made them; ask again later",
            rate.describe()
        );
        Err(limited(message, empty.wait_time_from(DefaultClock::default().now())))
    }

    /// Counts an event stream of an organization until the returned value is dropped.
    ///
    /// Errors: `RateLimited` where it has reached its limit.
    pub(crate) async fn stream(&self, storage: &dyn Storage, org: OrgId) -> Result<OrgStream> {
        let buckets = self.of(storage, org).await;
        let open = OrgStream(buckets.streams.clone());
        let before = open.0.fetch_add(1, Ordering::Relaxed);
        match buckets.limits.streams {
            Some(max) if before >= max => {
                let message =
                    format!("the organization has {max} streams of events open, as many as it may; close some");
                Err(limited(message, Duration::from_secs(1)))
            }
            _ => Ok(open),
        }
    }

    /// The buckets of an organization. While the store cannot be read, the limits that were read last hold.
    async fn of(&self, storage: &dyn Storage, org: OrgId) -> Arc<OrgBuckets> {
        let last = self.0.lock().get(&org).cloned();
        if let Some((at, buckets)) = &last
            && at.elapsed() < LIMITS_TTL
        {
            return buckets.clone();
        }
        let organization = match storage.server_side() {
            Ok(directory) => directory.organization(org).await.ok(),
            Err(_) => None,
        };
        let mut cached = self.0.lock();
        if cached.len() >= MAX_CACHED {
            cached.retain(|_, (_, buckets)| Arc::strong_count(&buckets.streams) > 1);
        }
        // Another call may have read the limits meanwhile: its buckets are kept, so that none is filled twice.
        let last = cached.get(&org).map(|(_, buckets)| buckets.clone()).unwrap_or_default();
        let limits =
            organization.map_or(last.limits, |organization| organization.map(|org| org.limits).unwrap_or_default());
        let buckets = match limits == last.limits {
            true => last,
            false => Arc::new(OrgBuckets::of(limits, last.streams.clone())),
        };
        cached.insert(org, (Instant::now(), buckets.clone()));
        buckets
    }
}

/// An open event stream that is counted.
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
        let orgs = OrgLimiter::default();
        let count = async |org, rate| orgs.count(&storage, org, rate).await.map_err(|error| error.code());
        for _ in 0..100 {
            count(otters, Rate::Create).await.unwrap();
        }
        let limits = OrgLimits { create: Some(2), streams: Some(1), ..OrgLimits::default() };
        storage.limit_organization(otters, limits, "a test").await.unwrap();
        let first = orgs.stream(&storage, otters).await.unwrap();
        tokio::time::advance(LIMITS_TTL).await;
        assert_eq!((count(otters, Rate::Create).await, count(otters, Rate::Create).await), (Ok(()), Ok(())));
        assert_eq!(count(otters, Rate::Create).await, Err(Code::RateLimited));
        assert_eq!((count(otters, Rate::Signal).await, count(OrgId::DEFAULT, Rate::Create).await), (Ok(()), Ok(())));
        // Streams that were opened before the limit was set are counted.
        assert_eq!(orgs.stream(&storage, otters).await.err().map(|error| error.code()), Some(Code::RateLimited));
        drop(first);
        let _second = orgs.stream(&storage, otters).await.unwrap();
        assert!(orgs.stream(&storage, otters).await.is_err() && orgs.stream(&storage, OrgId::DEFAULT).await.is_ok());
    }
}
