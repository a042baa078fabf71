//! The record of what a model call cost. A new one is counted against the budget. It is never awaited.

use super::Rewording;
use crate::error::{Code, Error, Result};
use crate::journal::machine::Machine;
use crate::model::{Label, OpBody, OpKind, Usage, check_name};
use crate::payload::Digest;

pub(super) const REWORDING: Rewording = Rewording::AtCall;

pub(super) fn check(model: &str) -> Result<()> {
    check_name("the model", model)
}

pub(super) fn label(model: &str, usage: &Usage) -> Result<Label> {
    let json = serde_json::to_vec(usage).map_err(|error| Error::new(Code::NotSerializable, error.to_string()))?;
    Ok(super::label(OpKind::Usage, model.into(), Digest::of_parts(&[&json])))
}

pub(super) fn record(machine: &mut Machine, index: usize, model: String, usage: Usage) -> OpBody {
    let op = &mut machine.segment.ops[index];
    op.settle();
    let sequence = op.sequence;
    machine.spend(sequence, &usage);
    OpBody::Usage { model, usage }
}
