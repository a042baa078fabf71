//! The calls of workers.

use super::links::LinkName;
use super::lost;
use super::room::SMALL;
use super::streams::{Answers, all, cut, pages, wired};
use super::{Grpc, told};
use crate::Identity;
use crate::service::IDLE;
use flovyn_core::id::{ExecutionId, OrgId, TaskId, WorkerId};
use flovyn_core::model::{Chunk, CommitRequest, Fact, Lease, TaskReport};
use flovyn_core::payload::RowOf;
use flovyn_core::storage::{ClaimRequest, Heartbeat, PAGE, WorkerInfo};
use flovyn_core::wire::v2::worker_server::Worker;
use flovyn_core::wire::{OfOrg, attach, id, raw, v2};
use flovyn_core::{Error, error::Code};
use futures::{StreamExt, stream};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status, Streaming};

/// Facts of a commit's answer in bytes; more are asked for.
const FACTS: usize = 2 << 20;
/// Bytes of one commit with all its attachments.
const COMMIT: u64 = 128 << 20;
/// How long a commit may take to come.
const WHOLE: Duration = Duration::from_secs(300);
/// However much a worker asks for, a claim has at most so many, and holds them at most so long without a sign of life.
const CLAIMED: usize = 1_000;
const HELD: Duration = Duration::from_secs(600);
/// Hints that wait for a slow worker; after that it is told to look at everything.
const HINTS: usize = 1_024;

fn need<T>(value: Option<T>, field: &str) -> Result<T, Status> {
    value.ok_or_else(|| Status::invalid_argument(format!("the field {field} is missing")))
}

fn claim(org: OrgId, worker: WorkerId, wire: v2::PollRequest) -> Result<ClaimRequest, Status> {
    let only = if wire.only.is_empty() { None } else { Some(id(&wire.only, "only").map_err(told)?) };
    Ok(ClaimRequest {
        org,
        worker,
        queue: wire.queue,
        kinds: wire.kinds.into(),
        limit: (wire.limit as usize).min(CLAIMED),
        ttl: Duration::from_micros(wire.ttl).min(HELD),
        only: only.map(ExecutionId),
    })
}

/// The claim of a commit's sender for tasks of its batch.
fn wanted_by(commit: &CommitRequest, wanted: v2::WantedTasks) -> ClaimRequest {
    ClaimRequest {
        org: commit.org,
        worker: commit.lease.worker,
        queue: wanted.queue,
        kinds: wanted.kinds.into(),
        limit: (wanted.limit as usize).min(CLAIMED),
        ttl: Duration::from_micros(wanted.ttl).min(HELD),
        only: Some(commit.execution),
    }
}

impl Grpc {
    /// The org and the worker of a call about queues, all of which the caller may serve.
    async fn of_queues<T>(
        &self,
        request: &Request<T>,
        worker: &[u8],
        queues: &[String],
    ) -> Result<(OrgId, WorkerId), Status> {
        let identity = self.identity(request)?;
        if let Some(queue) = queues.iter().find(|queue| !identity.serves(queue)) {
            self.0.refusals.tell(&identity, &format!("the queue {queue:?}"));
            return Err(Status::permission_denied(format!("the token may not take work of the queue {queue:?}")));
        }
        self.of_worker(request, worker).await
    }

    /// The org and the worker of a call, for which the caller may act.
    async fn of_worker<T>(&self, request: &Request<T>, worker: &[u8]) -> Result<(OrgId, WorkerId), Status> {
        let (org, who) = (self.org(request)?, self.identity(request)?);
        let worker = WorkerId(id(worker, "worker").map_err(told)?);
        self.acts_for(&who, org, worker).await?;
        Ok((org, worker))
    }

    /// The org and the lease of a call, for whose holder the caller may act.
    async fn of_lease<T>(&self, request: &Request<T>, wire: &Option<v2::Lease>) -> Result<(OrgId, Lease), Status> {
        let (org, who) = (self.org(request)?, self.identity(request)?);
        let lease: Lease = need(wire.clone(), "lease")?.try_into().map_err(told)?;
        self.acts_for(&who, org, lease.worker).await?;
        Ok((org, lease))
    }

    /// Waits for work, at most so long. False where nobody is to look for it: the caller did not want to wait, or the
    /// server ends.
    async fn waited(&self, wait: Duration, ready: impl Future<Output = ()>) -> bool {
        if wait.is_zero() {
            return false;
        }
        tokio::select! {
            _ = tokio::time::timeout(wait, ready) => true,
            () = self.0.stopped() => false,
        }
    }

    /// Refuses a large commit, before more of it is taken, whose sender cannot be the one that has the run. Whether it still is,
    /// the store decides, which knows a commit that is sent again.
    async fn may_be_held(&self, who: &Identity, org: OrgId, head: Option<&v2::CommitRequest>) -> Result<(), Status> {
        let head = need(head, "commit.request")?;
        let lease: Lease = need(head.lease.clone(), "lease")?.try_into().map_err(told)?;
        self.acts_for(who, org, lease.worker).await?;
        let execution = ExecutionId(id(&head.execution, "execution").map_err(told)?);
        let run = self.0.storage.execution(org, execution).await.map_err(told)?;
        if run.epoch < lease.epoch {
            let message = format!("the run {execution} was never claimed {} times; claim it first", lease.epoch);
            return Err(told(Error::new(Code::LeaseLost, message)));
        }
        Ok(())
    }

    /// The stream of hints that a caller names: another caller's of the same name is another one.
    fn link<T>(&self, request: &Request<T>, named: &[u8]) -> Result<Option<LinkName>, Status> {
        if named.is_empty() {
            return Ok(None);
        }
        Ok(Some((self.identity(request)?.own_org(), id(named, "link").map_err(told)?)))
    }
}

#[tonic::async_trait]
impl Worker for Grpc {
    type LoadSegmentStream = Answers<v2::Segment>;
    type ReadRowsStream = Answers<v2::ReadRowsResponse>;
    type FactsAfterStream = Answers<v2::FactsAfterResponse>;
    type HintsStream = Answers<v2::Hint>;

    async fn register(&self, request: Request<v2::RegisterRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, id) = self.of_queues(&request, &request.get_ref().worker, &request.get_ref().queues).await?;
        let wire = request.into_inner();
        let worker = WorkerInfo { org, id, name: wire.name, queues: wire.queues, elsewhere: true };
        self.0.storage.register_worker(worker).await.map_err(told)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn unregister(&self, request: Request<v2::UnregisterRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, worker) = self.of_worker(&request, &request.get_ref().worker).await?;
        self.1.left(org, worker);
        self.0.storage.unregister_worker(org, worker).await.map_err(told)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn heartbeat(
        &self,
        request: Request<v2::HeartbeatRequest>,
    ) -> Result<Response<v2::HeartbeatResponse>, Status> {
        let (org, worker) = self.of_worker(&request, &request.get_ref().worker).await?;
        let link = self.link(&request, &request.get_ref().link)?;
        let wire = request.into_inner();
        let mut beat = Heartbeat {
            org,
            worker,
            ttl: Duration::from_micros(wire.ttl),
            executions: Vec::with_capacity(wire.executions.len()),
            tasks: Vec::with_capacity(wire.tasks.len()),
            progress: Vec::with_capacity(wire.progress.len()),
        };
        if let Some(link) = link {
            self.1.hangs_on(link, org, beat.worker);
        }
        for held in wire.executions {
            let execution = ExecutionId(id(&held.execution, "execution").map_err(told)?);
            beat.executions.push((execution, held.epoch, held.known));
        }
        for held in wire.tasks {
            let task = TaskId(id(&held.task, "task").map_err(told)?);
            beat.tasks.push((task, held.attempt, held.signed));
        }
        for told_by in wire.progress {
            let task = TaskId(id(&told_by.task, "task").map_err(told)?);
            beat.progress.push((task, told_by.attempt, told_by.report));
        }
        let mut held: Vec<_> = beat.executions.iter().map(|(run, _, known)| (*run, *known)).collect();
        let answer = self.0.storage.heartbeat(beat).await.map_err(told)?;
        if !answer.lost_executions.is_empty() {
            held.retain(|(run, _)| answer.lost_executions.contains(run));
            tokio::spawn(lost::tell(self.0.storage.clone(), self.0.metrics.clone(), (org, worker), held));
        }
        Ok(Response::new(v2::HeartbeatResponse {
            lost_executions: answer.lost_executions.into_iter().map(|id| raw(id.0)).collect(),
            stale_executions: answer.stale_executions.into_iter().map(|id| raw(id.0)).collect(),
            cancelled_tasks: answer.cancelled_tasks.into_iter().map(|id| raw(id.0)).collect(),
        }))
    }

    async fn poll_agents(&self, request: Request<v2::PollRequest>) -> Result<Response<v2::PollAgentsResponse>, Status> {
        let asked = request.get_ref();
        let (org, worker) = self.of_queues(&request, &asked.worker, std::slice::from_ref(&asked.queue)).await?;
        let wire = request.into_inner();
        let wait = Duration::from_micros(wire.wait);
        let claim = claim(org, worker, wire)?;
        let mut ready = self.0.storage.hints().agents();
        let claim_now = || self.0.storage.claim_agents(claim.clone());
        let mut claims = claim_now().await.map_err(told)?;
        if claims.is_empty() && self.waited(wait, ready.changed()).await {
            claims = claim_now().await.map_err(told)?;
        }
        self.0.metrics.claimed("run", claims.len());
        // What would make the answer long is asked for run by run.
        let mut room = FACTS;
        for claim in &mut claims {
            let size = |facts: &Vec<Fact>| wired::<_, v2::Fact>(facts).iter().map(prost::Message::encoded_len).sum();
            let left = claim.news.as_ref().map(size).and_then(|size: usize| room.checked_sub(size));
            claim.news = claim.news.take().filter(|_| left.is_some());
            room = left.unwrap_or(room);
        }
        Ok(Response::new(v2::PollAgentsResponse { claims: wired(&claims) }))
    }

    async fn poll_tasks(&self, request: Request<v2::PollRequest>) -> Result<Response<v2::PollTasksResponse>, Status> {
        let identity = self.identity(&request)?;
        let asked = request.get_ref();
        let (org, worker) = self.of_queues(&request, &asked.worker, std::slice::from_ref(&asked.queue)).await?;
        let wire = request.into_inner();
        let wait = Duration::from_micros(wire.wait);
        let claim = claim(org, worker, wire)?;
        let mut ready = self.0.storage.hints().tasks();
        let claim_now = || self.0.storage.claim_tasks(claim.clone());
        let mut tasks = claim_now().await.map_err(told)?;
        if tasks.is_empty() && self.waited(wait, ready.changed()).await {
            tasks = claim_now().await.map_err(told)?;
        }
        self.0.metrics.claimed("task", tasks.len());
        self.handed(&identity, &tasks);
        Ok(Response::new(v2::PollTasksResponse { tasks: wired(&tasks) }))
    }

    async fn load_segment(
        &self,
        request: Request<v2::LoadSegmentRequest>,
    ) -> Result<Response<Self::LoadSegmentStream>, Status> {
        let (org, lease) = self.of_lease(&request, &request.get_ref().lease).await?;
        let execution = ExecutionId(id(&request.get_ref().execution, "execution").map_err(told)?);
        let segment = self.0.storage.load_segment(org, execution, lease).await.map_err(told)?;
        let first = v2::Segment {
            execution: Some((&segment.execution).into()),
            checkpoint: segment.checkpoint.as_ref().map(Into::into),
            high: segment.high,
            now: segment.now.0,
            ..Default::default()
        };
        let size = prost::Message::encoded_len;
        let ops = pages(wired::<_, v2::RecordedOp>(&segment.tail), size);
        let facts = pages(wired::<_, v2::Fact>(&segment.facts), prost::Message::encoded_len);
        let once = pages(wired::<_, v2::OnceResult>(&segment.once), prost::Message::encoded_len);
        let mut parts = vec![first];
        parts.extend(ops.into_iter().map(|tail| v2::Segment { tail, ..Default::default() }));
        parts.extend(facts.into_iter().map(|facts| v2::Segment { facts, ..Default::default() }));
        parts.extend(once.into_iter().map(|once| v2::Segment { once, ..Default::default() }));
        Ok(Response::new(all(parts)))
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
        let rows = rows.map_err(told)?;
        for run in rows.iter().map(|row| row.execution).collect::<HashSet<_>>() {
            self.reads(&who, org, run).await?;
        }
        let values = self.0.storage.read_rows(org, &rows).await.map_err(told)?;
        let pages = pages(values, |value| value.len());
        Ok(Response::new(all(pages.into_iter().map(|values| v2::ReadRowsResponse { values }).collect())))
    }

    async fn commit(&self, request: Request<Streaming<v2::CommitPart>>) -> Result<Response<v2::CommitAnswer>, Status> {
        let (org, identity) = (self.org(&request)?, self.identity(&request)?);
        let mut stream = request.into_inner();
        let (mut whole, mut held) = (attach::Commit::default(), self.3.of(&identity));
        let silent = |_| Status::deadline_exceeded("the commit sent nothing for 30 s; send it again");
        let slow = Instant::now() + WHOLE;
        while let Some(part) = timeout_at(slow.min(Instant::now() + IDLE), stream.next()).await.map_err(silent)? {
            let before = whole.size();
            whole.push(part?, COMMIT).map_err(told)?;
            if before <= SMALL && whole.size() > SMALL {
                self.may_be_held(&identity, org, whole.head()).await?;
            }
            held.grow(whole.size()).map_err(told)?;
        }
        let mut wire = whole.finish().map_err(told)?;
        let wanted = wire.wanted.take().filter(|wanted| identity.serves(&wanted.queue));
        let commit = wire.into_model(org).map_err(told)?;
        self.acts_for(&identity, org, commit.lease.worker).await?;
        let wanted = wanted.map(|wanted| wanted_by(&commit, wanted));
        let answer = self.0.storage.commit(commit).await.map_err(told)?;
        let mut wire = v2::CommitAnswer::from(&answer);
        if let Some(wanted) = wanted {
            // The commit is done whatever becomes of this: what is not brought along is polled for.
            match self.0.storage.claim_tasks(wanted).await {
                Ok(tasks) => {
                    self.handed(&identity, &tasks);
                    wire.tasks = wired(&tasks);
                }
                Err(error) => tracing::debug!(%error, "a commit's answer brings no tasks along"),
            }
        }
        if wire.facts.iter().map(prost::Message::encoded_len).sum::<usize>() > FACTS {
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
        let execution = ExecutionId(id(&wire.execution, "execution").map_err(told)?);
        self.reads(&who, org, execution).await?;
        let (facts, high): (Vec<Fact>, u64) =
            self.0.storage.facts_after(org, execution, wire.after).await.map_err(told)?;
        let pages = pages(wired::<_, v2::Fact>(&facts), prost::Message::encoded_len);
        Ok(Response::new(all(pages.into_iter().map(|facts| v2::FactsAfterResponse { facts, high }).collect())))
    }

    async fn report_task(&self, request: Request<v2::ReportTaskRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, worker) = self.of_worker(&request, &request.get_ref().worker).await?;
        let wire = request.into_inner();
        let report = TaskReport {
            org,
            task: TaskId(id(&wire.task, "task").map_err(told)?),
            attempt: wire.attempt,
            worker,
            result: need(wire.result, "result")?.try_into().map_err(told)?,
        };
        self.0.storage.report_task(report).await.map_err(told)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn release(&self, request: Request<v2::ReleaseRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, lease) = self.of_lease(&request, &request.get_ref().lease).await?;
        let execution = ExecutionId(id(&request.get_ref().execution, "execution").map_err(told)?);
        self.0.storage.release(org, execution, lease).await.map_err(told)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn hints(&self, request: Request<v2::HintsRequest>) -> Result<Response<Self::HintsStream>, Status> {
        self.org(&request)?;
        let identity = self.identity(&request)?;
        let (link, ended) = (self.link(&request, &request.get_ref().link)?, self.ended(&identity));
        let hints = self.0.storage.hints().clone();
        let (sender, receiver) = mpsc::channel::<v2::Hint>(HINTS);
        let (runs, lost) = (sender.clone(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let missed = lost.clone();
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
        let mut stopping = self.0.stopping.clone();
        let (links, storage) = (self.1.clone(), self.0.storage.clone());
        link.inspect(|link| links.opened(*link));
        let follow = async move {
            loop {
                let hint = tokio::select! {
                    () = agents.changed() => v2::Hint { agents: true, ..Default::default() },
                    () = tasks.changed() => v2::Hint { tasks: true, ..Default::default() },
                    () = timers.changed() => v2::Hint { timers: true, ..Default::default() },
                    _ = stopping.wait_for(|stop| *stop) => return,
                    () = sender.closed() => break,
                };
                let everything = lost.swap(false, std::sync::atomic::Ordering::Relaxed);
                if sender.send(v2::Hint { everything, ..hint }).await.is_err() {
                    break;
                }
            }
            drop(listening);
            if let Some(link) = link {
                links.broke(link, &*storage).await;
            }
        };
        tokio::spawn(follow);
        let sent = stream::unfold(receiver, |mut hints| async { Some((Ok(hints.recv().await?), hints)) });
        Ok(Response::new(cut(sent, ended)))
    }

    async fn publish(&self, request: Request<v2::PublishRequest>) -> Result<Response<v2::Empty>, Status> {
        let (org, who) = (self.org(&request)?, self.identity(&request)?);
        let mut strange = None;
        for published in request.into_inner().chunks {
            let chunk: Chunk = need(published.chunk, "chunk")?.try_into().map_err(|error: Error| {
                told(Error::new(Code::InvalidArgument, format!("a preview was not taken: {}", error.message())))
            })?;
            if self.shows(&who, org, &chunk).await? {
                self.0.chunks.publish(published.after, org, chunk);
            } else {
                strange = Some(chunk.execution);
            }
        }
        // What stands beside a preview that is refused is shown all the same: a worker sends those of many runs at once.
        match strange {
            None => Ok(Response::new(v2::Empty {})),
            Some(run) => {
                let told =
                    format!("the token may not show previews of the run {run}: it is of no queue of the token's");
                Err(Status::permission_denied(told))
            }
        }
    }
}
