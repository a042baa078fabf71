//! Tasks of the handshake (version 2025-11-25 of the protocol), for tools that are called in no other way. The call says that it
//! may become a task; the client asks for the state of the task now and then, and for its result when it has ended or asks a
//! person: the question comes in the response to that. These tasks end with the connection. Those of the present protocol are in
//! `tasks.rs`.

use super::call::{Answer, CallEnvironment, CallError, answer};
use super::connection::{Connection, LiveConnection};
use super::running::{CallOff, RunningCall, Wanted};
use super::tasks::{LONGEST, PAUSE, SHORTEST};
use crate::tools::fault::Fault;
use rmcp::model::{ClientRequest, CustomRequest, GetTaskParams, GetTaskRequest, JsonObject};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A task that a server has begun for a call.
pub(super) struct AugmentedTask {
    id: String,
    pause: Option<u64>,
}

/// A call that becomes a task. The library has no such calls any more.
pub(super) fn request(tool: &str, arguments: &JsonObject) -> ClientRequest {
    let parameters = json!({ "name": tool, "arguments": arguments, "task": {} });
    ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(parameters)))
}

impl AugmentedTask {
    /// The task that a server has begun in place of an answer.
    pub(super) fn of(answer: &Value) -> Option<Self> {
        let task = answer.get("task")?;
        Some(Self { id: task["taskId"].as_str()?.to_owned(), pause: task["pollInterval"].as_u64() })
    }

    /// Waits for the end of the task, or for its question to a person. It is called off when the call is to stop.
    pub(super) async fn ends(
        self,
        connection: &Connection,
        live: &Arc<LiveConnection>,
        environment: &CallEnvironment,
    ) -> Result<Answer, CallError> {
        let Self { id, mut pause } = self;
        let server = &connection.name;
        let mut registration = live.handler().open_calls().register(None, Some(id.clone()));
        let mut call_off = CallOff::new(live, Wanted::Task(id.clone()));
        let mut began = Instant::now();
        let mut reported = String::new();
        let question = loop {
            let wait = pause.map_or(PAUSE, Duration::from_millis).clamp(SHORTEST, LONGEST);
            tokio::select! {
                question = registration.question() => break Some(question),
                () = environment.stopped() => return Err(CallError::Final(Fault::stopped())),
                () = sleep(wait) => {}
            }
            began = registration.uncertain_until().map_or(began, |waited| waited.max(began));
            if began.elapsed() >= environment.longest {
                let seconds = environment.longest.as_secs_f64();
                let message = format!(
                    "The MCP server {server:?} did not end the task of this call: after {seconds} seconds it was asked to stop. \
                     It may have taken effect."
                );
                return Err(CallError::Final(Fault::for_model("timed_out", message)));
            }
            let get = ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(id.clone())));
            let state = match super::request::request(connection, get, environment).await {
                Ok(state) => state,
                Err(Fault::ForModel(_, why)) if live.has_ended() => return Err(CallError::AnswerLost(why)),
                Err(Fault::ForModel(_, why)) => {
                    let message = format!(
                        "The MCP server {server:?} has begun a task for this call, and what became of it is not known: {why} It may \
                         go on. Look at what it changed before you repeat the call."
                    );
                    return Err(CallError::Final(Fault::for_model("interrupted", message)));
                }
                Err(fault) => return Err(CallError::Final(fault)),
            };
            pause = state["pollInterval"].as_u64().or(pause);
            if let Some(message) = state["statusMessage"].as_str().filter(|message| *message != reported) {
                environment.report(message);
                reported = message.to_owned();
            }
            match state["status"].as_str() {
                Some("working") => {}
                Some("cancelled") => {
                    call_off.wanted = None;
                    let message = format!("The MCP server {server:?} has called off the task of this call.");
                    return Err(CallError::Final(Fault::for_model("mcp_error", message)));
                }
                _ => break None,
            }
        };
        let result = CustomRequest::new("tasks/result", Some(json!({ "taskId": id })));
        let result = ClientRequest::CustomRequest(result);
        match RunningCall::of_task(live, &id, result, registration, question).await {
            Ok(running) => {
                call_off.wanted = None;
                answer(connection, running, environment).await
            }
            Err(error) => Err(CallError::AnswerLost(connection.describe_failure(&error, live).await)),
        }
    }
}
