//! One request that a server works on: its reports of progress, its questions, its time-outs, and how it is called off.

use super::call::CallEnvironment;
use super::connection::{Connection, LiveConnection};
use super::open_calls::{Registration, ServerQuestion};
use super::request::request;
use crate::tools::fault::Fault;
use rmcp::model::{
    CancelTaskParams, CancelTaskRequest, CancelledNotification, CancelledNotificationParam, ClientRequest,
    GetTaskParams, GetTaskRequest, ProgressNotificationParam, ProgressToken, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// How long to wait for the last report of progress after the answer.
const LAST_REPORT: Duration = Duration::from_millis(20);

type Answered = Result<ServerResult, ServiceError>;

/// A request that has been sent. When it is dropped before its answer, it is called off.
pub(super) struct RunningCall {
    live: Arc<LiveConnection>,
    answer: oneshot::Receiver<Answered>,
    /// The answer, if it came while nobody waited for it.
    early: Option<Answered>,
    token: ProgressToken,
    reports: Receiver<ProgressNotificationParam>,
    registration: Registration,
    /// The question that comes first.
    question: Option<ServerQuestion>,
    call_off: CallOff,
}

/// What comes next of a request.
pub(super) enum CallEvent {
    Answered(Box<Answered>),
    Question(ServerQuestion),
}

impl RunningCall {
    /// Sends a request.
    pub(super) async fn send(live: &Arc<LiveConnection>, request: ClientRequest) -> Result<Self, ServiceError> {
        // Subscribe before the request is sent. A report may come right after it and would be missed.
        let reports = live.handler().progress();
        let calls = live.handler().open_calls();
        let sending = calls.sending().await;
        let sent = live.peer().send_request_with_option(request, PeerRequestOptions::no_options()).await?;
        let registration = calls.register(Some(sent.id.clone()), None);
        drop(sending);
        Ok(Self::of(live, sent, reports, registration))
    }

    /// Asks for the result of a task of the handshake, for a call that is registered already.
    pub(super) async fn of_task(
        live: &Arc<LiveConnection>,
        task: &str,
        request: ClientRequest,
        registration: Registration,
        question: Option<ServerQuestion>,
    ) -> Result<Self, ServiceError> {
        let reports = live.handler().progress();
        let sending = live.handler().open_calls().sending().await;
        let sent = live.peer().send_request_with_option(request, PeerRequestOptions::no_options()).await?;
        registration.set_request(sent.id.clone());
        drop(sending);
        let mut call = Self::of(live, sent, reports, registration);
        call.call_off.wanted = Some(Wanted::Task(task.to_owned()));
        call.question = question;
        Ok(call)
    }

    fn of(
        live: &Arc<LiveConnection>,
        sent: RequestHandle<RoleClient>,
        reports: Receiver<ProgressNotificationParam>,
        registration: Registration,
    ) -> Self {
        let RequestHandle { rx, id, progress_token, .. } = sent;
        let call_off = CallOff::new(live, Wanted::Request(id));
        Self {
            live: live.clone(),
            answer: rx,
            early: None,
            token: progress_token,
            reports,
            registration,
            question: None,
            call_off,
        }
    }

    pub(super) fn live(&self) -> &Arc<LiveConnection> {
        &self.live
    }

    /// Keeps the question that a person is asked now.
    pub(super) fn wait_for_answer(&mut self, question: ServerQuestion) {
        self.call_off.question = Some(question);
    }

    /// Answers that question.
    pub(super) fn reply(&mut self, answer: Value) {
        if let Some(question) = self.call_off.question.take() {
            question.answer(answer);
        }
    }

    /// Calls it off, and waits until that was sent.
    pub(super) async fn end(self) {
        let Self { mut call_off, .. } = self;
        call_off.send().await;
    }

    /// Whether the connection has ended before the request had an answer.
    pub(super) fn is_lost(&mut self) -> bool {
        if self.early.is_none() {
            match self.answer.try_recv() {
                Ok(answered) => self.early = Some(answered),
                Err(oneshot::error::TryRecvError::Closed) => return true,
                Err(oneshot::error::TryRecvError::Empty) => return self.live.has_ended(),
            }
        }
        matches!(&self.early, Some(Err(error)) if !matches!(error, ServiceError::McpError(_)))
    }

    /// Waits for the answer, or for the next question of the server. The time-outs begin anew.
    pub(super) async fn next(
        &mut self,
        connection: &Connection,
        environment: &CallEnvironment,
    ) -> Result<CallEvent, Fault> {
        if let Some(answered) = self.early.take() {
            self.call_off.wanted = None;
            return Ok(CallEvent::Answered(Box::new(answered)));
        }
        if let Some(question) = self.question.take() {
            return Ok(CallEvent::Question(question));
        }
        let (silence, longest) = (connection.config.timeout, environment.longest);
        let mut counted_from = Instant::now();
        let mut silent_until = after(counted_from, silence);
        let mut until = after(counted_from, longest);
        let mut stopped = std::pin::pin!(environment.stopped());
        let mut reached = None;
        let answered = loop {
            let due = silent_until.min(until);
            tokio::select! {
                biased;
                report = next_report(&mut self.reports, &self.token) => {
                    environment.report_progress(&report);
                    reached = Some(report);
                    silent_until = after(Instant::now(), silence);
                }
                answered = &mut self.answer => break answered.unwrap_or(Err(ServiceError::TransportClosed)),
                question = self.registration.question() => return Ok(CallEvent::Question(question)),
                () = &mut stopped => return Err(Fault::stopped()),
                () = sleep_until(due) => {
                    // A person may have been asked for this call under another one.
                    let waited_until = self.registration.uncertain_until().filter(|&waited| waited > counted_from);
                    if let Some(waited) = waited_until {
                        counted_from = waited;
                        (silent_until, until) = (after(waited, silence), after(waited, longest));
                    } else if due < until && self.goes_on(connection, environment).await {
                        silent_until = after(Instant::now(), silence);
                    } else {
                        let timeout = if due < until { silence } else { longest };
                        return Ok(CallEvent::Answered(Box::new(Err(ServiceError::Timeout { timeout }))));
                    }
                }
            }
        };
        self.call_off.wanted = None;
        // Answers and reports come over different channels, so the last report may arrive a moment after the answer.
        if reached.is_some_and(|report| report.total.is_none_or(|total| report.progress < total))
            && let Ok(report) = timeout(LAST_REPORT, next_report(&mut self.reports, &self.token)).await
        {
            environment.report_progress(&report);
        }
        Ok(CallEvent::Answered(Box::new(answered)))
    }

    /// Whether the task that the request waits for is being worked on, though nothing is heard of it.
    async fn goes_on(&self, connection: &Connection, environment: &CallEnvironment) -> bool {
        let Some(Wanted::Task(task)) = &self.call_off.wanted else { return false };
        let get = ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(task.clone())));
        let state = request(connection, get, environment).await.unwrap_or(Value::Null);
        matches!(state["status"].as_str(), Some("working" | "input_required"))
    }
}

/// The end of a span. Nothing lasts longer than a year.
fn after(begin: Instant, span: Duration) -> Instant {
    begin + span.min(Duration::from_secs(365 * 24 * 3_600))
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

/// Calls off what a server works on, when it is dropped before that has ended.
pub(super) struct CallOff {
    peer: Peer<RoleClient>,
    pub wanted: Option<Wanted>,
    /// What a person is asked meanwhile. The server learns that nobody answers when it knows that the call is called off.
    question: Option<ServerQuestion>,
}

/// What a server works on.
pub(super) enum Wanted {
    Request(RequestId),
    /// A task of the handshake.
    Task(String),
}

impl CallOff {
    pub(super) fn new(live: &LiveConnection, wanted: Wanted) -> Self {
        Self { peer: live.peer().clone(), wanted: Some(wanted), question: None }
    }

    async fn send(&mut self) {
        match self.wanted.take() {
            Some(Wanted::Request(id)) => {
                let reason = "the call is not wanted any more".to_owned();
                let parameters = CancelledNotificationParam::new(Some(id), Some(reason));
                let _ = self.peer.send_notification(CancelledNotification::new(parameters).into()).await;
            }
            Some(Wanted::Task(id)) => {
                let cancel = CancelTaskRequest::new(CancelTaskParams::new(id));
                let _ = self.peer.send_request(ClientRequest::CancelTaskRequest(cancel)).await;
            }
            None => {}
        }
        self.question = None;
    }
}

impl Drop for CallOff {
    fn drop(&mut self) {
        let Some(wanted) = self.wanted.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut again = Self { peer: self.peer.clone(), wanted: Some(wanted), question: self.question.take() };
        runtime.spawn(async move { again.send().await });
    }
}
