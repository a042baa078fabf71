//! Something that happens once per run, whatever the segment. The op of a `once` is its end, with the result. The ops
//! that are called inside it are numbered in a namespace of its own.

use crate::error::{Code, Error, Result};
use crate::id::OnceSlot;
use crate::journal::Outcome;
use crate::journal::call::OnceBegin;
use crate::journal::machine::{Machine, OpRef};
use crate::journal::op::{Detail, Op};
use crate::model::{Label, LabelKey, OnceResult, OpBody, OpKind, RecordedBody, RecordedOp, check_name};
use crate::payload::{Digest, Payload};
use std::collections::HashSet;
use std::sync::Arc;

/// The names of the `once`s that have finished. On replay they return their result, and their ops are not called again.
pub(crate) fn finished(tail: &[RecordedOp]) -> HashSet<Arc<str>> {
    let ends = tail.iter().filter(|op| matches!(op.body, RecordedBody::Once { .. }));
    ends.filter_map(|op| op.once.as_ref().map(|once| once.name.clone())).collect()
}

pub(super) fn recover(op: &mut Op, value: &Payload) {
    op.outcome = Some(Box::new((0, Outcome::Value(value.clone()))));
}

impl Machine {
    /// Begins a `once`.
    pub fn once_begin(&mut self, name: &Arc<str>, digest: Digest) -> Result<OnceBegin> {
        self.check_open()?;
        check_name("the name of a once", name)?;
        #[cfg(test)]
        if crate::journal::wrong::is(crate::journal::wrong::Rule::OnceAgain) {
            return Ok(OnceBegin::Run);
        }
        if let Some(done) = self.run.once_done.get(name) {
            if done.digest != digest {
                return Err(Error::new(
                    Code::OnceChanged,
                    format!(
                        "once({name:?}) was called with another input than the first time; it happens once per run, so use another name for another input"
                    ),
                ));
            }
            let recorded = (0..self.segment.ops.len()).find(|index| {
                let op = &self.segment.ops[*index];
                op.label.kind == OpKind::Once && op.once.as_ref().is_some_and(|once| once.name == *name)
            });
            return Ok(match recorded {
                Some(index) => {
                    if self.segment.ops[index].claim() {
                        self.segment.script.note_claim();
                        self.run.first_call.make();
                    }
                    match self.segment.ops[index].outcome.as_deref() {
                        Some((_, Outcome::Value(value))) if self.segment.ops[index].is_settled() => {
                            OnceBegin::Done(value.clone())
                        }
                        _ => OnceBegin::Recorded(self.reference(index)),
                    }
                }
                None => OnceBegin::Done(done.value.clone()),
            });
        }
        Ok(OnceBegin::Run)
    }

    /// Ends a `once` with its result; await the op before going on.
    pub fn once_end(&mut self, name: &Arc<str>, digest: Digest, value: Payload) -> Result<OpRef> {
        self.check_open()?;
        let label = Label { kind: OpKind::Once, name: name.clone(), key: LabelKey::Digest(digest) };
        let index = self.segment.push(label, Some(OnceSlot { name: name.clone(), n: 0 }));
        self.run.once_done.insert(name.clone(), OnceResult { name: name.clone(), digest, value: value.clone() });
        self.segment.ops[index].detail = Detail::Once(Box::new(value.clone()));
        self.place(index, OpBody::Once { digest, value }, false);
        Ok(self.reference(index))
    }

    /// An op inside a `once` was loaded: the next one has another number.
    pub(in crate::journal) fn recover_place(&mut self, once: &OnceSlot) {
        let next = self.run.once_next.entry(once.name.clone()).or_insert(1);
        *next = (*next).max(once.n + 1);
    }

    /// The next place inside the `once` that a call is made in.
    pub(in crate::journal) fn next_once(&mut self, once: Option<&Arc<str>>) -> Option<OnceSlot> {
        let name = once?;
        let next = self.run.once_next.entry(name.clone()).or_insert(1);
        let n = *next;
        *next += 1;
        Some(OnceSlot { name: name.clone(), n })
    }
}
