//! The toolkits that one worker serves. They can be replaced and added to while the worker polls.

use super::{Toolkit, ToolkitConfig};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::journal::MachineConfig;
use flovyn_core::model::{ClaimedTask, TaskOptions};
use flovyn_core::session::Session;
use flovyn_core::sync::RwLock;
use flovyn_core::worker::{Host, Ticket};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Toolkits behind one host: that of the worker's agents, which can be replaced, and those that its runs have asked for since.
#[derive(Default)]
pub struct Toolkits {
    /// Read for each call of the worker and written only to swap toolkits: a toolkit is opened before the lock is
    /// taken.
    served: RwLock<Served>,
    /// Held while a toolkit is opened, which may take long. Without it two calls of `replace` at once would both open
    /// one.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Served {
    /// The descriptions that `of_agents` was opened with. A `replace` by the same ones does nothing.
    descriptions: Vec<String>,
    of_agents: Option<Arc<Toolkit>>,
    added: Vec<Arc<Toolkit>>,
}

impl Served {
    fn all(&self) -> impl Iterator<Item = &Arc<Toolkit>> {
        self.of_agents.iter().chain(&self.added)
    }
}

impl Toolkits {
    /// Replaces the toolkit of the worker's agents by one of these descriptions, each a JSON text. Returns the problems
    /// of MCP servers. `taken` are the kinds of tasks that the host language serves.
    ///
    /// Runs that are entered from now on use the new agents. Attempts that run keep the old toolkit until they end; the
    /// last of them closes its connections to MCP servers.
    ///
    /// # Errors
    ///
    /// Those of [`Toolkit::open`], and `INVALID_ARGUMENT` for a task of a kind that is taken. After an error the old
    /// toolkit is still served.
    pub async fn replace(&self, descriptions: &[String], store: &str, taken: &[String]) -> Result<Vec<String>> {
        let _one = self.opening.lock().await;
        if self.served.read().of_agents.is_some() && self.served.read().descriptions == descriptions {
            return Ok(Vec::new());
        }
        let (toolkit, problems) = open(descriptions, store, taken).await?;
        let old = {
            let mut served = self.served.write();
            served.descriptions = descriptions.to_vec();
            served.of_agents.replace(toolkit)
        };
        // Dropped after the lock is released: this may close connections.
        drop(old);
        Ok(problems)
    }

    /// Adds a toolkit of these descriptions to those that are served. Returns the problems of MCP servers.
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace).
    pub async fn add(&self, descriptions: &[String], store: &str, taken: &[String]) -> Result<Vec<String>> {
        let _one = self.opening.lock().await;
        let (toolkit, problems) = open(descriptions, store, taken).await?;
        self.served.write().added.push(toolkit);
        Ok(problems)
    }

    /// Closes the connections to MCP servers.
    pub async fn close(&self) {
        let toolkits: Vec<_> = self.served.read().all().cloned().collect();
        for toolkit in toolkits {
            toolkit.close().await;
        }
    }

    /// The options with which a task of this kind is scheduled. None if no toolkit serves the kind.
    pub fn options(&self, kind: &str) -> Option<TaskOptions> {
        self.served.read().all().find_map(|toolkit| toolkit.options(kind))
    }

    /// The kinds of its tasks.
    pub fn kinds_of_tasks(&self) -> Vec<String> {
        self.served.read().all().flat_map(|toolkit| toolkit.task_kinds()).collect()
    }

    fn hosts(&self) -> Vec<Arc<dyn Host>> {
        self.served.read().all().map(|toolkit| toolkit.host()).collect()
    }
}

async fn open(descriptions: &[String], store: &str, taken: &[String]) -> Result<(Arc<Toolkit>, Vec<String>)> {
    let mut joined = ToolkitConfig::default();
    for description in descriptions {
        joined = joined.joined(ToolkitConfig::parse(description)?)?;
    }
    let toolkit = Toolkit::open(joined, store).await?;
    if let Some(twice) = toolkit.task_kinds().iter().find(|kind| taken.contains(kind)) {
        let message =
            format!("the toolkit serves tasks of the kind {twice:?}; give the task of one's own another kind");
        return Err(Error::new(Code::InvalidArgument, message));
    }
    let problems = toolkit.problems().iter().map(ToString::to_string).collect();
    Ok((Arc::new(toolkit), problems))
}

impl Host for Toolkits {
    fn agent_kinds(&self) -> Arc<[String]> {
        union(self.hosts().iter().map(|host| host.agent_kinds()))
    }

    fn task_kinds(&self) -> Arc<[String]> {
        union(self.hosts().iter().map(|host| host.task_kinds()))
    }

    fn agent_config(&self, kind: &str) -> Option<MachineConfig> {
        self.hosts().iter().find_map(|host| host.agent_config(kind))
    }

    fn start_agent(&self, session: Arc<Session>) {
        let kind = session.execution().new.kind.clone();
        if let Some(host) = self.hosts().iter().find(|host| host.agent_config(&kind).is_some()) {
            host.start_agent(session);
        }
    }

    fn start_task(&self, task: ClaimedTask, ticket: Ticket) {
        let kind = task.task.new.kind.clone();
        if let Some(host) = self.hosts().iter().find(|host| host.task_kinds().contains(&kind)) {
            host.start_task(task, ticket);
        }
    }
}

fn union(served: impl Iterator<Item = Arc<[String]>>) -> Arc<[String]> {
    let kinds: BTreeSet<_> = served.flat_map(|kinds| kinds.to_vec()).collect();
    kinds.into_iter().collect()
}
