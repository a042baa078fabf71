//! Polls, where another process may have changed anything, which of the runs that are followed here have changed.

use crate::storage::Storage;
use crate::streaming::{Change, ChangePoller};
use std::sync::Weak;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The shortest pause between two polls.
const PAUSE: Duration = Duration::from_millis(5);
/// The pause after a poll is this many times as long as the poll took, so that many followers take no larger share of the
/// store's time than few.
const REST: u32 = 4;

/// Polls until the backend is gone.
pub(super) async fn run(storage: Weak<dyn Storage>, poller: ChangePoller) {
    loop {
        poller.requested().await;
        let Some(open) = storage.upgrade() else { return };
        let began = Instant::now();
        for (org, runs) in poller.followed() {
            let runs: Vec<_> = runs.into_iter().collect();
            match open.standings(org, &runs).await {
                Ok(found) => found.into_iter().for_each(|one| {
                    let (execution, high, ended) = (one.execution, one.high, Some(one.ended));
                    poller.found(Change { org, execution, high, ended, here: false });
                }),
                Err(error) => {
                    tracing::debug!(%error, "which runs have news could not be polled; their followers look for themselves");
                    poller.failed();
                }
            }
        }
        drop(open);
        sleep(PAUSE.max(began.elapsed() * REST)).await;
    }
}
