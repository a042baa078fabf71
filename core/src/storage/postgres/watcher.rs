//! Notices what other processes write: a cheap look at the database's transaction counter, more often while things happen.
//!
//! No LISTEN and NOTIFY: their global lock does not scale. A look costs one round trip and touches no table. A transaction of
//! this process can have ended before it is counted here, and hide one of another: every change rings at the look after it too.

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

/// How many transactions of the database server have ended, counted from one that is the same at every look: those below
/// the newest one that did, without those among them that still run.
const ENDED: &str = "SELECT pg_snapshot_xmax(s)::text::bigint - (SELECT count(*) FROM pg_snapshot_xip(s)) \
    FROM pg_current_snapshot() s";

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
    let (mut known, mut rang): (Option<i64>, bool) = (None, false);
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
        let own = desk.written.load(Ordering::Relaxed) as i64;
        let Some(ended) = look(&mut link) else {
            (known, pause) = (None, GONE);
            continue;
        };
        let others = ended.saturating_sub(own);
        // Before the first look, and while the database did not answer, anything may have happened.
        let changed = known != Some(others);
        if changed || rang {
            desk.hints.everything_changed();
            calm = 0;
        }
        (known, rang) = (Some(others), changed);
        calm = u32::min(calm + 1, CALM);
        pause = if calm < CALM { BUSY } else { QUIET };
    }
}

fn look(link: &mut Link) -> Option<i64> {
    link.connect().ok()?;
    link.exchange(&[Ask::plain(ENDED)]).ok()?.first()?.first()?.try_get(0).ok()
}
