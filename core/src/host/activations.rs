//! The queue between the engine's threads and a host's loop.

use crate::journal::MachineConfig;
use crate::model::{AttemptResult, ClaimedTask};
use crate::session::{Port, Session};
use crate::worker::{Host, Ticket};
use parking_lot::{Mutex, RwLock};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

thread_local! {
    /// The session whose effects a call on this thread takes itself, by its address: the loop need not be rung for them.
    static TAKES_EFFECTS: Cell<usize> = const { Cell::new(0) };
}

/// Does something to a session after which the calling thread takes the session's effects itself, without a ring. What it
/// brings about in other sessions, such as one that is put away to make room, is rung for.
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
}

/// An agent as a host declares it.
#[derive(Debug, Clone, Default)]
pub struct AgentSpec {
    /// State, code, policies.
    pub config: MachineConfig,
}

/// Something for the host to do.
pub enum Activation {
    /// Run an agent from its top; the number names the activation from now on.
    Agent(u64, Arc<Session>),
    /// Pull `take_effects` of an activation's session.
    Effects(u64),
    /// Run an attempt of a task; report its end with `task_ended` of the queue.
    Task(u64, Box<ClaimedTask>),
    /// Tell a running attempt to stop; its end no longer matters.
    CancelTask(u64),
}

/// What a host serves, and what waits for its loop.
pub struct Activations {
    me: Weak<Activations>,
    wake: Arc<dyn Wake>,
    agents: RwLock<HashMap<String, AgentSpec>>,
    tasks: RwLock<Arc<[String]>>,
    next: AtomicU64,
    queue: Mutex<Queue>,
    tickets: Mutex<HashMap<u64, Ticket>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Activation>,
    /// Activations whose `Effects` waits already.
    dirty: std::collections::HashSet<u64>,
}

impl Activations {
    /// An empty queue that rings `wake`.
    pub fn new(wake: Arc<dyn Wake>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            wake,
            agents: RwLock::default(),
            tasks: RwLock::new(Arc::new([])),
            next: AtomicU64::new(1),
            queue: Mutex::default(),
            tickets: Mutex::default(),
        })
    }

    /// Serves an agent from now on.
    pub fn serve_agent(&self, kind: &str, spec: AgentSpec) {
        self.agents.write().insert(kind.to_owned(), spec);
    }

    /// Serves a task from now on; a second call for the same kind does nothing. True if it is new.
    pub fn serve_task(&self, kind: &str) -> bool {
        let mut tasks = self.tasks.write();
        if tasks.iter().any(|known| known == kind) {
            return false;
        }
        *tasks = tasks.iter().cloned().chain([kind.to_owned()]).collect();
        true
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
            if let Activation::Effects(id) = &activation
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

struct Doorbell {
    id: u64,
    activations: Weak<Activations>,
}

impl Port for Doorbell {
    fn ready(&self, session: &Arc<Session>) {
        if TAKES_EFFECTS.get() != Arc::as_ptr(session).addr()
            && let Some(activations) = self.activations.upgrade()
        {
            activations.push(Activation::Effects(self.id));
        }
    }
}

impl Host for Activations {
    fn agent_kinds(&self) -> Arc<[String]> {
        let mut kinds: Vec<_> = self.agents.read().keys().cloned().collect();
        kinds.sort_unstable();
        kinds.into()
    }

    fn task_kinds(&self) -> Arc<[String]> {
        self.tasks.read().clone()
    }

    fn agent_config(&self, kind: &str) -> Option<MachineConfig> {
        self.agents.read().get(kind).map(|spec| spec.config.clone())
    }

    fn start_agent(&self, session: Arc<Session>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        session.connect(Arc::new(Doorbell { id, activations: self.me.clone() }));
        self.push(Activation::Agent(id, session));
    }

    fn start_task(&self, task: ClaimedTask, ticket: Ticket) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.tickets.lock().insert(id, ticket.clone());
        let me = self.me.clone();
        ticket.on_cancel(move || {
            if let Some(me) = me.upgrade()
                && me.tickets.lock().contains_key(&id)
            {
                me.push(Activation::CancelTask(id));
            }
        });
        self.push(Activation::Task(id, Box::new(task)));
    }
}
