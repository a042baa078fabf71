//! A checkpoint: the end of a segment, and the beginning of the next.

use crate::error::{Code, Error, Result};
use crate::journal::effect::{Effect, Handed, Outcome};
use crate::journal::machine::{Machine, OpRef};
use crate::journal::op::Op;
use crate::journal::phase::Phase;
use crate::model::{BatchEnd, NewCheckpoint, RecordedOp};
use crate::payload::Payload;

impl Machine {
    /// Asks for a checkpoint; `OpRef::CHECKPOINT` is handed `Done` once it is durable.
    pub fn checkpoint(&mut self, state: Payload, metadata: String) -> Result<()> {
        self.check_open()?;
        if !self.config.stateful {
            return Err(Error::new(
                Code::StateNotDeclared,
                "a checkpoint with a state needs an agent that is declared with one; without it recovery replays the \
                 recorded run, and flush forces a commit",
            ));
        }
        let open = self.open_operations();
        if !open.is_empty() {
            return Err(Error::new(
                Code::OpenOperations,
                format!(
                    "a checkpoint needs every op of its segment to be settled, but these are open: {}; await them, schedule tasks with detached=True, or start children with an id=",
                    open.join(", ")
                ),
            ));
        }
        let leaves = self.segment.leaves.clone();
        self.phase = Phase::Saving(Some(Box::new(NewCheckpoint { state, leaves, metadata })));
        Ok(())
    }

    fn open_operations(&self) -> Vec<String> {
        let open = |op: &Op| {
            !op.is_unclaimed()
                && op.segment == self.segment.number
                && !op.is_settled()
                && !op.is_detached()
                && !op.has_durable_end()
        };
        self.segment.ops.iter().filter(|op| open(op)).map(|op| format!("{} ({})", op.label, op.sequence)).collect()
    }

    /// Commits a checkpoint, in the last batch of its segment. If the draft was too large, its other parts have been
    /// committed before.
    pub(in crate::journal) fn commit_checkpoint(&mut self, saved: NewCheckpoint) {
        if self.draft.ops.is_empty()
            && let Some((_, tail)) = self.run.ahead.pop_first()
        {
            return self.begin_recorded_segment(saved, &tail);
        }
        let orphaned = match self.orphans() {
            Ok(orphaned) => orphaned,
            Err(failure) => return self.pause_diverged(failure),
        };
        self.forget_children();
        self.commit(BatchEnd::Checkpoint(saved), orphaned);
    }

    /// Begins the next segment after its checkpoint: the tail is empty again.
    pub(in crate::journal) fn begin_segment(&mut self, saved: NewCheckpoint) {
        self.segment.next(saved.leaves, self.run.order);
        if self.phase.is_saving() {
            self.phase = Phase::Running;
        }
        self.host.quiet = false;
        self.effects.push_back(Effect::Deliver(vec![Handed { op: OpRef::CHECKPOINT, outcome: Outcome::Done }]));
    }

    /// Begins a segment whose checkpoint is damaged (rule 18). Its recorded ops were loaded, and are replayed on top of
    /// the state that the code has saved again. The facts are applied anew, since they may end ops of this segment.
    fn begin_recorded_segment(&mut self, saved: NewCheckpoint, tail: &[RecordedOp]) {
        let code = self.segment.code.clone();
        self.begin_segment(saved);
        self.segment.code = code;
        self.run.mailbox.clear();
        self.load(tail);
        let facts = std::mem::take(&mut self.run.ahead_facts);
        self.apply_all(facts, true);
    }
}
