//! Notices what other processes write: a cheap look at the database's transaction counter, more often while things happen.
//!
//! No LISTEN and NOTIFY: their global lock does not scale. A look costs one round trip and touches no table. Hints only save
//! time, so a look that counts wrongly is made good by the next.

use super::committer::Desk;
use super::config::Reach;
use super::link::{Ask, Link};
use super::pool::spawn;
use crate::error::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often it looks while others write, while nobody does, and while the database does not answer.
const BUSY: Duration = Duration::from_millis(20);
const QUIET: Duration = Duration::from_millis(100);
const GONE: Duration = Duration::from_secs(1);
/// So many looks without news make it quiet.
const CALM: u32 = 100;

/// The number that the next transaction of the database server will get.
const NEXT: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";

/// The thread that looks, until it is closed or dropped.
pub(super) struct Watcher {
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Watcher {
    /// Starts to look.
    pub(super) fn start(reach: &Arc<Reach>, desk: &Desk) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (link, desk) = (Link::new(reach.clone())?, desk.clone());
        let thread = spawn("flovyn-postgres-look", move || live(link, &desk, stopped))?;
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

fn live(mut link: Link, desk: &Desk, mut stop: oneshot::Receiver<()>) {
    let (mut pause, mut calm) = (BUSY, 0);
    // Transactions of others, as far as ours explain the counter.
    let mut known: Option<i64> = None;
    loop {
        let ended = link.wait(async {
            tokio::select! {
                _ = &mut stop => true,
                () = tokio::time::sleep(pause) => false,
            }
        });
        if ended {
            return;
        }
        let own = desk.written.load(Ordering::Relaxed) as i64;
        let Some(next) = look(&mut link) else {
            pause = GONE;
            continue;
        };
        let others = next.saturating_sub(own);
        if known.is_some_and(|known| known != others) {
            desk.hints.everything_changed();
            calm = 0;
        }
        known = Some(others);
        calm = u32::min(calm + 1, CALM);
        pause = if calm < CALM { BUSY } else { QUIET };
    }
}

fn look(link: &mut Link) -> Option<i64> {
    link.connect().ok()?;
    link.exchange(&[Ask::plain(NEXT)]).ok()?.first()?.first()?.try_get(0).ok()
}
