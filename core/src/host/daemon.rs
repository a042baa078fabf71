//! This process as a machine of a server, as a binding holds it.

use super::{HostRuntime, forked, pool};
use crate::error::{Code, Error, Result};
use crate::runtime::daemon::{MachineConnection, MachineConnector, MachineCredentials, MachineSettings, offers};
use crate::sync::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// A machine of a server. Every method may be called from any thread; clones share it.
#[derive(Clone)]
pub struct HostDaemon {
    pool: Arc<tokio::runtime::Runtime>,
    credentials: MachineCredentials,
    workspaces: Arc<[PathBuf]>,
    connector: Arc<tokio::sync::Mutex<MachineConnector>>,
    connection: Arc<Mutex<Option<MachineConnection>>>,
    pid: u32,
}

impl HostDaemon {
    /// Checks what was given; connects nothing.
    ///
    /// # Errors
    ///
    /// As of [`MachineSettings::check`].
    pub fn new(settings: &MachineSettings) -> Result<Self> {
        let (credentials, workspaces) = settings.check()?;
        Ok(Self {
            pool: pool()?,
            connector: Arc::new(tokio::sync::Mutex::new(MachineConnector::new(credentials.clone()))),
            credentials,
            workspaces: workspaces.into(),
            connection: Arc::default(),
            pid: std::process::id(),
        })
    }

    /// The engine's threads.
    pub fn handle(&self) -> tokio::runtime::Handle {
        self.pool.handle().clone()
    }

    /// The server.
    pub fn server_url(&self) -> &str {
        self.credentials.server()
    }

    /// The name of the machine; none before it is connected where only the server knows it.
    pub fn name(&self) -> Option<String> {
        let connection = self.connection.lock();
        connection.as_ref().map(MachineConnection::name).or(self.credentials.name()).map(str::to_owned)
    }

    /// The directories that its work is about, by their real paths.
    pub fn workspaces(&self) -> Vec<String> {
        self.workspaces.iter().map(|path| path.display().to_string()).collect()
    }

    /// Tries once to connect, after the pause that the attempt before has left. Where nobody answers: the words for it.
    ///
    /// # Errors
    ///
    /// As of [`MachineConnector::attempt`].
    pub async fn connect(&self) -> Result<Result<HostRuntime, String>> {
        if self.pid != std::process::id() {
            return Err(forked());
        }
        let connection = match self.connector.lock().await.attempt().await? {
            Ok(connection) => connection,
            Err(unanswered) => {
                let seconds = unanswered.pause.as_secs();
                return Ok(Err(format!("{}; it is tried again in {seconds} s", unanswered.error.message())));
            }
        };
        let (runtime, url) = (connection.runtime().clone(), self.credentials.server().to_owned());
        let host = HostRuntime { pool: self.pool.clone(), runtime, url, store: connection.store(), pid: self.pid };
        *self.connection.lock() = Some(connection);
        Ok(Ok(host))
    }

    /// Tells the server which agents are served here, and the workspaces.
    ///
    /// # Errors
    ///
    /// As of [`MachineConnection::announce`].
    pub async fn announce(&self, kinds: &[String]) -> Result<()> {
        self.connected()?.announce(&offers(env!("CARGO_PKG_VERSION"), kinds, &self.workspaces)).await
    }

    /// Tells the server every ten seconds that the machine is there. Ends with an error: that the machine is not let in any
    /// more.
    ///
    /// # Errors
    ///
    /// Always.
    pub async fn until_refused(&self) -> Result<()> {
        Err(self.connected()?.until_refused().await)
    }

    fn connected(&self) -> Result<MachineConnection> {
        let connection = self.connection.lock().clone();
        connection.ok_or_else(|| Error::new(Code::InvalidArgument, "the machine is not connected; start it first"))
    }
}
