//! A process that stays: it is spoken to by pipes for as long as it is needed, and ended together with its process group.

use flovyn_core::sync::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How often it is checked whether the process has ended.
const TICK: Duration = Duration::from_millis(10);
/// How long to wait for the last lines of standard error.
const STDERR_WAIT: Duration = Duration::from_millis(500);

/// A process that leads a process group. When this is dropped, the group is killed.
pub(crate) struct ProcessGroup {
    child: Child,
    /// The process group, until the child is reaped. After that, the system may give its id to another group, which
    /// must not be killed.
    group: Option<Pid>,
}

impl ProcessGroup {
    /// Takes a child that was started as the leader of a group.
    pub(crate) fn of(child: Child) -> Self {
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Self { child, group }
    }

    /// Whether the process has ended. It is not reaped here, so that the system cannot give the id of its group to
    /// another one.
    fn has_ended(&self) -> bool {
        let Some(pid) = self.group else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
    }

    /// Waits for the end of the process; whether it came in time.
    pub(crate) async fn ends(&self, within: Duration) -> bool {
        let ended = async {
            while !self.has_ended() {
                sleep(TICK).await;
            }
        };
        timeout(within, ended).await.is_ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Ends the process, whose input was already closed: it gets this long, then SIGTERM and this long again, then the
    /// whole group gets SIGKILL.
    pub(crate) async fn end(&mut self, grace: Duration) -> Option<ExitStatus> {
        if !self.ends(grace).await {
            self.signal(Signal::TERM);
            self.ends(grace).await;
        }
        self.signal(Signal::KILL);
        self.group = None;
        self.child.wait().await.ok()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The end of a process' standard error. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StderrTail(Arc<StderrBuffer>);

struct StderrBuffer {
    text: Mutex<String>,
    is_complete: CancellationToken,
    longest: usize,
}

impl StderrTail {
    /// Keeps so many bytes of the end.
    pub(crate) fn new(longest: usize) -> Self {
        Self(Arc::new(StderrBuffer { text: Mutex::default(), is_complete: CancellationToken::new(), longest }))
    }

    /// Waits a moment for the end of standard error, and returns its last lines, if there are any.
    pub(crate) async fn get(&self) -> Option<String> {
        let _ = timeout(STDERR_WAIT, self.0.is_complete.cancelled()).await;
        let stderr_tail = self.0.text.lock().trim().to_owned();
        (!stderr_tail.is_empty()).then_some(stderr_tail)
    }

    /// Collects standard error until the process closes it. `hide` takes out what nobody may see.
    pub(crate) async fn collect(self, mut stderr: ChildStderr, hide: impl Fn(&str) -> String) {
        let mut buffer = vec![0; 4 * 1024];
        while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
            self.push(&hide(&String::from_utf8_lossy(&buffer[..read])));
        }
        self.0.is_complete.cancel();
    }

    fn push(&self, text: &str) {
        let mut stderr_tail = self.0.text.lock();
        stderr_tail.push_str(text);
        if stderr_tail.len() > self.0.longest {
            *stderr_tail = crate::tools::excerpt::suffix(&stderr_tail, self.0.longest).to_owned();
        }
    }
}
