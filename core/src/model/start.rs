//! What a run is started with.

use super::SharedContext;
use super::machine::MACHINE_QUEUES;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::payload::{Digest, Payload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Limits that a start gives.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StartLimits {
    /// Steps after which the run pauses.
    pub max_steps: Option<u32>,
    /// Steps after which `resume` is refused; 500 unless set, where `max_steps` is given.
    pub max_total_steps: Option<u32>,
    /// Ops of one tail after which the run pauses; 50,000 unless set.
    pub max_tail: Option<u32>,
    /// What its model calls may use: the JSON of a [`Budget`](super::Budget), or a number of tokens.
    pub budget: Option<String>,
    /// How long the run may take, from its creation.
    pub timeout: Option<Duration>,
    /// How long it may wait for a worker to begin it, from its creation, or from when a delayed start comes.
    pub start_timeout: Option<Duration>,
}

/// A run as its starter asks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewExecution {
    /// Tenant.
    pub org: OrgId,
    /// Its id: a UUID that was given, or one made from the key.
    pub id: ExecutionId,
    /// The user's own name for it, where that is not a UUID.
    pub key: Option<String>,
    /// The agent.
    pub kind: String,
    /// The queue its workers poll.
    pub queue: String,
    /// The argument.
    pub input: Payload,
    /// Digest of the argument. A start with the same id and another digest is refused.
    pub input_digest: Digest,
    /// Limits.
    pub limits: StartLimits,
    /// Small JSON object for filters.
    pub metadata: BTreeMap<String, String>,
    /// Runs with a higher priority are claimed first.
    pub priority: i32,
    /// Only so many runs of the same key and org are RUNNING at a time as `concurrency_limit` says.
    pub concurrency_key: Option<String>,
    /// The run begins only while fewer runs of its key than this are RUNNING; 1 unless set.
    pub concurrency_limit: Option<u32>,
    /// It cannot be claimed before this time has passed.
    pub delay: Option<Duration>,
    /// W3C trace parent of the starter.
    pub traceparent: Option<String>,
    /// What becomes of it when the run that started it ends.
    pub on_parent_end: OnParentEnd,
    /// What it is given of the conversation of the run that starts it.
    pub shared_context: Option<SharedContext>,
    /// Whether its journal is kept. Once it has to be, this is `Full`.
    pub persistence: Persistence,
}

/// Whether the journal of a run is kept: its conversation, the results of its steps, its checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    /// Every step is durable before the code learns of it.
    #[default]
    Full,
    /// The journal stays in memory until somebody else depends on it: the run waits, starts a child, sends a message, calls
    /// a task of other workers or one that must not run twice, or asks for it. From then on it is a full one. Its end, what
    /// it has used and its signals are always kept. A crash before starts it from the beginning.
    Minimal,
    /// The same, under the name that children are given.
    Ephemeral,
    /// The values of the journal stay in a file of the machine that runs it; a store elsewhere has what they are the values
    /// of: how many, of which kind and size, in which order. Only that machine can go on with the run.
    Local,
}

impl Persistence {
    /// All of them, by the number under which they are stored.
    pub(crate) const ALL: [Self; 4] = [Self::Full, Self::Minimal, Self::Ephemeral, Self::Local];

    /// Whether every step of a run is durable before its code learns of it.
    pub fn keeps_journal(self) -> bool {
        matches!(self, Self::Full | Self::Local)
    }

    /// The word of it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Minimal => "minimal",
            Self::Ephemeral => "ephemeral",
            Self::Local => "local",
        }
    }

    /// Whether a run on this queue may have it, in a store that keeps its rows there.
    ///
    /// Errors: `InvalidArgument`.
    #[doc(hidden)]
    pub fn check(self, rows: Rows, queue: &str) -> Result<()> {
        let message = match rows {
            Rows::InFile => return Ok(()),
            _ if self != Self::Local => return Ok(()),
            Rows::InMemory => {
                "it keeps a run's values in a file, and memory: has none; open sqlite:FILE, or give \"full\""
            }
            Rows::Elsewhere if queue.starts_with(MACHINE_QUEUES) => return Ok(()),
            Rows::Elsewhere => {
                "it keeps a run's values on the machine that runs it, and the run is for none; name one (mode=Local(\"NAME\"), \
                 REST \"machine\"), or give \"full\""
            }
        };
        Err(Error::new(Code::InvalidArgument, format!("persistence is \"local\": {message}")))
    }

    /// The persistence of a word.
    ///
    /// Errors: `InvalidArgument` for another word.
    pub fn parse(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word).ok_or_else(|| {
            let message = format!("persistence is {word:?}; give \"full\", \"minimal\", \"ephemeral\" or \"local\"");
            Error::new(Code::InvalidArgument, message)
        })
    }
}

/// Where a store has its rows, as the process sees it that calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Rows {
    /// In the memory of the process.
    InMemory,
    /// In a file of the computer.
    InFile,
    /// On a server or in a database, which others use too.
    Elsewhere,
}

/// What becomes of a child that still runs when its parent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnParentEnd {
    /// It is asked to stop in the way in which its parent ends.
    #[default]
    Cancel,
    /// It goes on.
    Detach,
}

impl OnParentEnd {
    /// The value of a word.
    ///
    /// Errors: `InvalidArgument`.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "cancel" => Ok(Self::Cancel),
            "detach" => Ok(Self::Detach),
            _ => {
                let message = format!("on_parent_end is {word:?}; give \"cancel\" or \"detach\"");
                Err(Error::new(Code::InvalidArgument, message))
            }
        }
    }
}

impl NewExecution {
    /// A run of an agent with an argument and defaults for the rest.
    pub fn new(id: ExecutionId, kind: impl Into<String>, input: Payload) -> Result<Self> {
        Ok(Self {
            org: OrgId::DEFAULT,
            id,
            key: None,
            kind: kind.into(),
            queue: "default".into(),
            input_digest: input.digest()?,
            input,
            limits: StartLimits::default(),
            metadata: BTreeMap::new(),
            priority: 0,
            concurrency_key: None,
            concurrency_limit: None,
            delay: None,
            traceparent: None,
            on_parent_end: OnParentEnd::Cancel,
            shared_context: None,
            persistence: Persistence::Full,
        })
    }
}

/// How many runs of a concurrency key may be RUNNING at a time, by the limit that a run was started with.
pub(crate) fn runners(limit: Option<u32>) -> usize {
    limit.map_or(1, |limit| limit.max(1) as usize)
}

/// Refuses a concurrency limit of 0, and one without a concurrency key.
///
/// Errors: `InvalidArgument`.
pub(crate) fn check_concurrency(key: Option<&str>, limit: Option<u32>) -> Result<()> {
    let wrong = match (key, limit) {
        (_, Some(0)) => "a concurrency limit of 0 would let nothing run; give a number from 1, or none for 1",
        (None, Some(_)) => "a concurrency limit is that of a concurrency key; give the key too",
        _ => return Ok(()),
    };
    Err(Error::new(Code::InvalidArgument, wrong))
}
