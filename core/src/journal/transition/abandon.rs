//! Giving up an await. It is recorded, so that the outcome is not handed over in the next life either (rule 13).

use crate::journal::machine::{Machine, OpRef};
use crate::model::{Label, OpBody, OpKind, RecordedBody, RecordedOp};
use crate::payload::Digest;

fn label(target: u32) -> Label {
    super::label(OpKind::Abandon, "abandon".into(), Digest::of_parts(&[&target.to_le_bytes()]))
}

impl Machine {
    /// Gives up an await: the outcome is never handed over, now or on replay (rule 13).
    pub fn abandon(&mut self, op: OpRef) {
        let Some(index) = self.index(op) else { return };
        if self.phase.is_over() || self.phase.is_ending() || self.segment.ops[index].is_settled() {
            return;
        }
        self.host.quiet = false;
        self.segment.awaited.retain(|awaited| *awaited != index);
        self.segment.ops[index].give_up();
        self.settle_op(index);
        self.stop_attempt(index);
        self.give_signal_back(index);
        self.disarm(index);
        let target = self.segment.ops[index].sequence;
        let label = label(target);
        self.advance();
        if let Ok(Some(abandon)) = self.claim_twin(&label, None) {
            self.segment.ops[abandon].settle();
            return;
        }
        let abandon = self.segment.push(label, None);
        self.segment.ops[abandon].settle();
        self.place(abandon, OpBody::Abandon { target }, false);
        let what = self.segment.ops[index].label.to_string();
        self.draft.warn(Some(target), "abandoned", serde_json::json!({"op": what}));
        self.host.has_abandoned = true;
    }

    /// Nobody will be told how this op ends: the store cancels its task and takes its signal back.
    pub(in crate::journal) fn let_go(&mut self, sequence: u32) {
        let Some(op) = self.segment.by_sequence.get(&sequence).map(|index| &self.segment.ops[*index]) else { return };
        let open = op.task().is_some_and(|task| !task.options.detached && !task.status.is_terminal());
        if open || op.label.kind == OpKind::Signal {
            self.draft.orphaned.push(sequence);
        }
    }

    /// An await that was given up before the crash is never handed over.
    pub(in crate::journal) fn recover_abandons(&mut self, tail: &[RecordedOp]) {
        for recorded in tail {
            if let RecordedBody::Abandon { target } = recorded.body
                && !recorded.is_undone()
                && let Some(target) = self.segment.by_sequence.get(&target)
                && let Some(abandon) = self.segment.by_sequence.get(&recorded.sequence)
            {
                self.segment.ops[*target].give_up();
                self.segment.abandons.insert(*abandon, *target);
            }
        }
    }
}
