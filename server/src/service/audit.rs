//! What callers are about to do to a run, or to what all runs of an org go by, is written down first: what cannot be written is
//! not done.

use super::Service;
use crate::Identity;
use crate::request_id::RequestId;
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use std::fmt;

/// Who asks, under which request.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    pub(crate) who: Identity,
    pub(crate) request: RequestId,
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} request {}", self.who.name(), self.request)
    }
}

/// What is written down: a word each, which programs look for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    Cancel,
    Remove,
    Resume,
    Resolve,
    Decide,
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
    pub(crate) async fn audit(
        &self,
        org: OrgId,
        requester: &Requester,
        act: Act,
        subject: impl fmt::Display,
    ) -> Result<()> {
        match self.storage.directory() {
            Some(directory) => directory.record(org, &requester.to_string(), act.word(), &subject.to_string()).await,
            None => Ok(()),
        }
    }
}
