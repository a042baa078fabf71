//! Renews the leases of a worker, drops what it has lost, and evicts parked runs by their age.

use super::{Core, LEASE_TTL, RENEW_EVERY, RENEW_SOON, STOP_AFTER};
use crate::error::{Code, Error};
use crate::id::ExecutionId;
use crate::session::Closed;
use crate::storage::Heartbeat;
use crate::storage::available::troubled;
use std::sync::Arc;
use tokio::time::Instant;

pub(super) async fn run(core: Arc<Core>) {
    let mut renewed = Instant::now();
    let mut every = tokio::time::interval(RENEW_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    every.tick().await;
    let mut at_risk = core.storage.hints().leases();
    loop {
        tokio::select! {
            _ = every.tick() => {}
            // A store that takes us for dead, or knows nothing of us, leaves what a heartbeat does not name a few seconds. A
            // claim whose answer is on its way is named by the next one.
            () = at_risk.changed() => every.reset_after(RENEW_SOON),
            () = core.closed.notified() => return,
        }
        if core.is_closing() {
            return;
        }
        if beat(&core).await {
            renewed = Instant::now();
        } else if renewed.elapsed() > STOP_AFTER {
            let sessions: Vec<_> = core.active.lock().values().cloned().collect();
            for session in sessions {
                session.close(Closed::Lost(lost("the store could not be reached to renew the lease")));
            }
        }
        for session in core.parked.take_aged() {
            session.evict();
        }
    }
}

async fn beat(core: &Core) -> bool {
    let sessions: Vec<_> = core.active.lock().values().cloned().collect();
    let tickets: Vec<_> = core.tickets.lock().values().cloned().collect();
    let held: Vec<_> = sessions.iter().map(|session| session.held()).collect();
    let beat = Heartbeat {
        org: core.options.org,
        worker: core.id,
        ttl: LEASE_TTL,
        executions: sessions.iter().map(|session| session.standing()).collect(),
        tasks: tickets.iter().map(super::Ticket::standing).collect(),
        progress: Vec::new(),
    };
    let answer = match core.storage.heartbeat(beat).await {
        Ok(answer) => answer,
        Err(error) => {
            troubled(core.storage.hints().outage(), "leases could not be renewed", &error);
            return false;
        }
    };
    for (session, held) in sessions.into_iter().zip(held) {
        let id = session.execution_id();
        if answer.lost_executions.contains(&id) {
            // Lost only if the session holds the same lease as before the call. If it has suspended or was claimed anew
            // meanwhile, the answer is about a lease that it has given up itself.
            if held.is_some() && held == session.held() {
                session.close(Closed::Lost(taken(core, id).await));
            }
            continue;
        }
        session.renewed(LEASE_TTL);
        if answer.stale_executions.contains(&id) {
            session.hinted(u64::MAX);
        }
    }
    for ticket in tickets {
        if answer.cancelled_tasks.contains(&ticket.task()) {
            ticket.cancel();
        }
    }
    true
}

/// The error that says why this worker no longer holds a run.
async fn taken(core: &Core, run: ExecutionId) -> Error {
    match core.storage.execution(core.options.org, run).await {
        Ok(run) if run.status.is_terminal() => lost("the run has ended").with("status", run.status),
        _ => lost("another worker has taken the run over"),
    }
}

fn lost(why: &str) -> Error {
    Error::new(Code::LeaseLost, why)
}
