//! The limits of callers, which may change while the server runs.

use crate::access::Identity;
use crate::addresses::AuthFailureLimiter;
use crate::limits::{KeyLimiter, Limits, OpenStream, Rate};
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use flovyn_core::sync::RwLock;
use std::net::IpAddr;
use std::sync::Arc;

/// The limits of keys and of addresses. Clones share them.
#[derive(Clone)]
pub(crate) struct Throttle(Arc<RwLock<(KeyLimiter, AuthFailureLimiter)>>);

impl Throttle {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self(Arc::new(RwLock::new((KeyLimiter::of(limits), AuthFailureLimiter::of(limits.strangers)))))
    }

    /// Replaces the limits. Counts start anew; open streams stay open.
    pub(crate) fn set(&self, limits: &Limits) {
        *self.0.write() = (KeyLimiter::of(limits), AuthFailureLimiter::of(limits.strangers));
    }

    /// As [`KeyLimiter::count`].
    pub(crate) fn count(&self, rate: Rate, org: OrgId, who: &Identity) -> Result<()> {
        self.0.read().0.count(rate, org, who)
    }

    /// As [`KeyLimiter::stream`].
    pub(crate) fn stream(&self, org: OrgId, who: &Identity) -> Result<OpenStream> {
        self.0.read().0.stream(org, who)
    }

    /// As [`AuthFailureLimiter::check`].
    pub(crate) fn check_auth_failures(&self, ip: IpAddr) -> Result<()> {
        self.0.read().1.check(ip)
    }

    /// As [`AuthFailureLimiter::record`].
    pub(crate) fn record_auth_failure(&self, ip: IpAddr) {
        self.0.read().1.record(ip);
    }
}
