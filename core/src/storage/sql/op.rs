//! Writes ops: entries, and the ops that have no other row.

use super::log::Log;
use super::run::Run;
use super::values::text_of;
use super::{OpRow, Statements};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::Slot;
use crate::model::{EventKind, NewEntry, NewOp, OpBody, OpKind};
use crate::payload::Payload;
use serde_json::value::RawValue;

/// Stores an entry with its event. An entry of the main thread becomes the run's leaf.
pub(in crate::storage) fn append<T: Statements>(
    tx: &T,
    run: &mut Run<T::Home>,
    log: &mut Log<'_, T>,
    slot: Slot,
    op: &NewOp,
    new: &NewEntry,
) -> Result<(), T::Fault> {
    let depth = match new.parent {
        None => 0,
        Some(parent) => tx.depth_above(run, parent)?.map(|depth| depth + 1).ok_or_else(|| {
            Error::new(
                Code::InvalidArgument,
                format!("{} follows the entry {parent}, which does not exist; append that first", op.label),
            )
        })?,
    };
    tx.refer(run, &new.content)?;
    tx.put_entry(run, slot, op, new, depth)?;
    if new.thread.is_empty() {
        run.leaf = Some(new.id);
    }
    let metadata = new.metadata.as_deref().filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    let data = format!(
        r#"{{"entry":"{}","role":{},"entry_type":{}{}{}}}"#,
        new.id,
        text_of(&new.role)?,
        text_of(&new.entry_type)?,
        if metadata.is_some() { r#","metadata":"# } else { "" },
        metadata.unwrap_or_default(),
    );
    log.about(EventKind::Entry, slot, data)?;
    Ok(())
}

/// Stores an op that has no other row.
pub(super) fn insert<T: Statements>(tx: &T, run: &Run<T::Home>, slot: Slot, op: &NewOp) -> Result<(), T::Fault> {
    let mut due: Option<Timestamp> = None;
    let mut count = None;
    let mut data = None;
    let mut target: Option<&[u8]> = None;
    let mut value = None;
    let sent = match &op.body {
        OpBody::Send(message) => Some(Payload::of(&message.sent())?),
        _ => None,
    };
    let kind = match &op.body {
        OpBody::Signal { timeout } => {
            due = timeout.map(|timeout| tx.now().after(timeout));
            OpKind::Signal
        }
        OpBody::Timer { duration } => {
            due = Some(tx.now().after(*duration));
            OpKind::Timer
        }
        OpBody::Read { answer, count: times } => {
            (value, count) = (Some(answer), Some(*times));
            OpKind::Read
        }
        OpBody::Abandon { target } => {
            count = Some(*target);
            OpKind::Abandon
        }
        OpBody::Attach { task } => {
            target = Some(task.0.as_bytes());
            OpKind::Attach
        }
        OpBody::Usage { model, usage } => {
            data = Some(text_of(&(model, usage))?);
            OpKind::Usage
        }
        OpBody::Once { digest, value: result } => {
            (target, value) = (Some(&digest.0[..]), Some(result));
            OpKind::Once
        }
        OpBody::Child(child) => {
            target = Some(child.id.0.as_bytes());
            OpKind::Child
        }
        OpBody::Send(_) => {
            value = sent.as_ref();
            OpKind::Send
        }
        OpBody::StepMark => OpKind::StepMark,
        OpBody::Flush | OpBody::Entry(_) | OpBody::Task(_) => OpKind::Flush,
    };
    if let Some(value) = value {
        tx.refer(run, value)?;
    }
    if let Some(due) = due {
        tx.due(due.0);
    }
    tx.put_op(run, slot, op, OpRow { kind, due, count, data, target, value })
}
