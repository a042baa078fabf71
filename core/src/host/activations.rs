//! The queue between the engine's threads and a host's loop.

use crate::journal::MachineConfig;
use crate::model::{AttemptResult, ClaimedTask};
use crate::payload::Payload;
use crate::session::{Port, Session};
use crate::storage::stored::Room;
use crate::sync::{Mutex, RwLock};
use crate::worker::{Host, Ticket};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

thread_local! {
    /// The session whose effects a call on this thread takes itself, by its address: the loop need not be woken for them.
    static TAKES_EFFECTS: Cell<usize> = const { Cell::new(0) };
}

/// Does something to a session after which the calling thread takes the session's effects itself, so that the loop is not
/// woken for them. It is woken for what this brings about in other sessions, such as one that is put away to make room.
pub fn quietly<T>(session: &Arc<Session>, act: impl FnOnce(&Arc<Session>) -> T) -> T {
    TAKES_EFFECTS.set(Arc::as_ptr(session).addr());
    let done = act(session);
    TAKES_EFFECTS.set(0);
    done
}

/// How a host's loop is told to look: a byte in a pipe, a thread-safe callback. Called from any thread; must not block.
pub trait Wake: Send + Sync {
    /// Something can be polled.
    fn ready(&self);

    /// Where the host wants the bytes of a large stored value; none where the engine's own memory will do.
    fn room(&self, _value: &Payload) -> Option<Box<dyn Room>> {
        None
    }
}

/// Something for the host to do.
pub enum Activation {
    /// Run an agent from its top; the number names the activation from now on.
    Agent(u64, Arc<Session>),
    /// Pull `take_effects` of an activation's session.
    Effects(u64, Arc<Session>),
    /// Run an attempt of a task; report its end with `task_ended` of the queue.
    Task(u64, Box<ClaimedTask>),
    /// Tell a running attempt to stop; its end no longer matters.
    CancelTask(u64),
}

/// What a host serves, and what waits for its loop.
pub struct Activations {
    me: Weak<Activations>,
    wake: Arc<dyn Wake>,
    agents: RwLock<Agents>,
    tasks: RwLock<Tasks>,
    next: AtomicU64,
    queue: Mutex<Queue>,
    tickets: Mutex<HashMap<u64, Ticket>>,
}

/// The kinds are kept as the engine asks for them: it does so before every claim.
#[derive(Default)]
struct Agents {
    configs: BTreeMap<String, MachineConfig>,
    kinds: Arc<[String]>,
}

#[derive(Default)]
struct Tasks {
    known: BTreeSet<String>,
    kinds: Arc<[String]>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Activation>,
    /// Activations whose `Effects` waits already.
    dirty: HashSet<u64>,
}

impl Activations {
    /// An empty queue that calls `wake` when something waits.
    pub fn new(wake: Arc<dyn Wake>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            wake,
            agents: RwLock::default(),
            tasks: RwLock::default(),
            next: AtomicU64::new(1),
            queue: Mutex::default(),
            tickets: Mutex::default(),
        })
    }

    /// Serves an agent from now on, as it is declared now.
    pub fn serve_agent(&self, kind: &str, config: MachineConfig) {
        let mut agents = self.agents.write();
        agents.configs.insert(kind.to_owned(), config);
        agents.kinds = agents.configs.keys().cloned().collect();
    }

    /// Serves a task from now on; a second call for the same kind does nothing. True if it is new.
    pub fn serve_task(&self, kind: &str) -> bool {
        if self.tasks.read().known.contains(kind) {
            return false;
        }
        let mut tasks = self.tasks.write();
        let is_new = tasks.known.insert(kind.to_owned());
        tasks.kinds = tasks.known.iter().cloned().collect();
        is_new
    }

    /// Takes all that waits. Never blocks.
    pub fn poll(&self) -> Vec<Activation> {
        let mut queue = self.queue.lock();
        queue.dirty.clear();
        queue.waiting.drain(..).collect()
    }

    /// Reports the end of an attempt that `Activation::Task` started.
    pub fn task_ended(&self, id: u64, result: AttemptResult) {
        if let Some(ticket) = self.tickets.lock().remove(&id) {
            ticket.finish(result);
        }
    }

    /// The attempt behind a `Activation::Task`, while it runs.
    pub fn ticket(&self, id: u64) -> Option<Ticket> {
        self.tickets.lock().get(&id).cloned()
    }

    fn push(&self, activation: Activation) {
        let first = {
            let mut queue = self.queue.lock();
            if let Activation::Effects(id, _) = &activation
                && !queue.dirty.insert(*id)
            {
                return;
            }
            queue.waiting.push_back(activation);
            queue.waiting.len() == 1
        };
        if first {
            self.wake.ready();
        }
    }
}

struct SessionWake {
    id: u64,
    activations: Weak<Activations>,
}

impl Port for SessionWake {
    fn ready(&self, session: &Arc<Session>) {
        if TAKES_EFFECTS.get() != Arc::as_ptr(session).addr()
            && let Some(activations) = self.activations.upgrade()
        {
            activations.push(Activation::Effects(self.id, session.clone()));
        }
    }

    fn room(&self, value: &Payload) -> Option<Box<dyn Room>> {
        self.activations.upgrade()?.wake.room(value)
    }
}

impl Host for Activations {
    fn agent_kinds(&self) -> Arc<[String]> {
        self.agents.read().kinds.clone()
    }

    fn task_kinds(&self) -> Arc<[String]> {
        self.tasks.read().kinds.clone()
    }

    fn agent_config(&self, kind: &str) -> Option<MachineConfig> {
        self.agents.read().configs.get(kind).cloned()
    }

    fn start_agent(&self, session: Arc<Session>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        session.connect(Arc::new(SessionWake { id, activations: self.me.clone() }));
        self.push(Activation::Agent(id, session));
    }

    fn start_task(&self, task: ClaimedTask, ticket: Ticket) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.tickets.lock().insert(id, ticket.clone());
        self.push(Activation::Task(id, Box::new(task)));
        // After the push: what stops an attempt comes behind it, also where it was told to stop before it began.
        let me = self.me.clone();
        ticket.on_cancel(move || {
            if let Some(me) = me.upgrade()
                && me.tickets.lock().contains_key(&id)
            {
                me.push(Activation::CancelTask(id));
            }
        });
    }
}
