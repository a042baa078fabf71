//! What workers are called. One names itself in three ways: by the name it registers, by the id that the registration
//! answers, and, where it polls for tasks, by an id of its own making.
//!
//! The name it registers is by default that id of its own, and then all three lead to one worker. Where it is another, the
//! connection tells: a process has one. Through a proxy that is shared by several workers it says nothing and is not used;
//! then the tasks of such a worker are held by an id apart, whose leases are kept by its polls and by calls about its tasks.

use flovyn_core::clock::Timestamp;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::storage::unfenced::SignOf;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use uuid::Uuid;

/// How often the calls of a worker renew its leases: far more often than they end, and far less often than it calls.
const RENEWED: Duration = Duration::from_secs(15);
/// Connections, workers and runs that are remembered at a time.
const REMEMBERED: usize = 10_000;
/// How long a worker may make no call about a run that it holds. Its other signs then no longer stand for the run: it reports
/// an end once, and knows nothing more of the run where that report met a server that was not there.
const SILENCE: Duration = Duration::from_secs(300);

/// What this process has seen of workers.
#[derive(Default)]
pub(super) struct Workers {
    /// The one worker of a connection; none where there are several.
    peers: Mutex<HashMap<(OrgId, SocketAddr), Option<WorkerId>>>,
    renewed: Mutex<HashMap<(OrgId, WorkerId), Timestamp>>,
    heard: Mutex<Heard>,
}

/// The calls that workers have made about runs.
#[derive(Default)]
struct Heard {
    /// Since when; what was before is not known.
    since: Option<Timestamp>,
    of: HashMap<(OrgId, WorkerId), HashMap<ExecutionId, Timestamp>>,
    runs: usize,
}

/// The worker of an id on the wire.
pub(super) fn worker(org: OrgId, named: &str) -> WorkerId {
    WorkerId(Uuid::parse_str(named).unwrap_or_else(|_| Uuid::new_v5(&org.0, named.as_bytes())))
}

/// The id that a registration answers. A name of a worker's own making is that of one process; any other may be shared.
pub(super) fn registered(org: OrgId, name: &str) -> WorkerId {
    let own = name.strip_prefix("worker-").is_some_and(|id| Uuid::parse_str(id).is_ok());
    if own { worker(org, name) } else { WorkerId::fresh() }
}

impl Workers {
    /// A call of a worker came over a connection.
    pub(super) fn met(&self, org: OrgId, peer: Option<SocketAddr>, worker: WorkerId) {
        let Some(peer) = peer else { return };
        let mut peers = self.peers.lock();
        if peers.len() >= REMEMBERED {
            peers.clear();
        }
        let known = peers.entry((org, peer)).or_insert(Some(worker));
        if *known != Some(worker) {
            *known = None;
        }
    }

    /// The one worker of a connection.
    pub(super) fn of(&self, org: OrgId, peer: Option<SocketAddr>) -> Option<WorkerId> {
        self.peers.lock().get(&(org, peer?)).copied().flatten()
    }

    /// Whether the leases of a worker that gives a sign are to be renewed now.
    pub(super) fn is_due(&self, org: OrgId, worker: WorkerId, now: Timestamp) -> bool {
        let mut renewed = self.renewed.lock();
        // A clock that was set back says nothing about what has passed.
        if renewed.get(&(org, worker)).is_some_and(|at| *at <= now && now.since(*at) < RENEWED) {
            return false;
        }
        if renewed.len() >= REMEMBERED {
            renewed.clear();
        }
        renewed.insert((org, worker), now);
        true
    }

    /// A worker has made a call about a run that it holds, or was given it. Whether it had made none for so long that the
    /// run's lease is to be renewed at once.
    pub(super) fn heard_of(&self, org: OrgId, worker: WorkerId, run: ExecutionId, now: Timestamp) -> bool {
        let mut heard = self.heard.lock();
        if heard.runs >= REMEMBERED {
            *heard = Heard::default();
        }
        heard.since.get_or_insert(now);
        let before = heard.of.entry((org, worker)).or_default().insert(run, now);
        heard.runs += usize::from(before.is_none());
        before.is_none_or(|at| now.since(at) >= RENEWED)
    }

    /// The runs that any sign of a worker stands for.
    pub(super) fn sign_of(&self, org: OrgId, worker: WorkerId, now: Timestamp) -> SignOf {
        let mut heard = self.heard.lock();
        let since = *heard.since.get_or_insert(now);
        let Heard { of, runs, .. } = &mut *heard;
        let held = of.entry((org, worker)).or_default();
        let before = held.len();
        held.retain(|_, at| now.since(*at) < SILENCE);
        *runs -= before - held.len();
        let these = held.keys().copied().collect();
        if held.is_empty() {
            of.remove(&(org, worker));
        }
        if now.since(since) < SILENCE { SignOf::Every } else { SignOf::These(these) }
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
        assert_eq!(workers.of(org, peer), None);
        workers.met(org, peer, one);
        workers.met(org, peer, one);
        assert_eq!((workers.of(org, peer), workers.of(OrgId::fresh(), peer)), (Some(one), None));
        workers.met(org, peer, two);
        workers.met(org, peer, one);
        assert_eq!((workers.of(org, peer), workers.of(org, None)), (None, None));
    }

    #[test]
    fn a_sign_stands_for_the_runs_that_its_worker_still_calls_about() {
        let (workers, org, worker) = (Workers::default(), OrgId::DEFAULT, WorkerId::fresh());
        let (told, silent, start) = (ExecutionId::fresh(), ExecutionId::fresh(), Timestamp(1_700_000_000_000_000));
        // What it held when this server began is not known.
        assert_eq!(workers.sign_of(org, worker, start), SignOf::Every);
        assert!(workers.heard_of(org, worker, silent, start) && workers.heard_of(org, worker, told, start));
        assert!(!workers.heard_of(org, worker, told, start.after(RENEWED / 2)));
        let later = start.after(SILENCE);
        assert!(workers.heard_of(org, worker, told, later));
        assert_eq!(workers.sign_of(org, worker, later), SignOf::These([told].into()));
        assert_eq!(workers.sign_of(org, WorkerId::fresh(), later), SignOf::These([].into()));
        assert_eq!(workers.heard.lock().runs, 1);
    }

    #[test]
    fn the_leases_of_a_worker_are_renewed_now_and_then() {
        let (workers, org) = (Workers::default(), OrgId::DEFAULT);
        let (one, two, start) = (WorkerId::fresh(), WorkerId::fresh(), Timestamp(1_700_000_000_000_000));
        assert!(workers.is_due(org, one, start) && workers.is_due(org, two, start));
        assert!(!workers.is_due(org, one, start.after(RENEWED / 2)));
        assert!(workers.is_due(org, one, start.after(RENEWED)));
        assert!(workers.is_due(org, one, start), "the clock was set back");
    }
}
