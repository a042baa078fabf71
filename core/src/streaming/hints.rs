//! In-process hints: "this run has news", "this queue has work". Whoever is woken looks at the store.

use super::change_poller::ChangePoller;
use super::hub::{Hub, Listener, Listening};
use super::outage::Outage;
use super::run_watch::{Follow, Watch};
use crate::id::{ExecutionId, OrgId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a backend announces changes and where loops and handles wait for them. Clones share one hub.
#[derive(Clone, Default)]
pub struct Hints(Arc<Hub>);

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
        self.0.leases_ever_at_risk.store(true, Ordering::Release);
        self.0.leases.notify();
    }

    /// A run has new facts or events.
    pub fn changed(&self, change: Change) {
        self.0.announce(News::Run(change));
    }

    /// Takes what another process announced.
    pub fn receive(&self, news: News) {
        self.0.take(news);
    }

    /// Has `on_publish` called with all that this process announces, in the place of the one before: it carries hints to other
    /// processes. It must be quick and must not block.
    pub fn set_on_publish(&self, on_publish: Option<Arc<dyn Fn(News) + Send + Sync>>) {
        *self.0.on_publish.write() = on_publish;
    }

    /// Another process wrote, and anything may have changed. A [`ChangePoller`] finds out which of the runs have that somebody
    /// follows; without one, all their followers look for themselves.
    pub fn everything_changed(&self) {
        for signal in [&self.0.agents, &self.0.tasks, &self.0.timers, &self.0.elsewhere] {
            signal.notify();
        }
        let poller = self.0.poller.read().clone();
        match &poller {
            Some(poller) => poller.notify_one(),
            None => self.0.all_may_have_changed(),
        }
        self.0.call(None, |listener| listener.follows.is_none());
    }

    /// Has the caller poll, as long as it keeps what it gets, wherever anything may have changed.
    pub fn change_poller(&self) -> ChangePoller {
        ChangePoller::install(self.0.clone())
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
        if self.0.leases_ever_at_risk.load(Ordering::Acquire) {
            follow.mark_changed();
        }
        Follow(follow)
    }

    /// Calls back on every change of a run until the guard is dropped; `None` stands for any run of any org. The callback
    /// must be quick and must not block.
    #[must_use = "the callback ends once it is dropped"]
    pub fn listen(&self, on_change: impl Fn(Option<Change>) + Send + Sync + 'static) -> Listening {
        self.0.clone().subscribe(Listener { on_change: Box::new(on_change), follows: None })
    }

    /// As [`listen`](Self::listen), for a caller whom only some runs concern: those that `follows` names when it is asked.
    /// `None` stands for any of them.
    #[must_use = "the callback ends once it is dropped"]
    pub fn follow(
        &self,
        follows: impl Fn() -> Vec<(OrgId, ExecutionId)> + Send + Sync + 'static,
        on_change: impl Fn(Option<Change>) + Send + Sync + 'static,
    ) -> Listening {
        self.0.clone().subscribe(Listener { on_change: Box::new(on_change), follows: Some(Box::new(follows)) })
    }

    /// How many listen now.
    pub fn listeners(&self) -> usize {
        self.0.listeners()
    }

    /// Watches one run until dropped.
    pub fn watch(&self, org: OrgId, execution: ExecutionId) -> Watch {
        Watch::new(self.0.clone(), (org, execution))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;
    use futures::FutureExt;
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;
    use tokio::time::Instant;

    fn change(execution: ExecutionId, ended: Option<bool>) -> Change {
        Change { org: OrgId::DEFAULT, execution, high: 1, ended, here: true }
    }

    /// How often a waiter looks within 10 seconds in which this comes every 10 ms.
    async fn looks(announce: impl Fn(&Hints, ExecutionId)) -> u32 {
        let (hints, run) = (Hints::default(), ExecutionId::fresh());
        let mut watch = hints.watch(OrgId::DEFAULT, run);
        let (end, mut looks) = (Instant::now() + Duration::from_secs(10), 0);
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while Instant::now() < end {
            let looked = async {
                loop {
                    tick.tick().await;
                    announce(&hints, run);
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
        assert!(begun.elapsed() >= Duration::from_secs(30));
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
        let poller = hints.change_poller();
        let (mut watch, other) = (hints.watch(OrgId::DEFAULT, run), ExecutionId::fresh());
        let _other = hints.watch(OrgId(uuid::Uuid::max()), other);
        hints.everything_changed();
        assert!(ended_now(poller.requested()) && !ended_now(poller.requested()));
        assert!(!ended_now(watch.changed()) && heard.lock().is_empty(), "who follows a run is told by the look alone");
        let followed = [(OrgId::DEFAULT, BTreeSet::from([run])), (OrgId(uuid::Uuid::max()), BTreeSet::from([other]))];
        assert_eq!(poller.followed(), BTreeMap::from(followed));
        let stands = |high, ended| Change { high, ..change(run, Some(ended)) };
        poller.found(stands(7, false));
        assert!(ended_now(watch.changed()));
        assert_eq!(heard.lock().pop(), Some(Some(stands(7, false))));
        poller.found(stands(7, false));
        assert!(!ended_now(watch.changed()), "nothing has happened since");
        hints.changed(stands(8, false));
        assert!(ended_now(watch.changed()));
        poller.found(stands(8, false));
        assert!(!ended_now(watch.changed()), "it was told before");
        poller.found(stands(9, true));
        assert!(ended_now(watch.changed()) && ended_now(watch.ended()));
        poller.failed();
        assert!(ended_now(watch.changed()));
        assert_eq!(heard.lock().last(), Some(&None), "where the look failed, anything may have changed");
    }

    #[tokio::test]
    async fn without_a_poller_each_looks_for_itself() {
        let (hints, run) = (Hints::default(), ExecutionId::fresh());
        let mut watch = hints.watch(OrgId::DEFAULT, run);
        let poller = hints.change_poller();
        let second = hints.change_poller();
        drop(poller);
        assert!(ended_now(watch.changed()), "what the first was requested for may be lost");
        hints.everything_changed();
        assert!(ended_now(second.requested()) && !ended_now(watch.changed()), "the second has taken over");
        drop(second);
        assert!(ended_now(watch.changed()));
        hints.everything_changed();
        assert!(ended_now(watch.changed()));
    }
}
