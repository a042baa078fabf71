//! The port for callers whose calls name no claim: workers of `flovyn.v1`. Their server holds leases for them.

use crate::error::Result;
use crate::id::{ExecutionId, OrgId, TaskId, WorkerId};
use crate::model::{Created, NewExecution, Signal, Task};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// What such callers need beside the contract.
#[async_trait]
pub trait Unfenced: Send + Sync {
    /// Makes known what a worker can run; the last word counts.
    async fn enroll(&self, org: OrgId, worker: WorkerId, serves: Serves) -> Result<()>;

    /// What a worker can run, where it has said so within the last week.
    async fn enrolled(&self, org: OrgId, worker: WorkerId) -> Result<Option<Serves>>;

    /// The kinds of what waits in a queue and can be claimed.
    async fn waiting_kinds(&self, org: OrgId, queue: &str, of: Work) -> Result<Vec<String>>;

    /// Makes the leases of all tasks of an org that a worker holds last `ttl` from now, and those of the runs of a sign.
    async fn keep_leases(&self, org: OrgId, worker: WorkerId, ttl: Duration, runs: SignOf) -> Result<()>;

    /// The task of an id, if it has not ended.
    async fn open_task(&self, org: OrgId, task: TaskId) -> Result<Option<Task>>;

    /// Cancels a task of a run that has not ended; gives it as it is then, and whether this call ended it.
    async fn cancel_task(&self, org: OrgId, execution: ExecutionId, task: TaskId) -> Result<(Task, bool)>;

    /// The signals of a run that nothing has consumed, oldest first.
    async fn mailbox(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<Signal>>;

    /// Starts a run below another of its org, whose mailbox is told of its end in the transaction that ends it
    /// ([`child_signal`](crate::model::child_signal)).
    ///
    /// Errors: those of `create_execution`, and `ExecutionNotFound` where there is no such parent.
    async fn spawn(&self, parent: ExecutionId, new: NewExecution) -> Result<Created>;
}

/// The runs that a sign of their worker stands for. Whoever calls about none of them need not know of them any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignOf {
    /// All that it holds.
    Every,
    /// These alone, as far as it holds them.
    These(BTreeSet<ExecutionId>),
}

impl SignOf {
    /// Whether it is one of a run.
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
    /// Of runs.
    pub agents: Vec<String>,
    /// Of tasks.
    pub tasks: Vec<String>,
    /// The worker of which this is another id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_as: Option<WorkerId>,
}

/// How long what a worker can run is remembered without a sign of it.
pub(super) const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 3_600);
