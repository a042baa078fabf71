//! The limits of callers, which may change while the server runs.

use crate::access::Identity;
use crate::addresses::{Address, WindowLimiter};
use crate::limits::{KeyLimiter, Limits, OpenStream, Rate};
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use flovyn_core::sync::RwLock;
use std::net::IpAddr;
use std::sync::Arc;

/// Pairings a minute that one address may begin.
const PAIRINGS: u32 = 10;
/// Wrong codes of pairings a minute that are looked up for one org.
const WRONG_CODES: u32 = 20;

/// The limits of keys and of addresses. Clones share them.
#[derive(Clone)]
pub(crate) struct Throttle {
    changing: Arc<RwLock<(KeyLimiter, WindowLimiter<Address>)>>,
    pairings: WindowLimiter<Address>,
    wrong_codes: WindowLimiter<OrgId>,
}

fn changing(limits: &Limits) -> (KeyLimiter, WindowLimiter<Address>) {
    let what = "tokens that are not known here came from this address within a minute; check FLOVYN_TOKEN and come again later";
    (KeyLimiter::of(limits), WindowLimiter::of(limits.strangers, what))
}

impl Throttle {
    pub(crate) fn of(limits: &Limits) -> Self {
        let pairings = "machines asked to be let in from this address within a minute; try again later";
        let wrong_codes =
            "codes of machines were wrong within a minute; look at the code once more and try again later";
        Self {
            changing: Arc::new(RwLock::new(changing(limits))),
            pairings: WindowLimiter::of(PAIRINGS, pairings),
            wrong_codes: WindowLimiter::of(WRONG_CODES, wrong_codes),
        }
    }

    /// Replaces the limits. Counts start anew; open streams stay open.
    pub(crate) fn set(&self, limits: &Limits) {
        *self.changing.write() = changing(limits);
    }

    /// As [`KeyLimiter::count`].
    pub(crate) fn count(&self, rate: Rate, org: OrgId, who: &Identity) -> Result<()> {
        self.changing.read().0.count(rate, org, who)
    }

    /// As [`KeyLimiter::stream`].
    pub(crate) fn stream(&self, org: OrgId, who: &Identity) -> Result<OpenStream> {
        self.changing.read().0.stream(org, who)
    }

    /// Refuses an address that has sent too many unknown tokens.
    ///
    /// Errors: `RateLimited`, with the time until it may try again.
    pub(crate) fn check_auth_failures(&self, ip: IpAddr) -> Result<()> {
        self.changing.read().1.check(ip)
    }

    /// Counts an unknown token of an address.
    pub(crate) fn record_auth_failure(&self, ip: IpAddr) {
        self.changing.read().1.record(ip);
    }

    /// Counts a pairing that an address begins.
    ///
    /// Errors: `RateLimited`, with the time until it may begin another.
    pub(crate) fn count_pairing(&self, ip: IpAddr) -> Result<()> {
        self.pairings.check(ip)?;
        self.pairings.record(ip);
        Ok(())
    }

    /// Refuses an org whose callers have tried too many wrong codes.
    ///
    /// Errors: `RateLimited`, with the time until they may try again.
    pub(crate) fn check_wrong_codes(&self, org: OrgId) -> Result<()> {
        self.wrong_codes.check(org)
    }

    /// Counts a wrong code of an org's callers.
    pub(crate) fn record_wrong_code(&self, org: OrgId) {
        self.wrong_codes.record(org);
    }
}
