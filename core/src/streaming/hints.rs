//! In-process hints: "this run has news", "this queue has work". Woken parties look at the store themselves.

use super::outage::Outage;
use crate::id::{ExecutionId, OrgId};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
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
    watched: Mutex<HashMap<(OrgId, ExecutionId), watch::Sender<Heard>>>,
    listeners: RwLock<Arc<[Arc<Listener>]>>,
    /// Who looks where anything may have changed.
    lookout: RwLock<Option<Arc<Notify>>>,
    herald: RwLock<Option<Arc<Herald>>>,
    outage: Outage,
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
            lookout: RwLock::default(),
            herald: RwLock::default(),
            outage: Outage::default(),
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
type Runs = Vec<(OrgId, ExecutionId)>;

struct Listener {
    hear: Box<dyn Fn(Option<Change>) + Send + Sync>,
    /// The only runs it cares for.
    follows: Option<Box<dyn Fn() -> Runs + Send + Sync>>,
}

impl Hints {
    /// Whether the backend takes what is written.
    pub fn outage(&self) -> &Outage {
        &self.0.outage
    }

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

    /// Anything may have changed: another process wrote. Who follows some runs hears of those that a [`Lookout`] finds changed;
    /// without one, that any of them may have.
    pub fn everything_changed(&self) {
        for bell in [&self.0.agents, &self.0.tasks, &self.0.timers, &self.0.elsewhere] {
            bell.ring();
        }
        let lookout = self.0.lookout.read().clone();
        match &lookout {
            Some(lookout) => lookout.notify_one(),
            None => self.0.doubt(),
        }
        self.0.tell(None, |listener| listener.follows.is_none());
    }

    /// Takes over looking where anything may have changed, for as long as it is kept.
    pub fn lookout(&self) -> Lookout {
        let rung = Arc::new(Notify::new());
        *self.0.lookout.write() = Some(rung.clone());
        Lookout { board: self.0.clone(), rung }
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
    pub fn listen(&self, hear: impl Fn(Option<Change>) + Send + Sync + 'static) -> Listening {
        self.0.clone().keep(Listener { hear: Box::new(hear), follows: None })
    }

    /// As [`listen`](Self::listen), for a caller whom only some runs concern: those it follows when it is asked. `None` stands for
    /// any of them.
    #[must_use = "nothing is heard any more once it is dropped"]
    pub fn follow(
        &self,
        follows: impl Fn() -> Vec<(OrgId, ExecutionId)> + Send + Sync + 'static,
        hear: impl Fn(Option<Change>) + Send + Sync + 'static,
    ) -> Listening {
        self.0.clone().keep(Listener { hear: Box::new(hear), follows: Some(Box::new(follows)) })
    }

    /// How many listen now.
    pub fn listeners(&self) -> usize {
        self.0.listeners.read().len()
    }

    /// Watches one run until dropped.
    pub fn watch(&self, org: OrgId, execution: ExecutionId) -> Watch {
        let run = (org, execution);
        let heard = self.0.watched.lock().entry(run).or_default().subscribe();
        let known = *heard.borrow();
        Watch { board: self.0.clone(), run, heard: Some(heard), known }
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
                if let Some(watched) = self.watched.lock().get(&(change.org, change.execution)) {
                    watched.send_modify(|heard| heard.of(change));
                }
                self.tell(Some(change), |_| true);
            }
        }
    }

    /// Any run may have changed, and nobody looks which.
    fn doubt(&self) {
        for watched in self.watched.lock().values() {
            watched.send_modify(Heard::of_everything);
        }
        self.tell(None, |listener| listener.follows.is_some());
    }

    fn tell(&self, news: Option<Change>, whom: impl Fn(&Listener) -> bool) {
        // Called without the lock: a callback may end a listener.
        let listeners = self.listeners.read().clone();
        listeners.iter().filter(|listener| whom(listener)).for_each(|listener| (listener.hear)(news));
    }

    fn keep(self: Arc<Self>, listener: Listener) -> Listening {
        let listener = Arc::new(listener);
        self.listen(|heard| heard.push(listener.clone()));
        Listening { board: Arc::downgrade(&self), listener }
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

/// Looks for all who follow runs here, where anything may have changed: one question instead of one each.
pub struct Lookout {
    board: Arc<Board>,
    rung: Arc<Notify>,
}

impl Lookout {
    /// Ends when anything may have changed since the last time.
    pub async fn rung(&self) {
        self.rung.notified().await;
    }

    /// The runs that somebody follows now.
    pub fn followed(&self) -> BTreeMap<OrgId, BTreeSet<ExecutionId>> {
        let mut all: BTreeMap<OrgId, BTreeSet<ExecutionId>> = BTreeMap::new();
        let mut runs: Runs = self.board.watched.lock().keys().copied().collect();
        let listeners = self.board.listeners.read().clone();
        runs.extend(listeners.iter().filter_map(|listener| listener.follows.as_ref()).flat_map(|follows| follows()));
        for (org, run) in runs {
            all.entry(org).or_default().insert(run);
        }
        all
    }

    /// One of them stands there; who knows that already is not told again.
    pub fn seen(&self, change: Change) {
        if let Some(watched) = self.board.watched.lock().get(&(change.org, change.execution)) {
            watched.send_if_modified(|heard| heard.of_look(change));
        }
        self.board.tell(Some(change), |listener| listener.follows.is_some());
    }

    /// The look failed: each looks for itself.
    pub fn missed(&self) {
        self.board.doubt();
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        let mut there = self.board.lookout.write();
        if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, &self.rung)) {
            *there = None;
        }
        drop(there);
        // It may have been rung for nothing.
        self.board.doubt();
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

/// What was heard of a run: how often that it ended, how often something that does not tell, and up to which event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Heard {
    ends: u64,
    unsure: u64,
    high: u64,
}

impl Heard {
    fn of(&mut self, change: Change) {
        match change.ended {
            Some(ended) => self.ends += u64::from(ended),
            None => self.unsure += 1,
        }
        self.high = self.high.max(change.high);
    }

    /// What a look has seen; false where that is known.
    fn of_look(&mut self, change: Change) -> bool {
        let news = change.high > self.high || change.ended == Some(true) && self.ends == 0;
        if news {
            self.of(change);
        }
        news
    }

    fn of_everything(&mut self) {
        self.unsure += 1;
    }
}

/// News of one run. Create it before looking at the store, so that no change is missed.
pub struct Watch {
    board: Arc<Board>,
    run: (OrgId, ExecutionId),
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
        if watched.get(&self.run).is_some_and(|sender| sender.receiver_count() == 0) {
            watched.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn change(execution: ExecutionId, ended: Option<bool>) -> Change {
        Change { org: OrgId::DEFAULT, execution, high: 1, ended, here: true }
    }

    /// How often a waiter looks within 10 seconds in which this comes every 10 ms.
    async fn looks(say: impl Fn(&Hints, ExecutionId)) -> u32 {
        let (hints, run) = (Hints::default(), ExecutionId::fresh());
        let mut watch = hints.watch(OrgId::DEFAULT, run);
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
        let mut watch = hints.watch(OrgId::DEFAULT, run);
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

    /// Whether a future has ended by now.
    fn ended_now(future: impl Future<Output = ()>) -> bool {
        future.now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_look_tells_who_follows_only_what_is_news() {
        let (hints, run) = (Hints::default(), ExecutionId::fresh());
        let heard: Arc<Mutex<Vec<Option<Change>>>> = Arc::default();
        let into = heard.clone();
        let _listening = hints.follow(move || vec![(OrgId::DEFAULT, run)], move |change| into.lock().push(change));
        let lookout = hints.lookout();
        let (mut watch, other) = (hints.watch(OrgId::DEFAULT, run), ExecutionId::fresh());
        let _other = hints.watch(OrgId(uuid::Uuid::max()), other);
        hints.everything_changed();
        assert!(ended_now(lookout.rung()) && !ended_now(lookout.rung()));
        assert!(!ended_now(watch.changed()) && heard.lock().is_empty(), "who follows a run is told by the look alone");
        let followed = [(OrgId::DEFAULT, BTreeSet::from([run])), (OrgId(uuid::Uuid::max()), BTreeSet::from([other]))];
        assert_eq!(lookout.followed(), BTreeMap::from(followed));
        let stands = |high, ended| Change { high, ..change(run, Some(ended)) };
        lookout.seen(stands(7, false));
        assert!(ended_now(watch.changed()));
        assert_eq!(heard.lock().pop(), Some(Some(stands(7, false))));
        lookout.seen(stands(7, false));
        assert!(!ended_now(watch.changed()), "nothing has happened since");
        hints.changed(stands(8, false));
        assert!(ended_now(watch.changed()));
        lookout.seen(stands(8, false));
        assert!(!ended_now(watch.changed()), "it was told before");
        lookout.seen(stands(9, true));
        assert!(ended_now(watch.changed()) && ended_now(watch.ended()));
        lookout.missed();
        assert!(ended_now(watch.changed()));
        assert_eq!(heard.lock().last(), Some(&None), "where the look failed, anything may have changed");
    }

    #[tokio::test]
    async fn without_a_lookout_each_looks_for_itself() {
        let (hints, run) = (Hints::default(), ExecutionId::fresh());
        let mut watch = hints.watch(OrgId::DEFAULT, run);
        let lookout = hints.lookout();
        let second = hints.lookout();
        drop(lookout);
        assert!(ended_now(watch.changed()), "what the first was rung for may be lost");
        hints.everything_changed();
        assert!(ended_now(second.rung()) && !ended_now(watch.changed()), "the second has taken over");
        drop(second);
        assert!(ended_now(watch.changed()));
        hints.everything_changed();
        assert!(ended_now(watch.changed()));
    }
}
