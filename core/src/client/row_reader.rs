//! A reader of a run whose previews other processes make: says that it reads, and reads the rows of previews.

use crate::error::Result;
use crate::id::WorkerId;
use crate::storage::{Previews, Storage};
use crate::streaming::{Chunks, Follow, OpKey, RENEW_EVERY, Registration, RunKey};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long a reader waits until the holder's process has written what it had. One that is dead writes nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct RowReader {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    run: RunKey,
    /// The run's holder, where it is in another process.
    holder: Option<WorkerId>,
    /// The epoch up to which holders are known.
    epoch: u64,
    /// The tasks that queues have handed to workers of other processes.
    tasks: HashSet<OpKey>,
    /// Signals that another process has written.
    written: Follow,
}

/// Why a reader has to act.
pub(super) enum Wake {
    /// Another process has written something.
    Written,
    /// It is time to say again that the run is read here.
    RenewalDue,
}

impl RowReader {
    pub(super) fn new(storage: Arc<dyn Storage>, chunks: Chunks, run: RunKey) -> Self {
        let written = storage.hints().elsewhere();
        Self { storage, chunks, run, holder: None, epoch: 0, tasks: HashSet::new(), written }
    }

    /// The run has this holder. Where that is in another process, ends once what it had is here.
    pub(super) async fn run_claimed(&mut self, epoch: u64, holder: Option<WorkerId>) -> Result<()> {
        if self.rows().is_none() || epoch < self.epoch {
            return Ok(());
        }
        self.epoch = epoch;
        self.holder = holder.filter(|holder| !self.chunks.is_local(self.run.0, *holder));
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

    /// The run waits: only tasks of its queues make previews until it is claimed again.
    pub(super) fn run_waits(&mut self) {
        self.holder = None;
    }

    /// Finds the tasks that queues handed out before this reader came.
    pub(super) async fn find_tasks(&mut self) -> Result<()> {
        let (org, execution) = self.run;
        let tasks = match self.rows() {
            Some(rows) => rows.handed_out(org, execution).await?,
            None => return Ok(()),
        };
        tasks.into_iter().for_each(|(op, worker)| self.task_started(op, worker));
        Ok(())
    }

    /// A queue has handed out a task.
    pub(super) fn task_started(&mut self, op: OpKey, worker: WorkerId) {
        match self.rows().is_none() || self.chunks.is_local(self.run.0, worker) {
            true => self.tasks.remove(&op),
            false => self.tasks.insert(op),
        };
    }

    /// An attempt of a task is over.
    pub(super) fn attempt_ended(&mut self, op: OpKey) {
        self.tasks.remove(&op);
    }

    /// Reads what other processes have written; whether that is all that the run's holder had when this reader came.
    pub(super) async fn read(&self) -> Result<bool> {
        self.renew().await?;
        let Some(rows) = self.rows().filter(|_| self.is_needed()) else { return Ok(true) };
        let (org, execution) = self.run;
        let known = self.chunks.progress(self.run);
        let (rows, served) = rows.read_previews(org, execution, self.chunks.process(), &known).await?;
        self.chunks.receive_rows(self.run, &rows)?;
        Ok(served)
    }

    /// Says that the run is read here, where that is not known.
    pub(super) async fn renew(&self) -> Result<()> {
        let Some(rows) = self.rows().filter(|_| self.is_needed()) else { return Ok(()) };
        let registration = self.chunks.register_reader(self.run, self.holder);
        if registration == Registration::Current {
            return Ok(());
        }
        let (org, execution) = self.run;
        rows.watch(org, execution, self.chunks.process(), registration == Registration::New).await
    }

    /// Ends when there is something to do for a run whose previews another process makes.
    pub(super) async fn wake(&mut self) -> Wake {
        if !self.is_needed() {
            return std::future::pending().await;
        }
        tokio::select! {
            () = self.written.changed() => Wake::Written,
            () = sleep(RENEW_EVERY) => Wake::RenewalDue,
        }
    }

    /// Whether another process makes previews of the run.
    fn is_needed(&self) -> bool {
        self.holder.is_some() || !self.tasks.is_empty()
    }

    fn rows(&self) -> Option<&dyn Previews> {
        self.storage.previews().filter(|_| self.chunks.is_shared())
    }
}
