//! The service behind all transports: the backend, its previews, authentication, limits, and calls that take more than one call of
//! the backend.

mod audit;
mod start;
mod steps;
mod upload;

pub(crate) use audit::{Act, Requester};
pub(crate) use start::start;
pub(crate) use steps::Steps;
pub(crate) use upload::{IDLE, Upload, check as check_size};

use crate::catalog::Catalog;
use crate::limits::{OpenStream, Rate};
use crate::metrics::Metrics;
use crate::org_limiter::{OrgLimiter, OrgStream};
use crate::refusal_log::RefusalLog;
use crate::shutdown::signalled;
use crate::throttle::Throttle;
use crate::{Access, Identity};
use flovyn_core::client::Client;
use flovyn_core::error::Result;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::storage::Storage;
use flovyn_core::streaming::Chunks;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The metadata of a run that has the id of its predefined agent.
pub(crate) const DEFINITION: &str = "agentDefinition";

/// The id of a checkpoint in REST and `flovyn.v1`.
pub(crate) fn checkpoint_id(run: ExecutionId, sequence: u32) -> Uuid {
    Uuid::new_v5(&run.0, format!("checkpoint-{sequence}").as_bytes())
}

/// One backend, served. Clones share it.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) chunks: Chunks,
    pub(crate) access: Access,
    pub(crate) throttle: Throttle,
    pub(crate) org_limiter: OrgLimiter,
    pub(crate) metrics: Metrics,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) refusals: RefusalLog,
    pub(crate) steps: Steps,
    /// True once the server drains: callers are asked to connect elsewhere.
    pub(crate) draining: watch::Receiver<bool>,
    /// True once the server stops: every stream ends.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// An event stream that is counted for its key and its org.
pub(crate) struct StreamPermit {
    key: OpenStream,
    _org: OrgStream,
}

impl StreamPermit {
    /// The caller that has it open.
    pub(crate) fn who(&self) -> &Identity {
        self.key.who()
    }
}

impl Service {
    /// A client of the backend for one org.
    pub(crate) fn client(&self, org: OrgId) -> Client {
        Client::new(self.storage.clone(), self.chunks.clone(), org)
    }

    /// Counts a call against the limits of its key and of its org, which all keys of the org share.
    ///
    /// Errors: `RateLimited`, with the time until there is one again.
    pub(crate) async fn count(&self, rate: Rate, org: OrgId, who: &Identity) -> Result<()> {
        self.throttle.count(rate, org, who)?;
        self.org_limiter.count(&*self.storage, org, rate).await
    }

    /// Counts an event stream until the permit is dropped.
    ///
    /// Errors: `RateLimited` where the key or the org has reached its limit.
    pub(crate) async fn open_stream(&self, org: OrgId, who: &Identity) -> Result<StreamPermit> {
        let key = self.throttle.stream(org, who)?;
        Ok(StreamPermit { key, _org: self.org_limiter.stream(&*self.storage, org).await? })
    }

    /// The identity of a bearer token that came from an address.
    ///
    /// Errors: `RateLimited` after too many unknown tokens from that address; those of the store.
    pub(crate) async fn identify(&self, token: &str, from: Option<IpAddr>) -> Result<Option<Identity>> {
        // A known token works even where somebody else guesses tokens from the same address.
        if let Some(ip) = from.filter(|_| !self.access.is_cached_valid(token)) {
            self.throttle.check_auth_failures(ip)?;
        }
        let identity = self.access.identify(token).await?;
        if let Some(ip) = from.filter(|_| identity.is_none()) {
            self.throttle.record_auth_failure(ip);
        }
        Ok(identity)
    }

    /// The org that a slug or an id names, where the backend can know.
    pub(crate) async fn org_named(&self, name: &str) -> Result<Option<OrgId>> {
        if name == "default" {
            return Ok(Some(OrgId::DEFAULT));
        }
        if let Ok(id) = name.parse() {
            return Ok(Some(id));
        }
        let Some(directory) = self.storage.directory() else { return Ok(None) };
        let organizations = directory.organizations().await?;
        Ok(organizations.into_iter().find(|org| org.name == name).map(|org| org.id))
    }

    /// Resolves when the server stops.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        signalled(self.stopping.clone())
    }

    /// Resolves when the server drains.
    pub(crate) fn drained(&self) -> impl Future<Output = ()> + Send + 'static {
        signalled(self.draining.clone())
    }
}
