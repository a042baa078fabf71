//! The cache of waiting runs. The one that was parked first is evicted first, and none stays beyond an age (rule 19).
//!
//! Two kinds are exceptions. A run that a timer of its host may wake is never evicted, since the timer exists only here
//! (rule 13). A run that has only replayed its tail since it was entered is not evicted for its age, and for room only
//! after the others.

use crate::id::ExecutionId;
use crate::session::Session;
use crate::sync::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(super) struct Parked {
    max: usize,
    age: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    by_id: HashMap<ExecutionId, (u64, Instant, Arc<Session>)>,
    by_age: BTreeMap<u64, ExecutionId>,
}

impl Parked {
    pub(super) fn new(max: usize, age: Duration) -> Self {
        Self { max, age, inner: Mutex::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.inner.lock().by_id.len()
    }

    /// Keeps a waiting run, and returns the runs that have to be evicted for it. Each is chosen among the eight oldest
    /// that may go: runs that have only replayed come last, then the one with the shortest tail goes first, since it is
    /// cheapest to enter again.
    pub(super) fn put(&self, session: Arc<Session>) -> Vec<Arc<Session>> {
        session.shrink();
        let mut inner = self.inner.lock();
        let place = inner.next;
        inner.next += 1;
        if let Some((old, ..)) = inner.by_id.get(&session.execution_id()) {
            let old = *old;
            inner.by_age.remove(&old);
        }
        inner.by_age.insert(place, session.execution_id());
        inner.by_id.insert(session.execution_id(), (place, Instant::now(), session));
        let mut evicted = Vec::new();
        while inner.by_id.len() > self.max {
            let oldest = inner.by_age.iter().filter_map(|(place, id)| {
                let (_, _, session) = inner.by_id.get(id)?;
                let key = || (session.only_replayed(), session.tail_length(), *place, *id);
                (!session.has_host_timer() && session.is_idle()).then(key)
            });
            let Some((.., place, id)) = oldest.take(8).min() else { break };
            inner.by_age.remove(&place);
            evicted.extend(inner.by_id.remove(&id).map(|(_, _, session)| session));
        }
        evicted
    }

    /// A kept run.
    pub(super) fn get(&self, id: ExecutionId) -> Option<Arc<Session>> {
        self.inner.lock().by_id.get(&id).map(|(_, _, session)| session.clone())
    }

    /// Takes a run out.
    pub(super) fn take(&self, id: ExecutionId) -> Option<Arc<Session>> {
        let mut inner = self.inner.lock();
        let (place, _, session) = inner.by_id.remove(&id)?;
        inner.by_age.remove(&place);
        Some(session)
    }

    /// Forgets a session that is over.
    pub(super) fn remove(&self, session: &Arc<Session>) {
        let mut inner = self.inner.lock();
        let id = session.execution_id();
        if inner.by_id.get(&id).is_some_and(|(_, _, kept)| Arc::ptr_eq(kept, session))
            && let Some((place, _, _)) = inner.by_id.remove(&id)
        {
            inner.by_age.remove(&place);
        }
    }

    /// Takes out the runs that have been kept for too long.
    pub(super) fn take_aged(&self) -> Vec<Arc<Session>> {
        let mut inner = self.inner.lock();
        let aged: Vec<_> = inner
            .by_id
            .iter()
            .filter(|(_, (_, since, session))| {
                since.elapsed() > self.age
                    && session.is_idle()
                    && !session.is_held_by_host()
                    && !session.only_replayed()
            })
            .map(|(id, (place, ..))| (*place, *id))
            .collect();
        aged.into_iter()
            .filter_map(|(place, id)| {
                inner.by_age.remove(&place);
                inner.by_id.remove(&id).map(|(_, _, session)| session)
            })
            .collect()
    }

    pub(super) fn take_all(&self) -> Vec<Arc<Session>> {
        let mut inner = self.inner.lock();
        inner.by_age.clear();
        std::mem::take(&mut inner.by_id).into_values().map(|(_, _, session)| session).collect()
    }
}
