//! The hint streams of connected workers. When a stream breaks and is not opened again, the leases of its workers are cut, so that
//! others take over their work soon.

use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::storage::Storage;
use flovyn_core::sync::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;
use uuid::Uuid;

/// How long a broken stream may take to be opened again. Together with the lease that remains, the work of a killed process is
/// taken over within a second.
const RECONNECT_GRACE: Duration = Duration::from_millis(500);
/// What remains of the leases of workers that seem gone: enough for a worker that is still connected to renew them.
const REMAINING_LEASE: Duration = Duration::from_millis(250);

/// What remains of the leases that the first heartbeat of a stream does not name: those of claims whose answer a worker has never
/// got, because the server before this one died with it. A claim that is still on its way is named by the next heartbeat, two
/// seconds later.
pub(super) const UNNAMED_LEASE: Duration = Duration::from_secs(5);

/// The org of the token that opened a stream (none: the operator's), and the name that the caller gives to all its streams.
pub(super) type StreamName = (Option<OrgId>, Uuid);

/// The streams that are open.
#[derive(Clone, Default)]
pub(super) struct HintStreams(Arc<Mutex<HashMap<StreamName, HintStream>>>);

#[derive(Default)]
struct HintStream {
    open: usize,
    workers: HashSet<(OrgId, WorkerId)>,
}

impl HintStreams {
    /// A stream was opened.
    pub(super) fn opened(&self, stream: StreamName) {
        self.0.lock().entry(stream).or_default().open += 1;
    }

    /// A heartbeat of a worker named its stream. Tells whether it is the first on this stream.
    pub(super) fn attach_worker(&self, stream: StreamName, org: OrgId, worker: WorkerId) -> bool {
        self.0.lock().get_mut(&stream).is_some_and(|stream| stream.workers.insert((org, worker)))
    }

    /// A worker unregistered.
    pub(super) fn detach_worker(&self, org: OrgId, worker: WorkerId) {
        for stream in self.0.lock().values_mut() {
            stream.workers.remove(&(org, worker));
        }
    }

    /// A stream ended while the server goes on: waits whether it is opened again, else cuts the leases of its workers.
    pub(super) async fn closed(&self, stream: StreamName, storage: &dyn Storage) {
        tokio::time::sleep(RECONNECT_GRACE).await;
        for (org, worker) in self.remove_stream(stream) {
            if let Err(error) = storage.cut_leases(org, worker, REMAINING_LEASE).await {
                warn!(%worker, %error, "the leases of a worker that is gone could not be cut; they end by themselves");
            }
        }
    }

    /// Counts one stream less; returns the workers when it was the last of its name.
    fn remove_stream(&self, name: StreamName) -> HashSet<(OrgId, WorkerId)> {
        let mut streams = self.0.lock();
        let Some(stream) = streams.get_mut(&name) else { return HashSet::new() };
        stream.open = stream.open.saturating_sub(1);
        if stream.open > 0 {
            return HashSet::new();
        }
        streams.remove(&name).map(|stream| stream.workers).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_gone_with_their_last_stream() {
        let (streams, org, name) = (HintStreams::default(), OrgId::fresh(), Uuid::new_v4());
        let (stream, foreign) = ((Some(org), name), (Some(OrgId::fresh()), name));
        let (one, two, detached) = (WorkerId::fresh(), WorkerId::fresh(), WorkerId::fresh());
        streams.attach_worker(stream, org, detached);
        streams.opened(stream);
        streams.attach_worker(stream, org, one);
        streams.attach_worker(stream, org, two);
        streams.detach_worker(OrgId::fresh(), one);
        streams.detach_worker(org, two);
        streams.opened(stream);
        // Another caller's stream of the same name has no workers.
        streams.opened(foreign);
        assert!(streams.remove_stream(stream).is_empty(), "the stream was opened again");
        assert_eq!(streams.remove_stream(stream), HashSet::from([(org, one)]));
        assert!(streams.remove_stream(stream).is_empty() && streams.remove_stream(foreign).is_empty());
    }
}
