//! Another run, started as a child of this one. The op ends with the child's end, which comes as a signal of a name
//! that only this child has.

use super::Rewording;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::journal::call::ChildCall;
use crate::journal::effect::Outcome;
use crate::journal::machine::Machine;
use crate::journal::op::{Detail, Op};
use crate::model::{
    ChildEnd, Consumed, Label, LabelKey, NewExecution, OpBody, OpKind, Signal, Wait, check_name, child_signal,
};
use crate::payload::{Digest, Payload};

pub(super) const REWORDING: Rewording = Rewording::OnceQuiet;

pub(super) fn check(call: &ChildCall) -> Result<()> {
    check_name("the agent", &call.kind)?;
    check_name("the queue", &call.queue)?;
    call.key.as_ref().map_or(Ok(()), |key| check_name("the key", key))
}

pub(super) fn label(call: &ChildCall) -> Result<Label> {
    let key = match &call.key {
        Some(key) => LabelKey::Key(key.clone()),
        None => LabelKey::Digest(call.input.digest()?),
    };
    Ok(Label { kind: OpKind::Child, name: call.kind.clone(), key })
}

pub(super) fn record(machine: &mut Machine, index: usize, id: ExecutionId, call: ChildCall) -> OpBody {
    machine.segment.ops[index].detail = Detail::Child { id, ended: None };
    machine.segment.by_child.insert(child_signal(id), index);
    let ChildCall { kind, input, queue, key: _, limits, priority, metadata } = call;
    OpBody::Child(Box::new(NewExecution {
        // The store knows the org of the batch.
        org: OrgId::DEFAULT,
        id,
        key: None,
        kind: kind.to_string(),
        queue,
        input_digest: input.digest().unwrap_or(Digest::default()),
        input,
        limits,
        metadata,
        priority,
        concurrency_key: None,
        concurrency_limit: None,
        delay: None,
        traceparent: None,
    }))
}

pub(super) fn recover(machine: &mut Machine, index: usize, op: &mut Op, id: ExecutionId) {
    op.detail = Detail::Child { id, ended: None };
    machine.segment.by_child.insert(child_signal(id), index);
}

pub(super) fn wait(op: &Op, wait: &mut Wait) {
    wait.signals.extend(op.child().map(child_signal));
}

/// The place among the facts of the child's end.
pub(super) fn available(op: &Op) -> Option<u64> {
    match op.detail {
        Detail::Child { ended, .. } if !op.is_held() => ended,
        _ => None,
    }
}

/// The outcome of a child by the fact of its end, which is taken out of the mailbox.
pub(super) fn end(machine: &mut Machine, index: usize, order: u64) -> Option<Outcome> {
    let at = machine.run.mailbox.binary_search_by_key(&order, |(place, _)| *place).ok()?;
    let (_, signal) = machine.run.mailbox.remove(at)?;
    let op = &machine.segment.ops[index];
    machine.draft.consumed.push(Consumed { signal: signal.id, by: op.slot() });
    Some(outcome(op, &signal.payload))
}

/// What the await of a child ends with.
pub(super) fn outcome(op: &Op, end: &Payload) -> Outcome {
    ChildEnd::result(end, &op.label.name).map_or_else(Outcome::Failed, Outcome::Value)
}

impl Machine {
    /// Notes that a signal in the mailbox is the end of a child of this segment.
    pub(super) fn note_child_end(&mut self, order: u64, signal: &Signal) {
        if let Some(index) = self.segment.by_child.get(&signal.name)
            && let Detail::Child { ended, .. } = &mut self.segment.ops[*index].detail
        {
            *ended = Some(order);
        }
    }
}
