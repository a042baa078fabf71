//! An entry of the conversation. It is appended at once and never awaited; on replay the id that it had is given back.

use super::Rewording;
use crate::error::Result;
use crate::id::EntryId;
use crate::journal::machine::Machine;
use crate::journal::op::{Detail, Op};
use crate::model::{Label, LabelKey, NewEntry, OpKind, RecordedBody, RecordedOp, check_name, check_text};
use crate::payload::{Digest, Payload};

pub(super) const REWORDING: Rewording = Rewording::AtCall;

pub(super) fn check(
    [role, entry_type, thread]: [&str; 3],
    turn_id: Option<&str>,
    metadata: Option<&str>,
) -> Result<()> {
    if let Some(metadata) = metadata {
        check_text("the metadata", metadata)?;
    }
    check_name("the role", role)?;
    check_name("the entry's type", entry_type)?;
    turn_id.map_or(Ok(()), |turn_id| check_name("the turn's id", turn_id))?;
    check_name("the thread", thread)
}

/// The digest covers role, type, content and the entry it follows: after an edit the later ones are appended anew.
pub(super) fn label(role: &str, entry_type: &str, content: &Payload, parent: Option<EntryId>) -> Result<Label> {
    let digest = content.digest()?;
    let parent = parent.map(|id| *id.0.as_bytes()).unwrap_or_default();
    let parts = [role.as_bytes(), entry_type.as_bytes(), &digest.0, &parent];
    Ok(super::label(OpKind::Entry, role.into(), Digest::of_parts(&parts)))
}

pub(super) fn record(machine: &mut Machine, index: usize, id: EntryId, thread: &str) {
    machine.segment.leaves.insert(thread.to_owned(), id);
    recover(&mut machine.segment.ops[index], id);
}

pub(super) fn repeat(machine: &mut Machine, index: usize, thread: String) -> Option<EntryId> {
    let entry = machine.segment.ops[index].entry()?;
    machine.segment.leaves.insert(thread, entry);
    Some(entry)
}

pub(super) fn recover(op: &mut Op, id: EntryId) {
    op.detail = Detail::Entry { id, external: None };
    op.settle();
}

pub(super) fn size(new: &NewEntry) -> u64 {
    new.content.size() + new.metadata.as_ref().map_or(0, |text| text.len() as u64)
}

impl Machine {
    /// Entries that `resume(message=)` put into the tail are taken without a call, at their place in the script.
    pub(in crate::journal) fn recover_external_entries(&mut self, tail: &[RecordedOp]) {
        for (index, recorded) in tail.iter().enumerate() {
            // The code's own entries have the digest of their content instead.
            if matches!(recorded.label.key, LabelKey::Key(_))
                && let RecordedBody::Entry { id, thread, .. } = &recorded.body
            {
                let op = &mut self.segment.ops[index];
                op.claim();
                op.detail = Detail::Entry { id: *id, external: Some(thread.clone()) };
                self.segment.script.note_claim();
            }
        }
    }

    /// The script goes past an op: an entry from outside is the leaf of its thread from here on.
    pub(in crate::journal) fn pass_entry(&mut self, index: usize) {
        if let Detail::Entry { id, external } = &mut self.segment.ops[index].detail
            && let Some(thread) = external.take()
        {
            self.segment.leaves.insert(thread, *id);
        }
    }
}
