//! A server that is a child process. It is started in its own process group, connected by pipes, and ended together
//! with all its children.

use super::lines::Lines;
use super::secrets::Secrets;
use flovyn_core::error::{Code, Error, Result};
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, Empty};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

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
/// How often it is checked whether the server has ended.
const TICK: Duration = Duration::from_millis(10);
/// How long to wait for the last lines of standard error.
const STDERR_WAIT: Duration = Duration::from_millis(500);
/// How many bytes of the end of standard error are kept.
const MAX_STDERR_TAIL: usize = 2 * 1024;

/// The end of a server's standard error. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct StderrTail(Arc<StderrBuffer>);

#[derive(Default)]
struct StderrBuffer {
    text: Mutex<String>,
    is_complete: CancellationToken,
}

impl StderrTail {
    /// Waits a moment for the end of standard error, and returns its last lines, if there are any.
    pub(super) async fn get(&self) -> Option<String> {
        let _ = timeout(STDERR_WAIT, self.0.is_complete.cancelled()).await;
        let stderr_tail = self.0.text.lock().trim().to_owned();
        (!stderr_tail.is_empty()).then_some(stderr_tail)
    }

    fn push(&self, text: &str) {
        let mut stderr_tail = self.0.text.lock();
        stderr_tail.push_str(text);
        if stderr_tail.len() > MAX_STDERR_TAIL {
            *stderr_tail = crate::tools::excerpt::suffix(&stderr_tail, MAX_STDERR_TAIL).to_owned();
        }
    }
}

/// The pipes to the process of a server. When this is dropped, the process group is killed.
pub(super) struct StdioTransport {
    input: AsyncRwTransport<RoleClient, Empty, ChildStdin>,
    output: Lines<ChildStdout>,
    /// The requests that wait for an answer.
    open: Vec<RequestId>,
    process: Process,
}

struct Process {
    child: Child,
    /// The process group, until the child is reaped. After that, the system may give its id to another group, which
    /// must not be killed.
    group: Option<Pid>,
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
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Process { child, group };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("it has no pipes".into()));
        };
        let stderr_tail = StderrTail::default();
        tokio::spawn(collect_stderr(stderr, stderr_tail.clone(), secrets.clone()));
        let input = AsyncRwTransport::new_client(tokio::io::empty(), stdin);
        Ok((Self { input, output: Lines::new(stdout), open: Vec::new(), process }, stderr_tail))
    }
}

/// Collects standard error until the server closes it.
async fn collect_stderr(mut stderr: ChildStderr, stderr_tail: StderrTail, secrets: Secrets) {
    let mut buffer = vec![0; 4 * 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        stderr_tail.push(&secrets.hide(&String::from_utf8_lossy(&buffer[..read])));
    }
    stderr_tail.0.is_complete.cancel();
}

impl Process {
    /// Whether the server has ended. It is not reaped here, so that the system cannot give the id of its group to
    /// another one.
    fn has_ended(&self) -> bool {
        let Some(pid) = self.group else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
    }

    async fn ends(&self) -> bool {
        let ended = async {
            while !self.has_ended() {
                sleep(TICK).await;
            }
        };
        timeout(GRACE, ended).await.is_ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Ends the server as the protocol says: its input was already closed, then it gets SIGTERM, then the whole group
    /// gets SIGKILL.
    async fn end(&mut self) {
        if !self.ends().await {
            self.signal(Signal::TERM);
            self.ends().await;
        }
        self.signal(Signal::KILL);
        self.group = None;
        let _ = self.child.wait().await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &message {
            JsonRpcMessage::Request(request) => self.open.push(request.id.clone()),
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
        let message = self.output.next(&self.open).await?;
        match &message {
            JsonRpcMessage::Response(answer) => self.close_request(Some(&answer.id)),
            JsonRpcMessage::Error(error) => self.close_request(error.id.as_ref()),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> io::Result<()> {
        self.input.close().await?;
        self.process.end().await;
        Ok(())
    }
}

impl StdioTransport {
    fn close_request(&mut self, id: Option<&RequestId>) {
        self.open.retain(|open| Some(open) != id);
    }
}
