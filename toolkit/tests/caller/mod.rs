//! An agent that calls tools one after the other, each as a task, on a store in a folder: what durability is shown with.

use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::runtime::AgentBuilder;
use flovyn_core::task::LocalTaskExecutor;
use flovyn_toolkit::tools::{ToolCallInput, ToolHost, ToolOutcome, ToolTask, Toolbox};
use std::path::Path;

/// Calls by the names of their tools.
pub(crate) type Calls = Vec<(String, ToolCallInput)>;

struct Caller;

#[async_trait]
impl AgentDefinition for Caller {
    type State = ();
    type Input = Calls;
    type Output = Vec<ToolOutcome>;

    fn kind(&self) -> &str {
        "caller"
    }

    async fn execute(&self, ctx: &dyn AgentContext, calls: Calls) -> Result<Vec<ToolOutcome>> {
        let mut outcomes = Vec::new();
        for (name, input) in calls {
            outcomes.push(ctx.schedule::<ToolOutcome>(&ToolTask::kind_of(&name), &input)?.await?);
        }
        Ok(outcomes)
    }
}

/// Runs the calls to their end; the same folder again goes on where they were.
pub(crate) async fn call_all(
    folder: &Path,
    toolbox: &Toolbox,
    host: &ToolHost,
    calls: &Calls,
) -> Result<Vec<ToolOutcome>> {
    let tasks = ToolTask::all(toolbox, host);
    let executor = tasks.into_iter().try_fold(LocalTaskExecutor::new(), LocalTaskExecutor::register)?;
    let url = format!("sqlite:{}", folder.join("agents.db").display());
    let agents = AgentBuilder::new().storage(url).task_executor(executor).build().await?;
    let outcomes = agents.execute_with(Caller, calls, StartOptions::with_id("run")).await?;
    agents.close().await?;
    Ok(outcomes)
}
