//! A reader of a run that a worker of another process advances: says that it reads, and reads the rows of previews.

use crate::error::Result;
use crate::id::WorkerId;
use crate::storage::Storage;
use crate::streaming::{Chunks, Lease, RENEW_EVERY, RunKey};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long a reader waits until the other process has given what it had. One that is dead gives nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct Elsewhere {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    run: RunKey,
    /// The holder, where it is in another process.
    holder: Option<WorkerId>,
    /// The epoch up to which holders are known.
    epoch: u64,
}

impl Elsewhere {
    pub(super) fn new(storage: Arc<dyn Storage>, chunks: Chunks, run: RunKey) -> Self {
        Self { storage, chunks, run, holder: None, epoch: 0 }
    }

    /// Takes notice of the run's holder. Where that is another process, ends once its previews are on the board here.
    pub(super) async fn held(&mut self, epoch: u64, holder: Option<WorkerId>) -> Result<()> {
        if self.storage.previews().is_none() || !self.chunks.is_shared() || epoch < self.epoch {
            return Ok(());
        }
        self.epoch = epoch;
        self.holder = holder.filter(|holder| !self.chunks.is_home(self.run.0, *holder));
        if self.holder.is_none() {
            return Ok(());
        }
        let until = Instant::now() + PATIENCE;
        while !self.read().await? {
            if timeout_at(until, sleep(LOOK)).await.is_err() {
                tracing::debug!(execution = %self.run.1, "the previews of another process did not come in time");
                break;
            }
        }
        Ok(())
    }

    /// The run waits: nobody makes previews until it is claimed again.
    pub(super) fn waits(&mut self) {
        self.holder = None;
    }

    /// Puts what the other process has written onto the board; whether that is all it had when this one came.
    pub(super) async fn read(&self) -> Result<bool> {
        self.renew().await?;
        let (Some(previews), Some(_)) = (self.storage.previews(), self.holder) else { return Ok(true) };
        let (org, execution) = self.run;
        let after = self.chunks.delivered(self.run);
        let (rows, served) = previews.read_previews(org, execution, self.chunks.process(), after).await?;
        self.chunks.deliver_rows(self.run, &rows)?;
        Ok(served)
    }

    /// Says that the run is read here, where that is not known.
    pub(super) async fn renew(&self) -> Result<()> {
        let (Some(previews), Some(holder)) = (self.storage.previews(), self.holder) else { return Ok(()) };
        let lease = self.chunks.lease(self.run, holder);
        if lease == Lease::Live {
            return Ok(());
        }
        let (org, execution) = self.run;
        previews.watch(org, execution, self.chunks.process(), lease == Lease::New).await
    }

    /// Ends when it is to be said again.
    pub(super) async fn due(&self) {
        match self.holder {
            Some(_) => sleep(RENEW_EVERY).await,
            None => std::future::pending().await,
        }
    }
}
