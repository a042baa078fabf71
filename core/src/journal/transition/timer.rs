//! A durable sleep.

use super::Rewording;
use crate::id::Slot;
use crate::journal::effect::Outcome;
use crate::journal::machine::Machine;
use crate::journal::op::{Alarm, Detail, Op};
use crate::model::{Label, OpBody, OpKind, Wait};
use crate::payload::Digest;
use std::time::Duration;

pub(super) const REWORDING: Rewording = Rewording::OnceQuiet;

pub(super) fn label(duration: Duration) -> Label {
    let digest = Digest::of_parts(&[&(duration.as_micros() as u64).to_le_bytes()]);
    super::label(OpKind::Timer, "sleep".into(), digest)
}

pub(super) fn record(machine: &mut Machine, index: usize, duration: Duration) -> OpBody {
    machine.segment.ops[index].detail = Detail::Wait(Alarm::Set);
    OpBody::Timer { duration }
}

pub(super) fn recover(op: &mut Op) {
    op.detail = Detail::Wait(Alarm::Set);
}

pub(super) fn wait(wait: &mut Wait) {
    wait.timers = true;
}

impl Machine {
    /// Applies that a timer has fired: a sleep ends, or a signal wait has timed out.
    pub(in crate::journal) fn apply_timer(&mut self, order: u64, slot: Slot) {
        if slot.segment == self.segment.number
            && let Some(index) = self.segment.by_sequence.get(&slot.sequence)
        {
            let op = &mut self.segment.ops[*index];
            if let Detail::Wait(alarm) = &mut op.detail {
                *alarm = Alarm::Passed(order);
            }
            if op.label.kind == OpKind::Timer {
                op.outcome = Some(Box::new((order, Outcome::Fired)));
            }
        }
    }

    /// The timer of an op no longer matters: has the store remove it.
    pub(in crate::journal) fn disarm(&mut self, index: usize) {
        let op = &mut self.segment.ops[index];
        if op.segment == self.segment.number && op.disarm() {
            self.draft.disarmed.push(op.sequence);
        }
    }
}
