//! The trait of drivers: what each has to know about its agent, and nothing that all of them need.

use super::event::{Answer, ExternalEvent, TurnLog};
use super::process::{Launch, Outbox, Peer};
use crate::tools::ToolEnvironment;
use async_trait::async_trait;
use flovyn_core::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a session is opened with.
#[derive(Clone)]
pub struct SessionConfig {
    /// Where the agent works.
    pub working_dir: PathBuf,
    /// The model that it is to ask; its own choice unless given.
    pub model: Option<String>,
    /// The id that a new session gets, where the agent lets others choose it.
    pub new_id: String,
    /// Where what the agent has done by its host is done.
    pub environment: ToolEnvironment,
    /// How long it may take until the agent speaks its protocol.
    pub start_timeout: Duration,
    /// Variables that the agent gets beside those that it inherits.
    pub env: Vec<(String, String)>,
}

impl SessionConfig {
    /// A variable as the agent sees it.
    pub fn variable(&self, name: &str) -> Option<String> {
        let own = self.env.iter().rev().find(|(own, _)| own == name);
        own.map(|(_, value)| value.clone()).or_else(|| std::env::var(name).ok())
    }
}

/// What is kept of a session to resume it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    /// The agent's id of the session. It is the same over all processes.
    pub session_id: String,
    /// Where in the agent's own records the last turn ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The driver, and the agent with its version, as far as it says.
    pub agent: String,
    /// What the agent said last that the session has cost in all, in millionths; none where it says what each turn costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// Names the processes of the run; drivers leave it empty.
    pub mark: String,
}

/// What the agent's own records say of a turn that was cut.
#[derive(Debug, Clone, PartialEq)]
pub enum CatchUp {
    /// It never heard the message of the turn.
    Unheard,
    /// It heard it, and this came of it; its turn has not ended. `heard` are the messages of the user that it knows.
    Cut {
        /// The messages of the user since the turn began.
        heard: Vec<String>,
        /// All that it has said since.
        events: Vec<ExternalEvent>,
    },
    /// It has finished the turn. The last event says so.
    Ended(Vec<ExternalEvent>),
    /// It does not say.
    Unknown,
}

/// Why a driver has to do with no session any more.
#[derive(Debug, Clone)]
pub enum Lost {
    /// The process ended, was silent, or stopped speaking its protocol. Another one may resume the session.
    Died(String),
    /// Another process would not help.
    Refused(Error),
}

/// Results of drivers.
pub type Spoken<T> = std::result::Result<T, Lost>;

impl Lost {
    /// What the agent refuses, or was refused.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused(Error::new(Code::NonRetryable, message))
    }
}

impl From<Error> for Lost {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Died(why) => f.write_str(why),
            Self::Refused(error) => f.write_str(error.message()),
        }
    }
}

/// A driver: how an agent is started, and how its protocol is spoken.
#[async_trait]
pub trait ExternalAgentProtocol: Send + Sync + 'static {
    /// The driver's name: `acp`, `pi` or `claude`.
    fn name(&self) -> &'static str;

    /// The command that starts the agent. `snapshot` is that of the session to resume.
    fn launch(&self, config: &SessionConfig, snapshot: Option<&Snapshot>) -> Launch;

    /// Whether the program says its version to `--version`.
    fn tells_version(&self) -> bool {
        false
    }

    /// Whether a message can be added while the agent works. Otherwise its turn is ended and another one begun.
    fn steers(&self) -> bool;

    /// Begins a session in a process that was started for it.
    async fn start(&self, peer: Peer, config: &SessionConfig) -> Spoken<Box<dyn ExternalSession>>;

    /// Resumes a session in a process that was started for it. `heard` is what was recorded of the turn that may have been
    /// cut; none where the agent was idle.
    async fn resume(
        &self,
        peer: Peer,
        config: &SessionConfig,
        snapshot: &Snapshot,
        heard: Option<&TurnLog>,
    ) -> Spoken<(Box<dyn ExternalSession>, CatchUp)>;
}

/// A session of an agent in a living process.
#[async_trait]
pub trait ExternalSession: Send {
    /// What is kept of it.
    fn snapshot(&self) -> Snapshot;

    /// The process.
    fn peer(&mut self) -> &mut Peer;

    /// Sends a message, which begins a turn.
    async fn send_message(&mut self, text: &str) -> Spoken<()>;

    /// The next event. A call that is dropped loses none.
    async fn next(&mut self) -> Spoken<ExternalEvent>;

    /// Answers a permission. One that the process does not know, since it was asked by another one, changes nothing.
    async fn answer(&mut self, id: &str, answer: &Answer) -> Spoken<()>;

    /// Whether it is silent because something that its host does for it takes long.
    fn waits_for_host(&self) -> bool {
        false
    }

    /// What may be sent while [`next`](Self::next) waits.
    fn controls(&self) -> Controls;
}

/// Makes the record of a message that steers an agent.
pub type SteeringRecord = Arc<dyn Fn(&str) -> Value + Send + Sync>;

/// What may be sent to an agent while it works.
#[derive(Clone)]
pub struct Controls {
    /// Takes records for the agent.
    pub outbox: Outbox,
    /// Makes the records that ask it to end its turn.
    pub interrupt: Arc<dyn Fn() -> Vec<Value> + Send + Sync>,
    /// Makes the record of a message that steers it, where it can be steered. The record is sent.
    pub steer: Option<SteeringRecord>,
}

impl Controls {
    /// Asks the agent to end its turn.
    pub fn interrupt(&self) -> Result<()> {
        (self.interrupt)().iter().try_for_each(|record| self.outbox.send(record))
    }

    /// Sends a message that steers it; whether it can be steered.
    pub fn steer(&self, text: &str) -> Result<bool> {
        let Some(record) = &self.steer else { return Ok(false) };
        self.outbox.send(&record(text)).map(|()| true)
    }
}
