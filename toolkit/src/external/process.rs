//! The process of an external agent: how it is found and started, the records that it prints, what it is told, its end.
//!
//! A record is a line that ends at the byte `\n`; what else counts as a line end in Unicode is content. A line that is
//! no record is passed over with a warning, since some agents print a greeting; one that is too long ends the process.

use super::protocol::{Lost, Spoken};
use crate::tools::excerpt;
use crate::tools::process::{MARK, ProcessGroup, StderrTail, end_marked, program};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::sync::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The variables that an agent inherits, beside those that its driver or its definition names. It must not get the keys of
/// this process for other services.
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
    "XDG_*",
];
/// The longest record, in bytes.
const LONGEST: usize = 32 << 20;
/// How many records wait to be read before the agent has to wait.
const WAITING: usize = 256;
/// How much of standard error is kept for the error of a run.
const STDERR: usize = 64 * 1024;
/// How much of what is no record is kept, to be shown where no record comes.
const PRINTED: usize = 2 * 1024;
/// After so many lines without a single record, the program speaks no protocol.
const STRANGE: usize = 1_000;
/// How many such lines are told of; one that prints its log there would fill ours.
const TOLD: usize = 20;
/// How long the process may take to end once its output has.
const LINGER: Duration = Duration::from_secs(1);
/// How long a program may take to say its version.
const VERSION: Duration = Duration::from_secs(10);

/// How an agent is started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Launch {
    /// The program, by its name on PATH or its path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables of this process that it sees beside the usual ones; `NAME*` stands for all that begin so.
    pub variables: Vec<String>,
    /// Variables that it gets.
    pub env: Vec<(String, String)>,
    /// The directory that it starts in.
    pub directory: PathBuf,
    /// Names all processes that it starts.
    pub mark: String,
}

impl Launch {
    /// The program's path.
    ///
    /// # Errors
    ///
    /// It is not installed; the message says where it was looked for.
    pub fn find(&self) -> Result<PathBuf> {
        let name = &self.program;
        let found = match name.contains('/') {
            true => Some(self.directory.join(name)).filter(|path| path.is_file()),
            false => program(name),
        };
        found.ok_or_else(|| {
            let looked = match name.contains('/') {
                true => "there is no such file".to_owned(),
                false => {
                    let path = std::env::var("PATH").unwrap_or_default();
                    format!("it is in none of the directories of PATH ({path})")
                }
            };
            let message = format!(
                "the external agent {name:?} is not installed here: {looked}; install it on the machine of this worker, or \
                 give its path"
            );
            Error::new(Code::NonRetryable, message).with("error_type", "ExternalAgentNotFound")
        })
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.find()?);
        let inherits = |name: &str| {
            let named = INHERITED.iter().copied().chain(self.variables.iter().map(String::as_str));
            named.into_iter().any(|allowed| match allowed.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == allowed,
            })
        };
        let inherited = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(inherits));
        command.args(&self.args).current_dir(&self.directory).env_clear().envs(inherited);
        command.envs(self.env.iter().map(|(name, value)| (name, value))).env(MARK, &self.mark);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }

    /// What the program says to `--version`, in one line; none where it says nothing in time.
    pub async fn version(&self) -> Option<String> {
        let mut command = Self { args: vec!["--version".to_owned()], ..self.clone() }.command().ok()?;
        let output = timeout(VERSION, command.stdin(Stdio::null()).output()).await.ok()?.ok()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().lines().next()?.to_owned();
        output.status.success().then_some(excerpt::prefix(&said, 200).to_owned())
    }
}

/// An agent's process, by the records that go in and come out.
pub struct Peer {
    name: String,
    mark: String,
    number: u64,
    records: mpsc::Receiver<Line>,
    outbox: Outbox,
    group: ProcessGroup,
    stderr: StderrTail,
    /// What it printed that is no record, before its first record.
    printed: String,
    strange: usize,
    has_spoken: bool,
}

/// Takes records for an agent. Cheap to clone.
#[derive(Clone)]
pub struct Outbox(mpsc::Sender<Vec<u8>>);

impl Outbox {
    /// Sends a record. It does not wait for the agent to read it.
    pub fn send(&self, record: &Value) -> Result<()> {
        let mut bytes = serde_json::to_vec(record)
            .map_err(|error| Error::new(Code::NotSerializable, format!("a message for an external agent: {error}")))?;
        bytes.push(b'\n');
        self.0.try_send(bytes).map_err(|error| {
            let why = match error {
                mpsc::error::TrySendError::Full(_) => "it does not read what it is sent",
                mpsc::error::TrySendError::Closed(_) => "it takes no more input",
            };
            Error::new(Code::TaskFailed, format!("the external agent could not be sent a message: {why}"))
        })
    }
}

/// A line of standard output.
enum Line {
    Whole(Vec<u8>),
    TooLong(usize),
}

impl Peer {
    /// Starts an agent. What an earlier process of the same mark has left running is ended first, so that two never work on
    /// one session.
    pub(super) fn start(launch: &Launch) -> Spoken<Self> {
        let number = take_over(&launch.mark);
        let failed =
            |why: String| Lost::refused(format!("the external agent {:?} could not be started: {why}", launch.program));
        let mut child = launch.command()?.spawn().map_err(|error| failed(error.to_string()))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = ProcessGroup::of(child);
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("it has no pipes".into()));
        };
        let stderr_tail = StderrTail::new(STDERR);
        tokio::spawn(stderr_tail.clone().collect(stderr, str::to_owned));
        let (line, records) = mpsc::channel(WAITING);
        tokio::spawn(read(stdout, line));
        let (outbox, writes) = mpsc::channel(WAITING);
        tokio::spawn(write(stdin, writes));
        Ok(Self {
            name: launch.program.clone(),
            mark: launch.mark.clone(),
            number,
            records,
            outbox: Outbox(outbox),
            group,
            stderr: stderr_tail,
            printed: String::new(),
            strange: 0,
            has_spoken: false,
        })
    }

    /// Takes records for it.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Sends a record.
    pub fn send(&self, record: &Value) -> Spoken<()> {
        self.outbox.send(record).map_err(|error| Lost::Died(error.message().to_owned()))
    }

    /// The next record, a JSON object. A call that is dropped loses none.
    pub async fn next(&mut self) -> Spoken<Value> {
        loop {
            let line = match self.records.recv().await {
                Some(Line::Whole(line)) => line,
                Some(Line::TooLong(length)) => {
                    return Err(Lost::Died(format!(
                        "the external agent {:?} has printed a record of more than {}",
                        self.name,
                        excerpt::size(length as u64)
                    )));
                }
                None => return Err(Lost::Died(self.epitaph().await)),
            };
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            match serde_json::from_slice(line) {
                Ok(record @ Value::Object(_)) => {
                    self.has_spoken = true;
                    return Ok(record);
                }
                _ if line.iter().all(u8::is_ascii_whitespace) => {}
                _ => self.pass_over(line)?,
            }
        }
    }

    /// As [`next`](Self::next), within a time.
    pub(super) async fn next_within(&mut self, limit: Duration) -> Spoken<Value> {
        match timeout(limit, self.next()).await {
            Ok(record) => record,
            Err(_) => Err(self.silent(limit)),
        }
    }

    /// Why an agent that said nothing for so long is given up.
    pub(super) fn silent(&self, limit: Duration) -> Lost {
        let seconds = limit.as_secs_f64();
        if self.has_spoken || self.printed.is_empty() {
            return Lost::Died(format!("the external agent {:?} has said nothing for {seconds} s", self.name));
        }
        self.speaks_no_protocol()
    }

    fn pass_over(&mut self, line: &[u8]) -> Spoken<()> {
        let text = String::from_utf8_lossy(line);
        let shown = excerpt::prefix(&text, 200);
        self.strange += 1;
        match self.strange {
            ..=TOLD => tracing::warn!("a line of the external agent {:?} is no record: {shown}", self.name),
            _ => tracing::debug!("a line of the external agent {:?} is no record: {shown}", self.name),
        }
        if !self.has_spoken && self.printed.len() < PRINTED {
            self.printed.push_str(excerpt::prefix(&text, PRINTED - self.printed.len()));
            self.printed.push('\n');
        }
        match self.has_spoken || self.strange < STRANGE {
            true => Ok(()),
            false => Err(self.speaks_no_protocol()),
        }
    }

    fn speaks_no_protocol(&self) -> Lost {
        Lost::refused(format!(
            "the program {:?} does not speak the protocol of its driver: it has printed no record, but\n{}",
            self.name,
            self.printed.trim_end()
        ))
    }

    /// How it ended.
    async fn epitaph(&mut self) -> String {
        let status = match self.group.ends(LINGER).await {
            true => self.group.end(Duration::ZERO).await.map(|status| status.to_string()),
            false => None,
        };
        let ended = status.unwrap_or_else(|| "its output was closed".to_owned());
        let mut text = format!("the external agent {:?} has ended ({ended})", self.name);
        if !self.has_spoken && !self.printed.is_empty() {
            text.push_str(&format!("; it printed\n{}", self.printed.trim_end()));
        }
        text
    }

    /// The end of its standard error.
    pub(super) fn stderr_tail(&self) -> StderrTail {
        self.stderr.clone()
    }

    /// Ends the process and all that it has started: its input is closed, then it gets `grace`, then SIGTERM, then SIGKILL.
    pub(super) async fn end(&mut self, grace: Duration) {
        let (closed, _) = mpsc::channel(1);
        self.outbox = Outbox(closed);
        self.records.close();
        self.group.end(grace).await;
        let (mark, number) = (std::mem::take(&mut self.mark), self.number);
        let _ = tokio::task::spawn_blocking(move || end_own(&mark, number)).await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if !self.mark.is_empty() {
            // The group dies with its field; what has left it is found by its mark.
            end_own(&self.mark, self.number);
        }
    }
}

/// The last process of each mark that this program has started.
static LATEST: LazyLock<Mutex<BTreeMap<String, u64>>> = LazyLock::new(Mutex::default);

/// Ends what an earlier process of a mark has left running, and gives the number of the one that is started now.
fn take_over(mark: &str) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut latest = LATEST.lock();
    end_marked(mark);
    latest.insert(mark.to_owned(), number);
    number
}

/// Ends what a process has left running, unless a later one of its mark was started: the session may go on in that one while
/// this one still takes its time to end.
fn end_own(mark: &str, number: u64) {
    let mut latest = LATEST.lock();
    if latest.get(mark) == Some(&number) {
        latest.remove(mark);
        end_marked(mark);
    }
}

/// Reads lines until the output ends.
async fn read(stdout: ChildStdout, lines: mpsc::Sender<Line>) {
    let mut stdout = BufReader::with_capacity(64 * 1024, stdout);
    while let Some(line) = next_line(&mut stdout, LONGEST).await {
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

/// The next line without its end; the last one counts without a line end as well.
async fn next_line<R: AsyncRead + Unpin>(from: &mut BufReader<R>, longest: usize) -> Option<Line> {
    let (mut line, mut length) = (Vec::new(), 0);
    loop {
        let more = match from.fill_buf().await {
            Ok(more) if !more.is_empty() => more,
            _ if length == 0 => return None,
            _ => return Some(if length > longest { Line::TooLong(longest) } else { Line::Whole(line) }),
        };
        let end = more.iter().position(|&byte| byte == b'\n');
        let piece = &more[..end.unwrap_or(more.len())];
        length += piece.len();
        match length > longest {
            true => line = Vec::new(),
            false => line.extend_from_slice(piece),
        }
        let taken = piece.len() + usize::from(end.is_some());
        from.consume(taken);
        if end.is_some() {
            return Some(if length > longest { Line::TooLong(longest) } else { Line::Whole(line) });
        }
    }
}

/// Writes records until nobody sends any more, and then closes the input.
async fn write(mut stdin: ChildStdin, mut records: mpsc::Receiver<Vec<u8>>) {
    while let Some(record) = records.recv().await {
        if stdin.write_all(&record).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(bytes: &[u8], longest: usize) -> Vec<String> {
        let mut from = BufReader::with_capacity(3, bytes);
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut from, longest).await {
            lines.push(match line {
                Line::Whole(line) => String::from_utf8_lossy(&line).into_owned(),
                Line::TooLong(length) => format!("more than {length}"),
            });
        }
        lines
    }

    #[tokio::test]
    async fn only_a_newline_ends_a_record() {
        let text = "a\u{2028}b\u{2029}c\u{85}d\x0be\rf\ng\n\nh";
        assert_eq!(lines(text.as_bytes(), 100).await, ["a\u{2028}b\u{2029}c\u{85}d\x0be\rf", "g", "", "h"]);
        assert_eq!(lines(b"abcdefgh\nij\n", 4).await, ["more than 4", "ij"]);
        assert_eq!(lines(b"abcdefgh", 4).await, ["more than 4"]);
    }

    #[test]
    fn a_program_that_is_not_there_says_where_it_was_looked_for() {
        let launch = Launch { program: "no-such-agent".into(), ..Launch::default() };
        let error = launch.find().expect_err("it is not there");
        assert!(error.message().contains("PATH (") && error.message().contains("no-such-agent"), "{error}");
        let launch = Launch { program: "./no/agent".into(), directory: "/tmp".into(), ..Launch::default() };
        assert!(launch.find().expect_err("it is not there").message().contains("no such file"));
    }
}
