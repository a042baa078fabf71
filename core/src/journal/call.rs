//! The calls that an agent can make, and what they return.

use super::machine::OpRef;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, TaskId};
use crate::model::{
    MessageBody, OnParentEnd, Persistence, Placement, SharedContext, StartLimits, TaskOptions, Usage, machine_queue,
};
use crate::payload::Payload;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One call on the context that the journal knows.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Appends an entry to a thread.
    Entry {
        /// Who speaks.
        role: String,
        /// `message`, or the author's word.
        entry_type: String,
        /// The content.
        content: Payload,
        /// Groups entries of a turn.
        turn_id: Option<String>,
        /// Small JSON object.
        metadata: Option<String>,
        /// The thread; `""` is the main one.
        thread: String,
    },
    /// Schedules a task.
    Task {
        /// The function.
        kind: Arc<str>,
        /// The argument.
        input: Payload,
        /// How to run it.
        options: TaskOptions,
        /// Who runs it.
        placement: Placement,
        /// The queue, for `Placement::Queue`.
        queue: String,
        /// Names this call among identical ones.
        key: Option<Arc<str>>,
        /// Names that the function had before. A call that was recorded under one of them is a twin of this one.
        aliases: Arc<[Arc<str>]>,
    },
    /// Waits for a signal.
    Signal {
        /// Its name.
        name: Arc<str>,
        /// The longest wait.
        timeout: Option<Duration>,
    },
    /// Sleeps durably.
    Timer {
        /// How long from now.
        duration: Duration,
    },
    /// Joins a detached task.
    Attach {
        /// The task.
        task: TaskId,
    },
    /// Records what a model call cost.
    Usage {
        /// The model.
        model: String,
        /// The cost.
        usage: Usage,
    },
    /// Marks the start of a step.
    StepMark,
    /// Forces a commit.
    Flush,
    /// Starts another run as a child of this one, and waits for its end.
    Child(Box<ChildCall>),
    /// Sends a message to the parent or to a child.
    Send(MessageBody),
}

/// A child to be started.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildCall {
    /// The agent.
    pub kind: Arc<str>,
    /// Its argument.
    pub input: Payload,
    /// How it is started.
    pub options: ChildOptions,
    /// Whether this run gives it its work and calls nothing more.
    pub hand_off: Option<Completion>,
}

/// When a run that has handed off ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Completion {
    /// When its successor does, and as that does.
    #[default]
    WaitForChild,
    /// At once: it is COMPLETED.
    Immediate,
}

impl Completion {
    /// The completion of a word.
    ///
    /// Errors: `InvalidArgument` for another word.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "wait_for_child" => Ok(Self::WaitForChild),
            "immediate" => Ok(Self::Immediate),
            _ => {
                let message = format!("{word:?} is no completion: choose \"wait_for_child\" or \"immediate\"");
                Err(Error::new(Code::InvalidArgument, message))
            }
        }
    }
}

/// How a child is started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChildOptions {
    /// Names the child among the children of this run. A later call with this id, this agent and this input waits for
    /// the same child, also in a later segment.
    pub id: Option<Arc<str>>,
    /// Names this call among identical ones; the id does too.
    pub key: Option<Arc<str>>,
    /// The queue its workers poll; that of this run unless given.
    pub queue: Option<String>,
    /// Limits of the child.
    pub limits: StartLimits,
    /// Runs with a higher priority are claimed first.
    pub priority: i32,
    /// Small JSON object for filters.
    pub metadata: BTreeMap<String, String>,
    /// What becomes of it when this run ends.
    pub on_parent_end: OnParentEnd,
    /// What it is given of the conversation of this run; nothing unless given.
    pub shared_context: Option<SharedContext>,
    /// Whether its journal is kept.
    pub persistence: Persistence,
}

impl ChildOptions {
    /// Options of a child on a machine: a computer that a server has let in by this name. Without a name it is this one,
    /// where the run is on a machine, else the only one there is.
    pub fn on_machine(name: Option<&str>) -> Self {
        Self { queue: Some(machine_queue(name.unwrap_or_default())), ..Self::default() }
    }
}

/// A question about the outside of the run's code. The answer is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Is there a signal of this name?
    HasSignal(Arc<str>),
    /// Take all signals of this name; with `turn` also those kept for a turn.
    Drain {
        /// The name.
        name: Arc<str>,
        /// Whether `next_turn` signals count.
        turn: bool,
    },
    /// Was the run asked to stop?
    Cancellation,
    /// What is left of the budget?
    Budget,
}

/// What a read answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Yes or no.
    Flag(bool),
    /// The values that were taken, in order.
    Signals(Vec<Payload>),
    /// A JSON value.
    Value(Payload),
}

/// What a call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called {
    /// The op: pass it to `await_op`.
    pub op: OpRef,
    /// Whether it was recorded before.
    pub recorded: bool,
    /// The entry, for `Call::Entry`.
    pub entry: Option<EntryId>,
    /// The task, for `Call::Task` and `Call::Attach`.
    pub task: Option<TaskId>,
    /// The child, for `Call::Child`.
    pub child: Option<ExecutionId>,
}

/// How a `once` begins.
#[derive(Debug, Clone, PartialEq)]
pub enum OnceBegin {
    /// It happened in an earlier segment: its result.
    Done(Payload),
    /// It happened in this segment: await this op for its result.
    Recorded(OpRef),
    /// It has not happened: run the function with this as its scope, then call `once_end`.
    Run,
}
