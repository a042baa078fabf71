//! Something that happens once per run. Its op is its end.

use crate::journal::Outcome;
use crate::journal::op::Op;
use crate::payload::Payload;

pub fn recover(op: &mut Op, value: &Payload) {
    op.outcome = Some((0, Outcome::Value(value.clone())));
}
