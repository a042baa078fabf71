//! One call of a server's tool: sends it, reports its progress, cancels it, and sends it again only if that is allowed.

use super::augmented::{self, AugmentedTask};
use super::connection::{ConnectFailure, Connection, LiveConnection, Unavailable, is_unsent};
use super::parsing::is_unreadable;
use super::running::{CallEvent, RunningCall};
use super::sampling::Sampler;
use super::tasks::ServerTask;
use crate::tools::fault::Fault;
use crate::tools::{StopSignal, Stream, TerminalEvent, TerminalSink, ToolEnvironment};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, InputRequiredResult, InputResponses,
    JsonObject, ProgressNotificationParam, ServerResult,
};
use rmcp::service::ServiceError;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often the stop signal is checked.
const TICK: Duration = Duration::from_millis(20);
/// How often a call whose answer was lost is sent at most, and how often a connection is tried at most.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt. The pause before the third is twice as long.
const BACKOFF: Duration = Duration::from_millis(250);
/// How often a server may request the call again without asking a person.
const MAX_REQUERIES: u32 = 10;

/// A call of a tool.
#[derive(Clone)]
pub(super) struct ToolRequest {
    /// The tool's name at its server.
    pub tool: String,
    pub arguments: JsonObject,
    /// The answers of a person, if this continues a call.
    pub responses: Option<InputResponses>,
    /// The server's state, sent back unchanged.
    pub state: Option<String>,
    /// The task of the server that the responses are for, in place of a new call.
    pub task: Option<String>,
    /// Whether it may be sent again if its answer is lost.
    pub may_repeat: bool,
}

/// The environment of a call.
pub(super) struct CallEnvironment {
    pub stop: Option<StopSignal>,
    pub terminal: Option<TerminalSink>,
    /// How long it may take at most, whatever progress it reports.
    pub longest: Duration,
}

/// The answer of a server.
pub(super) enum Answer {
    Result(Box<CallToolResult>),
    /// It asks a person for input first.
    InputRequired(Box<PendingInput>),
    /// It works on a task; its id, and the pause until its state should be asked for.
    Task(String, Option<u64>),
    /// The same with the handshake, where tasks are others.
    AugmentedTask(AugmentedTask),
}

/// What a server asks before a call goes on.
pub(super) struct PendingInput {
    pub required: InputRequiredResult,
    /// The answers to what it asked besides.
    pub given: InputResponses,
    /// The task of the server that goes on with the answers, in place of the call.
    pub task: Option<String>,
    /// The call that waits in this process, in place of all that.
    pub open: Option<OpenQuestion>,
}

/// What a server of the handshake asks in the middle of a call.
pub(super) struct OpenQuestion {
    /// The call that waits for the answer.
    pub token: String,
    pub method: &'static str,
    pub parameters: Value,
}

impl PendingInput {
    /// What a call has ended with.
    pub(super) fn new(required: InputRequiredResult) -> Self {
        Self { required, given: InputResponses::new(), task: None, open: None }
    }
}

/// Why a request has no answer.
pub(super) enum CallError {
    /// It did not reach the server.
    NotSent(String),
    /// It may have reached the server, which may have executed it.
    AnswerLost(String),
    /// The server answered with an error, or the call was stopped.
    Final(Fault),
}

impl CallEnvironment {
    pub(super) fn of(environment: &ToolEnvironment) -> Self {
        let (stop, terminal) = (environment.stop.clone(), environment.terminal.clone());
        Self { stop, terminal, longest: environment.limits.longest }
    }

    /// The environment of a request that nobody stops.
    pub(super) fn alone() -> Self {
        Self { stop: None, terminal: None, longest: Duration::MAX }
    }

    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop())
    }

    /// Resolves when the call is to stop.
    pub(super) async fn stopped(&self) {
        if self.stop.is_none() {
            std::future::pending::<()>().await;
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.is_stopped() {
            ticks.tick().await;
        }
    }

    /// Reports what a server says about its work.
    pub(super) fn report(&self, message: &str) {
        if let Some(terminal) = &self.terminal {
            terminal(TerminalEvent { stream: Stream::Stderr, data: format!("{}\n", super::outcome::clean(message)) });
        }
    }

    pub(super) fn report_progress(&self, progress: &ProgressNotificationParam) {
        let Some(terminal) = &self.terminal else { return };
        let reached = progress.progress;
        let mut data = match progress.total {
            Some(total) => format!("[{reached}/{total}]"),
            None => format!("[{reached}]"),
        };
        if let Some(message) = &progress.message {
            data.push(' ');
            data.push_str(&super::outcome::clean(message));
        }
        data.push('\n');
        terminal(TerminalEvent { stream: Stream::Stderr, data });
    }
}

/// Makes a call, or goes on with one that has waited for a person.
pub(super) async fn call(
    connection: &Connection,
    mut request: ToolRequest,
    environment: &CallEnvironment,
    mut waited: Option<RunningCall>,
) -> Result<Answer, Fault> {
    let fault = |code, why: &str| {
        let server = &connection.name;
        let message = match code {
            "unavailable" => format!("The MCP server {server:?} cannot be used, so the call was not made: {why}."),
            _ => format!(
                "Interrupted after start, outcome unknown: the connection to the MCP server {server:?} ended while it worked on \
                 this call ({why}). It was not sent again, for it may have taken effect. Look at what it changed before you \
                 repeat it."
            ),
        };
        Fault::for_model(code, message)
    };
    if let Some(id) = request.task {
        let mut task = ServerTask::new(connection, id, environment);
        task.update(request.responses.unwrap_or_default()).await?;
        return task.ends(None).await;
    }
    let mut requeries = 0;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let is_last = attempt >= ATTEMPTS;
        let (live, mut answered) = match waited.take() {
            Some(running) => (running.live().clone(), answer(connection, running, environment).await),
            None => {
                let live = tokio::select! {
                    live = connection.live() => live,
                    () = environment.stopped() => return Err(Fault::stopped()),
                };
                let live = match live {
                    Ok(live) => live,
                    Err(Unavailable { kind: ConnectFailure::Unreachable, .. }) if !is_last => {
                        pause(attempt, environment).await?;
                        continue;
                    }
                    Err(unavailable) => return Err(fault("unavailable", &unavailable.why)),
                };
                let answered = send(connection, &live, &request, environment).await;
                (live, answered)
            }
        };
        if let Ok(Answer::AugmentedTask(task)) = answered {
            answered = task.ends(connection, &live, environment).await;
        }
        match answered {
            Ok(Answer::InputRequired(asked)) if asked.open.is_none() => {
                let mut again = asked.required;
                let given = without_a_person(connection, &mut again).await?;
                if again.input_requests.as_ref().is_some_and(|asks| !asks.is_empty()) {
                    let asked = PendingInput { given, ..PendingInput::new(again) };
                    return Ok(Answer::InputRequired(Box::new(asked)));
                }
                requeries += 1;
                if requeries > MAX_REQUERIES {
                    let message = format!("The MCP server {:?} asked for this call again and again.", connection.name);
                    return Err(Fault::for_model("mcp_error", message));
                }
                (request.state, request.responses) = (again.request_state, (!given.is_empty()).then_some(given));
                attempt = 0;
                pause(requeries, environment).await?;
            }
            Ok(Answer::Task(id, pause)) => return ServerTask::new(connection, id, environment).ends(pause).await,
            Ok(answer) => return Ok(answer),
            Err(CallError::Final(fault)) => return Err(fault),
            Err(CallError::NotSent(why)) => {
                connection.forget(&live).await;
                if is_last {
                    return Err(fault("unavailable", &why));
                }
                pause(attempt, environment).await?;
            }
            Err(CallError::AnswerLost(why)) => {
                connection.forget(&live).await;
                if is_last || !request.may_repeat {
                    return Err(fault("interrupted", &why));
                }
                pause(attempt, environment).await?;
            }
        }
    }
}

/// Takes out the requests that need no person, and returns their answers.
pub(super) async fn without_a_person(
    connection: &Connection,
    required: &mut InputRequiredResult,
) -> Result<InputResponses, Fault> {
    let mut given = InputResponses::new();
    let sampler = connection.sampler().filter(|sampler| !sampler.config.asks);
    let mut others = rmcp::model::InputRequests::new();
    for (key, asked) in required.input_requests.take().unwrap_or_default() {
        let written = serde_json::to_value(&asked).unwrap_or_default();
        match (written["method"].as_str(), sampler) {
            (Some("roots/list"), _) if !connection.roots().is_empty() => {
                given.insert(key, connection.roots().listed());
            }
            (Some("sampling/createMessage"), Some(sampler)) => {
                given.insert(key, sampled(&connection.name, sampler, &written["params"]).await?);
            }
            _ => {
                others.insert(key, asked);
            }
        }
    }
    required.input_requests = Some(others);
    Ok(given)
}

/// The answer of a model that a server asks in the middle of a call.
pub(super) async fn sampled(server: &str, sampler: &Sampler, parameters: &Value) -> Result<Value, Fault> {
    sampler.answer(parameters).await.map_err(|why| {
        let message =
            format!("The MCP server {server:?} asks a model in the middle of this call, which went no further: {why}.");
        Fault::for_model("mcp_error", message)
    })
}

async fn pause(attempt: u32, environment: &CallEnvironment) -> Result<(), Fault> {
    tokio::select! {
        () = sleep(BACKOFF * attempt) => Ok(()),
        () = environment.stopped() => Err(Fault::stopped()),
    }
}

/// Sends a request and waits for its answer.
async fn send(
    connection: &Connection,
    live: &Arc<LiveConnection>,
    request: &ToolRequest,
    environment: &CallEnvironment,
) -> Result<Answer, CallError> {
    let written = match live.speaks_handshake() && connection.tool_list.needs_task(&request.tool) {
        true => augmented::request(&request.tool, &request.arguments),
        false => {
            let parameters = CallToolRequestParams::new(request.tool.clone());
            let mut parameters = parameters.with_arguments(request.arguments.clone());
            parameters.input_responses.clone_from(&request.responses);
            parameters.request_state.clone_from(&request.state);
            ClientRequest::CallToolRequest(CallToolRequest::new(parameters))
        }
    };
    match RunningCall::send(live, written).await {
        Ok(running) => answer(connection, running, environment).await,
        Err(error) => Err(CallError::NotSent(connection.describe_failure(&error, live).await)),
    }
}

/// Waits for the answer of a request, or for its next question to a person.
pub(super) async fn answer(
    connection: &Connection,
    mut running: RunningCall,
    environment: &CallEnvironment,
) -> Result<Answer, CallError> {
    let answered = match running.next(connection, environment).await.map_err(CallError::Final)? {
        CallEvent::Answered(answered) => *answered,
        CallEvent::Question(question) => {
            let (method, parameters) = (question.method, question.parameters.clone());
            running.wait_for_answer(question);
            let token = connection.parked.park(running);
            let open = Some(OpenQuestion { token, method, parameters });
            let asked = PendingInput { open, ..PendingInput::new(InputRequiredResult::new(None, None)) };
            return Ok(Answer::InputRequired(Box::new(asked)));
        }
    };
    if connection.about().tells_of_tools {
        connection.tool_list.note_answer();
    }
    match answered {
        Ok(ServerResult::CallToolResult(result)) => Ok(Answer::Result(Box::new(result))),
        Ok(ServerResult::InputRequiredResult(required)) => {
            Ok(Answer::InputRequired(Box::new(PendingInput::new(required))))
        }
        Ok(ServerResult::CreateTaskResult(begun)) => Ok(Answer::Task(begun.task.task_id, begun.task.poll_interval_ms)),
        Ok(other) => {
            let other = serde_json::to_value(other).unwrap_or_default();
            if let Some(task) = AugmentedTask::of(&other).filter(|_| running.live().speaks_handshake()) {
                return Ok(Answer::AugmentedTask(task));
            }
            match super::outcome::lenient_result(other) {
                Some(result) => Ok(Answer::Result(Box::new(result))),
                None => Err(CallError::Final(Fault::for_model(
                    "mcp_error",
                    format!(
                        "The MCP server {:?} answered this call with something that is no result of a tool.",
                        connection.name
                    ),
                ))),
            }
        }
        Err(error) => Err(call_error(connection, running.live(), error).await),
    }
}

/// The error of a call, by the error of its request.
async fn call_error(connection: &Connection, live: &LiveConnection, error: ServiceError) -> CallError {
    let server = &connection.name;
    match &error {
        ServiceError::McpError(error) if is_unreadable(error) => {
            let why = connection.redact(&error.message);
            CallError::Final(Fault::for_model(
                "mcp_error",
                format!(
                    "The MCP server {server:?} answered this call, and its answer cannot be read: {why}. The call may have taken \
                     effect."
                ),
            ))
        }
        ServiceError::McpError(error) => {
            let message = connection.redact(&error.message);
            let code = error.code.0;
            CallError::Final(Fault::for_model(
                "mcp_error",
                format!("The MCP server {server:?} answered with the error {code}: {message}"),
            ))
        }
        ServiceError::Timeout { timeout } => CallError::Final(Fault::for_model(
            "timed_out",
            format!(
                "The MCP server {server:?} did not answer this call: after {} seconds it was asked to stop. It may have taken \
                 effect.",
                timeout.as_secs_f64()
            ),
        )),
        ServiceError::TransportSend(transport) if is_unsent(transport) => {
            CallError::NotSent(connection.describe_failure(&error, live).await)
        }
        _ => CallError::AnswerLost(connection.describe_failure(&error, live).await),
    }
}
