//! Whether the backend can be worked with.

use super::Service;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::model::{ExecutionFilter, PageRequest};
use std::time::Duration;

/// How long the backend may take to answer a check.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Service {
    /// Checks that the backend answers and accepts writes.
    pub(crate) async fn check_storage(&self) -> Result<()> {
        let page = PageRequest { limit: 1, after: None };
        let checked = self.storage.executions(OrgId::DEFAULT, ExecutionFilter::default(), page);
        let timed_out =
            |_| Error::new(Code::StorageUnavailable, "the storage has not answered within 5 s; ask again later");
        tokio::time::timeout(TIMEOUT, checked).await.map_err(timed_out)?.map(drop)?;
        // A backend that can be read but accepts no writes is no use to workers or clients.
        match self.storage.hints().outage().now() {
            Some(refusal) => Err(Error::new(Code::StorageUnavailable, refusal.to_string())),
            None => Ok(()),
        }
    }
}
