//! A random history: who asks what next, with what it knows of the runs so far.

use super::super::random::Random;
use super::super::rig::{AGENT, Holder, ORG, TASK, TTL, at_once, gracefully, json};
use super::batches::{Known, NAMES, batch, payload, result};
use super::{Pair, both};
use crate::id::{EntryId, ExecutionId, OpId, RequestId, Slot, WorkerId};
use crate::model::{
    AttemptResult, BatchEnd, ClaimedTask, CommitRequest, Delivery, Divergence, EventKind, ExecutionFilter, FactKind,
    Failure, ForkFrom, ForkRequest, OpBody, Page, PageRequest, Persistence, RecordedBody, RecordedOp, Resolution,
    ResumeRequest, Segment, Status, TaskReport, told_of,
};
use crate::payload::{Body, Digest, Payload};
use crate::storage::{ClaimRequest, Heartbeat, Only, WorkerInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// At most so many runs at a time.
const RUNS: usize = 8;

pub(super) struct Script<'p> {
    pair: &'p Pair,
    random: Random,
    /// Every run.
    ids: Vec<ExecutionId>,
    /// Runs that have not ended, as far as known.
    live: Vec<ExecutionId>,
    workers: Vec<WorkerId>,
    /// Present and former holders.
    holders: Vec<Holder<'p>>,
    sent: Vec<CommitRequest>,
    /// The request of each run's last commit.
    last: BTreeMap<ExecutionId, RequestId>,
    /// Requests of commits before the last.
    past: BTreeSet<RequestId>,
    claimed: Vec<ClaimedTask>,
}

impl<'p> Script<'p> {
    pub(super) fn new(pair: &'p Pair, seed: u64) -> Self {
        let workers = (0..3).map(|_| pair.rig.worker()).collect();
        Self {
            pair,
            random: Random(seed),
            ids: Vec::new(),
            live: Vec::new(),
            workers,
            holders: Vec::new(),
            sent: Vec::new(),
            last: BTreeMap::new(),
            past: BTreeSet::new(),
            claimed: Vec::new(),
        }
    }

    /// All runs so far.
    pub(super) fn ids(&self) -> &[ExecutionId] {
        &self.ids
    }

    /// Runs that something may have happened to since the last call.
    pub(super) async fn touched(&mut self) -> Vec<ExecutionId> {
        let touched = self.live.clone();
        let mut live = Vec::new();
        for id in &touched {
            let run = self.pair.rig.storage.execution(ORG, *id).await;
            live.extend(run.is_ok_and(|run| !run.status.is_terminal()).then_some(*id));
        }
        self.live = live;
        touched
    }

    fn add(&mut self, id: ExecutionId) {
        if !self.ids.contains(&id) {
            self.ids.push(id);
            self.live.push(id);
        }
    }

    pub(super) async fn step(&mut self) {
        match self.random.below(100) {
            0..8 => self.create().await,
            8..18 => self.claim().await,
            18..48 => self.commit().await,
            48..51 => self.repeat().await,
            51..54 => self.load().await,
            54..60 => self.claim_tasks().await,
            60..67 => self.report().await,
            67..70 => self.heartbeat().await,
            70..72 => self.give_back().await,
            72..78 => self.signal().await,
            78..80 => self.cancel().await,
            80..84 => self.resume().await,
            84..87 => self.resolve().await,
            87..90 => self.fork().await,
            90..92 => self.read().await,
            _ => self.wait().await,
        }
    }

    fn id(&mut self) -> ExecutionId {
        if self.random.percent(2) {
            return ExecutionId(uuid::Uuid::from_u128(1));
        }
        let from = if self.random.percent(85) { &self.live } else { &self.ids };
        self.random.pick(from).copied().unwrap_or_default()
    }

    fn only(&mut self) -> Only {
        let run = self.id();
        if self.random.percent(50) { Only::Family(run) } else { Only::Run(run) }
    }

    fn worker(&mut self) -> WorkerId {
        self.random.pick(&self.workers).copied().unwrap_or_default()
    }

    async fn create(&mut self) {
        let mut new = self.pair.rig.new_run();
        let fresh = self.live.len() < RUNS && !self.random.percent(20);
        if !fresh {
            new.id = self.id();
            if self.random.percent(50) {
                new.input_digest = Digest([1; 16]);
            }
            if !self.ids.contains(&new.id) {
                return;
            }
        }
        let random = &mut self.random;
        new.input = if fresh { payload(random) } else { new.input };
        new.concurrency_key = (self.live.len() % 8 == 3).then(|| "few at a time".to_owned());
        new.concurrency_limit = (self.live.len() % 16 == 3).then_some(2);
        new.limits.max_steps = random.percent(40).then(|| random.below(3) as u32);
        new.limits.max_total_steps = new.limits.max_steps.map(|steps| 1 + steps.min(1));
        new.limits.max_tail = random.percent(30).then(|| 5 + random.below(20) as u32);
        new.limits.timeout = random.percent(5).then(|| Duration::from_secs(100));
        let number = new.id.0.as_u128();
        new.limits.start_timeout = number.is_multiple_of(17).then(|| Duration::from_secs(40));
        if number.is_multiple_of(5) {
            new.persistence = Persistence::Ephemeral;
        }
        new.delay = random.percent(15).then(|| Duration::from_secs(random.below(5) as u64));
        new.priority = random.below(3) as i32;
        new.metadata.insert("n".into(), random.below(3).to_string());
        let created = both!(self.pair, "create_execution", create_execution(new));
        if let Ok(created) = created {
            self.add(created.execution.new.id);
        }
    }

    async fn claim(&mut self) {
        let only = if self.random.percent(50) { Some(self.only()) } else { None };
        let worker = self.worker();
        let limit = self.random.below(4);
        let request = ClaimRequest { only, limit, ..self.pair.rig.asking(worker, AGENT) };
        let claims = both!(self.pair, "claim_agents", claim_agents(request)).unwrap_or_default();
        for claim in claims {
            let mut holder = Holder::of(&self.pair.rig, &claim);
            let (id, lease) = (holder.id, holder.lease);
            if let Ok(segment) = both!(self.pair, "load_segment", load_segment(ORG, id, lease)) {
                catch_up(&mut holder, &segment);
            }
            self.holders.push(holder);
        }
    }

    /// A holder by its place: mostly one that still holds its run, or may take it up again.
    async fn holder(&mut self) -> Option<usize> {
        let mut live = Vec::new();
        for (place, holder) in self.holders.iter().enumerate() {
            let run = self.pair.rig.storage.execution(ORG, holder.id).await;
            let may = |status| matches!(status, Status::Waiting | Status::Pending);
            let lease = holder.lease;
            if run.is_ok_and(|run| run.epoch == lease.epoch && (run.worker.is_some() || may(run.status))) {
                live.push(place);
            }
        }
        if self.random.percent(90) && !live.is_empty() {
            return self.random.pick(&live).copied();
        }
        let count = self.holders.len();
        count.checked_sub(1 + self.random.below(count))
    }

    async fn commit(&mut self) {
        let Some(place) = self.holder().await else { return };
        let storage = &self.pair.rig.storage;
        let (id, segment) = (self.holders[place].id, self.holders[place].segment);
        let page = || PageRequest { limit: 1_000, after: None };
        let journal = storage.journal(ORG, id, segment).await.unwrap_or_default();
        let known = Known {
            tasks: storage.tasks(ORG, id, page()).await.map_or_else(|_| vec![], |page| page.items),
            signals: storage.signals(ORG, id, page()).await.map_or_else(|_| vec![], |page| page.items),
            entries: storage
                .entries(ORG, id, page())
                .await
                .map_or_else(|_| vec![], |page| page.items.iter().map(|entry| entry.new.id).collect()),
            children: journal.iter().filter_map(RecordedOp::child).collect(),
            runs: self.ids.clone(),
            waits: {
                let takes = |op: &&RecordedOp| matches!(op.body, RecordedBody::Signal | RecordedBody::Child { .. });
                journal.iter().filter(takes).map(|op| op.sequence).collect()
            },
            facts: storage.events(ORG, id, 0, 100_000).await.map_or_else(
                |_| vec![],
                |events| events.iter().filter(|event| is_fact(event.kind)).map(|event| event.number).collect(),
            ),
        };
        let holder = &mut self.holders[place];
        let (next, leaf) = (holder.next, holder.leaf);
        let batch = batch(&mut self.random, holder, &known);
        let mut request = holder.request(batch);
        if request.batch.consumed.is_empty() && self.random.percent(20) {
            // Nobody forgets a fact it was told.
            let told = known.facts.iter().rev().find(|number| **number <= request.known).copied().unwrap_or(0);
            request.known = request.known.saturating_sub(self.random.below(4) as u64).max(told);
        }
        match self.random.below(60) {
            0 => request.base += 1,
            1 => request.lease.epoch += 1,
            2 => request.lease.worker = WorkerId::default(),
            _ => {}
        }
        self.sent.push(request.clone());
        let answer = both!(self.pair, "commit", commit(request));
        let holder = &mut self.holders[place];
        match answer {
            Ok(answer) => {
                self.past.extend(self.last.insert(holder.id, request.request_id));
                holder.base = answer.number;
                holder.known = answer.high;
                if matches!(request.batch.end, BatchEnd::Checkpoint(_)) {
                    holder.segment += 1;
                    holder.next = 0;
                }
                let refused = answer.facts.iter().filter_map(|fact| match &fact.kind {
                    FactKind::Signal(signal) => told_of(&signal.name).filter(|(_, only)| only.is_some()),
                    _ => None,
                });
                let refused: Vec<_> = refused.map(|(child, _)| child).collect();
                for op in &request.batch.ops {
                    if let OpBody::Child(child) = &op.body
                        && !refused.contains(&child.id)
                    {
                        self.add(child.id);
                    }
                }
            }
            Err(_) => (holder.next, holder.leaf) = (next, leaf),
        }
    }

    async fn repeat(&mut self) {
        // Nobody repeats a request after the answer to the next.
        let back = self.random.below(self.sent.len().min(6));
        let mut open = self.sent.iter().rev().filter(|request| !self.past.contains(&request.request_id));
        let Some(request) = open.nth(back) else { return };
        let mut request = request.clone();
        if self.random.percent(20) {
            request.digest = Digest([2; 16]);
        }
        if both!(self.pair, "repeat", commit(request)).is_ok() {
            let (id, request) = (request.execution, request.request_id);
            self.past.extend(self.last.insert(id, request).filter(|last| *last != request));
        }
    }

    async fn load(&mut self) {
        let Some(place) = self.holder().await else { return };
        let (id, lease, known) = {
            let holder = &self.holders[place];
            (holder.id, holder.lease, holder.known)
        };
        // Facts of a run that has ended are nobody's.
        if self.live.contains(&id) {
            let _ = both!(self.pair, "facts_after", facts_after(ORG, id, known));
        }
        if let Ok(segment) = both!(self.pair, "load_segment", load_segment(ORG, id, lease)) {
            catch_up(&mut self.holders[place], &segment);
        }
    }

    async fn claim_tasks(&mut self) {
        let only = if self.random.percent(20) { Some(self.only()) } else { None };
        let worker = self.worker();
        let limit = self.random.below(4);
        let request = ClaimRequest { only, limit, ..self.pair.rig.asking(worker, TASK) };
        let claimed = both!(self.pair, "claim_tasks", claim_tasks(request)).unwrap_or_default();
        self.claimed.extend(claimed);
    }

    async fn report(&mut self) {
        let back = self.random.below(self.claimed.len().min(8));
        let Some(claimed) = self.claimed.iter().rev().nth(back).map(|claimed| claimed.task.clone()) else { return };
        let report = TaskReport {
            org: ORG,
            task: if self.random.percent(2) { Default::default() } else { claimed.new.id },
            attempt: claimed.attempt,
            worker: claimed.worker.unwrap_or_default(),
            result: if self.random.percent(50) { AttemptResult::Completed(json(&1)) } else { result(&mut self.random) },
        };
        let _ = both!(self.pair, "report_task", report_task(report));
        let (run, task) = (claimed.execution, claimed.new.id);
        let _ = both!(self.pair, "task", task(ORG, run, task));
    }

    async fn heartbeat(&mut self) {
        let worker = self.worker();
        let signed = self.random.percent(50);
        let mine = self.holders.iter().filter(|holder| holder.lease.worker == worker).rev().take(6);
        let executions = mine.map(|holder| (holder.id, holder.lease.epoch, holder.known)).collect();
        let tasks = self.claimed.iter().map(|claimed| &claimed.task).filter(|task| task.worker == Some(worker));
        let tasks = tasks.rev().take(6).map(|task| (task.new.id, task.attempt, signed)).collect();
        let beat = Heartbeat { org: ORG, worker, ttl: TTL, executions, tasks, progress: vec![] };
        let _ = both!(self.pair, "heartbeat", heartbeat(beat));
    }

    async fn give_back(&mut self) {
        let worker = self.worker();
        match self.random.below(6) {
            0 => {
                let _ = both!(self.pair, "unregister_worker", unregister_worker(ORG, worker));
            }
            1 => {
                let info = WorkerInfo {
                    org: ORG,
                    id: worker,
                    name: "w".into(),
                    queues: vec!["default".into()],
                    elsewhere: false,
                };
                let _ = both!(self.pair, "register_worker", register_worker(info));
            }
            _ => {
                let Some(place) = self.holder().await else { return };
                let (id, lease) = (self.holders[place].id, self.holders[place].lease);
                let _ = both!(self.pair, "release", release(ORG, id, lease));
            }
        }
    }

    async fn signal(&mut self) {
        let id = self.id();
        let name = NAMES[self.random.below(NAMES.len())];
        let mut signal = self.pair.rig.new_signal(id, name);
        signal.payload = payload(&mut self.random);
        signal.idempotency_key = self.random.percent(30).then(|| format!("k{}", self.random.below(4)));
        signal.delivery = [Delivery::NextStep, Delivery::NextTurn, Delivery::Now][self.random.below(3)];
        let _ = both!(self.pair, "store_signal", store_signal(signal));
    }

    async fn cancel(&mut self) {
        let id = self.id();
        let cancel = match self.random.below(4) {
            0 => at_once(),
            n => gracefully(Duration::from_secs(20 * n as u64)),
        };
        let _ = both!(self.pair, "request_cancel", request_cancel(ORG, id, cancel));
    }

    async fn resume(&mut self) {
        let paused = self.in_status(Status::Paused).await;
        let id = match self.random.pick(&paused) {
            Some(id) if self.random.clone().percent(90) => *id,
            _ => self.id(),
        };
        // What was drawn stays as it was: a new draw would change all histories.
        let failed = self.in_status(Status::Failed).await;
        let (id, retry) = match failed.first() {
            Some(failed) if self.random.clone().percent(15) => (*failed, true),
            _ => (id, self.random.clone().percent(10)),
        };
        let random = &mut self.random;
        if random.percent(30) {
            let decision = [Divergence::Continue, Divergence::Stay, Divergence::Fork][random.below(3)];
            if decision == Divergence::Fork && self.live.len() >= RUNS + 3 {
                return;
            }
            let decided = both!(self.pair, "resolve_divergence", resolve_divergence(ORG, id, decision));
            if let Ok(run) = decided {
                self.add(run.new.id);
            }
            return;
        }
        let request = ResumeRequest {
            retry,
            max_steps: random.percent(40).then(|| random.below(3) as u32),
            max_tail: random.percent(40).then(|| 20 + random.below(40) as u32),
            budget: random.percent(20).then(|| r#"{"maxTokens":300,"maxCalls":20}"#.into()),
            message: random.percent(40).then(|| payload(random)),
            request_id: random.percent(50).then(|| RequestId(uuid::Uuid::from_u128(random.below(5) as u128))),
        };
        let _ = both!(self.pair, "resume", resume(ORG, id, request));
    }

    async fn in_status(&self, status: Status) -> Vec<ExecutionId> {
        let filter = ExecutionFilter { statuses: vec![status], ..ExecutionFilter::default() };
        let page = PageRequest { limit: 1_000, after: None };
        let runs = self.pair.rig.storage.executions(ORG, filter, page).await;
        runs.map_or_else(|_| vec![], |page| page.items.iter().map(|run| run.new.id).collect())
    }

    async fn resolve(&mut self) {
        let mut doubtful = Vec::new();
        for id in &self.ids {
            let page = PageRequest { limit: 1_000, after: None };
            let tasks = self.pair.rig.storage.tasks(ORG, *id, page).await.map_or_else(|_| vec![], |page| page.items);
            doubtful.extend(tasks.into_iter().filter(|task| task.ended_at.is_none()).map(|task| (*id, task.slot)));
        }
        let (execution, slot) = match self.random.pick(&doubtful) {
            Some(place) => *place,
            None => (self.id(), Slot { segment: 0, sequence: self.random.below(5) as u32 }),
        };
        let op = OpId { execution, slot, once: None };
        let resolution = match self.random.below(3) {
            0 => Resolution::Result(payload(&mut self.random)),
            1 => Resolution::Error(Failure::new(crate::error::Code::TaskFailed, "Lost", "it never arrived")),
            _ => Resolution::Retry,
        };
        let _ = both!(self.pair, "resolve_task", resolve_task(ORG, op, resolution));
    }

    async fn fork(&mut self) {
        let execution = self.id();
        let entries = self.entries(execution).await;
        let random = &mut self.random;
        let from = match random.below(5) {
            0 => ForkFrom::Checkpoint(random.below(3) as u32),
            1 => ForkFrom::Op(Slot { segment: 0, sequence: random.below(20) as u32 }),
            2 => random.pick(&entries).map_or(ForkFrom::Latest, |entry| ForkFrom::Entry(*entry)),
            _ => ForkFrom::Latest,
        };
        let state = random.percent(15).then(|| payload(random));
        let input = random.percent(15).then(|| payload(random));
        let fresh = self.live.len() < RUNS + 3;
        let id = if fresh { ExecutionId(self.pair.rig.uuid()) } else { self.id() };
        let request = ForkRequest { org: ORG, execution, id, key: None, from, state, input };
        let fork = both!(self.pair, "fork", fork(request));
        if let Ok(run) = fork {
            self.add(run.new.id);
        }
    }

    async fn entries(&self, id: ExecutionId) -> Vec<EntryId> {
        let page = PageRequest { limit: 1_000, after: None };
        let entries = self.pair.rig.storage.entries(ORG, id, page).await;
        entries.map_or_else(|_| vec![], |page| page.items.iter().map(|entry| entry.new.id).collect())
    }

    async fn read(&mut self) {
        let id = self.id();
        let entries = self.entries(id).await;
        let leaf = self.random.pick(&entries).copied().unwrap_or_default();
        let branch = both!(self.pair, "branch", branch(ORG, leaf, None::<EntryId>));
        let content = branch.ok().and_then(|mut branch| branch.pop()).map(|entry| entry.new.content);
        if let Some(content) = content {
            self.read_payload(&content).await;
        }
        if let Ok(run) = self.pair.rig.storage.execution(ORG, id).await
            && matches!(run.new.input.body, Body::Stored { .. })
        {
            self.read_payload(&run.new.input).await;
        }
        let _ = both!(self.pair, "queues", queues(ORG));
        self.list().await;
    }

    async fn read_payload(&self, payload: &Payload) {
        let expected = self.pair.rig.storage.read_payload(ORG, payload).await;
        let found = self.pair.subject.storage.read_payload(ORG, payload).await;
        let _ = self.pair.same("read_payload", expected, found);
    }

    /// Pages of both backends; cursors are each backend's own.
    async fn list(&mut self) {
        let random = &mut self.random;
        let mut filter = ExecutionFilter::default();
        if random.percent(40) {
            filter.statuses = vec![Status::ALL[random.below(8)], Status::ALL[random.below(8)]];
        }
        if random.percent(30) {
            filter.metadata.insert("n".into(), random.below(3).to_string());
        }
        let limit = 1 + random.below(4);
        let (mut ours, mut theirs) = (None, None);
        loop {
            let page = |after| PageRequest { limit, after };
            let expected = self.pair.rig.storage.executions(ORG, filter.clone(), page(ours)).await;
            let found = self.pair.subject.storage.executions(ORG, filter.clone(), page(theirs)).await;
            let items = |page: &crate::Result<Page<_>>| page.clone().map(|page| (page.items, page.next.is_some()));
            let _ = self.pair.same("executions", items(&expected), items(&found));
            match (expected.ok().and_then(|page| page.next), found.ok().and_then(|page| page.next)) {
                (Some(a), Some(b)) => (ours, theirs) = (Some(a), Some(b)),
                _ => return,
            }
        }
    }

    async fn wait(&mut self) {
        let seconds = [0.0, 0.001, 0.3, 0.3, 2.0, 2.0, 10.0, 31.0][self.random.below(8)];
        self.pair.rig.clock.advance(Duration::from_secs_f64(seconds));
        if self.random.percent(85) {
            let _ = both!(self.pair, "pass", pass());
        }
    }
}

/// What a session learns by loading.
fn catch_up(holder: &mut Holder<'_>, segment: &Segment) {
    holder.known = segment.high;
    holder.segment = segment.execution.segment;
    holder.base = segment.execution.base;
    holder.leaf = segment.execution.leaf;
    let of_segment = segment.tail.iter().filter(|op: &&RecordedOp| op.segment == holder.segment);
    holder.next = of_segment.map(|op| op.sequence + 1).max().unwrap_or(0);
}

fn is_fact(kind: EventKind) -> bool {
    use EventKind::*;
    matches!(kind, TaskCompleted | TaskFailed | TaskCancelled | Signal | Timer | Cancelling)
}
