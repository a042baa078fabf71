//! A read of the outside.

use crate::journal::Outcome;
use crate::journal::machine::Machine;
use crate::journal::op::Op;
use crate::payload::Payload;

pub fn recover(machine: &mut Machine, index: usize, op: &mut Op, answer: &Payload, count: u32) {
    op.outcome = Some((0, Outcome::Value(answer.clone())));
    machine.segment.read_left.insert(index, count);
    machine.segment.read_total.insert(index, count);
}
