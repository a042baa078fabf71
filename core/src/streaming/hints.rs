//! In-process hints: "this run has news", "this queue has work". Woken parties look at the store themselves.

use crate::id::{ExecutionId, OrgId};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How often who waits for the end of a run looks, at most, while nobody says whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it trusts that it would have been told.
const TRUST: Duration = Duration::from_secs(30);

/// Where a backend announces changes and where loops and handles wait for them. Clones share one board.
#[derive(Clone, Default)]
pub struct Hints(Arc<Board>);

struct Board {
    agents: Bell,
    tasks: Bell,
    timers: Bell,
    leases: Bell,
    elsewhere: Bell,
    ever_at_risk: AtomicBool,
    watched: Mutex<HashMap<ExecutionId, watch::Sender<Heard>>>,
    listeners: RwLock<Arc<[Arc<Listener>]>>,
    herald: RwLock<Option<Arc<Herald>>>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            agents: Bell::default(),
            tasks: Bell::default(),
            timers: Bell::default(),
            leases: Bell::default(),
            elsewhere: Bell::default(),
            ever_at_risk: AtomicBool::default(),
            watched: Mutex::default(),
            listeners: RwLock::new(Arc::new([])),
            herald: RwLock::default(),
        }
    }
}

struct Bell(watch::Sender<()>);

impl Default for Bell {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl Bell {
    fn ring(&self) {
        self.0.send_replace(());
    }
}

/// News of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The org whose run it is.
    pub org: OrgId,
    /// The run.
    pub execution: ExecutionId,
    /// It has facts or events up to this number.
    pub high: u64,
    /// `Some(true)` where it is known to have ended, `Some(false)` where these did not end it; `None` where that is not told.
    pub ended: Option<bool>,
    /// This process wrote them, or the server that it is connected to; else another one told of them.
    pub here: bool,
}

impl Change {
    /// Whether both are of one run.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn is_of(&self, other: &Change) -> bool {
        (self.org, self.execution) == (other.org, other.execution)
    }

    /// Takes in a later one of the same run.
    pub(crate) fn join(&mut self, later: Change) {
        self.ended = match (self.ended, later.ended) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        self.high = later.high;
    }
}

/// What a process did that others may want to know at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Some run became runnable.
    Agents,
    /// Some task became visible.
    Tasks,
    /// Time may bring work earlier than was expected.
    Timers,
    /// A run has new facts or events.
    Run(Change),
}

type Herald = dyn Fn(News) + Send + Sync;
type Listener = dyn Fn(Option<Change>) + Send + Sync;

impl Hints {
    /// Some run became runnable.
    pub fn agents_ready(&self) {
        self.0.announce(News::Agents);
    }

    /// Some task became visible.
    pub fn tasks_ready(&self) {
        self.0.announce(News::Tasks);
    }

    /// Time may bring work earlier than housekeeping expected.
    pub fn timers_changed(&self) {
        self.0.announce(News::Timers);
    }

    /// Leases may have been cut: whoever holds some shall renew them now.
    pub fn leases_at_risk(&self) {
        self.0.ever_at_risk.store(true, Ordering::Release);
        self.0.leases.ring();
    }

    /// A run has new facts or events.
    pub fn changed(&self, change: Change) {
        self.0.announce(News::Run(change));
    }

    /// Takes what another process announced.
    pub fn receive(&self, news: News) {
        self.0.take(news);
    }

    /// Has what this process announces carried to others; nothing any more without a herald. It must be quick and must not
    /// block.
    pub fn set_herald(&self, herald: Option<Arc<dyn Fn(News) + Send + Sync>>) {
        *self.0.herald.write() = herald;
    }

    /// Anything may have changed: another process wrote.
    pub fn everything_changed(&self) {
        for bell in [&self.0.agents, &self.0.tasks, &self.0.timers, &self.0.elsewhere] {
            bell.ring();
        }
        for watched in self.0.watched.lock().values() {
            watched.send_modify(Heard::of_everything);
        }
        self.0.tell(None);
    }

    /// Follows runs that become runnable.
    pub fn agents(&self) -> Follow {
        Follow(self.0.agents.0.subscribe())
    }

    /// Follows tasks that become visible.
    pub fn tasks(&self) -> Follow {
        Follow(self.0.tasks.0.subscribe())
    }

    /// Follows changes of what time will bring.
    pub fn timers(&self) -> Follow {
        Follow(self.0.timers.0.subscribe())
    }

    /// Follows what other processes write.
    pub fn elsewhere(&self) -> Follow {
        Follow(self.0.elsewhere.0.subscribe())
    }

    /// Follows what puts leases at risk; what did before counts too.
    pub fn leases(&self) -> Follow {
        let mut follow = self.0.leases.0.subscribe();
        if self.0.ever_at_risk.load(Ordering::Acquire) {
            follow.mark_changed();
        }
        Follow(follow)
    }

    /// Calls back on every change of a run until the guard is dropped; `None` stands for any run of any org. The callback
    /// must be quick and must not block.
    #[must_use = "nothing is heard any more once it is dropped"]
    pub fn listen(&self, listener: impl Fn(Option<Change>) + Send + Sync + 'static) -> Listening {
        let listener: Arc<Listener> = Arc::new(listener);
        self.0.listen(|heard| heard.push(listener.clone()));
        Listening { board: Arc::downgrade(&self.0), listener }
    }

    /// How many listen now.
    pub fn listeners(&self) -> usize {
        self.0.listeners.read().len()
    }

    /// Watches one run until dropped.
    pub fn watch(&self, execution: ExecutionId) -> Watch {
        let heard = self.0.watched.lock().entry(execution).or_default().subscribe();
        let known = *heard.borrow();
        Watch { board: self.0.clone(), execution, heard: Some(heard), known }
    }
}

impl Board {
    fn announce(&self, news: News) {
        self.take(news);
        let herald = self.herald.read().clone();
        if let Some(herald) = herald {
            herald(news);
        }
    }

    fn take(&self, news: News) {
        match news {
            News::Agents => self.agents.ring(),
            News::Tasks => self.tasks.ring(),
            News::Timers => self.timers.ring(),
            News::Run(change) => {
                if let Some(watched) = self.watched.lock().get(&change.execution) {
                    watched.send_modify(|heard| heard.of(change));
                }
                self.tell(Some(change));
            }
        }
    }

    fn tell(&self, news: Option<Change>) {
        // Called without the lock: a callback may end a listener.
        let listeners = self.listeners.read().clone();
        for listener in &*listeners {
            listener(news);
        }
    }

    fn listen(&self, change: impl FnOnce(&mut Vec<Arc<Listener>>)) {
        let mut listeners = self.listeners.write();
        let mut changed = listeners.to_vec();
        change(&mut changed);
        *listeners = changed.into();
    }
}

/// A listener that is called back as long as this lives.
pub struct Listening {
    board: Weak<Board>,
    listener: Arc<Listener>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(board) = self.board.upgrade() {
            board.listen(|heard| heard.retain(|one| !Arc::ptr_eq(one, &self.listener)));
        }
    }
}

/// Waits for rings of one bell. A ring between two waits is not missed.
pub struct Follow(watch::Receiver<()>);

impl Follow {
    /// Ends at the next ring since the last wait.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The board is gone: nothing will ever ring again.
            std::future::pending::<()>().await;
        }
    }
}

/// What was heard of a run: how often that it ended, and how often something that does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Heard {
    ends: u64,
    unsure: u64,
}

impl Heard {
    fn of(&mut self, change: Change) {
        match change.ended {
            Some(ended) => self.ends += u64::from(ended),
            None => self.unsure += 1,
        }
    }

    fn of_everything(&mut self) {
        self.unsure += 1;
    }
}

/// News of one run. Create it before looking at the store, so that no change is missed.
pub struct Watch {
    board: Arc<Board>,
    execution: ExecutionId,
    heard: Option<watch::Receiver<Heard>>,
    known: Heard,
}

impl Watch {
    /// Ends at the next change since the last wait.
    pub async fn changed(&mut self) {
        if let Some(heard) = &mut self.heard
            && heard.changed().await.is_err()
        {
            // The board is gone: nothing will ever ring again.
            std::future::pending::<()>().await;
        }
    }

    /// Ends when it is time to look whether the run has ended: at once where it is said to have, and from time to time where
    /// anything may have happened, or nothing is heard. For a caller that has just looked.
    pub async fn ended(&mut self) {
        let Some(heard) = &mut self.heard else { return };
        let looked = Instant::now();
        let mut due = looked + TRUST;
        loop {
            let now = *heard.borrow_and_update();
            let known = std::mem::replace(&mut self.known, now);
            if now.ends != known.ends {
                return;
            }
            if now.unsure != known.unsure {
                due = looked + LOOK_EVERY;
            }
            match timeout_at(due, heard.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tokio::time::sleep_until(due).await,
                Err(_) => return,
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.heard = None;
        let mut watched = self.board.watched.lock();
        if watched.get(&self.execution).is_some_and(|sender| sender.receiver_count() == 0) {
            watched.remove(&self.execution);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(execution: ExecutionId, ended: Option<bool>) -> Change {
        Change { org: OrgId::DEFAULT, execution, high: 1, ended, here: true }
    }

    /// How often a waiter looks within 10 seconds in which this comes every 10 ms.
    async fn looks(say: impl Fn(&Hints, ExecutionId)) -> u32 {
        let (hints, run) = (Hints::default(), ExecutionId::fresh());
        let mut watch = hints.watch(run);
        let (end, mut looks) = (Instant::now() + Duration::from_secs(10), 0);
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while Instant::now() < end {
            let looked = async {
                loop {
                    tick.tick().await;
                    say(&hints, run);
                }
            };
            tokio::select! {
                () = watch.ended() => looks += 1,
                () = tokio::time::sleep_until(end) => {}
                () = looked => {}
            }
        }
        looks
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_end_looks_no_oftener_than_needed() {
        assert_eq!(looks(|hints, run| hints.changed(change(run, Some(false)))).await, 0);
        let unsure = looks(|hints, run| hints.changed(change(run, None))).await;
        assert!((90..=100).contains(&unsure), "{unsure}");
        let everything = looks(|hints, _| hints.everything_changed()).await;
        assert!((90..=100).contains(&everything), "{everything}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_is_told_is_looked_at_at_once_and_silence_now_and_then() {
        let (hints, run) = (Hints::default(), ExecutionId::fresh());
        let mut watch = hints.watch(run);
        hints.changed(change(run, Some(true)));
        let begun = Instant::now();
        watch.ended().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        watch.ended().await;
        assert!(begun.elapsed() >= TRUST);
        hints.everything_changed();
        hints.changed(change(run, Some(true)));
        let begun = Instant::now();
        watch.ended().await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "not held back by what else is heard");
    }
}
