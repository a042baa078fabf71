//! The client: it starts runs, and gives handles that watch and steer them. It works on any backend, and needs no
//! worker in its process.

mod contents;
mod family;
mod fence;
mod following;
mod handle;
mod row_reader;
mod sse;
mod tree;
mod watch;

pub use crate::model::{FamilyEvent, StreamEvent};
pub use family::FamilyWatching;
pub use following::Following;
pub use handle::{Halted, Handle, Outcome, Snapshot};
pub use sse::{durable_event, event_kind, is_of_task, server_sent, server_sent_of_family};
pub use tree::{Tree, with_roll_ups};
pub use watch::Watching;

use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::model::{
    Budget, Created, EventId, Execution, ExecutionFilter, NewExecution, Page, PageRequest, Persistence, Schedule,
    ScheduleSpec, StartLimits, check_id, machine_queue,
};
use crate::payload::Payload;
use crate::storage::Storage;
use crate::streaming::Chunks;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How a run is to be started.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// Any string up to 200 characters, unique per org. Without one the run gets a fresh UUID.
    pub id: Option<String>,
    /// The queue; `default` if absent.
    pub queue: Option<String>,
    /// Filters for listings.
    pub metadata: BTreeMap<String, String>,
    /// Limits.
    pub limits: StartLimits,
    /// Runs with a higher priority are claimed first.
    pub priority: i32,
    /// Only so many runs of the same key and org are RUNNING at a time as `concurrency_limit` says. Waiting runs do not
    /// count.
    pub concurrency_key: Option<String>,
    /// The run begins only while fewer runs of its key than this are RUNNING; 1 if absent. Give all runs of a key the
    /// same limit.
    pub concurrency_limit: Option<u32>,
    /// It cannot be claimed before this time has passed.
    pub delay: Option<Duration>,
    /// W3C trace parent.
    pub traceparent: Option<String>,
    /// Whether its journal is kept; as the backend's URL says unless given.
    pub persistence: Option<Persistence>,
}

impl StartOptions {
    /// Options with this id and defaults for the rest.
    pub fn with_id(id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..Self::default() }
    }

    /// Options of a run on a machine: a computer that a server has let in by this name. Without a name it is the only
    /// one there is.
    pub fn on_machine(name: Option<&str>) -> Self {
        Self { queue: Some(machine_queue(name.unwrap_or_default())), ..Self::default() }
    }

    /// The run that these options ask for, in an org.
    ///
    /// Errors: `InvalidArgument` for options that no backend takes.
    pub fn execution(self, org: OrgId, kind: &str, input: Payload) -> Result<NewExecution> {
        let (id, key) = match self.id {
            None => (ExecutionId::fresh(), None),
            Some(id) => {
                check_id(&id)?;
                (ExecutionId::of_key(org, &id), uuid::Uuid::parse_str(&id).is_err().then_some(id))
            }
        };
        let mut new = NewExecution::new(id, kind, input)?;
        new.org = org;
        new.key = key;
        new.queue = self.queue.unwrap_or_else(|| "default".into());
        new.metadata = self.metadata;
        self.limits.budget.as_deref().map(Budget::parse).transpose()?;
        new.limits = self.limits;
        new.priority = self.priority;
        new.concurrency_key = self.concurrency_key;
        new.concurrency_limit = self.concurrency_limit;
        new.delay = self.delay;
        new.traceparent = self.traceparent;
        new.persistence = self.persistence.unwrap_or_default();
        new.check()?;
        Ok(new)
    }
}

/// A client of a backend. Clones share the backend.
#[derive(Clone)]
pub struct Client {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    /// What is kept of runs that are started without saying so.
    persistence: Persistence,
}

impl Client {
    /// A client of an open backend.
    pub fn new(storage: Arc<dyn Storage>, chunks: Chunks, org: OrgId) -> Self {
        Self { storage, chunks, org, persistence: Persistence::Full }
    }

    /// With what is kept of runs that are started without saying so.
    pub(crate) fn keeping(self, persistence: Persistence) -> Self {
        Self { persistence, ..self }
    }

    /// Follows a run's events after a position.
    pub fn watch(&self, execution: ExecutionId, after: EventId) -> Watching {
        Watching::new(self.storage.clone(), self.chunks.clone(), self.org, execution, after)
    }

    /// Follows the events of a run and of whoever it has handed off to, after the text of one; an empty one stands for the start.
    pub fn follow(&self, execution: ExecutionId, after: &str) -> Following {
        Following::new(self.storage.clone(), self.chunks.clone(), self.org, execution, after)
    }

    /// Follows the events of a run and of all below it after a cursor; an empty one stands for the start.
    pub fn watch_family(&self, execution: ExecutionId, after: &str) -> FamilyWatching {
        FamilyWatching::new(self.storage.clone(), self.chunks.clone(), self.org, execution, after)
    }

    /// The backend.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The tenant.
    pub fn org(&self) -> OrgId {
        self.org
    }

    /// Starts a run. It is durable when this returns. If a run with the same id and the same input exists, that run is
    /// returned. If it has another input, the error is `ExecutionExists`.
    pub async fn start(&self, kind: &str, input: Payload, options: StartOptions) -> Result<Handle> {
        self.create(kind, input, options).await.map(|created| self.handle_of(&created.execution))
    }

    /// As [`start`](Self::start), and also tells whether the run existed before.
    pub async fn create(&self, kind: &str, input: Payload, options: StartOptions) -> Result<Created> {
        let persistence = Some(options.persistence.unwrap_or(self.persistence));
        let new = StartOptions { persistence, ..options }.execution(self.org, kind, input)?;
        new.persistence.check(self.storage.rows(), &new.queue)?;
        self.storage.create_execution(new).await
    }

    /// The handle of a run that exists; `ExecutionNotFound` otherwise.
    pub async fn handle(&self, id_or_key: &str) -> Result<Handle> {
        let id = ExecutionId::of_key(self.org, id_or_key);
        let execution = self.storage.execution(self.org, id).await.map_err(|error| match error.code() {
            Code::ExecutionNotFound => Error::new(
                Code::ExecutionNotFound,
                format!("no run has the id {id_or_key:?} in {}; start one, or check the URL", self.storage.describe()),
            ),
            _ => error,
        })?;
        Ok(self.handle_of(&execution))
    }

    /// Runs, newest first.
    pub async fn runs(&self, filter: ExecutionFilter, page: PageRequest) -> Result<Page<Execution>> {
        self.storage.executions(self.org, filter, page).await
    }

    /// Pauses a schedule, or lets it go on with its next tick. The change is durable when this returns.
    ///
    /// Errors: `NotFound` if there is no schedule of this id.
    pub async fn pause_schedule(&self, id: &str, paused: bool) -> Result<Schedule> {
        let spec = ScheduleSpec { paused, ..self.storage.schedule(self.org, id).await?.spec };
        self.storage.put_schedule(self.org, spec).await
    }

    /// Writes a consistent copy of a SQLite database to a new file while runs go on, and returns the size of the copy
    /// in bytes.
    ///
    /// The copy is one file without a log, so it can be read and kept as it is. An existing file is not overwritten.
    /// Other backends refuse with `InvalidArgument`, and the message says what to use instead.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<u64> {
        self.storage.backup(to.as_ref()).await
    }

    fn handle_of(&self, execution: &Execution) -> Handle {
        Handle::new(self.storage.clone(), self.chunks.clone(), self.org, execution.new.id, execution.new.key.clone())
    }
}
