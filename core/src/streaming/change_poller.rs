//! Finds out which runs have changed, where other processes write and do not tell.
//!
//! One query for all runs that are followed in this process takes the place of one query for each of their followers.

use super::hints::Change;
use super::hub::Hub;
use crate::id::{ExecutionId, OrgId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// Polls for all who follow runs here, for as long as it is kept.
pub struct ChangePoller {
    hub: Arc<Hub>,
    requested: Arc<Notify>,
}

impl ChangePoller {
    /// Takes over from the poller before, if there is one.
    pub(super) fn install(hub: Arc<Hub>) -> Self {
        let requested = Arc::new(Notify::new());
        *hub.poller.write() = Some(requested.clone());
        Self { hub, requested }
    }

    /// Ends when anything may have changed since the last time.
    pub async fn requested(&self) {
        self.requested.notified().await;
    }

    /// The runs that somebody follows now.
    pub fn followed(&self) -> BTreeMap<OrgId, BTreeSet<ExecutionId>> {
        let mut all: BTreeMap<OrgId, BTreeSet<ExecutionId>> = BTreeMap::new();
        for (org, run) in self.hub.followed() {
            all.entry(org).or_default().insert(run);
        }
        all
    }

    /// A poll found a run there. Followers who know that already are not woken.
    pub fn found(&self, change: Change) {
        if let Some(watched) = self.hub.watched.lock().get(&(change.org, change.execution)) {
            watched.send_if_modified(|counts| counts.add_if_new(change));
        }
        self.hub.call(Some(change), |listener| listener.follows.is_some());
    }

    /// A poll failed: each follower looks for itself.
    pub fn failed(&self) {
        self.hub.all_may_have_changed();
    }
}

impl Drop for ChangePoller {
    fn drop(&mut self) {
        let mut installed = self.hub.poller.write();
        if installed.as_ref().is_some_and(|poller| Arc::ptr_eq(poller, &self.requested)) {
            *installed = None;
        }
        drop(installed);
        // A poll may have been requested that nobody will do now.
        self.hub.all_may_have_changed();
    }
}
