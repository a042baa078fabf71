//! Ops, their labels, and the facts that answer them: the journal as stored and loaded.

use crate::clock::Timestamp;
use crate::id::{EntryId, OnceSlot, Slot, TaskId};
use crate::model::{Cancellation, Checkpoint, Execution, Failure, NewEntry, NewTask, Signal, TaskStatus, Usage};
use crate::payload::{Digest, Payload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What an op does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum OpKind {
    /// Appends an entry.
    Entry = 1,
    /// Schedules a task.
    Task = 2,
    /// Waits for a signal.
    Signal = 3,
    /// Waits for a moment.
    Timer = 4,
    /// Reads the outside: mailbox, cancellation, budget.
    Read = 5,
    /// Gives up an await.
    Abandon = 6,
    /// Joins a detached task.
    Attach = 7,
    /// Records what a model call cost.
    Usage = 8,
    /// Marks the start of a step, for counts and limits. What an await gives is no such thing.
    #[serde(rename = "step")]
    StepMark = 9,
    /// Forces a commit.
    Flush = 10,
    /// Ends a `once` with its result.
    Once = 11,
}

/// The key of the label of an await that is no longer given up: its run goes on after the error that gave it up.
pub(crate) const UNDONE: &str = "flovyn:undone";

impl OpKind {
    /// Every kind.
    pub const ALL: [OpKind; 11] = [
        Self::Entry,
        Self::Task,
        Self::Signal,
        Self::Timer,
        Self::Read,
        Self::Abandon,
        Self::Attach,
        Self::Usage,
        Self::StepMark,
        Self::Flush,
        Self::Once,
    ];

    /// Whether its outcome is that it is durable.
    pub(crate) fn is_mark(self) -> bool {
        matches!(self, Self::StepMark | Self::Flush | Self::Once)
    }

    /// The kind of a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// What tells two calls of one kind and name apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelKey {
    /// The author's `key=`.
    Key(Arc<str>),
    /// The digest of the input.
    Digest(Digest),
}

/// How a call finds its recorded twin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    /// What it does.
    pub kind: OpKind,
    /// Task kind, signal name, question or role.
    pub name: Arc<str>,
    /// The author's key or the input's digest.
    pub key: LabelKey,
}

impl Label {
    /// Whether another call is the same step with another input (rule 7).
    pub fn same_step(&self, other: &Label) -> bool {
        self.kind == other.kind && self.name == other.name
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = format!("{:?}", self.kind).to_lowercase();
        match &self.key {
            LabelKey::Key(key) => write!(f, "{kind} {:?} key={key:?}", self.name),
            LabelKey::Digest(digest) => write!(f, "{kind} {:?} #{:.8}", self.name, format!("{digest:?}")),
        }
    }
}

/// An outcome that was handed to the agent, by the op it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seen(pub u32);

impl Seen {
    /// A request to stop, which belongs to no op.
    pub const CANCEL: Seen = Seen(u32::MAX);
}

/// An op that goes into a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOp {
    /// Its number in the segment.
    pub sequence: u32,
    /// Its place inside a `once`.
    pub once: Option<OnceSlot>,
    /// How its twin is found.
    pub label: Label,
    /// Outcomes handed over since the previous op, in order.
    pub seen: Vec<Seen>,
    /// What it does.
    pub body: OpBody,
}

/// What a new op does.
#[derive(Debug, Clone, PartialEq)]
pub enum OpBody {
    /// Appends an entry.
    Entry(NewEntry),
    /// Schedules a task.
    Task(NewTask),
    /// Waits for a signal of the label's name, at most so long.
    Signal {
        /// Ends in `TimedOut` this long after the commit.
        timeout: Option<Duration>,
    },
    /// Waits this long from the commit.
    Timer {
        /// How long.
        duration: Duration,
    },
    /// Reads the outside; consumed signals are named by the batch.
    Read {
        /// What was answered.
        answer: Payload,
        /// How often in a row.
        count: u32,
    },
    /// Gives up the await of an op.
    Abandon {
        /// Its sequence.
        target: u32,
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
    /// Marks the start of a step: the run's count goes up by one.
    StepMark,
    /// Forces a commit.
    Flush,
    /// Ends a `once` (the op's `once` has `n` 0).
    Once {
        /// Digest of its input.
        digest: Digest,
        /// Its result.
        value: Payload,
    },
}

/// An op as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOp {
    /// Its segment: the current one, but for ops of a `once` that an earlier segment left unfinished.
    pub segment: u32,
    /// Its number in the segment.
    pub sequence: u32,
    /// Its place inside a `once`.
    pub once: Option<OnceSlot>,
    /// How its twin is found.
    pub label: Label,
    /// Outcomes handed over since the previous op, in order.
    pub seen: Vec<Seen>,
    /// What it did.
    pub body: RecordedBody,
}

impl RecordedOp {
    /// Whether it gave an await up, and counts no more.
    pub(crate) fn is_undone(&self) -> bool {
        let undone = matches!(&self.label.key, LabelKey::Key(key) if **key == *UNDONE);
        undone && matches!(self.body, RecordedBody::Abandon { .. })
    }

    /// Where it is in its run.
    pub fn slot(&self) -> Slot {
        Slot { segment: self.segment, sequence: self.sequence }
    }

    /// The task whose end its await gets.
    pub(crate) fn task(&self) -> Option<TaskId> {
        match self.body {
            RecordedBody::Task { id, .. } | RecordedBody::Attach { task: id } => Some(id),
            _ => None,
        }
    }

    /// Hands what ops that are left out had seen to the next op kept of their segment, so that replay hands outcomes over in
    /// the order in which the code was told of them (rule 5). Nobody is told of what is not kept, nor of a request to stop,
    /// which was the parent's.
    pub(crate) fn keep_seen<'a>(tail: impl Iterator<Item = &'a mut RecordedOp>, kept: &BTreeSet<Slot>) {
        let mut carried: Vec<Seen> = Vec::new();
        let mut segment = 0;
        for op in tail {
            if op.segment != segment {
                segment = op.segment;
                carried.clear();
            }
            for seen in std::mem::take(&mut op.seen) {
                // The latest place counts, as it does in a script.
                carried.retain(|earlier| *earlier != seen);
                if kept.contains(&Slot { segment, sequence: seen.0 }) {
                    carried.push(seen);
                }
            }
            if kept.contains(&op.slot()) {
                op.seen = std::mem::take(&mut carried);
            }
        }
    }

    /// The cancelled tasks of which the code knew nothing by the end of a tail: neither had it been told nor had it given them
    /// up. So they were cancelled for what came later, and whoever goes another way from there still needs them (rule 16).
    pub(crate) fn cancelled_later<'a>(tail: impl Iterator<Item = &'a RecordedOp> + Clone) -> BTreeSet<TaskId> {
        let mut known = BTreeSet::new();
        for op in tail.clone().filter(|op| !op.is_undone()) {
            known.extend(op.seen.iter().map(|seen| Slot { sequence: seen.0, ..op.slot() }));
            if let RecordedBody::Abandon { target } = op.body {
                known.insert(Slot { sequence: target, ..op.slot() });
            }
        }
        let heard: BTreeSet<TaskId> =
            tail.clone().filter(|op| known.contains(&op.slot())).filter_map(RecordedOp::task).collect();
        let cancelled = tail.filter_map(|op| match op.body {
            RecordedBody::Task { id, status: TaskStatus::Cancelled, .. } => Some(id),
            _ => None,
        });
        cancelled.filter(|id| !heard.contains(id)).collect()
    }
}

/// What a recorded op did.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedBody {
    /// Appended an entry.
    Entry {
        /// Its id.
        id: EntryId,
        /// The entry it followed.
        parent: Option<EntryId>,
        /// The thread whose leaf moved.
        thread: String,
    },
    /// Scheduled a task.
    Task {
        /// Its id.
        id: TaskId,
        /// Where it stands now.
        status: TaskStatus,
        /// Attempts started.
        attempt: u32,
        /// Whether the agent's own worker runs it; another attempt after a failure comes from the queue.
        inline: bool,
        /// Whether it must not run twice.
        at_most_once: bool,
        /// Whether it outlives its segment.
        detached: bool,
        /// Attempts in a row that may be lost with their process, as the call that made it said.
        max_losses: u32,
    },
    /// Waits for a signal.
    Signal,
    /// Waits for a moment.
    Timer,
    /// Read the outside.
    Read {
        /// What was answered.
        answer: Payload,
        /// How often in a row.
        count: u32,
    },
    /// Gave up an await.
    Abandon {
        /// Its sequence.
        target: u32,
    },
    /// Joined a detached task.
    Attach {
        /// The task.
        task: TaskId,
    },
    /// Recorded a cost.
    Usage,
    /// Started a step.
    StepMark,
    /// Forced a commit.
    Flush,
    /// Ended a `once`.
    Once {
        /// Its result.
        value: Payload,
    },
}

impl RecordedBody {
    /// Whether its await ends with an outcome that has a place of its own among the others.
    pub(crate) fn has_outcome(&self) -> bool {
        match self {
            Self::Task { .. }
            | Self::Signal
            | Self::Timer
            | Self::Attach { .. }
            | Self::Once { .. }
            | Self::StepMark
            | Self::Flush => true,
            Self::Entry { .. } | Self::Read { .. } | Self::Abandon { .. } | Self::Usage => false,
        }
    }
}

/// Something that happened to a run, with its place in the run's own order.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its number; grows by at least one with each fact of the run.
    pub number: u64,
    /// When it was stored.
    pub at: Timestamp,
    /// What happened.
    pub kind: FactKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum FactKind {
    /// A task ended.
    Task {
        /// Which.
        task: TaskId,
        /// With what.
        result: Result<Payload, Failure>,
    },
    /// A timer fired, or the timeout of a signal wait passed.
    Timer {
        /// The op's place.
        slot: Slot,
    },
    /// A signal was stored.
    Signal(Signal),
    /// The run was asked to stop.
    Cancel(Cancellation),
}

/// The result of a finished `once`.
#[derive(Debug, Clone, PartialEq)]
pub struct OnceResult {
    /// The name.
    pub name: Arc<str>,
    /// Digest of the input it had.
    pub digest: Digest,
    /// The result.
    pub value: Payload,
}

/// All that recovery replays: the last checkpoint and the tail since it.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The run.
    pub execution: Execution,
    /// Where it starts; none in segment 0.
    pub checkpoint: Option<Checkpoint>,
    /// Ops of the segment and of unfinished `once`s, in order.
    pub tail: Vec<RecordedOp>,
    /// Outcomes of those ops, the unconsumed mailbox, and the signals the tail consumed, in order.
    pub facts: Vec<Fact>,
    /// Finished `once`s.
    pub once: Vec<OnceResult>,
    /// The highest fact number.
    pub high: u64,
    /// The store's time.
    pub now: Timestamp,
}
