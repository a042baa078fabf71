//! Polls: one run or one task at a time, held while there is none. What is claimed for a caller that has hung up
//! meanwhile is given back.

use super::held::{Held, Place, Step};
use super::{Adapter, Caller, LEASE, convert, workers};
use crate::grpc::told;
use crate::service::DEFINITION;
use flovyn_core::error::{Code, Result};
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::{
    AttemptResult, BatchEnd, Claim, ClaimedTask, Execution, Failure, Status as RunStatus, TaskReport,
};
use flovyn_core::storage::unfenced::{Serves, Work};
use flovyn_core::storage::{ClaimRequest, Storage};
use flovyn_core::streaming::Follow;
use flovyn_proto::v1;
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
const LONGEST: Duration = Duration::from_secs(60);
/// How often a poll looks for work that nobody has told it of.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Adapter {
    /// Claims a run for a worker.
    pub(super) async fn poll_agent(
        &self,
        caller: &Caller,
        peer: Option<SocketAddr>,
        wire: v1::PollAgentRequest,
    ) -> Result<v1::PollAgentResponse, Status> {
        let queue = queue(wire.queue);
        self.may_poll(caller, &queue)?;
        let worker = workers::worker(caller.org, &wire.worker_id);
        self.workers.met(caller.org, peer, worker);
        self.gives_sign(caller.org, worker).await?;
        let (until, mut ready) = (until(wire.timeout_seconds), self.storage().hints().agents());
        loop {
            let kinds = match wire.agent_capabilities.is_empty() {
                true => self.unfenced()?.waiting_kinds(caller.org, &queue, Work::Agents).await.map_err(told)?,
                false => wire.agent_capabilities.clone(),
            };
            let asked = claim(caller.org, worker, &queue, kinds);
            match self.claim_agent(asked).await? {
                Some(claim) => {
                    if let Some(agent_execution) = self.handed(claim).await? {
                        let traceparent = agent_execution.1;
                        return Ok(v1::PollAgentResponse { agent_execution: Some(agent_execution.0), traceparent });
                    }
                }
                None if !self.waits(&mut ready, until).await => return Ok(v1::PollAgentResponse::default()),
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
        let asked = claim(caller.org, worker, &run.new.queue, vec![run.new.kind.clone()]);
        let claimed = self.claim_agent(ClaimRequest { only: Some(run.new.id), ..asked }).await?;
        let handed = match claimed {
            Some(claim) => self.handed(claim).await?,
            None => None,
        };
        let success = handed.is_some();
        let (agent, traceparent) = handed.unzip();
        Ok(v1::ResumeAgentResponse { success, agent, traceparent: traceparent.unwrap_or_default() })
    }

    /// Claims a task for a worker: of the kinds it has registered, or, where that is unknown, of any.
    pub(super) async fn poll_task(
        &self,
        caller: &Caller,
        peer: Option<SocketAddr>,
        wire: v1::PollTaskRequest,
    ) -> Result<v1::PollTaskResponse, Status> {
        let queue = queue(wire.queue);
        self.may_poll(caller, &queue)?;
        let (worker, kinds) = self.task_worker(caller.org, peer, &wire.worker_id).await?;
        self.gives_sign(caller.org, worker).await?;
        let (until, mut ready) = (until(wire.timeout_seconds), self.storage().hints().tasks());
        loop {
            let kinds = match &kinds {
                Some(kinds) => kinds.clone(),
                None => self.unfenced()?.waiting_kinds(caller.org, &queue, Work::Tasks).await.map_err(told)?,
            };
            match self.claim_task(claim(caller.org, worker, &queue, kinds)).await? {
                Some(task) => {
                    if let Some(task) = self.handed_task(task).await? {
                        return Ok(v1::PollTaskResponse { task: Some(task) });
                    }
                }
                None if !self.waits(&mut ready, until).await => return Ok(v1::PollTaskResponse::default()),
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
        let known = unfenced.enrolled(org, own).await.map_err(told)?;
        if let Some(worker) = self.workers.of(org, peer).filter(|worker| *worker != own)
            && let Some(serves) = unfenced.enrolled(org, worker).await.map_err(told)?
        {
            let alias = Serves { known_as: Some(worker), ..serves };
            if known.as_ref() != Some(&alias) {
                // No other server, nor this one after a restart, sees the connection.
                unfenced.enroll(org, own, alias.clone()).await.map_err(told)?;
            }
            return Ok((worker, Some(alias.tasks)));
        }
        Ok(match known {
            Some(serves) => (serves.known_as.unwrap_or(own), Some(serves.tasks)),
            None => (own, None),
        })
    }

    /// Waits until there may be work; false when the poll has been held long enough.
    async fn waits(&self, ready: &mut Follow, until: Instant) -> bool {
        let look = until.min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            () = ready.changed() => true,
            () = tokio::time::sleep_until(look) => Instant::now() < until,
            () = self.service().stopped() => false,
        }
    }

    async fn claim_agent(&self, asked: ClaimRequest) -> Result<Option<Claim>, Status> {
        if asked.kinds.is_empty() {
            return Ok(None);
        }
        let storage = self.storage().clone();
        let claiming = async move { storage.claim_agents(asked).await };
        let storage = self.storage().clone();
        let give_back = move |claim: Claim| -> BoxFuture<'static, Result<()>> {
            let (org, run) = (claim.execution.new.org, claim.execution.new.id);
            Box::pin(async move { storage.release(org, run, claim.lease).await })
        };
        unless_gone(claiming, give_back).await
    }

    async fn claim_task(&self, asked: ClaimRequest) -> Result<Option<ClaimedTask>, Status> {
        if asked.kinds.is_empty() {
            return Ok(None);
        }
        let storage = self.storage().clone();
        let claiming = async move { storage.claim_tasks(asked).await };
        let storage = self.storage().clone();
        let give_back = move |claimed: ClaimedTask| -> BoxFuture<'static, Result<()>> {
            Box::pin(async move { report(&storage, &claimed, AttemptResult::Released).await })
        };
        unless_gone(claiming, give_back).await
    }

    /// A claimed run as its worker gets it. One that was asked to stop ends here, because its worker cannot be told to tidy
    /// up, and so does one that no message can carry.
    async fn handed(&self, claim: Claim) -> Result<Option<(v1::AgentExecutionInfo, String)>, Status> {
        let run = claim.execution;
        let next = (run.base == 0 && run.forked_from.is_none()).then_some(0);
        let (base, epoch, segment, known) = (run.base, run.epoch, run.segment, claim.high);
        self.places.set(&run, Place { base, epoch, segment, next, known });
        self.workers.heard_of(run.new.org, claim.lease.worker, run.new.id, self.storage().clock().now());
        let held = Held { run, lease: claim.lease };
        let run = &held.run;
        if run.status == RunStatus::Cancelling {
            self.commit(&held, Step::end(BatchEnd::Cancelled(None))).await?;
            return Ok(None);
        }
        if !convert::fits(run.new.input.size()) {
            let error = convert::too_large("the input", run.new.input.size());
            let failure = Failure::new(error.code(), error.code().as_str(), error.message());
            self.commit(&held, Step::end(BatchEnd::Fail(failure))).await?;
            return Ok(None);
        }
        match self.info(run).await {
            Ok(info) => Ok(Some((info, run.new.traceparent.clone().unwrap_or_default()))),
            Err(status) => {
                self.storage().release(run.new.org, run.new.id, held.lease).await.map_err(told)?;
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

    /// A claimed task as its worker gets it. One that no message can carry fails here.
    async fn handed_task(&self, claimed: ClaimedTask) -> Result<Option<v1::TaskExecutionInfo>, Status> {
        let task = &claimed.task;
        if !convert::fits(task.new.input.size()) {
            let error = convert::too_large("the input", task.new.input.size());
            let failure = Failure::new(error.code(), error.code().as_str(), error.message());
            let result = AttemptResult::Failed { failure, retryable: false, pause: None };
            report(self.storage(), &claimed, result).await.map_err(told)?;
            return Ok(None);
        }
        let input = match self.bytes(task.org, &task.new.input).await {
            Ok(input) => input,
            Err(status) => {
                report(self.storage(), &claimed, AttemptResult::Released).await.map_err(told)?;
                return Err(status);
            }
        };
        // A trace that cannot be told costs the task nothing.
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

/// Claims apart from the call: a caller that hangs up while the claim is made would leave what was claimed with nobody.
async fn unless_gone<T: Send + 'static>(
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
    receiver.await.map_err(gone)?.map_err(told)
}

fn claim(org: OrgId, worker: WorkerId, queue: &str, kinds: Vec<String>) -> ClaimRequest {
    let queue = queue.to_owned();
    ClaimRequest { org, worker, queue, kinds: kinds.into(), limit: 1, ttl: LEASE, only: None::<ExecutionId> }
}

fn queue(named: String) -> String {
    if named.is_empty() { "default".into() } else { named }
}

fn until(seconds: i64) -> Instant {
    let asked = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    Instant::now() + asked.min(LONGEST)
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
        // Somebody cancelled it meanwhile.
        Err(error) if error.code() == Code::LeaseLost => Ok(()),
        answer => answer,
    }
}
