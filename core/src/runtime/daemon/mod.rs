//! This process as a machine of a server, for agents and tasks of its own.
//!
//! `key` is the machine's key and where it is kept, `settings` what a program says of its machine, `connection` the connection to
//! the server. `flovyn daemon` and the bindings use the same three.

mod connection;
mod key;
mod settings;

pub use connection::{MachineConnection, MachineConnector, MachineCredentials, Unanswered, store_of};
pub use key::MachineKey;
pub use settings::{MachineSettings, expanded, host_name, offers, workspace};

use crate::agent::{AgentDefinition, NativeHost};
use crate::error::{Code, Error, Result};
use crate::task::{TaskDefinition, TaskExecutor};
use crate::tracer::{AgentTracer, Tracer};
use crate::worker::{Host, Worker, WorkerOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// How long running tasks may take when the server does not let the machine in any more.
const GRACE: Duration = Duration::from_secs(5);

/// Puts a [`LocalWorkerDaemon`] together.
pub struct LocalWorkerDaemonBuilder {
    settings: MachineSettings,
    host: Result<NativeHost>,
    options: WorkerOptions,
}

impl LocalWorkerDaemonBuilder {
    /// Works for this server, such as `https://flovyn.example.com:9090`; for that of the kept key otherwise.
    #[must_use]
    pub fn server_url(mut self, url: impl Into<String>) -> Self {
        self.settings.server_url = Some(url.into());
        self
    }

    /// Shows the server this key, which is that of a machine. Otherwise the one that `flovyn daemon pair` has kept in
    /// [`home`](Self::home).
    #[must_use]
    pub fn auth_token(mut self, token: impl Into<String>) -> Self {
        self.settings.auth_token = Some(token.into());
        self
    }

    /// Reads the key of this folder; of `FLOVYN_HOME`, else `~/.flovyn`, otherwise.
    #[must_use]
    pub fn home(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.home = Some(folder.into());
        self
    }

    /// Refuses to work under another name than this one. The server knows the name by the key.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Adds a directory that the work here is about. The server is told of it, and code finds it by
    /// [`LocalWorkerDaemon::workspaces`]; nothing keeps code of one's own out of the rest of the computer.
    #[must_use]
    pub fn workspace(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.workspaces.push(directory.into());
        self
    }

    /// Serves an agent. Two of one kind are an error of [`build`](Self::build).
    #[must_use]
    pub fn register_agent<A: AgentDefinition>(mut self, agent: A) -> Self {
        self.host = self.host.and_then(|host| host.agent(agent));
        self
    }

    /// Serves a task. Two of one kind are an error of [`build`](Self::build).
    #[must_use]
    pub fn register_task<T: TaskDefinition>(mut self, task: T) -> Self {
        self.host = self.host.and_then(|host| host.task(task));
        self
    }

    /// Serves the tasks that an executor runs.
    #[must_use]
    pub fn register_task_executor(mut self, executor: impl TaskExecutor) -> Self {
        let executor: Arc<dyn TaskExecutor> = Arc::new(executor);
        self.host = self.host.and_then(|host| host.task_executor(&executor));
        self
    }

    /// Sends the records of the runs served here to this tracer.
    #[must_use]
    pub fn tracer(mut self, tracer: impl AgentTracer) -> Self {
        self.options.tracer = Tracer::new(tracer);
        self
    }

    /// Advances at most `limit` runs at a time. Runs that wait do not count.
    #[must_use]
    pub fn max_agents(mut self, limit: usize) -> Self {
        self.options.max_agents = limit;
        self
    }

    /// Runs at most `limit` attempts at a time, claimed and inline ones together. With 0 it claims none, and inline ones run
    /// without a limit.
    #[must_use]
    pub fn max_tasks(mut self, limit: usize) -> Self {
        self.options.max_tasks = limit;
        self.options.count_inline = limit > 0;
        self
    }

    /// Checks what was given. Nothing is connected before [`LocalWorkerDaemon::start`].
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: there is no key, it is for another server or another name, a workspace is no directory, or two agents or
    /// tasks have one kind.
    pub fn build(self) -> Result<LocalWorkerDaemon> {
        let host = Arc::new(self.host?);
        let (credentials, workspaces) = self.settings.check()?;
        let (closing, options) = (watch::Sender::new(false), self.options);
        let (name, serving) = (OnceLock::new(), Mutex::new(None));
        let inner = Inner { credentials, name, workspaces, host, options, serving, closing };
        Ok(LocalWorkerDaemon(Arc::new(inner)))
    }
}

/// This process as a machine of a server: it serves agents and tasks of its own on the queue `machine/NAME`, by connections
/// that it opens itself. Clones share it.
///
/// The computer is let in with `flovyn daemon pair`, as for the daemon of the command line.
///
/// ```no_run
/// # use flovyn_core::{agent::AgentDefinition, context::{AgentContext, AgentContextExt}, Result};
/// # struct Builds;
/// # #[async_trait::async_trait]
/// # impl AgentDefinition for Builds {
/// #     type State = ();
/// #     type Input = String;
/// #     type Output = String;
/// #     fn kind(&self) -> &str { "builds" }
/// #     async fn execute(&self, _: &dyn AgentContext, name: String) -> Result<String> { Ok(name) }
/// # }
/// # async fn example() -> Result<()> {
/// use flovyn_core::runtime::LocalWorkerDaemon;
///
/// let daemon = LocalWorkerDaemon::builder().workspace("~/src/app").register_agent(Builds).build()?;
/// daemon.run().await
/// # }
/// ```
#[derive(Clone)]
pub struct LocalWorkerDaemon(Arc<Inner>);

struct Inner {
    credentials: MachineCredentials,
    /// Known once the server has told it.
    name: OnceLock<String>,
    workspaces: Vec<PathBuf>,
    host: Arc<NativeHost>,
    options: WorkerOptions,
    serving: Mutex<Option<Serving>>,
    closing: watch::Sender<bool>,
}

#[derive(Clone)]
struct Serving {
    connection: MachineConnection,
    worker: Worker,
    /// The error with which the server has refused the machine.
    refused: watch::Receiver<Option<Error>>,
    announcing: tokio::task::AbortHandle,
}

impl LocalWorkerDaemon {
    /// Serves nothing yet.
    pub fn builder() -> LocalWorkerDaemonBuilder {
        LocalWorkerDaemonBuilder {
            settings: MachineSettings::default(),
            host: Ok(NativeHost::default()),
            options: WorkerOptions::default(),
        }
    }

    /// The directories that the work here is about, by their real paths and in the order in which they were given.
    pub fn workspaces(&self) -> &[PathBuf] {
        &self.0.workspaces
    }

    /// The first workspace.
    pub fn workspace(&self) -> Option<&Path> {
        self.0.workspaces.first().map(PathBuf::as_path)
    }

    /// The server that it works for.
    pub fn server_url(&self) -> &str {
        self.0.credentials.server()
    }

    /// The name of the machine; none before [`start`](Self::start) where only the server knows it.
    pub fn name(&self) -> Option<&str> {
        self.0.name.get().map(String::as_str).or(self.0.credentials.name())
    }

    /// Connects, however long nobody answers, and begins to serve. From then on the server is told every ten seconds that the
    /// machine is there. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// `Unauthenticated`: the key was revoked, or has ended. `InvalidArgument`: it is that of no machine, or of another one than
    /// was named; what answers is no Flovyn server; the daemon was closed.
    pub async fn start(&self) -> Result<()> {
        self.serving().await.map(drop)
    }

    /// Serves until it is closed. Starts where that was not done before.
    ///
    /// # Errors
    ///
    /// As of [`start`](Self::start). `Unauthenticated` or `PermissionDenied` once the server does not let the machine in any
    /// more: what it held is free for whoever serves its queue next.
    pub async fn run(&self) -> Result<()> {
        let mut closing = self.0.closing.subscribe();
        let serving = match self.serving().await {
            Ok(serving) => serving,
            Err(_) if *closing.borrow() => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut refused = serving.refused.clone();
        let error = tokio::select! {
            refused = refused.wait_for(Option::is_some) => refused.ok().and_then(|error| error.clone()),
            _ = closing.wait_for(|closing| *closing) => None,
        };
        let Some(error) = error else { return Ok(()) };
        // A server that lets the machine in no more does not take back what it held either: the leases are over.
        let _ = self.close(GRACE).await;
        Err(error)
    }

    /// Stops: runs are put away and given back at once, running tasks get `grace`.
    pub async fn close(&self, grace: Duration) -> Result<()> {
        self.0.closing.send_replace(true);
        let Some(serving) = self.0.serving.lock().await.take() else { return Ok(()) };
        serving.announcing.abort();
        let closed = serving.worker.close(grace).await;
        let closed = closed.and(serving.connection.runtime().close().await);
        self.0.options.tracer.flush();
        closed
    }

    async fn serving(&self) -> Result<Serving> {
        let inner = &self.0;
        let mut serving = inner.serving.lock().await;
        if let Some(serving) = &*serving {
            return Ok(serving.clone());
        }
        let mut closing = inner.closing.subscribe();
        let connector = MachineConnector::new(inner.credentials.clone());
        let begin = async {
            let connection = connector.connect().await?;
            inner.name.get_or_init(|| connection.name().to_owned());
            let kinds = inner.host.agent_kinds();
            connection.announce(&offers(env!("CARGO_PKG_VERSION"), &kinds, &inner.workspaces)).await?;
            let worker = connection.worker(inner.host.clone(), inner.options.clone()).await?;
            Ok::<_, Error>((connection, worker))
        };
        let (connection, worker) = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => {
                return Err(Error::new(Code::InvalidArgument, "the daemon was closed; build another one"));
            }
            begun = begin => begun?,
        };
        let (sender, refused) = watch::channel(None);
        let announced = connection.clone();
        let announcing = crate::spawn::task(async move {
            sender.send_replace(Some(announced.until_refused().await));
        });
        let announcing = announcing.abort_handle();
        Ok(serving.insert(Serving { connection, worker, refused, announcing }).clone())
    }
}
