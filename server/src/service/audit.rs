//! The audit: acts on runs, and on settings of an org, are recorded before they are done. An act that cannot be recorded is
//! not done.

use super::Service;
use super::requester::Requester;
use flovyn_core::error::Result;
use std::fmt::Display;

/// The acts that are recorded, each by a name that programs search for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Cancel,
    Remove,
    Resume,
    Resolve,
    Decide,
    /// The answer of a person about a call, which is recorded once it is the one that counts.
    Answer,
    Fork,
    Define,
    Undefine,
    Schedule,
    Unschedule,
    Limit,
}

impl Act {
    fn word(self) -> &'static str {
        match self {
            Self::Cancel => "execution.cancel",
            Self::Remove => "execution.remove",
            Self::Resume => "execution.resume",
            Self::Resolve => "task.resolve",
            Self::Decide => "divergence.decide",
            Self::Answer => "approval.decide",
            Self::Fork => "execution.fork",
            Self::Define => "definition.put",
            Self::Undefine => "definition.delete",
            Self::Schedule => "schedule.put",
            Self::Unschedule => "schedule.delete",
            Self::Limit => "queue.limit",
        }
    }
}

impl Service {
    /// Writes down what is about to be done to something of an org. A refusal that follows leaves the row: it was asked.
    pub(super) async fn audit(&self, by: &Requester, act: Act, subject: impl Display) -> Result<()> {
        self.storage.server_side()?.record(by.org, &by.to_string(), act.word(), &subject.to_string()).await
    }
}
