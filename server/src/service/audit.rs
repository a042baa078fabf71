//! The audit: acts on runs, and on settings of an org, are recorded before they are done. An act that cannot be recorded is
//! not done.

use super::Service;
use crate::Identity;
use crate::request_id::RequestId;
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use std::fmt;

/// The caller of an act, and the id of its request.
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

/// The acts that are recorded, each by a name that programs search for.
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
