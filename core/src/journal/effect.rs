//! What the machine asks its host and its session to do, and how an agent's function ends.

use crate::id::{OpId, TaskId};
use crate::model::{Batch, ChildEvent, Failure, Status, TaskOptions, WaitReason};
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
    /// What has happened to a child.
    Event(Box<ChildEvent>),
    /// No signal came in time.
    TimedOut,
    /// A timer's moment has come.
    Fired,
    /// The op is durable: all that a flush or a step mark waits for.
    Done,
    /// The run was asked to stop.
    Cancelled,
}

impl Outcome {
    /// Its value, if it has one.
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Value(payload) | Self::Signal(payload) => Some(payload),
            Self::Event(event) => event.payload(),
            _ => None,
        }
    }

    /// As [`payload`](Self::payload), mutable.
    pub fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::Value(payload) | Self::Signal(payload) => Some(payload),
            Self::Event(event) => event.payload_mut(),
            _ => None,
        }
    }
}

/// An outcome on its way to the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Handed {
    /// The op whose await ends.
    pub op: OpRef,
    /// What the await ends with.
    pub outcome: Outcome,
}

/// An inline attempt to be started now.
#[derive(Debug, Clone, PartialEq)]
pub struct StartTask {
    /// The op.
    pub op: OpRef,
    /// The op's name, for streams and people.
    pub id: OpId,
    /// The task. Its id is the idempotency key that a tool may use.
    pub task: TaskId,
    /// The name of the function to run.
    pub kind: std::sync::Arc<str>,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// Timeouts and the like.
    pub options: TaskOptions,
}

/// One thing that the session or the host must do. Effects are carried out in the order they come.
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
    /// Session: call `divergence_elapsed` with this number after this time.
    ArmDivergence(u64, Duration),
    /// Host: once the code is quiet, call `settle` again and say whether anything outside of the context may make it go
    /// on.
    Ask,
    /// Session: call `ask_again` a moment from now.
    AskLater,
    /// Session: the run waits in the store; its coroutine may be parked or dropped.
    Parked,
    /// Session: the code of a copy whose run was WAITING went on by itself. By the last commit the copy holds the run
    /// again.
    WentOn,
    /// Session: the run ended or paused; drop the coroutine.
    Finished(Status),
    /// Session: drop this copy. It lost the right to advance the run, or the store refused its pause.
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
