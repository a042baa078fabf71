//! Access by queue: a key with the scope `worker:QUEUE` reads, publishes and acts only for runs, tasks and workers of that queue.

use super::Service;
use crate::access::Identity;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{ExecutionId, OpId, OrgId, Slot, TaskId, WorkerId};
use flovyn_core::model::{Chunk, ClaimedTask, Cursor, PageRequest, Scope};
use flovyn_core::sync::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use tokio::time::{Duration, Instant};

/// Entries of one cache.
const MAX_CACHED: usize = 10_000;
/// How long the queues of a worker are cached; those of runs and tasks never change.
const WORKER_QUEUES_TTL: Duration = Duration::from_secs(60);

/// A cache of a bounded size.
struct Cache<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.0.lock().get(key).cloned()
    }

    fn insert(&self, key: K, value: V) {
        let mut cached = self.0.lock();
        if cached.len() >= MAX_CACHED {
            cached.clear();
        }
        cached.insert(key, value);
    }
}

type Run = (OrgId, ExecutionId);
type QueueNames = Arc<BTreeSet<String>>;

/// The queues of runs, tasks and workers, as far as they are known.
#[derive(Default)]
pub(crate) struct QueueCache {
    runs: Cache<Run, Arc<str>>,
    /// By the op that scheduled the task.
    tasks: Cache<(Run, Slot), Arc<str>>,
    workers: Cache<(OrgId, WorkerId), (Instant, QueueNames)>,
}

/// Whether a caller serves all queues: then none needs to be looked up.
fn serves_all(who: &Identity) -> bool {
    who.scopes().allows(&Scope::Worker(None))
}

/// None instead of an error where there is no such run or task.
fn found_or_none<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.code(), Code::ExecutionNotFound | Code::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

fn denied(message: String) -> Error {
    Error::new(Code::PermissionDenied, message)
}

impl Service {
    /// Allows callers to read a run that may read all runs, or that serve its queue.
    ///
    /// Errors: `PermissionDenied`; `NotFound` where the org has no such run.
    pub(crate) async fn check_may_read(&self, who: &Identity, org: OrgId, run: ExecutionId) -> Result<()> {
        if who.scopes().allows(&Scope::Read) || serves_all(who) {
            return Ok(());
        }
        let queue = self.queue_of(org, run).await?;
        if who.serves(&queue) {
            return Ok(());
        }
        Err(denied(format!("the token may not read runs of the queue {queue:?}")))
    }

    /// Allows a caller to act for a worker if it serves all queues of that worker. A worker that is not known holds nothing.
    ///
    /// This suffices, since a worker has claimed all that it holds from its queues, and the store accepts calls about a run or a
    /// task from its holder alone.
    pub(crate) async fn check_may_act_for(&self, who: &Identity, org: OrgId, worker: WorkerId) -> Result<()> {
        if serves_all(who) {
            return Ok(());
        }
        let queues = self.queues_of_worker(org, worker).await?;
        match queues.iter().find(|queue| !who.serves(queue)) {
            None => Ok(()),
            Some(queue) => {
                Err(denied(format!("the token may not act for the worker {worker}, which serves the queue {queue:?}")))
            }
        }
    }

    /// Whether a caller may publish a preview: of a run or of a task of its queue.
    pub(crate) async fn may_publish(&self, who: &Identity, org: OrgId, chunk: &Chunk) -> Result<bool> {
        if serves_all(who) {
            return Ok(true);
        }
        let Some(queue) = found_or_none(self.queue_of(org, chunk.execution).await)? else { return Ok(false) };
        if who.serves(&queue) {
            return Ok(true);
        }
        let slot = Slot { segment: chunk.segment, sequence: chunk.sequence };
        let queue = self.queue_of_task(org, chunk.execution, slot).await?;
        Ok(queue.is_some_and(|queue| who.serves(&queue)))
    }

    /// Remembers the queue of tasks that a caller was given: a task in a `once` cannot be looked up by its slot.
    pub(crate) fn remember_task_queues(&self, who: &Identity, tasks: &[ClaimedTask]) {
        if serves_all(who) {
            return;
        }
        for ClaimedTask { task, .. } in tasks {
            self.queues.tasks.insert(((task.org, task.execution), task.slot), task.new.queue.as_str().into());
        }
    }

    async fn queue_of(&self, org: OrgId, run: ExecutionId) -> Result<Arc<str>> {
        if let Some(queue) = self.queues.runs.get(&(org, run)) {
            return Ok(queue);
        }
        let queue: Arc<str> = self.storage.execution(org, run).await?.new.queue.into();
        self.queues.runs.insert((org, run), queue.clone());
        Ok(queue)
    }

    async fn queue_of_task(&self, org: OrgId, execution: ExecutionId, slot: Slot) -> Result<Option<Arc<str>>> {
        let key = ((org, execution), slot);
        if let Some(queue) = self.queues.tasks.get(&key) {
            return Ok(Some(queue));
        }
        let id = TaskId(OpId { execution, slot, once: None }.uuid());
        let Some(task) = found_or_none(self.storage.task(org, execution, id).await)? else { return Ok(None) };
        let queue: Arc<str> = task.new.queue.into();
        self.queues.tasks.insert(key, queue.clone());
        Ok(Some(queue))
    }

    /// The queues that a worker has registered for or has taken work of; none for a worker that is not known.
    async fn queues_of_worker(&self, org: OrgId, worker: WorkerId) -> Result<QueueNames> {
        let cached = self.queues.workers.get(&(org, worker)).filter(|(at, _)| at.elapsed() < WORKER_QUEUES_TTL);
        if let Some((_, queues)) = cached {
            return Ok(queues);
        }
        // The listing is ordered by id: the first one after the preceding id is this worker, or there is none.
        let before = uuid::Uuid::from_u128(worker.0.as_u128().saturating_sub(1));
        let page = PageRequest { limit: 1, after: Some(Cursor(before.to_string())) };
        let listed = self.storage.workers(org, page).await?;
        let Some(known) = listed.items.into_iter().find(|known| known.id == worker) else { return Ok(Arc::default()) };
        let queues = known.queues.into_iter().chain(known.serves.into_iter().map(|(_, queue)| queue)).collect();
        let queues = Arc::new(queues);
        self.queues.workers.insert((org, worker), (Instant::now(), Arc::clone(&queues)));
        Ok(queues)
    }
}
