//! What a host says: how an agent is declared, and whether its code may go on by itself.

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

/// Whether the agent's code may go on by something that the engine cannot see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// Every branch waits for an outcome: nothing goes on unless one is handed over.
    Nothing,
    /// The host cannot tell.
    Unknown,
    /// Some branch waits for a timer of the host, a thread, another library.
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
    /// A graceful stop is told only to those who ask.
    pub not_cancellable: bool,
    /// The host can never tell that no branch waits for something outside.
    pub blind: bool,
    /// How long the replay of unchanged code waits for a recorded call that a branch may still make, where outcomes are
    /// held up by it; then the run pauses.
    pub replay_timeout: Duration,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            stateful: false,
            code: None,
            on_divergence: OnDivergence::default(),
            not_cancellable: false,
            blind: false,
            replay_timeout: REPLAY_TIMEOUT,
        }
    }
}

/// How long the replay of unchanged code waits for a recorded call, unless the agent says otherwise.
pub const REPLAY_TIMEOUT: Duration = Duration::from_secs(60);
