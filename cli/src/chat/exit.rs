//! How an answer without a conversation ends: its exit code, and its words for programs and people.

use crate::{Failed, Result};
use flovyn_toolkit::react::StopReason;

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The agent has finished.
    Finished,
    /// It failed.
    Failed,
    /// It has made as many model calls as it may.
    MaxTurns,
    /// The budget is used up.
    Budget,
    /// The model refused.
    Refused,
    /// The answer was longer than it may be.
    TooLong,
    /// The answer was not of the form that was asked for.
    InvalidOutput,
    /// Ctrl-C, or somebody else has stopped the agent.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

impl Ending {
    /// The ending of a reason.
    pub(super) fn of(reason: StopReason) -> Self {
        match reason {
            StopReason::End => Self::Finished,
            StopReason::Length => Self::TooLong,
            StopReason::Refusal => Self::Refused,
            StopReason::MaxTurns => Self::MaxTurns,
            StopReason::Budget => Self::Budget,
            StopReason::InvalidOutput => Self::InvalidOutput,
            StopReason::Interrupted => Self::Interrupted,
            StopReason::Error => Self::Failed,
        }
    }

    /// The exit code of the command.
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Finished => 0,
            Self::Failed => 1,
            // 2 is wrong usage.
            Self::MaxTurns => 3,
            Self::Budget => 4,
            Self::Refused => 5,
            Self::TooLong => 6,
            Self::InvalidOutput => 7,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// The end of the command.
    pub(super) fn done(self) -> Result {
        match self.code() {
            0 => Ok(()),
            code => Err(Failed::Exit(code)),
        }
    }

    /// The reason, as runs of the agent say it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Finished => "end",
            Self::Failed => "error",
            Self::MaxTurns => "max_turns",
            Self::Budget => "budget",
            Self::Refused => "refusal",
            Self::TooLong => "length",
            Self::InvalidOutput => "invalid_output",
            Self::Interrupted | Self::Terminated => "interrupted",
        }
    }

    /// The `subtype` of a result, as other agents say it.
    pub(super) fn subtype(self) -> &'static str {
        match self {
            Self::Finished => "success",
            Self::MaxTurns => "error_max_turns",
            Self::Budget => "error_max_budget_usd",
            Self::InvalidOutput => "error_max_structured_output_retries",
            Self::Failed | Self::Refused | Self::TooLong | Self::Interrupted | Self::Terminated => {
                "error_during_execution"
            }
        }
    }

    /// For people; none where the agent has finished, or where an error says it.
    pub(super) fn describe(self, turns: u32) -> Option<String> {
        match self {
            Self::Finished | Self::Failed => None,
            Self::MaxTurns => Some(format!("stopped: {turns} model calls are as many as it may make (--max-turns)")),
            Self::Budget => Some("stopped: the budget is used up (--max-cost)".to_owned()),
            Self::Refused => Some("stopped: the model refused".to_owned()),
            Self::TooLong => Some("stopped: the answer was longer than it may be".to_owned()),
            Self::InvalidOutput => Some("stopped: no answer was of the form that was asked for".to_owned()),
            Self::Interrupted | Self::Terminated => Some("interrupted".to_owned()),
        }
    }
}
