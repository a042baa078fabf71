//! A wait for a signal, for some time or for as long as it takes.

use crate::error::Result;
use crate::id::Slot;
use crate::journal::effect::Outcome;
use crate::journal::machine::Machine;
use crate::journal::op::{Alarm, Detail, Op};
use crate::model::{Consumed, Delivery, Label, OpBody, OpKind, Signal, Wait, check_name};
use crate::payload::Digest;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn check(name: &str) -> Result<()> {
    check_name("the signal", name)
}

/// The label is the name alone: a wait with another timeout is the same wait.
pub(super) fn label(name: &Arc<str>) -> Label {
    super::label(OpKind::Signal, name.clone(), Digest::default())
}

pub(super) fn record(machine: &mut Machine, index: usize, timeout: Option<Duration>) -> OpBody {
    let alarm = if timeout.is_some() { Alarm::Set } else { Alarm::Unset };
    machine.segment.ops[index].detail = Detail::Wait(alarm);
    OpBody::Signal { timeout }
}

/// A loaded wait does not say whether it has a timer. It is taken to have one: to disarm a timer that is not there does
/// no harm.
pub(super) fn recover(op: &mut Op) {
    op.detail = Detail::Wait(Alarm::Set);
}

pub(super) fn wait(op: &Op, wait: &mut Wait) {
    wait.signals.push(op.label.name.to_string());
    wait.timers |= !matches!(op.detail, Detail::Wait(Alarm::Unset));
}

/// The place among the facts of the outcome that a wait would end with now: the first signal of its name or its
/// timeout, whichever came first.
pub(super) fn available(machine: &Machine, op: &Op) -> Option<u64> {
    if op.is_held() {
        return None;
    }
    let named = |(_, signal): &&(u64, Signal)| *signal.name == *op.label.name;
    let signal = machine.run.mailbox.iter().find(named).map(|(order, _)| *order);
    match (signal, op.timed_out()) {
        (Some(signal), Some(timeout)) => Some(signal.min(timeout)),
        (signal, timeout) => signal.or(timeout),
    }
}

/// The outcome of a wait by the fact at this place.
pub(super) fn end(machine: &mut Machine, index: usize, order: u64) -> Outcome {
    machine.take_signal(index, order).unwrap_or(Outcome::TimedOut)
}

impl Machine {
    /// Takes the signal at this place out of the mailbox. None if the fact at this place is not a signal.
    fn take_signal(&mut self, index: usize, order: u64) -> Option<Outcome> {
        let at = self
            .run
            .mailbox
            .iter()
            .position(|(place, signal)| *place == order && *signal.name == *self.segment.ops[index].label.name)?;
        let (_, signal) = self.run.mailbox.remove(at)?;
        let by = self.segment.ops[index].slot();
        self.draft.consumed.push(Consumed { signal: signal.id, by });
        Some(Outcome::Signal(signal.payload))
    }

    /// Puts a signal back into its place in the mailbox. It was consumed for an await that has ended without it.
    pub(in crate::journal) fn give_signal_back(&mut self, index: usize) {
        let slot = self.segment.ops[index].slot();
        if self.segment.ops[index].label.kind != OpKind::Signal {
            return;
        }
        for (order, signal) in self.segment.consumed.remove(&slot).unwrap_or_default() {
            let at = self.run.mailbox.partition_point(|(place, _)| *place < order);
            self.run.mailbox.insert(at, (order, signal));
        }
    }

    /// Applies a signal: it goes into the mailbox, or to the op that has consumed it.
    pub(in crate::journal) fn apply_signal(&mut self, order: u64, signal: Signal) {
        match signal.consumed_by {
            Some(slot) => self.was_consumed(order, slot, signal),
            None if self.run.mailbox.iter().all(|(_, known)| known.id != signal.id) => {
                if signal.delivery == Delivery::Now {
                    self.interrupt();
                }
                self.note_child(order, &signal);
                self.run.mailbox.push_back((order, signal));
            }
            None => {}
        }
    }

    /// Applies a signal that an op of the tail has consumed: a wait ends with it, a read keeps it for its answer.
    fn was_consumed(&mut self, order: u64, slot: Slot, signal: Signal) {
        let index = match slot.segment == self.segment.number {
            true => self.segment.by_sequence.get(&slot.sequence).copied(),
            false => self
                .segment
                .unfinished_once
                .iter()
                .copied()
                .find(|index| self.segment.ops[*index].sequence == slot.sequence),
        };
        if let Some(index) = index {
            let op = &mut self.segment.ops[index];
            let outcome = match op.label.kind {
                OpKind::Signal => Some(Outcome::Signal(signal.payload.clone())),
                _ => None,
            };
            op.outcome = outcome.map(|outcome| (order, outcome)).or(op.outcome.take());
        }
        self.share_child(order, &signal);
        self.segment.consumed.entry(slot).or_default().push((order, signal));
    }

    /// Whether a signal that interrupts has come since the last outcome was handed over: the code cannot have known of
    /// it. So a call that was in flight when its process was lost stays interrupted.
    pub(in crate::journal) fn has_interrupt(&self) -> bool {
        self.run.mailbox.iter().any(|(order, signal)| {
            let is_new = match self.segment.handed {
                0 => signal.created_at >= self.run.time,
                handed => *order > handed,
            };
            signal.delivery == Delivery::Now && is_new
        })
    }
}
