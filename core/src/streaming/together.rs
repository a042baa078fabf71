//! One answer for all who ask the same at once: a thousand readers of a run read its news once.

use super::RunKey;
use crate::id::{EntryId, OrgId};
use crate::model::{Entry, Event};
use crate::payload::ContentHash;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What the readers of runs ask for.
#[derive(Default)]
pub(crate) struct Reads {
    /// Events of a run after a number.
    pub events: Together<(RunKey, u64), Arc<[Event]>>,
    /// Entries.
    pub entries: Together<(OrgId, EntryId), Entry>,
    /// Contents that are stored apart.
    pub payloads: Together<(OrgId, ContentHash), Bytes>,
}

/// Questions that are asked now, by their keys.
pub(crate) struct Together<K, V>(Mutex<HashMap<K, Weak<Question<V>>>>);

struct Question<V> {
    /// How often it was asked.
    asked: AtomicU64,
    /// The last answer, and how often it had been asked when that was looked for.
    answer: tokio::sync::Mutex<Option<(u64, V)>>,
}

impl<K, V> Default for Together<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Together<K, V> {
    /// Answers with what `find` finds, or with what another caller's found that began after this call. An error is its own
    /// caller's alone.
    pub async fn ask<E>(&self, key: K, find: impl AsyncFnOnce() -> Result<V, E>) -> Result<V, E> {
        let seat = Seat { table: self, question: Some(self.question(&key)), key };
        let Some(question) = &seat.question else { return find().await };
        let turn = question.asked.fetch_add(1, Ordering::AcqRel);
        let mut last = question.answer.lock().await;
        if let Some((asked, answer)) = &*last
            && *asked > turn
        {
            return Ok(answer.clone());
        }
        let asked = question.asked.load(Ordering::Acquire);
        let answer = find().await?;
        *last = Some((asked, answer.clone()));
        Ok(answer)
    }

    fn question(&self, key: &K) -> Arc<Question<V>> {
        let mut table = self.0.lock();
        if let Some(question) = table.get(key).and_then(Weak::upgrade) {
            return question;
        }
        let question = Arc::new(Question { asked: AtomicU64::new(0), answer: tokio::sync::Mutex::new(None) });
        table.insert(key.clone(), Arc::downgrade(&question));
        question
    }
}

/// Who asks; the last to leave takes the question along.
struct Seat<'a, K: Hash + Eq, V> {
    table: &'a Together<K, V>,
    question: Option<Arc<Question<V>>>,
    key: K,
}

impl<K: Hash + Eq, V> Drop for Seat<'_, K, V> {
    fn drop(&mut self) {
        self.question = None;
        let mut table = self.table.0.lock();
        if table.get(&self.key).is_some_and(|question| question.strong_count() == 0) {
            table.remove(&self.key);
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
        let (together, looks, let_go) =
            (Arc::new(Together::default()), Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (together, looks, let_go) = (together.clone(), looks.clone(), let_go.clone());
            tokio::spawn(async move {
                let find = async || {
                    let look = looks.fetch_add(1, Ordering::SeqCst);
                    let_go.acquire().await.unwrap().forget();
                    Ok::<_, Infallible>(look)
                };
                together.ask("key", find).await.unwrap()
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
        assert_eq!((looks.load(Ordering::SeqCst), together.0.lock().len()), (2, 0));
    }

    #[tokio::test]
    async fn an_error_is_its_own_callers_and_one_who_goes_leaves_no_gap() {
        let together = Together::<u8, u8>::default();
        let gone = together.ask(1, async || std::future::pending::<Result<u8, &str>>().await);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), gone).await.is_err());
        let (failed, found) =
            tokio::join!(together.ask(1, async || Err("no")), together.ask(1, async || Ok::<_, &str>(7)));
        assert_eq!((failed, found), (Err("no"), Ok(7)));
        assert!(together.0.lock().is_empty());
    }
}
