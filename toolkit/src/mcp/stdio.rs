//! A server that is a process of its own: started in a process group, spoken to over its pipes, ended with all it started.

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

/// What a server inherits of this process; its keys for other services are no business of it.
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
/// How long a server that was asked to end may take, first after its input ended and then after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// How often it is looked whether it has ended.
const TICK: Duration = Duration::from_millis(10);
/// How long the last words of a server are waited for.
const FAREWELL: Duration = Duration::from_millis(500);
/// How much of what it says on standard error is kept, in bytes.
const LAST_WORDS: usize = 2 * 1024;

/// The last that a server said on its standard error. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct LastWords(Arc<Said>);

#[derive(Default)]
struct Said {
    text: Mutex<String>,
    is_complete: CancellationToken,
}

impl LastWords {
    /// Waits a moment for a server that is ending, and gives what it said, if it said anything.
    pub async fn get(&self) -> Option<String> {
        let _ = timeout(FAREWELL, self.0.is_complete.cancelled()).await;
        let words = self.0.text.lock().trim().to_owned();
        (!words.is_empty()).then_some(words)
    }

    fn push(&self, said: &str) {
        let mut words = self.0.text.lock();
        words.push_str(said);
        if words.len() > LAST_WORDS {
            *words = crate::tools::excerpt::suffix(&words, LAST_WORDS).to_owned();
        }
    }
}

/// The pipes to a server's process. Dropped, it kills the process group.
pub(super) struct StdioTransport {
    input: AsyncRwTransport<RoleClient, Empty, ChildStdin>,
    output: Lines<ChildStdout>,
    /// The requests that wait for an answer.
    open: Vec<RequestId>,
    process: Process,
}

struct Process {
    child: Child,
    /// The group, as long as the child has not been waited for: until then nobody else can be given its number.
    group: Option<Pid>,
}

impl StdioTransport {
    /// Starts a server.
    pub fn start(
        command: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        cwd: Option<&Path>,
        secrets: &Secrets,
    ) -> Result<(Self, LastWords)> {
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
        let words = LastWords::default();
        tokio::spawn(listen(stderr, words.clone(), secrets.clone()));
        let input = AsyncRwTransport::new_client(tokio::io::empty(), stdin);
        Ok((Self { input, output: Lines::new(stdout), open: Vec::new(), process }, words))
    }
}

/// Keeps the last of what a server says until it closes its standard error.
async fn listen(mut stderr: ChildStderr, words: LastWords, secrets: Secrets) {
    let mut buffer = vec![0; 4 * 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        words.push(&secrets.hide(&String::from_utf8_lossy(&buffer[..read])));
    }
    words.0.is_complete.cancel();
}

impl Process {
    /// Whether the server itself has ended. It is not waited for, so that the number of its group stays its own.
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

    /// As the protocol has it: the input has ended, then SIGTERM, then SIGKILL; whatever is left of the group goes with it.
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
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification {
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
