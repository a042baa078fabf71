//! One read of the store for all who want the same at once: a thousand readers of a run read its news once.

use super::RunKey;
use crate::id::{EntryId, OrgId};
use crate::model::{Entry, Event};
use crate::payload::ContentHash;
use crate::sync::Mutex;
use bytes::Bytes;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The reads that readers of runs share.
#[derive(Default)]
pub(crate) struct SharedReads {
    /// Events of a run after a number.
    pub events: SingleFlight<(RunKey, u64), Arc<[Event]>>,
    /// Entries.
    pub entries: SingleFlight<(OrgId, EntryId), Entry>,
    /// Contents that are stored apart.
    pub payloads: SingleFlight<(OrgId, ContentHash), Bytes>,
}

/// The calls that are made now, by their keys.
pub(crate) struct SingleFlight<K, V>(Mutex<HashMap<K, Weak<Flight<V>>>>);

struct Flight<V> {
    /// How many callers have come.
    callers: AtomicU64,
    /// The last result, and how many callers had come when its call began.
    last: tokio::sync::Mutex<Option<(u64, V)>>,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq + Clone, V: Clone> SingleFlight<K, V> {
    /// Gives the result of `call`, or of another caller's that began after this caller came: one that began earlier may have
    /// missed what this caller was woken for. An error goes to the caller alone whose call failed.
    pub(crate) async fn run<E>(&self, key: K, call: impl AsyncFnOnce() -> Result<V, E>) -> Result<V, E> {
        let caller = Caller { calls: self, flight: Some(self.flight(&key)), key };
        let Some(flight) = &caller.flight else { return call().await };
        let number = flight.callers.fetch_add(1, Ordering::AcqRel);
        let mut last = flight.last.lock().await;
        if let Some((callers, result)) = &*last
            && *callers > number
        {
            return Ok(result.clone());
        }
        let callers = flight.callers.load(Ordering::Acquire);
        let result = call().await?;
        *last = Some((callers, result.clone()));
        Ok(result)
    }

    fn flight(&self, key: &K) -> Arc<Flight<V>> {
        let mut calls = self.0.lock();
        if let Some(flight) = calls.get(key).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Arc::new(Flight { callers: AtomicU64::new(0), last: tokio::sync::Mutex::new(None) });
        calls.insert(key.clone(), Arc::downgrade(&flight));
        flight
    }
}

/// A caller of one key; the last one to leave removes the key.
struct Caller<'a, K: Hash + Eq, V> {
    calls: &'a SingleFlight<K, V>,
    flight: Option<Arc<Flight<V>>>,
    key: K,
}

impl<K: Hash + Eq, V> Drop for Caller<'_, K, V> {
    fn drop(&mut self) {
        // First, so that the last caller counts no reference.
        self.flight = None;
        let mut calls = self.calls.0.lock();
        if calls.get(&self.key).is_some_and(|flight| flight.strong_count() == 0) {
            calls.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn who_asks_meanwhile_shares_the_next_answer() {
        let (calls, looks, let_go) =
            (Arc::new(SingleFlight::default()), Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (calls, looks, let_go) = (calls.clone(), looks.clone(), let_go.clone());
            tokio::spawn(async move {
                let find = async || {
                    let look = looks.fetch_add(1, Ordering::SeqCst);
                    let_go.acquire().await.unwrap().forget();
                    Ok::<_, Infallible>(look)
                };
                calls.run("key", find).await.unwrap()
            })
        };
        let first = ask();
        while looks.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let late: Vec<_> = (0..100).map(|_| ask()).collect();
        tokio::task::yield_now().await;
        let_go.add_permits(2);
        assert_eq!(first.await.unwrap(), 0);
        for answer in late {
            assert_eq!(answer.await.unwrap(), 1, "what began before the question is no answer to it");
        }
        assert_eq!((looks.load(Ordering::SeqCst), calls.0.lock().len()), (2, 0));
    }

    #[tokio::test]
    async fn an_error_is_its_own_callers_and_one_who_goes_leaves_no_gap() {
        let calls = SingleFlight::<u8, u8>::default();
        let gone = calls.run(1, async || std::future::pending::<Result<u8, &str>>().await);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), gone).await.is_err());
        let (failed, found) = tokio::join!(calls.run(1, async || Err("no")), calls.run(1, async || Ok::<_, &str>(7)));
        assert_eq!((failed, found), (Err("no"), Ok(7)));
        assert!(calls.0.lock().is_empty());
    }
}
