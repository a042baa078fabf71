//! One call of a server's tool: sends it, reports its progress, cancels it, and sends it again only if that is allowed.

use super::connection::{ConnectFailure, Connection, LiveConnection, Unavailable, is_unsent};
use super::parsing::is_unreadable;
use super::sampling::Sampler;
use super::tasks::ServerTask;
use crate::tools::fault::Fault;
use crate::tools::{StopSignal, Stream, TerminalEvent, TerminalSink, ToolEnvironment};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification, CancelledNotificationParam,
    ClientRequest, InputRequiredResult, InputResponses, JsonObject, ProgressNotificationParam, ProgressToken,
    RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// How often the stop signal is checked.
const TICK: Duration = Duration::from_millis(20);
/// How often a call whose answer was lost is sent at most, and how often a connection is tried at most.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt. The pause before the third is twice as long.
const BACKOFF: Duration = Duration::from_millis(250);
/// How long to wait for the last report of progress after the answer.
const LAST_REPORT: Duration = Duration::from_millis(20);
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
}

/// What a server asks before a call goes on.
pub(super) struct PendingInput {
    pub required: InputRequiredResult,
    /// The answers to what it asked besides.
    pub given: InputResponses,
    /// The task of the server that goes on with the answers, in place of the call.
    pub task: Option<String>,
}

/// Why a request has no answer.
enum CallError {
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

    fn report_progress(&self, progress: &ProgressNotificationParam) {
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

/// Makes a call.
pub(super) async fn call(
    connection: &Connection,
    mut request: ToolRequest,
    environment: &CallEnvironment,
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
        match send(connection, &live, &request, environment).await {
            Ok(Answer::InputRequired(asked)) => {
                let mut again = asked.required;
                let given = without_a_person(connection, &mut again).await?;
                if again.input_requests.as_ref().is_some_and(|asks| !asks.is_empty()) {
                    return Ok(Answer::InputRequired(Box::new(PendingInput { required: again, given, task: None })));
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
    let mut parameters = CallToolRequestParams::new(request.tool.clone()).with_arguments(request.arguments.clone());
    parameters.input_responses.clone_from(&request.responses);
    parameters.request_state.clone_from(&request.state);
    let mut options = PeerRequestOptions::with_timeout(connection.config.timeout).reset_timeout_on_progress();
    options.max_total_timeout = Some(environment.longest);
    // Subscribe before the request is sent. A report may come right after it and would be missed.
    let mut reports = live.handler().progress();
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(parameters));
    let sent = live.peer().send_request_with_option(request, options).await;
    let sent = match sent {
        Ok(sent) => sent,
        Err(error) => return Err(CallError::NotSent(connection.describe_failure(&error, live).await)),
    };
    let token = sent.progress_token.clone();
    let mut open = CancelOnDrop { peer: live.peer().clone(), id: Some(sent.id.clone()) };
    let mut answer = std::pin::pin!(sent.await_response());
    let mut stopped = std::pin::pin!(environment.stopped());
    let mut reached = None;
    let answered = loop {
        tokio::select! {
            biased;
            report = next_report(&mut reports, &token) => {
                environment.report_progress(&report);
                reached = Some(report);
            }
            answered = &mut answer => break answered,
            () = &mut stopped => return Err(CallError::Final(Fault::stopped())),
        }
    };
    open.id = None;
    if connection.about().tells_of_tools {
        connection.tool_list.note_answer();
    }
    // Answers and reports come over different channels, so the last report may arrive a moment after the answer.
    if reached.is_some_and(|report| report.total.is_none_or(|total| report.progress < total))
        && let Ok(report) = timeout(LAST_REPORT, next_report(&mut reports, &token)).await
    {
        environment.report_progress(&report);
    }
    match answered {
        Ok(ServerResult::CallToolResult(result)) => Ok(Answer::Result(Box::new(result))),
        Ok(ServerResult::InputRequiredResult(required)) => {
            Ok(Answer::InputRequired(Box::new(PendingInput { required, given: InputResponses::new(), task: None })))
        }
        Ok(ServerResult::CreateTaskResult(begun)) => Ok(Answer::Task(begun.task.task_id, begun.task.poll_interval_ms)),
        Ok(other) => match serde_json::to_value(other).ok().and_then(super::outcome::lenient_result) {
            Some(result) => Ok(Answer::Result(Box::new(result))),
            None => Err(CallError::Final(Fault::for_model(
                "mcp_error",
                format!(
                    "The MCP server {:?} answered this call with something that is no result of a tool.",
                    connection.name
                ),
            ))),
        },
        Err(error) => Err(call_error(connection, live, error).await),
    }
}

/// The next report of progress of a request. It never resolves if the connection has ended.
async fn next_report(
    reports: &mut Receiver<ProgressNotificationParam>,
    token: &ProgressToken,
) -> ProgressNotificationParam {
    loop {
        match reports.recv().await {
            Ok(report) if report.progress_token == *token => return report,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
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

/// Cancels a request when it is dropped before its answer.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = "the call is not wanted any more".to_owned();
            let parameters = CancelledNotificationParam::new(Some(id), Some(reason));
            let _ = peer.send_notification(CancelledNotification::new(parameters).into()).await;
        });
    }
}
