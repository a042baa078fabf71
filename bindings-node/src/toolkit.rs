//! The toolkit behind a worker: built-in agents, model calls and tools, native beside what JavaScript serves.

use crate::error::{invalid, thrown};
use crate::hub::{Abort, Hub, Reply};
use crate::task::TaskSpec;
use flovyn_core::agent::NativeHost;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::host::threads;
use flovyn_core::journal::MachineConfig;
use flovyn_core::model::{ClaimedTask, TaskOptions};
use flovyn_core::session::Session;
use flovyn_core::worker::{Host, Ticket};
use flovyn_toolkit::config::{Toolkit, ToolkitConfig, registry};
use flovyn_toolkit::react::{GenerateInput, Generated, LlmGenerate};
use flovyn_toolkit::tools::{ToolTask, Toolbox};
use napi_derive::napi;
use parking_lot::RwLock;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What of the toolkit a worker serves: nothing until it is opened, which may be while the worker polls, and more than once.
#[derive(Default)]
pub(crate) struct Kits(RwLock<Vec<Arc<Toolkit>>>);

impl Kits {
    /// Opens what is described and gives what is wrong with MCP servers. `taken` are the tasks that JavaScript serves.
    pub(crate) async fn open(&self, descriptions: &[String], store: &str, taken: &[String]) -> Result<Value> {
        let mut joined = ToolkitConfig::default();
        for description in descriptions {
            joined = joined.joined(ToolkitConfig::parse(description)?)?;
        }
        let kit = Toolkit::open(joined, store).await?;
        if let Some(twice) = kit.task_kinds().find(|kind| taken.iter().any(|known| known == kind)) {
            let message =
                format!("the toolkit serves tasks of the kind {twice:?}; give the task of one's own another kind");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        let problems: Vec<_> = kit.problems().iter().map(ToString::to_string).collect();
        self.0.write().push(Arc::new(kit));
        Ok(json!(problems))
    }

    /// Ends connections to MCP servers.
    pub(crate) async fn close(&self) {
        let kits = self.0.read().clone();
        for kit in kits {
            kit.close().await;
        }
    }

    /// How a task of the toolkit is scheduled.
    pub(crate) fn options(&self, kind: &str) -> Option<TaskOptions> {
        self.0.read().iter().find_map(|kit| kit.options(kind).cloned())
    }

    fn hosts(&self) -> Vec<Arc<NativeHost>> {
        self.0.read().iter().map(|kit| kit.host()).collect()
    }
}

impl Host for Kits {
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

/// How a model call or a host tool is scheduled, whether or not it is served here; null for any other kind.
#[napi]
pub fn toolkit_task(kind: String, queue: String) -> napi::Result<Option<TaskSpec>> {
    if kind == LlmGenerate::KIND {
        return Ok(Some(TaskSpec::queued(kind, LlmGenerate::call_options(), queue)));
    }
    let toolbox = Toolbox::host().map_err(thrown)?;
    let tool = toolbox.names().find(|name| ToolTask::kind_of(name) == kind).and_then(|name| toolbox.get(name));
    Ok(tool.map(|tool| {
        let options = TaskOptions { interruptible: true, ..ToolTask::options_of(&**tool) };
        TaskSpec::queued(kind, options, queue)
    }))
}

/// Asks a model outside of a run: ends with what `llm.generate` gives, as JSON text. `description` names providers.
#[napi]
pub fn ask_model(hub: &Hub, token: u32, description: String, input: String) -> napi::Result<Abort> {
    let described = ToolkitConfig::parse(&description).map_err(thrown)?;
    let input: GenerateInput =
        serde_json::from_str(&input).map_err(|error| invalid(format!("a model cannot be asked this: {error}")))?;
    let models = registry(&described.providers).map_err(thrown)?;
    Ok(hub.inbox.spawn(&threads().map_err(thrown)?, token, async move {
        let generated = match LlmGenerate::new(models).ask_alone(&input).await {
            Ok(reply) => Generated::Reply(Box::new(reply)),
            Err(error) => Generated::Failed { error },
        };
        let told = serde_json::to_value(generated)
            .map_err(|error| Error::new(Code::NotSerializable, format!("a reply has no JSON form: {error}")))?;
        Ok(Reply::Facts(told))
    }))
}
