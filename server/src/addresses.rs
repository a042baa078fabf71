//! Limits by client address, or by org: open connections, failed authentications, and what else is counted in a minute.

use crate::limits::limited;
use flovyn_core::error::Result;
use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The window in which failures are counted, and how long an address with too many is refused.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose failures are counted at a time.
const MAX_ADDRESSES: usize = 100_000;

/// The address of a client. For IPv6 it is the /64 network, since one client has all addresses of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Address(IpAddr);

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V6(v6) => Self(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into()),
            v4 => Self(v4),
        }
    }
}

/// Limits the open connections of each address. Clones share the count.
#[derive(Clone)]
pub(crate) struct ConnectionLimiter {
    max: usize,
    open: Arc<Mutex<HashMap<Address, usize>>>,
}

/// Counts one connection until it is dropped.
pub(crate) struct ConnectionPermit {
    limiter: ConnectionLimiter,
    address: Address,
}

impl ConnectionLimiter {
    /// Allows `max` connections at a time for each address; 0 is no limit.
    pub(crate) fn of(max: usize) -> Self {
        Self { max, open: Arc::default() }
    }

    /// Counts a connection until the permit is dropped; none where the address has reached its limit.
    pub(crate) fn acquire(&self, ip: IpAddr) -> Option<ConnectionPermit> {
        let address = Address::from(ip);
        let mut all = self.open.lock();
        let open = all.entry(address).or_default();
        if self.max > 0 && *open >= self.max {
            return None;
        }
        *open += 1;
        Some(ConnectionPermit { limiter: self.clone(), address })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut all = self.limiter.open.lock();
        if let Some(open) = all.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// Limits how often something that can be guessed is tried in a minute. After too many unknown tokens no unknown token of an
/// address is looked up for a while, so that guessing is slow and does not keep the database busy. Clones share the count.
#[derive(Clone)]
pub(crate) struct WindowLimiter<K> {
    max: u32,
    /// What so many of were too many, and what to do.
    what: &'static str,
    failures: Arc<Mutex<HashMap<K, (Instant, u32)>>>,
}

impl<K: Eq + Hash> WindowLimiter<K> {
    /// Allows `max` of what is counted a minute for each address or org; 0 is no limit.
    pub(crate) fn of(max: u32, what: &'static str) -> Self {
        Self { max, what, failures: Arc::default() }
    }

    /// Refuses an address or an org that has had too many.
    ///
    /// Errors: `RateLimited`, with the time until it may try again.
    pub(crate) fn check(&self, of: impl Into<K>) -> Result<()> {
        if self.max == 0 {
            return Ok(());
        }
        let failures = self.failures.lock();
        let Some((since, tries)) = failures.get(&of.into()) else { return Ok(()) };
        let remaining = WINDOW.saturating_sub(since.elapsed());
        if *tries < self.max || remaining.is_zero() {
            return Ok(());
        }
        Err(limited(format!("{tries} {}", self.what), remaining))
    }

    /// Counts one.
    pub(crate) fn record(&self, of: impl Into<K>) {
        if self.max == 0 {
            return;
        }
        let mut failures = self.failures.lock();
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, (since, _)| since.elapsed() < WINDOW);
        }
        // When that many addresses fail at once, further ones are not counted: a table without a bound would be worse.
        if failures.len() >= MAX_ADDRESSES {
            return;
        }
        let (since, tokens) = failures.entry(of.into()).or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() >= WINDOW {
            (*since, *tokens) = (Instant::now(), 0);
        }
        *tokens += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::error::Code;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_is_one_address() {
        let same = |one: &str, two: &str| Address::from(ip(one)) == Address::from(ip(two));
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1") && !same("192.0.2.1", "192.0.2.2"));
    }

    #[test]
    fn an_address_has_so_many_connections_at_a_time() {
        let limiter = ConnectionLimiter::of(2);
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let (first, _second) = (limiter.acquire(one).unwrap(), limiter.acquire(one).unwrap());
        assert!(limiter.acquire(one).is_none() && limiter.acquire(other).is_some());
        drop(first);
        let _third = limiter.acquire(one).unwrap();
        assert!(limiter.acquire(one).is_none());
        assert_eq!(limiter.open.lock().len(), 1, "an address without connections is forgotten");
        let unlimited = ConnectionLimiter::of(0);
        let _many: Vec<_> = (0..100).map(|_| unlimited.acquire(one).unwrap()).collect();
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_guesses_tokens_is_refused_for_a_while() {
        let limiter = WindowLimiter::<Address>::of(2, "tokens");
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        for _ in 0..2 {
            limiter.check(one).unwrap();
            limiter.record(one);
        }
        let refused = limiter.check(one).unwrap_err();
        assert_eq!((refused.code(), crate::limits::retry_after(&refused)), (Code::RateLimited, Some(60)), "{refused}");
        limiter.check(other).unwrap();
        tokio::time::advance(WINDOW).await;
        limiter.check(one).unwrap();
        limiter.record(one);
        limiter.check(one).unwrap();
        let unlimited = WindowLimiter::<Address>::of(0, "tokens");
        (0..100).for_each(|_| unlimited.record(one));
        unlimited.check(one).unwrap();
    }
}
