//! Reads of the outside: mailbox, cancellation, budget. The answer is recorded, so that on replay the code does not see
//! news earlier than it did (rule 6). Equal answers in a row are one op with a count, since agents ask in loops.

use crate::error::Result;
use crate::id::Slot;
use crate::journal::Outcome;
use crate::journal::call::{Answer, Question};
use crate::journal::machine::Machine;
use crate::journal::op::Op;
use crate::model::{Consumed, Delivery, Label, LabelKey, OpBody, OpKind, RecordedBody, RecordedOp, check_name};
use crate::payload::{Digest, Payload};
use std::collections::HashMap;
use std::sync::Arc;

/// The reads of a segment that may give their answer once more.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// The read that was the last op called. None if the last op called was no read.
    last: Option<LastRead>,
    /// How often each recorded read has answered, by the index of its op.
    recorded: HashMap<usize, Repeats>,
}

#[derive(Debug)]
struct LastRead {
    op: usize,
    label: Label,
    answer: Payload,
    /// How often it has given this answer in a row.
    count: u32,
}

/// How often a recorded read still has to give its answer, and how often it has given it in all.
#[derive(Debug, Clone, Copy)]
struct Repeats {
    left: u32,
    total: u32,
}

impl Reads {
    /// Another op was called. So the next read is an op of its own, even with an equal answer.
    pub(crate) fn interrupt(&mut self) {
        self.last = None;
    }
}

pub(super) fn recover(machine: &mut Machine, index: usize, op: &mut Op, answer: &Payload, count: u32) {
    op.outcome = Some(Box::new((0, Outcome::Value(answer.clone()))));
    machine.segment.reads.recorded.insert(index, Repeats { left: count, total: count });
}

impl Question {
    /// The label by which a read finds its twin.
    pub(in crate::journal) fn label(&self) -> Label {
        let (name, detail): (Arc<str>, &[u8]) = match self {
            Question::HasSignal(name) => (name.clone(), b"has"),
            Question::Drain { name, turn: false } => (name.clone(), b"drain"),
            Question::Drain { name, turn: true } => (name.clone(), b"drain turn"),
            Question::Cancellation => ("cancellation".into(), b"cancellation"),
            Question::Budget => ("budget".into(), b"budget"),
        };
        Label { kind: OpKind::Read, name, key: LabelKey::Digest(Digest::of_parts(&[detail])) }
    }

    /// Whether the op with this label is a read of this question.
    pub(in crate::journal) fn is_asked_by(&self, label: &Label) -> bool {
        label.kind == OpKind::Read && self.label() == *label
    }

    /// Whether a signal of this delivery is visible to the question.
    pub(in crate::journal) fn sees(&self, delivery: Delivery) -> bool {
        delivery != Delivery::NextTurn || matches!(self, Question::Drain { turn: true, .. })
    }
}

impl Machine {
    /// Answers a question about the outside and records the answer (rule 6).
    pub fn read(&mut self, question: Question, once: Option<&Arc<str>>) -> Result<Answer> {
        self.check_open()?;
        if let Question::HasSignal(name) | Question::Drain { name, .. } = &question {
            check_name("the signal", name)?;
        }
        self.advance();
        let label = question.label();
        if let Some(answer) = self.read_again(&question, &label) {
            return Ok(answer);
        }
        let answer = match self.claim_twin(&label, once)? {
            Some(index) => self.recorded_answer(index, &question),
            None => self.read_now(&question, label, once),
        };
        if matches!((&question, &answer), (Question::Cancellation, Answer::Flag(true))) {
            self.heard_stop();
        }
        Ok(answer)
    }

    /// Whether an op is a read by which the parent of this fork learned that it shall stop. The fork leaves it out:
    /// nobody has asked the fork to stop.
    pub(in crate::journal) fn is_of_a_parents_stop(&self, op: &RecordedOp) -> bool {
        let inherited =
            op.segment == self.segment.number && self.last_inherited().is_some_and(|last| op.sequence <= last);
        let RecordedBody::Read { answer, .. } = &op.body else { return false };
        inherited && Question::Cancellation.is_asked_by(&op.label) && is_yes(answer)
    }

    /// The code has read that it shall stop. That counts as being told: its later awaits do not end with `Cancelled`,
    /// so that it can tidy up. The branches that await something now are told now.
    fn heard_stop(&mut self) {
        if self.run.stop.undelivered().is_some() && !self.config.not_cancellable {
            self.hand_cancel(self.segment.script.tells_stop());
        }
    }

    fn read_now(&mut self, question: &Question, label: Label, once: Option<&Arc<str>>) -> Answer {
        let once = self.next_once(once);
        let (answer, body) = self.answer(question);
        if let Some(count) = self.repeat_last_read(&label, &body) {
            if let Some(op) = self.draft.ops.iter_mut().rev().find(|op| op.label == label)
                && let OpBody::Read { count: stored, .. } = &mut op.body
            {
                *stored = count;
            } else if let Some(last) = &self.segment.reads.last {
                let sequence = self.segment.ops[last.op].sequence;
                self.draft.read_counts.retain(|(read, _)| *read != sequence);
                self.draft.read_counts.push((sequence, count));
                self.draft.decides = true;
            }
            return answer;
        }
        let index = self.segment.push(label.clone(), once);
        self.segment.ops[index].settle();
        if let (Question::Drain { .. }, Answer::Signals(values)) = (question, &answer) {
            self.consume_drained(index, question, values.len());
        }
        self.place(index, OpBody::Read { answer: body.clone(), count: 1 }, false);
        if !matches!(question, Question::Drain { .. }) {
            self.segment.reads.last = Some(LastRead { op: index, label, answer: body, count: 1 });
        }
        answer
    }

    /// The answer of the last read, if it is a recorded one that has not given it as often as it did then.
    fn read_again(&mut self, question: &Question, label: &Label) -> Option<Answer> {
        let index = self.segment.reads.last.as_ref()?.op;
        let repeats = self.segment.reads.recorded.get_mut(&index)?;
        if self.segment.ops[index].label != *label || repeats.left == 0 {
            return None;
        }
        repeats.left -= 1;
        Some(self.stored_answer(index, question))
    }

    fn recorded_answer(&mut self, index: usize, question: &Question) -> Answer {
        self.segment.ops[index].settle();
        let repeats = self.segment.reads.recorded.get_mut(&index);
        let total = repeats.map_or(1, |repeats| {
            repeats.left = repeats.left.saturating_sub(1);
            repeats.total
        });
        // Drains are never joined: two that take equally many signals take different ones.
        if !matches!(question, Question::Drain { .. })
            && let Some((_, Outcome::Value(body))) = self.segment.ops[index].outcome.as_deref()
        {
            let (label, answer) = (self.segment.ops[index].label.clone(), body.clone());
            self.segment.reads.last = Some(LastRead { op: index, label, answer, count: total });
        }
        self.stored_answer(index, question)
    }

    fn stored_answer(&self, index: usize, question: &Question) -> Answer {
        let op = &self.segment.ops[index];
        if let Question::Drain { .. } = question {
            let values = self
                .segment
                .consumed
                .get(&op.slot())
                .map(|taken| taken.iter().map(|(_, signal)| signal.payload.clone()).collect());
            return Answer::Signals(values.unwrap_or_default());
        }
        match op.outcome.as_deref() {
            Some((_, Outcome::Value(value))) if matches!(question, Question::Budget) => Answer::Value(value.clone()),
            Some((_, Outcome::Value(value))) => Answer::Flag(is_yes(value)),
            _ => Answer::Flag(false),
        }
    }

    /// The answer to a question by what the store has told last, with its form for the journal.
    fn answer(&self, question: &Question) -> (Answer, Payload) {
        let flag = |yes: bool| (Answer::Flag(yes), Payload::json(if yes { &b"true"[..] } else { b"false" }));
        match question {
            Question::HasSignal(name) => flag(
                self.run.mailbox.iter().any(|(_, signal)| *signal.name == **name && question.sees(signal.delivery)),
            ),
            Question::Cancellation => flag(self.run.stop.is_requested()),
            Question::Budget => {
                let left = self.budget_left();
                (Answer::Value(left.clone()), left)
            }
            Question::Drain { name, .. } => {
                let visible = |signal: &crate::model::Signal| *signal.name == **name && question.sees(signal.delivery);
                let taken = self.run.mailbox.iter().filter(|(_, signal)| visible(signal));
                let values: Vec<_> = taken.map(|(_, signal)| signal.payload.clone()).collect();
                let count = Payload::json(values.len().to_string().into_bytes());
                (Answer::Signals(values), count)
            }
        }
    }

    fn consume_drained(&mut self, index: usize, question: &Question, count: usize) {
        let by = Slot { segment: self.segment.number, sequence: self.segment.ops[index].sequence };
        let Question::Drain { name, .. } = question else { return };
        let mut left = count;
        let mut kept = std::collections::VecDeque::with_capacity(self.run.mailbox.len());
        for (order, signal) in std::mem::take(&mut self.run.mailbox) {
            if left > 0 && *signal.name == **name && question.sees(signal.delivery) {
                left -= 1;
                self.draft.consumed.push(Consumed { signal: signal.id, by });
            } else {
                kept.push_back((order, signal));
            }
        }
        self.run.mailbox = kept;
    }

    /// If the last op called is a read of the same question with the same answer, counts this one and returns the new
    /// count.
    fn repeat_last_read(&mut self, label: &Label, answer: &Payload) -> Option<u32> {
        let last = self.segment.reads.last.as_mut()?;
        if last.label != *label || last.answer != *answer || last.op + 1 != self.segment.ops.len() {
            return None;
        }
        last.count += 1;
        Some(last.count)
    }
}

/// Whether a read answered yes.
fn is_yes(answer: &Payload) -> bool {
    answer.bytes().is_ok_and(|bytes| &bytes[..] == b"true")
}
