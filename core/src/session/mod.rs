//! Where the pure machine meets storage and host: one activation of a run in this process.
//!
//! A [`Session`] is the host's handle. Its methods are quick and synchronous. Commits, fetches and timers run on the
//! session's runtime. What they bring for the host is queued; [`Port::ready`] tells the host, which takes it with
//! [`Session::take_effects`].
//!
//! Locks are taken in the order `previews`, `inner`, `lease`. No lock is held while the port, the keeper's `parked`,
//! `closed` and `went_on`, or the storage is called: these call back into the session.

mod conversations;
mod deferred;
mod effects;
mod reads;
mod tasks;
mod traces;
mod warnings;
mod worker_side;

use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, TaskId};
use crate::journal::{
    Answer, Call, Called, Ending, Handed, Machine, MachineConfig, OnceBegin, OpRef, Outside, Question, StartTask,
};
use crate::model::{
    Batch, Claim, ClaimedTask, Execution, Lease, MessageBody, PARENT_QUEUE, Segment, Status, check_task,
};
use crate::payload::{Content, ContentHash, Digest, Payload, RowOf};
use crate::storage::stored::Room;
use crate::storage::{ClaimRequest, Storage};
use crate::streaming::Chunks;
use crate::sync::{Mutex, MutexGuard};
use crate::tracer::{Activation, Tracer};
use bytes::Bytes;
pub(crate) use conversations::Conversations;
use deferred::Deferred;
pub(crate) use reads::number_of;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tasks::Tried;
pub(crate) use tasks::progress;

/// How long a batch is held back beside an inline task: a step that ends sooner is one commit, not two (rule 1).
pub(crate) const HOLD: Duration = Duration::from_millis(5);

/// The time that must be left of the lease for a task to start beside its commit (rule 1).
const FRESH: Duration = Duration::from_secs(10);

/// How the session reaches its host.
pub trait Port: Send + Sync {
    /// Effects wait in the session. Called from any thread, never while a lock of the session is held.
    fn ready(&self, session: &Arc<Session>);

    /// Memory of the host for the bytes of a large stored value, so that they are not copied. None if the engine's own
    /// memory will do.
    fn room(&self, _value: &Payload) -> Option<Box<dyn Room>> {
        None
    }
}

/// One thing that the host must do. Effects are carried out in the order they come.
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
    /// Write a warning of the run to the log.
    Warn(String),
    /// Drop the coroutine in the host's own way. The context takes no calls any more.
    Close(Closed),
}

/// Why an activation is over.
#[derive(Debug, Clone, PartialEq)]
pub enum Closed {
    /// The run ended or paused.
    Finished(Status),
    /// The copy was dropped, and the run goes on from its journal: the coroutine was only a cache (rule 19).
    Evicted,
    /// This copy must not go on: another worker has the run, or the store could not be read or reached.
    Lost(Error),
}

impl Closed {
    /// Turns the loss of a lease into `Finished` if the lease was lost because the run has ended.
    fn or_finished(self) -> Self {
        let Self::Lost(error) = &self else { return self };
        let stands = error.fact("status").and_then(Status::parse);
        let ended = stands.filter(|status| error.code() == Code::LeaseLost && status.is_terminal());
        ended.map_or(self, Self::Finished)
    }
}

/// The place of an attempt among those that a worker runs at once. Dropping it gives the place back.
pub(crate) type Place = Box<dyn Send + Sync>;

/// When an inline attempt may start.
pub(crate) enum Turn {
    /// Now. Has a place if the worker counts inline attempts.
    Now(Option<Place>),
    /// Later: the worker calls [`Session::begin_in`] when a place is free.
    Later,
}

/// What the worker does for its sessions.
pub(crate) trait Keeper: Send + Sync {
    /// The run waits, so that the session may be parked.
    fn parked(&self, session: &Arc<Session>);
    /// The session is over. `unfinished` tells that nothing in the store would wake the run, so that it has to be given
    /// back.
    fn closed(&self, session: &Arc<Session>, unfinished: bool);
    /// The code of a parked copy went on by itself, so that its lease has to be renewed again.
    fn went_on(&self, session: &Arc<Session>);
    /// Whether it keeps the copies of waiting runs.
    fn parks(&self) -> bool;
    /// The claim of tasks that a commit should bring along: those tasks of the batch that there are free places for.
    /// The places are reserved until [`bring`](Self::bring).
    fn wants(&self, execution: ExecutionId, batch: &Batch) -> Option<ClaimRequest>;
    /// Takes the tasks that a commit has brought along for such a claim. Called for each claim, also with none.
    fn bring(&self, wanted: &ClaimRequest, tasks: Vec<ClaimedTask>);
    /// Whether an inline attempt may start now. Called under the session's lock.
    fn turn(&self, session: &Arc<Session>, op: OpRef) -> Turn;
    /// Calls `hold_elapsed` a little later.
    fn arm_hold(&self, session: &Arc<Session>);
    /// Stores a progress report of an inline attempt.
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
    /// The segment that the activation began in, and the length of its tail then.
    entered_at: (u32, usize),
    max_payload: u64,
    /// The lease, and until when it is valid by this process's clock.
    lease: Mutex<(Lease, Instant)>,
    inner: Mutex<Inner>,
    port: OnceLock<Arc<dyn Port>>,
    keeper: OnceLock<Arc<dyn Keeper>>,
    closed: AtomicBool,
    /// How many previews the agent itself has made. Held while any preview of the run gets its number and is published:
    /// without it two threads could publish in another order than that of the numbers.
    previews: Mutex<u64>,
    deferred: Deferred,
    /// The place in the journal of the last random draw, and how many draws there were before it at the same place.
    draws: Mutex<(u32, u64)>,
    trace: Activation,
}

struct Inner {
    machine: Machine,
    effects: VecDeque<HostEffect>,
    /// The number of deliveries that wait for values to be fetched.
    fetching: usize,
    /// The highest fact number that a hint has named. `u64::MAX` if a hint named none.
    hinted: u64,
    /// A request for new facts is on its way.
    refreshing: bool,
    running: HashMap<OpRef, tasks::Running>,
    /// Attempts that wait for a place.
    waiting: HashMap<OpRef, (StartTask, Tried)>,
    /// Entries that are not durable yet, so that the branch can be read at any moment.
    recent: HashMap<EntryId, crate::model::NewEntry>,
    /// The large values of the last commit, which are still in memory. The outcomes that are handed over next can name
    /// them.
    kept: HashMap<ContentHash, Content>,
    /// Values that replay hands over next, read from their rows together.
    page: HashMap<RowOf, Bytes>,
}

/// The arguments of [`Session::new`].
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
        let deferred = Deferred::of(&segment);
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
            deferred,
            draws: Mutex::new((0, 0)),
            trace,
        })
    }

    /// Sets the port by which the session wakes its host. Call it once, before the agent runs.
    pub fn connect(&self, port: Arc<dyn Port>) {
        let _ = self.port.set(port);
    }

    pub(crate) fn keep(&self, keeper: Arc<dyn Keeper>) {
        let _ = self.keeper.set(keeper);
    }

    // ── what the agent's code does ──────────────────────────────────────────────────────────────────────────────

    /// Sends the parent a request, and waits for its answer: gives the op that ends with it.
    pub fn request(
        &self,
        name: &str,
        payload: Payload,
        timeout: Option<Duration>,
        once: Option<&Arc<str>>,
    ) -> Result<OpRef> {
        let message = MessageBody::ToParent { name: name.into(), payload, is_request: true };
        let sent = self.call(Call::Send(message), once)?.op;
        let name = self.inner.lock().machine.answer_to(sent);
        Ok(self.call(Call::Signal { name, timeout }, once)?.op)
    }

    /// Makes a call. `once` names the `once` it runs in.
    pub fn call(&self, call: Call, once: Option<&Arc<str>>) -> Result<Called> {
        self.check_open()?;
        if let Call::Entry { content: payload, .. } | Call::Task { input: payload, .. } = &call {
            payload.check_size(self.max_payload)?;
        }
        let carried = match &call {
            Call::Child(child) => Some(&child.input),
            Call::Send(body) => body.payload(),
            _ => None,
        };
        carried.map_or(Ok(()), |payload| payload.check_size(self.max_payload))?;
        if let Call::Task { kind, options, queue, .. } = &call {
            options.check(kind)?;
            self.check_queue(queue, kind)?;
        }
        if let Call::Child(child) = &call {
            let queue = child.options.queue.as_ref().unwrap_or(&self.execution().new.queue);
            child.options.persistence.check(self.storage.rows(), queue)?;
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
        let mut inner = self.open()?;
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

    /// Asks a question about the outside. The answer is recorded (rule 6).
    pub fn read(&self, question: Question, once: Option<&Arc<str>>) -> Result<Answer> {
        self.open()?.machine.read(question, once)
    }

    /// Begins an await. Its outcome comes as `HostEffect::Deliver`.
    pub fn await_op(&self, op: OpRef) -> Result<()> {
        self.open()?.machine.await_op(op)
    }

    /// Whether an op's outcome was handed over before.
    pub fn is_settled(&self, op: OpRef) -> bool {
        self.inner.lock().machine.is_settled(op)
    }

    /// Gives up an await (rule 13). Does nothing once the session is closed.
    pub fn abandon(&self, op: OpRef) {
        if !self.closed.load(Ordering::Acquire) {
            self.with(|machine| machine.abandon(op));
        }
    }

    /// Begins a `once`.
    pub fn once_begin(&self, name: &Arc<str>, digest: Digest) -> Result<OnceBegin> {
        self.open()?.machine.once_begin(name, digest)
    }

    /// Ends a `once` with its result. The caller awaits the op before it goes on.
    pub fn once_end(&self, name: &Arc<str>, digest: Digest, value: Payload) -> Result<OpRef> {
        self.check_open()?;
        value.check_size(self.max_payload)?;
        self.open()?.machine.once_end(name, digest, value)
    }

    /// Saves a state and ends the segment; `OpRef::CHECKPOINT` is handed `Done` once it is durable.
    pub fn checkpoint(&self, state: Payload, metadata: String) -> Result<()> {
        self.check_open()?;
        state.check_size(self.max_payload)?;
        self.open()?.machine.checkpoint(state, metadata)
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

    /// The host reports that the code is quiet. `concurrent` tells whether several of its branches are alive. `outside`
    /// tells whether something of the host's own may make one go on: a timer of its event loop, a thread, a future of
    /// another library. It is none if finding out costs time: then the host answers only when [`HostEffect::Ask`] asks.
    ///
    /// The report is ignored while an outcome is on its way to the code: the host made it before the outcome came, and
    /// makes another one after it has taken the outcome. Otherwise a second outcome would be handed over beside the
    /// first, or the run would suspend with a wait that has ended.
    pub fn settle(&self, concurrent: bool, outside: Option<Outside>) {
        let fresh = self.lease.lock().1.saturating_duration_since(now()) > FRESH;
        self.act(|inner| {
            let delivers = inner.effects.iter().any(|effect| matches!(effect, HostEffect::Deliver(_)));
            if !delivers && inner.fetching == 0 {
                inner.machine.settle(concurrent, outside, fresh);
            }
        });
    }

    /// The host reports that several branches are alive, before one of them calls anything.
    pub fn note_concurrent(&self) {
        self.inner.lock().machine.note_concurrent();
    }

    /// Whether some recorded op has not been called again yet.
    pub fn is_replaying(&self) -> bool {
        self.inner.lock().machine.is_replaying()
    }

    /// Takes the effects that the host must carry out.
    pub fn take_effects(&self) -> Vec<HostEffect> {
        self.inner.lock().effects.drain(..).collect()
    }

    /// What a call of the code works on. A machine that takes nothing more belongs to a copy that was put away, or is about to be:
    /// the code is told that, and not that the run has ended, however the call falls beside it.
    fn open(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.inner.lock();
        self.check_open()?;
        if inner.machine.is_over() { Err(put_away()) } else { Ok(inner) }
    }

    /// An error once the activation is over: what it has awaited will not end here.
    pub(crate) fn still_open(&self) -> Result<()> {
        self.check_open()
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(put_away()) } else { Ok(()) }
    }

    /// From now on every commit reaches the store, and those before it with the next one: the op of this call is durable
    /// with all of them.
    pub fn persist(&self, once: Option<&Arc<str>>) -> Result<OpRef> {
        self.check_open()?;
        self.deferred.stop();
        Ok(self.call(Call::Flush, once)?.op)
    }

    /// Whether a task may go to a queue: that of a parent where there is one, and that of a machine from anywhere but another
    /// machine. What a run is never changes, so a replay is told the same.
    fn check_queue(&self, queue: &str, kind: &str) -> Result<()> {
        let run = self.execution();
        if queue == PARENT_QUEUE && run.parent.is_none() && run.forked_from.is_none() {
            let message = format!("the task {kind:?} is for the workers of this run's parent, and it has none");
            return Err(Error::new(Code::NoParent, message));
        }
        check_task(&run.new.queue, queue)
    }

    // ── who and where ───────────────────────────────────────────────────────────────────────────────────────────

    /// Its address: no other session that lives has the same.
    pub fn activation(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

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

    /// The lease under which it advances.
    pub fn lease(&self) -> Lease {
        self.lease.lock().0
    }

    /// The storage of the run.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }
}

fn put_away() -> Error {
    Error::new(Code::Suspended, "this copy of the run was put away; it goes on from its journal elsewhere")
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
