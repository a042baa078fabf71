//! One op of the current segment, in three independent states: where it stands in the journal ([`Place`]), whether
//! somebody awaits it ([`Awaiting`]), and what its kind needs ([`Detail`]).
//!
//! Only the methods here change these states.

use super::effect::Outcome;
use crate::id::{EntryId, ExecutionId, OnceSlot, SignalId, Slot, TaskId};
use crate::model::{Label, NewOp, TaskOptions, TaskStatus};
use crate::payload::Payload;
use std::sync::Arc;

/// An op.
#[derive(Debug)]
pub(super) struct Op {
    pub segment: u32,
    pub sequence: u32,
    pub once: Option<OnceSlot>,
    pub label: Label,
    pub place: Place,
    pub awaiting: Awaiting,
    /// What is known of its end, with its place among the facts. Apart from the op: of a large family that is waited for, most ops
    /// have none.
    pub outcome: Option<Box<(u64, Outcome)>>,
    pub detail: Detail,
}

/// Where an op stands in the journal.
#[derive(Debug)]
pub(super) enum Place {
    /// It was loaded from the store, and the code has not called it again yet.
    Recorded,
    /// It was loaded, and the code has called it again. Also an op that is never called again, such as one inside a
    /// finished
    /// `once`.
    Repeated,
    /// As `Repeated`, but its attempt was lost, and that this loss was counted is not durable yet.
    Recounted,
    /// It is new, but was called before replay was over. It goes into a batch once divergence is judged.
    Held(Box<NewOp>),
    /// It is new, and in the draft or in the commit on its way.
    Placed,
    /// It is new and durable.
    Durable,
    /// The budget has no room for it. It is in no batch; after a resume the code calls it again.
    Refused,
    /// It turned out to be a recorded op with another input. The recorded op has taken its index.
    Replaced,
}

/// Whether somebody waits for the outcome of an op. "Given up" is apart from "awaited", since after a crash the record
/// can say that an await was given up before the code has even begun it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaiting {
    /// Nobody has awaited it yet.
    Open,
    /// Some branch awaits it.
    Awaited,
    /// Nobody awaits it yet, and the record says that its await was given up. Its outcome is not handed over.
    GivenUp,
    /// Some branch awaits it, and the record says that the await was given up. A timer of the host will give it up
    /// again.
    AwaitedInVain,
    /// Its outcome was handed over, or it has none.
    Settled,
    /// The code gave up its await, or was told to stop instead: its outcome is never handed over.
    Abandoned,
}

/// What an op has that only ops of its kind have.
#[derive(Debug)]
pub(super) enum Detail {
    /// Nothing.
    None,
    /// A task.
    Task(Box<TaskState>),
    /// The entry it appended.
    Entry {
        /// The entry.
        id: EntryId,
        /// The thread of an entry that `resume(message=)` put into the tail. The entry becomes the thread's leaf when
        /// replay comes to it.
        external: Option<String>,
    },
    /// The timer of a wait.
    Wait(Alarm),
    /// The child it started.
    Child {
        /// The child.
        id: ExecutionId,
        /// Whether the code has given it an id, by which a later segment can wait for it.
        named: bool,
        /// The place among the facts of the child's end, while that is in the mailbox.
        ended: Option<u64>,
        /// The store has told why there is no child: its end would be that of another one.
        refused: bool,
    },
    /// The id of the message it sent.
    Message(SignalId),
    /// The result of a `once`, until it is durable.
    Once(Box<Payload>),
}

/// The timer that the store has for a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alarm {
    /// No timer, or one that no longer matters.
    Unset,
    /// The timer runs.
    Set,
    /// The timer has fired. That was the fact at this place.
    Passed(u64),
}

/// What is known of a task.
#[derive(Debug)]
pub(super) struct TaskState {
    pub id: TaskId,
    pub kind: Arc<str>,
    pub options: TaskOptions,
    pub status: TaskStatus,
    /// The number of the latest attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// The state of that attempt in this process.
    pub here: Attempt,
    /// How many attempts in a row may be lost. The store has it from the first call: a call with another number after
    /// an edit does not change it.
    pub max_losses: u32,
    /// Whether it counts against the limit of open tasks.
    pub is_open: bool,
}

/// The state of a task's attempt in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// No attempt is here: another process runs the task, or it has ended.
    Elsewhere,
    /// The attempt was lost with its process. The loss has to be counted first, then another attempt starts here.
    Lost,
    /// The attempt has to be started.
    Due,
    /// It runs.
    Running,
    /// It has ended, and its end is not durable yet.
    Ended,
}

impl Op {
    /// A new op, which is placed or held back next.
    pub(super) fn new(segment: u32, sequence: u32, once: Option<OnceSlot>, label: Label) -> Self {
        let (place, awaiting, detail) = (Place::Placed, Awaiting::Open, Detail::None);
        Self { segment, sequence, once, label, place, awaiting, outcome: None, detail }
    }

    /// Its place in the run.
    pub(super) fn slot(&self) -> Slot {
        Slot { segment: self.segment, sequence: self.sequence }
    }

    // ── in the journal ──────────────────────────────────────────────────────────────────────────────────────────

    /// Whether it was loaded from the store.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self.place, Place::Recorded | Place::Repeated | Place::Recounted)
    }

    /// Whether it is recorded and no call has claimed it yet.
    pub(super) fn is_unclaimed(&self) -> bool {
        matches!(self.place, Place::Recorded)
    }

    /// Claims it for a call. False if it was claimed before.
    pub(super) fn claim(&mut self) -> bool {
        let unclaimed = self.is_unclaimed();
        if unclaimed {
            self.place = Place::Repeated;
        }
        unclaimed
    }

    /// Whether it is held back until divergence is judged.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.place, Place::Held(_))
    }

    /// Takes the op to be put into the batch, if it is held back.
    pub(super) fn release(&mut self) -> Option<NewOp> {
        match std::mem::replace(&mut self.place, Place::Placed) {
            Place::Held(new) => Some(*new),
            other => {
                self.place = other;
                None
            }
        }
    }

    /// Whether the store has all that is known of it.
    pub(super) fn is_durable(&self) -> bool {
        matches!(self.place, Place::Recorded | Place::Repeated | Place::Durable)
    }

    /// Notes that a commit with it is durable.
    pub(super) fn stored(&mut self) {
        match self.place {
            Place::Placed => self.place = Place::Durable,
            Place::Recounted => self.place = Place::Repeated,
            _ => {}
        }
    }

    /// Whether it is new, and the store has it or will have it with the next commit.
    pub(super) fn is_new_and_placed(&self) -> bool {
        matches!(self.place, Place::Placed | Place::Durable)
    }

    /// Whether the budget has refused it.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.place, Place::Refused)
    }

    // ── its await ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Whether some branch awaits it.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.awaiting, Awaiting::Awaited | Awaiting::AwaitedInVain)
    }

    /// Whether its outcome was handed over, or never will be.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.awaiting, Awaiting::Settled | Awaiting::Abandoned)
    }

    /// Whether its await was given up, in this life or an earlier one.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.awaiting, Awaiting::GivenUp | Awaiting::AwaitedInVain | Awaiting::Abandoned)
    }

    /// Whether its await was given up in this life.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.awaiting, Awaiting::Abandoned)
    }

    /// A branch begins to await it. False if some branch does already, or if it is settled.
    pub(super) fn begin_await(&mut self) -> bool {
        let begun = match self.awaiting {
            Awaiting::Open => Awaiting::Awaited,
            Awaiting::GivenUp => Awaiting::AwaitedInVain,
            _ => return false,
        };
        self.awaiting = begun;
        true
    }

    /// Its outcome was handed over, or never will be.
    pub(super) fn settle(&mut self) {
        self.awaiting = if self.is_given_up() { Awaiting::Abandoned } else { Awaiting::Settled };
    }

    /// Notes that its await was given up.
    pub(super) fn give_up(&mut self) {
        self.awaiting = match self.awaiting {
            Awaiting::Open => Awaiting::GivenUp,
            Awaiting::Awaited => Awaiting::AwaitedInVain,
            Awaiting::Settled => Awaiting::Abandoned,
            given_up => given_up,
        };
    }

    /// Takes back that its await was given up: edited code no longer does what the record says.
    pub(super) fn take_up(&mut self) {
        self.awaiting = match self.awaiting {
            Awaiting::GivenUp => Awaiting::Open,
            Awaiting::AwaitedInVain => Awaiting::Awaited,
            other => other,
        };
    }

    // ── its end ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// The outcome that the store has for it, with its place among the facts.
    pub(super) fn recorded_outcome(&self) -> Option<(u64, Outcome)> {
        self.outcome.as_deref().cloned().or_else(|| self.timed_out().map(|order| (order, Outcome::TimedOut)))
    }

    /// Whether the store knows how it ended.
    pub(super) fn has_durable_end(&self) -> bool {
        self.outcome.is_some() || self.timed_out().is_some()
    }

    /// The place of the fact that its timer has fired.
    pub(super) fn timed_out(&self) -> Option<u64> {
        match self.detail {
            Detail::Wait(Alarm::Passed(order)) => Some(order),
            _ => None,
        }
    }

    /// Its timer no longer matters. True if one runs, which the store has to remove.
    pub(super) fn disarm(&mut self) -> bool {
        let armed = matches!(self.detail, Detail::Wait(Alarm::Set));
        if armed {
            self.detail = Detail::Wait(Alarm::Unset);
        }
        armed
    }

    /// The entry it appended.
    pub(super) fn entry(&self) -> Option<EntryId> {
        match self.detail {
            Detail::Entry { id, .. } => Some(id),
            _ => None,
        }
    }

    /// The child it started.
    pub(super) fn child(&self) -> Option<ExecutionId> {
        match self.detail {
            Detail::Child { id, .. } => Some(id),
            _ => None,
        }
    }

    // ── its task ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Its task, if it is one.
    pub(super) fn task(&self) -> Option<&TaskState> {
        match &self.detail {
            Detail::Task(task) => Some(task),
            _ => None,
        }
    }

    /// As [`task`](Self::task), mutable.
    pub(super) fn task_mut(&mut self) -> Option<&mut TaskState> {
        match &mut self.detail {
            Detail::Task(task) => Some(task),
            _ => None,
        }
    }

    /// Whether an attempt of it runs in this process.
    pub(super) fn is_running_here(&self) -> bool {
        self.task().is_some_and(|task| task.here == Attempt::Running)
    }

    /// Whether it is a model call that runs here and may be cut short.
    pub(super) fn is_interruptible(&self) -> bool {
        self.is_running_here() && self.task().is_some_and(|task| task.options.interruptible)
    }

    /// Whether it outlives its segment.
    pub(super) fn is_detached(&self) -> bool {
        self.task().is_some_and(|task| task.options.detached)
            || (matches!(self.detail, Detail::Child { named: true, .. }) && !self.is_awaited())
    }
}

impl TaskState {
    /// Whether an attempt has to be started here.
    pub(super) fn is_to_start(&self) -> bool {
        matches!(self.here, Attempt::Lost | Attempt::Due)
    }

    /// The task has ended, so no attempt is started any more. An attempt that still runs here is left alone.
    pub(super) fn ended(&mut self, status: TaskStatus) {
        self.status = status;
        if self.is_to_start() {
            self.here = Attempt::Elsewhere;
        }
    }
}
