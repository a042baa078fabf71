//! `flovyn.v1`, the protocol of workers that were in the field before the engine, over gRPC: mapped to the storage contract. A server
//! is given it as [`FirstProtocol`] and knows nothing else of it.
//!
//! Calls of its workers carry no lease, so the server renews the leases: all leases of a worker last [`LEASE`] from its last call.
//! Each call reads the run's row and commits one batch as the run's holder; where something was written between read and commit,
//! it tries again. All state is in rows, so any replica may serve any call; what is cached here ([`JournalPositions`],
//! [`PreviewPositions`], [`Workers`]) only saves reads.

mod agents;
mod checkpoints;
mod child_news;
mod children;
mod claims;
mod convert;
mod entries;
mod glob;
mod leased_run;
mod lifecycle;
mod policy;
mod previews;
mod signals;
mod suspend;
mod task_attempts;
mod tasks;
mod workers;

use self::leased_run::JournalPositions;
use self::previews::PreviewPositions;
use self::workers::Workers;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::{Execution, Status as RunStatus};
use flovyn_core::storage::{ServerSide, Storage};
use flovyn_core::wire::MAX_MESSAGE;
use flovyn_proto::v1::agent_dispatch_server::AgentDispatchServer;
use flovyn_proto::v1::task_execution_server::TaskExecutionServer;
use flovyn_proto::v1::worker_lifecycle_server::WorkerLifecycleServer;
use flovyn_server::Identity;
use flovyn_server::protocol::{self, Need, Protocol, Rate, Service, to_status};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Request, Status};

/// How long leases last from the last call of their worker. It sends a heartbeat every 30 s, the first after 30 s.
const LEASE: Duration = Duration::from_secs(90);

/// The protocol, to be added to a server.
#[derive(Debug)]
pub struct FirstProtocol;

impl Protocol for FirstProtocol {
    fn services(&self) -> &'static [&'static str] {
        &[AgentDispatchServer::<V1>::NAME, TaskExecutionServer::<V1>::NAME, WorkerLifecycleServer::<V1>::NAME]
    }

    fn descriptors(&self) -> &'static [u8] {
        flovyn_proto::v1::DESCRIPTORS
    }

    fn need_of_method(&self, path: &str) -> Option<Need> {
        policy::need_of_method(path)
    }

    fn rate_of_method(&self, path: &str) -> Option<Rate> {
        policy::rate_of_method(path)
    }

    fn add_to(&self, routes: Routes, service: &Service) -> Routes {
        let adapter = V1::over(service.clone());
        routes
            .add_service(AgentDispatchServer::new(adapter.clone()).max_decoding_message_size(MAX_MESSAGE))
            .add_service(TaskExecutionServer::new(adapter.clone()).max_decoding_message_size(MAX_MESSAGE))
            .add_service(WorkerLifecycleServer::new(adapter).max_decoding_message_size(MAX_MESSAGE))
    }
}

/// The adapter; clones share it.
#[derive(Clone)]
struct V1(Arc<Adapter>);

/// The state that the three services share.
struct Adapter {
    service: Service,
    positions: JournalPositions,
    preview_positions: PreviewPositions,
    workers: Workers,
}

/// The caller of a request, and the org it acts for.
struct Caller {
    org: OrgId,
    identity: Identity,
}

impl V1 {
    /// The adapter over a backend.
    fn over(service: Service) -> Self {
        let (positions, preview_positions, workers) =
            (JournalPositions::default(), PreviewPositions::default(), Workers::default());
        Self(Arc::new(Adapter { service, positions, preview_positions, workers }))
    }
}

impl Deref for V1 {
    type Target = Adapter;

    fn deref(&self) -> &Adapter {
        &self.0
    }
}

impl Adapter {
    fn service(&self) -> &Service {
        &self.service
    }

    fn storage(&self) -> &Arc<dyn Storage> {
        self.service.storage()
    }

    fn unfenced(&self) -> Result<&dyn ServerSide, Status> {
        self.storage().server_side().map_err(to_status)
    }

    /// The caller of a request that names no org.
    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        Ok(Caller { org: protocol::org(request)?, identity: protocol::identity(request)? })
    }

    /// The caller of a request whose body names an org, by id or slug; it has to be the token's org.
    async fn caller_of<T>(&self, request: &Request<T>, named: &str) -> Result<Caller, Status> {
        let caller = self.caller(request)?;
        if named.is_empty() {
            return Ok(caller);
        }
        let org = self.service().org_named(named).await.map_err(to_status)?;
        match org.and_then(|org| caller.identity.org(Some(org))) {
            Some(org) => Ok(Caller { org, ..caller }),
            None => Err(Status::permission_denied(format!("the token is not of the org {named:?}; name its own"))),
        }
    }

    /// A run of the caller's org, of a queue that the caller may serve. Renews the leases of the worker that advances it.
    async fn run(&self, caller: &Caller, id: &str) -> Result<Execution, Status> {
        let id = ExecutionId(convert::uuid(id, "agent_execution_id")?);
        let run = self.storage().execution(caller.org, id).await.map_err(to_status)?;
        caller.check_may_serve(&run.new.queue)?;
        self.renew_for_call_about(&run).await?;
        Ok(run)
    }

    /// Refuses a worker that polls a queue which its key does not serve.
    fn check_may_poll(&self, caller: &Caller, queue: &str) -> Result<(), Status> {
        let allowed = caller.check_may_serve(queue);
        if allowed.is_err() {
            self.service().log_refusal(&caller.identity, &format!("the queue {queue:?}"));
        }
        allowed
    }

    /// Renews the leases of the worker that advances a run, unless they were renewed just now.
    async fn renew_for_call_about(&self, run: &Execution) -> Result<(), Status> {
        let Some(worker) = holder(run) else { return Ok(()) };
        let (org, now) = (run.new.org, self.storage().clock().now());
        if self.workers.record_call(org, worker, run.new.id, now) {
            return self.renew_leases(org, worker).await;
        }
        self.renew_if_due(org, worker).await
    }

    /// Renews the leases of a worker that has called, unless they were renewed just now.
    async fn renew_if_due(&self, org: OrgId, worker: WorkerId) -> Result<(), Status> {
        match self.workers.is_renewal_due(org, worker, self.storage().clock().now()) {
            true => self.renew_leases(org, worker).await,
            false => Ok(()),
        }
    }

    /// Renews the leases of all tasks that a worker holds, and of the runs that it still calls about.
    async fn renew_leases(&self, org: OrgId, worker: WorkerId) -> Result<(), Status> {
        let runs = self.workers.renewable_runs(org, worker, self.storage().clock().now());
        self.unfenced()?.keep_leases(org, worker, LEASE, runs).await.map_err(to_status)
    }
}

/// The worker that advances a run.
fn holder(run: &Execution) -> Option<WorkerId> {
    run.worker.filter(|_| matches!(run.status, RunStatus::Running | RunStatus::Cancelling))
}

impl Caller {
    /// Refuses a caller that may not take work of a queue.
    fn check_may_serve(&self, queue: &str) -> Result<(), Status> {
        if self.identity.serves(queue) {
            return Ok(());
        }
        Err(Status::permission_denied(format!("the token may not take work of the queue {queue:?}")))
    }
}
