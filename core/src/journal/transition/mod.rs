//! What each kind of op does: one file for each kind, with all that is special about it. This file dispatches to them.
//!
//! | function | what it says of the kind |
//! | --- | --- |
//! | `check` | which names and texts of a call no backend can store |
//! | `label` | how a call finds its recorded twin |
//! | `admit` | whether the budget has room for a new one |
//! | `record` | what a new op changes in the machine |
//! | `repeat` | what a call whose twin was found changes |
//! | `recover` | what is known of an op that was loaded |
//! | `wait` | what has to wake a run that awaits it |
//! | `size` | the bytes of values that a commit carries for it |

mod abandon;
mod attach;
mod checkpoint;
mod child;
mod entry;
mod flush;
mod once;
mod read;
mod send;
mod signal;
mod step_mark;
mod task;
mod timer;
mod usage;

use super::account::Room;
use super::call::{Call, Called};
use super::effect::Outcome;
use super::machine::Machine;
use super::op::{Op, Place};
use crate::error::Result;
use crate::id::{EntryId, TaskId};
use crate::model::{Label, LabelKey, NewEntry, NewTask, OpBody, OpKind, RecordedBody, RecordedOp, Wait};
use crate::payload::Digest;
use std::sync::Arc;

pub(super) use child::Tie;
pub(super) use once::finished as finished_onces;
pub(super) use read::Reads;

/// When a call with another input can be known to be the recorded step (rule 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rewording {
    /// Never: it is another op.
    Never,
    /// At the call: it is never awaited, and what it returns is needed at once.
    AtCall,
    /// Once the code is quiet and awaits nothing else.
    OnceQuiet,
}

/// When a call of this kind can be known to be a recorded step with another input.
pub(super) fn rewording(kind: OpKind) -> Rewording {
    match kind {
        OpKind::Entry => entry::REWORDING,
        OpKind::Task => task::REWORDING,
        OpKind::Child => child::REWORDING,
        OpKind::Send => send::REWORDING,
        OpKind::Timer => timer::REWORDING,
        OpKind::Usage => usage::REWORDING,
        _ => Rewording::Never,
    }
}

/// A label whose key is a digest.
fn label(kind: OpKind, name: Arc<str>, digest: Digest) -> Label {
    Label { kind, name, key: LabelKey::Digest(digest) }
}

impl Call {
    /// Refuses names and texts that no backend can store.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Entry { role, entry_type, turn_id, metadata, thread, .. } => {
                entry::check([role, entry_type, thread], turn_id.as_deref(), metadata.as_deref())
            }
            Self::Task { kind, queue, key, .. } => task::check(kind, queue, key.as_deref()),
            Self::Signal { name, .. } => signal::check(name),
            Self::Usage { model, .. } => usage::check(model),
            Self::Child(call) => child::check(call),
            Self::Send(body) => send::check(body),
            Self::Timer { .. } | Self::Attach { .. } | Self::StepMark | Self::Flush => Ok(()),
        }
    }

    /// The label by which the call finds its twin. `parent` is the entry a new entry would follow.
    fn label(&self, parent: Option<EntryId>) -> Result<Label> {
        match self {
            Self::Entry { role, entry_type, content, .. } => entry::label(role, entry_type, content, parent),
            Self::Task { kind, input, key, .. } => task::label(kind, input, key.as_ref()),
            Self::Signal { name, .. } => Ok(signal::label(name)),
            Self::Timer { duration } => Ok(timer::label(*duration)),
            Self::Attach { task } => Ok(attach::label(*task)),
            Self::Usage { model, usage } => usage::label(model, usage),
            Self::Child(call) => child::label(call),
            Self::Send(body) => send::label(body),
            Self::StepMark => Ok(step_mark::label()),
            Self::Flush => Ok(flush::label()),
        }
    }
}

impl Machine {
    /// The entry that a call would follow.
    pub(super) fn parent_of(&self, call: &Call) -> Option<EntryId> {
        match call {
            Call::Entry { thread, .. } => self.leaf(thread),
            _ => None,
        }
    }

    /// The label by which a call finds its twin: its own, or that of an earlier name of its task.
    pub(super) fn label_of(&self, call: &Call, parent: Option<EntryId>, once: Option<&Arc<str>>) -> Result<Label> {
        let label = call.label(parent)?;
        Ok(match call {
            Call::Task { aliases, .. } => self.recorded_as(label, aliases, once),
            _ => label,
        })
    }

    /// Refuses a task beyond the limit of open ones, a wait for news of nobody, a child inside of a `once`, and a handoff of a
    /// run that stops. This comes before the search for a twin: a call that is refused must not claim one, since the twin
    /// belongs to a later call of the same label that was not refused.
    pub(super) fn check_room(&mut self, call: &Call, once: Option<&Arc<str>>) -> Result<()> {
        match call {
            Call::Task { kind, .. } => self.check_open_tasks(kind, once),
            Call::Signal { name, .. } => signal::check_child(self, name),
            Call::Child(call) => child::check_outside_once(call, once).and_then(|()| child::check_hand_off(self, call)),
            _ => Ok(()),
        }
    }

    /// Whether the budget has room for a new op.
    fn admit(&mut self, call: &Call) -> Room {
        match call {
            Call::Task { options, .. } => task::admit(self, options),
            Call::StepMark => step_mark::admit(self),
            _ => Room::Enough,
        }
    }

    /// A call without a twin: it takes the next slot and joins the batch, unless the budget has no room for it. It is held
    /// back where the store may give the run more.
    pub(super) fn called_new(
        &mut self,
        call: Call,
        label: Label,
        parent: Option<EntryId>,
        once: Option<&Arc<str>>,
    ) -> Called {
        let room = self.admit(&call);
        let once = self.next_once(once);
        let index = self.segment.push(label, once);
        let mut called = Called { op: self.reference(index), recorded: false, entry: None, task: None, child: None };
        if room != Room::Refused {
            let body = self.record(index, call, parent, &mut called);
            self.place(index, body, room == Room::Draw);
        } else {
            self.segment.ops[index].place = Place::Refused;
            called.task = matches!(call, Call::Task { .. }).then(|| TaskId(self.id_of(index).uuid()));
        }
        called
    }

    fn record(&mut self, index: usize, call: Call, parent: Option<EntryId>, called: &mut Called) -> OpBody {
        match call {
            Call::Entry { role, entry_type, content, turn_id, metadata, thread } => {
                let id = EntryId(self.id_of(index).uuid());
                called.entry = Some(id);
                entry::record(self, index, id, &thread);
                OpBody::Entry(NewEntry { id, parent, thread, role, entry_type, content, turn_id, metadata })
            }
            Call::Task { kind, input, options, placement, queue, .. } => {
                let id = TaskId(self.id_of(index).uuid());
                called.task = Some(id);
                let entry = self.segment.leaves.get("").copied();
                let name = kind.to_string();
                task::record(self, index, id, kind, &options, placement);
                OpBody::Task(NewTask { id, kind: name, queue, input, options, placement, entry })
            }
            Call::Signal { timeout, .. } => signal::record(self, index, timeout),
            Call::Timer { duration } => timer::record(self, index, duration),
            Call::Attach { task } => {
                called.task = Some(task);
                attach::record(self, index, task)
            }
            Call::Usage { model, usage } => usage::record(self, index, model, usage),
            Call::Child(call) => {
                let id = self.child_id(index, call.options.id.as_deref());
                called.child = Some(id);
                child::record(self, index, id, *call)
            }
            Call::Send(body) => send::record(self, index, body),
            Call::StepMark => step_mark::record(),
            Call::Flush => flush::record(),
        }
    }

    /// A call whose twin was found.
    pub(super) fn called_again(&mut self, index: usize, call: Call) -> Called {
        let mut called = Called { op: self.reference(index), recorded: true, entry: None, task: None, child: None };
        match call {
            Call::Entry { thread, .. } => called.entry = entry::repeat(self, index, thread),
            Call::Task { kind, options, .. } => called.task = task::repeat(self, index, kind, options),
            Call::Attach { task } => called.task = Some(task),
            Call::Child(call) => called.child = child::repeat(self, index, &call),
            Call::Signal { .. } | Call::Timer { .. } | Call::Usage { .. } => {}
            Call::Send(_) | Call::StepMark | Call::Flush => {}
        }
        called
    }

    /// Notes what is known of a loaded op, which will have this index.
    pub(super) fn recover(&mut self, index: usize, op: &mut Op, recorded: &RecordedOp) {
        match &recorded.body {
            RecordedBody::Entry { id, .. } => entry::recover(op, *id),
            RecordedBody::Task { .. } => task::recover(self, index, op, recorded),
            RecordedBody::Attach { task } => attach::recover(self, index, *task),
            RecordedBody::Read { answer, count } => read::recover(self, index, op, answer, *count),
            RecordedBody::Signal => signal::recover(op),
            RecordedBody::Child { id } => child::recover(self, index, op, *id),
            RecordedBody::Timer => timer::recover(op),
            RecordedBody::Once { value } => once::recover(op, value),
            RecordedBody::StepMark => step_mark::recover(op),
            RecordedBody::Flush => flush::recover(op),
            RecordedBody::Send(sent) => send::recover(op, sent.id),
            // Nobody awaits these.
            RecordedBody::Abandon { .. } | RecordedBody::Usage => op.settle(),
        }
    }
}

/// The place among the facts of the outcome that an op would end with now, if its outcome is chosen only when it is
/// handed over. That is so for signal waits: which signal such a wait takes depends on what was handed over before.
pub(super) fn available(machine: &Machine, op: &Op) -> Option<u64> {
    match op.label.kind {
        OpKind::Signal => signal::available(machine, op),
        OpKind::Child => child::available(machine, op),
        _ => None,
    }
}

/// The outcome that an op had although it took nothing out of the mailbox, with its place among the facts: what it
/// waits for can be read any number of times.
pub(super) fn repeated(machine: &Machine, op: &Op) -> Option<(u64, Outcome)> {
    (op.label.kind == OpKind::Signal).then(|| signal::repeated(machine, op)).flatten()
}

/// Chooses that outcome. `order` is the place that [`available`] returned.
pub(super) fn end(machine: &mut Machine, index: usize, order: u64) -> Option<Outcome> {
    match machine.segment.ops[index].label.kind {
        OpKind::Signal => Some(signal::end(machine, index, order)),
        OpKind::Child => child::end(machine, index, order),
        _ => None,
    }
}

/// Adds what an awaited op waits for. Marks wait for nothing in the store: they end with their commit.
pub(super) fn wait(op: &Op, wait: &mut Wait) {
    match op.label.kind {
        OpKind::Signal => signal::wait(op, wait),
        OpKind::Child => child::wait(op, wait),
        OpKind::Timer => timer::wait(wait),
        OpKind::Task => task::wait(op, wait),
        OpKind::Attach => attach::wait(wait),
        OpKind::Entry | OpKind::Read | OpKind::Abandon | OpKind::Usage => {}
        OpKind::StepMark | OpKind::Flush | OpKind::Once | OpKind::Send => {}
    }
}

/// Whether something waits for the op to be durable, so that its batch is not held back.
pub(super) fn is_urgent(body: &OpBody) -> bool {
    match body {
        OpBody::Task(new) => task::is_urgent(new),
        OpBody::Child(_) | OpBody::Send(_) => true,
        OpBody::StepMark | OpBody::Flush | OpBody::Once { .. } => true,
        _ => false,
    }
}

/// Whether no task may start before the op is durable, because no replay could come to the same op by itself.
pub(super) fn decides(body: &OpBody) -> bool {
    match body {
        OpBody::Task(new) => task::decides(new),
        OpBody::Read { .. } => true,
        _ => false,
    }
}

/// The op whose await it gives up.
pub(super) fn gives_up(body: &OpBody) -> Option<u32> {
    match body {
        OpBody::Abandon { target } => Some(*target),
        _ => None,
    }
}

/// Whether the call of an op may take signals. A signal wait is not meant: it takes one when its outcome is handed
/// over.
pub(super) fn takes_signals(body: &OpBody) -> bool {
    matches!(body, OpBody::Read { .. })
}

/// The bytes of values that a commit carries for an op.
pub(super) fn size(body: &OpBody) -> u64 {
    match body {
        OpBody::Entry(new) => entry::size(new),
        OpBody::Task(new) => new.input.size(),
        OpBody::Child(new) => new.input.size(),
        OpBody::Send(message) => send::size(message),
        OpBody::Read { answer: value, .. } | OpBody::Once { value, .. } => value.size(),
        _ => 0,
    }
}
