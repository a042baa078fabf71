//! Several hosts as one: what a binding serves in its own language, beside what is native.

use crate::error::{Code, Error, Result};
use crate::journal::MachineConfig;
use crate::model::ClaimedTask;
use crate::session::Session;
use crate::worker::{Host, Ticket};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Serves what several hosts serve, by one worker: a run of one host claims the tasks of another without leaving the process.
///
/// Runs and tasks go to the host that has their kind; where a host serves a kind later on that another one has, the earlier
/// in the list keeps it.
pub struct CompositeHost(Vec<Arc<dyn Host>>);

impl CompositeHost {
    /// Joins hosts.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: two of them serve an agent, or a task, of the same kind.
    pub fn new(hosts: impl IntoIterator<Item = Arc<dyn Host>>) -> Result<Self> {
        let hosts: Vec<_> = hosts.into_iter().collect();
        distinct("agents", hosts.iter().map(|host| host.agent_kinds()))?;
        distinct("tasks", hosts.iter().map(|host| host.task_kinds()))?;
        Ok(Self(hosts))
    }

    fn having(&self, has: impl Fn(&Arc<dyn Host>) -> bool) -> Option<&Arc<dyn Host>> {
        self.0.iter().find(|host| has(host))
    }
}

fn distinct(what: &str, served: impl Iterator<Item = Arc<[String]>>) -> Result<()> {
    let mut known = BTreeSet::new();
    let twice = served.flat_map(|kinds| kinds.to_vec()).find(|kind| !known.insert(kind.clone()));
    twice.map_or(Ok(()), |kind| {
        let message = format!("two {what} of kind {kind:?} were given to one worker; rename one");
        Err(Error::new(Code::InvalidArgument, message))
    })
}

fn union(served: impl Iterator<Item = Arc<[String]>>) -> Arc<[String]> {
    let served: Vec<_> = served.filter(|kinds| !kinds.is_empty()).collect();
    if let [only] = &served[..] {
        return only.clone();
    }
    let kinds: BTreeSet<_> = served.iter().flat_map(|kinds| kinds.to_vec()).collect();
    kinds.into_iter().collect()
}

impl Host for CompositeHost {
    fn agent_kinds(&self) -> Arc<[String]> {
        union(self.0.iter().map(|host| host.agent_kinds()))
    }

    fn task_kinds(&self) -> Arc<[String]> {
        union(self.0.iter().map(|host| host.task_kinds()))
    }

    fn agent_config(&self, kind: &str) -> Option<MachineConfig> {
        self.0.iter().find_map(|host| host.agent_config(kind))
    }

    fn start_agent(&self, session: Arc<Session>) {
        let kind = session.execution().new.kind.clone();
        if let Some(host) = self.having(|host| host.agent_config(&kind).is_some()) {
            host.start_agent(session);
        }
    }

    fn start_task(&self, task: ClaimedTask, ticket: Ticket) {
        let kind = &task.task.new.kind;
        if let Some(host) = self.having(|host| host.task_kinds().contains(kind)).cloned() {
            host.start_task(task, ticket);
        }
    }
}
