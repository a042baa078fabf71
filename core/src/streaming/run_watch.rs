//! Waits for what is hinted of one run, or of one kind of work.

use super::hints::Change;
use super::hub::Hub;
use crate::id::{ExecutionId, OrgId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The shortest time between two reads of a caller that waits for a run's end, while hints do not say whether it has ended.
const READ_EVERY: Duration = Duration::from_millis(100);
/// The longest: a hint may have been lost.
const READ_ANYWAY: Duration = Duration::from_secs(30);

/// Waits for one signal. A signal between two waits is not missed.
pub struct Follow(pub(super) watch::Receiver<()>);

impl Follow {
    /// Ends at the next signal since the last wait.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The hub is gone: no signal will ever come.
            std::future::pending::<()>().await;
        }
    }
}

/// How many hints of a run have come: that said it ended, that did not say whether it did; and the last event they named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    ends: u64,
    unsure: u64,
    high: u64,
}

impl Counts {
    pub(super) fn add(&mut self, change: Change) {
        match change.ended {
            Some(ended) => self.ends += u64::from(ended),
            None => self.unsure += 1,
        }
        self.high = self.high.max(change.high);
    }

    /// Adds what a poll has found; false where it is known already.
    pub(super) fn add_if_new(&mut self, change: Change) -> bool {
        let is_new = change.high > self.high || change.ended == Some(true) && self.ends == 0;
        if is_new {
            self.add(change);
        }
        is_new
    }

    /// Anything may have happened to the run.
    pub(super) fn add_unknown(&mut self) {
        self.unsure += 1;
    }
}

/// Waits for hints of one run. Create it before reading the store, so that no change is missed.
pub struct Watch {
    hub: Arc<Hub>,
    run: (OrgId, ExecutionId),
    /// None while it is dropped.
    counts: Option<watch::Receiver<Counts>>,
    known: Counts,
}

impl Watch {
    pub(super) fn new(hub: Arc<Hub>, run: (OrgId, ExecutionId)) -> Self {
        let counts = hub.watched.lock().entry(run).or_default().subscribe();
        let known = *counts.borrow();
        Self { hub, run, counts: Some(counts), known }
    }

    /// Ends at the next change since the last wait.
    pub async fn changed(&mut self) {
        if let Some(counts) = &mut self.counts
            && counts.changed().await.is_err()
        {
            // The hub is gone: no hint will ever come.
            std::future::pending::<()>().await;
        }
    }

    /// Ends when it is time to read whether the run has ended, for a caller that has just read: at once where a hint says that
    /// it has; every [`READ_EVERY`] where hints do not say; every [`READ_ANYWAY`] where none comes.
    pub async fn ended(&mut self) {
        let Some(counts) = &mut self.counts else { return };
        let read_at = Instant::now();
        let mut due = read_at + READ_ANYWAY;
        loop {
            let now = *counts.borrow_and_update();
            let known = std::mem::replace(&mut self.known, now);
            if now.ends != known.ends {
                return;
            }
            if now.unsure != known.unsure {
                due = read_at + READ_EVERY;
            }
            match timeout_at(due, counts.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tokio::time::sleep_until(due).await,
                Err(_) => return,
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // First, so that the last watch of the run finds no receiver left.
        self.counts = None;
        let mut watched = self.hub.watched.lock();
        if watched.get(&self.run).is_some_and(|sender| sender.receiver_count() == 0) {
            watched.remove(&self.run);
        }
    }
}
