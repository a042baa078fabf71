//! The ids of workers, and when their leases are renewed.
//!
//! A worker names itself in three ways: by the name it registers, by the id that the registration returns, and, when it polls for
//! tasks, by an id it has made itself. By default it registers that id as its name, and all three lead to one worker. Under another
//! name it is recognized by its connection: a process has one. A connection of a proxy that several workers share is not used;
//! tasks of such a worker are held under a separate id, whose leases are renewed by its polls and by calls about its tasks.

use flovyn_core::clock::Timestamp;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::storage::unfenced::SignOf;
use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use uuid::Uuid;

/// How often the calls of a worker renew its leases: far more often than leases end, far less often than workers call.
const RENEW_INTERVAL: Duration = Duration::from_secs(15);
/// Connections, workers and runs that are cached at a time.
const MAX_CACHED: usize = 10_000;
/// How long a worker may make no call about a run that it holds. After that its other calls no longer renew the lease of the run:
/// a worker reports an end only once, and forgets the run even if the report reached no server.
const RUN_SILENCE: Duration = Duration::from_secs(300);

/// What this process knows of workers.
#[derive(Default)]
pub(super) struct Workers {
    /// The worker of each connection; none where several use it.
    peers: Mutex<HashMap<(OrgId, SocketAddr), Option<WorkerId>>>,
    renewed: Mutex<HashMap<(OrgId, WorkerId), Timestamp>>,
    calls: Mutex<RecordedCalls>,
}

/// The calls that workers have made about runs.
#[derive(Default)]
struct RecordedCalls {
    /// When recording began; earlier calls are not known.
    since: Option<Timestamp>,
    by_worker: HashMap<(OrgId, WorkerId), HashMap<ExecutionId, Timestamp>>,
    runs: usize,
}

/// The worker of an id on the wire.
pub(super) fn worker(org: OrgId, named: &str) -> WorkerId {
    WorkerId(Uuid::parse_str(named).unwrap_or_else(|_| Uuid::new_v5(&org.0, named.as_bytes())))
}

/// The id that a registration returns. A name that a worker has made itself is unique to its process; others may be shared.
pub(super) fn registered(org: OrgId, name: &str) -> WorkerId {
    let own = name.strip_prefix("worker-").is_some_and(|id| Uuid::parse_str(id).is_ok());
    if own { worker(org, name) } else { WorkerId::fresh() }
}

impl Workers {
    /// A call of a worker came over a connection.
    pub(super) fn remember_peer(&self, org: OrgId, peer: Option<SocketAddr>, worker: WorkerId) {
        let Some(peer) = peer else { return };
        let mut peers = self.peers.lock();
        if peers.len() >= MAX_CACHED {
            peers.clear();
        }
        let known = peers.entry((org, peer)).or_insert(Some(worker));
        if *known != Some(worker) {
            *known = None;
        }
    }

    /// The one worker of a connection.
    pub(super) fn of_connection(&self, org: OrgId, peer: Option<SocketAddr>) -> Option<WorkerId> {
        self.peers.lock().get(&(org, peer?)).copied().flatten()
    }

    /// Whether the leases of a worker that has called are to be renewed now.
    pub(super) fn is_renewal_due(&self, org: OrgId, worker: WorkerId, now: Timestamp) -> bool {
        let mut renewed = self.renewed.lock();
        // Renew when the clock was set back: it does not tell how much time has passed.
        if renewed.get(&(org, worker)).is_some_and(|at| *at <= now && now.since(*at) < RENEW_INTERVAL) {
            return false;
        }
        if renewed.len() >= MAX_CACHED {
            renewed.clear();
        }
        renewed.insert((org, worker), now);
        true
    }

    /// Records that a worker has called about a run that it holds, or was given it. Returns whether its last call about the run is
    /// so long ago that the lease is to be renewed at once.
    pub(super) fn record_call(&self, org: OrgId, worker: WorkerId, run: ExecutionId, now: Timestamp) -> bool {
        let mut calls = self.calls.lock();
        if calls.runs >= MAX_CACHED {
            *calls = RecordedCalls::default();
        }
        calls.since.get_or_insert(now);
        let before = calls.by_worker.entry((org, worker)).or_default().insert(run, now);
        calls.runs += usize::from(before.is_none());
        before.is_none_or(|at| now.since(at) >= RENEW_INTERVAL)
    }

    /// The runs whose leases any call of a worker renews.
    pub(super) fn renewable_runs(&self, org: OrgId, worker: WorkerId, now: Timestamp) -> SignOf {
        let mut calls = self.calls.lock();
        let since = *calls.since.get_or_insert(now);
        let RecordedCalls { by_worker, runs, .. } = &mut *calls;
        let held = by_worker.entry((org, worker)).or_default();
        let before = held.len();
        held.retain(|_, at| now.since(*at) < RUN_SILENCE);
        *runs -= before - held.len();
        let runs_held = held.keys().copied().collect();
        if held.is_empty() {
            by_worker.remove(&(org, worker));
        }
        if now.since(since) < RUN_SILENCE { SignOf::Every } else { SignOf::These(runs_held) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_one_id_by_its_own_name() {
        let org = OrgId::DEFAULT;
        let own = format!("worker-{}", Uuid::new_v4());
        assert_eq!(registered(org, &own), worker(org, &own));
        assert_ne!(registered(org, "gpu"), registered(org, "gpu"), "two processes may share a name");
        assert_ne!(worker(org, "gpu"), worker(OrgId::fresh(), "gpu"));
        let id = WorkerId::fresh();
        assert_eq!(worker(org, &id.to_string()), id);
    }

    #[test]
    fn a_connection_of_one_worker_names_it() {
        let (workers, org) = (Workers::default(), OrgId::DEFAULT);
        let (one, two) = (WorkerId::fresh(), WorkerId::fresh());
        let peer = Some(SocketAddr::from(([127, 0, 0, 1], 7)));
        assert_eq!(workers.of_connection(org, peer), None);
        workers.remember_peer(org, peer, one);
        workers.remember_peer(org, peer, one);
        assert_eq!((workers.of_connection(org, peer), workers.of_connection(OrgId::fresh(), peer)), (Some(one), None));
        workers.remember_peer(org, peer, two);
        workers.remember_peer(org, peer, one);
        assert_eq!((workers.of_connection(org, peer), workers.of_connection(org, None)), (None, None));
    }

    #[test]
    fn calls_renew_the_runs_that_their_worker_still_calls_about() {
        let (workers, org, worker) = (Workers::default(), OrgId::DEFAULT, WorkerId::fresh());
        let (to_status, silent, start) = (ExecutionId::fresh(), ExecutionId::fresh(), Timestamp(1_700_000_000_000_000));
        // The runs that it held when this server started are not known.
        assert_eq!(workers.renewable_runs(org, worker, start), SignOf::Every);
        assert!(workers.record_call(org, worker, silent, start) && workers.record_call(org, worker, to_status, start));
        assert!(!workers.record_call(org, worker, to_status, start.after(RENEW_INTERVAL / 2)));
        let later = start.after(RUN_SILENCE);
        assert!(workers.record_call(org, worker, to_status, later));
        assert_eq!(workers.renewable_runs(org, worker, later), SignOf::These([to_status].into()));
        assert_eq!(workers.renewable_runs(org, WorkerId::fresh(), later), SignOf::These([].into()));
        assert_eq!(workers.calls.lock().runs, 1);
    }

    #[test]
    fn the_leases_of_a_worker_are_renewed_now_and_then() {
        let (workers, org) = (Workers::default(), OrgId::DEFAULT);
        let (one, two, start) = (WorkerId::fresh(), WorkerId::fresh(), Timestamp(1_700_000_000_000_000));
        assert!(workers.is_renewal_due(org, one, start) && workers.is_renewal_due(org, two, start));
        assert!(!workers.is_renewal_due(org, one, start.after(RENEW_INTERVAL / 2)));
        assert!(workers.is_renewal_due(org, one, start.after(RENEW_INTERVAL)));
        assert!(workers.is_renewal_due(org, one, start), "the clock was set back");
    }
}
