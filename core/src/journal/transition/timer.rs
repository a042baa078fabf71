//! A durable wait for a moment.

use super::Rewording;
use crate::journal::machine::Machine;
use crate::journal::op::{Alarm, Detail, Op};
use crate::model::{Label, OpBody, OpKind, Wait};
use crate::payload::Digest;
use std::time::Duration;

pub const REWORDING: Rewording = Rewording::OnceQuiet;

pub fn label(duration: Duration) -> Label {
    let digest = Digest::of_parts(&[&(duration.as_micros() as u64).to_le_bytes()]);
    super::label(OpKind::Timer, "sleep".into(), digest)
}

pub fn record(machine: &mut Machine, index: usize, duration: Duration) -> OpBody {
    machine.segment.ops[index].detail = Detail::Wait(Alarm::Set);
    OpBody::Timer { duration }
}

pub fn recover(op: &mut Op) {
    op.detail = Detail::Wait(Alarm::Set);
}

pub fn wait(wait: &mut Wait) {
    wait.timers = true;
}
