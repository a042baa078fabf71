//! Ops, their labels, and the facts that give them their outcomes: the journal in the form in which it is stored and
//! loaded.

use super::message::{answer_signal, child_of_events};
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OnceSlot, Slot, TaskId};
use crate::model::{
    Cancellation, Checkpoint, Execution, Failure, NewEntry, NewExecution, NewMessage, NewTask, SentMessage, Signal,
    TaskStatus, Usage,
};
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
    /// Reads something that may change at any time: the mailbox, a request to stop, the budget.
    Read = 5,
    /// Records that the code no longer waits for an op.
    Abandon = 6,
    /// Waits for a detached task.
    Attach = 7,
    /// Records what a model call cost.
    Usage = 8,
    /// Marks the start of a step of the agent's loop, for counts and limits. (The `Step` that a call of the context
    /// returns is something else: the future of one op.)
    #[serde(rename = "step")]
    StepMark = 9,
    /// Forces a commit.
    Flush = 10,
    /// Ends a `once` with its result.
    Once = 11,
    /// Starts another run as a child, and waits for its end.
    Child = 12,
    /// Sends a message to the parent or to a child.
    Send = 13,
}

/// The label key of an `Abandon` that no longer counts. An error in the code gave the await up, and the run goes on
/// after that error, so the code awaits the op again.
pub(crate) const UNDONE: &str = "flovyn:undone";

impl OpKind {
    /// Every kind.
    pub const ALL: [OpKind; 13] = [
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
        Self::Child,
        Self::Send,
    ];

    /// Whether an op of this kind has no other outcome than being durable.
    pub(crate) fn is_mark(self) -> bool {
        matches!(self, Self::StepMark | Self::Flush | Self::Once | Self::Send)
    }

    /// The kind of a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The part of a label that tells two calls of the same kind and name apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelKey {
    /// The author's `key=`.
    Key(Arc<str>),
    /// The digest of the input.
    Digest(Digest),
}

/// The label of a call. Replay finds the recorded op of a call by it.
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

/// An outcome that was handed to the agent, named by the op that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seen(pub u32);

impl Seen {
    /// A request to stop. It belongs to no op, so it has a number that no op has.
    pub const CANCEL: Seen = Seen(u32::MAX);
}

/// An op that goes into a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOp {
    /// Its number in the segment.
    pub sequence: u32,
    /// Its place inside a `once`, where it is in one.
    pub once: Option<OnceSlot>,
    /// The label by which replay finds it.
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
    /// Waits for a signal of the label's name.
    Signal {
        /// The longest wait, counted from the commit; past it the op ends with `TimedOut`.
        timeout: Option<Duration>,
    },
    /// Waits this long from the commit.
    Timer {
        /// How long.
        duration: Duration,
    },
    /// Reads the mailbox, a request to stop or the budget. The batch names the signals that the read has taken out.
    Read {
        /// What was answered.
        answer: Payload,
        /// How often in a row the same question had the same answer.
        count: u32,
    },
    /// Records that the code no longer waits for an op.
    Abandon {
        /// The sequence of that op.
        target: u32,
    },
    /// Waits for a detached task.
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
    /// Ends a `once`. The op's own place in the `once` has the number 0.
    Once {
        /// Digest of its input.
        digest: Digest,
        /// Its result.
        value: Payload,
    },
    /// Starts a child. The store sets its org, its parent and its root.
    Child(Box<NewExecution>),
    /// Sends a message to the parent or to a child. If the store does not deliver it, a signal tells the op so.
    Send(Box<NewMessage>),
}

/// An op read back from a store.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOp {
    /// Its segment. That is the current one, except for ops of a `once` that an earlier segment left unfinished.
    pub segment: u32,
    /// Its number in the segment.
    pub sequence: u32,
    /// Its place inside a `once`, where it is in one.
    pub once: Option<OnceSlot>,
    /// The label by which replay finds it.
    pub label: Label,
    /// Outcomes handed over since the previous op, in order.
    pub seen: Vec<Seen>,
    /// What it did.
    pub body: RecordedBody,
}

impl RecordedOp {
    /// Whether it is an `Abandon` that no longer counts, or what a run has used of whose journal no more was kept (see
    /// [`UNDONE`]). The code does not make this call again.
    pub(crate) fn is_undone(&self) -> bool {
        let undone = matches!(&self.label.key, LabelKey::Key(key) if **key == *UNDONE);
        undone && matches!(self.body, RecordedBody::Abandon { .. } | RecordedBody::Usage)
    }

    /// Where it is in its run.
    pub fn slot(&self) -> Slot {
        Slot { segment: self.segment, sequence: self.sequence }
    }

    /// The task that it waits for, where it waits for one.
    pub(crate) fn task(&self) -> Option<TaskId> {
        match self.body {
            RecordedBody::Task { id, .. } | RecordedBody::Attach { task: id } => Some(id),
            _ => None,
        }
    }

    /// The child that it has started or waits for.
    pub(crate) fn child(&self) -> Option<ExecutionId> {
        match self.body {
            RecordedBody::Child { id } => Some(id),
            _ => None,
        }
    }

    /// For a tail of which only the ops `kept` are copied: moves the `seen` of an op that is left out to the next op of
    /// its segment that is kept. So replay of the copy hands outcomes over in the order in which the code got them
    /// (rule 5). An outcome of an op that is not kept is dropped, and so is a request to stop: that one was for the
    /// parent.
    pub(crate) fn keep_seen<'a>(tail: impl Iterator<Item = &'a mut RecordedOp>, kept: &BTreeSet<Slot>) {
        let mut carried: Vec<Seen> = Vec::new();
        let mut segment = 0;
        for op in tail {
            if op.segment != segment {
                segment = op.segment;
                carried.clear();
            }
            for seen in std::mem::take(&mut op.seen) {
                // If it was already on the list, only its latest place counts. A script counts it the same way.
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

    /// For a fork that inherits the ops of these slots: takes out those that belong to a child which the fork starts
    /// anew, and requests whose answer it does not have. It sends them again. A child is started anew if something that it
    /// told was heard after the point of the fork, by one of the signals `heard`: it tells that once.
    pub(crate) fn forget_unanswered<'a>(
        tail: impl Iterator<Item = &'a RecordedOp> + Clone,
        heard: impl Iterator<Item = &'a Signal>,
        kept: &mut BTreeSet<Slot>,
    ) {
        let is_kept = |op: &&RecordedOp| kept.contains(&op.slot());
        let mut joined: BTreeSet<_> = tail.clone().filter(is_kept).filter_map(RecordedOp::child).collect();
        for signal in heard.filter(|signal| signal.consumed_by.is_some_and(|by| !kept.contains(&by))) {
            child_of_events(&signal.name).map(|child| joined.remove(&child));
        }
        let anew: BTreeSet<_> =
            tail.clone().filter_map(RecordedOp::child).filter(|child| !joined.contains(child)).collect();
        let waits = tail.clone().filter(is_kept).filter(|op| op.body == RecordedBody::Signal);
        let answered: BTreeSet<&str> = waits.map(|op| &*op.label.name).collect();
        let is_stray = |op: &&RecordedOp| match &op.body {
            RecordedBody::Child { id } => anew.contains(id),
            RecordedBody::Signal => child_of_events(&op.label.name).is_some_and(|child| anew.contains(&child)),
            RecordedBody::Send(sent) => {
                sent.child.is_some_and(|child| anew.contains(&child))
                    || (sent.is_request && !answered.contains(answer_signal(sent.id).as_str()))
            }
            _ => false,
        };
        let strays: Vec<Slot> = tail.filter(is_stray).map(RecordedOp::slot).collect();
        for slot in strays {
            kept.remove(&slot);
        }
    }

    /// The cancelled tasks whose cancellation the code did not know of by the end of a tail: it had not got their
    /// outcome, and it had not given them up. Something after the tail cancelled them. A run that goes another way from
    /// there still needs them (rule 16).
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
        /// Whether the agent's own worker runs it. Its next attempt after a failure comes from the queue.
        inline: bool,
        /// Whether it must not run twice.
        at_most_once: bool,
        /// Whether it outlives its segment.
        detached: bool,
        /// How many attempts in a row may be lost with their process, as the recorded call said.
        max_losses: u32,
    },
    /// Waits for a signal.
    Signal,
    /// Waits for a moment.
    Timer,
    /// Read the mailbox, a request to stop or the budget.
    Read {
        /// What was answered.
        answer: Payload,
        /// How often in a row the same question had the same answer.
        count: u32,
    },
    /// Recorded that the code no longer waits for an op.
    Abandon {
        /// The sequence of that op.
        target: u32,
    },
    /// Waits for a detached task.
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
    /// Started a child.
    Child {
        /// The child.
        id: ExecutionId,
    },
    /// Sent a message.
    Send(SentMessage),
}

impl RecordedBody {
    /// Whether it ends with an outcome that is handed over in its own place among the other outcomes.
    pub(crate) fn has_outcome(&self) -> bool {
        match self {
            Self::Task { .. }
            | Self::Signal
            | Self::Timer
            | Self::Attach { .. }
            | Self::Once { .. }
            | Self::Child { .. }
            | Self::Send(_)
            | Self::StepMark
            | Self::Flush => true,
            Self::Entry { .. } | Self::Read { .. } | Self::Abandon { .. } | Self::Usage => false,
        }
    }
}

/// Something that happened to a run, with its place in the order of the run's facts.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its number. Each fact of the run has a higher one than the fact before it.
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
        /// The task.
        task: TaskId,
        /// Its result or its failure.
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

/// What recovery replays: the last checkpoint and the tail since it.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The run.
    pub execution: Execution,
    /// The checkpoint that the segment starts from; none in segment 0.
    pub checkpoint: Option<Checkpoint>,
    /// Ops of the segment and of unfinished `once`s, in order.
    pub tail: Vec<RecordedOp>,
    /// The outcomes of those ops, the signals that are still in the mailbox, and the signals that the tail has taken
    /// out of it, in order.
    pub facts: Vec<Fact>,
    /// Finished `once`s.
    pub once: Vec<OnceResult>,
    /// The highest fact number.
    pub high: u64,
    /// The store's time.
    pub now: Timestamp,
}
