//! What every transport stands on: the backend, its previews, who may call, and what calls mean that take more than one of
//! the backend's.

mod audit;
mod catalog;
mod start;
mod steps;
mod upload;

pub(crate) use audit::{Act, By};
pub(crate) use catalog::Catalog;
pub(crate) use start::start;
pub(crate) use steps::Steps;
pub(crate) use upload::{IDLE, Upload, check as check_size};

use crate::limits::{OpenStream, Rate};
use crate::metrics::Metrics;
use crate::orgs::{OrgStream, Orgs};
use crate::refusals::Refusals;
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

/// The metadata of a run that has the id of the predefined agent it is one of.
pub(crate) const DEFINITION: &str = "agentDefinition";

/// The id by which clients know a checkpoint.
pub(crate) fn checkpoint_id(run: ExecutionId, sequence: u32) -> Uuid {
    Uuid::new_v5(&run.0, format!("checkpoint-{sequence}").as_bytes())
}

/// One backend, served. Clones share it.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) chunks: Chunks,
    pub(crate) access: Access,
    pub(crate) gauges: Throttle,
    pub(crate) orgs: Orgs,
    pub(crate) metrics: Metrics,
    pub(crate) catalog: Catalog,
    pub(crate) refusals: Refusals,
    pub(crate) steps: Steps,
    /// Once the server is about to end: callers are asked to go elsewhere.
    pub(crate) draining: watch::Receiver<bool>,
    /// Ends every stream when the server stops.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// A stream of events that is counted.
pub(crate) struct Counted {
    key: OpenStream,
    _org: OrgStream,
}

impl Counted {
    /// Whose it is.
    pub(crate) fn who(&self) -> &Identity {
        self.key.who()
    }
}

impl Service {
    /// A client of the backend for one org.
    pub(crate) fn client(&self, org: OrgId) -> Client {
        Client::new(self.storage.clone(), self.chunks.clone(), org)
    }

    /// Counts a call of a caller, who shares what their org may ask for with its other keys.
    ///
    /// Errors: `RateLimited`, with the time until there is one again.
    pub(crate) async fn count(&self, rate: Rate, org: OrgId, who: &Identity) -> Result<()> {
        self.gauges.count(rate, org, who)?;
        self.orgs.count(&*self.storage, org, rate).await
    }

    /// Counts a stream of events for as long as what this returns lives.
    ///
    /// Errors: `RateLimited` where the key or the org has as many as it may.
    pub(crate) async fn open_stream(&self, org: OrgId, who: &Identity) -> Result<Counted> {
        let key = self.gauges.stream(org, who)?;
        Ok(Counted { key, _org: self.orgs.stream(&*self.storage, org).await? })
    }

    /// Who a bearer token stands for that came from an address.
    ///
    /// Errors: `RateLimited` where too many came from there that nobody knows; those of the store.
    pub(crate) async fn identify(&self, token: &str, from: Option<IpAddr>) -> Result<Option<Identity>> {
        // A known token works even where somebody else guesses tokens from the same address.
        if let Some(ip) = from.filter(|_| !self.access.remembers(token)) {
            self.gauges.check_auth_failures(ip)?;
        }
        let identity = self.access.identify(token).await?;
        if let Some(ip) = from.filter(|_| identity.is_none()) {
            self.gauges.record_auth_failure(ip);
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
        let known = directory.organizations().await?;
        Ok(known.into_iter().find(|org| org.name == name).map(|org| org.id))
    }

    /// Ends when the server stops.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        signalled(self.stopping.clone())
    }

    /// Ends when the server is about to stop.
    pub(crate) fn drained(&self) -> impl Future<Output = ()> + Send + 'static {
        signalled(self.draining.clone())
    }
}
