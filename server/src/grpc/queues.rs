//! Which queues runs, tasks and workers are of: a key of `worker:QUEUE` reads, tells and acts for those of its queue alone.

use super::{Grpc, told};
use crate::Identity;
use flovyn_core::Error;
use flovyn_core::error::Code;
use flovyn_core::id::{ExecutionId, OpId, OrgId, Slot, TaskId, WorkerId};
use flovyn_core::model::{Chunk, ClaimedTask, Cursor, PageRequest, Scope};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use tokio::time::{Duration, Instant};
use tonic::Status;

/// Things of one sort whose queue is kept in mind.
const KEPT: usize = 10_000;
/// How long the queues of a worker are believed; those of runs and tasks never change.
const FRESH: Duration = Duration::from_secs(60);

/// What was found out about some things.
struct Kept<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    fn get(&self, of: &K) -> Option<V> {
        self.0.lock().get(of).cloned()
    }

    fn keep(&self, of: K, what: V) {
        let mut kept = self.0.lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(of, what);
    }
}

type Run = (OrgId, ExecutionId);
type Names = Arc<BTreeSet<String>>;

/// Queues of what was asked for.
#[derive(Clone, Default)]
pub(super) struct Queues(Arc<All>);

#[derive(Default)]
struct All {
    runs: Kept<Run, Arc<str>>,
    /// By the op that asked for the task.
    tasks: Kept<(Run, Slot), Arc<str>>,
    workers: Kept<(OrgId, WorkerId), (Instant, Names)>,
}

/// Whether all queues are a caller's: then nothing needs to be found out.
fn serves_all(who: &Identity) -> bool {
    who.scopes().allows(&Scope::Worker(None))
}

/// A thing that is not there is of no queue.
fn if_there<T>(found: Result<T, Error>) -> Result<Option<T>, Status> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.code(), Code::ExecutionNotFound | Code::NotFound) => Ok(None),
        Err(error) => Err(told(error)),
    }
}

impl Grpc {
    /// Lets a caller read a run who may look at all of them, or take work of its queue.
    ///
    /// Errors: `PermissionDenied`; `NotFound` where the org has no such run.
    pub(super) async fn reads(&self, who: &Identity, org: OrgId, run: ExecutionId) -> Result<(), Status> {
        if who.scopes().allows(&Scope::Read) || serves_all(who) {
            return Ok(());
        }
        let queue = self.queue_of(org, run).await.map_err(told)?;
        if who.serves(&queue) {
            return Ok(());
        }
        Err(Status::permission_denied(format!("the token may not read runs of the queue {queue:?}")))
    }

    /// Lets a caller act for a worker all of whose queues it may serve. One that nobody knows has nothing that is another's.
    ///
    /// What a worker holds it has claimed from its queues: the store takes a call about a run or a task from its holder alone.
    pub(super) async fn acts_for(&self, who: &Identity, org: OrgId, worker: WorkerId) -> Result<(), Status> {
        if serves_all(who) {
            return Ok(());
        }
        let queues = self.queues_of_worker(org, worker).await.map_err(told)?;
        match queues.iter().find(|queue| !who.serves(queue)) {
            None => Ok(()),
            Some(queue) => Err(Status::permission_denied(format!(
                "the token may not act for the worker {worker}, which serves the queue {queue:?}"
            ))),
        }
    }

    /// Whether a caller may show a preview: of a run of its queue, or of a task that its queue hands out.
    pub(super) async fn shows(&self, who: &Identity, org: OrgId, chunk: &Chunk) -> Result<bool, Status> {
        if serves_all(who) {
            return Ok(true);
        }
        let Some(queue) = if_there(self.queue_of(org, chunk.execution).await)? else { return Ok(false) };
        if who.serves(&queue) {
            return Ok(true);
        }
        let slot = Slot { segment: chunk.segment, sequence: chunk.sequence };
        let queue = self.queue_of_task(org, chunk.execution, slot).await?;
        Ok(queue.is_some_and(|queue| who.serves(&queue)))
    }

    /// Keeps in mind of which queue tasks are that a caller was handed: a task in a `once` is found by its id alone.
    pub(super) fn handed(&self, who: &Identity, tasks: &[ClaimedTask]) {
        if serves_all(who) {
            return;
        }
        for ClaimedTask { task, .. } in tasks {
            self.2.0.tasks.keep(((task.org, task.execution), task.slot), task.new.queue.as_str().into());
        }
    }

    async fn queue_of(&self, org: OrgId, run: ExecutionId) -> Result<Arc<str>, Error> {
        if let Some(queue) = self.2.0.runs.get(&(org, run)) {
            return Ok(queue);
        }
        let queue: Arc<str> = self.0.storage.execution(org, run).await?.new.queue.into();
        self.2.0.runs.keep((org, run), queue.clone());
        Ok(queue)
    }

    async fn queue_of_task(&self, org: OrgId, execution: ExecutionId, slot: Slot) -> Result<Option<Arc<str>>, Status> {
        let key = ((org, execution), slot);
        if let Some(queue) = self.2.0.tasks.get(&key) {
            return Ok(Some(queue));
        }
        let id = TaskId(OpId { execution, slot, once: None }.uuid());
        let Some(task) = if_there(self.0.storage.task(org, execution, id).await)? else { return Ok(None) };
        let queue: Arc<str> = task.new.queue.into();
        self.2.0.tasks.keep(key, queue.clone());
        Ok(Some(queue))
    }

    /// The queues a worker has registered for and has taken work of; none of one that is not known.
    async fn queues_of_worker(&self, org: OrgId, worker: WorkerId) -> Result<Names, Error> {
        let kept = self.2.0.workers.get(&(org, worker)).filter(|(at, _)| at.elapsed() < FRESH);
        if let Some((_, queues)) = kept {
            return Ok(queues);
        }
        // The listing is in the order of ids: the one behind its predecessor is the worker, or there is none.
        let before = uuid::Uuid::from_u128(worker.0.as_u128().saturating_sub(1));
        let page = PageRequest { limit: 1, after: Some(Cursor(before.to_string())) };
        let listed = self.0.storage.workers(org, page).await?;
        let Some(known) = listed.items.into_iter().find(|known| known.id == worker) else { return Ok(Arc::default()) };
        let queues = known.queues.into_iter().chain(known.serves.into_iter().map(|(_, queue)| queue)).collect();
        let queues = Arc::new(queues);
        self.2.0.workers.keep((org, worker), (Instant::now(), Arc::clone(&queues)));
        Ok(queues)
    }
}
