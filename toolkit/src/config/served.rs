//! What a toolkit serves now. The tools of MCP servers change while a worker runs: a server says so, or one comes alive that
//! could not be used. Then everything that depends on them is made anew, and what runs keeps what it began with.

use super::toolkit::{Opening, ServedNow};
use crate::react::LiveTools;
use flovyn_core::error::Result;
use flovyn_core::journal::MachineConfig;
use flovyn_core::model::ClaimedTask;
use flovyn_core::session::Session;
use flovyn_core::sync::{Mutex, RwLock};
use flovyn_core::worker::{Host, Ticket};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How long a turn waits for the tools of a server that has said that they have changed. It goes on with what is known then.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a toolkit serves, behind one host.
pub(super) struct Served {
    opening: Opening,
    now: RwLock<Arc<ServedNow>>,
    /// The tools of agents that look at them anew in each turn, by the agents' kinds.
    live: BTreeMap<String, LiveTools>,
    /// The count of changes of MCP servers that `now` was made after.
    made_after: watch::Sender<u64>,
    /// Held while it is made anew.
    making: Mutex<()>,
}

/// The tasks that follow MCP servers. They end with it.
pub(super) struct Followers(Vec<AbortHandle>);

impl Served {
    pub(super) fn open(opening: Opening) -> Result<(Arc<Self>, Followers)> {
        let changes = opening.servers.changes();
        let has_servers = opening.servers.names().next().is_some();
        let mut failed = None;
        let served = Arc::new_cyclic(|served: &Weak<Self>| {
            let live = |kind: &String| {
                let served = served.clone();
                let settled = move || {
                    let served = served.upgrade();
                    Box::pin(async move {
                        if let Some(served) = served {
                            served.settled().await;
                        }
                    }) as _
                };
                (kind.clone(), LiveTools::new(settled))
            };
            let agents = opening.description.agents.iter().map(|agent| &agent.kind);
            let live = if has_servers { agents.map(live).collect() } else { BTreeMap::new() };
            let now = opening.make(&live, true).unwrap_or_else(|error| {
                failed = Some(error);
                ServedNow::default()
            });
            let (now, made_after) = (RwLock::new(Arc::new(now)), watch::Sender::new(changes));
            Self { opening, now, live, made_after, making: Mutex::default() }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let follower = Arc::downgrade(&served);
        let on_list = move || {
            if let Some(served) = follower.upgrade() {
                served.make_if_changed();
            }
        };
        let followers =
            served.opening.servers.follow(on_list).into_iter().map(|follow| tokio::spawn(follow).abort_handle());
        let followers = Followers(followers.collect());
        Ok((served, followers))
    }

    pub(super) fn now(&self) -> Arc<ServedNow> {
        self.now.read().clone()
    }

    pub(super) fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Resolves when the tools are those that MCP servers have said to have, or after a while.
    async fn settled(&self) {
        self.opening.servers.said().await;
        let mut made = self.made_after.subscribe();
        let _ = tokio::time::timeout(PATIENCE, made.wait_for(|_| !self.opening.servers.are_coming())).await;
        self.make_if_changed();
    }

    fn make_if_changed(&self) {
        let _one = self.making.lock();
        let changes = self.opening.servers.changes();
        if *self.made_after.borrow() != changes {
            match self.opening.make(&self.live, false) {
                Ok(now) => {
                    *self.now.write() = Arc::new(now);
                }
                Err(error) => tracing::warn!("the tools of MCP servers have changed, and cannot be served: {error}"),
            }
        }
        self.made_after.send_replace(changes);
    }
}

impl Followers {
    pub(super) fn stop(&self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Host for Served {
    fn agent_kinds(&self) -> Arc<[String]> {
        self.now().host.agent_kinds()
    }

    fn task_kinds(&self) -> Arc<[String]> {
        self.now().host.task_kinds()
    }

    fn agent_config(&self, kind: &str) -> Option<MachineConfig> {
        self.now().host.agent_config(kind)
    }

    fn start_agent(&self, session: Arc<Session>) {
        self.now().host.start_agent(session);
    }

    fn start_task(&self, task: ClaimedTask, ticket: Ticket) {
        self.now().host.start_task(task, ticket);
    }
}
