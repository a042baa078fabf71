//! Rewording: a call whose input is volatile, such as a prompt with a clock in it, takes the recorded step of another
//! input and keeps its result (rule 7).
//!
//! Whether a call is such a step is certain once the code is quiet: then the call is the only thing that is awaited,
//! and no branch is left that could still make the recorded call itself. A host that can never tell what is outside
//! (`blind`) has to decide at the call.

use super::machine::Machine;
use super::op::{Detail, Place};
use super::replay::Line;
use super::transition::{Rewording, rewording};
use crate::model::{Label, SideEffects};

impl Machine {
    /// The recorded op that a call takes at once, before the code is quiet.
    pub(super) fn reworded_at_call(&self, label: &Label, free: impl Fn(usize) -> bool) -> Option<usize> {
        let at_once = match rewording(label.kind) {
            Rewording::AtCall => true,
            _ => self.config.blind && self.segment.script.is_sequential(),
        };
        let alone = !self.host.concurrent
            && !self.segment.diverged
            && self.segment.held.is_empty()
            && self.segment.awaited.is_empty();
        if !at_once || !self.segment.code.unchanged || !alone {
            return None;
        }
        let first =
            self.segment.script.first_in_window(|index| free(index).then_some(&self.segment.ops[index].label))?.0;
        self.may_stand_for(first, label).then_some(first)
    }

    /// Whether a recorded op may be the same step as a call with another input. Not if it is `at_most_once`, and not if
    /// anything else was pending when it was recorded: then the call could belong to another branch.
    fn may_stand_for(&self, recorded: usize, label: &Label) -> bool {
        let op = &self.segment.ops[recorded];
        let fixed = op.task().is_some_and(|task| task.options.side_effects == SideEffects::AtMostOnce);
        rewording(label.kind) != Rewording::Never
            && op.label.same_step(label)
            && !fixed
            && self.segment.script.was_alone(recorded)
    }

    /// Lets the one call that is held back take the recorded call that blocks replay. The code is quiet, and waits for
    /// nothing outside. False if the two may not be the same step.
    pub(super) fn reword(&mut self, line: Line) -> bool {
        let Line::Call(recorded) = line else { return false };
        let ([called], [awaited]) = (&self.segment.held[..], &self.segment.awaited[..]) else { return false };
        let called = *called;
        let alone = called == *awaited && !self.host.concurrent && !self.segment.diverged && !self.phase.is_saving();
        let same_scope = self.segment.ops[called].once.as_ref().map(|once| &once.name)
            == self.segment.ops[recorded].once.as_ref().map(|once| &once.name);
        if !alone
            || !self.segment.code.unchanged
            || !same_scope
            || !self.may_stand_for(recorded, &self.segment.ops[called].label)
        {
            return false;
        }
        let data = serde_json::json!({
            "recorded": self.segment.ops[recorded].label.to_string(),
            "called": self.segment.ops[called].label.to_string(),
        });
        if self.run.first_call.clear(false).is_some() {
            self.segment.reworded_first =
                Some((self.segment.ops[recorded].label.clone(), self.segment.ops[called].label.clone()));
        }
        self.segment.held.clear();
        self.segment.starting.retain(|index| *index != called);
        // The host refers to the call by its index. So the recorded op moves to that index, and the call to the other
        // one, where it is marked as replaced.
        self.segment.ops.swap(recorded, called);
        self.segment.script.rename(recorded, called);
        let (new_sequence, sequence) = (self.segment.ops[recorded].sequence, self.segment.ops[called].sequence);
        self.segment.by_sequence.remove(&new_sequence);
        self.segment.by_sequence.insert(sequence, called);
        if new_sequence + 1 == self.segment.next_sequence {
            self.segment.next_sequence = new_sequence;
        }
        let op = &mut self.segment.ops[recorded];
        let gone = std::mem::replace(&mut op.detail, Detail::None);
        op.place = Place::Replaced;
        op.settle();
        if let Detail::Task(task) = &gone {
            self.segment.by_task.remove(&task.id);
        }
        let op = &mut self.segment.ops[called];
        op.claim();
        op.begin_await();
        if let (Detail::Task(task), Detail::Task(new)) = (&mut op.detail, gone) {
            (task.options, task.kind, task.is_open) = (new.options, new.kind, new.is_open);
            let (id, to_start) = (task.id, task.is_to_start());
            for index in self.segment.by_task.get_mut(&id).into_iter().flatten().filter(|index| **index == recorded) {
                *index = called;
            }
            if to_start {
                self.segment.starting.push(called);
            }
        }
        self.segment.script.note_claim();
        self.segment.last_called = sequence;
        self.draft.warn(Some(sequence), "reworded", data);
        true
    }
}
