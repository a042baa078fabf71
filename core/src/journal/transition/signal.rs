//! A wait for a signal, for some time or for as long as it takes.

use crate::error::Result;
use crate::journal::machine::Machine;
use crate::journal::op::{Alarm, Detail, Op};
use crate::model::{Label, OpBody, OpKind, Wait, check_name};
use crate::payload::Digest;
use std::sync::Arc;
use std::time::Duration;

pub fn check(name: &str) -> Result<()> {
    check_name("the signal", name)
}

/// Its name says it all: another timeout is the same wait.
pub fn label(name: &Arc<str>) -> Label {
    super::label(OpKind::Signal, name.clone(), Digest::default())
}

pub fn record(machine: &mut Machine, index: usize, timeout: Option<Duration>) -> OpBody {
    let alarm = if timeout.is_some() { Alarm::Set } else { Alarm::Unset };
    machine.segment.ops[index].detail = Detail::Wait(alarm);
    OpBody::Signal { timeout }
}

/// Whether it has a timer is not loaded; one that does not exist is disarmed for nothing.
pub fn recover(op: &mut Op) {
    op.detail = Detail::Wait(Alarm::Set);
}

pub fn wait(op: &Op, wait: &mut Wait) {
    wait.signals.push(op.label.name.to_string());
    wait.timers |= !matches!(op.detail, Detail::Wait(Alarm::Unset));
}
