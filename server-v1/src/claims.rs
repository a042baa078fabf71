//! Polls: each claims one run or one task, and waits while there is none. What was claimed for a caller that has disconnected
//! meanwhile is given back.

use super::leased_run::{CommitPlan, JournalPosition, LeasedRun};
use super::{Adapter, Caller, LEASE, convert, workers};
use flovyn_core::error::{Code, Result};
use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::model::{
    AttemptResult, BatchEnd, Claim, ClaimedTask, Execution, Failure, Status as RunStatus, TaskReport,
};
use flovyn_core::storage::unfenced::{Serves, Work};
use flovyn_core::storage::{ClaimRequest, Only, Storage};
use flovyn_core::streaming::Follow;
use flovyn_proto::v1;
use flovyn_server::protocol::DEFINITION;
use flovyn_server::protocol::to_status;
use futures::future::BoxFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;
use tracing::warn;
use uuid::Uuid;

/// The longest a poll is held.
const MAX_POLL: Duration = Duration::from_secs(60);
/// How often a poll tries to claim without a hint.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Adapter {
    /// Claims a run for a worker.
    pub(super) async fn poll_agent(
        &self,
        caller: &Caller,
        peer: Option<SocketAddr>,
        wire: v1::PollAgentRequest,
    ) -> Result<v1::PollAgentResponse, Status> {
        let queue = queue(wire.queue);
        self.check_may_poll(caller, &queue)?;
        let worker = workers::worker(caller.org, &wire.worker_id);
        self.workers.remember_peer(caller.org, peer, worker);
        self.renew_if_due(caller.org, worker).await?;
        let (until, mut ready) = (until(wire.timeout_seconds), self.storage().hints().agents());
        loop {
            let kinds = match wire.agent_capabilities.is_empty() {
                true => self.unfenced()?.waiting_kinds(caller.org, &queue, Work::Agents).await.map_err(to_status)?,
                false => wire.agent_capabilities.clone(),
            };
            let request = claim(caller.org, worker, &queue, kinds);
            match self.claim_agent(request).await? {
                Some(claim) => {
                    if let Some(agent_execution) = self.agent_info(claim).await? {
                        let traceparent = agent_execution.1;
                        return Ok(v1::PollAgentResponse { agent_execution: Some(agent_execution.0), traceparent });
                    }
                }
                None if !self.wait_for_work(&mut ready, until).await => return Ok(v1::PollAgentResponse::default()),
                None => {}
            }
        }
    }

    /// Claims one run by its id.
    pub(super) async fn resume(
        &self,
        caller: &Caller,
        wire: v1::ResumeAgentRequest,
    ) -> Result<v1::ResumeAgentResponse, Status> {
        let run = self.run(caller, &wire.agent_execution_id).await?;
        let worker = workers::worker(caller.org, &wire.worker_id);
        let request = claim(caller.org, worker, &run.new.queue, vec![run.new.kind.clone()]);
        let claimed = self.claim_agent(ClaimRequest { only: Some(Only::Run(run.new.id)), ..request }).await?;
        let handed = match claimed {
            Some(claim) => self.agent_info(claim).await?,
            None => None,
        };
        let success = handed.is_some();
        let (agent, traceparent) = handed.unzip();
        Ok(v1::ResumeAgentResponse { success, agent, traceparent: traceparent.unwrap_or_default() })
    }

    /// Claims a task for a worker: of the kinds it has registered, or of any kind where those are unknown.
    pub(super) async fn poll_task(
        &self,
        caller: &Caller,
        peer: Option<SocketAddr>,
        wire: v1::PollTaskRequest,
    ) -> Result<v1::PollTaskResponse, Status> {
        let queue = queue(wire.queue);
        self.check_may_poll(caller, &queue)?;
        let (worker, kinds) = self.task_worker(caller.org, peer, &wire.worker_id).await?;
        self.renew_if_due(caller.org, worker).await?;
        let (until, mut ready) = (until(wire.timeout_seconds), self.storage().hints().tasks());
        loop {
            let kinds = match &kinds {
                Some(kinds) => kinds.clone(),
                None => self.unfenced()?.waiting_kinds(caller.org, &queue, Work::Tasks).await.map_err(to_status)?,
            };
            match self.claim_task(claim(caller.org, worker, &queue, kinds)).await? {
                Some(task) => {
                    if let Some(task) = self.task_info(task).await? {
                        return Ok(v1::PollTaskResponse { task: Some(task) });
                    }
                }
                None if !self.wait_for_work(&mut ready, until).await => return Ok(v1::PollTaskResponse::default()),
                None => {}
            }
        }
    }

    /// The worker that polls for tasks under an id of its own, and what it has registered.
    async fn task_worker(
        &self,
        org: OrgId,
        peer: Option<SocketAddr>,
        named: &str,
    ) -> Result<(WorkerId, Option<Vec<String>>), Status> {
        let unfenced = self.unfenced()?;
        let own = workers::worker(org, named);
        let known = unfenced.enrolled(org, own).await.map_err(to_status)?;
        if let Some(worker) = self.workers.of_connection(org, peer).filter(|worker| *worker != own)
            && let Some(serves) = unfenced.enrolled(org, worker).await.map_err(to_status)?
        {
            let alias = Serves { known_as: Some(worker), ..serves };
            if known.as_ref() != Some(&alias) {
                // Stored, because other servers, and this one after a restart, do not see the connection.
                unfenced.enroll(org, own, alias.clone()).await.map_err(to_status)?;
            }
            return Ok((worker, Some(alias.tasks)));
        }
        Ok(match known {
            Some(serves) => (serves.known_as.unwrap_or(own), Some(serves.tasks)),
            None => (own, None),
        })
    }

    /// Waits until there may be work; false when the poll has been held long enough.
    async fn wait_for_work(&self, ready: &mut Follow, until: Instant) -> bool {
        let recheck_at = until.min(Instant::now() + RECHECK_INTERVAL);
        tokio::select! {
            () = ready.changed() => true,
            () = tokio::time::sleep_until(recheck_at) => Instant::now() < until,
            () = self.service().stopped() => false,
        }
    }

    async fn claim_agent(&self, request: ClaimRequest) -> Result<Option<Claim>, Status> {
        if request.kinds.is_empty() {
            return Ok(None);
        }
        let storage = self.storage().clone();
        let claiming = async move { storage.claim_agents(request).await };
        let storage = self.storage().clone();
        let give_back = move |claim: Claim| -> BoxFuture<'static, Result<()>> {
            let (org, run) = (claim.execution.new.org, claim.execution.new.id);
            Box::pin(async move { storage.release(org, run, claim.lease).await })
        };
        claim_detached(claiming, give_back).await
    }

    async fn claim_task(&self, request: ClaimRequest) -> Result<Option<ClaimedTask>, Status> {
        if request.kinds.is_empty() {
            return Ok(None);
        }
        let storage = self.storage().clone();
        let claiming = async move { storage.claim_tasks(request).await };
        let storage = self.storage().clone();
        let give_back = move |claimed: ClaimedTask| -> BoxFuture<'static, Result<()>> {
            Box::pin(async move { report(&storage, &claimed, AttemptResult::Released).await })
        };
        claim_detached(claiming, give_back).await
    }

    /// A claimed run in its form on the wire. A run that is being cancelled ends here, because the protocol cannot ask its worker
    /// to clean up; a run whose input exceeds a message fails here.
    async fn agent_info(&self, claim: Claim) -> Result<Option<(v1::AgentExecutionInfo, String)>, Status> {
        let run = claim.execution;
        let next = (run.base == 0 && run.forked_from.is_none()).then_some(0);
        let (base, epoch, segment, known) = (run.base, run.epoch, run.segment, claim.high);
        self.positions.set(&run, JournalPosition { base, epoch, segment, next, known });
        self.workers.record_call(run.new.org, claim.lease.worker, run.new.id, self.storage().clock().now());
        let leased = LeasedRun { run, lease: claim.lease };
        let run = &leased.run;
        if run.status == RunStatus::Cancelling {
            self.commit(&leased, CommitPlan::end(BatchEnd::Cancelled(None))).await?;
            return Ok(None);
        }
        if !convert::fits(run.new.input.size()) {
            let error = convert::too_large("the input", run.new.input.size());
            let failure = Failure::new(error.code(), error.code().as_str(), error.message());
            self.commit(&leased, CommitPlan::end(BatchEnd::Fail(failure))).await?;
            return Ok(None);
        }
        match self.info(run).await {
            Ok(info) => Ok(Some((info, run.new.traceparent.clone().unwrap_or_default()))),
            Err(status) => {
                self.storage().release(run.new.org, run.new.id, leased.lease).await.map_err(to_status)?;
                Err(status)
            }
        }
    }

    async fn info(&self, run: &Execution) -> Result<v1::AgentExecutionInfo, Status> {
        let new = &run.new;
        let local = new.metadata.get("mode").is_some_and(|mode| mode == "LOCAL");
        Ok(v1::AgentExecutionInfo {
            id: new.id.to_string(),
            kind: new.kind.clone(),
            org_id: new.org.to_string(),
            input: self.bytes(new.org, &new.input).await?,
            queue: new.queue.clone(),
            created_at_ms: convert::millis(run.created_at),
            current_checkpoint_seq: if run.segment == 0 { -1 } else { convert::int(run.segment) },
            persistence_mode: if local { "LOCAL" } else { "REMOTE" }.into(),
            agent_definition_id: new.metadata.get(DEFINITION).filter(|id| Uuid::parse_str(id).is_ok()).cloned(),
            worker_pool_id: None,
            metadata: serde_json::to_vec(&new.metadata).unwrap_or_default().into(),
            parent_execution_id: run.parent.map(|parent| parent.to_string()),
        })
    }

    /// A claimed task in its form on the wire. A task whose input exceeds a message fails here.
    async fn task_info(&self, claimed: ClaimedTask) -> Result<Option<v1::TaskExecutionInfo>, Status> {
        let task = &claimed.task;
        if !convert::fits(task.new.input.size()) {
            let error = convert::too_large("the input", task.new.input.size());
            let failure = Failure::new(error.code(), error.code().as_str(), error.message());
            let result = AttemptResult::Failed { failure, retryable: false, pause: None };
            report(self.storage(), &claimed, result).await.map_err(to_status)?;
            return Ok(None);
        }
        let input = match self.bytes(task.org, &task.new.input).await {
            Ok(input) => input,
            Err(status) => {
                report(self.storage(), &claimed, AttemptResult::Released).await.map_err(to_status)?;
                return Err(status);
            }
        };
        // Without its run the task only lacks a trace context.
        let run = self.storage().execution(task.org, task.execution).await.ok();
        let traceparent = run.and_then(|run| run.new.traceparent).unwrap_or_default();
        Ok(Some(v1::TaskExecutionInfo {
            task_execution_id: task.new.id.to_string(),
            kind: task.new.kind.clone(),
            input,
            workflow_execution_id: String::new(),
            execution_count: convert::int(task.attempt),
            queue: task.new.queue.clone(),
            worker_pool_id: None,
            traceparent,
        }))
    }
}

/// Claims in a task of its own: if the call were cancelled during the claim, nobody would hold what was claimed.
async fn claim_detached<T: Send + 'static>(
    claiming: impl Future<Output = Result<Vec<T>>> + Send + 'static,
    give_back: impl FnOnce(T) -> BoxFuture<'static, Result<()>> + Send + 'static,
) -> Result<Option<T>, Status> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let claimed = claiming.await.map(|claimed| claimed.into_iter().next());
        if let Err(Ok(Some(claimed))) = sender.send(claimed)
            && let Err(error) = give_back(claimed).await
        {
            warn!(%error, "what was claimed for a caller that hung up could not be given back; its lease will end");
        }
    });
    let gone = |_| Status::unavailable("the server is stopping; poll again");
    receiver.await.map_err(gone)?.map_err(to_status)
}

fn claim(org: OrgId, worker: WorkerId, queue: &str, kinds: Vec<String>) -> ClaimRequest {
    let queue = queue.to_owned();
    ClaimRequest { org, worker, queue, kinds: kinds.into(), limit: 1, ttl: LEASE, only: None }
}

fn queue(named: String) -> String {
    if named.is_empty() { "default".into() } else { named }
}

fn until(seconds: i64) -> Instant {
    let timeout = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    Instant::now() + timeout.min(MAX_POLL)
}

async fn report(storage: &Arc<dyn Storage>, claimed: &ClaimedTask, result: AttemptResult) -> Result<()> {
    let task = &claimed.task;
    let report = TaskReport {
        org: task.org,
        task: task.new.id,
        attempt: task.attempt,
        worker: task.worker.unwrap_or_default(),
        result,
    };
    match storage.report_task(report).await {
        // The task was cancelled meanwhile.
        Err(error) if error.code() == Code::LeaseLost => Ok(()),
        answer => answer,
    }
}
