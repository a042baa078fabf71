//! A reader of a run that workers of other processes advance: says that it reads, and reads the rows of previews.

use crate::error::Result;
use crate::id::WorkerId;
use crate::storage::{Previews, Storage};
use crate::streaming::{Chunks, Follow, Lease, OpKey, RENEW_EVERY, RunKey};
use std::collections::HashSet;
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
    /// The tasks that queues have handed to workers of other processes.
    tasks: HashSet<OpKey>,
    /// Rings when another process has written.
    bell: Follow,
}

/// Why a reader looks up.
pub(super) enum Stir {
    /// Another process has written something.
    Written,
    /// It is time to say again that the run is read here.
    Due,
}

impl Elsewhere {
    pub(super) fn new(storage: Arc<dyn Storage>, chunks: Chunks, run: RunKey) -> Self {
        let bell = storage.hints().elsewhere();
        Self { storage, chunks, run, holder: None, epoch: 0, tasks: HashSet::new(), bell }
    }

    /// Takes notice of the run's holder. Where that is another process, ends once its previews are on the board here.
    pub(super) async fn held(&mut self, epoch: u64, holder: Option<WorkerId>) -> Result<()> {
        if self.rows().is_none() || epoch < self.epoch {
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

    /// The run waits: nobody makes previews until it is claimed again, but for its queues' tasks.
    pub(super) fn waits(&mut self) {
        self.holder = None;
    }

    /// Takes notice of the tasks that queues have handed out before this reader came.
    pub(super) async fn handed_out(&mut self) -> Result<()> {
        let (org, execution) = self.run;
        let tasks = match self.rows() {
            Some(rows) => rows.handed_out(org, execution).await?,
            None => return Ok(()),
        };
        tasks.into_iter().for_each(|(op, worker)| self.started(op, worker));
        Ok(())
    }

    /// A queue has handed out a task.
    pub(super) fn started(&mut self, op: OpKey, worker: WorkerId) {
        match self.rows().is_none() || self.chunks.is_home(self.run.0, worker) {
            true => self.tasks.remove(&op),
            false => self.tasks.insert(op),
        };
    }

    /// An attempt of a task is over.
    pub(super) fn ended(&mut self, op: OpKey) {
        self.tasks.remove(&op);
    }

    /// Puts what other processes have written onto the board; whether that is all that the run's holder had when this one
    /// came.
    pub(super) async fn read(&self) -> Result<bool> {
        self.renew().await?;
        let Some(rows) = self.rows().filter(|_| self.is_wanted()) else { return Ok(true) };
        let (org, execution) = self.run;
        let after = self.chunks.delivered(self.run);
        let (rows, served) = rows.read_previews(org, execution, self.chunks.process(), &after).await?;
        self.chunks.deliver_rows(self.run, &rows)?;
        Ok(served)
    }

    /// Says that the run is read here, where that is not known.
    pub(super) async fn renew(&self) -> Result<()> {
        let Some(rows) = self.rows().filter(|_| self.is_wanted()) else { return Ok(()) };
        let lease = self.chunks.lease(self.run, self.holder);
        if lease == Lease::Live {
            return Ok(());
        }
        let (org, execution) = self.run;
        rows.watch(org, execution, self.chunks.process(), lease == Lease::New).await
    }

    /// Ends when there is something to do for a run whose previews another process makes.
    pub(super) async fn stirs(&mut self) -> Stir {
        if !self.is_wanted() {
            return std::future::pending().await;
        }
        tokio::select! {
            () = self.bell.changed() => Stir::Written,
            () = sleep(RENEW_EVERY) => Stir::Due,
        }
    }

    /// Whether another process makes previews of the run.
    fn is_wanted(&self) -> bool {
        self.holder.is_some() || !self.tasks.is_empty()
    }

    fn rows(&self) -> Option<&dyn Previews> {
        self.storage.previews().filter(|_| self.chunks.is_shared())
    }
}
