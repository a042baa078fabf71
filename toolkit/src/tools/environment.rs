//! The environment of a tool call: its directory, limits, sandbox, output stream and stop signal.

use super::record::CallRecord;
use super::seen::Lineage;
use super::{WorkingDirectory, process::Availability};
use flovyn_core::error::Result;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Whether commands run confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sandbox {
    /// Commands run in bubblewrap, or under Landlock where that is all there is; else they do not run.
    #[default]
    Required,
    /// Commands run with all rights of this process. Choose it for machines that are thrown away.
    Off,
}

/// Bounds of tool calls. The defaults are the documented ones; tests shorten them.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How long a command may take unless it says otherwise.
    pub timeout: Duration,
    /// The longest time a command may ask for.
    pub longest: Duration,
    /// How long a command may take to end after it was asked to.
    pub grace: Duration,
    /// How long the output of a shell that has ended is waited for.
    pub drain: Duration,
    /// How long `run-sandbox` may take.
    pub sandbox_time: Duration,
    /// How much memory `run-sandbox` may use, in bytes.
    pub sandbox_memory: u64,
    /// How many processes `run-sandbox` may have.
    pub sandbox_processes: usize,
    /// The most matches of one `grep`.
    pub matches: usize,
    /// The most paths of one `find`.
    pub paths: usize,
    /// The largest file that is edited or overwritten with a diff, in bytes.
    pub file: u64,
    /// How much of a command's output is kept in full on disk, in bytes.
    pub kept_output: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(120),
            longest: Duration::from_secs(600),
            grace: Duration::from_secs(2),
            drain: Duration::from_secs(2),
            sandbox_time: Duration::from_secs(30),
            sandbox_memory: 256 << 20,
            sandbox_processes: 128,
            matches: 100,
            paths: 1_000,
            file: 32 << 20,
            kept_output: 16 << 20,
        }
    }
}

/// One of a command's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// A piece of a command's output while it runs: `{"type":"terminal","stream":"stdout","data":"…"}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "terminal")]
pub struct TerminalEvent {
    /// Which output.
    pub stream: Stream,
    /// Whole characters.
    pub data: String,
}

/// Takes a command's output while it runs.
pub type TerminalSink = Arc<dyn Fn(TerminalEvent) + Send + Sync>;
/// Says whether the call shall stop.
pub type StopSignal = Arc<dyn Fn() -> bool + Send + Sync>;

/// The variables that commands inherit from this process; names that end in `*` stand for all that begin so.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// What a tool call may use. Cheap to clone; [`ToolHost`](super::ToolHost) makes one for each call.
#[derive(Clone)]
pub struct ToolEnvironment {
    pub(crate) directory: WorkingDirectory,
    pub(crate) limits: Limits,
    pub(crate) sandbox: Sandbox,
    pub(crate) network: bool,
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) inherited: Vec<String>,
    pub(crate) available: Option<Availability>,
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) lineage: Lineage,
    pub(crate) terminal: Option<TerminalSink>,
    pub(crate) stop: Option<StopSignal>,
    pub(crate) record: Option<CallRecord>,
    pub(crate) seen: Option<String>,
}

impl ToolEnvironment {
    /// Makes an environment of a working directory: sandbox required, no network, default limits.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Ok(Self {
            directory: WorkingDirectory::open(directory)?,
            limits: Limits::default(),
            sandbox: Sandbox::Required,
            network: false,
            writable: Vec::new(),
            inherited: INHERITED.iter().map(|&name| name.to_owned()).collect(),
            available: None,
            scratch: Arc::default(),
            lineage: Lineage::default(),
            terminal: None,
            stop: None,
            record: None,
            seen: None,
        })
    }

    /// Says whether commands run confined.
    #[must_use]
    pub fn with_sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Lets confined commands use the network.
    #[must_use]
    pub fn with_network(mut self, network: bool) -> Self {
        self.network = network;
        self
    }

    /// Lets confined commands write to a path outside the working directory, such as a package cache.
    #[must_use]
    pub fn with_writable(mut self, path: impl Into<PathBuf>) -> Self {
        self.writable.push(path.into());
        self
    }

    /// Lets commands inherit a variable of this process; a name that ends in `*` stands for all that begin so.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>) -> Self {
        self.inherited.push(name.into());
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Says what confines commands here instead of finding out.
    #[must_use]
    pub fn with_available(mut self, available: Availability) -> Self {
        self.available = Some(available);
        self
    }

    /// Streams the output of commands.
    #[must_use]
    pub fn with_terminal(mut self, sink: impl Fn(TerminalEvent) + Send + Sync + 'static) -> Self {
        self.terminal = Some(Arc::new(sink));
        self
    }

    /// Asks whether the call shall stop, some fifty times a second.
    #[must_use]
    pub fn with_stop(mut self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stop = Some(Arc::new(stop));
        self
    }

    /// Says which content of the file the model has seen: an edit of another content is refused as stale.
    #[must_use]
    pub fn with_seen(mut self, hash: impl Into<String>) -> Self {
        self.seen = Some(hash.into());
        self
    }

    /// The working directory.
    pub fn directory(&self) -> &WorkingDirectory {
        &self.directory
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop())
    }

    /// What names this call: its task's id where there is one.
    pub(crate) fn call_name(&self) -> String {
        match &self.record {
            Some(record) => record.name().to_owned(),
            None => uuid::Uuid::new_v4().to_string(),
        }
    }

    /// The variables of a command.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let inherited = |name: &str| {
            self.inherited.iter().any(|allowed| match allowed.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == allowed,
            })
        };
        let mut variables: Vec<_> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| inherited(name))
            .collect();
        let set = [
            ("CI", "1"),
            ("PAGER", "cat"),
            ("GIT_PAGER", "cat"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("NO_COLOR", "1"),
            ("TERM", "dumb"),
        ];
        variables.extend(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
        variables
    }
}

/// The folder that commands of one environment have as `/tmp`; made when it is first needed, gone with the environment.
#[derive(Default)]
pub(crate) struct Scratch(std::sync::OnceLock<tempfile::TempDir>);

impl Scratch {
    pub fn path(&self) -> std::io::Result<&Path> {
        if let Some(created) = self.0.get() {
            return Ok(created.path());
        }
        let created = tempfile::Builder::new().prefix("flovyn-tools-").tempdir()?;
        Ok(self.0.get_or_init(|| created).path())
    }
}
