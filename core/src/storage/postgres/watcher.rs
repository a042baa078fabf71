//! Notices that other processes have written, by a cheap look at the database's transactions every few milliseconds.
//!
//! LISTEN and NOTIFY are not used, since their global lock does not scale. A look costs one round trip and touches no
//! table. It tells which transactions have ended since the look before. Those of this process are known by their
//! numbers; any other one means that somebody else may have written, and a hint is given.

use super::committer::WriteContext;
use super::config::Reach;
use super::link::{Ask, Link};
use super::pool::spawn;
use crate::error::Result;
use crate::sync::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// The pause between looks while others write.
const BUSY: Duration = Duration::from_millis(20);
/// The pause while nobody else writes.
const QUIET: Duration = Duration::from_millis(100);
/// The pause while the database does not answer.
const GONE: Duration = Duration::from_secs(1);
/// After so many looks without news, nobody else is taken to write.
const CALM: u32 = 100;

/// The number that the next transaction will get, and the numbers of transactions that still run.
const SEEN: &str = "SELECT pg_snapshot_xmax(s)::text::bigint, ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(s) AS x) \
    FROM pg_current_snapshot() s";

/// The transactions of this process.
#[derive(Default)]
pub(super) struct Own {
    /// Those that have reported their end here, and that no look has seen ended yet.
    ended: Mutex<HashSet<i64>>,
    /// How many are being committed. A look may see such a transaction ended before it has reported that here.
    committing: AtomicUsize,
}

impl Own {
    /// A transaction that has written is about to be committed.
    pub(super) fn commit(&self) -> Committing<'_> {
        self.committing.fetch_add(1, Ordering::AcqRel);
        Committing(self)
    }
}

/// A transaction that is being committed, until this is dropped.
pub(super) struct Committing<'a>(&'a Own);

impl Committing<'_> {
    /// Reports that it has ended, with its number if it had one.
    pub(super) fn ended(self, transaction: Option<i64>) {
        self.0.ended.lock().extend(transaction);
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.committing.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a look has seen.
#[derive(Clone)]
struct Look {
    /// The number of the next transaction.
    next: i64,
    running: HashSet<i64>,
}

/// Tells the transactions of others from those of this process, from look to look.
#[derive(Default)]
struct Sight {
    last: Option<Look>,
    /// Unknown transactions that had ended at the last look while one of ours was being committed. The next look tells
    /// whether they were ours.
    doubt: Vec<i64>,
}

impl Sight {
    /// If there were more transactions than this between two looks, they are not told apart: others have written.
    const MANY: i64 = 100_000;

    /// Whether somebody else has written, by a look that has just been made.
    fn news(&mut self, look: Look, own: &Own) -> bool {
        // The count is read before the reported numbers. If it is 0, all of ours that the look has seen ended have
        // reported that. In the other order one could report between the two reads and be taken for another's.
        let sure = own.committing.load(Ordering::Acquire) == 0;
        let mut ours = own.ended.lock();
        let Some(before) = self.last.replace(look.clone()) else { return true };
        if look.next < before.next || look.next - before.next > Self::MANY {
            ours.clear();
            self.doubt.clear();
            return true;
        }
        let late = std::mem::take(&mut self.doubt);
        let others = late.into_iter().any(|one| !ours.remove(&one));
        let ended = before.running.iter().copied().chain(before.next..look.next);
        let ended: Vec<_> = ended.filter(|one| !look.running.contains(one) && !ours.remove(one)).collect();
        ours.retain(|one| *one >= look.next || look.running.contains(one));
        if sure {
            return others || !ended.is_empty();
        }
        self.doubt = ended;
        others
    }
}

/// The thread that looks. It ends when this is closed or dropped.
pub(super) struct Watcher {
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Watcher {
    /// Starts to look.
    pub(super) fn start(reach: &Arc<Reach>, context: &WriteContext) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (link, context) = (Link::new(reach.clone())?, context.clone());
        let thread = spawn("flovyn-postgres-look", move || live(link, &context, stopped))?;
        Ok(Self { stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) })
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        drop(self.stop.lock().take());
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.close();
    }
}

fn live(mut link: Link, context: &WriteContext, mut stop: oneshot::Receiver<()>) {
    let (mut pause, mut calm) = (BUSY, 0);
    let mut sight = Sight::default();
    loop {
        let stopped = link.wait(async {
            tokio::select! {
                _ = &mut stop => true,
                () = tokio::time::sleep(pause) => false,
            }
        });
        if stopped {
            return;
        }
        let Some(seen) = look(&mut link) else {
            // While the database does not answer, anything may happen. The first look after that counts as news.
            (sight, pause) = (Sight::default(), GONE);
            continue;
        };
        if sight.news(seen, &context.own) {
            context.hints.everything_changed();
            calm = 0;
        }
        calm = u32::min(calm + 1, CALM);
        pause = if calm < CALM { BUSY } else { QUIET };
    }
}

fn look(link: &mut Link) -> Option<Look> {
    link.connect().ok()?;
    let answers = link.exchange(&[Ask::plain(SEEN)]).ok()?;
    let row = answers.first()?.first()?;
    let running: Vec<i64> = row.try_get(1).ok()?;
    Some(Look { next: row.try_get(0).ok()?, running: running.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::{Look, Own, Sight};

    fn look(next: i64, running: &[i64]) -> Look {
        Look { next, running: running.iter().copied().collect() }
    }

    #[test]
    fn only_transactions_of_others_are_news() {
        let (mut sight, own) = (Sight::default(), Own::default());
        assert!(sight.news(look(10, &[]), &own), "before the first look anything may have happened");
        assert!(!sight.news(look(10, &[]), &own));
        assert!(sight.news(look(11, &[]), &own), "10 is another's");
        own.commit().ended(Some(11));
        assert!(!sight.news(look(12, &[]), &own), "11 is ours");
        assert!(!sight.news(look(13, &[12]), &own), "12 still runs");
        own.commit().ended(Some(13));
        assert!(!sight.news(look(14, &[12]), &own), "13 is ours, 12 still runs");
        assert!(sight.news(look(14, &[]), &own), "12 has ended behind a newer one of ours");
        assert!(own.ended.lock().is_empty());
    }

    #[test]
    fn what_may_be_ours_is_told_one_look_later() {
        let (mut sight, own) = (Sight::default(), Own::default());
        sight.news(look(10, &[]), &own);
        let committing = own.commit();
        assert!(!sight.news(look(12, &[]), &own), "one of the two is ours");
        committing.ended(Some(10));
        assert!(sight.news(look(12, &[]), &own), "the other one is not");
        let committing = own.commit();
        assert!(!sight.news(look(13, &[]), &own));
        committing.ended(Some(12));
        assert!(!sight.news(look(13, &[]), &own), "it was ours");
        // One that was never told: its connection broke.
        let committing = own.commit();
        assert!(!sight.news(look(14, &[]), &own));
        drop(committing);
        assert!(sight.news(look(14, &[]), &own));
        assert!(!sight.news(look(14, &[]), &own));
    }
}
