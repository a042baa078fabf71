//! What callers are held to, which may change while they call.

use crate::Identity;
use crate::addresses::Strangers;
use crate::limits::{Gauges, Limits, OpenStream, Rate};
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use parking_lot::RwLock;
use std::net::IpAddr;
use std::sync::Arc;

/// The limits of keys and of addresses. Clones share them.
#[derive(Clone)]
pub(crate) struct Throttle(Arc<RwLock<(Gauges, Strangers)>>);

impl Throttle {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self(Arc::new(RwLock::new((Gauges::of(limits), Strangers::of(limits.strangers)))))
    }

    /// Holds callers to other limits from now on. What was counted so far is forgotten; streams that are open stay open.
    pub(crate) fn set(&self, limits: &Limits) {
        *self.0.write() = (Gauges::of(limits), Strangers::of(limits.strangers));
    }

    /// As [`Gauges::count`].
    pub(crate) fn count(&self, rate: Rate, org: OrgId, who: &Identity) -> Result<()> {
        self.0.read().0.count(rate, org, who)
    }

    /// As [`Gauges::stream`].
    pub(crate) fn stream(&self, org: OrgId, who: &Identity) -> Result<OpenStream> {
        self.0.read().0.stream(org, who)
    }

    /// As [`Strangers::hear`].
    pub(crate) fn hear(&self, ip: IpAddr) -> Result<()> {
        self.0.read().1.hear(ip)
    }

    /// As [`Strangers::note`].
    pub(crate) fn note(&self, ip: IpAddr) {
        self.0.read().1.note(ip);
    }
}
