//! The service `Worker`: the calls of workers.

use super::commit_memory::SMALL_COMMIT;
use super::hint_streams::{StreamName, UNNAMED_LEASE};
use super::lost_leases;
use super::streams::{ResponseStream, from_items, split_by_size, to_wire, until};
use super::{Grpc, refused, to_status};
use crate::access::Identity;
use crate::service::IDLE;
use flovyn_core::id::{ExecutionId, OrgId, TaskId, WorkerId};
use flovyn_core::model::{Chunk, CommitRequest, Lease, TaskReport};
use flovyn_core::payload::RowOf;
use flovyn_core::storage::{ClaimRequest, Heartbeat, Only, PAGE, WorkerInfo};
use flovyn_core::wire::v2::worker_server::Worker;
use flovyn_core::wire::{OfOrg, attach, id, raw, v2};
use flovyn_core::{Error, error::Code};
use futures::{StreamExt, stream};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status, Streaming};

/// Bytes of facts in one answer; the worker asks for more by another call.
const MAX_FACT_BYTES: usize = 2 << 20;
/// Bytes of one commit with all its attachments.
const MAX_COMMIT_BYTES: u64 = 128 << 20;
/// How long the parts of a commit may take to arrive.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(300);
/// The most that one claim takes, and the longest lease that it gets without a heartbeat, however much the worker asks for.
const MAX_CLAIMS: usize = 1_000;
const MAX_LEASE: Duration = Duration::from_secs(600);
/// Hints that wait for a slow worker. When there are more, it is told that anything may have changed.
const HINT_QUEUE: usize = 1_024;

fn need<T>(value: Option<T>, field: &str) -> Result<T, Status> {
    value.ok_or_else(|| Status::invalid_argument(format!("the field {field} is missing")))
}

fn claim(org: OrgId, worker: WorkerId, wire: v2::PollRequest) -> Result<ClaimRequest, Status> {
    let only = if wire.only.is_empty() { None } else { Some(id(&wire.only, "only").map_err(to_status)?) };
    Ok(ClaimRequest {
        org,
        worker,
        queue: wire.queue,
        kinds: wire.kinds.into(),
        limit: (wire.limit as usize).min(MAX_CLAIMS),
        ttl: Duration::from_micros(wire.ttl).min(MAX_LEASE),
        only: only.map(ExecutionId).map(if wire.family { Only::Family } else { Only::Run }),
    })
}

/// The claim of tasks that a commit has scheduled, for its sender.
fn claim_for_commit(commit: &CommitRequest, wanted: v2::WantedTasks) -> ClaimRequest {
    ClaimRequest {
        org: commit.org,
        worker: commit.lease.worker,
        queue: wanted.queue,
        kinds: wanted.kinds.into(),
        limit: (wanted.limit as usize).min(MAX_CLAIMS),
        ttl: Duration::from_micros(wanted.ttl).min(MAX_LEASE),
        only: Some(Only::Run(commit.execution)),
    }
}

/// Leaves out the news that would make an answer too long; the worker asks for them run by run.
fn limit_news(claims: &mut [v2::Claim]) {
    let mut room = MAX_FACT_BYTES;
    for claim in claims {
        let Some(news) = &claim.news else { continue };
        match room.checked_sub(bytes(&news.facts)) {
            Some(left) => room = left,
            None => claim.news = None,
        }
    }
}

fn bytes(facts: &[v2::Fact]) -> usize {
    facts.iter().map(prost::Message::encoded_len).sum()
}

impl Grpc {
    /// The org and the worker of a call about queues. Errors: `PermissionDenied` where the caller may not serve one of them.
    async fn authorize_queues<T>(
        &self,
        request: &Request<T>,
        worker: &[u8],
        queues: &[String],
    ) -> Result<(OrgId, WorkerId), Status> {
        let identity = self.identity(request)?;
        if let Some(queue) = queues.iter().find(|queue| !identity.serves(queue)) {
            self.service.refusals.log(&identity, &format!("the queue {queue:?}"));
            return Err(Status::permission_denied(format!("the token may not take work of the queue {queue:?}")));
        }
        self.authorize_worker(request, worker).await
    }

    /// The org and the worker of a call. Errors: `PermissionDenied` where the caller may not act for the worker.
    async fn authorize_worker<T>(&self, request: &Request<T>, worker: &[u8]) -> Result<(OrgId, WorkerId), Status> {
        let (org, who) = (self.org(request)?, self.identity(request)?);
        let worker = WorkerId(id(worker, "worker").map_err(to_status)?);
        self.service.check_may_act_for(&who, org, worker).await.map_err(refused)?;
        Ok((org, worker))
    }

    /// The org and the lease of a call. Errors: `PermissionDenied` where the caller may not act for its holder.
    async fn authorize_lease<T>(
        &self,
        request: &Request<T>,
        wire: &Option<v2::Lease>,
    ) -> Result<(OrgId, Lease), Status> {
        let (org, who) = (self.org(request)?, self.identity(request)?);
        let lease: Lease = need(wire.clone(), "lease")?.try_into().map_err(to_status)?;
        self.service.check_may_act_for(&who, org, lease.worker).await.map_err(refused)?;
        Ok((org, lease))
    }

    /// Waits for a hint of work, at most `wait`. False where it makes no sense to claim again: the caller did not want to wait, or
    /// the server stops.
    async fn wait_for_work(&self, wait: Duration, ready: impl Future<Output = ()>) -> bool {
        if wait.is_zero() {
            return false;
        }
        tokio::select! {
            _ = tokio::time::timeout(wait, ready) => true,
            () = self.service.stopped() => false,
        }
    }

    /// Refuses a large commit early when its sender cannot hold the run. Whether the sender still holds it is left to the store,
    /// which recognizes a commit that is sent again.
    async fn check_large_commit(
        &self,
        who: &Identity,
        org: OrgId,
        head: Option<&v2::CommitRequest>,
    ) -> Result<(), Status> {
        let head = need(head, "commit.request")?;
        let lease: Lease = need(head.lease.clone(), "lease")?.try_into().map_err(to_status)?;
        self.service.check_may_act_for(who, org, lease.worker).await.map_err(refused)?;
        let execution = ExecutionId(id(&head.execution, "execution").map_err(to_status)?);
        let run = self.service.storage.execution(org, execution).await.map_err(to_status)?;
        if run.epoch < lease.epoch {
            let message = format!("the run {execution} was never claimed {} times; claim it first", lease.epoch);
            return Err(to_status(Error::new(Code::LeaseLost, message)));
        }
        Ok(())
    }

    /// The hint stream that a caller names. The name counts within the caller's org.
    fn stream_name<T>(&self, request: &Request<T>, named: &[u8]) -> Result<Option<StreamName>, Status> {
        if named.is_empty() {
            return Ok(None);
        }
        Ok(Some((self.identity(request)?.own_org(), id(named, "link").map_err(to_status)?)))
    }
}

#[tonic::async_trait]
impl Worker for Grpc {
    type LoadSegmentStream = ResponseStream<v2::Segment>;
    type ReadRowsStream = ResponseStream<v2::ReadRowsResponse>;
    type FactsAfterStream = ResponseStream<v2::FactsAfterResponse>;
    type HintsStream = ResponseStream<v2::Hint>;

    async fn register(&self, request: Request<v2::RegisterRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, id) = self.authorize_queues(&request, &request.get_ref().worker, &request.get_ref().queues).await?;
        self.service.note_machine(&self.identity(&request)?, org).await;
        let wire = request.into_inner();
        let worker = WorkerInfo { org, id, name: wire.name, queues: wire.queues, elsewhere: true };
        self.service.storage.register_worker(worker).await.map_err(to_status)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn unregister(&self, request: Request<v2::UnregisterRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, worker) = self.authorize_worker(&request, &request.get_ref().worker).await?;
        self.hint_streams.detach_worker(org, worker);
        self.service.storage.unregister_worker(org, worker).await.map_err(to_status)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn heartbeat(
        &self,
        request: Request<v2::HeartbeatRequest>,
    ) -> Result<Response<v2::HeartbeatResponse>, Status> {
        let (org, worker) = self.authorize_worker(&request, &request.get_ref().worker).await?;
        let link = self.stream_name(&request, &request.get_ref().link)?;
        self.service.note_machine(&self.identity(&request)?, org).await;
        let wire = request.into_inner();
        let mut heartbeat = Heartbeat {
            org,
            worker,
            ttl: Duration::from_micros(wire.ttl),
            executions: Vec::with_capacity(wire.executions.len()),
            tasks: Vec::with_capacity(wire.tasks.len()),
            progress: Vec::with_capacity(wire.progress.len()),
        };
        if link.is_some_and(|link| self.hint_streams.attach_worker(link, org, worker)) {
            // The leases that the heartbeat names are renewed below.
            self.service.storage.cut_leases(org, worker, UNNAMED_LEASE).await.map_err(to_status)?;
        }
        for held in wire.executions {
            let execution = ExecutionId(id(&held.execution, "execution").map_err(to_status)?);
            heartbeat.executions.push((execution, held.epoch, held.known));
        }
        for held in wire.tasks {
            let task = TaskId(id(&held.task, "task").map_err(to_status)?);
            heartbeat.tasks.push((task, held.attempt, held.signed));
        }
        for report in wire.progress {
            let task = TaskId(id(&report.task, "task").map_err(to_status)?);
            heartbeat.progress.push((task, report.attempt, report.report));
        }
        let mut held: Vec<_> = heartbeat.executions.iter().map(|(run, _, known)| (*run, *known)).collect();
        let answer = self.service.storage.heartbeat(heartbeat).await.map_err(to_status)?;
        if !answer.lost_executions.is_empty() {
            held.retain(|(run, _)| answer.lost_executions.contains(run));
            tokio::spawn(lost_leases::report(
                self.service.storage.clone(),
                self.service.metrics.clone(),
                (org, worker),
                held,
            ));
        }
        Ok(Response::new(v2::HeartbeatResponse {
            lost_executions: answer.lost_executions.into_iter().map(|id| raw(id.0)).collect(),
            stale_executions: answer.stale_executions.into_iter().map(|id| raw(id.0)).collect(),
            cancelled_tasks: answer.cancelled_tasks.into_iter().map(|id| raw(id.0)).collect(),
        }))
    }

    async fn poll_agents(&self, request: Request<v2::PollRequest>) -> Result<Response<v2::PollAgentsResponse>, Status> {
        let poll = request.get_ref();
        let (org, worker) = self.authorize_queues(&request, &poll.worker, std::slice::from_ref(&poll.queue)).await?;
        let wire = request.into_inner();
        let wait = Duration::from_micros(wire.wait);
        let claim = claim(org, worker, wire)?;
        let mut ready = self.service.storage.hints().agents();
        let claim_now = || self.service.storage.claim_agents(claim.clone());
        let mut claims = claim_now().await.map_err(to_status)?;
        if claims.is_empty() && self.wait_for_work(wait, ready.changed()).await {
            claims = claim_now().await.map_err(to_status)?;
        }
        self.service.metrics.claimed("run", claims.len());
        let mut claims = to_wire(&claims);
        limit_news(&mut claims);
        Ok(Response::new(v2::PollAgentsResponse { claims }))
    }

    async fn poll_tasks(&self, request: Request<v2::PollRequest>) -> Result<Response<v2::PollTasksResponse>, Status> {
        let identity = self.identity(&request)?;
        let poll = request.get_ref();
        let (org, worker) = self.authorize_queues(&request, &poll.worker, std::slice::from_ref(&poll.queue)).await?;
        let wire = request.into_inner();
        let wait = Duration::from_micros(wire.wait);
        let claim = claim(org, worker, wire)?;
        let mut ready = self.service.storage.hints().tasks();
        let claim_now = || self.service.storage.claim_tasks(claim.clone());
        let mut tasks = claim_now().await.map_err(to_status)?;
        if tasks.is_empty() && self.wait_for_work(wait, ready.changed()).await {
            tasks = claim_now().await.map_err(to_status)?;
        }
        self.service.metrics.claimed("task", tasks.len());
        self.service.remember_task_queues(&identity, &tasks);
        Ok(Response::new(v2::PollTasksResponse { tasks: to_wire(&tasks) }))
    }

    async fn load_segment(
        &self,
        request: Request<v2::LoadSegmentRequest>,
    ) -> Result<Response<Self::LoadSegmentStream>, Status> {
        let (org, lease) = self.authorize_lease(&request, &request.get_ref().lease).await?;
        let execution = ExecutionId(id(&request.get_ref().execution, "execution").map_err(to_status)?);
        let segment = self.service.storage.load_segment(org, execution, lease).await.map_err(to_status)?;
        let first = v2::Segment {
            execution: Some((&segment.execution).into()),
            checkpoint: segment.checkpoint.as_ref().map(Into::into),
            high: segment.high,
            now: segment.now.0,
            ..Default::default()
        };
        let size = prost::Message::encoded_len;
        let ops = split_by_size(to_wire::<_, v2::RecordedOp>(&segment.tail), size);
        let facts = split_by_size(to_wire::<_, v2::Fact>(&segment.facts), prost::Message::encoded_len);
        let once = split_by_size(to_wire::<_, v2::OnceResult>(&segment.once), prost::Message::encoded_len);
        let mut parts = vec![first];
        parts.extend(ops.into_iter().map(|tail| v2::Segment { tail, ..Default::default() }));
        parts.extend(facts.into_iter().map(|facts| v2::Segment { facts, ..Default::default() }));
        parts.extend(once.into_iter().map(|once| v2::Segment { once, ..Default::default() }));
        Ok(Response::new(from_items(parts)))
    }

    async fn read_rows(&self, request: Request<v2::ReadRowsRequest>) -> Result<Response<Self::ReadRowsStream>, Status> {
        let (org, who) = (self.org(&request)?, self.identity(&request)?);
        let rows = request.into_inner().rows;
        if rows.len() > PAGE {
            return Err(Status::invalid_argument(format!(
                "{} values were asked for at once; ask for at most {PAGE}",
                rows.len()
            )));
        }
        let rows: Result<Vec<RowOf>, Error> = rows.into_iter().map(TryInto::try_into).collect();
        let rows = rows.map_err(to_status)?;
        for run in rows.iter().map(|row| row.execution).collect::<HashSet<_>>() {
            self.service.check_may_read(&who, org, run).await.map_err(refused)?;
        }
        let values = self.service.storage.read_rows(org, &rows).await.map_err(to_status)?;
        let pages = split_by_size(values, |value| value.len());
        Ok(Response::new(from_items(pages.into_iter().map(|values| v2::ReadRowsResponse { values }).collect())))
    }

    async fn commit(&self, request: Request<Streaming<v2::CommitPart>>) -> Result<Response<v2::CommitAnswer>, Status> {
        let (org, identity) = (self.org(&request)?, self.identity(&request)?);
        let mut stream = request.into_inner();
        let (mut whole, mut reservation) = (attach::Commit::default(), self.commit_memory.reservation(&identity));
        let silent = |_| Status::deadline_exceeded("the commit sent nothing for 30 s; send it again");
        let deadline = Instant::now() + COMMIT_TIMEOUT;
        while let Some(part) = timeout_at(deadline.min(Instant::now() + IDLE), stream.next()).await.map_err(silent)? {
            let before = whole.size();
            whole.push(part?, MAX_COMMIT_BYTES).map_err(to_status)?;
            if before <= SMALL_COMMIT && whole.size() > SMALL_COMMIT {
                self.check_large_commit(&identity, org, whole.head()).await?;
            }
            reservation.grow(whole.size()).map_err(to_status)?;
        }
        let mut wire = whole.finish().map_err(to_status)?;
        let wanted = wire.wanted.take().filter(|wanted| identity.serves(&wanted.queue));
        let mut commit = wire.into_model(org).map_err(to_status)?;
        self.service.check_may_act_for(&identity, org, commit.lease.worker).await.map_err(refused)?;
        self.service.route_children(&identity, &mut commit).await.map_err(to_status)?;
        let wanted = wanted.map(|wanted| claim_for_commit(&commit, wanted));
        let answer = self.service.storage.commit(commit).await.map_err(to_status)?;
        let mut wire = v2::CommitAnswer::from(&answer);
        if let Some(wanted) = wanted {
            // The commit is durable already: a failed claim only means that the worker polls for the tasks.
            match self.service.storage.claim_tasks(wanted).await {
                Ok(tasks) => {
                    self.service.remember_task_queues(&identity, &tasks);
                    wire.tasks = to_wire(&tasks);
                }
                Err(error) => tracing::debug!(%error, "a commit's answer brings no tasks along"),
            }
        }
        if bytes(&wire.facts) > MAX_FACT_BYTES {
            wire.facts.clear();
            wire.more = true;
        }
        Ok(Response::new(wire))
    }

    async fn facts_after(
        &self,
        request: Request<v2::FactsAfterRequest>,
    ) -> Result<Response<Self::FactsAfterStream>, Status> {
        let (org, who) = (self.org(&request)?, self.identity(&request)?);
        let wire = request.into_inner();
        let execution = ExecutionId(id(&wire.execution, "execution").map_err(to_status)?);
        self.service.check_may_read(&who, org, execution).await.map_err(refused)?;
        let (facts, high, purse) =
            self.service.storage.facts_after(org, execution, wire.after).await.map_err(to_status)?;
        let purse: Option<v2::Purse> = purse.as_ref().map(Into::into);
        let pages = split_by_size(to_wire::<_, v2::Fact>(&facts), prost::Message::encoded_len);
        let answer = |facts| v2::FactsAfterResponse { facts, high, purse };
        Ok(Response::new(from_items(pages.into_iter().map(answer).collect())))
    }

    async fn report_task(&self, request: Request<v2::ReportTaskRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, worker) = self.authorize_worker(&request, &request.get_ref().worker).await?;
        let wire = request.into_inner();
        let report = TaskReport {
            org,
            task: TaskId(id(&wire.task, "task").map_err(to_status)?),
            attempt: wire.attempt,
            worker,
            result: need(wire.result, "result")?.try_into().map_err(to_status)?,
        };
        self.service.storage.report_task(report).await.map_err(to_status)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn release(&self, request: Request<v2::ReleaseRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, lease) = self.authorize_lease(&request, &request.get_ref().lease).await?;
        let execution = ExecutionId(id(&request.get_ref().execution, "execution").map_err(to_status)?);
        self.service.storage.release(org, execution, lease).await.map_err(to_status)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn hints(&self, request: Request<v2::HintsRequest>) -> Result<Response<Self::HintsStream>, Status> {
        self.org(&request)?;
        let identity = self.identity(&request)?;
        let (link, ended) = (self.stream_name(&request, &request.get_ref().link)?, self.ended(&identity));
        let hints = self.service.storage.hints().clone();
        let (sender, receiver) = mpsc::channel::<v2::Hint>(HINT_QUEUE);
        let (runs, hints_lost) = (sender.clone(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let missed = hints_lost.clone();
        let listening = hints.listen(move |change| {
            let hint = match change {
                Some(change) if identity.org(Some(change.org)).is_none() => return,
                Some(change) => v2::Hint {
                    execution: raw(change.execution.0),
                    high: change.high,
                    ended: change.ended,
                    org: raw(change.org.0),
                    ..Default::default()
                },
                None => v2::Hint { everything: true, ..Default::default() },
            };
            if runs.try_send(hint).is_err() {
                missed.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let (mut agents, mut tasks, mut timers) = (hints.agents(), hints.tasks(), hints.timers());
        let mut stopping = self.service.stopping.clone();
        let (hint_streams, storage) = (self.hint_streams.clone(), self.service.storage.clone());
        link.inspect(|link| hint_streams.opened(*link));
        let follow = async move {
            loop {
                let hint = tokio::select! {
                    () = agents.changed() => v2::Hint { agents: true, ..Default::default() },
                    () = tasks.changed() => v2::Hint { tasks: true, ..Default::default() },
                    () = timers.changed() => v2::Hint { timers: true, ..Default::default() },
                    _ = stopping.wait_for(|stop| *stop) => return,
                    () = sender.closed() => break,
                };
                let everything = hints_lost.swap(false, std::sync::atomic::Ordering::Relaxed);
                if sender.send(v2::Hint { everything, ..hint }).await.is_err() {
                    break;
                }
            }
            drop(listening);
            if let Some(link) = link {
                hint_streams.closed(link, &*storage).await;
            }
        };
        tokio::spawn(follow);
        let sent = stream::unfold(receiver, |mut hints| async { Some((Ok(hints.recv().await?), hints)) });
        Ok(Response::new(until(sent, ended)))
    }

    async fn publish(&self, request: Request<v2::PublishRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, who) = (self.org(&request)?, self.identity(&request)?);
        let mut refused = None;
        for published in request.into_inner().chunks {
            let chunk: Chunk = need(published.chunk, "chunk")?.try_into().map_err(|error: Error| {
                to_status(Error::new(Code::InvalidArgument, format!("a preview was not taken: {}", error.message())))
            })?;
            if self.service.may_publish(&who, org, &chunk).await.map_err(to_status)? {
                self.service.chunks.publish(published.after, org, chunk);
            } else {
                refused = Some(chunk.execution);
            }
        }
        // Previews beside a refused one are published all the same: a worker sends those of many runs in one call.
        match refused {
            None => Ok(Response::new(v2::Empty {})),
            Some(run) => {
                let to_status =
                    format!("the token may not show previews of the run {run}: it is of no queue of the token's");
                Err(Status::permission_denied(to_status))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fits is brought, whatever stood before it and did not.
    #[test]
    fn news_are_brought_as_far_as_an_answer_has_room() {
        let claim = |size: Option<usize>| {
            let fact = |size| {
                let signal = v2::Signal { name: "a".repeat(size), ..v2::Signal::default() };
                v2::Fact { kind: Some(v2::fact::Kind::Signal(signal)), ..v2::Fact::default() }
            };
            let news = size.map(|size| v2::Facts { facts: vec![fact(size)] });
            v2::Claim { news, ..v2::Claim::default() }
        };
        let mut claims = [None, Some(MAX_FACT_BYTES / 2), Some(MAX_FACT_BYTES), Some(100), Some(0)].map(claim);
        limit_news(&mut claims);
        assert_eq!(claims.map(|claim| claim.news.is_some()), [false, true, false, true, true]);
    }
}
