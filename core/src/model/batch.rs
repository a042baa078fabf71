//! One commit of a run: everything in it becomes durable together or not at all.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, RequestId, SignalId, Slot};
use crate::model::{
    Cancellation, Fact, Failure, Lease, NewCheckpoint, NewEvent, NewOp, OpBody, Status, Wait, WaitReason,
};
use crate::payload::{Digest, Payload};
use std::time::Duration;

/// A commit as a worker sends it. Checked in this order: lease, request id, base (rule 2).
#[derive(Debug, Clone)]
pub struct CommitRequest {
    /// Tenant.
    pub org: OrgId,
    /// The run.
    pub execution: ExecutionId,
    /// The sender's right.
    pub lease: Lease,
    /// The same for every retry of this commit.
    pub request_id: RequestId,
    /// Digest of the batch: a known request with another one is an error.
    pub digest: Digest,
    /// The number of the previous commit.
    pub base: u64,
    /// The highest fact number the sender has been told.
    pub known: u64,
    /// What becomes durable.
    pub batch: Batch,
}

/// What becomes durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The segment its ops belong to.
    pub segment: u32,
    /// New ops in order.
    pub ops: Vec<NewOp>,
    /// Ends of inline attempts, in the order they ended.
    pub attempts: Vec<AttemptReport>,
    /// Inline attempts started again after their holder was lost: sequence and the new attempt's number.
    pub restarted: Vec<(u32, u32)>,
    /// Recorded reads that were answered alike again: sequence and the new count.
    pub read_counts: Vec<(u32, u32)>,
    /// Signals taken out of the mailbox.
    pub consumed: Vec<Consumed>,
    /// Ops whose timer no longer matters.
    pub disarmed: Vec<u32>,
    /// Recorded ops that nobody claimed by the end of the segment.
    pub orphaned: Vec<u32>,
    /// Events of the session itself: warnings, retractions.
    pub events: Vec<NewEvent>,
    /// The code that recorded this, where it differs from what the run has.
    pub code: Option<String>,
    /// What follows.
    pub end: BatchEnd,
}

impl Batch {
    /// New ops in one commit, and ends of attempts.
    pub const MOST: usize = 10_000;
    /// Tasks of a run that have not ended.
    pub const MOST_OPEN: usize = 10_000;

    /// Errors: `LimitReached` where it has more in it than one commit may.
    pub fn check_size(&self) -> Result<()> {
        for (count, what) in [(self.ops.len(), "ops"), (self.attempts.len(), "ends of attempts")] {
            if count > Self::MOST {
                let most = Self::MOST;
                let message = format!("a commit has {count} {what} and may have {most}: send them in several commits");
                return Err(Error::new(Code::LimitReached, message).with("limit", most));
            }
        }
        Ok(())
    }

    /// Whether it calls tasks.
    pub fn calls_tasks(&self) -> bool {
        self.ops.iter().any(|op| matches!(op.body, OpBody::Task(_)))
    }
}

/// A signal and the op that takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumed {
    /// The signal.
    pub signal: SignalId,
    /// The op.
    pub by: Slot,
}

/// The end of an inline attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptReport {
    /// The op that scheduled the task, in the batch's segment.
    pub sequence: u32,
    /// Which attempt this speaks for.
    pub attempt: u32,
    /// Its end.
    pub result: AttemptResult,
    /// How long it ran.
    pub duration: Duration,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptResult {
    /// It returned.
    Completed(Payload),
    /// It raised, or ran out of time (`TaskTimeout`).
    Failed {
        /// What it raised.
        failure: Failure,
        /// Whether the error's type allows another attempt.
        retryable: bool,
        /// How long the error itself asks to wait before another attempt, instead of what the policy says.
        pause: Option<Duration>,
    },
    /// It ended because its run was cancelled.
    Cancelled,
    /// It was asked whether it took effect (`reconcile`) and did not.
    NotDone,
    /// It was given back without an end: a draining worker.
    Released,
}

impl AttemptResult {
    /// The end of a model call that was cut short: the text it had streamed is its result.
    pub(crate) fn said(text: &str) -> Self {
        Self::Completed(Payload::json(serde_json::Value::from(text).to_string()))
    }
}

/// What follows a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchEnd {
    /// The run goes on in this process.
    Continue,
    /// The run waits, unless a fact newer than `known` is there.
    Suspend(Wait),
    /// The segment ends with a checkpoint.
    Checkpoint(NewCheckpoint),
    /// The run ends with an output.
    Complete(Payload),
    /// The run ends with an error.
    Fail(Failure),
    /// The run ends as cancelled, with what was kept.
    Cancelled(Option<Payload>),
    /// The run pauses until somebody decides.
    Pause {
        /// Why.
        reason: WaitReason,
        /// What to tell people.
        failure: Option<Failure>,
    },
}

/// What a commit answers; the same for every retry of a request.
#[derive(Debug, Clone)]
pub struct CommitAnswer {
    /// The number of this commit: the `base` of the next.
    pub number: u64,
    /// How the run stands.
    pub committed: Committed,
    /// Facts newer than the request's `known`, those of the batch included, in order.
    pub facts: Vec<Fact>,
    /// The highest fact number.
    pub high: u64,
    /// The store's time.
    pub now: Timestamp,
    /// A stop that was asked for.
    pub cancel: Option<Cancellation>,
    /// The store told the run to pause (a limit was reached in this commit).
    pub paused: Option<WaitReason>,
}

/// How a run stands after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// The sender still holds it.
    Continue,
    /// It waits; the sender's lease has ended.
    Suspended,
    /// It ended or paused; the sender's lease has ended.
    Finished(Status),
}
