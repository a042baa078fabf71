//! The port for callers without leases: workers of `flovyn.v1`. Their server holds the leases for them.

use crate::error::Result;
use crate::id::{ExecutionId, OrgId, TaskId, WorkerId};
use crate::model::{Created, NewExecution, Signal, Task};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// The calls that such callers need beside the contract.
#[async_trait]
pub trait Unfenced: Send + Sync {
    /// Stores which kinds a worker can run, in place of what was stored before.
    async fn enroll(&self, org: OrgId, worker: WorkerId, serves: Serves) -> Result<()>;

    /// Which kinds a worker can run. None if it has not said so within the last week.
    async fn enrolled(&self, org: OrgId, worker: WorkerId) -> Result<Option<Serves>>;

    /// The kinds of work that can be claimed in a queue.
    async fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work) -> Result<Vec<String>>;

    /// Extends the leases of all tasks that a worker holds, and those of the given runs, to `ttl` from now.
    async fn keep_leases(&self, org: OrgId, worker: WorkerId, ttl: Duration, runs: SignOf) -> Result<()>;

    /// The task of an id, if it has not ended.
    async fn open_task(&self, org: OrgId, task: TaskId) -> Result<Option<Task>>;

    /// Cancels a task if it has not ended. Returns the task, and whether this call has ended it.
    async fn cancel_task(&self, org: OrgId, execution: ExecutionId, task: TaskId) -> Result<(Task, bool)>;

    /// The pending signals of a run, oldest first.
    async fn mailbox(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<Signal>>;

    /// Starts a run as the child of another one of its org. When it ends, the same transaction sends the parent a
    /// signal ([`child_signal`](crate::model::child_signal)).
    ///
    /// Errors: those of `create_execution`, and `ExecutionNotFound` if there is no such parent.
    async fn spawn(&self, parent: ExecutionId, new: NewExecution) -> Result<Created>;
}

/// The runs for which a worker has given a sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignOf {
    /// All that it holds.
    Every,
    /// Only these, as far as it holds them.
    These(BTreeSet<ExecutionId>),
}

impl SignOf {
    /// Whether the sign is for this run.
    pub fn is_of(&self, run: ExecutionId) -> bool {
        match self {
            Self::Every => true,
            Self::These(runs) => runs.contains(&run),
        }
    }
}

/// What can be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Runs.
    Agents,
    /// Tasks.
    Tasks,
}

/// The kinds that a worker can run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serves {
    /// The kinds of runs.
    pub agents: Vec<String>,
    /// The kinds of tasks.
    pub tasks: Vec<String>,
    /// The other id of the same worker, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_as: Option<WorkerId>,
}

/// How long it is remembered which kinds a worker can run, without a sign of life.
pub(super) const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 3_600);
