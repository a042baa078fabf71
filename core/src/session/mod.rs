//! Where the pure machine meets storage and host: one activation of a run in this process.
//!
//! A [`Session`] is the host's handle. Its methods are quick and synchronous; commits, fetches and timers run on the
//! session's runtime, and what they bring is pulled by the host with [`Session::take_effects`] after [`Port::ready`].

mod conversations;
mod effects;
mod reads;
mod tasks;
mod traces;
mod warnings;

use crate::error::{Code, Error, Kind, Result};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, TaskId};
use crate::journal::{
    Answer, Call, Called, Ending, Handed, Machine, MachineConfig, OnceBegin, OpRef, Outside, Question, StartTask,
};
use crate::model::{Batch, Claim, ClaimedTask, Execution, Fact, Lease, Segment, Status};
use crate::payload::{Content, ContentHash, Digest, Payload, RowOf};
use crate::storage::stored::Room;
use crate::storage::{ClaimRequest, Storage};
use crate::streaming::Chunks;
use crate::tracer::{Activation, Tracer};
use bytes::Bytes;
pub(crate) use conversations::Conversations;
use parking_lot::{Mutex, MutexGuard};
pub(crate) use reads::number_of;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tasks::Tried;
pub(crate) use tasks::progress;

/// How long a batch is held back beside an inline task: a step that ends sooner is one commit, not two (rule 1).
pub(crate) const HOLD: Duration = Duration::from_millis(5);

/// How much of the lease must be left for a task to start beside its commit (rule 1).
const FRESH: Duration = Duration::from_secs(10);

/// How a host is told that something is there to pull.
pub trait Port: Send + Sync {
    /// Effects wait in the session. Called from any thread, never while a lock of the session is held.
    fn ready(&self, session: &Arc<Session>);

    /// Where the host wants the bytes of a large stored value; none where the engine's own memory will do.
    fn room(&self, _value: &Payload) -> Option<Box<dyn Room>> {
        None
    }
}

/// What the host must do, in order.
#[derive(Debug, Clone)]
pub enum HostEffect {
    /// End these awaits in this order, run until quiet, then call `settle`.
    Deliver(Vec<Handed>),
    /// Start an inline attempt; report its end with `task_ended`.
    Start(StartTask),
    /// Tell a running inline attempt to stop; its end no longer matters.
    CancelTask(OpRef),
    /// Once the code is quiet, `settle` again and say whether anything outside may make it go on.
    Ask,
    /// Write to the log what the run warns of.
    Warn(String),
    /// Drop the coroutine the host's own way; the context is sealed.
    Close(Closed),
}

/// Why an activation is over.
#[derive(Debug, Clone, PartialEq)]
pub enum Closed {
    /// The run ended or paused.
    Finished(Status),
    /// The run waits in the store; the coroutine was only a cache (rule 19).
    Evicted,
    /// Its right to go on is lost: another worker has it, or what it needs of the store could not be had.
    Lost(Error),
}

impl Closed {
    /// A run that has ended was taken away by nobody, though the store refuses whoever held it.
    fn or_finished(self) -> Self {
        let Self::Lost(error) = &self else { return self };
        let stands = error.fact("status").and_then(Status::parse);
        let ended = stands.filter(|status| error.code() == Code::LeaseLost && status.is_terminal());
        ended.map_or(self, Self::Finished)
    }
}

/// What is given back when it is dropped: the place of an attempt among those that a worker runs at once.
pub(crate) type Place = Box<dyn Send + Sync>;

/// When an inline attempt may start.
pub(crate) enum Turn {
    /// Now, in a place where places are counted.
    Now(Option<Place>),
    /// By [`Session::begin_in`].
    Later,
}

/// What the worker does for its sessions.
pub(crate) trait Keeper: Send + Sync {
    /// The run waits; the session may be parked.
    fn parked(&self, session: &Arc<Session>);
    /// The session is over; `unfinished` tells that its code had not come to where the store can wait for it.
    fn closed(&self, session: &Arc<Session>, unfinished: bool);
    /// A copy that was kept went on by itself: its lease is to be kept up again.
    fn went_on(&self, session: &Arc<Session>);
    /// Whether it keeps the copies of waiting runs.
    fn parks(&self) -> bool;
    /// The claim of tasks that a commit may bring along: those of the batch it has free places for. It keeps the places until
    /// [`bring`](Self::bring).
    fn wants(&self, execution: ExecutionId, batch: &Batch) -> Option<ClaimRequest>;
    /// What a commit has brought along for such a claim.
    fn bring(&self, wanted: &ClaimRequest, tasks: Vec<ClaimedTask>);
    /// Whether an inline attempt may start; one that may not is started when its turn comes.
    fn turn(&self, session: &Arc<Session>, op: OpRef) -> Turn;
    /// Calls `hold_elapsed` a little later.
    fn arm_hold(&self, session: &Arc<Session>);
    /// An inline attempt tells how far it is.
    fn progressed(&self, task: TaskId, attempt: u32, report: String);
}

/// One activation of a run.
pub struct Session {
    me: Weak<Session>,
    storage: Arc<dyn Storage>,
    conversations: Arc<Conversations>,
    chunks: Chunks,
    runtime: tokio::runtime::Handle,
    org: OrgId,
    execution: ExecutionId,
    /// The run as it was claimed.
    claimed: Execution,
    state: Option<Payload>,
    /// Segment and tail that its activation began with.
    entered_at: (u32, usize),
    max_payload: u64,
    lease: Mutex<(Lease, Instant)>,
    inner: Mutex<Inner>,
    port: OnceLock<Arc<dyn Port>>,
    keeper: OnceLock<Arc<dyn Keeper>>,
    closed: AtomicBool,
    /// How many previews the agent itself has made. Locked while anybody of the run publishes one: they come in their order.
    previews: Mutex<u64>,
    draws: Mutex<(u32, u64)>,
    trace: Activation,
}

struct Inner {
    machine: Machine,
    effects: VecDeque<HostEffect>,
    /// Outcomes that are handed over once they have been fetched.
    fetching: usize,
    /// The highest number a hint has named.
    hinted: u64,
    refreshing: bool,
    running: HashMap<OpRef, tasks::Running>,
    /// Attempts that wait for a place, with the number of the attempt that a try is of.
    waiting: HashMap<OpRef, (StartTask, Tried)>,
    /// Entries that are not durable yet, so that the branch can be read at any moment.
    recent: HashMap<EntryId, crate::model::NewEntry>,
    /// What the last commit stored of large values, for the outcomes that are handed over next.
    kept: HashMap<ContentHash, Content>,
    /// The page of the tail that replay is on: values it hands over next.
    page: HashMap<RowOf, Bytes>,
}

/// What a session is made of.
pub(crate) struct SessionParts {
    pub storage: Arc<dyn Storage>,
    pub conversations: Arc<Conversations>,
    pub chunks: Chunks,
    pub runtime: tokio::runtime::Handle,
    pub claim: Claim,
    pub segment: Segment,
    pub config: MachineConfig,
    pub max_payload: u64,
    pub ttl: Duration,
    pub tracer: Tracer,
}

impl Session {
    pub(crate) fn new(parts: SessionParts) -> Arc<Self> {
        let SessionParts {
            storage,
            conversations,
            chunks,
            runtime,
            claim,
            mut segment,
            config,
            max_payload,
            ttl,
            tracer,
        } = parts;
        let state = segment.checkpoint.as_ref().map(|checkpoint| checkpoint.saved.state.clone());
        segment.execution.base = claim.execution.base;
        let (stored_now, epoch) = (storage.clock().now(), claim.lease.epoch);
        let (number, tail) = (segment.execution.segment, segment.tail.len());
        let trace = Activation::begin(tracer, &claim.execution, epoch, number, tail, stored_now);
        let machine = Machine::new(segment, config);
        let entered_at = (machine.segment(), machine.tail_length());
        let inner = Inner {
            machine,
            effects: VecDeque::new(),
            fetching: 0,
            hinted: 0,
            refreshing: false,
            running: HashMap::new(),
            waiting: HashMap::new(),
            recent: HashMap::new(),
            kept: HashMap::new(),
            page: HashMap::new(),
        };
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            storage,
            conversations,
            chunks,
            runtime,
            org: claim.execution.new.org,
            execution: claim.execution.new.id,
            claimed: claim.execution,
            state,
            entered_at,
            max_payload,
            lease: Mutex::new((claim.lease, now() + ttl)),
            inner: Mutex::new(inner),
            port: OnceLock::new(),
            keeper: OnceLock::new(),
            closed: AtomicBool::new(false),
            previews: Mutex::default(),
            draws: Mutex::new((0, 0)),
            trace,
        })
    }

    /// Tells the session whom to wake. Once, before the agent runs.
    pub fn connect(&self, port: Arc<dyn Port>) {
        let _ = self.port.set(port);
    }

    pub(crate) fn keep(&self, keeper: Arc<dyn Keeper>) {
        let _ = self.keeper.set(keeper);
    }

    // ── what the agent's code does ──────────────────────────────────────────────────────────────────────────────

    /// Makes a call. `once` names the `once` it runs in.
    pub fn call(&self, call: Call, once: Option<&Arc<str>>) -> Result<Called> {
        self.check_open()?;
        if let Call::Entry { content: payload, .. } | Call::Task { input: payload, .. } = &call {
            payload.check_size(self.max_payload)?;
        }
        if let Call::Task { kind, options, .. } = &call {
            options.check(kind)?;
        }
        let entry = match &call {
            Call::Entry { role, entry_type, content, turn_id, metadata, thread } => Some(crate::model::NewEntry {
                id: EntryId::default(),
                parent: None,
                thread: thread.clone(),
                role: role.clone(),
                entry_type: entry_type.clone(),
                content: content.clone(),
                turn_id: turn_id.clone(),
                metadata: metadata.clone(),
            }),
            _ => None,
        };
        let named = self.trace.is_on().then(|| traces::named(&call));
        let mut inner = self.inner.lock();
        let parent = entry.as_ref().and_then(|entry| inner.machine.leaf(&entry.thread));
        let called = inner.machine.call(call, once)?;
        if let (Some(mut entry), Some(id), false) = (entry, called.entry, called.recorded) {
            entry.id = id;
            entry.parent = parent;
            inner.recent.insert(id, entry);
        }
        drop(inner);
        if let Some(named) = named {
            self.trace_call(&called, named);
        }
        Ok(called)
    }

    /// Asks about the outside; the answer is recorded (rule 6).
    pub fn read(&self, question: Question, once: Option<&Arc<str>>) -> Result<Answer> {
        self.check_open()?;
        self.inner.lock().machine.read(question, once)
    }

    /// Starts an await; its end comes as `HostEffect::Deliver`.
    pub fn await_op(&self, op: OpRef) -> Result<()> {
        self.check_open()?;
        self.inner.lock().machine.await_op(op)
    }

    /// Whether an op's outcome was handed over before.
    pub fn is_settled(&self, op: OpRef) -> bool {
        self.inner.lock().machine.is_settled(op)
    }

    /// Gives up an await (rule 13). Nothing once the session is closed.
    pub fn abandon(&self, op: OpRef) {
        if !self.closed.load(Ordering::Acquire) {
            self.with(|machine| machine.abandon(op));
        }
    }

    /// Begins a `once`.
    pub fn once_begin(&self, name: &Arc<str>, digest: Digest) -> Result<OnceBegin> {
        self.check_open()?;
        self.inner.lock().machine.once_begin(name, digest)
    }

    /// Ends a `once` with its result; await the op before going on.
    pub fn once_end(&self, name: &Arc<str>, digest: Digest, value: Payload) -> Result<OpRef> {
        self.check_open()?;
        value.check_size(self.max_payload)?;
        self.inner.lock().machine.once_end(name, digest, value)
    }

    /// Saves a state and ends the segment; `OpRef::CHECKPOINT` is handed `Done` once it is durable.
    pub fn checkpoint(&self, state: Payload, metadata: String) -> Result<()> {
        self.check_open()?;
        state.check_size(self.max_payload)?;
        self.inner.lock().machine.checkpoint(state, metadata)
    }

    /// Ends the run.
    pub fn finish(&self, ending: Ending) {
        if let Ending::Failed(failure) | Ending::Unfit(failure) | Ending::Paused(_, failure) = &ending {
            self.trace.failing(failure);
        }
        let ending = match ending {
            Ending::Completed(output) => match output.check_size(self.max_payload) {
                Ok(()) => Ending::Completed(output),
                Err(error) => {
                    Ending::Unfit(crate::model::Failure::new(error.code(), error.code().as_str(), error.message()))
                }
            },
            ending => ending,
        };
        self.with(|machine| {
            machine.finish(ending);
            machine.settle(false, Some(Outside::Nothing), true);
        });
    }

    /// The code is quiet. `concurrent` tells that several of its branches are alive, `outside` whether something of the
    /// host's own may make one go on: a timer of its event loop, a thread, a future of another library. A host that has to
    /// look for that says nothing until [`HostEffect::Ask`] asks.
    ///
    /// It counts for nothing while an outcome is on its way to the code: the host has looked before that came, and looks again
    /// once it has taken it. Else a second outcome would be handed over beside the first, or the run wait for what has come.
    pub fn settle(&self, concurrent: bool, outside: Option<Outside>) {
        let fresh = self.lease.lock().1.saturating_duration_since(now()) > FRESH;
        self.act(|inner| {
            let delivers = inner.effects.iter().any(|effect| matches!(effect, HostEffect::Deliver(_)));
            if !delivers && inner.fetching == 0 {
                inner.machine.settle(concurrent, outside, fresh);
            }
        });
    }

    /// Tells that several branches are alive, before one of them calls anything.
    pub fn note_concurrent(&self) {
        self.inner.lock().machine.note_concurrent();
    }

    /// Whether something recorded has not been called again yet.
    pub fn is_replaying(&self) -> bool {
        self.inner.lock().machine.is_replaying()
    }

    /// Takes what the host must do.
    pub fn take_effects(&self) -> Vec<HostEffect> {
        self.inner.lock().effects.drain(..).collect()
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(
                Code::Suspended,
                "this copy of the run was put away; it goes on from its journal elsewhere",
            ));
        }
        Ok(())
    }

    // ── who and where ───────────────────────────────────────────────────────────────────────────────────────────

    /// The run.
    pub fn execution_id(&self) -> ExecutionId {
        self.execution
    }

    /// The run as it was when this activation began.
    pub fn execution(&self) -> &Execution {
        &self.claimed
    }

    /// The state of the last checkpoint at the activation.
    pub fn state(&self) -> Option<&Payload> {
        self.state.as_ref()
    }

    /// The tenant.
    pub fn org(&self) -> OrgId {
        self.org
    }

    /// The name of an op.
    pub fn op_id(&self, op: OpRef) -> Option<OpId> {
        self.inner.lock().machine.op_id(op)
    }

    /// The right under which it advances.
    pub fn lease(&self) -> Lease {
        self.lease.lock().0
    }

    /// Where it streams and stores.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    // ── what the worker does ────────────────────────────────────────────────────────────────────────────────────

    /// The heartbeat extended the lease.
    pub(crate) fn renewed(&self, ttl: Duration) {
        self.lease.lock().1 = now() + ttl;
    }

    /// What a heartbeat needs.
    pub(crate) fn standing(&self) -> (ExecutionId, u64, u64) {
        let known = self.inner.lock().machine.known();
        (self.execution, self.lease().epoch, known)
    }

    /// Epoch and last commit of the lease it holds; none where a commit on its way, or one that waits, may say otherwise.
    pub(crate) fn held(&self) -> Option<(u64, u64)> {
        let inner = self.inner.lock();
        let machine = &inner.machine;
        (!machine.is_committing() && !machine.is_parked()).then(|| (self.lease().epoch, machine.base()))
    }

    /// Takes a new claim of the run for this parked copy, if it may go on under it; [`Session::resume`] brings the news.
    ///
    /// Its code may go on by itself at any moment, so the lease changes in the same moment as the machine: what it commits
    /// under the one before would be refused, and the claim would be held by nobody.
    pub(crate) fn take_claim(&self, claim: &Claim, ttl: Duration) -> bool {
        let mut inner = self.inner.lock();
        let may = !self.closed.load(Ordering::Acquire) && inner.machine.take_claim(claim.execution.base);
        if may {
            *self.lease.lock() = (claim.lease, now() + ttl);
        }
        may
    }

    /// Goes on with what has happened up to the claim that was taken.
    pub(crate) fn resume(&self, facts: Vec<Fact>, high: u64) {
        self.trace.resumed(self.storage.clock().now(), self.lease().epoch);
        self.with(|machine| machine.resumed(facts, high));
        self.refresh_if_hinted();
    }

    pub(crate) fn known(&self) -> u64 {
        self.inner.lock().machine.known()
    }

    /// The hold that was armed is over.
    pub(crate) fn hold_elapsed(&self) {
        self.with(Machine::hold_elapsed);
    }

    /// Whether nothing runs and the run waits in the store.
    pub fn is_parked(&self) -> bool {
        self.inner.lock().machine.is_parked()
    }

    /// Whether it is parked, and its code has nothing left to run.
    pub(crate) fn is_idle(&self) -> bool {
        self.inner.lock().machine.is_idle()
    }

    /// Whether age alone must not evict it.
    pub(crate) fn is_held_by_host(&self) -> bool {
        let machine = &self.inner.lock().machine;
        machine.was_abandoned_by_host() || machine.has_host_timer()
    }

    /// Whether it waits for something that ends with this copy, so that a copy put away must be entered again.
    pub(crate) fn has_host_timer(&self) -> bool {
        self.inner.lock().machine.has_host_timer()
    }

    /// Whether this activation is over.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Gives back the room that only a run that advances needs.
    pub(crate) fn shrink(&self) {
        let mut inner = self.inner.lock();
        inner.effects.shrink_to_fit();
        inner.machine.shrink();
    }

    pub(crate) fn tail_length(&self) -> usize {
        self.inner.lock().machine.tail_length()
    }

    /// Whether it is a copy that was entered again and has recorded nothing since: putting it away would cost another
    /// replay for nothing.
    pub(crate) fn only_replayed(&self) -> bool {
        let machine = &self.inner.lock().machine;
        self.entered_at.1 > 0 && self.entered_at == (machine.segment(), machine.tail_length())
    }

    /// Puts the activation away: the context is sealed and the host drops the coroutine.
    pub(crate) fn close(&self, why: Closed) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.end(why, self.inner.lock());
        }
    }

    /// Starts nothing more and hands nothing over: what is under way may end and be stored before the copy is put away.
    pub(crate) fn drain(&self) {
        self.with(Machine::drain);
    }

    /// Whether an attempt is under way here, or what it returned is not stored yet.
    pub(crate) fn is_working(&self) -> bool {
        let inner = self.inner.lock();
        // A pause before another try is not waited for, nor a place: whoever goes on makes that try.
        !self.is_closed() && inner.machine.is_working() && (inner.machine.is_committing() || !inner.only_pauses())
    }

    /// Puts a waiting copy away, unless its code goes on at this moment: what it has called must not be lost.
    pub(crate) fn evict(&self) -> bool {
        let inner = self.inner.lock();
        if !inner.machine.is_at_rest() || !inner.effects.is_empty() || self.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.end(Closed::Evicted, inner);
        true
    }

    fn end(&self, why: Closed, mut inner: MutexGuard<'_, Inner>) {
        let why = why.or_finished();
        self.trace_close(&why);
        if matches!(why, Closed::Finished(status) if status.is_terminal()) {
            self.conversations.forget(self.execution);
        }
        // What ends with this copy, or what it could not commit: nothing else would enter the run again.
        let refused = matches!(&why, Closed::Lost(error) if error.code().kind() == Kind::Lost);
        let unfinished = refused || inner.machine.has_host_timer();
        {
            inner.machine.seal();
            inner.kept.clear();
            inner.page = HashMap::new();
            inner.effects.clear();
            inner.waiting.clear();
            for (op, running) in inner.running.drain().collect::<Vec<_>>() {
                running.stop();
                inner.effects.push_back(HostEffect::CancelTask(op));
            }
            inner.effects.push_back(HostEffect::Close(why));
            drop(inner);
        }
        if let Some(me) = self.me.upgrade() {
            if let Some(keeper) = self.keeper.get() {
                keeper.closed(&me, unfinished);
            }
            if let Some(port) = self.port.get() {
                port.ready(&me);
            }
        }
    }
}

#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    crate::clock::instant()
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.execution)
    }
}
