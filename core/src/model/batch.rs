//! One commit of a run: everything in it becomes durable together or not at all.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, RequestId, SignalId, Slot};
use crate::model::{
    Cancellation, Execution, Fact, Failure, Lease, MessageBody, NewCheckpoint, NewEvent, NewOp, OpBody, Persistence,
    Purse, SharedContext, Spent, Status, Wait, WaitReason,
};
use crate::payload::{Digest, Payload};
use std::sync::Arc;
use std::time::Duration;

/// A commit as a worker sends it. Checked in this order: lease, request id, base (rule 2).
#[derive(Debug, Clone)]
pub struct CommitRequest {
    /// Tenant.
    pub org: OrgId,
    /// The run.
    pub execution: ExecutionId,
    /// The sender's right to advance the run.
    pub lease: Lease,
    /// The same for every retry of this commit.
    pub request_id: RequestId,
    /// Digest of the batch. A request id that is known with another digest is an error.
    pub digest: Digest,
    /// The number of the run's commit before this one.
    pub base: u64,
    /// The highest fact number that the sender has received.
    pub known: u64,
    /// What becomes durable.
    pub batch: Batch,
    /// The children that whoever passes the commit on does not let in: the op's sequence, and why. The op is told, and
    /// the run goes on. It is not on the wire.
    pub refused: Vec<(u32, Failure)>,
    /// Of a run whose values stay on this machine: which of them. It is not on the wire.
    pub local: Option<LocalRun>,
}

/// What is to be known of a run with persistence "local" to tell its own values from those that others read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalRun {
    /// Tasks of this queue are done on the machine.
    pub queue: Arc<str>,
    /// Whether its entries are its own. In a conversation that it shares with its parent they are the parent's, too.
    pub entries: bool,
}

impl LocalRun {
    /// None for any other run.
    pub(crate) fn of(run: &Execution) -> Option<Self> {
        let shares = matches!(run.new.shared_context, Some(SharedContext::Conversation(_)));
        let is_local = run.new.persistence == Persistence::Local;
        is_local.then(|| Self { queue: run.new.queue.as_str().into(), entries: !shares })
    }
}

impl CommitRequest {
    /// Refuses to send values elsewhere that are to stay on this machine: nobody has taken them out.
    pub(crate) fn check_values(&self) -> Result<()> {
        match &self.local {
            None => Ok(()),
            Some(_) => Err(Error::new(
                Code::InvalidArgument,
                "the run has persistence \"local\", and this worker has no file for its values; serve it by one of the machine's queue",
            )),
        }
    }

    /// Whether a child may be started.
    ///
    /// Errors: those of whoever passed the commit on; `InvalidArgument` where its machine has no name.
    pub(crate) fn lets_in(&self, sequence: u32, queue: &str) -> Result<()> {
        if let Some((_, why)) = self.refused.iter().find(|(refused, _)| *refused == sequence) {
            return Err(Error::new(why.code, why.message.clone()));
        }
        super::machine::check_named(queue)
    }
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
    /// Inline attempts that were started again after the process of the one before was lost: the op's sequence, and the
    /// number of the new attempt.
    pub restarted: Vec<(u32, u32)>,
    /// Recorded reads that had the same answer again: the op's sequence, and the new count.
    pub read_counts: Vec<(u32, u32)>,
    /// Signals taken out of the mailbox.
    pub consumed: Vec<Consumed>,
    /// Ops whose timer is no longer needed.
    pub disarmed: Vec<u32>,
    /// Recorded ops that no call had claimed by the end of the segment.
    pub orphaned: Vec<u32>,
    /// Events of the session itself: warnings, retractions.
    pub events: Vec<NewEvent>,
    /// The code that recorded this, where it is not the one that the run has.
    pub code: Option<String>,
    /// What the run may have used in all after this: it asks the budgets of its family for so much. The budget that it
    /// shares with runs below it for the first time gives it no more than this.
    pub draw: Option<Spent>,
    /// What the run does after the commit.
    pub end: BatchEnd,
}

impl Batch {
    /// How many new ops, and how many ends of attempts, one commit may have.
    pub const MOST: usize = 10_000;
    /// How many tasks that have not ended a run may have.
    pub const MOST_OPEN: usize = 10_000;

    /// A batch of new ops and its end, and nothing else.
    pub fn new(segment: u32, ops: Vec<NewOp>, end: BatchEnd) -> Self {
        Self {
            segment,
            ops,
            attempts: Vec::new(),
            restarted: Vec::new(),
            read_counts: Vec::new(),
            consumed: Vec::new(),
            disarmed: Vec::new(),
            orphaned: Vec::new(),
            events: Vec::new(),
            code: None,
            draw: None,
            end,
        }
    }

    /// Errors: `LimitReached` where it has more ops or more ends of attempts than one commit may have.
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

    /// Whether a commit of it may write to the rows of runs above its own: it ends the run or a child at once, tells its
    /// parent something, draws from a budget above it, or starts a child, which may get a budget from there.
    pub(crate) fn touches_family(&self) -> bool {
        let ends = match &self.end {
            BatchEnd::Continue | BatchEnd::Checkpoint(_) => false,
            BatchEnd::Suspend(wait) => wait.is_for_parent(),
            // A run that was asked to stop ends by its pause.
            BatchEnd::Complete(_) | BatchEnd::Fail(_) | BatchEnd::Cancelled(_) => true,
            BatchEnd::HandOff { .. } | BatchEnd::Pause { .. } => true,
        };
        let reaches = |op: &NewOp| match &op.body {
            OpBody::Child(_) => true,
            OpBody::Send(message) => {
                matches!(message.body, MessageBody::ToParent { .. } | MessageBody::Stop { .. })
            }
            _ => false,
        };
        ends || self.draw.is_some() || !self.orphaned.is_empty() || self.ops.iter().any(reaches)
    }

    /// Whether it schedules tasks.
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
    /// The number of the attempt that has ended.
    pub attempt: u32,
    /// How it ended.
    pub result: AttemptResult,
    /// How long it ran.
    pub duration: Duration,
    /// When the code learned of it, where that was before the report: a replay gives it the same time.
    pub ended_at: Option<Timestamp>,
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
        /// How long the error itself asks to wait before another attempt, instead of the pause of the policy.
        pause: Option<Duration>,
    },
    /// It ended because its run was cancelled.
    Cancelled,
    /// `reconcile` was asked whether it took effect, and it did not.
    NotDone,
    /// A draining worker gave it back unfinished.
    Released,
}

impl AttemptResult {
    /// The end of a model call that was interrupted: the text that it had streamed is its result.
    pub(crate) fn said(text: &str) -> Self {
        Self::Completed(Payload::json(serde_json::Value::from(text).to_string()))
    }
}

/// What the run does after a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchEnd {
    /// The run goes on in this process.
    Continue,
    /// The run waits, unless the store has a fact that is newer than the request's `known`.
    Suspend(Wait),
    /// The segment ends with a checkpoint.
    Checkpoint(NewCheckpoint),
    /// The run gives its work to one of its children and holds nothing any more. Where that child was not started, the run
    /// goes on.
    HandOff {
        /// The child.
        to: ExecutionId,
        /// Whether the run is COMPLETED by that. Otherwise it waits, and ends as the child does.
        immediate: bool,
    },
    /// The run ends with an output.
    Complete(Payload),
    /// The run ends with an error.
    Fail(Failure),
    /// The run ends as cancelled, with the output that its code left.
    Cancelled(Option<Payload>),
    /// The run pauses until somebody decides.
    Pause {
        /// Why it pauses.
        reason: WaitReason,
        /// The failure that people are shown.
        failure: Option<Failure>,
    },
}

impl BatchEnd {
    /// Whether the run has ended with it.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Complete(_) | Self::Fail(_) | Self::Cancelled(_))
    }
}

/// The answer to a commit. It is the same for every retry of a request.
#[derive(Debug, Clone)]
pub struct CommitAnswer {
    /// The number of this commit: the `base` of the next.
    pub number: u64,
    /// How the run stands.
    pub committed: Committed,
    /// Facts newer than the request's `known`, in order. Those of the batch itself are among them.
    pub facts: Vec<Fact>,
    /// The highest fact number.
    pub high: u64,
    /// The store's time.
    pub now: Timestamp,
    /// The request to stop the run, where there is one.
    pub cancel: Option<Cancellation>,
    /// Why the store has paused the run, where this commit has reached a limit.
    pub paused: Option<WaitReason>,
    /// What the run has of the budgets of its family. None where there are none.
    pub purse: Option<Purse>,
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
