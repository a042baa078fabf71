//! What the machine asks of its surroundings, and what the surroundings tell it at the end.

use crate::id::{OpId, TaskId};
use crate::model::{Batch, Failure, Status, TaskOptions, WaitReason};
use crate::payload::Payload;
use std::time::Duration;

use super::machine::OpRef;

/// What an await ends with.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A task's result.
    Value(Payload),
    /// A task's failure.
    Failed(Failure),
    /// A signal's value.
    Signal(Payload),
    /// No signal came in time.
    TimedOut,
    /// The moment has come.
    Fired,
    /// What was asked is durable.
    Done,
    /// The run was asked to stop.
    Cancelled,
}

impl Outcome {
    /// The value it brings, if any.
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Value(payload) | Self::Signal(payload) => Some(payload),
            _ => None,
        }
    }

    /// As [`payload`](Self::payload), to be replaced.
    pub fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::Value(payload) | Self::Signal(payload) => Some(payload),
            _ => None,
        }
    }
}

/// An outcome on its way to the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Handed {
    /// The op whose await ends.
    pub op: OpRef,
    /// With what.
    pub outcome: Outcome,
}

/// An inline attempt to be started now.
#[derive(Debug, Clone, PartialEq)]
pub struct StartTask {
    /// The op.
    pub op: OpRef,
    /// The op's name, for streams and people.
    pub id: OpId,
    /// The task, and the idempotency key for the tool's own use.
    pub task: TaskId,
    /// The function.
    pub kind: std::sync::Arc<str>,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// Timeouts and the like.
    pub options: TaskOptions,
}

/// What the surroundings must do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Host: end these awaits, in this order, then run until quiet.
    Deliver(Vec<Handed>),
    /// Host: start an inline attempt.
    Start(StartTask),
    /// Host: tell a running inline attempt to stop.
    CancelTask(OpRef),
    /// Session: end a running inline attempt with the text it has streamed, unless it has ended by itself.
    Interrupt(OpRef),
    /// Session: make this durable, retrying the same request until an answer comes.
    Commit(Box<CommitDraft>),
    /// Session: call `hold_elapsed` a few milliseconds from now.
    ArmHold,
    /// Session: call `divergence_elapsed` with this number so much later.
    ArmDivergence(u64, Duration),
    /// Host: once the code is quiet, settle again and say whether anything outside may make it go on.
    Ask,
    /// Session: call `ask_again` a moment from now.
    AskLater,
    /// Session: the run waits in the store; its coroutine may be parked or dropped.
    Parked,
    /// Session: a copy that waited in the store went on by itself, and holds the run again.
    WentOn,
    /// Session: the run ended or paused; drop the coroutine.
    Finished(Status),
    /// Session: this copy must not go on: its right to is lost. Drop it.
    Stop(crate::Error),
}

/// A batch with what its request needs from the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitDraft {
    /// The number of the previous commit.
    pub base: u64,
    /// The highest fact number known.
    pub known: u64,
    /// What becomes durable.
    pub batch: Batch,
}

/// How the agent's function ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// It returned.
    Completed(Payload),
    /// It raised.
    Failed(Failure),
    /// A value did not fit its type: its state, its input or its result, or what a step or a signal gave it.
    Unfit(Failure),
    /// It let `Cancelled` through.
    Cancelled,
    /// The engine must pause it.
    Paused(WaitReason, Failure),
}
