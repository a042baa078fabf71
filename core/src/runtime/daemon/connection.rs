//! A machine's connection to its server: made however long nobody answers at first, announced from time to time, over once
//! the server does not let the machine in any more.

use super::key::MachineKey;
use crate::error::{Code, Error, Kind, Result};
use crate::runtime::Runtime;
use crate::storage::available::until_available;
use crate::storage::machines::machine_queue;
use crate::storage::remote::{RemoteOptions, RemoteStorage, Tokens};
use crate::storage::{Machines, Storage};
use crate::worker::{Host, Worker, WorkerOptions};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often the server is told that the machine is there, and asked whether it still may be.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(10);
/// How long to wait, at first and at most, for a server that does not answer when the daemon starts.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What a machine shows its server.
#[derive(Clone)]
pub enum MachineCredentials {
    /// The key of a home, which names server and machine.
    Stored(MachineKey),
    /// A key that a program was given.
    Given {
        /// The server.
        server: String,
        /// The key.
        token: String,
        /// What the machine is called, where the program says so.
        name: Option<String>,
    },
}

impl MachineCredentials {
    /// The server.
    pub fn server(&self) -> &str {
        match self {
            Self::Stored(key) => &key.server,
            Self::Given { server, .. } => server,
        }
    }

    /// The name of the machine, as far as it is known before the server is asked.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Stored(key) => Some(&key.name),
            Self::Given { name, .. } => name.as_deref(),
        }
    }

    /// The folder that holds the key.
    fn home(&self) -> Option<&Path> {
        match self {
            Self::Stored(key) => key.file().parent(),
            Self::Given { .. } => None,
        }
    }

    fn tokens(&self) -> Box<dyn Tokens> {
        match self {
            Self::Stored(key) => Box::new(key.clone()),
            Self::Given { token, .. } => Box::new(RemoteOptions { token: Some(token.clone()) }),
        }
    }

    /// The name that the server has the machine under: `told` is what it says of the key.
    fn named(&self, told: Option<&str>) -> Result<String> {
        let server = self.server();
        let message = match (self, told, self.name()) {
            (_, Some(told), Some(name)) if told != name => {
                format!("the name is given as {name:?}, and the key is that of the machine {told:?} at {server}")
            }
            (_, Some(told), _) => return Ok(told.to_owned()),
            // A server of before did not say whose key it is.
            (Self::Stored(key), None, _) => return Ok(key.name.clone()),
            (Self::Given { .. }, None, _) => format!(
                "the key is that of no machine at {server}; pair this computer (flovyn daemon pair --server {server}), and \
                 give the key of the machine"
            ),
        };
        Err(Error::new(Code::InvalidArgument, message))
    }

    /// Says of a refusal what it means for the machine `name`.
    fn explain(&self, name: Option<&str>, error: Error) -> Error {
        if error.kind() != Kind::Denied {
            return error;
        }
        let (server, again) = (self.server(), "flovyn daemon pair --replace");
        let message = match name {
            Some(name) => format!(
                "{server} does not let the machine {name:?} in any more: it was revoked, or its key has ended. Pair again: \
                 {again}"
            ),
            None => format!(
                "{server} does not take the key: it was revoked, has ended, or is of another server. Pair again: {again}"
            ),
        };
        Error::new(error.code(), message).caused_by(error)
    }
}

/// Connects a machine, however long nobody answers: a computer starts before its network does.
pub struct MachineConnector {
    credentials: MachineCredentials,
    /// How long to wait before the next attempt.
    pause: Duration,
    /// How long to wait after the next one.
    next: Duration,
}

impl MachineConnector {
    /// Nothing is done before the first attempt.
    pub fn new(credentials: MachineCredentials) -> Self {
        Self { credentials, pause: Duration::ZERO, next: WAITS.0 }
    }

    /// Connects, and waits between the attempts. What goes wrong meanwhile is logged.
    ///
    /// # Errors
    ///
    /// As of [`attempt`](Self::attempt).
    pub async fn connect(mut self) -> Result<MachineConnection> {
        loop {
            match self.attempt().await? {
                Ok(connection) => return Ok(connection),
                Err(unanswered) => {
                    let seconds = unanswered.pause.as_secs();
                    tracing::warn!(error = %unanswered.error, seconds, "the server does not answer; it is tried again");
                }
            }
        }
    }

    /// Tries once, after the pause that the attempt before has left.
    ///
    /// # Errors
    ///
    /// The server answers and does not let the machine in: `Unauthenticated`; `InvalidArgument` for a key that is no machine's
    /// or that of another machine, and for what is no Flovyn server.
    pub async fn attempt(&mut self) -> Result<Result<MachineConnection, Unanswered>> {
        tokio::time::sleep(std::mem::take(&mut self.pause)).await;
        let credentials = &self.credentials;
        match RemoteStorage::connect_by(credentials.server(), credentials.tokens()).await {
            Ok(storage) => {
                let name = credentials.named(storage.machine())?;
                let storage = Arc::new(storage);
                let runtime = Runtime::over(storage.clone());
                credentials.home().into_iter().for_each(|home| runtime.keep_values_in(home));
                Ok(Ok(MachineConnection { credentials: credentials.clone(), name, storage, runtime }))
            }
            Err(error) if error.kind() == Kind::Unavailable => {
                self.pause = self.next;
                self.next = (self.next * 2).min(WAITS.1);
                Ok(Err(Unanswered { error, pause: self.pause }))
            }
            Err(error) => Err(credentials.explain(credentials.name(), error)),
        }
    }
}

/// Nobody has answered an attempt to connect.
pub struct Unanswered {
    /// What went wrong.
    pub error: Error,
    /// How long the next attempt waits.
    pub pause: Duration,
}

/// The name of what a computer keeps for runs of a machine, such as the records of tools. Each machine of a server has its own.
pub fn store_of(server: &str, machine: &str) -> String {
    format!("{server}#{}", machine_queue(machine))
}

/// A server that lets the machine in. Clones share the connection.
#[derive(Clone)]
pub struct MachineConnection {
    credentials: MachineCredentials,
    name: String,
    storage: Arc<RemoteStorage>,
    runtime: Runtime,
}

impl MachineConnection {
    /// The machine's name there.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queue that it serves.
    pub fn queue(&self) -> String {
        machine_queue(&self.name)
    }

    /// The backend.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The name of what this computer keeps for runs of this machine.
    pub fn store(&self) -> String {
        store_of(self.credentials.server(), &self.name)
    }

    /// Tells the server what the machine offers, a JSON object, however long nobody answers.
    ///
    /// # Errors
    ///
    /// `Unauthenticated`, `PermissionDenied`: the machine is not let in any more.
    pub async fn announce(&self, offers: &Value) -> Result<()> {
        let offers = offers.to_string();
        self.until_answered(|| self.announced(Some(&offers))).await.map_err(|error| self.explain(error))
    }

    /// Starts a worker for what is to be done on the machine, however long nobody answers.
    ///
    /// # Errors
    ///
    /// As of [`Runtime::worker`].
    pub async fn worker(&self, host: Arc<dyn Host>, options: WorkerOptions) -> Result<Worker> {
        let options = WorkerOptions { queue: self.queue(), name: format!("machine {}", self.name), ..options };
        self.until_answered(|| self.runtime.worker(host.clone(), options.clone())).await
    }

    /// Asks again where nobody answers: the server may end, and begin anew, as this machine starts.
    async fn until_answered<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        until_available(Storage::hints(&*self.storage).outage(), &self.name, || true, ask).await
    }

    /// Tells the server from time to time that the machine is there. Resolves when the server does not let it in any more,
    /// with what that means.
    pub async fn until_refused(&self) -> Error {
        loop {
            tokio::time::sleep(ANNOUNCE_EVERY).await;
            if let Err(error) = self.announced(None).await
                && matches!(error.code(), Code::Unauthenticated | Code::PermissionDenied)
            {
                return self.explain(error);
            }
        }
    }

    async fn announced(&self, offers: Option<&str>) -> Result<()> {
        self.storage.announce_machine(Storage::org(&*self.storage), &self.name, offers).await
    }

    fn explain(&self, error: Error) -> Error {
        self.credentials.explain(Some(&self.name), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_given_is_that_of_the_machine_that_the_server_names() {
        let given = |name: Option<&str>| MachineCredentials::Given {
            server: "http://localhost:1".into(),
            token: "fk_1".into(),
            name: name.map(str::to_owned),
        };
        assert_eq!(given(None).named(Some("laptop")).unwrap(), "laptop");
        assert_eq!(given(Some("laptop")).named(Some("laptop")).unwrap(), "laptop");
        let message = given(Some("desktop")).named(Some("laptop")).unwrap_err().to_string();
        assert!(message.contains("\"desktop\"") && message.contains("machine \"laptop\""), "{message}");
        let message = given(Some("laptop")).named(None).unwrap_err().to_string();
        assert!(message.contains("that of no machine"), "{message}");
    }
}
