//! A server that is a child process. It is started in its own process group, connected by pipes, and ended together
//! with all its children.

use super::lines::Lines;
use super::parsing::{stray, unreadable};
use super::secrets::Secrets;
use crate::tools::process::{ProcessGroup, StderrTail};
use flovyn_core::error::{Code, Error, Result};
use rmcp::RoleClient;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::Empty;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep_until};

/// The variables that a server inherits. It must not get the keys of this process for other services.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TERM",
    "TMPDIR",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
/// How long a server may take to end after its input was closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// How long the answer to a request is waited for after one came under an unknown id.
const STRAY_WAIT: Duration = Duration::from_secs(2);
/// How many bytes of the end of standard error are kept.
const MAX_STDERR_TAIL: usize = 2 * 1024;

/// The pipes to the process of a server. When this is dropped, the process group is killed.
pub(super) struct StdioTransport {
    input: AsyncRwTransport<RoleClient, Empty, ChildStdin>,
    output: Lines<ChildStdout>,
    /// The requests that wait for an answer.
    open: Vec<RequestId>,
    /// The highest number that a request has had.
    last: i64,
    stray: Option<StrayAnswer>,
    process: ProcessGroup,
}

/// An answer under an id that no request has ever had, when one request only waited for an answer.
struct StrayAnswer {
    /// That request. It fails unless its own answer comes soon.
    request: RequestId,
    until: Instant,
    why: String,
}

impl StdioTransport {
    /// Starts a server.
    pub(super) fn start(
        command: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        cwd: Option<&Path>,
        secrets: &Secrets,
    ) -> Result<(Self, StderrTail)> {
        let inherited = INHERITED.iter().filter_map(|&name| Some((name, std::env::var_os(name)?)));
        let mut prepared = Command::new(command);
        prepared.args(args).env_clear().envs(inherited).envs(env).process_group(0).kill_on_drop(true);
        prepared.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(cwd) = cwd {
            prepared.current_dir(cwd);
        }
        let failed = |why: String| {
            let message = format!(
                "the program {command:?} could not be started: {why}; install it, or correct its command or cwd"
            );
            Error::new(Code::TaskFailed, message)
        };
        let mut child = prepared.spawn().map_err(|error| failed(error.to_string()))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = ProcessGroup::of(child);
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("it has no pipes".into()));
        };
        let stderr_tail = StderrTail::new(MAX_STDERR_TAIL);
        let secrets = secrets.clone();
        tokio::spawn(stderr_tail.clone().collect(stderr, move |text| secrets.hide(text)));
        let input = AsyncRwTransport::new_client(tokio::io::empty(), stdin);
        let output = Lines::new(stdout);
        Ok((Self { input, output, open: Vec::new(), last: -1, stray: None, process }, stderr_tail))
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &message {
            JsonRpcMessage::Request(request) => {
                if let RequestId::Number(number) = &request.id {
                    self.last = self.last.max(*number);
                }
                self.open.push(request.id.clone());
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification {
                    self.close_request(cancelled.params.request_id.as_ref());
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        self.input.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let until = self.stray.as_ref().map(|stray| stray.until);
            let message = tokio::select! {
                message = self.output.next(&self.open) => message?,
                () = reached(until) => {
                    let StrayAnswer { request, why, .. } = self.stray.take()?;
                    self.close_request(Some(&request));
                    return Some(unreadable(request, &why));
                }
            };
            let answered = match &message {
                JsonRpcMessage::Response(answer) => Some(&answer.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
            };
            match answered {
                Some(id) if !self.open.contains(id) => self.note_stray(id, &message),
                answered => {
                    self.close_request(answered);
                    return Some(message);
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.input.close().await?;
        self.process.end(GRACE).await;
        Ok(())
    }
}

/// Resolves at a time, if there is one.
async fn reached(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

impl StdioTransport {
    fn close_request(&mut self, id: Option<&RequestId>) {
        self.open.retain(|open| Some(open) != id);
        self.stray.take_if(|stray| Some(&stray.request) == id);
    }

    /// Takes note of an answer to no open request. It may be late, for a request that was cancelled. Under an id that was
    /// never sent it may be meant for the one request that there is.
    fn note_stray(&mut self, id: &RequestId, message: &RxJsonRpcMessage<RoleClient>) {
        let was_sent = matches!(id, RequestId::Number(number) if (0..=self.last).contains(number));
        if let ([only], false, None) = (&*self.open, was_sent, &self.stray) {
            let until = Instant::now() + STRAY_WAIT;
            self.stray = Some(StrayAnswer { request: only.clone(), until, why: stray(message) });
        }
    }
}
