//! The mark of a step: it adds one to the run's count of steps. The op ends when its commit is durable. The budget may
//! refuse it.

use crate::journal::Outcome;
use crate::journal::account::Room;
use crate::journal::machine::Machine;
use crate::journal::op::Op;
use crate::model::{Label, OpBody, OpKind};
use crate::payload::Digest;

pub(super) fn label() -> Label {
    super::label(OpKind::StepMark, "step".into(), Digest::default())
}

pub(super) fn admit(machine: &mut Machine) -> Room {
    machine.room(0)
}

pub(super) fn record() -> OpBody {
    OpBody::StepMark
}

pub(super) fn recover(op: &mut Op) {
    op.outcome = Some(Box::new((0, Outcome::Done)));
}
