//! Which queue a run is of: a key of `worker:QUEUE` reads the runs of that queue alone.

use super::{Grpc, told};
use crate::Identity;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::Scope;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tonic::Status;

/// Runs whose queue is kept in mind; it never changes.
const KEPT: usize = 10_000;

type Run = (OrgId, ExecutionId);

/// Queues of runs that were asked for.
#[derive(Clone, Default)]
pub(super) struct Queues(Arc<Mutex<HashMap<Run, Arc<str>>>>);

impl Queues {
    fn keep(&self, run: Run, queue: &Arc<str>) {
        let mut kept = self.0.lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(run, queue.clone());
    }
}

impl Grpc {
    /// Lets a caller read a run who may look at all of them, or take work of its queue.
    ///
    /// Errors: `PermissionDenied`; `NotFound` where the org has no such run.
    pub(super) async fn reads(&self, who: &Identity, org: OrgId, run: ExecutionId) -> Result<(), Status> {
        if who.scopes().allows(&Scope::Read) || who.scopes().allows(&Scope::Worker(None)) {
            return Ok(());
        }
        let known = self.2.0.lock().get(&(org, run)).cloned();
        let queue = match known {
            Some(queue) => queue,
            None => {
                let queue = self.0.storage.execution(org, run).await.map_err(told)?.new.queue.into();
                self.2.keep((org, run), &queue);
                queue
            }
        };
        if who.serves(&queue) {
            return Ok(());
        }
        Err(Status::permission_denied(format!("the token may not read runs of the queue {queue:?}")))
    }
}
