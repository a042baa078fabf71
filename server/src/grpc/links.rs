//! Which workers hang on which stream of hints: where it breaks and is not opened again, their leases are cut.

use flovyn_core::id::WorkerId;
use flovyn_core::storage::Storage;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;
use uuid::Uuid;

/// How long a broken stream may take to come back.
const GRACE: Duration = Duration::from_secs(1);
/// What is left of the leases of workers that seem gone: enough for one that lives to renew them.
const LEFT: Duration = Duration::from_secs(3);

/// The streams that are open, by the name the caller gives to all of its own.
#[derive(Clone, Default)]
pub(super) struct Links(Arc<Mutex<HashMap<Uuid, Link>>>);

#[derive(Default)]
struct Link {
    streams: usize,
    workers: HashSet<WorkerId>,
}

impl Links {
    /// A stream was opened.
    pub(super) fn opened(&self, link: Uuid) {
        self.0.lock().entry(link).or_default().streams += 1;
    }

    /// A worker gave a sign that names its stream.
    pub(super) fn hangs_on(&self, link: Uuid, worker: WorkerId) {
        if let Some(link) = self.0.lock().get_mut(&link) {
            link.workers.insert(worker);
        }
    }

    /// A worker left by itself.
    pub(super) fn left(&self, worker: WorkerId) {
        for link in self.0.lock().values_mut() {
            link.workers.remove(&worker);
        }
    }

    /// A stream ended, and not because this server ends: waits whether it comes back, else cuts the leases.
    pub(super) async fn broke(&self, link: Uuid, storage: &dyn Storage) {
        tokio::time::sleep(GRACE).await;
        for worker in self.gone(link) {
            if let Err(error) = storage.cut_leases(worker, LEFT).await {
                warn!(%worker, %error, "the leases of a worker that is gone could not be cut; they end by themselves");
            }
        }
    }

    /// One stream less; the workers of the last.
    fn gone(&self, link: Uuid) -> HashSet<WorkerId> {
        let mut links = self.0.lock();
        let Some(open) = links.get_mut(&link) else { return HashSet::new() };
        open.streams = open.streams.saturating_sub(1);
        if open.streams > 0 {
            return HashSet::new();
        }
        links.remove(&link).map(|link| link.workers).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_gone_with_their_last_stream() {
        let (links, link) = (Links::default(), Uuid::new_v4());
        let (one, two, stranger) = (WorkerId::fresh(), WorkerId::fresh(), WorkerId::fresh());
        links.hangs_on(link, stranger);
        links.opened(link);
        links.hangs_on(link, one);
        links.hangs_on(link, two);
        links.left(two);
        links.opened(link);
        assert!(links.gone(link).is_empty(), "the stream was opened again");
        assert_eq!(links.gone(link), HashSet::from([one]));
        assert!(links.gone(link).is_empty());
    }
}
