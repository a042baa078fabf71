//! One op of the current segment: where it stands in the journal, whether its outcome is waited for, what is known of its end.
//!
//! Each of these is one state of a few, and the ways from state to state are the methods here.

use super::effect::Outcome;
use crate::id::{EntryId, OnceSlot, Slot, TaskId};
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
    /// What is known of its end, with its place among the facts.
    pub outcome: Option<(u64, Outcome)>,
    pub detail: Detail,
}

/// Where an op stands in the journal.
#[derive(Debug)]
pub(super) enum Place {
    /// It was loaded from the store, and the code has not called it in this life.
    Recorded,
    /// It was loaded, and called again; or it is never called again, such as what a finished `once` did.
    Repeated,
    /// As `Repeated`, and its attempt was lost: that this was counted is not durable yet.
    Recounted,
    /// It was called while the tail was not used up and has no twin: it starts when divergence is judged.
    Held(Box<NewOp>),
    /// It is new, in the batch or on its way.
    Placed,
    /// It is new and durable.
    Durable,
    /// The budget has no room for it: it was not placed, and is called again after a resume.
    Refused,
    /// It turned out to be a recorded op with another input, which took its index.
    Replaced,
}

/// Whether the outcome of an op is waited for. To be given up has a place of its own beside it: a record may say that an
/// await was given up which the code has not come to yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaiting {
    /// By nobody so far.
    Open,
    /// Some branch awaits it.
    Awaited,
    /// By nobody so far, and an earlier life gave its await up: its outcome is not handed over.
    GivenUp,
    /// Some branch awaits what an earlier life gave up: a timer of the host will give it up again.
    AwaitedInVain,
    /// Its outcome was handed over, or it has none.
    Settled,
    /// The code gave up its await, or was told to stop instead: its outcome is never handed over.
    Abandoned,
}

/// What an op of its kind has beside.
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
        /// Its thread, where it was put into the tail from outside: it becomes the thread's leaf when replay comes to it.
        external: Option<String>,
    },
    /// The timer of a wait.
    Wait(Alarm),
    /// The result of a `once`, until it is durable.
    Once(Payload),
}

/// The timer that the store has for a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alarm {
    /// None, or one that no longer matters.
    Unset,
    /// Some moment is to come.
    Set,
    /// It came at this place among the facts.
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
    /// What becomes of that attempt in this process.
    pub here: Attempt,
    /// Attempts in a row that may be lost, as the store has it: code that says another number now does not change it.
    pub max_losses: u32,
    /// It counts as open.
    pub is_open: bool,
}

/// What becomes of a task's attempt in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Nothing: others run the task, or it has ended.
    Elsewhere,
    /// It was lost with its process. That is to be counted, and then another one starts here.
    Lost,
    /// It has to be started.
    Due,
    /// It runs.
    Running,
    /// It has ended, and its end is not durable yet.
    Ended,
}

impl Op {
    /// A new op, which is placed or held back next.
    pub fn new(segment: u32, sequence: u32, once: Option<OnceSlot>, label: Label) -> Self {
        let (place, awaiting, detail) = (Place::Placed, Awaiting::Open, Detail::None);
        Self { segment, sequence, once, label, place, awaiting, outcome: None, detail }
    }

    /// Its place in the run.
    pub fn slot(&self) -> Slot {
        Slot { segment: self.segment, sequence: self.sequence }
    }

    // ── in the journal ──────────────────────────────────────────────────────────────────────────────────────────

    /// Whether it was loaded from the store.
    pub fn is_recorded(&self) -> bool {
        matches!(self.place, Place::Recorded | Place::Repeated | Place::Recounted)
    }

    /// Whether it is recorded and no call has taken it so far.
    pub fn is_unclaimed(&self) -> bool {
        matches!(self.place, Place::Recorded)
    }

    /// Takes it for a call; tells whether it was there to be taken.
    pub fn claim(&mut self) -> bool {
        let unclaimed = self.is_unclaimed();
        if unclaimed {
            self.place = Place::Repeated;
        }
        unclaimed
    }

    /// Whether it waits for divergence to be judged.
    pub fn is_held(&self) -> bool {
        matches!(self.place, Place::Held(_))
    }

    /// Lets it go into the batch.
    pub fn release(&mut self) -> Option<NewOp> {
        match std::mem::replace(&mut self.place, Place::Placed) {
            Place::Held(new) => Some(*new),
            other => {
                self.place = other;
                None
            }
        }
    }

    /// Whether all that is known of it is stored.
    pub fn is_durable(&self) -> bool {
        matches!(self.place, Place::Recorded | Place::Repeated | Place::Durable)
    }

    /// A commit that has it is durable.
    pub fn stored(&mut self) {
        match self.place {
            Place::Placed => self.place = Place::Durable,
            Place::Recounted => self.place = Place::Repeated,
            _ => {}
        }
    }

    /// Whether it is new, and the store has it or will have it with the next commit.
    pub fn is_new_and_placed(&self) -> bool {
        matches!(self.place, Place::Placed | Place::Durable)
    }

    /// Whether the budget has refused it.
    pub fn is_refused(&self) -> bool {
        matches!(self.place, Place::Refused)
    }

    // ── its await ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Whether some branch awaits it.
    pub fn is_awaited(&self) -> bool {
        matches!(self.awaiting, Awaiting::Awaited | Awaiting::AwaitedInVain)
    }

    /// Whether its outcome was handed over, or never will be.
    pub fn is_settled(&self) -> bool {
        matches!(self.awaiting, Awaiting::Settled | Awaiting::Abandoned)
    }

    /// Whether its await was given up, in this life or an earlier one.
    pub fn is_given_up(&self) -> bool {
        matches!(self.awaiting, Awaiting::GivenUp | Awaiting::AwaitedInVain | Awaiting::Abandoned)
    }

    /// A branch awaits it; tells whether nobody did, and there is something to wait for.
    pub fn begin_await(&mut self) -> bool {
        let begun = match self.awaiting {
            Awaiting::Open => Awaiting::Awaited,
            Awaiting::GivenUp => Awaiting::AwaitedInVain,
            _ => return false,
        };
        self.awaiting = begun;
        true
    }

    /// Nobody is told its outcome from here on.
    pub fn settle(&mut self) {
        self.awaiting = if self.is_given_up() { Awaiting::Abandoned } else { Awaiting::Settled };
    }

    /// Its await was given up, by what is recorded.
    pub fn give_up(&mut self) {
        self.awaiting = match self.awaiting {
            Awaiting::Open => Awaiting::GivenUp,
            Awaiting::Awaited => Awaiting::AwaitedInVain,
            Awaiting::Settled => Awaiting::Abandoned,
            given_up => given_up,
        };
    }

    /// The code does not give up any more what the record says it did.
    pub fn take_up(&mut self) {
        self.awaiting = match self.awaiting {
            Awaiting::GivenUp => Awaiting::Open,
            Awaiting::AwaitedInVain => Awaiting::Awaited,
            other => other,
        };
    }

    // ── its end ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// What the record says that its await ended with.
    pub fn recorded_outcome(&self) -> Option<(u64, Outcome)> {
        self.outcome.clone().or_else(|| self.timed_out().map(|order| (order, Outcome::TimedOut)))
    }

    /// Whether the store knows how it ended.
    pub fn has_durable_end(&self) -> bool {
        self.outcome.is_some() || self.timed_out().is_some()
    }

    /// Where its wait ran out of time.
    pub fn timed_out(&self) -> Option<u64> {
        match self.detail {
            Detail::Wait(Alarm::Passed(order)) => Some(order),
            _ => None,
        }
    }

    /// Its timer no longer matters; tells whether the store is to be told.
    pub fn disarm(&mut self) -> bool {
        let armed = matches!(self.detail, Detail::Wait(Alarm::Set));
        if armed {
            self.detail = Detail::Wait(Alarm::Unset);
        }
        armed
    }

    /// The entry it appended.
    pub fn entry(&self) -> Option<EntryId> {
        match self.detail {
            Detail::Entry { id, .. } => Some(id),
            _ => None,
        }
    }

    // ── its task ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Its task, if it is one.
    pub fn task(&self) -> Option<&TaskState> {
        match &self.detail {
            Detail::Task(task) => Some(task),
            _ => None,
        }
    }

    /// As [`task`](Self::task), to be changed.
    pub fn task_mut(&mut self) -> Option<&mut TaskState> {
        match &mut self.detail {
            Detail::Task(task) => Some(task),
            _ => None,
        }
    }

    /// Whether an attempt of it runs in this process.
    pub fn is_running_here(&self) -> bool {
        self.task().is_some_and(|task| task.here == Attempt::Running)
    }

    /// Whether it is a model call that runs here and may be cut short.
    pub fn is_interruptible(&self) -> bool {
        self.is_running_here() && self.task().is_some_and(|task| task.options.interruptible)
    }

    /// Whether it outlives its segment.
    pub fn is_detached(&self) -> bool {
        self.task().is_some_and(|task| task.options.detached)
    }
}

impl TaskState {
    /// Whether an attempt is to be started here.
    pub fn is_to_start(&self) -> bool {
        matches!(self.here, Attempt::Lost | Attempt::Due)
    }

    /// It has ended: nothing is started any more. An attempt that runs here is not told.
    pub fn ended(&mut self, status: TaskStatus) {
        self.status = status;
        if self.is_to_start() {
            self.here = Attempt::Elsewhere;
        }
    }
}
