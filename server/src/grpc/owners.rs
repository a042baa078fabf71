//! Which org a run is of, remembered: previews name their run alone and come by the hundred.

use flovyn_core::error::{Code, Result};
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::storage::Storage;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// Runs that are remembered at a time.
const REMEMBERED: usize = 10_000;

/// Runs that were found to be of an org. A run never changes hands.
#[derive(Clone, Default)]
pub(super) struct Owners(Arc<Mutex<HashSet<(OrgId, ExecutionId)>>>);

impl Owners {
    /// Whether a run is of an org. One that is not there is of nobody.
    pub(super) async fn is_of(&self, org: OrgId, run: ExecutionId, storage: &dyn Storage) -> Result<bool> {
        if self.0.lock().contains(&(org, run)) {
            return Ok(true);
        }
        match storage.execution(org, run).await {
            Ok(_) => {
                let mut known = self.0.lock();
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert((org, run));
                Ok(true)
            }
            Err(error) if error.code() == Code::ExecutionNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
