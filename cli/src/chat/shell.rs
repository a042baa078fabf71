//! A command that the user runs in the directory, beside the conversation.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// Bytes of the output that are kept, from its end.
const MAX_OUTPUT: usize = 64 << 10;

/// A command that runs.
pub(super) struct Shell {
    /// The command.
    pub command: String,
    /// Since when it runs.
    pub since: Instant,
    group: Option<u32>,
    running: JoinHandle<Ran>,
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Ran {
    /// Both of its outputs, as they came.
    pub output: String,
    /// Its exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// How long it ran.
    pub duration: Duration,
}

impl Shell {
    /// Starts a command with all rights of the user. It has no input.
    pub(super) fn start(command: &str, directory: &Path) -> std::io::Result<Self> {
        let since = Instant::now();
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec 2>&1\n{command}")])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id();
        let running = tokio::spawn(async move {
            let output = read(&mut child).await;
            let code = child.wait().await.ok().and_then(|status| status.code());
            Ran { output, code, duration: since.elapsed() }
        });
        Ok(Self { command: command.to_owned(), since, group, running })
    }

    /// Waits for its end. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Ran {
        let failed = |error| Ran { output: format!("{error}"), code: None, duration: self.since.elapsed() };
        (&mut self.running).await.unwrap_or_else(failed)
    }

    /// Ends it with all that it started.
    pub(super) async fn stop(&self) {
        if let Some(group) = self.group {
            // It may have ended by itself meanwhile.
            let _ =
                Command::new("kill").args(["-TERM", "--", &format!("-{group}")]).stderr(Stdio::null()).status().await;
        }
    }
}

async fn read(child: &mut Child) -> String {
    let Some(mut out) = child.stdout.take() else { return String::new() };
    let (mut kept, mut left_out) = (Vec::new(), 0);
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = out.read(&mut bytes).await {
        kept.extend_from_slice(&bytes[..count]);
        if kept.len() > 2 * MAX_OUTPUT {
            let old = kept.len() - MAX_OUTPUT;
            kept.drain(..old);
            left_out += old;
        }
    }
    let text = String::from_utf8_lossy(&kept);
    match left_out {
        0 => text.into_owned(),
        bytes => format!("[{bytes} bytes before this are left out]\n{text}"),
    }
}
