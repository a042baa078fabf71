//! The toolkit beside a worker: how its tasks are scheduled, and model calls outside of runs.

use crate::error::{invalid, thrown};
use crate::hub::{Abort, Hub, Reply};
use crate::task::TaskSpec;
use flovyn_core::error::{Code, Error};
use flovyn_core::host::{TaskSpec as Spec, threads};
use flovyn_core::model::TaskOptions;
use flovyn_toolkit::config::{ToolkitConfig, registry};
use flovyn_toolkit::react::{GenerateInput, Generated, LlmGenerate};
use flovyn_toolkit::tools::{ToolTask, Toolbox};
use napi_derive::napi;

/// How a model call or a host tool is scheduled, whether or not it is served here; null for any other kind.
#[napi]
pub(crate) fn toolkit_task(kind: String, queue: String) -> napi::Result<Option<TaskSpec>> {
    if kind == LlmGenerate::KIND {
        return Ok(Some(TaskSpec(Spec::queued(&kind, LlmGenerate::call_options(), queue))));
    }
    let toolbox = Toolbox::host().map_err(thrown)?;
    let tool = toolbox.names().find(|name| ToolTask::kind_of(name) == kind).and_then(|name| toolbox.get(name));
    Ok(tool.map(|tool| {
        let options = TaskOptions { interruptible: true, ..ToolTask::options_of(&**tool) };
        TaskSpec(Spec::queued(&kind, options, queue))
    }))
}

/// Asks a model outside of a run: ends with what `llm.generate` gives, as JSON text. `description` names providers.
#[napi]
pub(crate) fn ask_model(hub: &Hub, token: u32, description: String, input: String) -> napi::Result<Abort> {
    let described = ToolkitConfig::parse(&description).map_err(thrown)?;
    let input: GenerateInput =
        serde_json::from_str(&input).map_err(|error| invalid(format!("a model cannot be asked this: {error}")))?;
    let models = registry(&described.providers).map_err(thrown)?;
    Ok(hub.inbox.spawn(&threads().map_err(thrown)?, token, async move {
        let generated = match LlmGenerate::new(models).ask_alone(&input).await {
            Ok(reply) => Generated::Reply(Box::new(reply)),
            Err(error) => Generated::Failed { error },
        };
        let reply = serde_json::to_value(generated)
            .map_err(|error| Error::new(Code::NotSerializable, format!("a reply has no JSON form: {error}")))?;
        Ok(Reply::Facts(reply))
    }))
}
