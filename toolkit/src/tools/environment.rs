//! The environment of a tool call: its directory, limits, sandbox, output stream and stop signal.

use super::background::Background;
use super::record::{CallRecord, CallRecords};
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
    /// Commands run in bubblewrap, or under Landlock if the machine has only that. If it has neither, commands are
    /// refused.
    #[default]
    Required,
    /// Commands run with all rights of this process. Choose it only for machines that are thrown away afterwards.
    Off,
}

/// Limits of tool calls. The defaults are those of the documentation; tests shorten them.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How long a command may take unless it says otherwise.
    pub timeout: Duration,
    /// The longest time a command may ask for.
    pub longest: Duration,
    /// How long a command may take to end after it was asked to, before it is killed.
    pub grace: Duration,
    /// How long to wait for the rest of the output after the shell has ended.
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
    /// How much of a command's output is kept on disk, in bytes.
    pub kept_output: u64,
    /// How long `fetch` may take.
    pub fetch_time: Duration,
    /// How many bytes of a response `fetch` reads.
    pub fetch_bytes: usize,
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
            fetch_time: Duration::from_secs(30),
            fetch_bytes: 5 << 20,
        }
    }
}

/// One of the two outputs of a command.
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
    /// The output that it comes from.
    pub stream: Stream,
    /// The text. It never ends in the middle of a character.
    pub data: String,
}

/// Takes a command's output while it runs.
pub type TerminalSink = Arc<dyn Fn(TerminalEvent) + Send + Sync>;
/// Tells whether the call has to stop.
pub type StopSignal = Arc<dyn Fn() -> bool + Send + Sync>;

/// The variables that commands inherit from this process. A name that ends in `*` stands for all names that begin like
/// it.
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
    /// What confined commands see of the machine besides; all of it but keys where this is none.
    pub(crate) readable: Option<Vec<PathBuf>>,
    /// Other directories whose files tools read and write, and commands as well.
    pub(crate) added: Vec<WorkingDirectory>,
    /// The folder of package caches that belong to confined commands alone.
    pub(crate) caches: Option<PathBuf>,
    pub(crate) inherited: Vec<String>,
    pub(crate) values: Vec<(String, String)>,
    pub(crate) available: Option<Availability>,
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) lineage: Lineage,
    pub(crate) terminal: Option<TerminalSink>,
    pub(crate) stop: Option<StopSignal>,
    pub(crate) record: Option<CallRecord>,
    /// Where what is known of commands in the background is kept; they need it.
    pub(crate) records: Option<CallRecords>,
    pub(crate) background: Arc<Background>,
    pub(crate) seen: Option<String>,
    pub(crate) knows_reads: bool,
    pub(crate) private_hosts: Vec<String>,
}

impl ToolEnvironment {
    /// The environment of a working directory. The sandbox is required, there is no network, and the limits are the
    /// defaults.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Ok(Self {
            directory: WorkingDirectory::open(directory)?,
            limits: Limits::default(),
            sandbox: Sandbox::Required,
            network: false,
            writable: Vec::new(),
            readable: None,
            added: Vec::new(),
            caches: None,
            inherited: INHERITED.iter().map(|&name| name.to_owned()).collect(),
            values: Vec::new(),
            available: None,
            scratch: Arc::default(),
            lineage: Lineage::default(),
            terminal: None,
            stop: None,
            record: None,
            records: None,
            background: Arc::default(),
            seen: None,
            knows_reads: false,
            private_hosts: Vec::new(),
        })
    }

    /// Sets whether commands run confined.
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

    /// Shows confined commands nothing of the machine but the system's programs and these paths, beside what they may write
    /// to. Otherwise they can read all but keys.
    #[must_use]
    pub fn with_readable_only(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.readable = Some(paths.into_iter().map(Into::into).collect());
        self
    }

    /// Adds a directory beside the working directory: file tools take absolute paths in it, and confined commands may
    /// write there.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`: it cannot be opened.
    pub fn with_directory(mut self, path: impl AsRef<Path>) -> Result<Self> {
        let added = WorkingDirectory::open(path)?;
        self.writable.push(added.path().to_owned());
        self.added.push(added);
        Ok(self)
    }

    /// Gives confined commands a folder for the caches of cargo, npm, pip, uv, yarn and go, which are told of it by
    /// variables. Without one they see the caches of the user, and can write to none.
    #[must_use]
    pub fn with_caches(mut self, folder: impl Into<PathBuf>) -> Self {
        self.caches = Some(folder.into());
        self
    }

    /// Lets commands inherit a variable of this process. A name that ends in `*` stands for all names that begin like
    /// it.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>) -> Self {
        self.inherited.push(name.into());
        self
    }

    /// Sets a variable of commands, in place of the inherited value.
    #[must_use]
    pub fn with_value(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.push((name.into(), value.into()));
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the means that confine commands on this machine, instead of finding them out.
    #[must_use]
    pub fn with_available(mut self, available: Availability) -> Self {
        self.available = Some(available);
        self
    }

    /// Sets who gets the output of commands while they run.
    #[must_use]
    pub fn with_terminal(mut self, sink: impl Fn(TerminalEvent) + Send + Sync + 'static) -> Self {
        self.terminal = Some(Arc::new(sink));
        self
    }

    /// Sets the function that tells whether the call has to stop. It is called about fifty times a second.
    #[must_use]
    pub fn with_stop(mut self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stop = Some(Arc::new(stop));
        self
    }

    /// Sets which content of the file the model has seen. An edit is refused as stale if the file has another content.
    #[must_use]
    pub fn with_seen(mut self, hash: impl Into<String>) -> Self {
        self.seen = Some(hash.into());
        self
    }

    /// Lets `fetch` ask hosts whose addresses are not of the public internet. `*.example.com` stands for all names below a
    /// domain.
    #[must_use]
    pub fn with_private_hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.private_hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Says that the caller keeps account of what it has read. Then `write` refuses to replace a file that was not read.
    #[must_use]
    pub fn with_account_of_reads(mut self) -> Self {
        self.knows_reads = true;
        self
    }

    /// The working directory.
    pub fn directory(&self) -> &WorkingDirectory {
        &self.directory
    }

    /// The directories whose files the tools may change.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.directory).chain(&self.added).map(WorkingDirectory::path)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop())
    }

    /// Works in an added directory, if the arguments of a call name a path in it.
    pub(crate) fn enter_added(&mut self, arguments: &serde_json::Value) {
        let path = arguments.get("path").and_then(serde_json::Value::as_str).map(Path::new);
        let Some(path) = path.filter(|path| path.is_absolute()) else { return };
        if self.directory.inner_path(&path.to_string_lossy()).is_err()
            && let Some(added) = self.added.iter().find(|added| added.contains(path))
        {
            self.directory = added.clone();
        }
    }

    /// The name of this call: the id of its task, if it has one.
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
            // Git's own directory is read-only for confined commands; what only looks writes nothing there then.
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("NO_COLOR", "1"),
            ("TERM", "dumb"),
        ];
        variables.extend(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
        variables.extend(self.values.iter().cloned());
        variables
    }

    /// The folders of the private caches, by the variables that name them.
    pub(crate) fn cache_folders(&self) -> Vec<(&'static str, PathBuf)> {
        let Some(folder) = &self.caches else { return Vec::new() };
        let mut names = vec![
            ("npm_config_cache", "npm"),
            ("PIP_CACHE_DIR", "pip"),
            ("UV_CACHE_DIR", "uv"),
            ("YARN_CACHE_FOLDER", "yarn"),
            ("GOCACHE", "go-build"),
        ];
        // What these hold is also needed without the network, and then only the user's have it.
        if self.network {
            names.extend([("CARGO_HOME", "cargo"), ("GOMODCACHE", "go-modules")]);
        }
        names.into_iter().map(|(variable, name)| (variable, folder.join(name))).collect()
    }
}

/// The folder that the commands of one environment have as `/tmp`. It is made when it is first needed, and removed with
/// the environment.
#[derive(Default)]
pub(crate) struct Scratch(std::sync::OnceLock<tempfile::TempDir>);

impl Scratch {
    pub(crate) fn path(&self) -> std::io::Result<&Path> {
        if let Some(created) = self.0.get() {
            return Ok(created.path());
        }
        let created = tempfile::Builder::new().prefix("flovyn-tools-").tempdir()?;
        Ok(self.0.get_or_init(|| created).path())
    }
}
