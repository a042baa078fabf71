//! A wait for a signal, for some time or for as long as it takes.

use super::Tie;
use crate::error::{Code, Error, Result};
use crate::id::Slot;
use crate::journal::effect::Outcome;
use crate::journal::machine::Machine;
use crate::journal::op::{Alarm, Detail, Op};
use crate::model::{
    ChildEvent, Consumed, Delivery, Label, OpBody, OpKind, Signal, Wait, answer_of, check_name, child_of_events,
    child_signal, ends_wait, is_answer,
};
use crate::payload::{Digest, Payload};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn check(name: &str) -> Result<()> {
    check_name("the signal", name)
}

/// Refuses to wait for news of a child that nothing in this segment has started: the store tells a segment of the
/// children that it joins, so the wait might not end.
pub(super) fn check_child(machine: &Machine, name: &str) -> Result<()> {
    let Some(child) = child_of_events(name) else { return Ok(()) };
    if machine.segment.by_child.get(&child).is_some_and(Tie::has_op) {
        return Ok(());
    }
    let hint = "start it first, or join it by spawn_agent with its id";
    let message = format!("the run {child} is no child that this run has started since its last checkpoint; {hint}");
    Err(Error::new(Code::InvalidArgument, message))
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
    wait.signals.extend(ends_wait(&op.label.name));
    wait.timers |= !matches!(op.detail, Detail::Wait(Alarm::Unset));
}

/// The place among the facts of the outcome that a wait would end with now: the first signal of its name or its
/// timeout, whichever came first.
pub(super) fn available(machine: &Machine, op: &Op) -> Option<u64> {
    if op.is_held() {
        return None;
    }
    let child = child_of_events(&op.label.name);
    let end = child.map(child_signal);
    let named = |signal: &Signal| *signal.name == *op.label.name || Some(&signal.name) == end.as_ref();
    let signal = machine.run.mailbox.iter().find(|(_, signal)| named(signal)).map(|(order, _)| *order);
    let known = repeated(machine, op).map(|(order, _)| order);
    [signal, known, op.timed_out()].into_iter().flatten().min()
}

/// The outcome of a wait by the fact at this place.
pub(super) fn end(machine: &mut Machine, index: usize, order: u64) -> Outcome {
    if let Some(outcome) = machine.take_signal(index, order) {
        return outcome;
    }
    match repeated(machine, &machine.segment.ops[index]) {
        Some((known, outcome)) if known == order => outcome,
        _ => Outcome::TimedOut,
    }
}

/// What a wait for news of a child ends with if the child's end is out of the mailbox, or if there is no child.
pub(super) fn repeated(machine: &Machine, op: &Op) -> Option<(u64, Outcome)> {
    let child = child_of_events(&op.label.name)?;
    let end = machine.known_end(child).map(|(order, end)| (order, heard(&child_signal(child), end)));
    end.or_else(|| machine.known_refusal(child))
}

/// What a wait ends with by a signal: an answer to a request is a value or a failure, and what tells of a child is an
/// event.
fn heard(name: &str, payload: Payload) -> Outcome {
    match ChildEvent::of(name, &payload) {
        Some(Ok(event)) => Outcome::Event(Box::new(event)),
        Some(Err(failure)) => Outcome::Failed(failure),
        None if is_answer(name) => answer_of(&payload).map_or_else(Outcome::Failed, Outcome::Value),
        None => Outcome::Signal(payload),
    }
}

impl Machine {
    /// Takes the signal at this place out of the mailbox. None if the fact at this place is not a signal.
    fn take_signal(&mut self, index: usize, order: u64) -> Option<Outcome> {
        let op = &self.segment.ops[index];
        let at =
            self.run.mailbox.iter().position(|(place, signal)| {
                *place == order && ends_wait(&op.label.name).any(|name| name == signal.name)
            })?;
        let by = op.slot();
        let (_, signal) = self.run.mailbox.remove(at)?;
        self.draft.consumed.push(Consumed { signal: signal.id, by });
        self.share_child(order, &signal);
        Some(heard(&signal.name, signal.payload))
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
                if self.refuse_message(order, &signal) {
                    return;
                }
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
                // A late answer is taken out of the mailbox for the first op of the segment, whatever that is.
                OpKind::Signal if !ends_wait(&op.label.name).any(|name| name == signal.name) => None,
                OpKind::Signal => Some(heard(&signal.name, signal.payload.clone())),
                OpKind::Send => super::send::refusal(&signal),
                _ => None,
            };
            op.outcome = outcome.map(|outcome| Box::new((order, outcome))).or(op.outcome.take());
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
