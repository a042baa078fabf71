//! The task that continues a call after its questions were answered. It is durable, and follows the same rules as the
//! call: if what it would go on with is lost, the call is made again from its beginning where it may be repeated, and otherwise
//! the model is told.

use super::call::{CallEnvironment, ToolRequest, call, sampled};
use super::input::{CallOrigin, InputGiven, InputRequired, OPEN_QUESTION};
use super::outcome::{CallIdentity, outcome};
use super::servers::McpServers;
use crate::tools::fault::Fault;
use crate::tools::{Limits, ToolOutcome};
use async_trait::async_trait;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{ChunkKind, SideEffects, TaskOptions};
use flovyn_core::task::{TaskContext, TaskDefinition};
use rmcp::model::InputResponses;
use serde_json::Value;
use std::sync::Arc;

/// Sends a call again with the answers of a person, or goes on with one that waits for them in this process. It takes [`InputGiven`] and returns a [`ToolOutcome`], which may
/// have further questions.
#[derive(Clone)]
pub struct McpInputTask {
    servers: McpServers,
    limits: Limits,
}

impl McpInputTask {
    /// The kind under which it is scheduled.
    pub const KIND: &'static str = "mcp.input";

    /// A task for calls of these servers. A call takes `limits.longest` at most.
    pub fn new(servers: McpServers, limits: Limits) -> Self {
        Self { servers, limits }
    }

    /// The options with which it has to be scheduled. If its worker dies, the model is told that the outcome is
    /// unknown, unless the call may be repeated.
    pub fn call_options() -> TaskOptions {
        TaskOptions { side_effects: SideEffects::Reconcile, interruptible: true, ..TaskOptions::default() }
    }
}

#[async_trait]
impl TaskDefinition for McpInputTask {
    type Input = InputGiven;
    type Output = ToolOutcome;

    fn kind(&self) -> &str {
        Self::KIND
    }

    fn options(&self) -> TaskOptions {
        Self::call_options()
    }

    async fn execute(&self, ctx: &TaskContext, given: InputGiven) -> Result<ToolOutcome> {
        let InputGiven { required, mut responses } = given;
        let InputRequired { server, tool, name, arguments, state, may_repeat, mut given, sampling, .. } = required;
        let (task, open_call) = (required.task, required.open_call);
        let Some(connection) = self.servers.connection(&server) else {
            let message = format!(
                "The MCP server {server:?} is not configured on this worker; there are: {}.",
                self.servers.names().collect::<Vec<_>>().join(", ")
            );
            return Ok(ToolOutcome::error("unavailable", message));
        };
        // Taken out before anything else: a call that does not go on is called off.
        let waited = open_call.as_ref().and_then(|token| connection.parked.take(token));
        let waited = waited.and_then(|mut running| (!running.is_lost()).then_some(running));
        let identity =
            CallIdentity { server: &server, tool: &tool, sampler: connection.sampler().map(|sampler| &**sampler) };
        for (key, parameters) in sampling {
            let answer = match (connection.sampler(), responses.remove(&key)) {
                (Some(sampler), Some(response)) if response.allows() => sampled(&server, sampler, &parameters).await,
                _ => {
                    let message = format!(
                        "A person did not let the MCP server {server:?} ask a model, so the call did not go on."
                    );
                    Err(Fault::for_model("declined", message))
                }
            };
            match answer {
                Ok(answer) => drop(given.insert(key, answer)),
                Err(fault) => return outcome(Err(fault), &identity, |_| Err(Fault::stopped())).await,
            }
        }
        let mut written: InputResponses = responses
            .into_iter()
            .map(|(key, response)| Ok((key, serde_json::to_value(response)?)))
            .chain(given.into_iter().map(Ok))
            .collect::<Result<_, serde_json::Error>>()
            .map_err(|error| Error::new(Code::NotSerializable, format!("an answer has no JSON form: {error}")))?;
        let waited = match (waited, written.remove(OPEN_QUESTION).filter(|_| open_call.is_some())) {
            (Some(mut running), Some(answer)) => {
                running.reply(answer);
                Some(running)
            }
            _ if open_call.is_some() && !may_repeat => {
                let message = format!(
                    "Interrupted after start, outcome unknown: the MCP server {server:?} asked a person in the middle of this call, \
                     and when the answer came, the connection in which it had asked was gone. The question is lost, and the call was \
                     not sent again, for it may have taken effect. Look at what it changed before you repeat it."
                );
                let lost = Err(Fault::for_model("interrupted", message));
                return outcome(lost, &identity, |_| Err(Fault::stopped())).await;
            }
            _ => None,
        };
        let request = ToolRequest {
            tool: tool.clone(),
            arguments: arguments.as_object().cloned().unwrap_or_default(),
            responses: open_call.is_none().then_some(written),
            state,
            task,
            may_repeat,
        };
        let (stops, streams) = (ctx.clone(), ctx.clone());
        let environment = CallEnvironment {
            stop: Some(Arc::new(move || stops.is_cancelled())),
            terminal: Some(Arc::new(move |event| {
                if let Ok(event) = serde_json::to_string(&event) {
                    streams.stream(ChunkKind::Data, &event);
                }
            })),
            longest: self.limits.longest,
        };
        let ended = call(&connection, request, &environment, waited).await;
        let sampler = connection.sampler().cloned();
        let origin = CallOrigin { server: server.clone(), tool: tool.clone(), name, arguments, may_repeat, sampler };
        outcome(ended, &identity, |asked| InputRequired::new(origin, asked)).await
    }

    async fn reconcile(&self, _: &TaskContext, given: InputGiven) -> Result<Option<ToolOutcome>> {
        let InputRequired { server, may_repeat, .. } = given.required;
        let message = format!(
            "Interrupted after start, outcome unknown: the worker died while the MCP server {server:?} worked on this call. It \
             was not sent again, for it may have taken effect. Look at what it changed before you repeat it."
        );
        let recovered =
            serde_json::json!({ "recovered": true, "server": server, "tool": Value::from(given.required.tool) });
        Ok((!may_repeat).then(|| ToolOutcome::error("interrupted", message).with_details(recovered)))
    }
}
