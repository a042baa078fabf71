//! One call of a server's tool: sent, waited for with its progress, called off, and sent again only where that is allowed.

use super::connection::{Absence, Connection, Live, Unavailable, is_unsent};
use super::reading::is_unreadable;
use crate::tools::fault::Fault;
use crate::tools::{StopSignal, Stream, TerminalEvent, TerminalSink, ToolEnvironment};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification, CancelledNotificationParam,
    ClientRequest, InputRequiredResult, InputResponses, JsonObject, ProgressNotificationParam, ProgressToken,
    RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// How often it is asked whether the call shall stop.
const TICK: Duration = Duration::from_millis(20);
/// How often a call is sent at most where its answer was lost, or a connection tried.
const ATTEMPTS: u32 = 3;
/// How long the second attempt waits; the third twice as long.
const BACKOFF: Duration = Duration::from_millis(250);
/// How long the last report of progress may come after the answer.
const LAST_REPORT: Duration = Duration::from_millis(20);
/// How often a server may ask for the call again without a question to a person.
const ROUNDS: u32 = 10;

/// What is called.
#[derive(Clone)]
pub(super) struct Asked {
    /// The tool's name at its server.
    pub tool: String,
    pub arguments: JsonObject,
    /// What people answered, where this goes on with a call.
    pub responses: Option<InputResponses>,
    /// What the server wants back, unchanged.
    pub state: Option<String>,
    /// Whether it may be sent again where its answer was lost.
    pub may_repeat: bool,
}

/// What surrounds a call.
pub(super) struct Scene {
    pub stop: Option<StopSignal>,
    pub terminal: Option<TerminalSink>,
    /// How long it may take whatever progress it reports.
    pub longest: Duration,
}

/// What a server answers.
pub(super) enum Answer {
    Result(Box<CallToolResult>),
    /// It asks a person first.
    InputRequired(InputRequiredResult),
}

/// Why a request has no answer.
enum Unanswered {
    /// It did not reach the server.
    Unsent(String),
    /// It may have, and the server may have done it.
    Lost(String),
    /// That is the answer, or the end.
    Final(Fault),
}

impl Scene {
    pub fn of(environment: &ToolEnvironment) -> Self {
        let (stop, terminal) = (environment.stop.clone(), environment.terminal.clone());
        Self { stop, terminal, longest: environment.limits.longest }
    }

    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop())
    }

    /// Ends when the call shall stop.
    async fn stopped(&self) {
        if self.stop.is_none() {
            std::future::pending::<()>().await;
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.is_stopped() {
            ticks.tick().await;
        }
    }

    fn tell(&self, progress: &ProgressNotificationParam) {
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
pub(super) async fn call(connection: &Connection, mut asked: Asked, scene: &Scene) -> Result<Answer, Fault> {
    let told = |code, why: &str| {
        let server = &connection.name;
        let message = match code {
            "unavailable" => format!("The MCP server {server:?} cannot be used, so the call was not made: {why}."),
            _ => format!(
                "Interrupted after start, outcome unknown: the connection to the MCP server {server:?} ended while it worked on \
                 this call ({why}). It was not sent again, for it may have taken effect. Look at what it changed before you \
                 repeat it."
            ),
        };
        Fault::told(code, message)
    };
    let mut rounds = 0;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let is_last = attempt >= ATTEMPTS;
        let live = tokio::select! {
            live = connection.live() => live,
            () = scene.stopped() => return Err(Fault::stopped()),
        };
        let live = match live {
            Ok(live) => live,
            Err(Unavailable { kind: Absence::Unreachable, .. }) if !is_last => {
                pause(attempt, scene).await?;
                continue;
            }
            Err(unavailable) => return Err(told("unavailable", &unavailable.why)),
        };
        match request(connection, &live, &asked, scene).await {
            Ok(Answer::InputRequired(again)) if again.input_requests.as_ref().is_none_or(|asks| asks.is_empty()) => {
                rounds += 1;
                if rounds > ROUNDS {
                    let message = format!("The MCP server {:?} asked for this call again and again.", connection.name);
                    return Err(Fault::told("mcp_error", message));
                }
                (asked.state, asked.responses) = (again.request_state, None);
                attempt = 0;
                pause(rounds, scene).await?;
            }
            Ok(answer) => return Ok(answer),
            Err(Unanswered::Final(fault)) => return Err(fault),
            Err(Unanswered::Unsent(why)) => {
                connection.forget(&live).await;
                if is_last {
                    return Err(told("unavailable", &why));
                }
                pause(attempt, scene).await?;
            }
            Err(Unanswered::Lost(why)) => {
                connection.forget(&live).await;
                if is_last || !asked.may_repeat {
                    return Err(told("interrupted", &why));
                }
                pause(attempt, scene).await?;
            }
        }
    }
}

async fn pause(attempt: u32, scene: &Scene) -> Result<(), Fault> {
    tokio::select! {
        () = sleep(BACKOFF * attempt) => Ok(()),
        () = scene.stopped() => Err(Fault::stopped()),
    }
}

/// Sends a request and waits for its answer.
async fn request(
    connection: &Connection,
    live: &Arc<Live>,
    asked: &Asked,
    scene: &Scene,
) -> Result<Answer, Unanswered> {
    let mut parameters = CallToolRequestParams::new(asked.tool.clone()).with_arguments(asked.arguments.clone());
    parameters.input_responses.clone_from(&asked.responses);
    parameters.request_state.clone_from(&asked.state);
    let mut options = PeerRequestOptions::with_timeout(connection.config.timeout).reset_timeout_on_progress();
    options.max_total_timeout = Some(scene.longest);
    // Before the request, so that no report is missed.
    let mut reports = live.handler().progress();
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(parameters));
    let sent = live.peer().send_request_with_option(request, options).await;
    let sent = match sent {
        Ok(sent) => sent,
        Err(error) => return Err(Unanswered::Unsent(connection.tell_failure(&error, live).await)),
    };
    let token = sent.progress_token.clone();
    let mut open = Open { peer: live.peer().clone(), id: Some(sent.id.clone()) };
    let mut answer = std::pin::pin!(sent.await_response());
    let mut stopped = std::pin::pin!(scene.stopped());
    let mut reached = None;
    let answered = loop {
        tokio::select! {
            biased;
            report = next_report(&mut reports, &token) => {
                scene.tell(&report);
                reached = Some(report);
            }
            answered = &mut answer => break answered,
            () = &mut stopped => return Err(Unanswered::Final(Fault::stopped())),
        }
    };
    open.id = None;
    // Answers and reports are handed over side by side, so that the last report may come a moment after the answer.
    if reached.is_some_and(|report| report.total.is_none_or(|total| report.progress < total))
        && let Ok(report) = timeout(LAST_REPORT, next_report(&mut reports, &token)).await
    {
        scene.tell(&report);
    }
    match answered {
        Ok(ServerResult::CallToolResult(result)) => Ok(Answer::Result(Box::new(result))),
        Ok(ServerResult::InputRequiredResult(required)) => Ok(Answer::InputRequired(required)),
        Ok(other) => match serde_json::to_value(other).ok().and_then(super::outcome::as_meant) {
            Some(result) => Ok(Answer::Result(Box::new(result))),
            None => Err(Unanswered::Final(Fault::told(
                "mcp_error",
                format!(
                    "The MCP server {:?} answered this call with something that is no result of a tool.",
                    connection.name
                ),
            ))),
        },
        Err(error) => Err(unanswered(connection, live, error).await),
    }
}

/// The next report of progress of a request; it never comes where the connection has ended.
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

/// What an error of a request means for the call.
async fn unanswered(connection: &Connection, live: &Live, error: ServiceError) -> Unanswered {
    let server = &connection.name;
    match &error {
        ServiceError::McpError(told) if is_unreadable(told) => {
            let why = connection.tell(&told.message);
            Unanswered::Final(Fault::told(
                "mcp_error",
                format!(
                    "The MCP server {server:?} answered this call, and its answer cannot be read: {why}. The call may have taken \
                     effect."
                ),
            ))
        }
        ServiceError::McpError(told) => {
            let said = connection.tell(&told.message);
            let code = told.code.0;
            Unanswered::Final(Fault::told(
                "mcp_error",
                format!("The MCP server {server:?} answered with the error {code}: {said}"),
            ))
        }
        ServiceError::Timeout { timeout } => Unanswered::Final(Fault::told(
            "timed_out",
            format!(
                "The MCP server {server:?} did not answer this call: after {} seconds it was asked to stop. It may have taken \
                 effect.",
                timeout.as_secs_f64()
            ),
        )),
        ServiceError::TransportSend(transport) if is_unsent(transport) => {
            Unanswered::Unsent(connection.tell_failure(&error, live).await)
        }
        _ => Unanswered::Lost(connection.tell_failure(&error, live).await),
    }
}

/// A request that is called off when nobody waits for it any more.
struct Open {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Open {
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
