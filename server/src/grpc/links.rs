//! Which workers hang on which stream of hints: where it breaks and is not opened again, their leases are cut.

use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::storage::Storage;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;
use uuid::Uuid;

/// How long a broken stream may take to come back. With what is left of the leases then, the work of a killed process is taken
/// over within a second.
const GRACE: Duration = Duration::from_millis(500);
/// What is left of the leases of workers that seem gone: enough for one that is connected to renew them.
const LEFT: Duration = Duration::from_millis(250);

/// A stream: whose token opened it (none: the operator's), and the name the caller gives to all of its own.
pub(super) type LinkName = (Option<OrgId>, Uuid);

/// The streams that are open.
#[derive(Clone, Default)]
pub(super) struct Links(Arc<Mutex<HashMap<LinkName, Link>>>);

#[derive(Default)]
struct Link {
    streams: usize,
    workers: HashSet<(OrgId, WorkerId)>,
}

impl Links {
    /// A stream was opened.
    pub(super) fn opened(&self, link: LinkName) {
        self.0.lock().entry(link).or_default().streams += 1;
    }

    /// A worker gave a sign that names its stream.
    pub(super) fn hangs_on(&self, link: LinkName, org: OrgId, worker: WorkerId) {
        if let Some(link) = self.0.lock().get_mut(&link) {
            link.workers.insert((org, worker));
        }
    }

    /// A worker left by itself.
    pub(super) fn left(&self, org: OrgId, worker: WorkerId) {
        for link in self.0.lock().values_mut() {
            link.workers.remove(&(org, worker));
        }
    }

    /// A stream ended, and not because this server ends: waits whether it comes back, else cuts the leases.
    pub(super) async fn broke(&self, link: LinkName, storage: &dyn Storage) {
        tokio::time::sleep(GRACE).await;
        for (org, worker) in self.gone(link) {
            if let Err(error) = storage.cut_leases(org, worker, LEFT).await {
                warn!(%worker, %error, "the leases of a worker that is gone could not be cut; they end by themselves");
            }
        }
    }

    /// One stream less; the workers of the last.
    fn gone(&self, link: LinkName) -> HashSet<(OrgId, WorkerId)> {
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
        let (links, org, name) = (Links::default(), OrgId::fresh(), Uuid::new_v4());
        let (link, foreign) = ((Some(org), name), (Some(OrgId::fresh()), name));
        let (one, two, stranger) = (WorkerId::fresh(), WorkerId::fresh(), WorkerId::fresh());
        links.hangs_on(link, org, stranger);
        links.opened(link);
        links.hangs_on(link, org, one);
        links.hangs_on(link, org, two);
        links.left(OrgId::fresh(), one);
        links.left(org, two);
        links.opened(link);
        // Another caller's stream of the same name holds nobody's workers.
        links.opened(foreign);
        assert!(links.gone(link).is_empty(), "the stream was opened again");
        assert_eq!(links.gone(link), HashSet::from([(org, one)]));
        assert!(links.gone(link).is_empty() && links.gone(foreign).is_empty());
    }
}
