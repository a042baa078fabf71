//! Looks, where another process may have changed anything, which of the runs that are followed here have changed.

use crate::storage::Storage;
use crate::streaming::{Change, Lookout};
use std::sync::Weak;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The shortest pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// So many times as long as a look took is the pause after it: many who follow take no more of the store's time than few.
const REST: u32 = 4;

/// Looks until the backend is gone.
pub(super) async fn keep(storage: Weak<dyn Storage>, lookout: Lookout) {
    loop {
        lookout.rung().await;
        let Some(open) = storage.upgrade() else { return };
        let began = Instant::now();
        for (org, runs) in lookout.followed() {
            let runs: Vec<_> = runs.into_iter().collect();
            match open.standings(org, &runs).await {
                Ok(found) => found.into_iter().for_each(|one| {
                    let (execution, high, ended) = (one.execution, one.high, Some(one.ended));
                    lookout.seen(Change { org, execution, high, ended, here: false });
                }),
                Err(error) => {
                    tracing::debug!(%error, "the store did not tell which runs have news; each is looked at");
                    lookout.missed();
                }
            }
        }
        drop(open);
        sleep(PAUSE.max(began.elapsed() * REST)).await;
    }
}
