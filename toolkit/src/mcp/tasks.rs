//! Tasks of servers: a server may answer a call with a task, on which it works while the client asks for its state now and
//! then. The task outlives the connection. Where it asks a person, the call ends with the questions and the task's id, and
//! goes on from there.

use super::call::{Answer, CallEnvironment, PendingInput, without_a_person};
use super::connection::Connection;
use super::outcome::lenient_result;
use super::request::request;
use crate::tools::fault::Fault;
use rmcp::model::{
    CancelTaskParams, CancelTaskRequest, ClientRequest, GetTaskParams, GetTaskRequest, InputRequests,
    InputRequiredResult, InputResponses, UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The pause between two questions for the state unless the server says one, and its bounds.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const SHORTEST: Duration = Duration::from_millis(50);
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// How many questions in a row may stay without an answer.
const MAX_LOST: u32 = 5;

/// A task that a server has begun for a call.
pub(super) struct ServerTask<'a> {
    connection: &'a Connection,
    id: String,
    environment: &'a CallEnvironment,
    /// The requests of the server that were answered. Until it has taken the answers, it may show them again.
    answered: BTreeSet<String>,
}

impl<'a> ServerTask<'a> {
    pub(super) fn new(connection: &'a Connection, id: String, environment: &'a CallEnvironment) -> Self {
        Self { connection, id, environment, answered: BTreeSet::new() }
    }

    /// Gives the server answers that it waits for.
    pub(super) async fn update(&mut self, given: InputResponses) -> Result<(), Fault> {
        self.answered.extend(given.keys().cloned());
        let parameters = UpdateTaskParams::new(self.id.clone(), given);
        let update = ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(parameters));
        request(self.connection, update, self.environment).await.map(drop)
    }

    /// Waits for the end of the task, or for its questions to a person. It is called off when the call is to stop.
    pub(super) async fn ends(mut self, first_pause: Option<u64>) -> Result<Answer, Fault> {
        let ended = self.follow(first_pause).await;
        if matches!(&ended, Err(Fault::Machine(_) | Fault::ForModel("timed_out", _))) {
            let cancel = CancelTaskRequest::new(CancelTaskParams::new(self.id.clone()));
            let cancel = ClientRequest::CancelTaskRequest(cancel);
            let _ = request(self.connection, cancel, &CallEnvironment::alone()).await;
        }
        ended
    }

    async fn follow(&mut self, first_pause: Option<u64>) -> Result<Answer, Fault> {
        let server = &self.connection.name;
        let began = Instant::now();
        let (mut pause, mut lost, mut reported) = (first_pause, 0, String::new());
        loop {
            let wait = pause.map_or(PAUSE, Duration::from_millis).clamp(SHORTEST, LONGEST);
            tokio::select! {
                () = sleep(wait) => {}
                () = self.environment.stopped() => return Err(Fault::stopped()),
            }
            if began.elapsed() >= self.environment.longest {
                let seconds = self.environment.longest.as_secs_f64();
                let message = format!(
                    "The MCP server {server:?} did not end the task of this call: after {seconds} seconds it was asked to stop. \
                     It may have taken effect."
                );
                return Err(Fault::for_model("timed_out", message));
            }
            let get = ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(self.id.clone())));
            let mut state = match request(self.connection, get, self.environment).await {
                Ok(state) => state,
                Err(Fault::ForModel("unavailable", _)) if lost < MAX_LOST => {
                    lost += 1;
                    continue;
                }
                Err(Fault::ForModel(_, why)) => {
                    let message = format!(
                        "The MCP server {server:?} has begun a task for this call, and what became of it is not known: {why} It may \
                         go on. Look at what it changed before you repeat the call."
                    );
                    return Err(Fault::for_model("interrupted", message));
                }
                Err(fault) => return Err(fault),
            };
            lost = 0;
            pause = state["pollIntervalMs"].as_u64().or(pause);
            if let Some(message) = state["statusMessage"].as_str().filter(|message| *message != reported) {
                self.environment.report(message);
                reported = message.to_owned();
            }
            match state["status"].as_str() {
                Some("completed") => return self.result(state["result"].take()),
                Some("failed") => {
                    let error = &state["error"];
                    let message = error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
                    let message = self.connection.redact(&message);
                    let message = format!("The task of this call has failed at the MCP server {server:?}: {message}");
                    return Err(Fault::for_model("mcp_error", message));
                }
                Some("cancelled") => {
                    let message = format!("The MCP server {server:?} has called off the task of this call.");
                    return Err(Fault::for_model("mcp_error", message));
                }
                Some("input_required") => {
                    if let Some(answer) = self.answer(state["inputRequests"].take()).await? {
                        return Ok(answer);
                    }
                }
                _ => {}
            }
        }
    }

    fn result(&self, result: Value) -> Result<Answer, Fault> {
        match lenient_result(result) {
            Some(result) => Ok(Answer::Result(Box::new(result))),
            None => {
                let server = &self.connection.name;
                let message =
                    format!("The task of the MCP server {server:?} ended with something that is no result of a tool.");
                Err(Fault::for_model("mcp_error", message))
            }
        }
    }

    /// Answers what needs no person, and returns what does.
    async fn answer(&mut self, requests: Value) -> Result<Option<Answer>, Fault> {
        let mut requests: InputRequests = serde_json::from_value(requests).unwrap_or_default();
        requests.retain(|key, _| !self.answered.contains(key));
        if requests.is_empty() {
            return Ok(None);
        }
        let mut required = InputRequiredResult::new(Some(requests), None);
        let given = without_a_person(self.connection, &mut required).await?;
        if required.input_requests.as_ref().is_some_and(|requests| !requests.is_empty()) {
            let task = Some(self.id.clone());
            let asked = PendingInput { given, task, ..PendingInput::new(required) };
            return Ok(Some(Answer::InputRequired(Box::new(asked))));
        }
        self.update(given).await?;
        Ok(None)
    }
}
