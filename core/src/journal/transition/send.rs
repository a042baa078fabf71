//! A message to the parent or to a child. The op ends when its commit is durable: with nothing, or with why the store
//! did not deliver it.

use super::Rewording;
use crate::error::Result;
use crate::id::SignalId;
use crate::journal::effect::Outcome;
use crate::journal::machine::{Machine, OpRef};
use crate::journal::op::{Detail, Op};
use crate::model::{
    Consumed, Label, LabelKey, MAX_NAME, MessageBody, NewMessage, OpBody, OpKind, Signal, answer_of, answer_signal,
    check_name, check_signal, refused_op,
};
use crate::payload::Payload;
use std::sync::Arc;

pub(super) const REWORDING: Rewording = Rewording::AtCall;

pub(super) fn check(body: &MessageBody) -> Result<()> {
    match body {
        MessageBody::ToChild { name, .. } => check_signal(name),
        body => check_name("the signal", body.name()),
    }
}

/// Two messages are the same step if they say the same thing to the same run.
pub(super) fn label(body: &MessageBody) -> Result<Label> {
    let value = body.payload().map(Payload::digest).transpose()?.unwrap_or_default();
    let (kind, about) = match body {
        MessageBody::ToParent { is_request, .. } => (if *is_request { "request" } else { "tell" }, String::new()),
        MessageBody::ToChild { delivery, .. } => ("signal", format!("{delivery:?}")),
        MessageBody::Answer { request, .. } => ("answer", request.to_string()),
        MessageBody::Stop { how, .. } => ("stop", format!("{:?} {}", how.mode, how.grace.as_micros())),
    };
    let digest = Payload::of(&(kind, body.child(), about, value.0))?.digest()?;
    Ok(Label { kind: OpKind::Send, name: step_name(body).into(), key: LabelKey::Digest(digest) })
}

/// What a message keeps when only its value is another one: what it is, and for whom.
fn step_name(body: &MessageBody) -> String {
    let whom = match body {
        MessageBody::ToParent { is_request: true, .. } => " (request)".to_owned(),
        MessageBody::ToParent { .. } => String::new(),
        MessageBody::ToChild { child, .. } | MessageBody::Stop { child, .. } => format!(" for {child}"),
        MessageBody::Answer { request, .. } => format!(" to {request}"),
    };
    let most = MAX_NAME - whom.len();
    let (name, mut end) = (body.name(), body.name().len().min(most));
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{whom}", &name[..end])
}

pub(super) fn record(machine: &mut Machine, index: usize, body: MessageBody) -> OpBody {
    let id = SignalId(machine.id_of(index).uuid());
    machine.segment.ops[index].detail = Detail::Message(id);
    OpBody::Send(Box::new(NewMessage { id, body }))
}

pub(super) fn recover(op: &mut Op, id: SignalId) {
    op.detail = Detail::Message(id);
    op.outcome = Some(Box::new((0, Outcome::Done)));
}

pub(super) fn size(message: &NewMessage) -> u64 {
    message.body.payload().map_or(0, Payload::size)
}

/// What a signal says of a message that was not delivered. None if it says nothing of that.
pub(super) fn refusal(signal: &Signal) -> Option<Outcome> {
    refused_op(&signal.name)?;
    answer_of(&signal.payload).err().map(Outcome::Failed)
}

impl Machine {
    /// The name of the signal that answers a request which this op sends.
    pub fn answer_to(&self, op: OpRef) -> Arc<str> {
        match self.index(op).map(|index| &self.segment.ops[index].detail) {
            Some(Detail::Message(id)) => answer_signal(*id).into(),
            _ => "".into(),
        }
    }

    /// Ends the op whose message the store did not deliver. Returns whether the signal tells of that: it does not stay
    /// in the mailbox.
    pub(super) fn refuse_message(&mut self, order: u64, signal: &Signal) -> bool {
        let Some(slot) = refused_op(&signal.name) else { return false };
        let index = self.segment.by_sequence.get(&slot.sequence).filter(|_| slot.segment == self.segment.number);
        if let (Some(index), Some(outcome)) = (index, refusal(signal)) {
            self.segment.ops[*index].outcome = Some(Box::new((order, outcome)));
        }
        self.draft.consumed.push(Consumed { signal: signal.id, by: slot });
        true
    }
}
