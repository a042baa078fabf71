//! The service behind all transports: who is let in, what a call means, and what is recorded of it. A transport reads a request,
//! calls this, and writes an answer; the backend is called from here, but for reads that mean nothing more than the row.

mod admission;
mod audit;
mod definitions;
mod health;
mod keys;
mod machines;
mod queue_access;
mod reach;
mod requester;
mod runs;
mod settings;
mod sign_in;
mod steps;
mod upload;

pub(crate) use admission::{Refusal, StreamPermit};
pub(crate) use definitions::AgentInput;
pub use definitions::DEFINITION;
pub(crate) use keys::{BROWSER_SECONDS, KEY_DAYS, KEY_NAME, KeyLifetime};
pub(crate) use machines::SeenMachines;
pub(crate) use queue_access::QueueCache;
pub(crate) use requester::Requester;
pub(crate) use sign_in::{SESSION_LIFETIME, SignIn, SignInCodes};
pub(crate) use steps::Steps;
pub use upload::{IDLE, Upload, check as check_size};

use crate::access::Access;
use crate::catalog::Catalog;
use crate::extensions::Protocol;
use crate::metrics::{Measured, Metrics};
use crate::oidc::Oidc;
use crate::options::ServeOptions;
use crate::org_limiter::OrgLimiter;
use crate::refusal_log::RefusalLog;
use crate::shutdown::{Shutdown, signalled};
use crate::throttle::Throttle;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::Chunk;
use flovyn_core::storage::Storage;
use flovyn_core::storage::guarded::Guarded;
use flovyn_core::streaming::Chunks;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The id of a checkpoint in REST and `flovyn.v1`.
pub fn checkpoint_id(run: ExecutionId, sequence: u32) -> Uuid {
    Uuid::new_v5(&run.0, format!("checkpoint-{sequence}").as_bytes())
}

/// One backend, served. Clones share it.
#[derive(Clone)]
pub struct Service {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) chunks: Chunks,
    pub(crate) access: Access,
    pub(crate) throttle: Throttle,
    pub(crate) org_limiter: OrgLimiter,
    pub(crate) metrics: Metrics,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) refusals: RefusalLog,
    pub(crate) steps: Steps,
    pub(crate) queues: Arc<QueueCache>,
    pub(crate) seen_machines: SeenMachines,
    pub(crate) sign_in_codes: SignInCodes,
    /// Who says who people are, beside the keys.
    pub(crate) oidc: Option<Arc<Oidc>>,
    pub(crate) protocols: Arc<[Arc<dyn Protocol>]>,
    /// True once the server drains: callers are asked to connect elsewhere.
    pub(crate) draining: watch::Receiver<bool>,
    /// True once the server stops: every stream ends.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Service {
    /// The service over a backend.
    pub(crate) fn over(
        storage: Arc<dyn Storage>,
        chunks: Chunks,
        access: Access,
        options: &ServeOptions,
        shutdown: &Shutdown,
    ) -> Self {
        let metrics = Metrics::default();
        let storage: Arc<dyn Storage> =
            Arc::new(Guarded::over(storage, Measured::new(metrics.clone(), options.slow_call)));
        let (draining, stopping) = shutdown.subscribe();
        let (throttle, org_limiter) = (Throttle::of(&options.limits), OrgLimiter::default());
        let (catalog, refusals, steps) = (options.extensions.catalog.clone(), RefusalLog::default(), Steps::default());
        Self {
            storage,
            chunks,
            access,
            throttle,
            org_limiter,
            metrics,
            catalog,
            refusals,
            steps,
            queues: Arc::default(),
            seen_machines: SeenMachines::default(),
            sign_in_codes: SignInCodes::default(),
            oidc: None,
            protocols: options.extensions.protocols.clone().into(),
            draining,
            stopping,
        }
    }

    /// The backend.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Shows a preview of a run to its readers, after its events up to a number.
    pub fn publish(&self, after: u64, org: OrgId, chunk: Chunk) {
        self.chunks.publish(after, org, chunk);
    }

    /// Resolves when the server stops.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        signalled(self.stopping.clone())
    }

    /// Resolves when the server drains.
    pub(crate) fn drained(&self) -> impl Future<Output = ()> + Send + 'static {
        signalled(self.draining.clone())
    }
}
