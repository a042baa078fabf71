//! `flovyn.v1` over gRPC: what its workers ask, in terms of the storage contract.
//!
//! A call of theirs carries no lease, so the server holds it: all leases of a worker last [`LEASE`] from its last sign, and
//! every call of it is one. Each call looks at the run's row and commits one batch as the run's holder; where something was written between the look and the
//! commit, it looks again. All that counts is in rows: any replica may serve any call, and what is remembered here
//! ([`Places`], [`Views`], [`Workers`]) only saves reads.

mod agents;
mod checkpoints;
mod children;
mod claims;
mod convert;
mod entries;
mod glob;
mod held;
mod lifecycle;
mod shown;
mod signals;
mod suspend;
mod tasks;
mod work;
mod workers;

use self::held::Places;
use self::shown::Views;
use self::workers::Workers;
use super::{Grpc, told};
use crate::Identity;
use crate::service::Service;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::{Execution, Status as RunStatus};
use flovyn_core::storage::{Storage, Unfenced};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Status};

/// How long leases last from the last sign of their worker, which gives one every 30 s, the first after 30 s.
const LEASE: Duration = Duration::from_secs(90);

/// The adapter; clones share it.
#[derive(Clone)]
pub(super) struct V1(Arc<Adapter>);

/// What the three services share.
pub(super) struct Adapter {
    grpc: Grpc,
    places: Places,
    views: Views,
    workers: Workers,
}

/// Who calls, for which org.
struct Caller {
    org: OrgId,
    identity: Identity,
}

impl V1 {
    /// The adapter over a backend.
    pub(super) fn over(grpc: Grpc) -> Self {
        let (places, views, workers) = (Places::default(), Views::default(), Workers::default());
        Self(Arc::new(Adapter { grpc, places, views, workers }))
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
        &self.grpc.0
    }

    fn storage(&self) -> &Arc<dyn Storage> {
        &self.service().storage
    }

    fn unfenced(&self) -> Result<&dyn Unfenced, Status> {
        let missing = || Status::unimplemented("the backend behind this server does not serve flovyn.v1");
        self.storage().unfenced().ok_or_else(missing)
    }

    /// Who makes a call that names no org.
    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        Ok(Caller { org: self.grpc.org(request)?, identity: self.grpc.identity(request)? })
    }

    /// Who makes a call whose body names an org, by id or slug: that of the token.
    async fn caller_of<T>(&self, request: &Request<T>, named: &str) -> Result<Caller, Status> {
        let caller = self.caller(request)?;
        if named.is_empty() {
            return Ok(caller);
        }
        let org = self.service().org_named(named).await.map_err(told)?;
        match org.and_then(|org| caller.identity.org(Some(org))) {
            Some(org) => Ok(Caller { org, ..caller }),
            None => Err(Status::permission_denied(format!("the token is not of the org {named:?}; name its own"))),
        }
    }

    /// A run of the caller's org and of a queue that it may serve. A call about it is a sign of whoever advances it.
    async fn run(&self, caller: &Caller, id: &str) -> Result<Execution, Status> {
        let id = ExecutionId(convert::uuid(id, "agent_execution_id")?);
        let run = self.storage().execution(caller.org, id).await.map_err(told)?;
        caller.may_serve(&run.new.queue)?;
        self.was_called_about(&run).await?;
        Ok(run)
    }

    /// Refuses a worker that asks for work of a queue which its key does not serve.
    fn may_poll(&self, caller: &Caller, queue: &str) -> Result<(), Status> {
        let may = caller.may_serve(queue);
        if may.is_err() {
            self.service().refusals.tell(&caller.identity, &format!("the queue {queue:?}"));
        }
        may
    }

    /// Renews the leases of whoever advances a run that a call is about, if that was not done just now.
    async fn was_called_about(&self, run: &Execution) -> Result<(), Status> {
        let Some(worker) = holder(run) else { return Ok(()) };
        let (org, now) = (run.new.org, self.storage().clock().now());
        if self.workers.heard_of(org, worker, run.new.id, now) {
            return self.keep_leases(org, worker).await;
        }
        self.gives_sign(org, worker).await
    }

    /// Renews the leases of a worker that gives a sign, if that was not done just now.
    async fn gives_sign(&self, org: OrgId, worker: WorkerId) -> Result<(), Status> {
        match self.workers.is_due(org, worker, self.storage().clock().now()) {
            true => self.keep_leases(org, worker).await,
            false => Ok(()),
        }
    }

    /// Renews the leases of all tasks that a worker holds, and of the runs that it has not forgotten.
    async fn keep_leases(&self, org: OrgId, worker: WorkerId) -> Result<(), Status> {
        let runs = self.workers.sign_of(org, worker, self.storage().clock().now());
        self.unfenced()?.keep_leases(org, worker, LEASE, runs).await.map_err(told)
    }
}

/// The worker that advances a run.
fn holder(run: &Execution) -> Option<WorkerId> {
    run.worker.filter(|_| matches!(run.status, RunStatus::Running | RunStatus::Cancelling))
}

impl Caller {
    /// Refuses who may not take work of a queue.
    fn may_serve(&self, queue: &str) -> Result<(), Status> {
        if self.identity.serves(queue) {
            return Ok(());
        }
        Err(Status::permission_denied(format!("the token may not take work of the queue {queue:?}")))
    }
}
