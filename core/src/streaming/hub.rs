//! Where hints of one process meet: who announces changes, who waits for them, and who carries them to other processes.

use super::hints::{Change, News};
use super::outage::Outage;
use super::run_watch::Counts;
use crate::id::{ExecutionId, OrgId};
use crate::sync::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, watch};

pub(super) struct Hub {
    pub agents: Signal,
    pub tasks: Signal,
    pub timers: Signal,
    pub leases: Signal,
    /// Another process has written.
    pub elsewhere: Signal,
    pub leases_ever_at_risk: AtomicBool,
    pub watched: Mutex<HashMap<(OrgId, ExecutionId), watch::Sender<Counts>>>,
    /// A slice behind an `Arc`, so that callbacks run without the lock: one may end its own subscription.
    listeners: RwLock<Arc<[Arc<Listener>]>>,
    /// Wakes the [`ChangePoller`](super::ChangePoller), where there is one.
    pub poller: RwLock<Option<Arc<Notify>>>,
    /// Carries announcements to other processes.
    pub on_publish: RwLock<Option<Arc<OnPublish>>>,
    pub outage: Outage,
}

pub(super) type OnPublish = dyn Fn(News) + Send + Sync;
type Runs = Vec<(OrgId, ExecutionId)>;

impl Default for Hub {
    fn default() -> Self {
        Self {
            agents: Signal::default(),
            tasks: Signal::default(),
            timers: Signal::default(),
            leases: Signal::default(),
            elsewhere: Signal::default(),
            leases_ever_at_risk: AtomicBool::default(),
            watched: Mutex::default(),
            listeners: RwLock::new(Arc::new([])),
            poller: RwLock::default(),
            on_publish: RwLock::default(),
            outage: Outage::default(),
        }
    }
}

/// Wakes everybody who waits for it.
pub(super) struct Signal(pub watch::Sender<()>);

impl Default for Signal {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl Signal {
    pub(super) fn notify(&self) {
        self.0.send_replace(());
    }
}

/// A callback, and the only runs it is called for.
pub(super) struct Listener {
    pub on_change: Box<dyn Fn(Option<Change>) + Send + Sync>,
    pub follows: Option<Box<dyn Fn() -> Runs + Send + Sync>>,
}

impl Hub {
    /// Takes news of this process, and has them carried to others.
    pub(super) fn announce(&self, news: News) {
        self.take(news);
        let on_publish = self.on_publish.read().clone();
        if let Some(on_publish) = on_publish {
            on_publish(news);
        }
    }

    /// Wakes those in this process whom news concern.
    pub(super) fn take(&self, news: News) {
        match news {
            News::Agents => self.agents.notify(),
            News::Tasks => self.tasks.notify(),
            News::Timers => self.timers.notify(),
            News::Run(change) => {
                if let Some(watched) = self.watched.lock().get(&(change.org, change.execution)) {
                    watched.send_modify(|counts| counts.add(change));
                }
                self.call(Some(change), |_| true);
            }
        }
    }

    /// Any run may have changed and no poller finds out which: everybody who follows some has to look.
    pub(super) fn all_may_have_changed(&self) {
        for watched in self.watched.lock().values() {
            watched.send_modify(Counts::add_unknown);
        }
        self.call(None, |listener| listener.follows.is_some());
    }

    pub(super) fn call(&self, news: Option<Change>, whom: impl Fn(&Listener) -> bool) {
        // Called without the lock: a callback may end a listener.
        let listeners = self.listeners.read().clone();
        listeners.iter().filter(|listener| whom(listener)).for_each(|listener| (listener.on_change)(news));
    }

    /// The runs that somebody in this process follows, some more than once.
    pub(super) fn followed(&self) -> Runs {
        let mut runs: Runs = self.watched.lock().keys().copied().collect();
        let listeners = self.listeners.read().clone();
        runs.extend(listeners.iter().filter_map(|listener| listener.follows.as_ref()).flat_map(|follows| follows()));
        runs
    }

    pub(super) fn listeners(&self) -> usize {
        self.listeners.read().len()
    }

    pub(super) fn subscribe(self: Arc<Self>, listener: Listener) -> Listening {
        let listener = Arc::new(listener);
        self.change_listeners(|listeners| listeners.push(listener.clone()));
        Listening { hub: Arc::downgrade(&self), listener }
    }

    fn change_listeners(&self, change: impl FnOnce(&mut Vec<Arc<Listener>>)) {
        let mut listeners = self.listeners.write();
        let mut changed = listeners.to_vec();
        change(&mut changed);
        *listeners = changed.into();
    }
}

/// A listener that is called back as long as this lives.
pub struct Listening {
    hub: Weak<Hub>,
    listener: Arc<Listener>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.change_listeners(|listeners| listeners.retain(|one| !Arc::ptr_eq(one, &self.listener)));
        }
    }
}
