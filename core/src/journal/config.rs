//! What a host tells the machine: how an agent is declared, and whether its code may go on by itself.

use crate::error::{Code, Error};
use std::time::Duration;

/// What to do when edited code no longer matches the tail (rule 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDivergence {
    /// Go on: new steps run, finished ones keep their results.
    #[default]
    Continue,
    /// Stop with `Diverged`.
    Fail,
    /// Pause until a person decides.
    Pause,
}

impl OnDivergence {
    /// Parses a policy.
    pub fn parse(word: &str) -> Result<Self, Error> {
        match word {
            "continue" => Ok(Self::Continue),
            "fail" => Ok(Self::Fail),
            "pause" => Ok(Self::Pause),
            _ => Err(unknown("divergence", word, "\"continue\", \"fail\" or \"pause\"")),
        }
    }
}

/// What an error that leaves the agent's function does to its run (rule 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The run pauses if the error is likely a mistake in the code that took up the run: it came before everything
    /// recorded was called again, before the first commit of changed code, or from a value that does not fit its type.
    /// Else the run fails.
    #[default]
    Judge,
    /// The run fails.
    Fail,
    /// The run pauses until a person or the next deploy resumes it.
    Pause,
}

impl OnError {
    /// Parses a policy. Without a word it is [`OnError::Judge`].
    pub fn parse(word: Option<&str>) -> Result<Self, Error> {
        match word {
            None => Ok(Self::Judge),
            Some("fail") => Ok(Self::Fail),
            Some("pause") => Ok(Self::Pause),
            Some(word) => Err(unknown("errors", word, "\"fail\" or \"pause\", or leave it out")),
        }
    }
}

fn unknown(what: &str, word: &str, known: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("the policy on {what} {word:?} is unknown; pass {known}"))
}

/// Whether something that the engine cannot see may make the agent's code go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// Every branch waits for an outcome: nothing goes on unless one is handed over.
    Nothing,
    /// The host cannot tell.
    Unknown,
    /// Some branch waits for a timer of the host, a thread or another library.
    Something,
}

/// What the machine must know of the agent's declaration.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// Declared with state: `checkpoint` ends a segment.
    pub stateful: bool,
    /// Identifies the agent's code: its `version`, else a fingerprint of its source.
    pub code: Option<String>,
    /// What to do when code and tail differ.
    pub on_divergence: OnDivergence,
    /// What to do when an error leaves the code.
    pub on_error: OnError,
    /// Awaits do not end with `Cancelled` when the run is asked to stop gracefully. Only code that asks learns of it.
    pub not_cancellable: bool,
    /// The host can never tell that no branch waits for something outside.
    pub blind: bool,
    /// How long the replay of unchanged code waits for a recorded call that a branch may still make and that holds
    /// outcomes up. Then the run pauses.
    pub replay_timeout: Duration,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            stateful: false,
            code: None,
            on_divergence: OnDivergence::default(),
            on_error: OnError::default(),
            not_cancellable: false,
            blind: false,
            replay_timeout: REPLAY_TIMEOUT,
        }
    }
}

/// How long the replay of unchanged code waits for a recorded call, unless the agent says otherwise.
pub const REPLAY_TIMEOUT: Duration = Duration::from_secs(60);
