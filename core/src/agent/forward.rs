//! An agent that only runs one task. A task that is handed over to another backend needs a run there, because that
//! backend does not have the run which scheduled it.

use super::AnyAgent;
use crate::context::{AgentContext, Context, TaskCall, value_of};
use crate::error::Result;
use crate::journal::{MachineConfig, OnDivergence};
use crate::model::TaskOptions;
use crate::payload::Payload;
use async_trait::async_trait;

/// Passes its input to a task of a queue, and ends with the result or the error of that task.
pub(crate) struct Forward {
    pub task: String,
    pub queue: String,
    pub options: TaskOptions,
}

#[async_trait]
impl AnyAgent for Forward {
    fn config(&self) -> MachineConfig {
        MachineConfig {
            stateful: false,
            code: Some("1".into()),
            on_divergence: OnDivergence::Continue,
            ..MachineConfig::default()
        }
    }

    async fn run(&self, ctx: &Context) -> Result<Payload> {
        let call = TaskCall {
            kind: self.task.clone(),
            input: ctx.raw_input().clone(),
            options: Some(self.options.clone()),
            queue: Some(self.queue.clone()),
            key: None,
        };
        value_of(ctx.schedule_raw(call)?.await?)
    }
}
