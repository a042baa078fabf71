//! Claims runs and gives each a session: the parked copy if it is up to date, else a new one from the journal.

use super::{Core, LEASE_TTL};
use crate::error::{Code, Result};
use crate::id::RequestId;
use crate::model::{Batch, BatchEnd, Claim, CommitRequest, Failure};
use crate::payload::Digest;
use crate::session::{Closed, Session, SessionParts};
use crate::storage::PREFERENCE;
use crate::storage::available::troubled;
use crate::storage::stored::fetch;
use crate::streaming::Follow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often to claim without a hint, in case one was lost.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// When to claim again after a hint that brought no run. The hint may have been for a run that is reserved for a moment
/// for the worker that has it parked. If that worker does not take it, others may after this time.
const LOOK_AGAIN: Duration = PREFERENCE.saturating_add(Duration::from_millis(20));
/// How long a worker without a free place keeps the runs that it has parked reserved for itself.
const FULL: Duration = Duration::from_millis(50);

pub(super) async fn run(core: Arc<Core>) {
    let mut ready = core.storage.hints().agents();
    let mut pause = Duration::from_millis(10);
    let mut hinted = true;
    while !core.is_closing() {
        let free = core.free_agents();
        let everything = core.everything.load(Ordering::Acquire);
        if free == 0 {
            full(&core, &mut ready).await;
            hinted = true;
            continue;
        }
        match claim(&core, free).await {
            Ok(claims) => {
                pause = Duration::from_millis(10);
                let took_all = claims.len() < free;
                for claim in claims {
                    activate(&core, claim, everything);
                }
                // No more runs can be claimed now. A hint announces the next one.
                if took_all {
                    tokio::select! {
                        () = ready.changed() => hinted = true,
                        () = tokio::time::sleep(if hinted { LOOK_AGAIN } else { LOOK_EVERY }) => hinted = false,
                        () = core.closed.notified() => return,
                    }
                }
            }
            Err(error) => {
                troubled(core.storage.hints().outage(), "runs could not be claimed", &error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
        }
    }
}

/// Waits for a free place. A claim of none tells the store meanwhile that runs which are parked here need not be
/// reserved for this worker: others may take them at once.
async fn full(core: &Core, ready: &mut Follow) {
    loop {
        tokio::select! {
            () = core.freed.notified() => return,
            () = tokio::time::sleep(FULL) => {}
        }
        if core.parked.len() > 0
            && let Err(error) = claim(core, 0).await
        {
            tracing::debug!(%error, "parked runs are left to other workers a moment later");
        }
        tokio::select! {
            () = core.freed.notified() => return,
            () = ready.changed() => {}
        }
    }
}

async fn claim(core: &Core, limit: usize) -> Result<Vec<Claim>> {
    let mut kinds = core.host.agent_kinds();
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    if kinds.len() > 1 {
        // Each claim begins with another kind. Otherwise claims for one run would always take the same kind.
        let turn = core.turn.fetch_add(1, Ordering::Relaxed) % kinds.len();
        let mut turned = kinds.to_vec();
        turned.rotate_left(turn);
        kinds = turned.into();
    }
    core.storage.claim_agents(core.claim_of(kinds, limit)).await
}

/// Gives a claimed run to its parked copy, or to a new one. `everything` is the count of [`Core::everything`] before
/// the claim.
fn activate(core: &Arc<Core>, claim: Claim, everything: u64) {
    let id = claim.execution.new.id;
    // The parked copy may still be in `active`, on its way to the parked cache. It moves between the two under the lock
    // of `active`, so here it is found in one of them, and a hint always finds it too.
    let mut active = core.active.lock();
    let parked = core.parked.take(id).or_else(|| active.remove(&id));
    match parked {
        Some(parked) if parked.take_claim(&claim, LEASE_TTL) => {
            active.insert(id, parked.clone());
            drop(active);
            core.runtime.spawn(resume(core.clone(), parked, claim, everything));
        }
        parked => {
            drop(active);
            if let Some(parked) = parked {
                parked.close(Closed::Evicted);
            }
            core.runtime.spawn(start(core.clone(), claim));
        }
    }
}

async fn resume(core: Arc<Core>, session: Arc<Session>, mut claim: Claim, everything: u64) {
    let known = session.known();
    let news = match claim.news.take() {
        Some(mut facts) => {
            facts.retain(|fact| fact.number > known);
            Ok((facts, claim.high, None))
        }
        None => core.storage.facts_after(claim.execution.new.org, claim.execution.new.id, known).await,
    };
    match news {
        Ok((facts, high, purse)) => {
            session.resume(facts, high, purse);
            if core.everything.load(Ordering::Acquire) != everything {
                session.hinted(u64::MAX);
            }
        }
        Err(error) => give_back(&core, &claim, Some(&session), &error).await,
    }
}

/// Ends a run whose values are nowhere any more.
async fn fail_lost(core: &Core, claim: &Claim, error: &crate::Error) -> Result<()> {
    let execution = &claim.execution;
    let failure = Failure::new(error.code(), "WorkerLost", error.message());
    let batch = Batch::new(execution.segment, Vec::new(), BatchEnd::Fail(failure));
    let request = CommitRequest {
        org: execution.new.org,
        execution: execution.new.id,
        lease: claim.lease,
        request_id: RequestId::fresh(),
        digest: Digest::of_parts(&[b"lost"]),
        base: execution.base,
        known: claim.high,
        batch,
        refused: Vec::new(),
        local: None,
    };
    core.storage.commit(request).await.map(drop)
}

async fn start(core: Arc<Core>, mut claim: Claim) {
    let execution = &claim.execution;
    let Some(config) = core.host.agent_config(&execution.new.kind) else { return };
    let segment = core.storage.load_segment(execution.new.org, execution.new.id, claim.lease).await;
    let mut segment = match segment {
        Ok(segment) => segment,
        Err(error) => return give_back(&core, &claim, None, &error).await,
    };
    if let Err(error) = fetch_recorded(&core, &mut segment).await {
        return give_back(&core, &claim, None, &error).await;
    }
    let id = execution.new.id;
    claim.execution.new.input = segment.execution.new.input.clone();
    let session = Session::new(SessionParts {
        storage: core.storage.clone(),
        conversations: core.conversations.clone(),
        chunks: core.chunks.clone(),
        runtime: core.runtime.clone(),
        claim,
        segment,
        config,
        max_payload: core.options.max_payload.min(core.storage.max_payload()),
        ttl: LEASE_TTL,
        tracer: core.options.tracer.clone(),
    });
    if let Some(keeper) = core.me.upgrade() {
        session.keep(keeper);
    }
    if core.is_closing() {
        return;
    }
    core.active.lock().insert(id, session.clone());
    core.host.start_agent(session);
}

/// Loads the values that the agent's start reads synchronously: the state, the input, and the results of `once`.
async fn fetch_recorded(core: &Core, segment: &mut crate::model::Segment) -> Result<()> {
    let org = segment.execution.new.org;
    let fetch = async |payload: &mut crate::payload::Payload| -> Result<()> {
        *payload = fetch(&core.storage, org, payload).await?;
        Ok(())
    };
    if let Some(checkpoint) = &mut segment.checkpoint {
        fetch(&mut checkpoint.saved.state).await?;
    }
    fetch(&mut segment.execution.new.input).await?;
    for once in &mut segment.once {
        fetch(&mut once.value).await?;
    }
    Ok(())
}

async fn give_back(core: &Core, claim: &Claim, session: Option<&Arc<Session>>, error: &crate::Error) {
    if let Some(session) = session {
        session.close(Closed::Evicted);
    }
    if error.code() == Code::NotPersisted {
        tracing::error!(execution = %claim.execution.new.id, %error, "a local run cannot go on, and fails");
        if fail_lost(core, claim, error).await.is_ok() {
            return core.freed.notify_one();
        }
    }
    if error.code() != Code::LeaseLost {
        tracing::warn!(execution = %claim.execution.new.id, %error, "a claimed run could not be started and is given back");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _ = core.storage.release(claim.execution.new.org, claim.execution.new.id, claim.lease).await;
    }
    core.freed.notify_one();
}
