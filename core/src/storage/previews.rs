//! The port for previews between processes: rows that say who reads a run, and rows of what it is making.
//!
//! They come and go with their readers, and losing all of them costs nothing: what they announce is durable elsewhere.

use crate::error::Result;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::streaming::{OpKey, PreviewRow, ProgressBySource};
use async_trait::async_trait;
use uuid::Uuid;

/// A process that reads a run's previews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// The run's org.
    pub org: OrgId,
    /// The run.
    pub execution: ExecutionId,
    /// The process.
    pub process: Uuid,
    /// Whether it has got what there was when it came.
    pub served: bool,
    /// Who holds the run.
    pub holder: Option<WorkerId>,
}

/// Previews of runs whose reader is in another process than their worker.
#[async_trait]
pub trait Previews: Send + Sync {
    /// Makes known for [`WATCH_TTL`](crate::streaming::WATCH_TTL) that a process reads a run. `anew`: it has nothing yet.
    async fn watch(&self, org: OrgId, execution: ExecutionId, process: Uuid, anew: bool) -> Result<()>;

    /// What the processes other than one read.
    async fn readers(&self, but: Uuid) -> Result<Vec<Reader>>;

    /// Writes what was made here of a run that is read elsewhere and is not written yet; those readers then have it all.
    async fn write_previews(&self, org: OrgId, execution: ExecutionId, served: Vec<Uuid>) -> Result<()>;

    /// The rows of a run with previews that are not `known`, and whether a reader need not wait for more: it has got what there
    /// was when it came, or nobody holds the run.
    async fn read_previews(
        &self,
        org: OrgId,
        execution: ExecutionId,
        process: Uuid,
        known: &ProgressBySource,
    ) -> Result<(Vec<PreviewRow>, bool)>;

    /// The tasks of a run that its queues have handed to workers, with these.
    async fn handed_out(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<(OpKey, WorkerId)>>;
}
