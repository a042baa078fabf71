//! The loops that advance runs and tasks in this process: claims, leases, slots, the parked cache, drain.
//!
//! A worker serves a [`Host`], which knows how to run agents and tasks of one language. It never looks at their code.

mod agent_loop;
mod batch_timer;
mod heartbeat;
mod inline_permits;
mod parked;
mod progress;
mod task_loop;

pub use task_loop::Ticket;

use crate::error::{Kind, Result};
use crate::id::{ExecutionId, OrgId, TaskId, WorkerId};
use crate::journal::{MachineConfig, OpRef};
use crate::model::machine::MACHINE_QUEUES;
use crate::model::{Batch, ClaimedTask, OpBody, Placement, Rows};
use crate::session::{Closed, Conversations, Keeper, Session, Turn};
use crate::storage::available::LOST_FILE;
#[cfg(feature = "sqlite")]
use crate::storage::local::with_file;
use crate::storage::{ClaimRequest, Only, Storage, WorkerInfo};
use crate::streaming::{Change, Chunks, Listening};
use crate::sync::Mutex;
use crate::tracer::Tracer;
use batch_timer::Holds;
use inline_permits::Inline;
use parked::Parked;
use progress::Reports;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long a lease is valid after it was renewed.
pub const LEASE_TTL: Duration = Duration::from_secs(30);
/// How often leases are renewed.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// When they are renewed again after they were at risk.
const RENEW_SOON: Duration = Duration::from_secs(2);
/// A worker that could not renew for so long drops its runs, before others may claim them.
const STOP_AFTER: Duration = Duration::from_secs(20);
/// How long a closing worker waits for a claim that is on its way.
const CLAIM_GRACE: Duration = Duration::from_secs(5);

/// What runs agents and tasks of one language.
#[doc(hidden)]
pub trait Host: Send + Sync + 'static {
    /// Agents it can run now.
    fn agent_kinds(&self) -> Arc<[String]>;
    /// Tasks it can run now.
    fn task_kinds(&self) -> Arc<[String]>;
    /// How an agent was declared; none if it is not served here.
    fn agent_config(&self, kind: &str) -> Option<MachineConfig>;
    /// Starts the agent of a session from its top. Must connect a port and return at once.
    fn start_agent(&self, session: Arc<Session>);
    /// Starts an attempt of a task. Must return at once. The end of the attempt is reported to the ticket.
    fn start_task(&self, task: ClaimedTask, ticket: Ticket);
}

/// How much a worker takes on.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Tenant.
    pub org: OrgId,
    /// The queue it polls.
    pub queue: String,
    /// The most runs that advance at the same time. Waiting ones do not count.
    pub max_agents: usize,
    /// The most claimed tasks that run at the same time.
    pub max_tasks: usize,
    /// Whether inline attempts count too: then at most `max_tasks` attempts run here, claimed and inline together.
    pub count_inline: bool,
    /// The most waiting runs that are kept in memory.
    pub max_parked: usize,
    /// How long a waiting run is kept in memory.
    pub max_parked_age: Duration,
    /// Serve this run and its family alone.
    pub only: Option<ExecutionId>,
    /// The largest payload in bytes, if that is less than the store's own limit.
    pub max_payload: u64,
    /// The name that people see.
    pub name: String,
    /// The file for the values of runs with persistence "local", where the worker is one of a machine. It is made for the first
    /// of them. Where none is set, whoever opens the backend by its URL gives `local.db` of `FLOVYN_HOME`, else of `~/.flovyn`.
    pub values: Option<PathBuf>,
    /// Takes records of what runs do here.
    pub tracer: Tracer,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            org: OrgId::DEFAULT,
            queue: "default".into(),
            max_agents: 100,
            max_tasks: 32,
            count_inline: false,
            max_parked: 10_000,
            max_parked_age: Duration::from_secs(600),
            only: None,
            max_payload: u64::MAX,
            name: format!("process {}", std::process::id()),
            values: None,
            tracer: Tracer::default(),
        }
    }
}

/// A running worker. Dropping it without [`close`](Self::close) leaves its leases to expire.
#[derive(Clone)]
pub struct Worker(Arc<Core>);

pub(crate) struct Core {
    pub me: Weak<Core>,
    pub id: WorkerId,
    pub options: WorkerOptions,
    pub storage: Arc<dyn Storage>,
    pub conversations: Arc<Conversations>,
    pub chunks: Chunks,
    pub runtime: tokio::runtime::Handle,
    pub host: Arc<dyn Host>,
    pub active: Mutex<HashMap<ExecutionId, Arc<Session>>>,
    parked: Parked,
    pub tickets: Mutex<HashMap<TaskId, Ticket>>,
    /// Places reserved for tasks that are being claimed. Changed only under the lock of `tickets`, so that the sum of
    /// both is never over the limit.
    pub reserved_tasks: AtomicUsize,
    /// Inline attempts, if they count. Locked after `tickets`, never before.
    inline: Mutex<Inline>,
    holds: Holds,
    reports: Reports,
    listening: Mutex<Option<Listening>>,
    /// Counts claims of runs. The kind that comes first in a claim follows from it.
    turn: AtomicUsize,
    /// Counts the hints that anything may have changed, and the looks at the runs that advance here. A claimed run that
    /// is not in
    /// `active` yet is missed by both, so it compares the count at its claim with the count at its start.
    everything: AtomicU64,
    /// The loops that claim.
    claiming: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    pub closing: AtomicBool,
    /// A place for a run is free.
    pub freed: Notify,
    /// A place for a task is free.
    pub freed_task: Notify,
    pub closed: Notify,
    /// Whether the worker has ended.
    gone: watch::Sender<bool>,
}

impl Worker {
    /// Registers the worker and starts to claim work.
    pub async fn start(
        storage: Arc<dyn Storage>,
        chunks: Chunks,
        host: Arc<dyn Host>,
        options: WorkerOptions,
    ) -> Result<Self> {
        #[cfg(feature = "sqlite")]
        let storage = match options.queue.starts_with(MACHINE_QUEUES) && storage.rows() == Rows::Elsewhere {
            true => with_file(storage, options.values.clone()),
            false => storage,
        };
        let id = WorkerId::fresh();
        let queues = vec![options.queue.clone()];
        let info = WorkerInfo { org: options.org, id, name: options.name.clone(), queues, elsewhere: false };
        storage.register_worker(info).await?;
        let core = Arc::new_cyclic(|me| Core {
            me: me.clone(),
            id,
            parked: Parked::new(options.max_parked, options.max_parked_age),
            conversations: Arc::new(Conversations::new(storage.clone(), options.org)),
            options,
            storage,
            chunks,
            runtime: tokio::runtime::Handle::current(),
            host,
            active: Mutex::default(),
            tickets: Mutex::default(),
            reserved_tasks: AtomicUsize::default(),
            inline: Mutex::default(),
            holds: Holds::default(),
            reports: Reports::default(),
            listening: Mutex::default(),
            turn: AtomicUsize::default(),
            everything: AtomicU64::default(),
            claiming: Mutex::default(),
            closing: AtomicBool::new(false),
            freed: Notify::new(),
            freed_task: Notify::new(),
            closed: Notify::new(),
            gone: watch::Sender::new(false),
        });
        let (followed, heard) = (Arc::downgrade(&core), Arc::downgrade(&core));
        let follows = move || followed.upgrade().map(|core| core.follows()).unwrap_or_default();
        *core.listening.lock() = Some(core.storage.hints().follow(follows, move |changed| {
            if let Some(core) = heard.upgrade() {
                core.hinted(changed);
            }
        }));
        let claiming =
            [crate::spawn::task(agent_loop::run(core.clone())), crate::spawn::task(task_loop::run(core.clone()))];
        core.claiming.lock().extend(claiming);
        crate::spawn::task(heartbeat::run(core.clone()));
        crate::spawn::task(batch_timer::run(core.clone()));
        Ok(Self(core))
    }

    /// The worker's id.
    pub fn id(&self) -> WorkerId {
        self.0.id
    }

    /// What it works on now: runs that advance and tasks that it has claimed. An inline task belongs to its run.
    pub fn active(&self) -> usize {
        self.active_runs() + self.active_tasks()
    }

    /// Runs that advance now.
    pub fn active_runs(&self) -> usize {
        self.0.active.lock().len()
    }

    /// Claimed tasks whose attempt is under way, or whose end is not stored yet.
    pub fn active_tasks(&self) -> usize {
        self.0.tickets.lock().len()
    }

    /// Waiting runs kept in memory.
    pub fn parked(&self) -> usize {
        self.0.parked.len()
    }

    /// Drops all waiting runs from memory. They go on from their journals.
    pub fn evict_parked(&self) {
        for session in self.0.parked.take_all() {
            session.evict();
        }
    }

    /// Looks for work now.
    pub fn nudge(&self) {
        self.0.storage.hints().agents_ready();
        self.0.storage.hints().tasks_ready();
    }

    /// Closes the worker. It claims and starts nothing more, and waits at most `grace` for the steps and claimed tasks
    /// that are under way to end and be stored. Then it drops its runs, gives them back and unregisters. A second call
    /// waits for the first one.
    pub async fn close(&self, grace: Duration) -> Result<()> {
        if self.0.closing.swap(true, Ordering::AcqRel) {
            let _ = self.0.gone.subscribe().wait_for(|gone| *gone).await;
            return Ok(());
        }
        let _gone = Gone(&self.0);
        self.nudge();
        self.0.freed.notify_one();
        self.0.freed_task.notify_one();
        for session in self.0.parked.take_all() {
            session.close(Closed::Evicted);
        }
        let mut sessions: Vec<_> = self.0.active.lock().values().cloned().collect();
        sessions.iter().for_each(|session| session.drain());
        let deadline = tokio::time::Instant::now() + grace;
        loop {
            let late = tokio::time::Instant::now() >= deadline;
            sessions.retain(|session| {
                let waits = session.is_working() && !late;
                if !waits {
                    session.close(Closed::Evicted);
                }
                waits
            });
            if late || (sessions.is_empty() && self.0.tickets.lock().is_empty()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let left: Vec<_> = self.0.tickets.lock().values().cloned().collect();
        for ticket in left {
            ticket.stop();
        }
        self.0.closed.notify_waiters();
        self.0.listening.lock().take();
        match self.unregister().await {
            // An unavailable store is no error here. All that was acknowledged is stored, and the leases end by
            // themselves; an error would only hide what the caller has met before. Lost database files are an error:
            // what they acknowledged is gone.
            Err(error)
                if error.kind() == Kind::Unavailable && !error.context().iter().any(|(name, _)| name == LOST_FILE) =>
            {
                tracing::warn!(%error, "a worker could not give its work back; others take it when its leases are over");
                Ok(())
            }
            result => result,
        }
    }

    /// Unregisters the worker. A claim on its way is waited for: what it claimed afterwards would be held by nobody until the lease
    /// is over.
    async fn unregister(&self) -> Result<()> {
        let claiming = std::mem::take(&mut *self.0.claiming.lock());
        let _ = tokio::time::timeout(CLAIM_GRACE, futures::future::join_all(claiming)).await;
        self.0.storage.unregister_worker(self.0.options.org, self.0.id).await
    }

    /// Ends it as `kill -9` would and lets others have its work, as once its end is noticed, for tests.
    #[cfg(feature = "testing")]
    pub async fn kill_noticed(&self) -> Result<()> {
        self.kill();
        self.unregister().await
    }

    /// Ends it as `kill -9` would, for tests: nothing is given back, and no answer is read any more.
    #[cfg(feature = "testing")]
    pub fn kill(&self) {
        self.0.closing.store(true, Ordering::Release);
        let _gone = Gone(&self.0);
        self.nudge();
        self.0.freed.notify_one();
        self.0.freed_task.notify_one();
        self.0.closed.notify_waiters();
        self.0.listening.lock().take();
        let sessions: Vec<_> = self.0.active.lock().values().cloned().collect();
        let killed = || crate::Error::new(crate::error::Code::LeaseLost, "the process was killed on purpose");
        for session in sessions.into_iter().chain(self.0.parked.take_all()) {
            session.close(Closed::Lost(killed()));
        }
        for ticket in self.0.tickets.lock().values() {
            ticket.stop();
        }
    }

    /// A weak handle.
    pub(crate) fn downgrade(&self) -> Weak<Core> {
        Arc::downgrade(&self.0)
    }

    /// The worker of a weak handle. None once it has ended.
    pub(crate) fn upgrade(weak: &Weak<Core>) -> Option<Self> {
        weak.upgrade().filter(|core| !*core.gone.borrow()).map(Self)
    }

    /// Waits until the worker is closed.
    pub async fn closed(&self) {
        let closed = self.0.closed.notified();
        if !self.0.closing.load(Ordering::Acquire) {
            closed.await;
        }
    }
}

/// Wakes those who wait for a worker's end when it is dropped, so also if the call that ends the worker is cancelled.
struct Gone<'a>(&'a Core);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.gone.send_replace(true);
    }
}

impl Core {
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Free places for runs.
    pub(crate) fn free_agents(&self) -> usize {
        self.options.max_agents.saturating_sub(self.active.lock().len())
    }

    /// Reserves up to `most` free places for tasks that are being claimed, and returns how many.
    pub(crate) fn reserve_tasks(&self, most: usize) -> usize {
        let tickets = self.tickets.lock();
        let reserved = self.reserved_tasks.load(Ordering::Relaxed);
        let inline = self.inline.lock().taken_or_wanted();
        let places = most.min(self.options.max_tasks.saturating_sub(tickets.len() + reserved + inline));
        self.reserved_tasks.store(reserved + places, Ordering::Relaxed);
        places
    }

    /// The request of a claim.
    pub(crate) fn claim_of(&self, kinds: Arc<[String]>, limit: usize) -> ClaimRequest {
        ClaimRequest {
            org: self.options.org,
            worker: self.id,
            queue: self.options.queue.clone(),
            kinds,
            limit,
            ttl: LEASE_TTL,
            only: self.options.only.map(Only::Family),
        }
    }

    /// Gives back a run whose copy here has ended, so that it is entered again.
    fn give_back(&self, session: &Arc<Session>) {
        let (storage, org, id, lease) = (self.storage.clone(), session.org(), session.execution_id(), session.lease());
        self.runtime.spawn(async move {
            if let Err(error) = storage.release(org, id, lease).await {
                tracing::debug!(execution = %id, %error, "a run that was put away is no longer this worker's");
            }
        });
    }

    fn hinted(&self, changed: Option<Change>) {
        match changed {
            Some(change) => {
                let session = {
                    let active = self.active.lock();
                    active.get(&change.execution).cloned().or_else(|| self.parked.get(change.execution))
                };
                let session = session.filter(|session| session.org() == change.org);
                if let Some(session) = &session {
                    session.hinted(change.high);
                }
                // Somebody else has ended the run. A heartbeat tells what is lost, so one is sent at once.
                let held = || session.is_some_and(|session| session.held().is_some());
                if change.ended == Some(true) && (held() || self.works_for(change.execution)) {
                    self.storage.hints().leases_at_risk();
                }
            }
            None => {
                self.everything.fetch_add(1, Ordering::AcqRel);
                let sessions: Vec<_> = self.active.lock().values().cloned().collect();
                sessions.iter().for_each(|session| session.hinted(u64::MAX));
            }
        }
    }

    /// Whether a claimed task of the run is under way here.
    fn works_for(&self, run: ExecutionId) -> bool {
        self.tickets.lock().values().any(|ticket| ticket.execution() == run)
    }

    /// The runs that advance here, for a look at whether they have new facts. A run that is being claimed is not among
    /// them; it sees by the count that a look has begun, and looks for itself.
    fn follows(&self) -> Vec<(OrgId, ExecutionId)> {
        self.everything.fetch_add(1, Ordering::AcqRel);
        self.active.lock().keys().map(|id| (self.options.org, *id)).collect()
    }
}

impl Keeper for Core {
    fn parked(&self, session: &Arc<Session>) {
        let evicted = {
            let mut active = self.active.lock();
            if !session.is_parked() || session.is_closed() {
                return;
            }
            active.remove(&session.execution_id());
            self.parked.put(session.clone())
        };
        self.freed.notify_one();
        for evicted in evicted {
            evicted.evict();
        }
    }

    fn went_on(&self, session: &Arc<Session>) {
        let mut active = self.active.lock();
        if !session.is_closed() {
            self.parked.remove(session);
            active.entry(session.execution_id()).or_insert_with(|| session.clone());
        }
    }

    fn closed(&self, session: &Arc<Session>, unfinished: bool) {
        let id = session.execution_id();
        {
            let mut active = self.active.lock();
            if active.get(&id).is_some_and(|current| Arc::ptr_eq(current, session)) {
                active.remove(&id);
            }
        }
        self.parked.remove(session);
        self.freed.notify_one();
        // A closing worker gives back everything when it unregisters.
        if unfinished && !self.is_closing() {
            self.give_back(session);
        }
    }

    fn parks(&self) -> bool {
        self.options.max_parked > 0 && !self.is_closing()
    }

    fn wants(&self, execution: ExecutionId, batch: &Batch) -> Option<ClaimRequest> {
        let queued = batch.ops.iter().filter_map(|op| match &op.body {
            OpBody::Task(task) if task.placement == Placement::Queue => Some(task),
            _ => None,
        });
        let ours: Vec<_> = queued.filter(|task| task.queue == self.options.queue).map(|task| &task.kind).collect();
        if ours.is_empty() || !self.storage.brings_tasks() || self.is_closing() {
            return None;
        }
        let kinds = self.host.task_kinds();
        let served = ours.into_iter().filter(|kind| kinds.contains(kind)).count();
        let limit = self.reserve_tasks(served);
        let only = Some(Only::Run(execution));
        (limit > 0).then(|| ClaimRequest { only, ..self.claim_of(kinds, limit) })
    }

    fn bring(&self, wanted: &ClaimRequest, tasks: Vec<ClaimedTask>) {
        if let Some(me) = self.me.upgrade() {
            task_loop::take_on(&me, wanted.limit, tasks);
        }
    }

    fn turn(&self, session: &Arc<Session>, op: OpRef) -> Turn {
        self.turn_of(session, op)
    }

    fn arm_hold(&self, session: &Arc<Session>) {
        self.holds.arm(session);
    }

    fn progressed(&self, task: TaskId, attempt: u32, report: String) {
        if let Some(me) = self.me.upgrade() {
            progress::tell(&me, task, attempt, report);
        }
    }
}
