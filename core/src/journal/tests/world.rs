//! Everything around the machine: the store, time, task workers, senders of signals, and crashes.
//!
//! The store is the real memory backend, driven one call at a time; a tick is a millisecond of its clock.

use super::host::{Ev, Host, text, word};
use super::program::{Program, Site, Trouble};
use super::rng::Rng;
use crate::clock::{ManualClock, Timestamp};
use crate::error::{Code, Result};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, RequestId, SignalId, Slot, TaskId, WorkerId};
use crate::journal::draft::Most;
use crate::journal::op::Place;
use crate::journal::{CommitDraft, Effect, Machine, MachineConfig, OpRef, Outcome};
use crate::model::{
    AttemptResult, Batch, BatchEnd, CancelMode, Cancellation, ChildEvent, Claim, ClaimedTask, CommitAnswer,
    CommitRequest, Delivery, Event, EventKind, Execution, ExecutionFilter, Failure, ForkFrom, ForkRequest, Lease,
    NewExecution, NewSignal, OpKind, PageRequest, RecordedOp, Resolution, Signal, Status, Task, TaskReport, TaskStatus,
    WaitReason,
};
use crate::payload::{Digest, Payload};
use crate::storage::memory::MemoryStorage;
use crate::storage::{AgentStorage, Catalog, ClaimRequest, Housekeeping, WorkSource};
use futures::FutureExt;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Where a life ends before the run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crash {
    /// The commit of this number never leaves.
    Before(u64),
    /// The commit is durable, its answer never comes, and the process is gone.
    After(u64),
    /// As `Before`, but the request arrives when the next life has begun.
    Late(u64),
    /// At a moment, whatever is going on.
    At(u64),
}

/// How a case goes.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    /// Crashes in order; each counts from the start of its life.
    pub crashes: VecDeque<Crash>,
    /// Percent of suspensions after which the copy in memory is dropped.
    pub evict: u64,
    /// Percent of commits whose answer is lost and that are sent again.
    pub lost_answers: u64,
    /// A request to stop.
    pub cancel_at: Option<u64>,
    /// Results differ from attempt to attempt, as those of a model do.
    pub volatile: bool,
    /// What the code is after the first crash.
    pub edited: Option<(Program, String, &'static str)>,
    /// What one commit holds, and how many tasks may be open, where that is little.
    pub limits: Option<(Most, usize)>,
}

/// What was seen over many cases: a test that saw too little proves nothing.
#[derive(Debug, Default, Clone)]
pub(super) struct Stats {
    pub cases: u64,
    pub crashes: u64,
    pub reentries: u64,
    pub replayed: u64,
    pub resumed: u64,
    pub races: u64,
    pub lost_answers: u64,
    pub late: u64,
    pub cancels: u64,
    pub in_doubt: u64,
    pub checkpoints: u64,
    pub diverged: u64,
    pub compared: u64,
    /// Commits that hold as much as they may.
    pub parts: u64,
    /// Calls that found too many tasks open.
    pub full: u64,
    pub failures: u64,
    pub forks: u64,
    pub children: u64,
    /// Messages to children and requests to stop that were handed an outcome.
    pub sent: u64,
    /// Runs that gave their work to another.
    pub handed: u64,
    pub steps: u64,
    pub ticks: u64,
    /// A digest of all that the machines asked for, in order: two builds that do the same print the same.
    pub trace: u64,
}

struct Flying {
    request: CommitRequest,
    apply_at: u64,
    answer_at: u64,
    answer: Option<Result<CommitAnswer>>,
}

struct Life {
    machine: Machine,
    host: Host,
    lease: Lease,
    commits: u64,
    began: u64,
    flying: Option<Flying>,
    running: Vec<(u64, OpRef, u32, Payload)>,
    news_at: Option<u64>,
    hold_at: Option<u64>,
    patience: Option<(u64, u64)>,
    crash: Option<Crash>,
    finished_before: HashSet<Site>,
    was_quiet: bool,
    /// The machine wants to know what is outside.
    asked: bool,
    ask_at: Option<u64>,
    lease_fresh: bool,
    segment: usize,
}

pub(super) struct World {
    pub program: Program,
    plan: Plan,
    rng: Rng,
    store: MemoryStorage,
    clock: ManualClock,
    execution: ExecutionId,
    /// The run it goes on from, once it is a fork: what that has done stays there.
    parent: Option<ExecutionId>,
    worker: WorkerId,
    tasks_worker: WorkerId,
    tick: u64,
    life: Option<Box<Life>>,
    claimed: Vec<(u64, ClaimedTask, Payload)>,
    /// Children that run, and when each ends.
    children: Vec<(u64, Claim)>,
    minted: HashMap<Site, u32>,
    site_of_task: HashMap<TaskId, Site>,
    task_of_site: HashMap<Site, TaskId>,
    trouble: HashMap<Site, Trouble>,
    /// Steps that a fork has from its parent.
    inherited: HashSet<Site>,
    once_only: HashMap<TaskId, u32>,
    /// By segment: what is durable of the agent's log.
    pub durable: Vec<Vec<Ev>>,
    late: Option<CommitRequest>,
    signals: u32,
    suffix: String,
    code: &'static str,
    edited: bool,
    pub restarted_finished: Vec<Site>,
    recorded_before_edit: HashSet<Site>,
    /// Recorded steps that the edited code called anew.
    pub repeated: Vec<Site>,
    pub stats: Stats,
}

pub(super) fn now<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("the memory backend never waits")
}

/// The site that has started a child.
fn site_of_child(child: &Execution) -> Site {
    let input = text(&child.new.input);
    let digits = input.trim_start_matches("child ").split(|letter: char| !letter.is_ascii_digit());
    digits.into_iter().next().and_then(|site| site.parse().ok()).unwrap_or_default()
}

/// The digest of what came before, and an effect.
fn traced(before: u64, effect: &Effect) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, format!("{effect:?}")).hash(&mut hasher);
    hasher.finish()
}

const ORG: OrgId = OrgId::DEFAULT;
const TTL: Duration = Duration::from_secs(3_600);
const SECOND: u64 = 80;

impl World {
    pub(super) fn new(program: Program, plan: Plan, seed: u64) -> Self {
        let clock = ManualClock::new(Timestamp(1_000_000_000));
        let store = MemoryStorage::new(Arc::new(clock.clone()));
        let execution = ExecutionId(uuid::Uuid::from_u128(u128::from(seed) + 1));
        let new = NewExecution::new(execution, "agent", Payload::null()).expect("an input");
        now(store.create_execution(new)).expect("a fresh run");
        Self {
            program,
            plan,
            rng: Rng::new(seed ^ 0xabcd),
            store,
            clock,
            execution,
            parent: None,
            worker: WorkerId(uuid::Uuid::from_u128(1)),
            tasks_worker: WorkerId(uuid::Uuid::from_u128(2)),
            tick: 0,
            life: None,
            claimed: Vec::new(),
            children: Vec::new(),
            minted: HashMap::new(),
            site_of_task: HashMap::new(),
            task_of_site: HashMap::new(),
            trouble: HashMap::new(),
            inherited: HashSet::new(),
            once_only: HashMap::new(),
            durable: Vec::new(),
            late: None,
            signals: 0,
            suffix: String::new(),
            code: "1",
            edited: false,
            restarted_finished: Vec::new(),
            recorded_before_edit: HashSet::new(),
            repeated: Vec::new(),
            stats: Stats { cases: 1, ..Stats::default() },
        }
    }

    /// Runs to the end; what went wrong is an error.
    pub(super) fn run(&mut self) -> Result<Execution, String> {
        loop {
            self.tick += 1;
            self.clock.advance(Duration::from_millis(1));
            now(self.store.pass()).map_err(|error| error.to_string())?;
            let execution = now(self.store.execution(ORG, self.execution)).map_err(|error| error.to_string())?;
            if execution.status.is_terminal() && self.life.as_ref().is_none_or(|life| life.machine.is_over()) {
                self.end_life()?;
                self.stats.handed += u64::from(execution.handed_to.is_some());
                return Ok(execution);
            }
            if execution.status == Status::Paused {
                return Err(format!("the run paused: {:?} {:?}", execution.wait, execution.failure));
            }
            self.outside(&execution)?;
            self.claim(&execution)?;
            self.live()?;
            if self.tick > 60_000 {
                return Err(format!("the run is stuck: {}", self.explain(&execution)));
            }
        }
    }

    fn explain(&self, execution: &Execution) -> String {
        let life = self.life.as_ref().map(|life| format!("{:?}\n{}", life.host.log, life.machine.summary()));
        format!("{:?} {:?}\n{}\n{}", execution.status, execution.wait, life.unwrap_or_default(), self.story())
    }

    // ── the outside ─────────────────────────────────────────────────────────────────────────────────────────────

    fn outside(&mut self, execution: &Execution) -> Result<(), String> {
        let claim = ClaimRequest {
            org: ORG,
            worker: self.tasks_worker,
            queue: "default".into(),
            kinds: Arc::new(["a".to_owned(), "b".to_owned()]),
            limit: 4,
            ttl: TTL,
            only: None,
        };
        for task in now(self.store.claim_tasks(claim)).map_err(|error| error.to_string())? {
            let token = self.mint(task.task.new.id)?;
            let due = self.tick + self.rng.below(12);
            self.claimed.push((due, task, token));
        }
        let due: Vec<_> = {
            let tick = self.tick;
            let (due, left) = std::mem::take(&mut self.claimed).into_iter().partition(|(at, ..)| *at <= tick);
            self.claimed = left;
            due
        };
        for (_, claimed, token) in due {
            let report = TaskReport {
                org: ORG,
                task: claimed.task.new.id,
                attempt: claimed.task.attempt,
                worker: self.tasks_worker,
                result: self.end_of(claimed.task.new.id, token),
            };
            match now(self.store.report_task(report)) {
                Err(error) if error.code() != Code::LeaseLost => return Err(error.to_string()),
                _ => {}
            }
        }
        self.run_children()?;
        let wanted = execution.wait.as_ref().filter(|_| execution.status == Status::Waiting);
        let wanted: Vec<String> = wanted.map(|wait| wait.signals.clone()).unwrap_or_default();
        for name in ["p", "q"] {
            let awaited = wanted.iter().any(|wanted| wanted == name);
            if self.rng.chance(if awaited { 8 } else { 2 }) && (awaited || self.signals < 12) {
                self.send(name)?;
            }
        }
        if self.plan.cancel_at.is_some_and(|at| at <= self.tick) && !execution.status.is_terminal() {
            self.plan.cancel_at = None;
            self.stats.cancels += 1;
            let cancel = Cancellation { mode: CancelMode::Graceful, grace: TTL };
            now(self.store.request_cancel(ORG, self.execution, cancel)).map_err(|error| error.to_string())?;
        }
        let doubtful = execution.wait.as_ref().is_some_and(|wait| wait.reason == Some(WaitReason::InDoubt));
        let doubts = if doubtful { self.tasks()? } else { Vec::new() };
        for task in doubts.into_iter().filter(|task| task.status == TaskStatus::InDoubt) {
            if self.rng.chance(10) {
                self.stats.in_doubt += 1;
                let op = OpId { execution: self.execution, slot: task.slot, once: None };
                let resolution = match self.end_of(task.new.id, self.token(task.new.id)?) {
                    AttemptResult::Failed { failure, .. } => Resolution::Error(failure),
                    _ => Resolution::Result(self.token(task.new.id)?),
                };
                now(self.store.resolve_task(ORG, op, resolution)).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Takes up children that were born, and ends those whose time has come: some fail.
    fn run_children(&mut self) -> Result<(), String> {
        let claim = ClaimRequest {
            org: ORG,
            worker: self.tasks_worker,
            queue: "default".into(),
            kinds: Arc::new(["child".to_owned()]),
            limit: 2,
            ttl: TTL,
            only: None,
        };
        for claim in now(self.store.claim_agents(claim)).map_err(|error| error.to_string())? {
            self.stats.children += 1;
            self.children.push((self.tick + self.rng.below(15), claim));
        }
        let tick = self.tick;
        for (_, claim) in self.children.extract_if(.., |(due, _)| *due <= tick) {
            let site = site_of_child(&claim.execution);
            let told = format!("of {site}");
            let end = match site % 4 {
                0 => BatchEnd::Fail(Failure::new(Code::AgentFailed, "Trouble", told)),
                _ => BatchEnd::Complete(Payload::json(format!("\"{told}\""))),
            };
            let batch = Batch::new(0, vec![], end);
            let request = CommitRequest {
                org: ORG,
                execution: claim.execution.new.id,
                lease: claim.lease,
                request_id: RequestId(claim.execution.new.id.0),
                digest: Digest::default(),
                base: 0,
                known: claim.high,
                batch,
                refused: Vec::new(),
                local: None,
            };
            match now(self.store.commit(request)) {
                // Its parent has ended, and it was cancelled.
                Err(error) if error.code() != Code::LeaseLost => return Err(error.to_string()),
                _ => {}
            }
        }
        Ok(())
    }

    /// The children of the run, and of the one that it was forked from.
    fn children(&self) -> Result<Vec<Execution>, String> {
        let page = PageRequest { limit: 1_000, ..PageRequest::default() };
        let of = |parent| {
            let filter = ExecutionFilter { parent: Some(parent), ..ExecutionFilter::default() };
            now(self.store.executions(ORG, filter, page.clone())).map_err(|error| error.to_string())
        };
        let mut found = of(self.execution)?.items;
        if let Some(parent) = self.parent {
            found.extend(of(parent)?.items);
        }
        Ok(found)
    }

    fn send(&mut self, name: &str) -> Result<(), String> {
        self.signals += 1;
        let signal = NewSignal {
            org: ORG,
            execution: self.execution,
            id: SignalId(uuid::Uuid::from_u128(u128::from(self.signals))),
            name: name.to_owned(),
            payload: Payload::json(format!("\"{name}{:04}\"", self.signals)),
            delivery: if self.rng.chance(20) { Delivery::NextTurn } else { Delivery::NextStep },
            idempotency_key: None,
        };
        match now(self.store.store_signal(signal)) {
            Err(error) if error.code() == Code::ExecutionClosed => Ok(()),
            other => other.map(drop).map_err(|error| error.to_string()),
        }
    }

    /// The result of an attempt that starts now.
    fn mint(&mut self, task: TaskId) -> Result<Payload, String> {
        let site = self.site_of_task.get(&task).copied().ok_or("a task of no site was started")?;
        *self.minted.entry(site).or_default() += 1;
        self.token(task)
    }

    fn token(&self, task: TaskId) -> Result<Payload, String> {
        let site = self.site_of_task.get(&task).copied().ok_or("a task of no site was started")?;
        let nth = self.minted.get(&site).filter(|_| self.plan.volatile);
        Ok(Payload::json(format!("\"of {site}{}\"", nth.map(|nth| format!("#{nth}")).unwrap_or_default())))
    }

    /// How an attempt ends that would have this result: the first ones of some tasks fail.
    fn end_of(&mut self, task: TaskId, token: Payload) -> AttemptResult {
        let site = self.site_of_task.get(&task).copied().unwrap_or_default();
        let failed = now(self.store.task(ORG, self.execution, task)).map_or(0, |task| task.failed_attempts);
        if failed >= self.trouble.get(&site).map_or(0, |trouble| trouble.failures) {
            return AttemptResult::Completed(token);
        }
        self.stats.failures += 1;
        let failure = Failure::new(Code::InvalidArgument, "Trouble", format!("of {site}"));
        AttemptResult::Failed { failure, retryable: true, pause: None }
    }

    // ── claims and crashes ──────────────────────────────────────────────────────────────────────────────────────

    fn claim(&mut self, execution: &Execution) -> Result<(), String> {
        let claimable = match execution.status {
            Status::Pending => true,
            Status::Cancelling => execution.worker.is_none() && execution.wait.is_none(),
            _ => false,
        };
        if !claimable || self.rng.chance(30) {
            return Ok(());
        }
        let claim = ClaimRequest {
            org: ORG,
            worker: self.worker,
            queue: "default".into(),
            kinds: Arc::new(["agent".to_owned()]),
            limit: 1,
            ttl: TTL,
            only: None,
        };
        let Some(claim) = now(self.store.claim_agents(claim)).map_err(|error| error.to_string())?.pop() else {
            return Ok(());
        };
        if let Some(life) = &mut self.life
            && life.machine.take_claim(claim.execution.base, claim.execution.purse.as_ref())
        {
            self.stats.resumed += 1;
            life.lease = claim.lease;
            // Its code may go on by itself before the news are read.
            life.news_at = Some(self.tick + self.rng.below(6));
            return Ok(());
        }
        self.end_life()?;
        let mut segment =
            now(self.store.load_segment(ORG, self.execution, claim.lease)).map_err(|error| error.to_string())?;
        segment.execution.base = claim.execution.base;
        if !segment.tail.is_empty() {
            self.stats.reentries += 1;
            self.stats.replayed += segment.tail.len() as u64;
        }
        let number = segment.execution.segment as usize;
        let results = match &segment.checkpoint {
            Some(checkpoint) => checkpoint.saved.state.parse().map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        let finished_before = self.finished_sites()?;
        let config = MachineConfig {
            stateful: self.program.stateful,
            code: Some(self.code.to_owned()),
            ..MachineConfig::default()
        };
        let mut machine = Machine::new(segment, config);
        if let Some((most, open)) = self.plan.limits {
            machine.limit(most, open);
        }
        let host = Host::new(&self.program, number, results, &self.suffix, self.rng.next());
        self.life = Some(Box::new(Life {
            machine,
            host,
            lease: claim.lease,
            commits: 0,
            began: self.tick,
            flying: None,
            running: Vec::new(),
            news_at: None,
            hold_at: None,
            patience: None,
            crash: self.plan.crashes.pop_front(),
            finished_before,
            was_quiet: false,
            asked: false,
            ask_at: None,
            lease_fresh: true,
            segment: number,
        }));
        if let Some(late) = self.late.take() {
            self.stats.late += 1;
            match now(self.store.commit(late)) {
                Err(error) if error.code() == Code::LeaseLost => {}
                other => return Err(format!("a request of an earlier life was answered with {other:?}")),
            }
        }
        Ok(())
    }

    fn learn(&mut self, life: &mut Life) {
        for (task, site, trouble) in life.host.tasks.drain(..) {
            self.trouble.insert(site, trouble);
            self.site_of_task.insert(task, site);
            self.task_of_site.insert(site, task);
        }
        if self.edited {
            // A step with a volatile input turns out to be the recorded one only once the code is quiet.
            for (op, site) in &life.host.site_of {
                if let Some(task) = life.machine.task_of(*op) {
                    self.site_of_task.insert(task, *site);
                    self.task_of_site.insert(*site, task);
                }
            }
        }
    }

    fn finished_sites(&self) -> Result<HashSet<Site>, String> {
        let done = self.tasks()?.into_iter().filter(|task| task.status.is_terminal());
        let sites = done.filter_map(|task| self.site_of_task.get(&task.new.id).copied());
        Ok(sites.chain(self.inherited.iter().copied()).collect())
    }

    /// Goes on as a fork of the run that has ended, from a random point.
    pub(super) fn fork(&mut self) -> Result<(), String> {
        self.stats.forks += 1;
        let from = if self.program.stateful {
            let upto = self.rng.range(1, self.program.segments.len() as u64 - 1) as u32;
            self.durable.truncate(upto as usize);
            ForkFrom::Checkpoint(upto)
        } else {
            let journal = self.journal(0);
            let Some(op) = journal.get(self.rng.below(journal.len() as u64) as usize) else { return Ok(()) };
            let upto = op.sequence;
            let ended =
                self.tasks()?.into_iter().filter(|task| task.slot.sequence <= upto && task.status.is_terminal());
            let sites: HashSet<Site> = ended.filter_map(|task| self.site_of_task.get(&task.new.id).copied()).collect();
            self.inherited.extend(sites);
            if let Some(log) = self.durable.first_mut() {
                let kept = log.iter().rposition(|event| matches!(event, Ev::Call(_, sequence) if *sequence <= upto));
                log.truncate(kept.map_or(0, |at| at + 1));
            }
            ForkFrom::Op(Slot { segment: 0, sequence: upto })
        };
        let id = ExecutionId(uuid::Uuid::from_u128(self.execution.0.as_u128() | 1 << 100));
        let request =
            ForkRequest { org: ORG, execution: self.execution, id, key: None, from, state: None, input: None };
        now(self.store.fork(request)).map_err(|error| error.to_string())?;
        self.parent = Some(std::mem::replace(&mut self.execution, id));
        Ok(())
    }

    /// A task of the run, or of the one it was forked from.
    fn stored(&self, task: TaskId) -> Result<Task, String> {
        let own = now(self.store.task(ORG, self.execution, task));
        let found = match (own, self.parent) {
            (Err(_), Some(parent)) => now(self.store.task(ORG, parent, task)),
            (own, _) => own,
        };
        found.map_err(|error| error.to_string())
    }

    fn crash(&mut self) -> Result<(), String> {
        self.stats.crashes += 1;
        self.end_life()?;
        now(self.store.unregister_worker(ORG, self.worker)).map_err(|error| error.to_string())?;
        self.worker = WorkerId(uuid::Uuid::from_u128(self.worker.0.as_u128() + 16));
        if let Some((program, suffix, code)) = self.plan.edited.take() {
            self.program = program;
            self.suffix = suffix;
            self.code = code;
            self.edited = true;
            let sites: Vec<_> = self.tasks()?.iter().map(|task| self.site_of_task.get(&task.new.id).copied()).collect();
            self.recorded_before_edit = sites.into_iter().flatten().collect();
        }
        Ok(())
    }

    /// Compares the log of a life with what earlier lives made durable, and keeps what is durable now.
    fn end_life(&mut self) -> Result<(), String> {
        let Some(mut life) = self.life.take() else { return Ok(()) };
        if let Some(refused) = life.host.refused.first() {
            return Err(format!("a call was refused: {refused}"));
        }
        self.learn(&mut life);
        self.stats.races += life.host.races;
        self.stats.full += life.host.full;
        self.stats.ticks += self.tick - life.began;
        let execution = now(self.store.execution(ORG, self.execution)).map_err(|error| error.to_string())?;
        let mut logs = std::mem::take(&mut life.host.ended);
        logs.push(std::mem::take(&mut life.host.log));
        if self.edited {
            // Unless it turned out to be the recorded one.
            let anew = life.host.fresh.iter().filter(|(op, _)| !life.machine.is_recorded(*op)).map(|(_, site)| site);
            let again = anew.filter(|site| self.recorded_before_edit.contains(site));
            self.repeated.extend(again);
            return Ok(());
        }
        for (offset, log) in logs.into_iter().enumerate() {
            let segment = life.segment + offset;
            let ended = segment < execution.segment as usize || execution.status.is_terminal();
            let journal = now(self.store.journal(ORG, self.execution, segment as u32)).map_err(|e| e.to_string())?;
            if self.durable.len() <= segment {
                self.durable.resize(segment + 1, Vec::new());
            }
            self.compare(&self.durable[segment], &log)?;
            let count = journal.len() as u32;
            let upto = if ended {
                log.len()
            } else {
                log.iter()
                    .rposition(|event| matches!(event, Ev::Call(_, sequence) if *sequence < count))
                    .map_or(0, |at| at + 1)
            };
            if upto > self.durable[segment].len() {
                self.durable[segment] = log[..upto].to_vec();
            }
        }
        Ok(())
    }

    fn compare(&self, durable: &[Ev], log: &[Ev]) -> Result<(), String> {
        let differ = |durable: &[Ev], log: &[Ev], what: &str| {
            let at = durable.iter().zip(log).position(|(before, again)| before != again);
            at.map_or(Ok(()), |at| {
                Err(format!(
                    "{what}: event {at} was {:?} and is now {:?}\nbefore {durable:?}\nnow    {log:?}",
                    durable[at], log[at]
                ))
            })
        };
        if !self.program.hidden {
            return differ(durable, log, "the order changed on replay");
        }
        // Branches that wait outside of the context may be shifted against each other, but each sees the same.
        let per_site = |log: &[Ev]| {
            let mut got: Vec<Ev> = log.iter().filter(|event| matches!(event, Ev::Got(..))).cloned().collect();
            got.sort_by_key(|event| match event {
                Ev::Got(site, _) => *site,
                _ => 0,
            });
            got
        };
        let (durable, log) = (per_site(durable), per_site(log));
        for event in &durable {
            let Ev::Got(site, _) = event else { continue };
            let again = log.iter().find(|other| matches!(other, Ev::Got(other, _) if other == site));
            if again.is_some_and(|again| again != event) {
                return Err(format!("{event:?} became {again:?}"));
            }
        }
        Ok(())
    }

    // ── one tick of a life ──────────────────────────────────────────────────────────────────────────────────────

    fn live(&mut self) -> Result<(), String> {
        let tick = self.tick;
        let Some(mut life) = self.life.take() else { return Ok(()) };
        if matches!(life.crash, Some(Crash::At(at)) if tick >= life.began + at) {
            self.life = Some(life);
            return self.crash();
        }
        if let Some(mut flying) = life.flying.take() {
            if flying.answer.is_none() && tick >= flying.apply_at {
                match life.crash {
                    Some(Crash::Before(at) | Crash::Late(at)) if at == life.commits => {
                        if matches!(life.crash, Some(Crash::Late(_))) {
                            self.late = Some(flying.request);
                        }
                        self.life = Some(life);
                        return self.crash();
                    }
                    _ => {}
                }
                let mut answer = now(self.store.commit(flying.request.clone()));
                if matches!(life.crash, Some(Crash::After(at)) if at == life.commits) {
                    self.life = Some(life);
                    return self.crash();
                }
                if self.rng.chance(self.plan.lost_answers) {
                    self.stats.lost_answers += 1;
                    let again = now(self.store.commit(flying.request.clone()));
                    if let (Ok(first), Ok(again)) = (&answer, &again)
                        && (first.number, first.committed, &first.facts)
                            != (again.number, again.committed, &again.facts)
                    {
                        return Err(format!("a repeated commit was answered {again:?} instead of {first:?}"));
                    }
                    answer = again;
                }
                flying.answer = Some(answer);
            }
            match flying.answer {
                Some(answer) if tick >= flying.answer_at => {
                    if let Err(error) = &answer {
                        return Err(format!("a commit was refused: {error}"));
                    }
                    life.machine.answered(answer);
                }
                _ => life.flying = Some(flying),
            }
        }
        let running = std::mem::take(&mut life.running);
        for (due, op, attempt, token) in running {
            if due <= tick {
                let length = Duration::from_millis(1);
                let site = life.host.site_of.get(&op).and_then(|site| self.task_of_site.get(site)).copied();
                let result = self.end_of(site.ok_or("an attempt of no task ended")?, token);
                life.machine.task_ended(op, attempt, result, length);
            } else {
                life.running.push((due, op, attempt, token));
            }
        }
        if life.news_at.is_some_and(|at| at <= tick) {
            life.news_at = None;
            let (facts, high, purse) = now(self.store.facts_after(ORG, self.execution, life.machine.known()))
                .map_err(|error| error.to_string())?;
            life.machine.resumed(facts, high, purse);
        }
        if life.hold_at.is_some_and(|at| at <= tick) {
            life.hold_at = None;
            life.machine.hold_elapsed();
        }
        if life.ask_at.is_some_and(|at| at <= tick) {
            life.ask_at = None;
            life.machine.ask_again();
        }
        if life.patience.is_some_and(|(at, _)| at <= tick) {
            let (_, timer) = life.patience.take().unwrap_or_default();
            life.machine.divergence_elapsed(timer);
        }
        if life.flying.is_none() && !life.machine.is_parked() && !life.machine.is_over() && self.rng.chance(40) {
            let (facts, high, purse) = now(self.store.facts_after(ORG, self.execution, life.machine.known()))
                .map_err(|error| error.to_string())?;
            life.machine.facts(facts, high, purse);
        }
        self.drain(&mut life)?;
        life.host.turn(&mut life.machine);
        // A read may have told branches to stop: their outcomes are on their way.
        let handing = life.machine.effects.iter().any(|effect| matches!(effect, Effect::Deliver(_)));
        let quiet = life.host.is_quiet() && !handing;
        if quiet && (!life.was_quiet || life.asked || self.rng.chance(5)) && !life.machine.is_over() {
            let concurrent = life.host.alive() > 1;
            life.lease_fresh = !self.rng.chance(5);
            let asks = std::mem::take(&mut life.asked) || self.rng.chance(50);
            let outside = asks.then(|| life.host.outside());
            life.machine.settle(concurrent, outside, life.lease_fresh);
        }
        life.was_quiet = quiet;
        let parked = self.drain(&mut life)?;
        if parked && self.rng.chance(self.plan.evict) {
            self.life = Some(life);
            return self.end_life();
        }
        self.life = Some(life);
        Ok(())
    }

    /// Carries out what the machine asks; says whether the run was parked.
    fn drain(&mut self, life: &mut Life) -> Result<bool, String> {
        self.learn(life);
        let mut parked = false;
        while let Some(effect) = life.machine.next_effect() {
            self.stats.steps += 1;
            self.stats.trace = traced(self.stats.trace, &effect);
            match effect {
                Effect::Deliver(handed) => {
                    for one in &handed {
                        self.check_handed(life, one.op, &one.outcome)?;
                        let site = life.host.site_of.get(&one.op);
                        self.stats.sent += u64::from(site.is_some_and(|site| life.host.sent.contains_key(site)));
                    }
                    if handed.iter().any(|one| one.op == OpRef::CHECKPOINT) {
                        self.stats.checkpoints += 1;
                    }
                    life.was_quiet = false;
                    life.host.deliver(handed);
                }
                Effect::Start(start) => {
                    let site = life.host.site_of.get(&start.op).copied().ok_or("a task of no site was started")?;
                    if life.finished_before.contains(&site) {
                        self.restarted_finished.push(site);
                    }
                    if start.options.side_effects == crate::model::SideEffects::AtMostOnce {
                        now(self.store.task(ORG, self.execution, start.task))
                            .map_err(|_| "started before its intent was durable")?;
                        let starts = self.once_only.entry(start.task).or_default();
                        *starts += 1;
                        if *starts > 1 {
                            return Err(format!("site {site} must not run twice and was started again"));
                        }
                    }
                    let beside = life.machine.draft.ops.iter().any(|op| op.sequence == start.id.slot.sequence);
                    let read = |op: &crate::journal::op::Op| {
                        op.label.kind == OpKind::Read && matches!(op.place, Place::Placed)
                    };
                    let unread =
                        life.machine.segment.ops.iter().any(read) || !life.machine.draft.read_counts.is_empty();
                    if beside && (!life.lease_fresh || unread) {
                        return Err(format!("site {site} was started beside a commit that had to come first"));
                    }
                    let token = self.mint(start.task)?;
                    let due = self.tick + 1 + self.rng.below(12);
                    life.running.push((due, start.op, start.attempt, token));
                }
                Effect::CancelTask(op) => life.running.retain(|(_, running, ..)| *running != op),
                Effect::Interrupt(op) => return Err(format!("{op:?} was interrupted, and no signal asks for it")),
                Effect::Commit(draft) => {
                    life.commits += 1;
                    if let Some((most, _)) = self.plan.limits {
                        let largest = draft.batch.ops.len().max(draft.batch.attempts.len());
                        if largest > most.count {
                            return Err(format!("a commit of {largest} where {} were the limit", most.count));
                        }
                        self.stats.parts += u64::from(largest == most.count);
                    }
                    let apply_at = self.tick + self.rng.below(3);
                    let answer_at = apply_at + self.rng.below(3);
                    let request = self.request(life, *draft);
                    life.flying = Some(Flying { request, apply_at, answer_at, answer: None });
                }
                Effect::ArmHold => life.hold_at = Some(self.tick + 5),
                Effect::ArmDivergence(timer, patience) => {
                    life.patience = Some((self.tick + patience.as_secs() * SECOND, timer));
                }
                Effect::Ask => life.asked = true,
                Effect::AskLater => life.ask_at = Some(self.tick + 4),
                Effect::Parked => parked = true,
                Effect::WentOn | Effect::Finished(_) => {}
                Effect::Stop(error) => return Err(format!("the copy was stopped: {error}")),
            }
        }
        Ok(parked)
    }

    /// An outcome is durable before the agent sees it, and belongs to the site that gets it.
    fn check_handed(&self, life: &Life, op: OpRef, outcome: &Outcome) -> Result<(), String> {
        let Some(site) = life.host.site_of.get(&op) else { return Ok(()) };
        let site = life.host.joined.get(site).unwrap_or(site);
        if life.machine.kind_of(op) == Some(OpKind::Child) {
            return self.check_child(*site, outcome);
        }
        if life.machine.kind_of(op) == Some(OpKind::Send) {
            return self.check_sent(life, *site, outcome);
        }
        if let Outcome::Event(event) = outcome {
            let told = match &**event {
                ChildEvent::Completed { output } => Outcome::Value(output.clone()),
                ChildEvent::Failed { error } => Outcome::Failed(error.clone()),
                _ => return Ok(()),
            };
            return self.check_child(*site, &told);
        }
        if let Outcome::Failed(failure) = outcome {
            let task = self.task_of_site.get(site).ok_or_else(|| format!("site {site} has no task"))?;
            let stored = self.stored(*task)?;
            if stored.status != TaskStatus::Failed || failure.message != format!("of {site}") {
                return Err(format!("site {site} was handed {failure:?}, but {:?} is durable", stored.status));
            }
        }
        if let Outcome::Value(value) = outcome {
            let token = text(value);
            if token == format!("once {site}") {
                return Ok(());
            }
            let of = token.trim_start_matches("of ").split('#').next().unwrap_or_default();
            if of.parse() != Ok(*site) {
                return Err(format!("site {site} was handed the result {token:?}"));
            }
            let task = self.task_of_site.get(site).ok_or_else(|| format!("site {site} has no task"))?;
            let stored = self.stored(*task)?;
            if stored.output.as_ref().map(text) != Some(token) {
                return Err(format!("site {site} was handed {:?} before it was durable", word(outcome)));
            }
        }
        Ok(())
    }

    /// A message that was sent is in the mailbox of the child; one that was not says why.
    fn check_sent(&self, life: &Life, site: Site, outcome: &Outcome) -> Result<(), String> {
        let is_right = match (outcome, life.host.sent.get(&site)) {
            (Outcome::Cancelled, _) => true,
            (Outcome::Failed(failure), None) => failure.code == Code::NoParent,
            (Outcome::Failed(failure), Some(_)) => failure.code == Code::ExecutionClosed,
            (Outcome::Done, Some(None)) => true,
            (Outcome::Done, Some(Some(child))) => self.messages(*child)?.contains(&site),
            _ => false,
        };
        if is_right { Ok(()) } else { Err(format!("site {site} sent a message and was handed {outcome:?}")) }
    }

    /// The sites whose messages a child has.
    fn messages(&self, child: ExecutionId) -> Result<Vec<Site>, String> {
        let page = PageRequest { limit: 1_000, ..PageRequest::default() };
        let signals = now(self.store.signals(ORG, child, page)).map_err(|error| error.to_string())?.items;
        let site = |signal: &Signal| text(&signal.payload).strip_prefix("message ")?.parse().ok();
        Ok(signals.iter().filter_map(site).collect())
    }

    /// A child's end is durable before its parent sees it, and is that of the child of this site.
    fn check_child(&self, site: Site, outcome: &Outcome) -> Result<(), String> {
        let told = match outcome {
            Outcome::Value(value) => (Status::Completed, text(value)),
            Outcome::Failed(failure) if failure.code == Code::ChildFailed => (Status::Failed, failure.message.clone()),
            _ => return Ok(()),
        };
        let ended = |child: &&Execution| site_of_child(child) == site && child.status == told.0;
        if told.1 == format!("of {site}") && self.children()?.iter().any(|child| ended(&child)) {
            return Ok(());
        }
        Err(format!("site {site} was handed {told:?}, and no such end of a child is durable"))
    }

    fn request(&self, life: &Life, draft: CommitDraft) -> CommitRequest {
        let number = u128::from(self.tick) << 32 | u128::from(life.commits);
        CommitRequest {
            org: ORG,
            execution: self.execution,
            lease: life.lease,
            request_id: RequestId(uuid::Uuid::from_u128(number)),
            digest: Digest::of_parts(&[&draft.base.to_le_bytes(), &(draft.batch.ops.len() as u64).to_le_bytes()]),
            base: draft.base,
            known: draft.known,
            batch: draft.batch,
            refused: Vec::new(),
            local: None,
        }
    }

    // ── what is stored ──────────────────────────────────────────────────────────────────────────────────────────

    pub(super) fn tasks(&self) -> Result<Vec<Task>, String> {
        let page = PageRequest { limit: 1_000, ..PageRequest::default() };
        now(self.store.tasks(ORG, self.execution, page)).map(|page| page.items).map_err(|error| error.to_string())
    }

    /// A site whose step has two rows, or whose entry was appended twice.
    pub(super) fn doubled(&self) -> Result<Option<String>, String> {
        let mut seen = HashSet::new();
        for task in self.tasks()? {
            let site = self.site_of_task.get(&task.new.id).ok_or("a task of no site is stored")?;
            if !seen.insert(format!("step {site}")) {
                return Ok(Some(format!("the step of site {site}")));
            }
        }
        let own = |child: &Execution| child.parent == Some(self.execution);
        for child in self.children()?.iter().filter(|child| own(child)) {
            let site = site_of_child(child);
            if !seen.insert(format!("child {site}")) {
                return Ok(Some(format!("the child of site {site}")));
            }
            for site in self.messages(child.new.id)? {
                if !seen.insert(format!("message {site}")) {
                    return Ok(Some(format!("the message of site {site}")));
                }
            }
        }
        let page = PageRequest { limit: 1_000, ..PageRequest::default() };
        let entries = now(self.store.entries(ORG, self.execution, page)).map_err(|error| error.to_string())?;
        let mut leaves: HashMap<String, EntryId> = HashMap::new();
        for entry in entries.items {
            let new = &entry.new;
            if leaves.insert(new.thread.clone(), new.id).is_some_and(|leaf| new.parent != Some(leaf)) {
                return Ok(Some(format!("a leaf of thread {:?}", new.thread)));
            }
            let content = text(&entry.new.content);
            let site = content.split(" after ").next().unwrap_or_default().to_owned();
            if !seen.insert(site.clone()) {
                return Ok(Some(site));
            }
        }
        Ok(None)
    }

    pub(super) fn stored_signals(&self) -> Vec<Signal> {
        let page = PageRequest { limit: 1_000, ..PageRequest::default() };
        now(self.store.signals(ORG, self.execution, page)).map(|page| page.items).unwrap_or_default()
    }

    pub(super) fn journal(&self, segment: u32) -> Vec<RecordedOp> {
        now(self.store.journal(ORG, self.execution, segment)).unwrap_or_default()
    }

    pub(super) fn events(&self) -> Vec<Event> {
        now(self.store.events(ORG, self.execution, 0, 100_000)).unwrap_or_default()
    }

    /// The events of the run, a line each.
    pub(super) fn story(&self) -> String {
        let line = |event: &Event| format!("{} {:?} {:?} {}", event.number, event.kind, event.sequence, event.data);
        self.events().iter().map(line).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn warnings(&self, word: &str) -> usize {
        let named = |event: &Event| event.kind == EventKind::Warning && event.data["warning"] == word;
        self.events().iter().filter(|event| named(event)).count()
    }
}
