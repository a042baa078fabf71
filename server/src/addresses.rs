//! What is counted by the address that a caller comes from: connections at a time, and tokens that nobody knows.

use crate::limits::limited;
use flovyn_core::error::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long tokens that nobody knows are counted together, and how long an address with too many is not heard.
const SPAN: Duration = Duration::from_secs(60);
/// Addresses whose tokens are counted at a time.
const REMEMBERED: usize = 100_000;

/// Where a caller comes from. Of IPv6 the network, whose addresses one caller has all of.
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

/// The connections that each address has. Clones share the count.
#[derive(Clone)]
pub(crate) struct Neighbours {
    most: usize,
    open: Arc<Mutex<HashMap<Address, usize>>>,
}

/// A connection that is counted.
pub(crate) struct Entered {
    neighbours: Neighbours,
    address: Address,
}

impl Neighbours {
    /// So many connections at a time, of an address; 0 is no limit.
    pub(crate) fn of(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    /// Counts a connection for as long as what this returns lives; none where the address has as many as it may.
    pub(crate) fn enter(&self, ip: IpAddr) -> Option<Entered> {
        let address = Address::from(ip);
        let mut all = self.open.lock();
        let open = all.entry(address).or_default();
        if self.most > 0 && *open >= self.most {
            return None;
        }
        *open += 1;
        Some(Entered { neighbours: self.clone(), address })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut all = self.neighbours.open.lock();
        if let Some(open) = all.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// Addresses that showed tokens which nobody knows: after so many none of theirs is looked up for a while, so that guessing
/// is slow and does not keep the database busy. Clones share the count.
#[derive(Clone)]
pub(crate) struct Strangers {
    most: u32,
    seen: Arc<Mutex<HashMap<Address, (Instant, u32)>>>,
}

impl Strangers {
    /// So many unknown tokens a minute, of an address; 0 is no limit.
    pub(crate) fn of(most: u32) -> Self {
        Self { most, seen: Arc::default() }
    }

    /// Hears an address, unless it had too many.
    ///
    /// Errors: `RateLimited`, with the time until it is heard again.
    pub(crate) fn hear(&self, ip: IpAddr) -> Result<()> {
        if self.most == 0 {
            return Ok(());
        }
        let seen = self.seen.lock();
        let Some((since, tokens)) = seen.get(&Address::from(ip)) else { return Ok(()) };
        let left = SPAN.saturating_sub(since.elapsed());
        if *tokens < self.most || left.is_zero() {
            return Ok(());
        }
        let told = format!(
            "{tokens} tokens that are not known here came from this address within a minute; check FLOVYN_TOKEN and come again later"
        );
        Err(limited(told, left))
    }

    /// Notes that an address showed a token which nobody knows.
    pub(crate) fn note(&self, ip: IpAddr) {
        if self.most == 0 {
            return;
        }
        let mut seen = self.seen.lock();
        if seen.len() >= REMEMBERED {
            seen.retain(|_, (since, _)| since.elapsed() < SPAN);
        }
        // Where so many guess at once, those that come later are not counted: a table without an end would be worse.
        if seen.len() >= REMEMBERED {
            return;
        }
        let (since, tokens) = seen.entry(ip.into()).or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() >= SPAN {
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
        let neighbours = Neighbours::of(2);
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let (first, _second) = (neighbours.enter(one).unwrap(), neighbours.enter(one).unwrap());
        assert!(neighbours.enter(one).is_none() && neighbours.enter(other).is_some());
        drop(first);
        let _third = neighbours.enter(one).unwrap();
        assert!(neighbours.enter(one).is_none());
        assert_eq!(neighbours.open.lock().len(), 1, "who has none is forgotten");
        let unlimited = Neighbours::of(0);
        let _many: Vec<_> = (0..100).map(|_| unlimited.enter(one).unwrap()).collect();
    }

    #[tokio::test(start_paused = true)]
    async fn who_guesses_is_not_heard_for_a_while() {
        let strangers = Strangers::of(2);
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        for _ in 0..2 {
            strangers.hear(one).unwrap();
            strangers.note(one);
        }
        let refused = strangers.hear(one).unwrap_err();
        assert_eq!((refused.code(), crate::limits::retry_after(&refused)), (Code::RateLimited, Some(60)), "{refused}");
        strangers.hear(other).unwrap();
        tokio::time::advance(SPAN).await;
        strangers.hear(one).unwrap();
        strangers.note(one);
        strangers.hear(one).unwrap();
        let unlimited = Strangers::of(0);
        (0..100).for_each(|_| unlimited.note(one));
        unlimited.hear(one).unwrap();
    }
}
